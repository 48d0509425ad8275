//! How large schemas and values are, for bounds on the work of a validator.

use serde_json::Value;

/// A schema with every reference replaced by what it refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Expanded {
    /// JSON values in it. Where `unevaluated*` looks at its neighbours again, they count again.
    pub(super) nodes: u64,
    /// Patterns that look around or back count like all others.
    pub(super) patterns: u64,
}

impl Expanded {
    /// The size; `None` if it is more than `max` nodes, or if a reference leads back to itself or to where this
    /// does not follow it.
    pub(super) fn of(schema: &Value, max: u64) -> Option<Self> {
        let mut size = Self { nodes: 0, patterns: 0 };
        // What was entered by references, for each value to look at: a value under itself recurs.
        let mut open: Vec<(&Value, Option<usize>)> = vec![(schema, None)];
        let mut entered: Vec<(&Value, Option<usize>)> = Vec::new();
        let mut looks = 1;
        while let Some((value, by)) = open.pop() {
            size.nodes += 1;
            if size.nodes > max {
                return None;
            }
            match value {
                Value::Array(items) => open.extend(items.iter().map(|item| (item, by))),
                Value::Object(members) => {
                    for (key, member) in members {
                        match (key.as_str(), member) {
                            ("$dynamicRef" | "$recursiveRef", Value::String(_)) => return None,
                            ("$ref", Value::String(target)) => {
                                let target = follow(schema, target)?;
                                let mut around = by;
                                while let Some(index) = around {
                                    let (known, outer) = entered[index];
                                    if std::ptr::eq(known, target) {
                                        return None;
                                    }
                                    around = outer;
                                }
                                entered.push((target, by));
                                open.push((target, Some(entered.len() - 1)));
                            }
                            // Definitions count where they are referred to.
                            ("$defs" | "definitions", Value::Object(_)) => {}
                            ("pattern", Value::String(_)) => size.patterns += 1,
                            ("patternProperties", Value::Object(patterns)) => {
                                size.patterns += patterns.len() as u64;
                                open.push((member, by));
                            }
                            ("unevaluatedItems" | "unevaluatedProperties", _) => {
                                looks += 1;
                                open.push((member, by));
                            }
                            _ => open.push((member, by)),
                        }
                    }
                }
                _ => {}
            }
        }
        size.nodes *= looks;
        size.patterns *= looks;
        (size.nodes <= max).then_some(size)
    }
}

/// What a reference inside of the document leads to. A schema that refers to itself as a whole recurs.
fn follow<'a>(root: &'a Value, target: &str) -> Option<&'a Value> {
    let pointer = target.strip_prefix("#/")?;
    root.pointer(&format!("/{pointer}"))
}

/// Values in a value, strings among them (keys are strings), and bytes of these.
pub(super) fn value_nodes(value: &Value) -> (u64, u64, u64) {
    let (mut nodes, mut strings, mut bytes) = (0, 0, 0);
    let mut open = vec![value];
    while let Some(value) = open.pop() {
        nodes += 1;
        match value {
            Value::String(text) => {
                strings += 1;
                bytes += text.len() as u64;
            }
            Value::Array(items) => open.extend(items),
            Value::Object(members) => {
                for (key, member) in members {
                    strings += 1;
                    bytes += key.len() as u64;
                    open.push(member);
                }
            }
            _ => {}
        }
    }
    (nodes, strings, bytes)
}

/// Memory of a value, roughly.
pub(super) fn value_bytes(value: &Value) -> usize {
    let (nodes, _, bytes) = value_nodes(value);
    (nodes * 120 + bytes) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn nodes(schema: &Value) -> Option<u64> {
        Expanded::of(schema, 100).map(|size| size.nodes)
    }

    #[test]
    fn references_count_each_time() {
        assert_eq!(nodes(&json!({"type": "string"})), Some(2));
        let twice =
            json!({"allOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/a"}], "$defs": {"a": {"minimum": 1}}});
        assert_eq!(nodes(&twice), Some(8));
        assert_eq!(nodes(&json!({"anyOf": [{"items": {"$ref": "#/anyOf/0"}}]})), None);
        assert_eq!(nodes(&json!({"$ref": "#"})), None);
        assert_eq!(nodes(&json!({"$ref": "other.json"})), None);
        assert_eq!(nodes(&json!({"enum": vec![1; 200]})), None);
        assert_eq!(nodes(&json!({"unevaluatedItems": false})), Some(4));
    }

    #[test]
    fn keys_are_strings() {
        assert_eq!(value_nodes(&json!({"ab": [1, "c"]})), (4, 2, 3));
    }
}
