//! Reading the paths that errors name, such as `properties["a b"].items[0].pattern`. Pure functions.

use serde_json::Value;

/// A step of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// Into a member of an object.
    Key(String),
    /// Into an item of an array.
    Index(usize),
}

/// Keywords whose members are named schemas.
const NAMED: [&str; 6] =
    ["properties", "patternProperties", "$defs", "definitions", "dependencies", "dependentSchemas"];

/// The steps of a path; `None` if it is not one, for instance because a long key was shortened.
pub(crate) fn steps(path: &str) -> Option<Vec<Step>> {
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
pub(crate) fn keyword(path: &str) -> String {
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
                in_names = NAMED.contains(&key.as_str());
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
pub(crate) fn find<'a>(root: &'a Value, steps: &[Step]) -> Option<&'a Value> {
    steps.iter().try_fold(root, |value, step| match step {
        Step::Key(key) => value.get(key.as_str()),
        Step::Index(index) => value.get(*index),
    })
}

/// As [`find`], to change it.
pub(crate) fn find_mut<'a>(root: &'a mut Value, steps: &[Step]) -> Option<&'a mut Value> {
    steps.iter().try_fold(root, |value, step| match step {
        Step::Key(key) => value.get_mut(key.as_str()),
        Step::Index(index) => value.get_mut(*index),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::push_key;

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
