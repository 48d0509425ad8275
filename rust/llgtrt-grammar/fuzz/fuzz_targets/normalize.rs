//! Any JSON text as a schema: the normaliser answers within its bounds and does not panic.
//!
//! `cargo +nightly fuzz run normalize` in `rust/llgtrt-grammar`.

#![no_main]

use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use llgtrt_schema::{NormalizeLimits, normalize, rewrite};

fn nodes(value: &serde_json::Value) -> usize {
    match value {
        serde_json::Value::Array(list) => 1 + list.iter().map(nodes).sum::<usize>(),
        serde_json::Value::Object(members) => 1 + members.values().map(nodes).sum::<usize>(),
        _ => 1,
    }
}

fuzz_target!(|data: &[u8]| {
    let Ok(schema) = serde_json::from_slice::<serde_json::Value>(data) else { return };
    let work = move || {
        let limits = NormalizeLimits { max_time: Duration::from_millis(300), ..NormalizeLimits::default() };
        for result in [normalize(&schema, &limits), rewrite(&schema, &limits)] {
            if let Ok(normalized) = result {
                assert!(nodes(&normalized.schema) <= 2 * limits.max_nodes + nodes(&schema));
            }
        }
    };
    let thread = llgtrt_grammar::spawn_big_stack("normalize", work).expect("a thread");
    assert!(thread.join().is_ok());
});
