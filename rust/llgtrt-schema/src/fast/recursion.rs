//! Whether references lead back to themselves without a way out, in a schema that llguidance would take
//! as it is: a grammar for it could begin values that never end.

use std::collections::HashSet;

use serde_json::Value;

use crate::budget::{Budget, weight};

/// Whether every schema that is referred to has a finite value, as far as is seen at once and within the budget.
pub(super) fn ends(root: &Value, budget: &Budget) -> bool {
    let size = weight(root);
    let mut references = HashSet::new();
    let mut open = vec![root];
    while let Some(value) = open.pop() {
        match value {
            Value::Object(members) => {
                references.extend(members.get("$ref").and_then(Value::as_str));
                open.extend(members.values());
            }
            Value::Array(items) => open.extend(items),
            _ => {}
        }
    }
    let mut known: HashSet<&str> = HashSet::new();
    // Each round adds the references whose values need only those found before.
    loop {
        let before = known.len();
        if budget.spend(size).is_err() {
            return false;
        }
        for &reference in &references {
            let target = reference.strip_prefix('#').and_then(|pointer| root.pointer(pointer));
            if !known.contains(reference) && target.is_some_and(|schema| has_value(schema, &known)) {
                known.insert(reference);
            }
        }
        if known.len() == references.len() {
            return true;
        }
        if known.len() == before {
            return false;
        }
    }
}

fn has_value(schema: &Value, known: &HashSet<&str>) -> bool {
    let Value::Object(members) = schema else { return schema != &Value::Bool(false) };
    let list = |key: &str| members.get(key).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    if members.get("$ref").and_then(Value::as_str).is_some_and(|reference| !known.contains(reference)) {
        return false;
    }
    if !list("allOf").iter().all(|part| has_value(part, known)) {
        return false;
    }
    let options = list("anyOf");
    if !options.is_empty() && !options.iter().any(|option| has_value(option, known)) {
        return false;
    }
    let required = list("required").iter().filter_map(Value::as_str).all(|key| {
        let own = members.get("properties").and_then(|properties| properties.get(key));
        own.or(members.get("additionalProperties")).is_none_or(|value| has_value(value, known))
    });
    let least = members.get("minItems").and_then(Value::as_u64).unwrap_or(0);
    required
        && (least == 0 || {
            let tuples = list("prefixItems").iter().chain(list("items"));
            tuples
                .chain(members.get("items").filter(|items| !items.is_array()))
                .all(|item| has_value(item, known))
        })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::budget::Budget;
    use crate::limits::NormalizeLimits;

    fn ends(root: &Value) -> bool {
        super::ends(root, &Budget::new(&NormalizeLimits::default()))
    }

    #[test]
    fn a_way_out_is_seen() {
        let list = |next| {
            json!({
                "$ref": "#/$defs/node",
                "$defs": {"node": {
                    "type": "object",
                    "properties": {"value": {"type": "integer"}, "next": next},
                    "required": ["value", "next"],
                }},
            })
        };
        assert!(ends(&list(json!({"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}))));
        assert!(ends(&list(json!({"type": "array", "items": {"$ref": "#"}}))));
        assert!(!ends(&list(json!({"$ref": "#/$defs/node"}))));
        assert!(!ends(&list(json!({"type": "array", "items": {"$ref": "#/$defs/node"}, "minItems": 1}))));
        assert!(!ends(&list(json!({"$ref": "#/$defs/missing"}))));
    }
}
