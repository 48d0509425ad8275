//! Sums over the schemas, per split and in all.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

#[derive(Clone)]
pub(crate) struct Verdict {
    pub(crate) valid: bool,
    /// As it is written, keys in that order.
    pub(crate) accepted: bool,
    /// With its keys in some order.
    pub(crate) any_order: bool,
    /// Bytes that were allowed, if not all.
    pub(crate) at: Option<usize>,
}

/// What one compiler did with one schema.
#[derive(Default)]
pub(crate) struct Record {
    pub(crate) refused: Option<String>,
    pub(crate) path: Option<String>,
    /// From the text to the mask of the first token.
    pub(crate) compile: Duration,
    /// Where one of several ways to be valid is left out (rule `narrowed`).
    pub(crate) narrowed: Vec<String>,
    pub(crate) verdicts: Vec<Verdict>,
    pub(crate) masks: Vec<Duration>,
}

/// Which verdict counts.
#[derive(Clone, Copy)]
enum Order {
    Written,
    Any,
}

impl Record {
    fn wrong(&self, order: Order, valid: bool) -> bool {
        self.verdicts.iter().any(|v| v.valid == valid && v.is_accepted(order) != valid)
    }

    fn right(&self, order: Order) -> bool {
        self.refused.is_none() && !self.wrong(order, true) && !self.wrong(order, false)
    }

    /// The same verdicts.
    pub(crate) fn without_times(&self) -> Self {
        Self {
            refused: self.refused.clone(),
            path: self.path.clone(),
            narrowed: self.narrowed.clone(),
            verdicts: self.verdicts.clone(),
            ..Self::default()
        }
    }

    fn to_json(&self) -> Value {
        let verdicts: Vec<Value> = self
            .verdicts
            .iter()
            .map(|v| json!({"valid": v.valid, "accepted": v.accepted, "any_order": v.any_order, "at": v.at}))
            .collect();
        json!({
            "refused": self.refused,
            "path": self.path,
            "compile_ms": self.compile.as_secs_f64() * 1e3,
            "narrowed": self.narrowed,
            "right": self.right(Order::Any),
            "tests": verdicts,
        })
    }
}

impl Verdict {
    fn is_accepted(&self, order: Order) -> bool {
        match order {
            Order::Written => self.accepted,
            Order::Any => self.any_order,
        }
    }
}

/// One schema.
pub(crate) struct Row {
    pub(crate) id: String,
    /// The grammar holds all of the schema, or the schema is refused.
    pub(crate) ours: Record,
    /// The grammar holds what it can, and a validator judges the rest.
    pub(crate) verify: Record,
    /// llguidance alone.
    pub(crate) plain: Record,
}

impl Row {
    pub(crate) fn to_json(&self) -> Value {
        json!({
            "id": self.id,
            "ours": self.ours.to_json(),
            "verify": self.verify.to_json(),
            "plain": self.plain.to_json(),
        })
    }

    /// `Github_easy---o12` is of the split `Github_easy`.
    fn split(&self) -> &str {
        let name = self.id.split("---").next().unwrap_or("");
        name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '_')
    }
}

type Column = (&'static str, fn(&Row) -> &Record, Order);

const COLUMNS: [Column; 6] = [
    ("refuse, order as written", |row| &row.ours, Order::Written),
    ("refuse, any order of keys", |row| &row.ours, Order::Any),
    ("verify, order as written", |row| &row.verify, Order::Written),
    ("verify, any order of keys", |row| &row.verify, Order::Any),
    ("llguidance, as written", |row| &row.plain, Order::Written),
    ("llguidance, any order", |row| &row.plain, Order::Any),
];

/// Prints everything; `true` if we accepted no invalid instance.
pub(crate) fn report(rows: &[Row]) -> bool {
    let mut splits: BTreeMap<&str, Vec<&Row>> = BTreeMap::new();
    for row in rows {
        splits.entry(row.split()).or_default().push(row);
    }
    println!(
        "Each column: share fully right, schemas fully right/refused/accepting a wrong/rejecting a right\n"
    );
    print!("{:24} {:>5}", "split", "count");
    for (title, _, _) in COLUMNS {
        print!(" | {title:>25}");
    }
    println!();
    for (name, rows) in &splits {
        line(name, rows);
    }
    let all: Vec<&Row> = rows.iter().collect();
    line("all", &all);
    let both: Vec<&Row> =
        rows.iter().filter(|row| row.ours.refused.is_none() && row.plain.refused.is_none()).collect();
    println!("\nours, all schemas         {}", times(all.iter().map(|row| &row.ours)));
    println!("llguidance, all schemas   {}", times(all.iter().map(|row| &row.plain)));
    println!("ours, both accept         {}", times(both.iter().map(|row| &row.ours)));
    println!("llguidance, both accept   {}", times(both.iter().map(|row| &row.plain)));
    println!("ratio per schema          {}", ratios(&both));
    refusals(rows, "refused", |row| &row.ours);
    refusals(rows, "refused even with verify", |row| &row.verify);
    let any = Order::Any;
    list("accepting a wrong instance (ours)", rows, |row| row.ours.wrong(any, false));
    list("accepting a wrong instance (ours, verify)", rows, |row| row.verify.wrong(any, false));
    list("accepting a wrong instance (llguidance)", rows, |row| row.plain.wrong(any, false));
    list("rejecting a right instance (ours, as written)", rows, |row| row.ours.wrong(Order::Written, true));
    list("rejecting a right instance (ours, any order)", rows, |row| row.ours.wrong(any, true));
    list("rejecting a right instance (ours, verify)", rows, |row| row.verify.wrong(any, true));
    list("written narrower than it should be (ours)", rows, |row| !row.ours.narrowed.is_empty());
    list("written narrower than it should be, and rejecting a right instance", rows, |row| {
        !row.ours.narrowed.is_empty() && row.ours.wrong(any, true)
    });
    list("right with llguidance alone only", rows, |row| {
        !row.plain.verdicts.is_empty() && row.plain.right(Order::Written) && !row.ours.right(Order::Written)
    });
    !rows.iter().any(|row| {
        [&row.ours, &row.verify]
            .iter()
            .any(|record| [Order::Written, Order::Any].iter().any(|&order| record.wrong(order, false)))
    })
}

fn line(name: &str, rows: &[&Row]) {
    print!("{name:24} {:>5}", rows.len());
    for (_, of, order) in COLUMNS {
        let records: Vec<&Record> = rows.iter().map(|row| of(row)).collect();
        let count = |test: &dyn Fn(&Record) -> bool| records.iter().filter(|r| test(r)).count();
        let right = count(&|r| r.right(order));
        let sums = format!(
            "{:5.1}% {right}/{}/{}/{}",
            100.0 * right as f64 / rows.len().max(1) as f64,
            count(&|r| r.refused.is_some()),
            count(&|r| r.wrong(order, false)),
            count(&|r| r.wrong(order, true))
        );
        print!(" | {sums:>25}");
    }
    println!();
}

fn times<'a>(records: impl Iterator<Item = &'a Record> + Clone) -> String {
    let mut compile: Vec<Duration> = records.clone().map(|r| r.compile).collect();
    let mut masks: Vec<Duration> = records.flat_map(|r| r.masks.iter().copied()).collect();
    compile.sort_unstable();
    masks.sort_unstable();
    let at = |list: &[Duration], q: f64| {
        let index = ((list.len() as f64 * q) as usize).min(list.len().saturating_sub(1));
        list.get(index).map_or(0.0, |d| d.as_secs_f64() * 1e3)
    };
    format!(
        "compile p50 {:.2} ms p99 {:.1} ms max {:.0} ms; mask p50 {:.4} ms p99 {:.3} ms max {:.1} ms ({} masks)",
        at(&compile, 0.5),
        at(&compile, 0.99),
        at(&compile, 1.0),
        at(&masks, 0.5),
        at(&masks, 0.99),
        at(&masks, 1.0),
        masks.len()
    )
}

/// Our time divided by llguidance's, schema by schema.
fn ratios(rows: &[&Row]) -> String {
    let mut ratios: Vec<f64> = rows
        .iter()
        .map(|row| row.ours.compile.as_secs_f64() / row.plain.compile.as_secs_f64().max(1e-9))
        .collect();
    ratios.sort_unstable_by(f64::total_cmp);
    let at = |q: f64| ratios.get((ratios.len() as f64 * q) as usize).copied().unwrap_or(0.0);
    format!("compile p10 {:.2} p50 {:.2} p90 {:.2}", at(0.1), at(0.5), at(0.9))
}

fn refusals(rows: &[Row], title: &str, of: fn(&Row) -> &Record) {
    let mut reasons: BTreeMap<String, Vec<&Row>> = BTreeMap::new();
    for row in rows {
        if let Some(message) = &of(row).refused {
            reasons.entry(message.chars().take(90).collect()).or_default().push(row);
        }
    }
    let mut reasons: Vec<_> = reasons.into_iter().collect();
    reasons.sort_by_key(|(_, rows)| std::cmp::Reverse(rows.len()));
    println!("\n{title}:");
    for (reason, rows) in reasons {
        let examples: Vec<String> = rows
            .iter()
            .take(4)
            .map(|row| format!("{} @{}", row.id, of(row).path.as_deref().unwrap_or("?")))
            .collect();
        println!("{:5} {reason}\n        {}", rows.len(), examples.join("; "));
    }
}

fn list(title: &str, rows: &[Row], test: impl Fn(&Row) -> bool) {
    let ids: Vec<&str> = rows.iter().filter(|row| test(row)).map(|row| row.id.as_str()).collect();
    println!("\n{title}: {}", ids.len());
    for id in ids {
        println!("  {id}");
    }
}
