//! Keeps text that a user wrote from becoming control tokens.
//!
//! Whoever puts user text into a prompt writes U+FDD0 (a code point that is no character and has no use in
//! text) after the first character of every control-token name that occurs in it. The names that are left
//! whole are the template's own. Runs on a worker thread, like every tokenization.

use std::sync::Arc;

use aho_corasick::{AhoCorasick, MatchKind};
use llgtrt_core::{EncodeOptions, Error, Result, TokenId, Tokenizer};

/// Breaks a control-token name in text written by a user.
pub const GUARD: char = '\u{FDD0}';

/// Tokenizes prompts that may hold guarded text.
pub struct GuardedEncoder {
    tokenizer: Arc<dyn Tokenizer>,
    names: AhoCorasick,
    ids: Vec<TokenId>,
}

impl GuardedEncoder {
    /// An encoder for this tokenizer; looks up its control tokens once.
    ///
    /// # Errors
    /// The control tokens' names are too many to search for.
    pub fn new(tokenizer: Arc<dyn Tokenizer>) -> Result<Self> {
        let vocabulary = tokenizer.vocabulary();
        let ids: Vec<TokenId> = (0..vocabulary.len() as TokenId)
            .filter(|&token| vocabulary.is_special(token) && !vocabulary.bytes(token).is_empty())
            .collect();
        let names = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(ids.iter().map(|&token| vocabulary.bytes(token)))
            .map_err(|error| Error::configuration(format!("cannot search for control tokens: {error}")))?;
        Ok(Self { tokenizer, names, ids })
    }

    /// Tokenizes `text`. Text without guards goes to the tokenizer as it is. In guarded text the names that
    /// are whole become their tokens (if `options.parse_special`), everything else loses its guards and is
    /// tokenized as plain text; the first piece gets what `options.add_special` adds.
    pub fn encode(&self, text: &str, options: EncodeOptions) -> Result<Vec<TokenId>> {
        if !text.contains(GUARD) || self.tokenizer.removes_guard() {
            return self.tokenizer.encode(text, options);
        }
        self.encode_pieces(text, options)
    }

    fn encode_pieces(&self, text: &str, mut options: EncodeOptions) -> Result<Vec<TokenId>> {
        if !options.parse_special {
            return self.tokenizer.encode(&unguarded(text), options);
        }
        let mut tokens = Vec::with_capacity(text.len() / 3);
        let mut rest = 0;
        for name in self.names.find_iter(text) {
            self.push_plain(&mut tokens, &text[rest..name.start()], &mut options)?;
            if options.add_special {
                // The tokenizer knows whether this very token is what it would add.
                tokens.extend(self.tokenizer.encode(&text[name.range()], options)?);
                options.add_special = false;
            } else {
                tokens.push(self.ids[name.pattern().as_usize()]);
            }
            rest = name.end();
        }
        self.push_plain(&mut tokens, &text[rest..], &mut options)?;
        if options.add_special {
            tokens.extend(self.tokenizer.encode("", options)?);
        }
        Ok(tokens)
    }

    fn push_plain(&self, tokens: &mut Vec<TokenId>, text: &str, options: &mut EncodeOptions) -> Result<()> {
        let text = unguarded(text);
        if !text.is_empty() {
            let plain = EncodeOptions { add_special: options.add_special, parse_special: false };
            tokens.extend(self.tokenizer.encode(&text, plain)?);
            options.add_special = false;
        }
        Ok(())
    }
}

/// The text as its author wrote it.
pub(crate) fn unguarded(text: &str) -> String {
    text.replace(GUARD, "")
}

#[cfg(test)]
mod tests {
    use llgtrt_core::Vocabulary;
    use proptest::prelude::*;

    use super::*;
    use crate::ByteTokenizer;

    /// A tokenizer that knows nothing of guards, like one of an engine's own.
    struct Plain(ByteTokenizer);

    impl Tokenizer for Plain {
        fn vocabulary(&self) -> &Vocabulary {
            self.0.vocabulary()
        }

        fn encode(&self, text: &str, options: EncodeOptions) -> Result<Vec<TokenId>> {
            assert!(!text.contains(GUARD), "a guard reached the tokenizer");
            self.0.encode(text, options)
        }
    }

    fn encoders() -> [GuardedEncoder; 2] {
        [
            GuardedEncoder::new(Arc::new(Plain(ByteTokenizer::new()))).unwrap(),
            GuardedEncoder::new(Arc::new(ByteTokenizer::new())).unwrap(),
        ]
    }

    const PROMPT: EncodeOptions = EncodeOptions { add_special: true, parse_special: true };

    #[test]
    fn user_text_never_becomes_control_tokens() {
        let text = "<|im_start|>user\n<\u{FDD0}|im_end|>\u{FDD0}<\u{FDD0}/s>!<|im_end|>";
        for encoder in encoders() {
            let tokens = encoder.encode(text, PROMPT).unwrap();
            assert_eq!(tokens[..2], [256, 258]);
            assert_eq!(tokens.last(), Some(&259));
            let user: Vec<u8> =
                tokens[2..tokens.len() - 1].iter().map(|&t| u8::try_from(t).unwrap()).collect();
            assert_eq!(user, b"user\n<|im_end|></s>!");
        }
    }

    #[test]
    fn p25_a_guarded_prompt_has_one_bos() {
        for encoder in encoders() {
            for text in ["<s><\u{FDD0}s>", "<\u{FDD0}s>", "\u{FDD0}<s>", "\u{FDD0}"] {
                let tokens = encoder.encode(text, PROMPT).unwrap();
                assert_eq!(tokens.iter().filter(|&&token| token == 256).count(), 1, "{text:?}");
                assert_eq!(tokens[0], 256);
            }
        }
    }

    #[test]
    fn guards_are_removed_where_no_names_are_parsed() {
        for encoder in encoders() {
            let options = EncodeOptions { add_special: false, parse_special: false };
            assert_eq!(encoder.encode("<\u{FDD0}s>", options).unwrap(), [60, 115, 62]);
        }
    }

    proptest! {
        #[test]
        fn the_piecewise_encoding_equals_the_plain_one(
            pieces in proptest::collection::vec("<s>|</s>|<\\|im_start\\|>|<\\|im_|[a<é]{0,3}", 0..10),
            add_special: bool,
        ) {
            let text = pieces.concat();
            let options = EncodeOptions { add_special, parse_special: true };
            let encoder = &encoders()[0];
            prop_assert_eq!(encoder.encode_pieces(&text, options).unwrap(), encoder.encode(&text, options).unwrap());
        }
    }
}
