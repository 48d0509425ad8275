//! Reading JSON with a depth limit of our own and a clear message for it.

use serde_json::Value;

use crate::refusal::{Refusal, hint};
use crate::text::first_line;

/// `serde_json` stops at 128 levels with a message that does not help a client.
pub(super) const MAX_JSON_DEPTH: usize = 127;

/// Parses `text`, refusing more than `max_depth` levels. `what` starts the message.
pub(super) fn parse(text: &str, max_depth: usize, what: &str) -> Result<Value, Refusal> {
    let limit = max_depth.min(MAX_JSON_DEPTH);
    if depth(text.as_bytes()) > limit {
        let message = format!("{what} is nested too deeply; the limit is {limit} levels");
        return Err(Refusal::new(message, hint::FEWER_LEVELS));
    }
    serde_json::from_str(text).map_err(|error| {
        let message = format!("{what} is not JSON: {}", first_line(&error.to_string()));
        Refusal::new(message, "write one JSON object")
    })
}

/// Nesting of a JSON text, found without recursion. Only right for valid JSON, and never too small.
fn depth(text: &[u8]) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0_usize);
    let mut bytes = text.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'{' | b'[' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            b'"' => {
                while let Some(byte) = bytes.next() {
                    match byte {
                        b'\\' => _ = bytes.next(),
                        b'"' => break,
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    deepest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth_ignores_brackets_in_strings() {
        assert_eq!(depth(br#"{"a": ["[[[", "\"]{", 3]}"#), 2);
        assert_eq!(depth(b"[[[]]]"), 3);
        assert_eq!(depth(b"3"), 0);
    }

    #[test]
    fn deep_texts_are_refused_without_recursion() {
        let text = "[".repeat(100_000);
        let error = parse(&text, 100, "the schema").unwrap_err();
        assert!(error.message.contains("100 levels"), "{}", error.message);
        assert!(parse(&format!("{}{}", "[".repeat(100), "]".repeat(100)), 100, "x").is_ok());
        // A larger limit cannot reach serde_json's own.
        let text = format!("{}{}", "[".repeat(130), "]".repeat(130));
        assert!(parse(&text, 1000, "x").unwrap_err().message.contains("127 levels"));
    }
}
