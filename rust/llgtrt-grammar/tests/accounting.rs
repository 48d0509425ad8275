//! What compiled grammars are counted with is near to what they take: the cache's bound is one of memory.

#[path = "../../llgtrt-schema/tests/counting/mod.rs"]
#[allow(dead_code, reason = "each test binary uses its own part")]
mod counting;
#[path = "suite/support/mod.rs"]
mod support;

use std::sync::Mutex;

use counting::live;
use llgtrt_grammar::{CompiledGrammar, GrammarConfig};
use serde_json::{Value, json};
use support::{Bench, Greedy, WORDS, schema};

/// Schemas that generators of programming languages write.
const CORPUS: &str = include_str!("data/generated.jsonl");

/// Schemas that are large in one way each.
fn large() -> Vec<Value> {
    let properties: serde_json::Map<String, Value> = (0..300)
        .map(|i| (format!("key{i}"), json!({"type": ["string", "integer"], "maxLength": i})))
        .collect();
    let names: Vec<&String> = properties.keys().collect();
    // What a grammar leaves open has judges, one for each pattern.
    let verified: serde_json::Map<String, Value> = (0..300)
        .map(|i| (format!("key{i}"), json!({"type": "string", "pattern": format!(r"^(.)\1x{}", i % 240)})))
        .collect();
    let values: Vec<String> = (0..900).map(|i| format!("value {i}")).collect();
    vec![
        json!({"properties": properties, "additionalProperties": false}),
        json!({"properties": properties, "required": names, "additionalProperties": false}),
        json!({"enum": values}),
        json!({"const": {"k".repeat(4000): 1}}),
        json!({"const": "k".repeat(20_000)}),
        json!({"enum": ["k".repeat(20_000), "b"]}),
        json!({"properties": verified, "additionalProperties": false}),
        json!({"type": "array", "minItems": 200, "items": {"type": "string", "pattern": "^[a-z]{3,40}[0-9]+$"}}),
    ]
}

/// An estimate is good enough at half to one and a half times its figure.
fn fits(taken: usize, counted: usize) -> bool {
    counted < 2 * taken && taken < counted + counted / 2
}

/// Memory is counted for the whole process: one test at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// Keeps nothing but what a test holds.
fn without_cache() -> Bench {
    let config = GrammarConfig { cache_megabytes: 0, compile_slots: 1, ..GrammarConfig::default() };
    Bench::new(Greedy::new(&WORDS, 1), config)
}

#[test]
fn a_grammar_that_is_gone_leaves_little() {
    const MANY: usize = 1000;
    let _alone = ALONE.lock().unwrap();
    let bench = without_cache();
    let compile =
        |i: usize| drop(bench.compiler.compile(&schema(&format!(r#"{{"const": "n {i}"}}"#))).unwrap());
    // The compiler's thread drops what it needed before it takes the next schema.
    let settled = || {
        compile(0);
        live()
    };
    settled();
    let before = settled();
    (1..=MANY).for_each(compile);
    let left = settled() - before;
    assert!(left < 800 * MANY, "{left} bytes of {MANY} grammars");
}

#[test]
fn the_count_is_near_the_memory() {
    let _alone = ALONE.lock().unwrap();
    let bench = without_cache();
    let compile = |value: &Value| bench.compiler.compile(&schema(&value.to_string())).ok();
    // The compiler's thread drops what it needed before it takes the next schema.
    let settled = || {
        drop(compile(&json!({})));
        live()
    };
    settled();
    let corpus = CORPUS.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["schema"].take());
    let before = settled();
    let grammars: Vec<_> = corpus.filter_map(|value| compile(&value)).collect();
    let taken = settled() - before;
    let counted: usize = grammars.iter().map(CompiledGrammar::bytes).sum();
    assert!(grammars.len() > 200);
    assert!(fits(taken, counted), "{taken} bytes, counted as {counted}");
    for value in large() {
        let before = settled();
        let grammar = compile(&value).unwrap_or_else(|| panic!("{value:.80}"));
        let text = value.to_string();
        let near = |when: &str| {
            let (taken, counted) = (settled() - before, grammar.bytes());
            assert!(fits(taken, counted), "{taken}, {counted} {when}: {text:.80}");
        };
        near("when it is compiled");
        grammar.way_out();
        near("with the shortest answer");
    }
}
