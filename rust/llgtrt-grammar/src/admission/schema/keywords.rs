//! What the values of JSON Schema keywords are, by [`llgtrt_schema::keyword`]'s table.

use llgtrt_schema::keyword::{self, Inside, Keyword, Role};
use serde_json::Value;

use super::paths::PathSegment;

/// Type names.
pub(super) const TYPES: [&str; 7] = ["null", "boolean", "integer", "number", "string", "array", "object"];

pub(super) fn is_type(name: &str) -> bool {
    TYPES.contains(&name)
}

/// Whether values under the keyword may be described by regular expressions, or as what others are not.
pub(super) fn has_expressions(keyword: &str) -> bool {
    matches!(
        keyword,
        "pattern"
            | "patternProperties"
            | "propertyNames"
            | "format"
            | "contentEncoding"
            | "contentMediaType"
            | "multipleOf"
            | "not"
            | "if"
            | "contains"
            | "dependencies"
            | "dependentSchemas"
            | "dependentRequired"
            | "unevaluatedProperties"
            | "unevaluatedItems"
    )
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

/// The subschemas in the value of a keyword, if it is one, with what follows the keyword in their path. Those that are only
/// kept for references are looked at when one leads there.
pub(super) fn children<'a>(
    known: Option<&'static Keyword>,
    value: &'a Value,
) -> impl Iterator<Item = (Option<PathSegment<'a>>, &'a Value)> + use<'a> {
    let holds = known.filter(|keyword| keyword.role != Role::Container);
    let schemas = holds.into_iter().flat_map(move |keyword| keyword.schemas(value));
    schemas.map(|(step, schema)| {
        let segment = step.map(|step| match step {
            Inside::Key(key) => PathSegment::Key(key),
            Inside::Index(index) => PathSegment::Index(index),
        });
        (segment, schema)
    })
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
                open.extend(children(keyword::find(keyword), value).map(|(_, child)| (child, depth + 1)));
            }
        }
    }
    height
}
