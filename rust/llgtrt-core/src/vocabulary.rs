//! The token table and the tokenizer contract.

use std::fmt;

use crate::{Result, TokenId};

/// How a text is tokenized.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EncodeOptions {
    /// Add what the tokenizer adds by itself (usually BOS), unless the text already starts with it.
    pub add_special: bool,
    /// Read the text of control tokens (`<|im_start|>`) as those tokens.
    pub parse_special: bool,
}

/// Bytes and roles of every token. Immutable once built.
pub struct Vocabulary {
    bytes: Vec<u8>,
    ends: Vec<u32>,
    special: Vec<bool>,
    bos: Option<TokenId>,
    eos: Vec<TokenId>,
}

impl fmt::Debug for Vocabulary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Vocabulary")
            .field("len", &self.len())
            .field("bos", &self.bos)
            .field("eos", &self.eos)
            .finish_non_exhaustive()
    }
}

impl Vocabulary {
    /// Tokens in the table (a logits row may be wider: see `Capabilities::vocab_size`).
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether the table is empty.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The bytes of a token; for a special token, its name. Unknown ids are empty.
    pub fn bytes(&self, token: TokenId) -> &[u8] {
        let index = token as usize;
        let Some(&end) = self.ends.get(index) else { return &[] };
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        &self.bytes[start as usize..end as usize]
    }

    /// Whether the token is a control token, whose name is not part of the text.
    pub fn is_special(&self, token: TokenId) -> bool {
        self.special.get(token as usize).copied().unwrap_or(true)
    }

    /// The beginning-of-sequence token.
    pub fn bos(&self) -> Option<TokenId> {
        self.bos
    }

    /// Every token that ends a generation, the main one first.
    pub fn eos(&self) -> &[TokenId] {
        &self.eos
    }

    /// Whether the token ends a generation.
    pub fn is_eos(&self, token: TokenId) -> bool {
        self.eos.contains(&token)
    }

    /// The longest token, in bytes: a text of more than `n` times this is more than `n` tokens.
    pub fn max_token_bytes(&self) -> usize {
        (0..self.len()).map(|t| self.bytes(t as TokenId).len()).max().unwrap_or(0)
    }
}

/// Collects tokens in id order.
#[derive(Default)]
pub struct VocabularyBuilder {
    bytes: Vec<u8>,
    ends: Vec<u32>,
    special: Vec<bool>,
}

impl VocabularyBuilder {
    /// Adds the next token.
    pub fn push(&mut self, bytes: &[u8], special: bool) {
        self.bytes.extend_from_slice(bytes);
        self.ends.push(self.bytes.len() as u32);
        self.special.push(special);
    }

    /// Tokens so far.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Finishes the table. `eos` lists the main end-of-sequence token first.
    pub fn build(self, bos: Option<TokenId>, eos: Vec<TokenId>) -> Vocabulary {
        Vocabulary { bytes: self.bytes, ends: self.ends, special: self.special, bos, eos }
    }
}

/// Text to tokens and back. Shared by every thread.
pub trait Tokenizer: Send + Sync {
    /// The token table.
    fn vocabulary(&self) -> &Vocabulary;

    /// Tokenizes a text. May be slow for hostile input: call it off the event loop, with a length cap.
    fn encode(&self, text: &str, options: EncodeOptions) -> Result<Vec<TokenId>>;

    /// Whether `encode` is the canonical tokenization that the model was trained on. Forced tokens
    /// need one, because a forced text has to be split the way the model would split it.
    fn is_canonical(&self) -> bool {
        true
    }

    /// Whether `encode` itself removes the U+FDD0 guards that keep user text from becoming control
    /// tokens, after it has looked for their names. If not, guarded text is split before it gets here.
    fn removes_guard(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_found_by_id() {
        let mut builder = VocabularyBuilder::default();
        builder.push(b"ab", false);
        builder.push(b"", false);
        builder.push(b"<s>", true);
        let vocabulary = builder.build(Some(2), vec![2]);
        assert_eq!(vocabulary.bytes(0), b"ab");
        assert_eq!(vocabulary.bytes(1), b"");
        assert_eq!(vocabulary.bytes(2), b"<s>");
        assert_eq!(vocabulary.bytes(9), b"");
        assert!(vocabulary.is_special(2) && vocabulary.is_special(9) && !vocabulary.is_special(0));
        assert!(vocabulary.is_eos(2));
        assert_eq!(vocabulary.max_token_bytes(), 3);
    }
}
