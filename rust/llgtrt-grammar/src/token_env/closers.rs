//! The tokens that most answers are completed with: what closes JSON, short values, words, single bytes.

use std::cmp::Reverse;

use llgtrt_core::{TokenId, Vocabulary};

/// Tokens of a vocabulary that a way out is made of. Computed once for each tokenizer.
#[derive(Debug)]
pub(crate) struct Closers {
    /// Brackets that close, most of them first.
    pub(crate) brackets: Vec<TokenId>,
    /// A quote, and quotes with brackets behind, longest first.
    pub(crate) quotes: Vec<TokenId>,
    pub(crate) separators: Vec<TokenId>,
    /// Whole short values, then what begins one.
    pub(crate) values: Vec<TokenId>,
    /// What a longer value begins with.
    pub(crate) openers: Vec<TokenId>,
    /// Lower-case letters: one token for each length, longest first.
    pub(crate) words: Vec<TokenId>,
    /// The same of dots alone: whoever reads them sees that the text was cut.
    pub(crate) dots: Vec<TokenId>,
    /// Those of them of at least three.
    pub(crate) ellipses: Vec<TokenId>,
    /// One byte each.
    pub(crate) bytes: Vec<TokenId>,
}

impl Closers {
    pub(crate) fn new(vocabulary: &Vocabulary) -> Self {
        let mut brackets = Vec::new();
        let mut quotes = Vec::new();
        let mut separators = Vec::new();
        let mut values: [Option<TokenId>; VALUES.len()] = [None; VALUES.len()];
        let mut openers = Vec::new();
        let mut words: [Option<TokenId>; MAX_WORD + 1] = [None; MAX_WORD + 1];
        let mut dots = words;
        let mut bytes = Vec::new();
        let closes = |text: &[u8]| text.iter().all(|byte| matches!(byte, b'}' | b']'));
        for token in (0..vocabulary.len() as TokenId).filter(|&token| !vocabulary.is_special(token)) {
            let text = vocabulary.bytes(token);
            match text {
                [] => continue,
                [byte] => bytes.push((byte_rank(*byte), token)),
                _ => {}
            }
            if closes(text) {
                brackets.push((text.len(), token));
            } else if text[0] == b'"' && closes(&text[1..]) {
                quotes.push((text.len(), token));
            } else if matches!(text, b"," | b":") {
                separators.push(token);
            } else if matches!(text, b"[" | b"{" | b"-") {
                openers.push(token);
            }
            if let Some(at) = VALUES.iter().position(|value| *value == text) {
                values[at].get_or_insert(token);
            }
            if text.len() <= MAX_WORD && text.iter().all(u8::is_ascii_lowercase) {
                words[text.len()].get_or_insert(token);
            } else if text.len() <= MAX_WORD && text.iter().all(|&byte| byte == b'.') {
                dots[text.len()].get_or_insert(token);
            }
        }
        let longest_first = |mut list: Vec<(usize, TokenId)>| {
            list.sort_by_key(|&(len, token)| (Reverse(len), token));
            list.into_iter().map(|(_, token)| token).collect()
        };
        bytes.sort_unstable();
        Self {
            brackets: longest_first(brackets),
            quotes: longest_first(quotes),
            separators,
            values: values.into_iter().flatten().collect(),
            openers,
            words: words.into_iter().rev().flatten().collect(),
            dots: dots.into_iter().rev().flatten().collect(),
            ellipses: dots.into_iter().skip(3).rev().flatten().collect(),
            bytes: bytes.into_iter().map(|(_, token)| token).collect(),
        }
    }
}

const VALUES: [&[u8]; 12] =
    [b"\"\"", b"null", b"true", b"false", b"0", b"1", b"[]", b"{}", b"2", b"n", b"t", b"f"];

const MAX_WORD: usize = 16;

/// Bytes in the order in which they are tried: digits and letters first.
fn byte_rank(byte: u8) -> (u8, u8) {
    let class = match byte {
        b'0'..=b'9' => 0,
        b'a'..=b'z' => 1,
        b'A'..=b'Z' => 2,
        b'!'..=b'~' => 3,
        b' ' => 4,
        _ => 5,
    };
    (class, byte)
}
