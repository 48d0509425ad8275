//! A tokenizer whose tokens are bytes: for the sim engine and for tests.
//!
//! Any thread. Needs no files, and every text has exactly one tokenization, so it is canonical.

use aho_corasick::{AhoCorasick, MatchKind};
use llgtrt_core::{EncodeOptions, Result, TokenId, Tokenizer, Vocabulary, VocabularyBuilder};

use crate::GUARD;

/// Control tokens in id order, from 256.
const CONTROL: [&str; 4] = ["<s>", "</s>", "<|im_start|>", "<|im_end|>"];
const BOS: TokenId = 256;
const EOS: TokenId = 257;

/// 256 byte tokens, `<s>` (256, BOS), `</s>` (257, EOS), `<|im_start|>` (258) and `<|im_end|>` (259).
#[derive(Debug)]
pub struct ByteTokenizer {
    vocabulary: Vocabulary,
    names: AhoCorasick,
}

impl Default for ByteTokenizer {
    fn default() -> Self {
        Self::new()
    }
}

impl ByteTokenizer {
    /// The tokenizer; all are alike.
    pub fn new() -> Self {
        let mut builder = VocabularyBuilder::default();
        for byte in 0..=u8::MAX {
            builder.push(&[byte], false);
        }
        for name in CONTROL {
            builder.push(name.as_bytes(), true);
        }
        let names = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(CONTROL)
            .expect("four short constant patterns");
        Self { vocabulary: builder.build(Some(BOS), vec![EOS]), names }
    }

    fn push_text(tokens: &mut Vec<TokenId>, text: &str) {
        for piece in text.split(GUARD) {
            tokens.extend(piece.bytes().map(TokenId::from));
        }
    }
}

impl Tokenizer for ByteTokenizer {
    fn vocabulary(&self) -> &Vocabulary {
        &self.vocabulary
    }

    fn encode(&self, text: &str, options: EncodeOptions) -> Result<Vec<TokenId>> {
        let mut tokens = Vec::with_capacity(text.len() + 1);
        let mut rest = 0;
        if options.parse_special {
            for name in self.names.find_iter(text) {
                Self::push_text(&mut tokens, &text[rest..name.start()]);
                tokens.push(BOS + name.pattern().as_u32());
                rest = name.end();
            }
        }
        Self::push_text(&mut tokens, &text[rest..]);
        if options.add_special && tokens.first() != Some(&BOS) {
            tokens.insert(0, BOS);
        }
        Ok(tokens)
    }

    fn removes_guard(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encode(text: &str, add_special: bool, parse_special: bool) -> Vec<TokenId> {
        ByteTokenizer::new().encode(text, EncodeOptions { add_special, parse_special }).unwrap()
    }

    #[test]
    fn text_becomes_bytes_and_names_become_control_tokens() {
        assert_eq!(encode("é", false, true), [0xC3, 0xA9]);
        assert_eq!(encode("<|im_start|>a</s>", false, true), [258, 97, 257]);
        assert_eq!(encode("</s>", false, false), [60, 47, 115, 62]);
    }

    #[test]
    fn p25_bos_is_never_doubled() {
        assert_eq!(encode("a", true, true), [256, 97]);
        assert_eq!(encode("<s>a", true, true), [256, 97]);
        assert_eq!(encode("<s>", true, false), [256, 60, 115, 62]);
        assert_eq!(encode("", true, true), [256]);
    }

    #[test]
    fn the_vocabulary_names_every_token() {
        let tokenizer = ByteTokenizer::new();
        let vocabulary = tokenizer.vocabulary();
        assert_eq!((vocabulary.len(), vocabulary.bos(), vocabulary.eos()), (260, Some(256), &[257][..]));
        assert_eq!((vocabulary.bytes(10), vocabulary.bytes(259)), (&b"\n"[..], &b"<|im_end|>"[..]));
        assert!(vocabulary.is_special(258) && !vocabulary.is_special(255));
        assert!(tokenizer.is_canonical());
    }
}
