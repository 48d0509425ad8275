//! Inside or outside of a JSON string, byte by byte.

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
