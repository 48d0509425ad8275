//! Writes JSON fragments into a growing buffer.
//!
//! Runs on the output thread. Escapes more than JSON asks for: U+0085, U+2028 and U+2029 are line
//! ends for clients that split an event stream by Unicode lines, so they never go out raw.

/// A buffer that text is appended to.
pub(crate) trait Sink {
    /// Appends `text`.
    fn put(&mut self, text: &str);
}

impl Sink for Vec<u8> {
    #[inline]
    fn put(&mut self, text: &str) {
        self.extend_from_slice(text.as_bytes());
    }
}

impl Sink for String {
    #[inline]
    fn put(&mut self, text: &str) {
        self.push_str(text);
    }
}

/// Bytes that need a closer look: control characters, quote, backslash, and the lead bytes of
/// U+0085 (C2 85), U+2028 and U+2029 (E2 80 A8, E2 80 A9).
const SUSPECT: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 0x20 {
        table[byte] = true;
        byte += 1;
    }
    table[b'"' as usize] = true;
    table[b'\\' as usize] = true;
    table[0xC2] = true;
    table[0xE2] = true;
    table
};

/// The escapes of U+0000 to U+001F.
const CONTROL: [&str; 32] = [
    "\\u0000", "\\u0001", "\\u0002", "\\u0003", "\\u0004", "\\u0005", "\\u0006", "\\u0007", "\\b", "\\t",
    "\\n", "\\u000b", "\\f", "\\r", "\\u000e", "\\u000f", "\\u0010", "\\u0011", "\\u0012", "\\u0013",
    "\\u0014", "\\u0015", "\\u0016", "\\u0017", "\\u0018", "\\u0019", "\\u001a", "\\u001b", "\\u001c",
    "\\u001d", "\\u001e", "\\u001f",
];

/// Writes `text` as the inside of a JSON string, without the quotes.
pub(crate) fn escape(out: &mut impl Sink, text: &str) {
    let bytes = text.as_bytes();
    let mut written = 0;
    let mut at = 0;
    while at < bytes.len() {
        if !SUSPECT[bytes[at] as usize] {
            at += 1;
            continue;
        }
        let (replacement, length) = match &bytes[at..] {
            [b'"', ..] => ("\\\"", 1),
            [b'\\', ..] => ("\\\\", 1),
            [0xC2, 0x85, ..] => ("\\u0085", 2),
            [0xE2, 0x80, 0xA8, ..] => ("\\u2028", 3),
            [0xE2, 0x80, 0xA9, ..] => ("\\u2029", 3),
            [byte @ 0..0x20, ..] => (CONTROL[*byte as usize], 1),
            _ => {
                at += 1;
                continue;
            }
        };
        out.put(&text[written..at]);
        out.put(replacement);
        at += length;
        written = at;
    }
    out.put(&text[written..]);
}

/// Writes ready JSON that has no line ends of its own, as serialisers make it: the Unicode line ends that they leave
/// can only stand inside strings, where an escape means the same.
pub(crate) fn on_one_line(out: &mut impl Sink, json: &str) {
    let mut rest = json;
    while let Some(at) = rest.find(['\u{85}', '\u{2028}', '\u{2029}']) {
        let (before, found) = rest.split_at(at);
        let character = found.chars().next().unwrap_or_default();
        out.put(before);
        escape(out, &found[..character.len_utf8()]);
        rest = &found[character.len_utf8()..];
    }
    out.put(rest);
}

/// Writes `text` as a JSON string.
pub(crate) fn string(out: &mut impl Sink, text: &str) {
    out.put("\"");
    escape(out, text);
    out.put("\"");
}

/// Writes `text` as a JSON string, or `null`.
pub(crate) fn string_or_null(out: &mut impl Sink, text: Option<&str>) {
    match text {
        Some(text) => string(out, text),
        None => out.put("null"),
    }
}

/// Writes a whole number.
pub(crate) fn integer(out: &mut impl Sink, value: u64) {
    let mut digits = [0_u8; 20];
    let mut start = digits.len();
    let mut rest = value;
    loop {
        start -= 1;
        digits[start] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    out.put(std::str::from_utf8(&digits[start..]).unwrap_or("0"));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn written(text: &str) -> String {
        let mut out = String::new();
        string(&mut out, text);
        out
    }

    #[test]
    fn control_characters_and_line_separators_are_escaped() {
        let text: String =
            (0..0x20_u8).map(char::from).chain("\"\\\u{85}\u{2028}\u{2029}é…\u{7f}".chars()).collect();
        let json = written(&text);
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
        assert!(!json.contains(['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}']));
        assert!(json.contains("é…"), "other characters stay as they are");
    }

    #[test]
    fn integers_are_decimal() {
        for value in [0, 7, 10, 4_294_967_295, u64::MAX] {
            let mut out = Vec::new();
            integer(&mut out, value);
            assert_eq!(out, value.to_string().into_bytes());
        }
    }

    proptest! {
        #[test]
        fn any_text_reads_back(text in "\\PC*|[\\x00-\\x30\u{80}-\u{90}\u{2020}-\u{2030}\\\\\"]*") {
            prop_assert_eq!(serde_json::from_str::<String>(&written(&text)).unwrap(), text);
        }
    }
}
