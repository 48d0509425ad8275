//! Schemas that generators of programming languages write, one per line in `data/generated.jsonl`: pydantic
//! 2.14, zod 4, `TypeBox` 0.34, and by their documentation schemars, .NET's and Go's libraries.
//!
//! All are taken, and what is generated is valid. That pydantic reads it, a test in Python shows.

use crate::random_schemas::try_walk;
use crate::support::{Bench, schema};
use llgtrt_core::SequenceId;
use serde_json::{Value, json};

const CORPUS: &str = include_str!("../data/generated.jsonl");

fn corpus() -> impl Iterator<Item = (String, Value)> {
    CORPUS.lines().map(|line| {
        let mut row: Value = serde_json::from_str(line).unwrap();
        (format!("{} {}", row["from"], row["name"]), row["schema"].take())
    })
}

#[test]
fn all_are_taken_and_answers_are_valid() {
    let bench = Bench::words();
    let (mut refused, mut open, mut count) = (Vec::new(), 0, 0);
    for (name, value) in corpus() {
        count += 1;
        let Ok(grammar) = bench.compiler.compile(&schema(&value.to_string())) else {
            // What no grammar holds is verified.
            let mut verified = value.clone();
            verified["x-guidance"] = json!({ "residual": "verify" });
            match bench.compiler.compile(&schema(&verified.to_string())) {
                Ok(_) => open += 1,
                Err(error) => refused.push(format!("{name}: {}", error.message)),
            }
            continue;
        };
        if grammar.is_verified() {
            // Its walks take tokens back; `verify` has tests of its own.
            open += 1;
            continue;
        }
        // Old `items` lists without `$schema`: ours by intention, unreadable for the validator.
        let Ok(validator) = jsonschema::options().should_validate_formats(true).build(&value) else {
            continue;
        };
        for seed in 0..3_u16 {
            bench.pool.register(SequenceId(1), &grammar);
            let mut state = u64::from(seed) + 1;
            let mut next = || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 48) as u16
            };
            let choices: Vec<u16> = (0..4000).map(|_| next()).collect();
            let tokens = try_walk(&bench, &choices, false);
            bench.pool.remove(SequenceId(1));
            // A string without a bound may go on for longer than the walk.
            let Some(tokens) = tokens else { continue };
            let text = String::from_utf8(bench.decode(&tokens)).unwrap();
            let instance: Value = match serde_json::from_str(&text) {
                Ok(instance) => instance,
                // JSON, but beyond what a double holds: the validator cannot judge it.
                Err(error) if error.to_string().contains("number out of range") => continue,
                Err(error) => panic!("{name}: {error}: {text}"),
            };
            let is_null = instance.to_string().contains("null") && value.to_string().contains("nullable");
            // RFC 5321 bounds the part before the `@`; its pattern does not.
            let is_long_address =
                value["format"] == "email" && text.split('@').next().is_some_and(|local| local.len() > 65);
            assert!(is_null || is_long_address || validator.is_valid(&instance), "{name}: {text} of {value}");
        }
    }
    assert!(count > 250, "{count}");
    assert!(refused.is_empty(), "{refused:#?}");
    assert!(open < 12, "{open} are only verified");
}
