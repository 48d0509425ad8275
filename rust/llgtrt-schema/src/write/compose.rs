//! Turns a written schema with automata ([`emit_rows`](super::emit_rows)) into a grammar in llguidance's
//! dialect of Lark. Whatever contains no automaton that is needed stays a schema, under `%json`.
//!
//! Pure functions. The grammar allows the same text as a schema does: keys in order, the separators and
//! the whitespace of `x-guidance`.

use std::collections::{HashMap, HashSet};
use std::fmt::Write;

use serde_json::{Map, Value, json};

use crate::write::rows::{PLAIN, ROWS};

/// Longest grammar, in bytes.
const MAX_BYTES: usize = 1 << 20;

/// A JSON string that only writes as an escape what has to be one.
const STRING: &str = r#"/"([^"\\\x00-\x1F\x7F]|\\[nrbtf\\"])*"/"#;

/// The grammar; `None` if it gets too long.
pub(crate) fn lark(root: &Value) -> Option<String> {
    let empty = Map::new();
    let defs = root.get("$defs").and_then(Value::as_object).unwrap_or(&empty);
    let options = root.get("x-guidance").cloned();
    let mut writer = Writer {
        defs,
        special: special_defs(defs),
        options: options.unwrap_or_else(|| json!({})),
        out: String::new(),
        leaves: HashMap::new(),
        keys: HashMap::new(),
        count: 0,
    };
    let start = writer.node(root)?;
    let option = |name: &str| writer.options.get(name).and_then(Value::as_str).map(str::to_owned);
    let flexible = writer.options.get("whitespace_flexible").and_then(Value::as_bool).unwrap_or(true);
    let blank = option("whitespace_pattern").or(flexible.then(|| r"[\x20\x0A\x0D\x09]+".to_owned()));
    let mut text = "%llguidance {\"ignore_once\": true}\n".to_owned();
    if let Some(blank) = blank {
        let _ = writeln!(text, "%ignore {}", regex(&blank));
    }
    let _ = writeln!(text, "start: {start}\nSTRING: {STRING}");
    let _ = writeln!(text, "COMMA: {}", option("item_separator").map_or("\",\"".to_owned(), |r| regex(&r)));
    let _ = writeln!(text, "COLON: {}", option("key_separator").map_or("\":\"".to_owned(), |r| regex(&r)));
    for (name, def) in defs {
        if writer.special.contains(name.as_str()) {
            let body = writer.node(def)?;
            let _ = writeln!(writer.out, "d_{name}: {body}");
        }
    }
    text.push_str(&writer.out);
    (text.len() <= MAX_BYTES).then_some(text)
}

/// Takes the automata out, which leaves a schema of more values.
pub(crate) fn strip(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.shift_remove(ROWS);
            members.shift_remove(PLAIN);
            members.values_mut().for_each(strip);
        }
        Value::Array(items) => items.iter_mut().for_each(strip),
        _ => {}
    }
}

/// The definitions that need rules: those with an automaton of their own, and those that refer to one.
fn special_defs(defs: &Map<String, Value>) -> HashSet<&str> {
    let mut special = HashSet::new();
    loop {
        let more: Vec<&str> = defs
            .iter()
            .filter(|(name, def)| !special.contains(name.as_str()) && is_special(def, &special))
            .map(|(name, _)| name.as_str())
            .collect();
        if more.is_empty() {
            return special;
        }
        special.extend(more);
    }
}

fn target(value: &Value) -> Option<&str> {
    value.get("$ref")?.as_str()?.strip_prefix("#/$defs/")
}

fn is_special(value: &Value, special: &HashSet<&str>) -> bool {
    match value {
        Value::Object(object) => {
            (object.contains_key(ROWS) && !object.contains_key(PLAIN))
                || target(value).is_some_and(|name| special.contains(name))
                || object
                    .iter()
                    .filter(|(key, _)| !matches!(key.as_str(), "$defs" | "const" | "enum"))
                    .any(|(_, inner)| is_special(inner, special))
        }
        Value::Array(items) => items.iter().any(|item| is_special(item, special)),
        _ => false,
    }
}

struct Writer<'a> {
    defs: &'a Map<String, Value>,
    special: HashSet<&'a str>,
    options: Value,
    out: String,
    /// Rules of schemas without automata, by their text.
    leaves: HashMap<String, String>,
    /// Rules of keys, by their description.
    keys: HashMap<String, String>,
    count: usize,
}

impl Writer<'_> {
    fn name(&mut self, prefix: &str) -> String {
        self.count += 1;
        format!("{prefix}{}", self.count)
    }

    /// The name of a rule for the schema.
    fn node(&mut self, value: &Value) -> Option<String> {
        if self.out.len() > MAX_BYTES {
            return None;
        }
        if !is_special(value, &self.special) {
            return self.leaf(value);
        }
        if let Some(name) = target(value) {
            return Some(format!("d_{name}"));
        }
        if let Some(options) = value.get("anyOf").and_then(Value::as_array) {
            let names: Option<Vec<String>> = options.iter().map(|option| self.node(option)).collect();
            let rule = self.name("a");
            let _ = writeln!(self.out, "{rule}: {}", names?.join(" | "));
            return Some(rule);
        }
        let rows = value.get(ROWS)?.as_array()?;
        let object = value.get("type").and_then(Value::as_str) == Some("object");
        let rule = self.name("v");
        let (open, close) = if object { ('{', '}') } else { ('[', ']') };
        let _ = writeln!(self.out, "{rule}: \"{open}\" {rule}_0f \"{close}\"");
        for (at, row) in rows.iter().enumerate() {
            let mut edges = Vec::new();
            for edge in row["next"].as_array()? {
                let value = self.node(&edge[1])?;
                let key = if object { format!("{} COLON ", self.key(&edge[0])?) } else { String::new() };
                edges.push(format!("{key}{value} {rule}_{}", edge[2].as_u64()?));
            }
            // Before the first item there is no comma.
            for (mark, comma) in [("", "COMMA "), ("f", "")] {
                let mut options: Vec<String> = edges.iter().map(|edge| format!("{comma}{edge}")).collect();
                if let Some(to) = row["skip"].as_u64() {
                    options.push(format!("{rule}_{to}{mark}"));
                }
                if row["end"] == Value::Bool(true) {
                    options.push("\"\"".to_owned());
                }
                // A row without a way on is one that nothing leads to.
                if !options.is_empty() {
                    let _ = writeln!(self.out, "{rule}_{at}{mark}: {}", options.join(" | "));
                }
            }
        }
        Some(rule)
    }

    fn leaf(&mut self, value: &Value) -> Option<String> {
        let mut value = if value == &Value::Bool(true) { json!({}) } else { value.clone() };
        strip(&mut value);
        let object = value.as_object_mut()?;
        object.shift_remove("x-guidance");
        object.shift_remove("$defs");
        let needed = self.needed(object);
        if !needed.is_empty() {
            object.insert("$defs".to_owned(), Value::Object(needed));
        }
        object.insert("x-guidance".to_owned(), self.options.clone());
        let text = value.to_string();
        if let Some(rule) = self.leaves.get(&text) {
            return Some(rule.clone());
        }
        let rule = self.name("j");
        let _ = writeln!(self.out, "{rule}: %json {text}");
        self.leaves.insert(text, rule.clone());
        Some(rule)
    }

    /// The definitions that a schema refers to, and those that they refer to.
    fn needed(&self, object: &Map<String, Value>) -> Map<String, Value> {
        let mut found = Map::new();
        let mut open = Vec::new();
        references(&Value::Object(object.clone()), &mut open);
        while let Some(name) = open.pop() {
            if let (Some(def), false) = (self.defs.get(&name), found.contains_key(&name)) {
                references(def, &mut open);
                let mut def = def.clone();
                strip(&mut def);
                found.insert(name, def);
            }
        }
        found
    }

    /// The name of a rule or terminal for a key.
    fn key(&mut self, key: &Value) -> Option<String> {
        let quoted = |name: &Value| literal(&name.to_string());
        if let Some(name) = key.get("name") {
            return Some(quoted(name));
        }
        let text = key.to_string();
        if let Some(rule) = self.keys.get(&text) {
            return Some(rule.clone());
        }
        if let Some(pattern) = key.get("pattern") {
            return self.leaf(&json!({ "type": "string", "pattern": pattern }));
        }
        let names: Vec<String> = key.get("except")?.as_array()?.iter().map(quoted).collect();
        if names.is_empty() {
            return Some("STRING".to_owned());
        }
        let rule = self.name("KEY");
        let _ = writeln!(self.out, "{rule}: STRING & ~({})", names.join(" | "));
        self.keys.insert(text, rule.clone());
        Some(rule)
    }
}

fn references(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            found.extend(target(value).map(str::to_owned));
            for (key, inner) in members {
                if !matches!(key.as_str(), "const" | "enum" | ROWS) {
                    references(inner, found);
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| references(item, found)),
        _ => {}
    }
}

/// A Lark string literal.
fn literal(text: &str) -> String {
    Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}

/// A Lark regular expression.
fn regex(text: &str) -> String {
    format!("/{}/", text.replace('/', "\\/"))
}
