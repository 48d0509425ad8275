//! Any JSON text as a schema: the normaliser answers within its budget of steps and bytes, its live memory stays
//! below the ceiling, and it does not panic.
//!
//! `cargo +nightly fuzz run normalize` in `rust/llgtrt-schema`.

#![no_main]

#[path = "../../tests/counting/mod.rs"]
mod counting;

use libfuzzer_sys::fuzz_target;
use llgtrt_schema::{NormalizeLimits, Reason, ResidualMode, normalize, rewrite};

fn nodes(value: &serde_json::Value) -> usize {
    match value {
        serde_json::Value::Array(list) => 1 + list.iter().map(nodes).sum::<usize>(),
        serde_json::Value::Object(members) => 1 + members.values().map(nodes).sum::<usize>(),
        _ => 1,
    }
}

fn judge(schema: &serde_json::Value, residual: ResidualMode) {
    let limits = NormalizeLimits { residual, compose: true, ..NormalizeLimits::default() };
    for normalize in [normalize, rewrite] {
        let (answer, live) = counting::measured(|| normalize(schema, &limits));
        assert!(live <= counting::MAX_LIVE, "{live} bytes live");
        let spent = match answer {
            Ok(normalized) => {
                assert!(nodes(&normalized.schema) <= 2 * limits.max_nodes + nodes(schema));
                normalized.spent
            }
            Err(error) => {
                assert_ne!(error.reason, Reason::TimedOut);
                error.spent
            }
        };
        assert!(spent.steps <= limits.max_steps && spent.bytes <= limits.max_bytes);
    }
}

fuzz_target!(|data: &[u8]| {
    let Ok(schema) = serde_json::from_slice::<serde_json::Value>(data) else { return };
    counting::on_big_stack(|| {
        judge(&schema, ResidualMode::Refuse);
        judge(&schema, ResidualMode::Verify);
    });
});
