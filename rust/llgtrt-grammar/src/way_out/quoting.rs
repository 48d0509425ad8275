//! The strings of a JSON text, byte by byte: whether its end is inside of one, and which ones there were.

use std::collections::HashSet;

/// Whether a text stands inside a JSON string at its end. For grammars of something else it only decides what is
/// tried first.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Quoting {
    pub(super) inside: bool,
    pub(super) escaped: bool,
}

impl Quoting {
    pub(crate) fn push(&mut self, text: &[u8]) {
        for &byte in text {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' if self.inside => self.escaped = true,
                b'"' => self.inside = !self.inside,
                _ => {}
            }
        }
    }
}

/// The strings of a text, as they are written. Keys and items that have to differ are kept apart by them.
#[derive(Debug, Default)]
pub(crate) struct Strings {
    quoting: Quoting,
    /// Of the string that has not ended.
    open: Vec<u8>,
    ended: HashSet<Vec<u8>>,
}

impl Strings {
    pub(crate) fn push(&mut self, text: &[u8]) {
        for byte in text {
            let inside = self.quoting.inside;
            self.quoting.push(std::slice::from_ref(byte));
            match (inside, self.quoting.inside) {
                (true, true) => self.open.push(*byte),
                (true, false) => _ = self.ended.insert(std::mem::take(&mut self.open)),
                (false, _) => {}
            }
        }
    }

    /// A text that goes on behind this one.
    pub(super) fn behind(&self) -> Behind<'_> {
        let own = Self { quoting: self.quoting, open: self.open.clone(), ended: HashSet::new() };
        Behind { before: self, own }
    }
}

/// A text, and what has come before it.
pub(super) struct Behind<'a> {
    before: &'a Strings,
    own: Strings,
}

impl Behind<'_> {
    pub(super) fn push(&mut self, text: &[u8]) {
        self.own.push(text);
    }

    /// Whether there has been the string that is open, if it ended after `more`; outside of strings that of `more` alone.
    pub(super) fn has_string(&self, more: &[u8]) -> bool {
        let string = [self.own.open.as_slice(), more].concat();
        self.own.ended.contains(&string) || self.before.ended.contains(&string)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_known_as_they_are_written() {
        let mut before = Strings::default();
        before.push(br#"{"a": ["b\"c", ""], "d"#);
        let mut text = before.behind();
        assert!(!text.has_string(b"") && !text.has_string(b"x"), "of what is open");
        text.push(br#"": "e", "#);
        for known in ["a", r#"b\"c"#, "", "d", "e"] {
            assert!(text.has_string(known.as_bytes()), "{known}");
        }
        assert!(!text.has_string(b"c"));
        text.push(b"\"a");
        assert!(text.has_string(b"") && !text.has_string(b"b"));
    }
}
