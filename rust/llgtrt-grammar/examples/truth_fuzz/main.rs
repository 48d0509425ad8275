//! Random schemas over all keywords against the `jsonschema` crate: no invalid instance may be accepted, no answer be
//! invalid, and every valid instance that is rejected is counted by its cause.
//!
//! `cargo run --release -p llgtrt-grammar --example truth_fuzz -- [--pairs N] [--seed N] [--threads N] [--show CAUSE]`
//!
//! With `--schemas FILE` (JSON lines with `schema`) these are compiled instead, each once in every round, until
//! `--answers N` random answers have ended; `--walks N` of each in a round.

#[path = "../../tests/suite/fuzz/mod.rs"]
mod fuzz;
#[path = "../../tests/suite/support/mod.rs"]
mod support;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use fuzz::random::Random;
use fuzz::shrink::shrink;
use fuzz::trial::{Case, Findings, answers, trial};
use llgtrt_grammar::GrammarConfig;
use serde_json::Value;
use support::{Bench, Greedy};

/// Cases printed of each kind.
const SHOWN: usize = 20;

struct Options {
    pairs: u64,
    seed: u64,
    threads: usize,
    /// A cause of rejections of which cases are printed.
    show: Option<String>,
    /// Schemas that are given: none are made.
    schemas: Vec<Value>,
    answers: u64,
    walks: usize,
}

impl Options {
    fn from_args(mut args: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut options = Self {
            pairs: 100_000,
            seed: 1,
            threads: 1,
            show: None,
            schemas: Vec::new(),
            answers: 100_000,
            walks: 8,
        };
        while let Some(name) = args.next() {
            let value = args.next().ok_or_else(|| format!("{name} needs a value"))?;
            let number = || value.parse::<u64>().map_err(|error| format!("{name}: {error}"));
            match name.as_str() {
                "--pairs" => options.pairs = number()?,
                "--seed" => options.seed = number()?,
                "--threads" => options.threads = number()?.max(1) as usize,
                "--show" => options.show = Some(value),
                "--schemas" => options.schemas = read(&value)?,
                "--answers" => options.answers = number()?,
                "--walks" => options.walks = number()?.max(1) as usize,
                _ => return Err(format!("unknown option {name}")),
            }
        }
        Ok(options)
    }

    /// Trial `number`.
    fn trial(&self, bench: &Bench, number: u64) -> Findings {
        let Some(last) = self.schemas.len().checked_sub(1) else { return trial(bench, self.seed, number) };
        let schema = &self.schemas[number as usize % (last + 1)];
        answers(bench, schema, self.walks, &mut Random::new(self.seed, number))
    }

    fn is_enough(&self, all: &Findings) -> bool {
        if self.schemas.is_empty() { all.pairs >= self.pairs } else { all.answers >= self.answers }
    }
}

fn read(file: &str) -> Result<Vec<Value>, String> {
    let text = std::fs::read_to_string(file).map_err(|error| format!("{file}: {error}"))?;
    let line = |line: &str| serde_json::from_str::<Value>(line).map(|mut row| row["schema"].take());
    let schemas: Result<Vec<Value>, _> = text.lines().map(line).collect();
    let mut schemas = schemas.map_err(|error| format!("{file}: {error}"))?;
    // Only an object can carry options.
    schemas.retain(Value::is_object);
    if schemas.is_empty() { Err(format!("{file}: no schemas")) } else { Ok(schemas) }
}

fn bench() -> Bench {
    let config =
        GrammarConfig { compile_slots: 1, mask_threads: Some(1), standard: true, ..GrammarConfig::default() };
    Bench::new(Greedy::new(&[], 1), config)
}

fn main() -> ExitCode {
    let options = match Options::from_args(std::env::args().skip(1)) {
        Ok(options) => Arc::new(options),
        Err(message) => {
            eprintln!("{message}");
            return ExitCode::FAILURE;
        }
    };
    let all = Arc::new(Mutex::new(Findings::default()));
    let next = Arc::new(AtomicU64::new(0));
    let workers: Vec<_> = (0..options.threads)
        .map(|_| {
            let (options, all, next) = (Arc::clone(&options), Arc::clone(&all), Arc::clone(&next));
            llgtrt_grammar::spawn_big_stack("fuzz", move || {
                let bench = bench();
                loop {
                    let found = options.trial(&bench, next.fetch_add(1, Ordering::Relaxed));
                    let mut all = all.lock().expect("no worker panics with the lock");
                    all.add(found);
                    if options.is_enough(&all) {
                        return;
                    }
                }
            })
            .expect("a thread")
        })
        .collect();
    let mut whole = true;
    for worker in workers {
        whole &= worker.join().is_ok();
    }
    let show = options.show.clone();
    let report = move || report(&all.lock().expect("the workers have ended"), show.as_deref());
    let right = llgtrt_grammar::spawn_big_stack("report", report).map(std::thread::JoinHandle::join);
    if matches!(right, Ok(Ok(true))) && whole { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Prints what was found; true if nothing is wrong.
fn report(all: &Findings, show: Option<&str>) -> bool {
    println!("schemas                       {:>9}", all.schemas);
    for (who, count) in &all.refused {
        println!("  refused ({who:22}){count:>6}");
    }
    println!("  said to be empty, but not   {:>9}", all.wrongly_empty.len());
    println!("pairs of schema and instance  {:>9}", all.pairs);
    println!("  valid                       {:>9}", all.valid);
    println!("  in another order of keys    {:>9}", all.reordered);
    println!("  wrongly accepted            {:>9}", all.wrongly_accepted.len());
    let rejected: usize = all.wrongly_rejected.values().map(Vec::len).sum();
    println!("  wrongly rejected            {rejected:>9}");
    for (cause, cases) in &all.wrongly_rejected {
        println!("    {cause:26}{:>9}", cases.len());
    }
    println!("formats looser than the judge's{:>7}", all.formats_looser.len());
    println!("random answers that ended     {:>9}", all.answers);
    println!("  cut off, or given up        {:>9}", all.cut_off);
    println!("  with a number misread       {:>9}", all.misread);
    println!("  invalid                     {:>9}", all.wrong_answers.len());
    println!("  at a dead end               {:>9}", all.dead_ends.len());
    let bench = bench();
    list(&bench, "wrongly accepted", &all.wrongly_accepted, true);
    list(&bench, "invalid answers", &all.wrong_answers, true);
    list(&bench, "format", &all.formats_looser, true);
    let cause = show.unwrap_or("unexplained");
    list(&bench, cause, all.wrongly_rejected.get(cause).map_or(&[][..], Vec::as_slice), false);
    for (case, message) in all.dead_ends.iter().take(SHOWN) {
        println!("dead end: {message}\n  {}\n  {}", case.schema, case.instance);
    }
    for case in all.wrongly_empty.iter().take(SHOWN) {
        println!("said to be empty:\n  {}\n  {}", case.schema, case.instance);
    }
    for (schema, why) in all.engine_refused.iter().take(SHOWN) {
        println!("refused by the grammar engine: {why}\n  {schema}");
    }
    all.wrongly_accepted.is_empty()
        && all.wrongly_empty.is_empty()
        && all.wrong_answers.is_empty()
        && all.dead_ends.is_empty()
}

fn list(bench: &Bench, title: &str, cases: &[Case], accepted: bool) {
    let mut seen = Vec::new();
    for case in cases.iter().take(5 * SHOWN) {
        if seen.len() == SHOWN {
            break;
        }
        let small = shrink(bench, case, accepted);
        if !seen.contains(&small.schema) {
            println!("{title} ({}):\n  {}\n  {}", small.mode, small.schema, small.instance);
            seen.push(small.schema);
        }
    }
}
