//! What the sim engine knows about a vocabulary: its words, and the tokens that close things.
//! Built once; read by the engine's thread.

use llgtrt_core::{TokenId, Vocabulary};

/// Tokens of a vocabulary by use.
#[derive(Debug)]
pub(crate) struct Lexicon {
    /// Tokens for running text; never empty for a usable vocabulary.
    pub(crate) words: Vec<TokenId>,
    /// Closing brackets only: `}`, `]}`.
    pub(crate) brackets: Vec<TokenId>,
    /// A quote, and brackets after it: `"`, `"}`.
    pub(crate) quotes: Vec<TokenId>,
    /// `,`
    pub(crate) commas: Vec<TokenId>,
    /// Letters that begin no JSON literal: allowed only where text is free.
    pub(crate) letters: Vec<TokenId>,
    /// Bit per token: readable text, not only blanks.
    readable: Vec<u32>,
}

impl Lexicon {
    pub(crate) fn new(vocabulary: &Vocabulary) -> Self {
        let mut words = Vec::new();
        let mut plain = Vec::new();
        let mut lexicon = Self {
            words: Vec::new(),
            brackets: Vec::new(),
            quotes: Vec::new(),
            commas: Vec::new(),
            letters: Vec::new(),
            readable: vec![0; vocabulary.len().div_ceil(32)],
        };
        for token in (0..vocabulary.len() as TokenId).filter(|t| !vocabulary.is_special(*t)) {
            let bytes = vocabulary.bytes(token);
            match bytes {
                [] => continue,
                b"," => lexicon.commas.push(token),
                b"k" | b"q" | b"z" | b"x" => lexicon.letters.push(token),
                _ if bytes.iter().all(|b| matches!(b, b'}' | b']')) => lexicon.brackets.push(token),
                [b'"', rest @ ..] if rest.iter().all(|b| matches!(b, b'}' | b']')) => {
                    lexicon.quotes.push(token);
                }
                _ => {}
            }
            let Ok(text) = std::str::from_utf8(bytes) else { continue };
            if text.chars().any(char::is_control) || text.trim().is_empty() {
                if text == " " {
                    plain.push(token);
                }
                continue;
            }
            lexicon.readable[token as usize / 32] |= 1 << (token % 32);
            let letters = bytes.strip_prefix(b" ").unwrap_or(bytes);
            if letters.iter().all(u8::is_ascii_lowercase) {
                if bytes.len() > letters.len() && letters.len() > 1 {
                    words.push(token);
                } else {
                    plain.push(token);
                }
            }
        }
        // A vocabulary of bytes has no words: letters and blanks have to do.
        lexicon.words = if words.len() >= 64 { words } else { plain };
        if lexicon.words.is_empty() {
            lexicon.words = (0..vocabulary.len() as TokenId).filter(|t| !vocabulary.is_special(*t)).collect();
        }
        lexicon
    }

    /// Whether the token is readable text.
    pub(crate) fn is_readable(&self, token: TokenId) -> bool {
        self.readable.get(token as usize / 32).is_some_and(|word| word >> (token % 32) & 1 == 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use llgtrt_core::VocabularyBuilder;

    #[test]
    fn tokens_are_sorted_by_use() {
        let mut builder = VocabularyBuilder::default();
        let tokens: [&[u8]; 9] = [b"\"", b"}]", b"\"}", b",", b"z", b" ", b"\n", b"the", b"\xff"];
        for token in tokens {
            builder.push(token, false);
        }
        builder.push(b"quit", true);
        let lexicon = Lexicon::new(&builder.build(None, vec![9]));
        assert_eq!(lexicon.quotes, [0, 2]);
        assert_eq!(lexicon.brackets, [1]);
        assert_eq!(lexicon.commas, [3]);
        assert_eq!(lexicon.letters, [4]);
        assert_eq!(lexicon.words, [4, 5, 7]);
        let readable: Vec<_> = (0..12).filter(|t| lexicon.is_readable(*t)).collect();
        assert_eq!(readable, [0, 1, 2, 3, 4, 7]);
    }

    #[test]
    fn words_win_over_letters_where_there_are_enough() {
        let mut builder = VocabularyBuilder::default();
        builder.push(b"z", false);
        for first in b'a'..=b'z' {
            for second in b"aeiou" {
                builder.push(&[b' ', first, *second], false);
            }
        }
        let lexicon = Lexicon::new(&builder.build(None, Vec::new()));
        assert_eq!(lexicon.words.len(), 130);
        assert!(!lexicon.words.contains(&0));
    }
}
