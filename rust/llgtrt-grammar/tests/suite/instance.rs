//! Instances judged by compiled grammars: texts as they are, values in any order of their keys.

use llgtrt_grammar::{CompiledGrammar, Instance, Judgement, spawn_big_stack};
use serde_json::{Value, json};

fn judge_all(schema: &Value, instances: Vec<Value>, texts: Vec<&'static str>) -> Vec<Judgement> {
    let compiler = crate::support::Bench::words().compiler;
    let spec = llgtrt_core::GrammarSpec::JsonSchema(schema.to_string());
    let grammar: CompiledGrammar = compiler.compile(&spec).unwrap();
    let run = move || {
        let values: Vec<Judgement> =
            instances.iter().map(|value| grammar.judge(Instance::Value(value))).collect();
        values.into_iter().chain(texts.iter().map(|text| grammar.judge(Instance::Text(text)))).collect()
    };
    spawn_big_stack("judge", run).unwrap().join().unwrap()
}

fn abc() -> Value {
    json!({
        "type": "object",
        "properties": {
            "a": {"type": "integer"},
            "b": {"type": "object", "properties": {"x": {}, "y": {"type": "string"}}, "additionalProperties": false},
            "c": {"type": "array", "items": {"type": "boolean"}},
            "d": {"type": "null"},
        },
        "required": ["a"],
        "additionalProperties": false,
    })
}

#[test]
fn values_are_accepted_in_any_order_of_keys() {
    let instances = vec![
        json!({"a": 1, "b": {"x": 1, "y": "z"}}),
        json!({"d": null, "c": [true, false], "b": {"y": "z", "x": [1]}, "a": 1}),
        json!({"c": [], "a": 2.0}),
    ];
    for judgement in judge_all(&abc(), instances, Vec::new()) {
        assert!(judgement.accepted, "{judgement:?}");
        assert_eq!(judgement.rejected_at, None);
        assert!(judgement.text.starts_with(r#"{"a":"#), "{judgement:?}");
    }
}

#[test]
fn rejections_tell_where_and_why() {
    let instances = vec![
        json!({"a": 1, "c": [true, 7]}),
        json!({"d": null, "b": {}}),
        json!({"d": null, "e": 1, "a": 1}),
        json!({"b": {"y": 5, "x": 1}, "a": 1}),
    ];
    let found = judge_all(&abc(), instances, vec![r#"{"a":1"#, r#"{"a":1} "#, r#"{"c":[],"a":1}"#]);
    let expect: [(&str, &str); 7] = [
        ("7", "`c[1]`"),
        ("d", "`a\"` has to follow"),
        (",", "`d`: nothing may follow"),
        ("5", "`b.y`"),
        ("", "ends too early"),
        (" ", "not allowed"),
        ("c", "the key `c`"),
    ];
    for (judgement, (byte, reason)) in found.iter().zip(expect) {
        assert!(!judgement.accepted);
        let at = judgement.rejected_at.unwrap();
        assert!(judgement.text[at..].starts_with(byte), "{judgement:?}");
        assert!(judgement.reason.contains(reason), "{judgement:?}");
        assert!(judgement.exhaustive, "{judgement:?}");
    }
}

#[test]
fn orders_are_tried_within_a_bound() {
    // Twelve free keys, one of which has a wrong value: 12! orders.
    let schema = json!({"type": "object", "additionalProperties": {"type": "integer"}});
    let mut value = serde_json::Map::new();
    for i in 0..12 {
        value.insert(format!("key{i}"), json!(i));
    }
    value.insert("last".to_owned(), json!("x"));
    let found = &judge_all(&schema, vec![Value::Object(value)], Vec::new())[0];
    assert!(!found.accepted);
    assert!(found.reason.contains("`last`"), "{found:?}");
}

#[test]
fn escapes_do_not_hide_keys() {
    for schema in [
        json!({"properties": {"a": {"type": "integer"}}}),
        json!({"patternProperties": {"^a": {"type": "integer"}}}),
        json!({"required": ["a"], "not": {"patternProperties": {"^x": {"type": "string"}}}}),
    ] {
        let found = judge_all(&schema, Vec::new(), vec!["{\"\\u0061\":\"x\"}"]);
        assert!(!found[0].accepted, "{schema}: {:?}", found[0]);
    }
}

#[test]
fn required_separators_are_written() {
    let mut schema = abc();
    schema["x-guidance"] =
        json!({"item_separator": ", ", "key_separator": ": ", "whitespace_flexible": false});
    let found = &judge_all(&schema, vec![json!({"c": [true, false], "a": 1})], Vec::new())[0];
    assert!(found.accepted, "{found:?}");
    assert_eq!(found.text, r#"{"a": 1, "c": [true, false]}"#);
}

#[test]
fn numbers_are_written_as_the_grammar_wants_them() {
    let schema = json!({"type": "array", "items": {"type": "number", "multipleOf": 0.25}});
    let found = judge_all(&schema, vec![json!([75.0, 0.5, 1]), json!([0.3])], Vec::new());
    assert!(found[0].accepted, "{:?}", found[0]);
    assert!(!found[1].accepted && found[1].reason.contains("[0]"), "{:?}", found[1]);
}

#[test]
fn a_number_is_judged_in_every_spelling() {
    let accepted = |schema: Value, instances: Vec<Value>| {
        for judgement in judge_all(&schema, instances, Vec::new()) {
            assert!(judgement.accepted, "{schema}: {judgement:?}");
        }
    };
    accepted(json!({"minimum": -1}), vec![json!(-0.0), json!(0), json!(0.0)]);
    accepted(json!({"const": -0.0}), vec![json!(-0.0), json!(0), json!(0.0)]);
    accepted(json!({"enum": [[-0.0], {"a": -0.0}]}), vec![json!([0]), json!({"a": 0})]);
    accepted(json!({"type": "number", "minimum": 0, "maximum": 1e9}), vec![json!(1e-6), json!(1e8)]);
    accepted(json!({"contains": {"const": 7}}), vec![json!([7.0])]);
    accepted(json!({"contains": {"type": "integer"}}), vec![json!(["a", 3.0])]);
}

/// A pattern with a length, which the lexer follows only with the fuel of several masks.
#[test]
fn a_text_is_not_rejected_because_the_lexer_is_out_of_fuel() {
    let summary =
        json!({"type": "string", "minLength": 1, "maxLength": 500, "pattern": r"^(?:\S+\s+){0,49}\S+$"});
    let schema = json!({"type": "object", "properties": {"summary": summary}});
    let text = "This is a summary of the example service. It provides a brief overview of the service and its benefits.";
    let found = judge_all(
        &schema,
        vec![json!({"summary": text}), json!({"summary": format!("{text} ")})],
        Vec::new(),
    );
    assert!(found[0].accepted, "{:?}", found[0]);
    assert!(!found[1].accepted && found[1].exhaustive, "{:?}", found[1]);
    assert!(found[1].reason.contains("summary"), "{:?}", found[1]);
}
