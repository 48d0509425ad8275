//! What the JSON Schema keywords are: their types, their subschemas.

use serde_json::Value;

use super::paths::Segment;

/// Type names.
pub(super) const TYPES: [&str; 7] = ["null", "boolean", "integer", "number", "string", "array", "object"];

pub(super) fn is_type(name: &str) -> bool {
    TYPES.contains(&name)
}

/// Whether a keyword can matter for values of the types in `type`. Real schemas carry keywords
/// of other types (`required: true` on a string), which validators ignore, and so does llguidance.
pub(super) fn applies(keyword: &str, types: Option<&Value>) -> bool {
    let domain: &[&str] = match keyword {
        "properties"
        | "patternProperties"
        | "required"
        | "minProperties"
        | "maxProperties"
        | "additionalProperties" => &["object"],
        "items" | "prefixItems" | "additionalItems" | "minItems" | "maxItems" => &["array"],
        "minLength" | "maxLength" | "pattern" | "format" => &["string"],
        "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" | "multipleOf" => {
            &["integer", "number"]
        }
        _ => return true,
    };
    let allowed = |name: &Value| name.as_str().is_some_and(|name| domain.contains(&name));
    match types {
        None => true,
        Some(Value::Array(names)) => names.iter().any(allowed),
        Some(name) => allowed(name),
    }
}

/// What a keyword's value should have been, if it is something else.
pub(super) fn wrong_type(keyword: &str, value: &Value) -> Option<&'static str> {
    let (right, expected) = match keyword {
        "properties" | "patternProperties" => (value.is_object(), "an object"),
        "enum" => (value.is_array(), "an array"),
        "anyOf" | "oneOf" => {
            (value.as_array().is_some_and(|list| !list.is_empty()), "an array of at least one schema")
        }
        "allOf" | "prefixItems" => (value.is_array(), "an array of schemas"),
        "required" => {
            (value.as_array().is_some_and(|list| list.iter().all(Value::is_string)), "an array of strings")
        }
        "minLength" | "maxLength" | "minItems" | "maxItems" | "minProperties" | "maxProperties" => {
            let whole = value.as_f64().is_some_and(|n| n >= 0.0 && n.fract() == 0.0);
            (value.is_u64() || whole, "a whole number of at least 0")
        }
        "minimum" | "maximum" => (value.is_number(), "a number"),
        "exclusiveMinimum" | "exclusiveMaximum" => (value.is_number() || value.is_boolean(), "a number"),
        "multipleOf" => (value.as_f64().is_some_and(|n| n > 0.0), "a number above 0"),
        "pattern" | "format" | "$ref" => (value.is_string(), "a string"),
        _ => return None,
    };
    (!right).then_some(expected)
}

/// The subschemas of a keyword's value, with what follows the keyword in their path.
pub(super) fn children<'a>(
    keyword: &'a str,
    value: &'a Value,
) -> Box<dyn Iterator<Item = (Option<Segment<'a>>, &'a Value)> + 'a> {
    match (keyword, value) {
        (
            "properties" | "patternProperties" | "dependencies" | "dependentSchemas",
            Value::Object(members),
        ) => {
            // A dependency may be a list of keys instead of a schema.
            let schemas =
                members.iter().filter(move |(_, schema)| keyword != "dependencies" || !schema.is_array());
            Box::new(schemas.map(|(key, schema)| (Some(Segment::Key(key)), schema)))
        }
        ("allOf" | "anyOf" | "oneOf" | "prefixItems" | "items", Value::Array(list)) => {
            Box::new(list.iter().enumerate().map(|(index, schema)| (Some(Segment::Index(index)), schema)))
        }
        (
            "additionalProperties"
            | "items"
            | "additionalItems"
            | "not"
            | "if"
            | "then"
            | "else"
            | "contains"
            | "propertyNames"
            | "unevaluatedItems"
            | "unevaluatedProperties",
            schema,
        ) => Box::new(std::iter::once((None, schema))),
        _ => Box::new(std::iter::empty()),
    }
}

/// Levels of schemas inside `schema`, itself included, references not followed. Recursion is
/// replaced by a list of open schemas.
pub(super) fn height(schema: &Value) -> usize {
    let mut open = vec![(schema, 1)];
    let mut height = 0;
    while let Some((schema, depth)) = open.pop() {
        height = height.max(depth);
        if let Value::Object(object) = schema {
            for (keyword, value) in object {
                open.extend(children(keyword, value).map(|(_, child)| (child, depth + 1)));
            }
        }
    }
    height
}
