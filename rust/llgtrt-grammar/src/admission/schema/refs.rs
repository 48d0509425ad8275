//! Local references: JSON pointers in the fragment of a `$ref`.

use llgtrt_schema::path::percent_decode;
use serde_json::Value;

use super::paths::Segment;

/// Finds what `reference` points to under `root`, and its path. `None` for anything but `#` and
/// `#/...`, or if nothing is there.
pub(super) fn resolve<'a>(root: &'a Value, reference: &str) -> Option<(&'a Value, Vec<Segment<'a>>)> {
    let pointer = reference.strip_prefix('#')?;
    if pointer.is_empty() {
        return Some((root, Vec::new()));
    }
    let pointer = percent_decode(pointer.strip_prefix('/')?)?;
    let mut value = root;
    let mut segments = Vec::new();
    for token in pointer.split('/') {
        let token = token.replace("~1", "/").replace("~0", "~");
        value = match value {
            Value::Object(object) => {
                let child = object.get(&token)?;
                segments.push(Segment::Owned(token));
                child
            }
            Value::Array(items) => {
                let index = token.parse().ok()?;
                segments.push(Segment::Index(index));
                items.get(index)?
            }
            _ => return None,
        };
    }
    Some((value, segments))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointers_are_decoded() {
        let root = serde_json::json!({"a/b": {"c~d": [1, {"é x": 7}]}});
        let (value, path) = resolve(&root, "#/a~1b/c~0d/1/%C3%A9%20x").unwrap();
        assert_eq!(value, 7);
        assert_eq!(path.len(), 4);
        assert_eq!(resolve(&root, "#").unwrap().0, &root);
        for bad in ["#/a", "#/a~1b/c~0d/9", "#anchor", "other.json#/a", "#/%zz", "#/%"] {
            assert!(resolve(&root, bad).is_none(), "{bad}");
        }
    }
}
