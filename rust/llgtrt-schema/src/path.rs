//! The syntax of paths that errors name, written and read: `properties["a b"].items[0].pattern`. Pure functions.

use std::fmt::{self, Write};
use std::ops::Deref;
use std::rc::Rc;

use serde_json::Value;

use crate::keyword::Keyword;

/// Longer keys are cut in paths.
const MAX_KEY_CHARS: usize = 80;

/// The path of a schema or of a keyword, in the syntax of this module. A copy is cheap.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct SchemaPath(Rc<str>);

impl SchemaPath {
    /// That of the document as a whole.
    pub(crate) fn root() -> Self {
        Self("".into())
    }

    /// That of a member.
    pub(crate) fn child(&self, key: &str) -> Self {
        let mut path = self.0.to_string();
        push_key(&mut path, key);
        Self(path.into())
    }

    /// That of an item.
    pub(crate) fn item(&self, index: usize) -> Self {
        Self(format!("{}[{index}]", self.0).into())
    }

    /// That of the schema, and the keyword that it ends in.
    pub(crate) fn split_keyword(&self) -> (Self, &str) {
        let (schema, keyword) = split_keyword(&self.0);
        (Self(schema.into()), keyword)
    }
}

impl Deref for SchemaPath {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SchemaPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<String> for SchemaPath {
    fn from(path: String) -> Self {
        Self(path.into())
    }
}

/// A step of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Into a member of an object.
    Key(String),
    /// Into an item of an array.
    Index(usize),
}

/// The steps of a path; `None` if it is not one, for instance because a long key was shortened.
pub fn steps(path: &str) -> Option<Vec<Step>> {
    let mut steps = Vec::new();
    let mut rest = path;
    while !rest.is_empty() {
        if let Some(tail) = rest.strip_prefix('[') {
            if tail.starts_with('"') {
                let mut values = serde_json::Deserializer::from_str(tail).into_iter::<String>();
                let key = values.next()?.ok()?;
                rest = tail[values.byte_offset()..].strip_prefix(']')?;
                steps.push(Step::Key(key));
            } else {
                let (index, after) = tail.split_once(']')?;
                steps.push(Step::Index(index.parse().ok()?));
                rest = after;
            }
        } else {
            let key = if steps.is_empty() { rest } else { rest.strip_prefix('.')? };
            let end = key.find(['.', '[']).unwrap_or(key.len());
            if end == 0 {
                return None;
            }
            steps.push(Step::Key(key[..end].to_owned()));
            rest = &key[end..];
        }
    }
    Some(steps)
}

/// The keyword that a path ends in; empty if it ends at a schema, or at a name.
pub fn keyword(path: &str) -> String {
    let Some(steps) = steps(path) else { return String::new() };
    let mut in_names = false;
    let mut last = String::new();
    for step in steps {
        last = match step {
            Step::Key(_) if in_names => {
                in_names = false;
                String::new()
            }
            Step::Key(key) => {
                in_names = crate::keyword::find(&key).is_some_and(Keyword::has_names);
                key
            }
            Step::Index(_) => {
                in_names = false;
                String::new()
            }
        };
    }
    last
}

/// What a path leads to.
pub fn find<'a>(root: &'a Value, steps: &[Step]) -> Option<&'a Value> {
    steps.iter().try_fold(root, |value, step| match step {
        Step::Key(key) => value.get(key.as_str()),
        Step::Index(index) => value.get(*index),
    })
}

/// As [`find`], to change it.
pub fn find_mut<'a>(root: &'a mut Value, steps: &[Step]) -> Option<&'a mut Value> {
    steps.iter().try_fold(root, |value, step| match step {
        Step::Key(key) => value.get_mut(key.as_str()),
        Step::Index(index) => value.get_mut(*index),
    })
}

/// Appends a key to a path: `a.b`, or `a["b c"]` where the key is not a plain word.
pub fn push_key(path: &mut String, key: &str) {
    let plain = !key.is_empty() && key.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '$'));
    let cut = key.char_indices().nth(MAX_KEY_CHARS);
    if !plain || cut.is_some() {
        let key = match cut {
            Some((end, _)) => format!("{}...", &key[..end]),
            None => key.to_owned(),
        };
        let _ = write!(path, "[{}]", Value::String(key));
        return;
    }
    if !path.is_empty() {
        path.push('.');
    }
    path.push_str(key);
}

/// Two paths, one after the other; either may be empty.
pub fn join(path: &str, rest: &str) -> String {
    match (path.is_empty(), rest.is_empty()) {
        (true, _) => rest.to_owned(),
        (_, true) => path.to_owned(),
        _ if rest.starts_with('[') => format!("{path}{rest}"),
        _ => format!("{path}.{rest}"),
    }
}

/// The tokens of a JSON pointer (RFC 6901) without its first slash.
pub fn pointer_tokens(pointer: &str) -> impl Iterator<Item = String> {
    pointer.split('/').map(|token| token.replace("~1", "/").replace("~0", "~"))
}

/// What the fragment of a URI leads to as a JSON pointer: nothing, or `/` and tokens. Gives the steps as well;
/// `None` if it is no pointer, or if nothing is there.
pub fn resolve_fragment<'a>(root: &'a Value, fragment: &str) -> Option<(&'a Value, Vec<Step>)> {
    if fragment.is_empty() {
        return Some((root, Vec::new()));
    }
    let pointer = percent_decode(fragment)?;
    let mut value = root;
    let mut steps = Vec::new();
    for token in pointer_tokens(pointer.strip_prefix('/')?) {
        value = match value {
            Value::Object(members) => {
                let child = members.get(&token)?;
                steps.push(Step::Key(token));
                child
            }
            Value::Array(items) => {
                let index = token.parse().ok()?;
                steps.push(Step::Index(index));
                items.get(index)?
            }
            _ => return None,
        };
    }
    Some((value, steps))
}

/// The text that a percent-encoded part of a URI stands for; `None` if it is not one.
pub fn percent_decode(text: &str) -> Option<String> {
    if !text.contains('%') {
        return Some(text.to_owned());
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = &rest[2..];
    }
    String::from_utf8(bytes).ok()
}

/// Splits `a.b.oneOf` at its last keyword.
fn split_keyword(path: &str) -> (&str, &str) {
    // Behind a bracket, a point may be part of a key.
    if path.ends_with(']') { (path, "") } else { path.rsplit_once('.').unwrap_or(("", path)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_read_as_they_are_written() {
        let keys = ["a", "b c", "x.y", "q\"[0]", "é", ""];
        let mut path = String::new();
        for key in keys {
            push_key(&mut path, key);
        }
        path.push_str("[12]");
        let mut expected: Vec<Step> = keys.iter().map(|&key| Step::Key(key.to_owned())).collect();
        expected.push(Step::Index(12));
        assert_eq!(steps(&path), Some(expected));
        assert_eq!(steps(""), Some(Vec::new()));
        for wrong in ["a..b", "a[", "a[x]", "[\"a", "a]b[", ".a"] {
            assert!(steps(wrong).is_none_or(|steps| steps.len() == 1), "{wrong}");
        }
    }

    #[test]
    fn the_keyword_of_a_path_is_its_last_step() {
        let schema = SchemaPath::root().child("properties").child("a.b").child("anyOf").item(2);
        assert_eq!(&*schema, "properties[\"a.b\"].anyOf[2]");
        assert_eq!(schema.child("minimum").split_keyword(), (schema.clone(), "minimum"));
        assert_eq!(SchemaPath::root().child("not").split_keyword(), (SchemaPath::root(), "not"));
        for named in [schema, SchemaPath::root().child("properties").child("a.b")] {
            assert_eq!(named.split_keyword(), (named.clone(), ""));
        }
    }

    #[test]
    fn pointers_are_decoded() {
        let root = serde_json::json!({"a/b": {"c~d": [1, {"é x": 7}]}});
        let (value, steps) = resolve_fragment(&root, "/a~1b/c~0d/1/%C3%A9%20x").unwrap();
        assert_eq!(value, 7);
        assert_eq!(steps.len(), 4);
        assert_eq!(resolve_fragment(&root, "").unwrap().0, &root);
        for bad in ["/a", "/a~1b/c~0d/9", "anchor", "/%zz", "/%"] {
            assert!(resolve_fragment(&root, bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn long_keys_are_cut() {
        let mut path = String::new();
        push_key(&mut path, &"k".repeat(100_000));
        assert_eq!(path, format!("[\"{}...\"]", "k".repeat(80)));
    }

    #[test]
    fn paths_quote_odd_keys() {
        let mut path = String::new();
        push_key(&mut path, "properties");
        push_key(&mut path, "a b");
        push_key(&mut path, "$defs");
        assert_eq!(path, r#"properties["a b"].$defs"#);
        assert_eq!(join("a", "[1]"), "a[1]");
        assert_eq!(join("", "b"), "b");
        assert_eq!(join("a", "b"), "a.b");
    }

    #[test]
    fn keywords_are_told_from_names() {
        for (path, expected) in [
            ("properties.pattern.pattern", "pattern"),
            ("properties.pattern", ""),
            ("oneOf", "oneOf"),
            ("anyOf[3]", ""),
            ("$defs.not.not", "not"),
            ("properties.properties.properties.type", ""),
            ("grammars[0].json_schema.items.enum", "enum"),
            ("", ""),
        ] {
            assert_eq!(keyword(path), expected, "{path}");
        }
    }
}
