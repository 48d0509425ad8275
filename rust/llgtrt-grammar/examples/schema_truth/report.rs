//! Sums over the schemas, per split and in all.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

pub(crate) struct Verdict {
    pub(crate) valid: bool,
    pub(crate) accepted: bool,
    /// Bytes that were allowed, if not all.
    pub(crate) at: Option<usize>,
}

/// What one compiler did with one schema.
#[derive(Default)]
pub(crate) struct Record {
    pub(crate) refused: Option<String>,
    pub(crate) path: Option<String>,
    pub(crate) compile: Duration,
    pub(crate) verdicts: Vec<Verdict>,
    pub(crate) masks: Vec<Duration>,
}

impl Record {
    fn wrongly_accepted(&self) -> bool {
        self.verdicts.iter().any(|v| v.accepted && !v.valid)
    }

    fn wrongly_rejected(&self) -> bool {
        self.verdicts.iter().any(|v| !v.accepted && v.valid)
    }

    fn right(&self) -> bool {
        self.refused.is_none() && self.verdicts.iter().all(|v| v.accepted == v.valid)
    }

    pub(crate) fn to_json(&self) -> Value {
        let verdicts: Vec<Value> = self
            .verdicts
            .iter()
            .map(|v| json!({"valid": v.valid, "accepted": v.accepted, "at": v.at}))
            .collect();
        json!({
            "refused": self.refused,
            "path": self.path,
            "compile_ms": self.compile.as_secs_f64() * 1e3,
            "right": self.right(),
            "tests": verdicts,
        })
    }
}

type Row = (String, Record, Record);

/// Prints everything; `true` if we accepted no invalid instance.
pub(crate) fn report(rows: &[Row]) -> bool {
    let mut splits: BTreeMap<&str, Vec<&Row>> = BTreeMap::new();
    for row in rows {
        let split = row.0.split("---").next().unwrap_or("").split('_').take(2);
        let end: usize = split.map(|part| part.len() + 1).sum::<usize>().saturating_sub(1);
        let name = row.0.get(..end.min(row.0.find("---").unwrap_or(end))).unwrap_or("");
        let name = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '_');
        splits.entry(name).or_default().push(row);
    }
    println!("{:32} {:>5} | {:>28} | {:>28}", "split", "count", "ours: right/refused/acc/rej", "plain");
    for (name, rows) in &splits {
        line(name, rows);
    }
    let all: Vec<&Row> = rows.iter().collect();
    line("all", &all);
    let both: Vec<&Row> =
        rows.iter().filter(|row| row.1.refused.is_none() && row.2.refused.is_none()).collect();
    println!("\nours, all schemas   {}", times(all.iter().map(|row| &row.1)));
    println!("plain, all schemas  {}", times(all.iter().map(|row| &row.2)));
    println!("ours, both accept   {}", times(both.iter().map(|row| &row.1)));
    println!("plain, both accept  {}", times(both.iter().map(|row| &row.2)));
    refusals(rows);
    list("wrongly accepted (ours)", rows, |row| row.1.wrongly_accepted());
    list("wrongly accepted (plain)", rows, |row| row.2.wrongly_accepted());
    list("wrongly rejected (ours)", rows, |row| row.1.wrongly_rejected());
    list("right with plain only", rows, |row| row.2.right() && !row.2.verdicts.is_empty() && !row.1.right());
    !rows.iter().any(|row| row.1.wrongly_accepted())
}

fn line(name: &str, rows: &[&Row]) {
    let sums = |of: &dyn Fn(&Row) -> &Record| {
        let records: Vec<&Record> = rows.iter().map(|row| of(row)).collect();
        let count = |test: &dyn Fn(&Record) -> bool| records.iter().filter(|r| test(r)).count();
        let right = count(&Record::right);
        format!(
            "{:5.1}% {right}/{}/{}/{}",
            100.0 * right as f64 / rows.len().max(1) as f64,
            count(&|r| r.refused.is_some()),
            count(&Record::wrongly_accepted),
            count(&Record::wrongly_rejected)
        )
    };
    println!("{name:32} {:>5} | {:>28} | {:>28}", rows.len(), sums(&|r| &r.1), sums(&|r| &r.2));
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

fn refusals(rows: &[Row]) {
    let mut reasons: BTreeMap<String, Vec<&Row>> = BTreeMap::new();
    for row in rows {
        if let Some(message) = &row.1.refused {
            reasons.entry(message.chars().take(90).collect()).or_default().push(row);
        }
    }
    let mut reasons: Vec<_> = reasons.into_iter().collect();
    reasons.sort_by_key(|(_, rows)| std::cmp::Reverse(rows.len()));
    println!("\nrefused:");
    for (reason, rows) in reasons {
        let examples: Vec<String> = rows
            .iter()
            .take(4)
            .map(|row| format!("{} @{}", row.0, row.1.path.as_deref().unwrap_or("?")))
            .collect();
        println!("{:5} {reason}\n        {}", rows.len(), examples.join("; "));
    }
}

fn list(title: &str, rows: &[Row], test: impl Fn(&Row) -> bool) {
    let ids: Vec<&str> = rows.iter().filter(|row| test(row)).map(|row| row.0.as_str()).collect();
    println!("\n{title}: {}", ids.len());
    for id in ids {
        println!("  {id}");
    }
}
