//! Values compared as JSON Schema compares them.

use serde_json::Value;

use crate::formula::Num;

/// One text for all ways to write the same value.
pub(crate) fn canonical(value: &Value) -> String {
    match value {
        Value::Number(number) => match Num::new(number) {
            Some(Num::Int(n)) => n.to_string(),
            Some(Num::Float(n)) => format!("{n:?}"),
            None => number.to_string(),
        },
        Value::Array(list) => {
            let parts: Vec<String> = list.iter().map(canonical).collect();
            format!("[{}]", parts.join(","))
        }
        Value::Object(members) => {
            let mut parts: Vec<String> = members
                .iter()
                .map(|(key, value)| format!("{}:{}", Value::String(key.clone()), canonical(value)))
                .collect();
            parts.sort_unstable();
            format!("{{{}}}", parts.join(","))
        }
        other => other.to_string(),
    }
}
