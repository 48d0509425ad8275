//! Names the place in a JSON text where it went wrong. Pure functions.

use std::fmt::Write;

/// Longest piece of text in a message, in characters.
pub(super) const SHOWN: usize = 40;

enum Frame {
    /// The current key; `None` before the first.
    Object(Option<String>),
    /// The current index.
    Array(usize),
}

/// What is wrong at byte `at` of `text`.
pub(super) fn reason(text: &str, at: usize) -> String {
    let (frames, key, whole) = scan(text, at);
    let path = path(&frames, key.is_some());
    let place = if path.is_empty() { "the value".to_owned() } else { format!("`{path}`") };
    if let Some(key) = key {
        let key = crate::text::truncate(&key, SHOWN);
        return format!("{place}: the key `{key}` is not allowed here");
    }
    match text.as_bytes().get(at) {
        None => format!("{place}: the text ends too early"),
        Some(b'}' | b']') if !whole => format!("{place}: it must not end here; something is missing"),
        Some(b',') if !whole => format!("{place}: nothing may follow here"),
        Some(_) => {
            let from = (0..=at).rev().find(|&i| text.is_char_boundary(i)).unwrap_or(0);
            let rest = crate::text::truncate(&text[from..], SHOWN);
            format!("{place}: `{rest}` is not allowed here")
        }
    }
}

/// The open objects and arrays before byte `at`, the key in which it lies, and whether it lies inside of
/// a string.
fn scan(text: &str, at: usize) -> (Vec<Frame>, Option<String>, bool) {
    let mut frames: Vec<Frame> = Vec::new();
    // A key is next, in the innermost object.
    let mut wants_key = false;
    let bytes = text.as_bytes();
    let mut i = 0;
    while i < bytes.len() && i < at {
        match bytes[i] {
            b'{' => {
                frames.push(Frame::Object(None));
                wants_key = true;
            }
            b'[' => {
                frames.push(Frame::Array(0));
                wants_key = false;
            }
            b'}' | b']' => {
                frames.pop();
                wants_key = false;
            }
            b',' => match frames.last_mut() {
                Some(Frame::Array(index)) => *index += 1,
                Some(Frame::Object(key)) => {
                    *key = None;
                    wants_key = true;
                }
                None => {}
            },
            b'"' => {
                let end = string_end(bytes, i);
                let word = serde_json::from_str(text.get(i..end).unwrap_or("")).unwrap_or_default();
                let inside = at < end;
                if wants_key {
                    if inside || at == end {
                        return (frames, Some(word), inside);
                    }
                    if let Some(Frame::Object(key)) = frames.last_mut() {
                        *key = Some(word);
                    }
                    wants_key = false;
                } else if inside {
                    return (frames, None, true);
                }
                i = end;
                continue;
            }
            _ => {}
        }
        i += 1;
    }
    if wants_key && bytes.get(at) == Some(&b'"') {
        let word = text.get(at..string_end(bytes, at)).unwrap_or("");
        return (frames, Some(serde_json::from_str(word).unwrap_or_default()), false);
    }
    (frames, None, false)
}

fn string_end(bytes: &[u8], from: usize) -> usize {
    let mut i = from + 1;
    while i < bytes.len() && bytes[i] != b'"' {
        i += if bytes[i] == b'\\' { 2 } else { 1 };
    }
    (i + 1).min(bytes.len())
}

fn path(frames: &[Frame], in_key: bool) -> String {
    let mut path = String::new();
    for (depth, frame) in frames.iter().enumerate() {
        match frame {
            Frame::Object(Some(key)) if !(in_key && depth + 1 == frames.len()) => {
                llgtrt_schema::path::push_key(&mut path, key);
            }
            Frame::Object(_) => {}
            Frame::Array(index) => _ = write!(path, "[{index}]"),
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::reason;

    #[test]
    fn places_are_named() {
        let text = r#"{"a":{"x":1},"b":[true,{"c":"de"}]}"#;
        let at = |piece: &str| text.find(piece).unwrap();
        assert_eq!(reason(text, at("x\"")), "`a`: the key `x` is not allowed here");
        assert!(reason(text, at("true")).starts_with("`b[0]`: `true,"));
        assert!(reason(text, at("e\"}")).starts_with("`b[1].c`: `e\"}"));
        assert!(reason(text, at("}]")).contains("must not end here"));
        assert_eq!(reason(text, text.len()), "the value: the text ends too early");
        assert_eq!(reason("", 0), "the value: the text ends too early");
    }

    #[test]
    fn any_text_has_a_reason() {
        for text in ["\"\\", "{\"a", "é\"", "}}]],", "{\"\\u12", "[\"é"] {
            for at in 0..=text.len() + 1 {
                assert!(!reason(text, at).is_empty());
            }
        }
    }
}
