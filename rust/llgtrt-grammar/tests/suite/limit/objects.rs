//! Objects at a limit of tokens: which of their properties a way out has.

use serde_json::{Value, json};

use super::{EMBEDDED, endless, generate, json_of};
use crate::support::{Bench, schema};

/// Where a name may be longer, or belong to another object where it is optional, what is required comes all the same.
#[test]
fn what_is_optional_is_left_out() {
    let long = json!({"type": "string", "format": "date-time"});
    let number = json!({"type": "integer"});
    let object = |properties: Value, required: &[&str]| json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false});
    let driver = object(json!({"a": long, "b": long, "caption": long, "driver": number}), &["driver"]);
    let many: serde_json::Map<String, Value> = (0..40)
        .map(|i| (format!("option_{i}"), long.clone()))
        .chain([("z".to_owned(), number.clone())])
        .collect();
    let mut open = driver.clone();
    open["additionalProperties"] = json!(true);
    let mut checked = driver.clone();
    checked["minProperties"] = json!(3);
    let cases = [
        (driver.clone(), json!({"driver": 0})),
        (object(Value::Object(many), &["z"]), json!({"z": 0})),
        (open, json!({"driver": 0})),
        (
            json!({"type": "array", "items": driver, "minItems": 3}),
            json!([{"driver": 0}, {"driver": 0}, {"driver": 0}]),
        ),
        (
            object(json!({"driver": long, "name": long, "car": driver, "no": number}), &["car", "no"]),
            json!({"car": {"driver": 0}, "no": 0}),
        ),
        (
            object(json!({"b": long, "quoted \"\\ name": number}), &["quoted \"\\ name"]),
            json!({"quoted \"\\ name": 0}),
        ),
        (json!({"anyOf": [object(json!({"a": long, "x": number}), &["x"])]}), json!({"x": 0})),
    ];
    for bench in [Bench::bytes(), Bench::words()] {
        for (value, shortest) in &cases {
            let grammar = bench.compile(&schema(&value.to_string()));
            assert_eq!(json_of(&bench, grammar.way_out().unwrap()), *shortest, "{value}");
        }
        // One that is not required may still be needed.
        let grammar = bench.compile(&schema(&checked.to_string()));
        let found = json_of(&bench, grammar.way_out().unwrap());
        assert!(jsonschema::is_valid(&checked, &found), "{found}");
    }
}

/// There are not as many values as a list has to have; so nothing has to be checked either.
#[test]
fn a_property_that_nothing_can_be_is_never_begun() {
    let unequal =
        json!({"type": "array", "items": {"enum": ["a", "b", null]}, "uniqueItems": true, "minItems": 4});
    let value = json!({"type": "object", "properties": {"list": unequal, "n": {"type": "integer"}}, "required": ["n"],
        "additionalProperties": false});
    let bench = Bench::bytes();
    let grammar = bench.compile(&schema(&value.to_string()));
    assert!(!grammar.is_verified());
    for most in [7, 8, 30] {
        let (tokens, _) = generate(&bench, &grammar, EMBEDDED, most, endless(&bench, most));
        assert!(json_of(&bench, &tokens).get("list").is_none());
    }
}
