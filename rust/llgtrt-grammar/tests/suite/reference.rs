//! The reference page of JSON Schema is what the rules say, and each rule's example is true to an
//! independent validator, on valid and on invalid instances.
//!
//! `LLGTRT_UPDATE=1` writes the page.

use std::path::Path;

use crate::support::Bench;
use llgtrt_core::GrammarSpec;
use llgtrt_grammar::{GrammarConfig, Instance};
use llgtrt_schema::{NormalizeLimits, RULES, normalize, reference};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Map, Value, json};

fn on_big_stack<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    llgtrt_grammar::spawn_big_stack("reference", work).expect("a thread").join().expect("no panic")
}

#[test]
fn the_page_is_what_the_rules_say() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/json-schema.md");
    let page = on_big_stack(reference);
    if std::env::var_os("LLGTRT_UPDATE").is_some() {
        std::fs::write(&path, &page).expect("the page can be written");
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(found == page, "docs/json-schema.md is stale; its head says how to write it again");
}

/// Small values, of which some satisfy each example.
fn instance() -> BoxedStrategy<Value> {
    let scalar = prop::sample::select(vec![
        json!(0),
        json!(1),
        json!(2),
        json!(5),
        json!(7),
        json!(10),
        json!(-1),
        json!(null),
        json!("a"),
        json!("b"),
        json!("ba"),
        json!("abc"),
        json!("12"),
        json!("/a~1b"),
        json!("a/b"),
        json!("2024-02-29"),
        json!("aGk="),
    ]);
    let key = prop::sample::select(vec!["a", "b", "c", "ab", "A"]);
    let nested = scalar.clone().prop_recursive(2, 8, 3, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
            prop::collection::vec((key.clone(), inner), 0..4).prop_map(|members| {
                Value::Object(members.into_iter().map(|(k, v)| (k.to_owned(), v)).collect::<Map<_, _>>())
            }),
        ]
    });
    prop_oneof![scalar, nested].boxed()
}

#[test]
fn every_rule_is_used_on_its_example_and_right_on_both_sides() {
    let letter = Bench::bytes();
    let default = Bench::with(GrammarConfig::default());
    for rule in RULES {
        let bench = if rule.is_default_only() { &default } else { &letter };
        let schema: Value = serde_json::from_str(rule.example).expect(rule.name);
        let standard = !rule.is_default_only();
        let limits = NormalizeLimits { compose: true, standard, ..NormalizeLimits::default() };
        let source = schema.clone();
        let found = on_big_stack(move || normalize(&source, &limits)).expect(rule.name);
        assert!(found.rules.iter().any(|used| used.rule == rule.name), "{}: {:?}", rule.name, found.rules);
        let grammar = bench.compile(&GrammarSpec::JsonSchema(schema.to_string()));
        let validator = jsonschema::options().should_validate_formats(true).build(&schema).expect(rule.name);
        let (valid, invalid) = (std::cell::Cell::new(0), std::cell::Cell::new(0));
        let config = Config { cases: 400, failure_persistence: None, ..Config::default() };
        let rng =
            proptest::test_runner::TestRng::deterministic_rng(proptest::test_runner::RngAlgorithm::ChaCha);
        let result = TestRunner::new_with_rng(config, rng).run(&instance(), |value| {
            let holds = validator.is_valid(&value);
            let accepted = grammar.judge(Instance::Value(&value)).accepted;
            // OpenAPI's keyword is no standard's.
            let is_null = rule.name == "nullable" && value.is_null();
            prop_assert!(holds || !accepted || is_null, "{}: invalid but accepted: {value}", rule.name);
            let narrows = ["narrowed", "common-format", "integer-format", "content-encoding"];
            let narrows = narrows.contains(&rule.name) || rule.is_default_only();
            prop_assert!(accepted || !holds || narrows, "{}: rejected: {value}", rule.name);
            let side = if accepted { &valid } else { &invalid };
            side.set(side.get() + 1);
            Ok(())
        });
        result.unwrap_or_else(|error| panic!("{}: {error}", rule.name));
        assert!(valid.get() > 0 && invalid.get() > 0, "{}: {valid:?} {invalid:?}", rule.name);
    }
}
