//! Removes unsupported keywords whose value makes them mean nothing, as schema generators write
//! them: `uniqueItems: false`, or `propertyNames: {"type": "string"}` for every map.

use serde_json::{Map, Value};

/// Removes them from a schema and the schemas inside. Recurses as deep as the JSON text was nested,
/// which is bounded, on a big stack.
pub(in crate::admission) fn remove(schema: &mut Value) {
    let Value::Object(object) = schema else { return };
    object.retain(|keyword, value| !is_noop(keyword, value));
    for (keyword, value) in object {
        match (keyword.as_str(), value) {
            ("properties" | "patternProperties" | "$defs" | "definitions", Value::Object(members)) => {
                members.values_mut().for_each(remove);
            }
            ("allOf" | "anyOf" | "oneOf" | "prefixItems" | "items", Value::Array(list)) => {
                list.iter_mut().for_each(remove);
            }
            ("items" | "additionalItems" | "additionalProperties", value) => remove(value),
            _ => {}
        }
    }
}

fn is_noop(keyword: &str, value: &Value) -> bool {
    match keyword {
        "uniqueItems" | "not" => *value == Value::Bool(false),
        "unevaluatedProperties" | "unevaluatedItems" => allows_all(value),
        "propertyNames" => allows_all(value) || is_any_string(value),
        "minContains" => value.as_u64() == Some(0),
        "dependentRequired" | "dependentSchemas" | "dependencies" => {
            value.as_object().is_some_and(Map::is_empty)
        }
        _ => false,
    }
}

fn allows_all(value: &Value) -> bool {
    *value == Value::Bool(true) || value.as_object().is_some_and(Map::is_empty)
}

fn is_any_string(value: &Value) -> bool {
    value
        .as_object()
        .is_some_and(|object| object.len() == 1 && object.get("type").is_some_and(|t| t == "string"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_means_nothing_is_removed() {
        let mut schema = json!({
            "uniqueItems": false,
            "properties": {
                "uniqueItems": {"propertyNames": {"type": "string"}, "additionalProperties": {"not": false}},
                "b": {"items": [{"unevaluatedProperties": true}], "propertyNames": {"pattern": "a"}},
                "c": {"const": {"uniqueItems": false}, "uniqueItems": true},
            },
            "$defs": {"d": {"anyOf": [{"dependentRequired": {}, "minContains": 1}]}},
        });
        remove(&mut schema);
        let expected = json!({
            "properties": {
                "uniqueItems": {"additionalProperties": {}},
                "b": {"items": [{}], "propertyNames": {"pattern": "a"}},
                "c": {"const": {"uniqueItems": false}, "uniqueItems": true},
            },
            "$defs": {"d": {"anyOf": [{"minContains": 1}]}},
        });
        assert_eq!(schema, expected);
    }
}
