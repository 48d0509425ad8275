//! What schemas from the field have, and made ones seldom do.

use crate::support::Bench;
use llgtrt_core::GrammarSpec;
use llgtrt_grammar::{Instance, Judgement, spawn_big_stack};
use serde_json::{Value, json};

/// The grammar by itself: nothing is left open.
fn judge_all(schema: &Value, instances: Vec<Value>) -> Vec<Judgement> {
    let grammar = Bench::refusing().compile(&GrammarSpec::JsonSchema(schema.to_string()));
    let run = move || instances.iter().map(|value| grammar.judge(Instance::Value(value))).collect();
    spawn_big_stack("judge", run).unwrap().join().unwrap()
}

fn check(schema: &Value, valid: &[Value], invalid: &[Value]) {
    let validator = jsonschema::validator_for(schema).unwrap();
    for (list, expected) in [(valid, true), (invalid, false)] {
        for (instance, judgement) in list.iter().zip(judge_all(schema, list.to_vec())) {
            assert_eq!(validator.is_valid(instance), expected, "{schema}: {instance}");
            assert_eq!(judgement.accepted, expected, "{schema}: {judgement:?}");
        }
    }
}

#[test]
fn a_pattern_may_match_a_named_key_whose_value_recurs() {
    let value = json!({"anyOf": [
        {"type": "string"},
        {
            "type": "object",
            "properties": {"_id": {"$ref": "#/$defs/value"}},
            "patternProperties": {"^[^$]": {"$ref": "#/$defs/value"}},
            "additionalProperties": false,
            "required": ["_id"],
        },
    ]});
    check(
        &json!({"$ref": "#/$defs/value", "$defs": {"value": value}}),
        &[json!({"_id": "x", "b": {"_id": {"_id": "y"}}}), json!({"_id": "x", "_ids": "y"}), json!("x")],
        &[json!({"b": "x"}), json!({"_id": 1}), json!({"_id": "x", "$b": "y"}), json!({"_id": "x", "b": {}})],
    );
    check(
        &json!({
            "type": "object",
            "properties": {"redirect": {"type": ["object", "null"], "maxProperties": 1}},
            "patternProperties": {".*": {"$ref": "#"}},
        }),
        &[json!({}), json!({"redirect": {"a": {}}, "b": {"redirect": {}}})],
        &[json!({"redirect": null}), json!({"redirect": {"a": {}, "b": {}}}), json!({"b": {"redirect": 1}})],
    );
}

#[test]
fn a_long_repetition_at_an_open_end_of_a_pattern_costs_nothing() {
    check(
        &json!({"patternProperties": {"[A-Za-z0-9-_.:]{1,255}": {"type": "string"}}}),
        &[json!({"child1": "x", "child-3": "y", "": 1}), json!({"/": 1})],
        &[json!({"child1": 1}), json!({"/a": 1})],
    );
    check(
        &json!({"pattern": "x[a-z]{2,200}(?:b|c{0,99})"}),
        &[json!("-xaa-"), json!("xab")],
        &[json!("xa"), json!("aab")],
    );
}
