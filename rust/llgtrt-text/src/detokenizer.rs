//! Turns tokens into text, one at a time, without ever splitting a character.
//!
//! Runs on the output thread, one value per sequence. Knows nothing of stop strings. The law it
//! keeps: what `push` appended over a whole generation is `String::from_utf8_lossy` of the tokens'
//! bytes, less a character that the end of the generation cut off.

use std::str;

use llgtrt_core::{TokenId, Vocabulary};

/// Stand around the name of a control token in text that shows them: U+FDD0 and U+FDD1, which Unicode
/// reserves for use inside a program.
pub const CONTROL_MARKS: [char; 2] = ['\u{fdd0}', '\u{fdd1}'];

/// Incremental UTF-8 decoder over the bytes of tokens.
#[derive(Debug, Clone, Default)]
pub struct Detokenizer {
    /// A character whose last bytes have not come: always a valid beginning, so 3 bytes at most.
    tail: [u8; 4],
    len: usize,
    names_control: bool,
}

impl Detokenizer {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// Control tokens render their name between [`CONTROL_MARKS`], for a reader that knows what they mean.
    #[must_use]
    pub fn naming_control(mut self, names: bool) -> Self {
        self.names_control = names;
        self
    }

    /// Appends the text that is complete with this token. Control tokens render nothing, or their name.
    pub fn push(&mut self, vocabulary: &Vocabulary, token: TokenId, out: &mut String) {
        if !vocabulary.is_special(token) {
            self.push_bytes(vocabulary.bytes(token), out);
        } else if self.names_control {
            // What comes after a name belongs to another text: a character does not go on behind it.
            if self.finish() > 0 {
                out.push(char::REPLACEMENT_CHARACTER);
            }
            out.push(CONTROL_MARKS[0]);
            out.push_str(&String::from_utf8_lossy(vocabulary.bytes(token)));
            out.push(CONTROL_MARKS[1]);
        }
    }

    /// Whether a character is waiting for its last bytes.
    pub fn has_tail(&self) -> bool {
        self.len > 0
    }

    /// Ends the text. A character that is still incomplete, as when `max_tokens` cuts between its
    /// tokens, is dropped: a client never sees half of one. Returns how many bytes were dropped.
    pub fn finish(&mut self) -> usize {
        std::mem::take(&mut self.len)
    }

    /// Appends the text that is complete with these bytes.
    pub(crate) fn push_bytes(&mut self, mut bytes: &[u8], out: &mut String) {
        while self.len > 0 {
            let Some((&byte, rest)) = bytes.split_first() else { return };
            self.tail[self.len] = byte;
            match str::from_utf8(&self.tail[..=self.len]) {
                Ok(character) => {
                    out.push_str(character);
                    self.len = 0;
                    bytes = rest;
                }
                Err(error) if error.error_len().is_none() => {
                    self.len += 1;
                    bytes = rest;
                }
                // The tail was a valid beginning, so it is this byte that does not belong to it:
                // the tail is one maximal invalid part and the byte begins something new.
                Err(_) => {
                    out.push(char::REPLACEMENT_CHARACTER);
                    self.len = 0;
                }
            }
        }
        loop {
            match str::from_utf8(bytes) {
                Ok(text) => {
                    out.push_str(text);
                    return;
                }
                Err(error) => {
                    let (valid, rest) = bytes.split_at(error.valid_up_to());
                    // Valid as just reported; the fallback is unreachable and harmless.
                    out.push_str(str::from_utf8(valid).unwrap_or_default());
                    if let Some(invalid) = error.error_len() {
                        out.push(char::REPLACEMENT_CHARACTER);
                        bytes = &rest[invalid..];
                    } else {
                        self.tail[..rest.len()].copy_from_slice(rest);
                        self.len = rest.len();
                        return;
                    }
                }
            }
        }
    }
}

/// The text of all the tokens at once: control tokens skipped, invalid UTF-8 replaced, also at the end.
pub fn decode_lossy(vocabulary: &Vocabulary, tokens: &[TokenId]) -> String {
    let mut detokenizer = Detokenizer::new();
    let mut out = String::new();
    for &token in tokens {
        detokenizer.push(vocabulary, token, &mut out);
    }
    if detokenizer.finish() > 0 {
        out.push(char::REPLACEMENT_CHARACTER);
    }
    out
}

#[cfg(test)]
mod tests {
    use llgtrt_core::Tokenizer;
    use proptest::prelude::*;

    use super::*;
    use crate::ByteTokenizer;

    fn pushed(pieces: &[&[u8]]) -> (String, usize) {
        let mut detokenizer = Detokenizer::new();
        let mut out = String::new();
        for piece in pieces {
            detokenizer.push_bytes(piece, &mut out);
        }
        (out, detokenizer.finish())
    }

    #[test]
    fn p2_a_character_split_over_tokens_comes_out_whole() {
        let tokenizer = ByteTokenizer::new();
        let mut detokenizer = Detokenizer::new();
        let mut out = String::new();
        let mut lengths = Vec::new();
        for byte in "é😀x".bytes() {
            detokenizer.push(tokenizer.vocabulary(), TokenId::from(byte), &mut out);
            lengths.push(out.len());
        }
        assert_eq!(out, "é😀x");
        assert_eq!(lengths, [0, 2, 2, 2, 2, 6, 7]);
    }

    #[test]
    fn p2_an_incomplete_character_at_the_end_is_dropped() {
        assert_eq!(pushed(&[b"a\xF0\x9F", b"\x98"]), ("a".to_owned(), 3));
        assert_eq!(pushed(&[b"a"]), ("a".to_owned(), 0));
    }

    #[test]
    fn control_tokens_render_nothing_and_do_not_break_a_character() {
        let tokenizer = ByteTokenizer::new();
        let vocabulary = tokenizer.vocabulary();
        let tokens = [256, 0xC3, 258, 0xA9, 257, 9999];
        assert_eq!(decode_lossy(vocabulary, &tokens), "é");
    }

    #[test]
    fn control_tokens_are_named_on_request() {
        let tokenizer = ByteTokenizer::new();
        let mut detokenizer = Detokenizer::new().naming_control(true);
        let mut out = String::new();
        for token in [0x61, 258, 0xC3, 259, 0x62] {
            detokenizer.push(tokenizer.vocabulary(), token, &mut out);
        }
        assert_eq!(out, "a\u{fdd0}<|im_start|>\u{fdd1}\u{fffd}\u{fdd0}<|im_end|>\u{fdd1}b");
    }

    #[test]
    fn one_shot_decoding_replaces_a_cut_character() {
        let tokenizer = ByteTokenizer::new();
        assert_eq!(decode_lossy(tokenizer.vocabulary(), &[0x61, 0xE2, 0x82]), "a\u{FFFD}");
    }

    /// Bytes rich in lead bytes, continuations, surrogates and overlong forms.
    fn hostile_bytes() -> impl Strategy<Value = Vec<u8>> {
        let byte = prop_oneof![
            Just(b'a'),
            Just(0xC3),
            Just(0xA9),
            Just(0xE2),
            Just(0x82),
            Just(0xED),
            Just(0xA0),
            Just(0xF0),
            Just(0x9F),
            Just(0xF4),
            Just(0x90),
            Just(0xC0),
            Just(0xFF),
            any::<u8>(),
        ];
        prop_oneof![proptest::collection::vec(byte, 0..40), "\\PC{0,12}".prop_map(String::into_bytes)]
    }

    proptest! {
        #[test]
        fn any_split_gives_the_lossy_text(bytes in hostile_bytes(), cuts in proptest::collection::vec(0_usize..40, 0..12)) {
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
            let (mut text, dropped) = pushed(&pieces);
            if dropped > 0 {
                text.push(char::REPLACEMENT_CHARACTER);
            }
            prop_assert_eq!(text, String::from_utf8_lossy(&bytes));
        }
    }
}
