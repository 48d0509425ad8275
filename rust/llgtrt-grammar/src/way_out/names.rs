//! Names of required properties. An object that has all of them can end, and other properties make it longer.

use std::collections::HashSet;

use serde_json::Value;

/// Names that are kept of one grammar, and their bytes together.
const MAX_NAMES: usize = 128;
const MAX_NAME_BYTES: usize = 8 << 10;

/// The names in the schemas of one grammar.
#[derive(Default)]
pub(super) struct Names {
    required: Vec<String>,
    /// Names that need not be there in some object.
    optional: HashSet<String>,
    bytes: usize,
}

impl Names {
    /// Adds those of a schema, as far as there is room.
    pub(super) fn read(&mut self, schema: &Value) {
        let mut schemas = vec![schema];
        while let Some(schema) = schemas.pop() {
            match schema {
                Value::Array(items) => schemas.extend(items.iter().rev()),
                Value::Object(members) => {
                    let required = members.get("required").and_then(Value::as_array);
                    let names: Vec<&str> = required.into_iter().flatten().filter_map(Value::as_str).collect();
                    for name in &names {
                        self.keep(name);
                    }
                    if let Some(Value::Object(properties)) = members.get("properties") {
                        let names: HashSet<&str> = names.into_iter().collect();
                        let optional = properties.keys().filter(|name| !names.contains(name.as_str()));
                        self.optional.extend(optional.cloned());
                    }
                    schemas.extend(members.values().rev());
                }
                _ => {}
            }
        }
    }

    /// Each as it is written behind the quote that it begins with, up to the colon; those first that are required wherever
    /// there is a property of this name.
    pub(super) fn texts(mut self) -> Vec<String> {
        self.required.sort_by_key(|name| self.optional.contains(name));
        self.required
            .iter()
            .map(|name| format!("{}:", &Value::from(name.as_str()).to_string()[1..]))
            .collect()
    }

    fn keep(&mut self, name: &str) {
        let bytes = self.bytes + name.len();
        let has_room = self.required.len() < MAX_NAMES && bytes <= MAX_NAME_BYTES;
        if has_room && !self.required.iter().any(|known| known == name) {
            self.required.push(name.to_owned());
            self.bytes = bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn names(schemas: &[Value]) -> Vec<String> {
        let mut names = Names::default();
        for schema in schemas {
            names.read(schema);
        }
        names.texts()
    }

    #[test]
    fn those_that_are_required_everywhere_come_first() {
        let schema = json!({
            "properties": {
                "id": {"properties": {"name": true, "q\"": true}, "required": ["q\""]},
                "name": {"items": {"required": ["other"]}},
                "required": {"enum": ["required"]},
            },
            "required": ["name", "id"],
        });
        assert_eq!(names(std::slice::from_ref(&schema)), ["id\":", "q\\\"\":", "other\":", "name\":"]);
        let other = json!({"properties": {"id": true}});
        assert_eq!(names(&[schema, other]), ["q\\\"\":", "other\":", "name\":", "id\":"]);
    }

    #[test]
    fn they_are_bounded() {
        let many: Vec<String> = (0..1000).map(|i| i.to_string()).collect();
        assert_eq!(names(&[json!({"required": many})]).len(), MAX_NAMES);
        let long = "a".repeat(MAX_NAME_BYTES / 2 + 1);
        assert_eq!(names(&[json!({"required": [long.clone() + "b", long, "c"]})]).len(), 2);
    }
}
