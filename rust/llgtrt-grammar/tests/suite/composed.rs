//! Rules of a grammar in place of a schema (`composed`), against an independent validator: what has to
//! occur somewhere in a list of any length, or under some key without a name. Also with keys written twice.

use std::fmt::Write;

use crate::support::Bench;
use llgtrt_core::GrammarSpec;
use llgtrt_grammar::{CompiledGrammar, Instance};
use llgtrt_schema::{NormalizeLimits, Normalized, normalize};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Map, Value, json};

fn normalized(schema: &Value) -> Normalized {
    let schema = schema.clone();
    let limits = NormalizeLimits { compose: true, standard: true, ..NormalizeLimits::default() };
    let run = move || normalize(&schema, &limits).unwrap_or_else(|error| panic!("{schema}: {error:?}"));
    llgtrt_grammar::spawn_big_stack("normalize", run).unwrap().join().unwrap()
}

/// The grammar; nothing if the schema is refused as one that allows nothing.
fn compile(bench: &Bench, schema: &Value) -> Result<Option<CompiledGrammar>, String> {
    match bench.compiler.compile(&GrammarSpec::JsonSchema(schema.to_string())) {
        Ok(grammar) => Ok(Some(grammar)),
        Err(error) if error.message.contains("allows nothing") => Ok(None),
        Err(error) => Err(error.message),
    }
}

/// How the grammar judges an instance.
fn judge(grammar: Option<&CompiledGrammar>, instance: Instance) -> bool {
    grammar.is_some_and(|grammar| grammar.judge(instance).accepted)
}

fn check(schema: &Value, valid: &[Value], invalid: &[Value]) {
    let found = normalized(schema);
    assert!(found.lark.is_some() && found.rules.iter().any(|used| used.rule == "composed"), "{schema}");
    let bench = Bench::words();
    let grammar = compile(&bench, schema).expect("it compiles").expect("it allows something");
    let validator = jsonschema::validator_for(schema).unwrap();
    for (list, expected) in [(valid, true), (invalid, false)] {
        for instance in list {
            assert_eq!(validator.is_valid(instance), expected, "{schema}: {instance}");
            let judgement = grammar.judge(Instance::Value(instance));
            assert_eq!(judgement.accepted, expected, "{schema}: {judgement:?}");
        }
    }
}

#[test]
fn contains_in_lists_of_any_length() {
    check(
        &json!({"contains": {"type": "integer", "minimum": 5}, "items": {"type": ["integer", "string"]}}),
        &[json!([7]), json!(["a", 1, 9, "b", 5]), json!({}), json!(3)],
        &[json!([]), json!([1, 2, "a"]), json!([7, null])],
    );
    check(
        &json!({"type": "array", "contains": {"const": 1}, "minContains": 2, "maxContains": 3}),
        &[json!([1, 1]), json!([0, 1, "x", 1, 1])],
        &[json!([1]), json!([1, 1, 1, 1]), json!([])],
    );
    check(
        &json!({
            "type": "array", "prefixItems": [{"type": "string"}], "minItems": 3, "items": {"type": "integer"},
            "allOf": [{"contains": {"const": 1}}, {"contains": {"const": 2}}],
        }),
        &[json!(["a", 1, 2]), json!(["a", 2, 7, 7, 1])],
        &[json!(["a", 1, 3]), json!(["a", 2, 2, 2]), json!([1, 1, 2])],
    );
    check(
        &json!({"type": "array", "not": {"items": {"type": "string"}}}),
        &[json!([1]), json!(["a", "b", 0])],
        &[json!([]), json!(["a", "b"])],
    );
}

#[test]
fn some_key_without_a_name_has_to_be_there() {
    check(
        &json!({
            "type": "object",
            "properties": {"name": {"type": "string"}},
            "not": {"patternProperties": {"^x": {"type": "string"}}},
        }),
        &[
            json!({"x1": 3}),
            json!({"name": "n", "y": 1, "x": "s", "x2": null}),
            json!({"x2": null, "x": "s"}),
        ],
        &[json!({}), json!({"x1": "s", "y": 4}), json!({"name": 3, "x": 3})],
    );
    check(
        &json!({"type": "object", "not": {"propertyNames": {"maxLength": 2}}, "maxProperties": 3}),
        &[json!({"abc": 1}), json!({"a": 1, "b": 2, "long": 3})],
        &[json!({"a": 1}), json!({"abc": 1, "b": 1, "c": 1, "d": 1})],
    );
}

#[test]
fn composed_parts_may_be_anywhere_and_recursive() {
    check(
        &json!({
            "type": "object",
            "properties": {
                "id": {"type": "integer"},
                "tags": {"type": "array", "contains": {"const": "x"}, "items": {"type": "string"}},
                "next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]},
            },
            "required": ["tags"],
        }),
        &[
            json!({"id": 1, "tags": ["a", "x"], "next": {"tags": ["x"], "next": null}, "more": [1, {"a": 2}]}),
            json!({"tags": ["x", "x"], "tagz": 1}),
        ],
        &[
            json!({"tags": ["a"]}),
            json!({"tags": ["x"], "next": {"tags": ["y"]}}),
            json!({"tags": ["x"], "id": "1"}),
            json!({"id": 3}),
        ],
    );
}

/// What a test of one value says about it.
fn leaf() -> BoxedStrategy<Value> {
    prop_oneof![
        Just(json!({"type": "string"})),
        Just(json!({"type": "integer", "minimum": 2})),
        Just(json!({"enum": [1, "a", null]})),
        Just(json!({"type": ["null", "integer"]})),
        Just(json!({"type": "array", "contains": {"const": 1}})),
        Just(json!({"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"]})),
        Just(json!({"type": "object", "not": {"patternProperties": {"^a": {"type": "string"}}}})),
    ]
    .boxed()
}

fn list() -> BoxedStrategy<Value> {
    (leaf(), leaf(), leaf(), 0_u64..3, 0_u64..4, 0_u64..3, any::<u8>())
        .prop_map(|(a, b, c, min, more, items, form)| {
            let mut schema = json!({"type": "array", "contains": a, "minItems": items});
            if form & 1 == 1 {
                schema["minContains"] = json!(min);
            }
            if form & 2 == 2 {
                schema["maxContains"] = json!(min + more);
            }
            if form & 4 == 4 {
                schema["items"] = b.clone();
            }
            if form & 8 == 8 {
                schema["allOf"] = json!([{"contains": c}]);
            } else if form & 16 == 16 {
                schema["not"] = json!({"items": c});
            }
            if form & 32 == 32 {
                schema["maxItems"] = json!(items + 40);
            }
            schema
        })
        .boxed()
}

fn object() -> BoxedStrategy<Value> {
    let pattern = || prop::sample::select(vec!["^a", "b$", "^[ab]*$", "c"]);
    (leaf(), leaf(), leaf(), pattern(), pattern(), any::<u8>())
        .prop_map(|(a, b, c, first, second, form)| {
            let mut schema = json!({"type": "object", "not": {"patternProperties": {first: a}}});
            if form & 1 == 1 {
                schema["properties"] = json!({"a": b});
            }
            if form & 2 == 2 {
                schema["patternProperties"] = json!({second: c});
            }
            if form & 4 == 4 {
                schema["allOf"] = json!([{"not": {"additionalProperties": {"type": "string"}}}]);
            }
            if form & 8 == 8 {
                schema["maxProperties"] = json!(2);
            }
            if form & 16 == 16 {
                schema["required"] = json!(["b"]);
            }
            if form & 32 == 32 {
                schema["propertyNames"] = json!({"maxLength": 2});
            }
            schema
        })
        .boxed()
}

fn instance() -> BoxedStrategy<Value> {
    let scalar = prop::sample::select(vec![json!(1), json!(3), json!("a"), json!("x"), json!(null)]);
    scalar
        .prop_recursive(2, 12, 4, |inner| {
            let key = prop::sample::select(vec!["a", "b", "ab", "c", "abc"]);
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::Array),
                prop::collection::vec((key, inner), 0..4).prop_map(|members| {
                    Value::Object(members.into_iter().map(|(k, v)| (k.to_owned(), v)).collect::<Map<_, _>>())
                }),
            ]
        })
        .boxed()
}

/// The text of an object, keys as they come, also twice.
fn text(members: &[(&str, Value)]) -> String {
    let mut text = String::from("{");
    for (i, (key, value)) in members.iter().enumerate() {
        let comma = if i > 0 { "," } else { "" };
        let _ = write!(text, "{comma}\"{key}\":{value}");
    }
    text + "}"
}

fn run<S: Strategy>(cases: u32, strategy: &S, test: impl Fn(S::Value) -> Result<(), TestCaseError>) {
    let scale = std::env::var("LLGTRT_TEST_SCALE").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let config = Config { cases: cases * scale, failure_persistence: None, ..Config::default() };
    let rng = proptest::test_runner::TestRng::deterministic_rng(proptest::test_runner::RngAlgorithm::ChaCha);
    TestRunner::new_with_rng(config, rng).run(strategy, test).unwrap();
}

#[test]
fn random_lists_hold() {
    let bench = Bench::refusing();
    let dealt = std::cell::Cell::new(0);
    let strategy = (list(), prop::collection::vec(prop::collection::vec(instance(), 0..5), 12));
    run(120, &strategy, |(schema, lists)| {
        let Ok(grammar) = compile(&bench, &schema) else { return Ok(()) };
        dealt.set(dealt.get() + 1);
        let validator = jsonschema::draft202012::new(&schema).unwrap();
        for items in lists {
            let value = Value::Array(items);
            let accepted = judge(grammar.as_ref(), Instance::Value(&value));
            prop_assert_eq!(accepted, validator.is_valid(&value), "{}: {}", schema, value);
        }
        Ok(())
    });
    assert!(dealt.get() > 100, "{}", dealt.get());
}

#[test]
fn random_objects_hold_with_keys_written_twice_as_well() {
    let bench = Bench::refusing();
    let dealt = std::cell::Cell::new(0);
    let key = prop::sample::select(vec!["a", "b", "ab", "c", "abc", "ba"]);
    let strategy = (object(), prop::collection::vec(prop::collection::vec((key, instance()), 0..5), 16));
    run(120, &strategy, |(schema, objects)| {
        let Ok(grammar) = compile(&bench, &schema) else { return Ok(()) };
        dealt.set(dealt.get() + 1);
        let validator = jsonschema::draft202012::new(&schema).unwrap();
        for members in objects {
            // The last one of a key counts, as in every common parser.
            let text = text(&members);
            let value: Value = serde_json::from_str(&text).unwrap();
            let valid = validator.is_valid(&value);
            let taken = judge(grammar.as_ref(), Instance::Text(&text));
            prop_assert!(valid || !taken, "invalid but accepted: {}: {}", schema, text);
            let accepted = judge(grammar.as_ref(), Instance::Value(&value));
            prop_assert_eq!(accepted, valid, "{}: {}", schema, value);
        }
        Ok(())
    });
    assert!(dealt.get() > 80, "{}", dealt.get());
}

#[test]
fn names_and_values_of_the_user_are_never_read_as_keywords() {
    // Keys that the writer of automata once used for itself, inside of a value.
    let value = json!({"x-rows": [1], "x-plain": true, "$ref": "#/$defs/s1"});
    check(
        &json!({
            "type": "object",
            "properties": {
                "value": {"const": value},
                "list": {"type": "array", "contains": {"const": 1}},
            },
            "required": ["value", "list"],
            "additionalProperties": false,
        }),
        &[json!({"value": value, "list": [2, 1]})],
        &[json!({"value": {}, "list": [1]}), json!({"value": {"$ref": "#/$defs/s1"}, "list": [1]})],
    );
    // Properties that are called like keywords, with schemas that need definitions.
    let node = json!({
        "type": "object",
        "properties": {"id": {"type": "integer"}, "next": {"$ref": "#/$defs/node"}},
        "required": ["id"],
        "additionalProperties": false,
    });
    check(
        &json!({
            "type": "object",
            "properties": {
                "enum": {"$ref": "#/$defs/node"},
                "const": {"$ref": "#/$defs/node"},
                "x-rows": {"$ref": "#/$defs/node"},
                "list": {"type": "array", "contains": {"const": 1}},
            },
            "required": ["enum", "const", "x-rows", "list"],
            "additionalProperties": false,
            "$defs": {"node": node},
        }),
        &[
            json!({"enum": {"id": 1, "next": {"id": 2}}, "const": {"id": 3}, "x-rows": {"id": 4}, "list": [1]}),
        ],
        &[
            json!({"enum": {}, "const": {"id": 3}, "x-rows": {"id": 4}, "list": [1]}),
            json!({"enum": {"id": 1}, "const": {"id": 3}, "x-rows": {"id": 4}, "list": [2]}),
        ],
    );
}
