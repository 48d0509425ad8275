//! Tests of the schema walk.

use serde_json::json;

use super::*;

fn run(schema: &Value) -> Result<(), llgtrt_core::Error> {
    Ok(check(schema, &GrammarConfig::default(), "", &mut Findings::default())?)
}

#[track_caller]
fn refused(schema: &Value, param: &str, word: &str) {
    let error = run(schema).unwrap_err();
    assert_eq!(error.param.as_deref().unwrap_or(""), param, "{}", error.message);
    assert!(error.message.contains(word), "{}", error.message);
}

#[test]
fn schemas_in_every_keyword_are_looked_at() {
    let bad = json!({"type": "x"});
    refused(&json!({"not": bad}), "not.type", "`type`");
    refused(&json!({"properties": {"a": {"items": {"if": bad}}}}), "properties.a.items.if.type", "`type`");
    refused(
        &json!({"anyOf": [{}, {"$ref": "#/$defs/x y"}], "$defs": {"x y": {"contains": bad}}}),
        r#"$defs["x y"].contains.type"#,
        "`type`",
    );
    refused(&json!({"dependencies": {"a": ["b"], "c": bad}}), "dependencies.c.type", "`type`");
    refused(&json!({"propertyNames": {"then": bad}}), "propertyNames.then.type", "`type`");
}

#[test]
fn data_and_unused_definitions_are_not_schemas() {
    run(&json!({
        "const": {"not": 1},
        "default": {"type": "x"},
        "properties": {"not": {"type": "string"}, "if": {}},
        "$defs": {"unused": {"not": {}}},
    }))
    .unwrap();
}

#[test]
fn lenient_schemas_keep_their_keywords() {
    run(&json!({"x-guidance": {"lenient": true}, "not": {}, "format": "color"})).unwrap();
}

#[test]
fn wrong_values_are_named() {
    refused(&json!({"properties": {"a": {"type": "stsring"}}}), "properties.a.type", "stsring");
    refused(&json!({"type": ["string", 3]}), "type", "not 3");
    refused(&json!({"properties": []}), "properties", "an object");
    refused(&json!({"minLength": -1}), "minLength", "whole number");
    refused(&json!({"maximum": "3"}), "maximum", "a number");
    refused(&json!({"anyOf": []}), "anyOf", "at least one");
    refused(&json!({"items": [{"type": "string"}, 7]}), "items[1]", "object or a boolean");
    refused(&json!({"required": "a"}), "required", "array of strings");
    run(&json!({"format": "color", "minLength": 2.0})).unwrap();
    run(&json!({"type": "integer", "format": "int32"})).unwrap();
}

#[test]
fn regular_expressions_are_bounded() {
    refused(&json!({"pattern": "a".repeat(9000)}), "pattern", "8192");
    run(&json!({"pattern": r"^\d{3}\/\w+[\d.]$"})).unwrap();
}

#[test]
fn expressions_are_found_wherever_they_apply() {
    let found = |schema: &Value| {
        let mut findings = Findings::default();
        check(schema, &GrammarConfig::default(), "", &mut findings).unwrap();
        findings.has_expressions
    };
    let words = json!({
        "type": "object",
        "properties": {"pattern": {"enum": ["a", "b"]}, "n": {"type": "integer", "minimum": 3}},
        "additionalProperties": {"oneOf": [{"maxLength": 3, "type": "string"}, {"$ref": "#/$defs/d"}]},
        "$defs": {"d": {"type": "null"}, "unused": {"pattern": "a"}}
    });
    assert!(!found(&words));
    assert!(found(
        &json!({"items": {"$ref": "#/$defs/d"}, "$defs": {"d": {"type": "string", "pattern": "a"}}})
    ));
    assert!(found(&json!({"patternProperties": {"a": {}}})));
    assert!(found(&json!({"anyOf": [{"format": "date"}]})));
    assert!(found(&json!({"$ref": "https://json-schema.org/draft/2020-12/schema"})));
}

#[test]
fn references_may_form_cycles_but_not_chains() {
    run(&json!({"$ref": "#/$defs/a", "$defs": {"a": {"properties": {"next": {"$ref": "#/$defs/a"}}}}}))
        .unwrap();
    run(&json!({"properties": {"self": {"$ref": "#"}}})).unwrap();
    let chain = |n: usize| {
        let mut defs = Map::new();
        for i in 0..n {
            defs.insert(format!("d{i}"), json!({"$ref": format!("#/$defs/d{}", i + 1)}));
        }
        defs.insert(format!("d{n}"), json!({}));
        json!({"$ref": "#/$defs/d0", "$defs": defs})
    };
    run(&chain(50)).unwrap();
    assert!(run(&chain(600)).unwrap_err().message.contains("nested too deeply"));
}

#[test]
fn definitions_in_an_unlucky_order_are_bounded() {
    // Everything is two steps from the root, but a depth-first walk can find one long chain.
    let mut defs = Map::new();
    let mut all = Vec::new();
    for i in 0..5000 {
        defs.insert(format!("d{i}"), json!({"$ref": format!("#/$defs/d{}", (i + 1) % 5000)}));
        all.push(json!({"$ref": format!("#/$defs/d{i}")}));
    }
    let error = run(&json!({"anyOf": all, "$defs": defs})).unwrap_err();
    assert!(error.message.contains("add up"), "{}", error.message);
}

#[test]
fn missing_and_foreign_references() {
    refused(&json!({"items": {"$ref": "#/$defs/no"}}), "items.$ref", "not in the schema");
    run(&json!({"items": {"$ref": "http://example.com/x"}})).unwrap();
    let anchors: Vec<Value> = (0..40).map(|i| json!({"$ref": format!("#a{i}")})).collect();
    refused(&json!({"anyOf": anchors}), "anyOf[30].$ref", "anchor");
}

#[test]
fn pointers_inside_an_identified_schema_start_there() {
    run(&json!({
        "properties": {"a": {"$id": "http://x/y", "$ref": "#/$defs/z", "$defs": {"z": {"type": "string"}}}}
    }))
    .unwrap();
}

#[test]
fn counts_are_bounded() {
    let properties: Map<String, Value> = (0..5001).map(|i| (format!("p{i}"), json!({}))).collect();
    refused(&json!({"properties": properties}), "properties", "more than 5000");
    let values: Vec<Value> = (0..10_001).map(Value::from).collect();
    refused(&json!({"enum": values}), "enum", "more than 10000");
    let values: Vec<Value> = (0..10_000).map(Value::from).collect();
    run(&json!({"enum": values})).unwrap();
    let patterns: Map<String, Value> = (0..101).map(|i| (format!("^{i}$"), json!({}))).collect();
    refused(&json!({"patternProperties": patterns}), "patternProperties", "limit is 100");
}
