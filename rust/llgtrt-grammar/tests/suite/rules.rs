//! Every rule against an independent validator: random schemas in the rule's shape, random instances,
//! and the grammar's verdict on both valid and invalid ones.
//!
//! A grammar fixes the order of keys, so an instance counts as accepted if some order of its keys is;
//! and no order of an invalid one may be.

use std::sync::OnceLock;

use crate::support::Bench;
use llgtrt_core::GrammarSpec;
use llgtrt_schema::{NormalizeLimits, normalize};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Map, Value, json};

fn bench() -> &'static Bench {
    static BENCH: OnceLock<Bench> = OnceLock::new();
    BENCH.get_or_init(Bench::bytes)
}

/// All ways to order the keys of the value.
fn orders(value: &Value) -> Vec<Value> {
    match value {
        Value::Array(items) => items.iter().fold(vec![Value::Array(Vec::new())], |lists, item| {
            let options = orders(item);
            lists
                .iter()
                .flat_map(|list| {
                    options.iter().map(|option| {
                        let mut list = list.as_array().cloned().unwrap_or_default();
                        list.push(option.clone());
                        Value::Array(list)
                    })
                })
                .collect()
        }),
        Value::Object(members) => permutations(&members.keys().cloned().collect::<Vec<_>>())
            .iter()
            .flat_map(|keys| {
                keys.iter().fold(vec![Map::new()], |maps, key| {
                    let options = orders(&members[key]);
                    maps.iter()
                        .flat_map(|map| {
                            options.iter().map(|option| {
                                let mut map = map.clone();
                                map.insert(key.clone(), option.clone());
                                map
                            })
                        })
                        .collect()
                })
            })
            .map(Value::Object)
            .collect(),
        other => vec![other.clone()],
    }
}

fn permutations(keys: &[String]) -> Vec<Vec<String>> {
    if keys.is_empty() {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for (i, key) in keys.iter().enumerate() {
        let mut rest = keys.to_vec();
        rest.remove(i);
        for mut tail in permutations(&rest) {
            tail.insert(0, key.clone());
            all.push(tail);
        }
    }
    all
}

/// How a schema was dealt with.
#[derive(Debug, PartialEq)]
enum Outcome {
    Exact,
    Refused,
}

fn check(schema: &Value, instances: &[Value]) -> Result<Outcome, TestCaseError> {
    let rules = match on_big_stack(schema) {
        Ok(rules) => rules,
        Err(message) => {
            // What is said to allow nothing must allow nothing.
            if message.contains("allows nothing") {
                let validator = validator(schema);
                for instance in instances {
                    prop_assert!(!validator.is_valid(instance), "{schema} allows {instance}");
                }
                return Ok(Outcome::Exact);
            }
            return Ok(Outcome::Refused);
        }
    };
    let Ok(grammar) = bench().compiler.compile(&GrammarSpec::JsonSchema(schema.to_string())) else {
        return Ok(Outcome::Refused);
    };
    let validator = validator(schema);
    let narrowed = rules.contains(&"narrowed");
    for instance in instances {
        let valid = validator.is_valid(instance);
        let mut accepted = false;
        for text in orders(instance) {
            let taken = bench().takes(&grammar, &text.to_string());
            prop_assert!(valid || !taken, "invalid but accepted: {text}\n{schema}");
            accepted |= taken;
        }
        prop_assert!(accepted || !valid || narrowed, "valid but rejected: {instance}\n{schema}");
    }
    Ok(Outcome::Exact)
}

fn validator(schema: &Value) -> jsonschema::Validator {
    jsonschema::options().should_validate_formats(true).build(schema).expect("generated schemas are valid")
}

fn on_big_stack(schema: &Value) -> Result<Vec<&'static str>, String> {
    let schema = schema.clone();
    llgtrt_grammar::spawn_big_stack("normalize", move || {
        let limits = NormalizeLimits { compose: true, standard: true, ..NormalizeLimits::default() };
        normalize(&schema, &limits)
            .map(|normalized| normalized.rules.iter().map(|used| used.rule).collect())
            .map_err(|error| error.to_string())
    })
    .expect("a thread")
    .join()
    .expect("no panic")
}

/// Runs a strategy with a fixed seed (`LLGTRT_TEST_SCALE` times as often) and asks that at least `share` of the schemas are dealt with.
fn run(cases: u32, share: f64, schemas: impl Strategy<Value = Value>) {
    let scale = std::env::var("LLGTRT_TEST_SCALE").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let config = Config {
        cases: cases * scale,
        max_shrink_iters: 2000,
        failure_persistence: None,
        ..Config::default()
    };
    let mut runner = TestRunner::new_with_rng(
        config,
        proptest::test_runner::TestRng::deterministic_rng(proptest::test_runner::RngAlgorithm::ChaCha),
    );
    let counts = std::cell::Cell::new((0_u32, 0_u32));
    let strategy = (schemas, prop::collection::vec(value(2), 12));
    runner
        .run(&strategy, |(schema, instances)| {
            let outcome = check(&schema, &instances)?;
            let (exact, all) = counts.get();
            counts.set((exact + u32::from(outcome == Outcome::Exact), all + 1));
            Ok(())
        })
        .unwrap_or_else(|error| panic!("{error}"));
    let (exact, all) = counts.get();
    assert!(f64::from(exact) >= share * f64::from(all), "only {exact} of {all} schemas were dealt with");
}

const KEYS: [&str; 3] = ["a", "b", "c"];

fn key() -> impl Strategy<Value = &'static str> {
    prop::sample::select(&KEYS[..])
}

fn scalar() -> BoxedStrategy<Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-2_i64..8).prop_map(Value::from),
        prop::sample::select(vec![0.5, 1.5, -0.5, 2.5]).prop_map(Value::from),
        prop::sample::select(vec!["", "a", "b", "ab", "ba", "abc", "aa", "é"]).prop_map(Value::from),
    ]
    .boxed()
}

/// A small value.
fn value(depth: u32) -> BoxedStrategy<Value> {
    if depth == 0 {
        return scalar();
    }
    let inner = value(depth - 1);
    prop_oneof![
        2 => scalar(),
        1 => prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
        3 => prop::collection::btree_map(key(), inner, 0..4)
            .prop_map(|members| Value::Object(members.into_iter().map(|(k, v)| (k.to_owned(), v)).collect())),
    ]
    .boxed()
}

fn types() -> BoxedStrategy<Value> {
    prop::sample::select(vec!["null", "boolean", "integer", "number", "string", "array", "object"])
        .prop_map(|name| json!({ "type": name }))
        .boxed()
}

fn numbers() -> BoxedStrategy<Value> {
    let bound = || prop_oneof![(-2_i64..7).prop_map(Value::from), Just(json!(0.5)), Just(json!(2.5))];
    prop_oneof![
        bound().prop_map(|n| json!({ "type": "number", "minimum": n })),
        bound().prop_map(|n| json!({ "type": "number", "exclusiveMaximum": n })),
        bound().prop_map(|n| json!({ "type": "integer", "exclusiveMinimum": n })),
        (bound(), bound()).prop_map(|(a, b)| json!({ "minimum": a, "maximum": b })),
        prop::sample::select(vec![json!(2), json!(3), json!(0.5)]).prop_map(|n| json!({ "multipleOf": n })),
        (1_i64..4).prop_map(|n| json!({ "type": "integer", "multipleOf": n, "minimum": 0, "maximum": 7 })),
    ]
    .boxed()
}

fn strings() -> BoxedStrategy<Value> {
    prop_oneof![
        (0_u64..4).prop_map(|n| json!({ "type": "string", "minLength": n })),
        (0_u64..4).prop_map(|n| json!({ "type": "string", "maxLength": n })),
        prop::sample::select(vec![
            "^a",
            "b$",
            "^(ab|ba)$",
            "a.*b",
            "^[^a]*$",
            "^(?!ab)",
            "^(?=.*b)a",
            "^$|aa"
        ])
        .prop_map(|p| json!({ "type": "string", "pattern": p })),
        prop::sample::select(vec!["^a", "b$"]).prop_map(|p| json!({ "pattern": p })),
    ]
    .boxed()
}

fn lists() -> BoxedStrategy<Value> {
    prop_oneof![
        scalar().prop_map(|v| json!({ "const": v })),
        value(1).prop_map(|v| json!({ "const": v })),
        prop::collection::vec(scalar(), 1..4).prop_map(|v| json!({ "enum": v })),
    ]
    .boxed()
}

fn leaf() -> BoxedStrategy<Value> {
    prop_oneof![3 => types(), 2 => numbers(), 2 => strings(), 2 => lists(), 1 => Just(json!({}))].boxed()
}

fn properties(inner: BoxedStrategy<Value>) -> BoxedStrategy<Map<String, Value>> {
    prop::collection::btree_map(key(), inner, 0..3)
        .prop_map(|members| members.into_iter().map(|(k, v)| (k.to_owned(), v)).collect())
        .boxed()
}

fn objects(inner: BoxedStrategy<Value>) -> BoxedStrategy<Value> {
    let required = prop::collection::btree_set(key(), 0..3);
    (
        properties(inner.clone()),
        required,
        prop::option::of(prop_oneof![Just(json!(false)), inner]),
        any::<bool>(),
    )
        .prop_map(|(properties, required, additional, typed)| {
            let mut schema = Map::new();
            if typed {
                schema.insert("type".to_owned(), json!("object"));
            }
            schema.insert("properties".to_owned(), Value::Object(properties));
            if !required.is_empty() {
                schema.insert("required".to_owned(), json!(required));
            }
            if let Some(additional) = additional {
                schema.insert("additionalProperties".to_owned(), additional);
            }
            Value::Object(schema)
        })
        .boxed()
}

fn arrays(inner: &BoxedStrategy<Value>) -> BoxedStrategy<Value> {
    prop_oneof![
        inner.clone().prop_map(|items| json!({ "type": "array", "items": items })),
        (inner.clone(), inner.clone()).prop_map(|(a, b)| json!({ "prefixItems": [a], "items": b })),
        (0_u64..3, 0_u64..4).prop_map(|(a, b)| json!({ "type": "array", "minItems": a, "maxItems": b })),
    ]
    .boxed()
}

fn schema() -> BoxedStrategy<Value> {
    prop_oneof![3 => leaf(), 3 => objects(leaf()), 1 => arrays(&leaf())].boxed()
}

#[test]
fn the_plain_subset_is_exact() {
    run(300, 0.85, schema());
}

#[test]
fn not_is_a_complement() {
    run(300, 0.75, schema().prop_map(|s| json!({ "not": s })));
}

#[test]
fn not_of_combinations_follows_de_morgan() {
    let keyword = prop::sample::select(vec!["anyOf", "allOf", "oneOf"]);
    run(200, 0.6, (keyword, schema(), schema()).prop_map(|(k, a, b)| json!({ "not": { k: [a, b] } })));
}

#[test]
fn one_of_takes_exactly_one() {
    let list = prop::collection::vec(schema(), 2..4);
    run(300, 0.6, list.prop_map(|list| json!({ "oneOf": list })));
}

#[test]
fn one_of_objects_takes_exactly_one() {
    let list = prop::collection::vec(objects(leaf()), 2..4);
    run(
        300,
        0.6,
        (list, objects(leaf())).prop_map(|(list, base)| {
            let mut base = base;
            base["oneOf"] = json!(list);
            base
        }),
    );
}

#[test]
fn if_then_else_picks_a_branch() {
    run(
        200,
        0.6,
        (schema(), schema(), schema()).prop_map(|(i, t, e)| json!({ "if": i, "then": t, "else": e })),
    );
}

#[test]
fn dependencies_hold() {
    let keys = prop::collection::btree_set(key(), 0..3);
    let list = prop_oneof![
        (key(), keys).prop_map(|(k, list)| json!({ "dependentRequired": { k: list } })),
        (key(), objects(leaf())).prop_map(|(k, s)| json!({ "dependentSchemas": { k: s } })),
    ];
    run(
        300,
        0.85,
        (list, objects(leaf())).prop_map(|(d, base)| {
            let mut base = base;
            base.as_object_mut().expect("an object").extend(d.as_object().cloned().unwrap_or_default());
            base
        }),
    );
}

#[test]
fn all_of_is_an_intersection() {
    run(
        300,
        0.8,
        prop::collection::vec(schema(), 2..4).prop_map(|list| json!({ "allOf": list, "not": {"const": 77} })),
    );
}

#[test]
fn counts_of_properties_hold() {
    let counts = (prop::option::of(0_u64..2), prop::option::of(0_u64..4));
    run(
        300,
        0.85,
        (counts, objects(leaf())).prop_map(|((min, max), base)| {
            let mut base = base;
            if let Some(min) = min {
                base["minProperties"] = json!(min);
            }
            if let Some(max) = max {
                base["maxProperties"] = json!(max);
            }
            base
        }),
    );
}

#[test]
fn property_names_hold() {
    let names = prop_oneof![
        strings(),
        prop::collection::vec(key(), 1..3).prop_map(|list| json!({ "enum": list })),
        strings().prop_map(|s| json!({ "not": s })),
    ];
    run(
        200,
        0.8,
        (names, objects(leaf())).prop_map(|(names, base)| {
            let mut base = base;
            base["propertyNames"] = names;
            base
        }),
    );
}

#[test]
fn overlapping_patterns_of_keys_hold() {
    let pattern = || prop::sample::select(vec!["^a", "b", "^[ab]$", "c|a", "^.$"]);
    let strategy = (pattern(), leaf(), pattern(), leaf(), objects(leaf())).prop_map(|(p, s, q, t, base)| {
        let mut base = base;
        base["patternProperties"] = json!({ p: s, q: t });
        base
    });
    run(250, 0.85, strategy);
}

#[test]
fn bounded_contains_and_unique_items_hold() {
    let strategy = prop_oneof![
        (leaf(), leaf(), 0_u64..4)
            .prop_map(|(c, i, max)| json!({ "type": "array", "contains": c, "items": i, "maxItems": max })),
        (leaf(), 0_u64..3, 0_u64..3).prop_map(|(c, min, max)| json!({
            "type": "array", "contains": c, "minContains": min, "maxContains": max, "maxItems": 3
        })),
        (lists(), 0_u64..4)
            .prop_map(|(i, n)| json!({ "type": "array", "items": i, "uniqueItems": true, "minItems": n })),
        lists().prop_map(|i| json!({ "type": "array", "items": i, "uniqueItems": true, "maxItems": 2 })),
    ];
    run(250, 0.6, strategy);
}

#[test]
fn unevaluated_properties_hold() {
    let branch = prop::sample::select(vec!["allOf", "anyOf", "oneOf"]);
    let strategy = (branch, objects(leaf()), objects(leaf()), leaf()).prop_map(|(k, a, b, u)| {
        let mut schema = json!({ k: [a, b] });
        schema["unevaluatedProperties"] = if u == json!({}) { json!(false) } else { u };
        schema
    });
    run(200, 0.4, strategy);
}

#[test]
fn recursion_stays_finite() {
    let strategy = (leaf(), leaf()).prop_map(|(a, b)| {
        json!({
            "$ref": "#/$defs/tree",
            "$defs": {"tree": {"anyOf": [a, {
                "type": "object", "properties": {"a": {"$ref": "#/$defs/tree"}, "b": b}, "additionalProperties": false,
                "not": {"required": ["a", "b"]}
            }]}}
        })
    });
    run(150, 0.8, strategy);
}
