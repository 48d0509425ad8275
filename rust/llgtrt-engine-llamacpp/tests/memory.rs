//! The memory of the KV cache is taken as it is used.

#![cfg(target_os = "linux")]

mod common;

use common::*;

/// Memory of the process that is in RAM and its own, in bytes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

/// 30 layers of 3 heads of 64 numbers, in keys and values of two bytes.
const TOKEN_BYTES: u64 = 2 * 30 * 3 * 64 * 2;

#[test]
fn a_cache_that_nobody_used_takes_no_memory() {
    let (slots, tokens) = (8, 4096);
    let Some(model) = model_with(|config| {
        config.max_batch_size = slots;
        config.max_sequence_tokens = Some(tokens);
    }) else {
        return;
    };
    let whole = u64::from(slots * tokens) * TOKEN_BYTES;
    let before = resident();
    let mut engine = engine(&model);
    let started = resident() - before;
    assert!(started < whole / 8, "{started} bytes for an empty cache of {whole}");

    let prompt = encode(&model, &"The river runs to the sea. ".repeat(60));
    let used = prompt.len();
    run(&mut engine, vec![spec(1, prompt, 8)]);
    let grown = resident() - before - started;
    // Mostly what a forward pass over a whole batch needs.
    assert!(grown < whole / 4, "{grown} bytes for {used} tokens of {TOKEN_BYTES} each");
}
