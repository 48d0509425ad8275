//! Whether a written schema has a finite value at all. Recursion without a way out has none, and a
//! grammar for it would never end.

use std::collections::HashMap;

use serde_json::Value;

/// Works on what [`emit`](super::emit) writes: references lead to `#/$defs/NAME` of the root.
pub(crate) fn inhabited(root: &Value) -> bool {
    let empty = serde_json::Map::new();
    let defs = root.get("$defs").and_then(Value::as_object).unwrap_or(&empty);
    if defs.is_empty() {
        return has_value(root, &HashMap::new());
    }
    let mut known: HashMap<&str, bool> = defs.keys().map(|key| (key.as_str(), false)).collect();
    // Each round adds the schemas whose values need only those found before.
    loop {
        let found: Vec<&str> = defs
            .iter()
            .filter(|(key, value)| !known[key.as_str()] && has_value(value, &known))
            .map(|(key, _)| key.as_str())
            .collect();
        if found.is_empty() {
            return has_value(root, &known);
        }
        for key in found {
            known.insert(key, true);
        }
    }
}

fn has_value(schema: &Value, known: &HashMap<&str, bool>) -> bool {
    let object = match schema {
        Value::Bool(value) => return *value,
        Value::Object(object) => object,
        _ => return true,
    };
    if let Some(reference) = object.get("$ref").and_then(Value::as_str) {
        let name = reference.strip_prefix("#/$defs/").unwrap_or(reference);
        return known.get(name).copied().unwrap_or(true);
    }
    if let Some(options) = object.get("anyOf").and_then(Value::as_array) {
        return options.iter().any(|option| has_value(option, known));
    }
    if let Some(rows) = object.get(super::rows::ROWS).and_then(Value::as_array) {
        return reaches_end(rows, known);
    }
    match object.get("type").and_then(Value::as_str) {
        Some("object") => {
            let properties = object.get("properties");
            object.get("required").and_then(Value::as_array).into_iter().flatten().all(|key| {
                let value = key.as_str().and_then(|key| properties.and_then(|p| p.get(key)));
                value.is_none_or(|value| has_value(value, known))
            })
        }
        Some("array") => {
            let least = object.get("minItems").and_then(Value::as_u64).unwrap_or(0) as usize;
            let empty = Vec::new();
            let prefix = object.get("prefixItems").and_then(Value::as_array).unwrap_or(&empty);
            let first = prefix.iter().take(least).all(|item| has_value(item, known));
            let more = least > prefix.len();
            first && (!more || object.get("items").is_none_or(|items| has_value(items, known)))
        }
        _ => true,
    }
}

/// Whether a way through the rows leads over schemas that have values.
fn reaches_end(rows: &[Value], known: &HashMap<&str, bool>) -> bool {
    let row = |value: &Value| value.as_u64().map(|n| n as usize);
    let mut live: Vec<bool> = rows.iter().map(|row| row["end"] == Value::Bool(true)).collect();
    loop {
        let mut changed = false;
        for (at, value) in rows.iter().enumerate().rev() {
            let to = |value: &Value| row(value).and_then(|to| live.get(to)).copied().unwrap_or(false);
            let next = value["next"].as_array();
            let goes_on = to(&value["skip"])
                || next.is_some_and(|next| next.iter().any(|e| to(&e[2]) && has_value(&e[1], known)));
            if !live[at] && goes_on {
                live[at] = true;
                changed = true;
            }
        }
        if !changed {
            return live.first() == Some(&true);
        }
    }
}
