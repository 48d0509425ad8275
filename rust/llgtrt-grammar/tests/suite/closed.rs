//! Objects that name properties and say nothing of others take no others, unless the letter of the standard is
//! asked for. What is closed stays satisfiable, and every answer is still one that the standard allows.

use std::sync::OnceLock;

use crate::support::Bench;
use llgtrt_core::GrammarSpec;
use llgtrt_grammar::{GrammarConfig, Instance};
use serde_json::{Value, json};

fn benches() -> &'static (Bench, Bench) {
    static BENCHES: OnceLock<(Bench, Bench)> = OnceLock::new();
    BENCHES.get_or_init(|| (Bench::with(GrammarConfig::default()), Bench::bytes()))
}

fn accepts(bench: &Bench, schema: &Value, instance: &Value) -> bool {
    let grammar = bench.compile(&GrammarSpec::JsonSchema(schema.to_string()));
    grammar.judge(Instance::Value(instance)).accepted
}

/// Closed, these are in and those are out; by the letter all are in.
fn check(schema: &Value, inside: &[Value], outside: &[Value]) {
    let (closed, letter) = benches();
    let validator = jsonschema::draft202012::new(schema).expect("well formed");
    for (list, expected) in [(inside, true), (outside, false)] {
        for instance in list {
            assert!(validator.is_valid(instance), "{schema}: {instance}");
            assert_eq!(accepts(closed, schema, instance), expected, "{schema}: {instance}");
            assert!(accepts(letter, schema, instance), "{schema} by the letter: {instance}");
        }
    }
}

#[test]
fn named_properties_are_all_there_are() {
    let integer = json!({"type": "integer"});
    check(
        &json!({"type": "object", "properties": {"a": integer}}),
        &[json!({}), json!({"a": 1})],
        &[json!({"b": 1}), json!({"a": 1, "b": 1})],
    );
    check(
        &json!({"properties": {"a": {"properties": {"b": integer}, "required": ["b"]}}}),
        &[json!({"a": {"b": 1}}), json!(3), json!({"a": "x"})],
        &[json!({"a": {"b": 1, "c": 2}})],
    );
    // A required key that has no property of its own stays.
    check(
        &json!({"type": "object", "properties": {"a": integer}, "required": ["b"]}),
        &[json!({"b": [1]}), json!({"a": 1, "b": null})],
        &[json!({"b": 1, "c": 1})],
    );
}

#[test]
fn what_speaks_of_other_keys_stays_open() {
    let a = json!({"a": {"type": "integer"}});
    for more in [
        json!({"additionalProperties": true}),
        json!({"additionalProperties": {}}),
        json!({"additionalProperties": {"type": "integer"}}),
        json!({"patternProperties": {"^b": {}}}),
        json!({"propertyNames": {"maxLength": 3}}),
        json!({"unevaluatedProperties": true}),
        json!({"minProperties": 2}),
    ] {
        let mut schema = json!({"type": "object", "properties": a, "required": ["a"]});
        schema.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        check(&schema, &[json!({"a": 1, "b": 2})], &[]);
    }
    check(&json!({"type": "object"}), &[json!({"x": {"y": 1}})], &[]);
    check(&json!({}), &[json!({"x": {"y": 1}})], &[]);
    check(&json!({"type": "object", "required": ["a"]}), &[json!({"a": 1, "b": 2})], &[]);
    check(&json!({"type": "object", "properties": {}}), &[json!({"b": 2})], &[]);
    // Opened by one part, for all of the object.
    check(
        &json!({"allOf": [{"properties": a}, {"properties": {"b": {}}, "additionalProperties": true}]}),
        &[json!({"a": 1, "b": 2, "c": 3})],
        &[],
    );
}

#[test]
fn parts_of_one_object_are_merged_first() {
    let a = json!({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]});
    let b = json!({"type": "object", "properties": {"b": {"type": "string"}}, "required": ["b"]});
    check(&json!({"allOf": [a, b]}), &[json!({"a": 1, "b": "x"})], &[json!({"a": 1, "b": "x", "c": 0})]);
    check(
        &json!({"$ref": "#/$defs/a", "properties": {"b": {"type": "string"}}, "$defs": {"a": a}}),
        &[json!({"a": 1}), json!({"a": 1, "b": "x"})],
        &[json!({"a": 1, "c": 0})],
    );
    check(
        &json!({"properties": {"c": {}}, "anyOf": [a, b]}),
        &[json!({"a": 1}), json!({"c": 0, "b": "x"})],
        &[json!({"a": 1, "d": 0})],
    );
    check(
        &json!({
            "properties": {"kind": {"enum": ["x", "y"]}}, "required": ["kind"],
            "if": {"properties": {"kind": {"const": "x"}}},
            "then": {"properties": {"size": {"type": "integer"}}, "required": ["size"]},
            "else": {"properties": {"name": {"type": "string"}}},
        }),
        &[json!({"kind": "x", "size": 1}), json!({"kind": "y"}), json!({"kind": "y", "name": "n"})],
        &[json!({"kind": "x", "size": 1, "name": "n"}), json!({"kind": "y", "other": 1})],
    );
    // The larger object is not swallowed by the smaller one, of which it is a special case.
    check(
        &json!({"anyOf": [
            {"type": "object", "properties": {"a": {}}, "required": ["a"]},
            {"type": "object", "properties": {"a": {}, "b": {}}, "required": ["a", "b"]},
        ]}),
        &[json!({"a": 1}), json!({"a": 1, "b": 2})],
        &[json!({"a": 1, "c": 2})],
    );
    check(
        &json!({"properties": {"a": {}}, "required": ["a"], "anyOf": [
            {"required": ["a"]}, {"properties": {"b": {}}, "required": ["b"]},
        ]}),
        &[json!({"a": 1}), json!({"a": 1, "b": 2})],
        &[json!({"a": 1, "c": 2})],
    );
}

#[test]
fn alternatives_that_exclude_each_other_do_not_need_contrived_keys() {
    check(
        &json!({"oneOf": [
            {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
            {"type": "object", "properties": {"b": {"type": "string"}}, "required": ["b"]},
        ]}),
        &[json!({"a": "x"}), json!({"b": "y"})],
        &[json!({"a": "x", "b": 1}), json!({"a": "x", "c": 2})],
    );
    check(
        &json!({"type": "object", "properties": {"a": {}}, "not": {"required": ["b"]}}),
        &[json!({"a": 1})],
        &[json!({"c": 1})],
    );
    check(
        &json!({"type": "object", "not": {"properties": {"a": {"type": "string"}}}}),
        &[json!({"a": 1}), json!({"a": 1, "b": 2})],
        &[],
    );
}

/// So many that no list holds what each leaves of the others: none has the key that another one needs.
#[test]
fn each_of_many_alternatives_leaves_out_the_keys_of_the_others() {
    let alternatives = |properties: Value| {
        let alternative = |i: usize| {
            let key = format!("k{i}");
            json!({"properties": {&key: {"enum": [i]}, "note": {"type": "string"}}, "required": [key]})
        };
        json!({"type": "object", "properties": properties, "oneOf": (0..12).map(alternative).collect::<Vec<_>>()})
    };
    let (closed, _) = benches();
    // Where the keys are named beside the alternatives, two of them may be there by the letter, if one is wrong.
    for properties in [json!({}), json!({"k1": true, "k2": {}})] {
        let schema = alternatives(properties);
        let grammar = closed.compile(&GrammarSpec::JsonSchema(schema.to_string()));
        assert!(!grammar.is_verified(), "{schema}");
        let validator = jsonschema::draft202012::new(&schema).unwrap();
        for (instance, valid, accepted) in [
            (json!({"k0": 0}), true, true),
            (json!({"k11": 11, "note": "n"}), true, true),
            (json!({"k1": 1, "k2": 0}), true, false),
            (json!({"k1": 1, "k2": 2}), false, false),
            (json!({"k1": 0}), false, false),
            (json!({"note": "n"}), false, false),
        ] {
            assert_eq!(validator.is_valid(&instance), valid, "{schema}: {instance}");
            let judged = grammar.judge(Instance::Value(&instance));
            assert_eq!(judged.accepted, accepted, "{schema}: {instance}");
        }
    }
    // What lists values says for each of them whether it is exactly one.
    let mut listed = alternatives(json!({}));
    listed["enum"] = json!([{"k0": 0}, {"k1": 1, "k2": 0}, {"k1": 1, "k2": 2}]);
    check(&listed, &[json!({"k0": 0}), json!({"k1": 1, "k2": 0})], &[]);
    assert!(!accepts(closed, &listed, &json!({"k1": 1, "k2": 2})));
}

#[test]
fn a_schema_and_strict_win_over_the_server() {
    let schema = |options: Value| json!({"properties": {"a": {}}, "x-guidance": options});
    let more = json!({"a": 1, "b": 2});
    let (closed, letter) = benches();
    assert!(accepts(closed, &schema(json!({"standard": true})), &more));
    assert!(!accepts(letter, &schema(json!({"standard": false})), &more));
    assert!(!accepts(letter, &schema(json!({"strict": true})), &more));
    assert!(!accepts(closed, &schema(json!({"standard": true, "strict": true})), &more));
    for wrong in [json!({"standard": 1}), json!({"strict": "yes"})] {
        let error = closed.compiler.compile(&GrammarSpec::JsonSchema(schema(wrong).to_string())).unwrap_err();
        assert!(error.param.as_deref().is_some_and(|param| param.starts_with("x-guidance.")), "{error:?}");
    }
}
