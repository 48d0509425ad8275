//! The exact bytes of every token.
//!
//! Runs once, at loading. A token's bytes are what it contributes to the text wherever it stands, so
//! nothing that a decoder does at the beginning of a text (dropping a blank) is done here.

use std::collections::HashMap;

use llgtrt_core::{Error, Result, TokenId};
use serde_json::Value;
use tokenizers::Tokenizer;

/// No model has more; a bound keeps a hostile id from filling the memory.
const MAX_TOKENS: u32 = 1 << 24;

/// One row.
#[derive(Clone, Default)]
pub(super) struct TokenRow {
    pub bytes: Vec<u8>,
    pub special: bool,
}

/// Rows in id order, and names. Ids without a token, padding among them, are empty and special.
pub(super) struct TokenTable {
    tokens: Vec<TokenRow>,
    ids: HashMap<String, TokenId>,
}

impl TokenTable {
    /// The table of a tokenizer, whose decoder is `decoder`.
    pub(super) fn new(tokenizer: &Tokenizer, decoder: &Value, n_vocab: Option<u32>) -> Result<Self> {
        let spelling = Spelling::of(decoder)?;
        let ids = tokenizer.get_vocab(true);
        let len = ids.values().max().map_or(0, |&max| max.saturating_add(1));
        if len == 0 || len > MAX_TOKENS {
            return Err(Error::configuration(format!("has token ids up to {len}")));
        }
        let padded = n_vocab.unwrap_or(len);
        if padded < len || padded > MAX_TOKENS {
            return Err(Error::configuration(format!(
                "n_vocab_override is {padded}, but the tokenizer has {len} tokens"
            )));
        }
        let mut tokens = vec![TokenRow { bytes: Vec::new(), special: true }; padded as usize];
        for (name, &id) in &ids {
            tokens[id as usize] = TokenRow { bytes: spelling.bytes(name), special: false };
        }
        // Added tokens stand for their content as it is; they replace what the model's table says.
        for (&id, added) in &tokenizer.get_added_tokens_decoder() {
            if let Some(row) = tokens.get_mut(id as usize) {
                *row = TokenRow { bytes: added.content.clone().into_bytes(), special: added.special };
            }
        }
        Ok(Self { tokens, ids })
    }

    pub(super) fn tokens(&self) -> &[TokenRow] {
        &self.tokens
    }

    /// The id of a token by its name in the tokenizer's files.
    pub(super) fn id(&self, name: &str) -> Option<TokenId> {
        self.ids.get(name).copied()
    }

    /// The name of a token; empty if it has none.
    pub(super) fn name(&self, id: TokenId) -> &str {
        self.ids.iter().find(|(_, other)| **other == id).map_or("", |(name, _)| name)
    }
}

/// How the model's table writes bytes.
#[derive(Debug, PartialEq, Eq)]
enum Spelling {
    /// GPT-2's alphabet: one printable character per byte.
    ByteLevel,
    /// UTF-8 with a character for the blank, and perhaps `<0x41>` for single bytes.
    Characters { blank: Option<char>, byte_fallback: bool },
}

impl Spelling {
    /// Reads it off the decoder, which turns the table's spelling back into text.
    fn of(decoder: &Value) -> Result<Self> {
        let mut steps = Vec::new();
        flatten(decoder, "decoders", &mut steps);
        let mut blank = None;
        let mut byte_fallback = false;
        let mut known = false;
        for step in steps {
            match step["type"].as_str() {
                Some("ByteLevel") => return Ok(Self::ByteLevel),
                Some("ByteFallback") => (byte_fallback, known) = (true, true),
                Some("Metaspace") => {
                    blank = single_char(&step["replacement"]).or(Some('\u{2581}'));
                    known = true;
                }
                Some("Replace") if step["content"] == " " => {
                    blank = single_char(&step["pattern"]["String"]).or(blank);
                    known |= blank.is_some();
                }
                Some("Fuse" | "Strip" | "Replace") => {}
                other => {
                    let kind = other.unwrap_or("none");
                    return Err(Error::configuration(format!(
                        "has a decoder ({kind}) that hides token bytes"
                    )));
                }
            }
        }
        if !known {
            return Err(Error::configuration("has a decoder that does not tell the bytes of tokens"));
        }
        Ok(Self::Characters { blank, byte_fallback })
    }

    fn bytes(&self, name: &str) -> Vec<u8> {
        match self {
            // What is outside the alphabet is text as it is, as the decoder reads it too.
            Self::ByteLevel => name
                .chars()
                .map(byte_of)
                .collect::<Option<Vec<u8>>>()
                .unwrap_or_else(|| name.as_bytes().to_vec()),
            Self::Characters { blank, byte_fallback } => {
                let byte = if *byte_fallback { hex_byte(name) } else { None };
                match (byte, blank) {
                    (Some(byte), _) => vec![byte],
                    (None, Some(blank)) => name.replace(*blank, " ").into_bytes(),
                    (None, None) => name.as_bytes().to_vec(),
                }
            }
        }
    }
}

/// The steps of a decoder, normalizer or pre-tokenizer that may be a nested sequence.
fn flatten<'a>(step: &'a Value, member: &str, steps: &mut Vec<&'a Value>) {
    if step["type"] == "Sequence" {
        for inner in step[member].as_array().into_iter().flatten() {
            flatten(inner, member, steps);
        }
    } else {
        steps.push(step);
    }
}

fn single_char(value: &Value) -> Option<char> {
    let mut characters = value.as_str()?.chars();
    characters.next().filter(|_| characters.next().is_none())
}

/// `<0x41>`.
fn hex_byte(name: &str) -> Option<u8> {
    let digits = name.strip_prefix("<0x")?.strip_suffix('>')?;
    if digits.len() == 2 { u8::from_str_radix(digits, 16).ok() } else { None }
}

/// The byte that a character of GPT-2's alphabet stands for: printable Latin-1 stands for itself, the
/// other bytes follow from U+0100 in ascending order.
fn byte_of(character: char) -> Option<u8> {
    match u32::from(character) {
        code @ (0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF) => Some(code as u8),
        code @ 0x100..=0x120 => Some((code - 0x100) as u8),
        code @ 0x121..=0x142 => Some((code - 0x121 + 0x7F) as u8),
        0x143 => Some(0xAD),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_byte_alphabet_is_a_bijection_onto_all_bytes() {
        let mut bytes: Vec<u8> = (0..0x200).filter_map(char::from_u32).filter_map(byte_of).collect();
        bytes.sort_unstable();
        assert_eq!(bytes, (0..=255).collect::<Vec<u8>>());
        assert_eq!((byte_of('Ġ'), byte_of('Ċ'), byte_of('Ń')), (Some(b' '), Some(b'\n'), Some(0xAD)));
    }

    #[test]
    fn bytes_follow_the_decoder() {
        let llama = json!({"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            {"type": "ByteFallback"}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0}]});
        let spelling = Spelling::of(&llama).unwrap();
        assert_eq!(spelling.bytes("▁the▁"), b" the ");
        assert_eq!(spelling.bytes("<0xE2>"), [0xE2]);
        assert_eq!(spelling.bytes("<0xZZ>"), b"<0xZZ>");
        assert_eq!(spelling.bytes("<0x"), b"<0x");
        let metaspace = Spelling::of(&json!({"type": "Metaspace", "replacement": "_"})).unwrap();
        assert_eq!((metaspace.bytes("_a"), metaspace.bytes("<0x41>")), (b" a".to_vec(), b"<0x41>".to_vec()));
        let byte_level = Spelling::of(&json!({"type": "ByteLevel"})).unwrap();
        assert_eq!(byte_level.bytes("Ġé"), [b' ', 0xE9]);
        assert_eq!(byte_level.bytes("a b"), b"a b");
    }

    #[test]
    fn decoders_that_hide_bytes_are_refused() {
        for decoder in [json!(null), json!({"type": "WordPiece"}), json!({"type": "Fuse"}), json!(3)] {
            assert!(Spelling::of(&decoder).is_err(), "{decoder}");
        }
    }
}
