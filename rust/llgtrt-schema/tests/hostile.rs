//! Schemas that are made to be expensive are answered within the budget: steps and bytes by its own count,
//! and live memory by that of the allocator.

mod corpus;
mod counting;

use std::time::Duration;

use llgtrt_schema::{NormalizeLimits, Reason, ResidualMode, Spending, normalize, rewrite};
use serde_json::{Value, json};

fn limits(residual: ResidualMode) -> NormalizeLimits {
    NormalizeLimits { residual, compose: true, ..NormalizeLimits::default() }
}

/// What was spent, and why it was refused if it was.
fn spending(schema: &Value, limits: &NormalizeLimits) -> (Spending, Option<Reason>) {
    match rewrite(schema, limits) {
        Ok(normalized) => (normalized.spent, None),
        Err(error) => (error.spent, Some(error.reason)),
    }
}

/// Processor time of this thread, where the system tells it: for those who look, no test depends on it.
fn processor_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    Duration::from_nanos(text.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or_default())
}

/// What is wrong with the answer to a schema, if anything is.
fn judge(name: &str, schema: &Value, residual: ResidualMode) -> Option<String> {
    let limits = limits(residual);
    let before = processor_time();
    let ((spent, reason), live) = counting::measured(|| spending(schema, &limits));
    if std::env::var_os("LLGTRT_SPENDING").is_some() {
        let time = processor_time().saturating_sub(before);
        let (steps, held, live) = (spent.steps, spent.bytes >> 20, live >> 20);
        println!("{time:>9.1?} {steps:>9} steps {held:>4} MB held {live:>4} MB live {reason:?} {name}");
    }
    let is_bounded = spent.steps <= limits.max_steps
        && spent.bytes <= limits.max_bytes
        && live <= counting::MAX_LIVE
        && reason != Some(Reason::TimedOut);
    (!is_bounded).then(|| format!("{name}: {spent:?}, {live} bytes live, {reason:?}"))
}

#[test]
fn every_hostile_schema_is_answered_within_its_budget() {
    let failed: Vec<String> = counting::on_big_stack(|| {
        let corpus = corpus::hostile();
        assert!(corpus.len() >= 60, "{}", corpus.len());
        let modes = [ResidualMode::Verify, ResidualMode::Refuse];
        let judged = corpus.iter().zip(modes.iter().cycle());
        let mut failed: Vec<String> =
            judged.filter_map(|((name, schema), mode)| judge(name, schema, *mode)).collect();
        // The same steps, whatever the hash tables' order and the machine's load are.
        for (name, schema) in corpus.iter().step_by(7) {
            let few = NormalizeLimits { max_steps: 300_000, ..limits(ResidualMode::Verify) };
            let (first, again) = (spending(schema, &few), spending(schema, &few));
            if first != again {
                failed.push(format!("{name}: {first:?} and {again:?}"));
            }
        }
        // Nothing is left over that slows down or refuses a simple schema.
        let simple = json!({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]});
        let normalized = normalize(&simple, &limits(ResidualMode::Refuse)).expect("a simple schema");
        assert!(normalized.spent.steps < 100, "{:?}", normalized.spent);
        failed
    });
    assert!(failed.is_empty(), "{failed:#?}");
}
