//! A vocabulary like a model's, made of the words of the data itself, and Python's way to write JSON.

use std::collections::HashMap;
use std::fmt::Write;

use llgtrt_core::{EncodeOptions, Result, TokenId, Tokenizer, Vocabulary, VocabularyBuilder};
use serde_json::Value;

/// Tokens beside the 256 bytes.
const WORDS: usize = 30_000;

const STRUCTURE: [&str; 22] = [
    "{\"", "\":", "\": ", "\",", "\", \"", "\"}", "[]", "[[", "]}", ", ", "\": \"", "\": {\"", "\": [",
    "\": [{\"", "}}", "}]", "true", "false", "null", "{}", "\"]", " [\"",
];

/// Bytes, and the most frequent words of a text with and without a blank before them.
pub(crate) struct Words {
    vocabulary: Vocabulary,
    tokens: HashMap<Vec<u8>, TokenId>,
    longest: usize,
}

impl Words {
    pub(crate) fn from_text(text: &str) -> Self {
        let mut counts: HashMap<&str, usize> = HashMap::new();
        for word in text.split(|c: char| !c.is_alphanumeric()) {
            if (2..=14).contains(&word.len()) {
                *counts.entry(word).or_default() += 1;
            }
        }
        let mut words: Vec<(&str, usize)> = counts.into_iter().collect();
        words.sort_unstable_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
        let mut list: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).collect();
        list.extend(STRUCTURE.iter().map(|s| s.as_bytes().to_vec()));
        for (word, _) in words.into_iter().take(WORDS / 2) {
            list.push(word.as_bytes().to_vec());
            list.push(format!(" {word}").into_bytes());
        }
        let mut builder = VocabularyBuilder::default();
        let mut tokens = HashMap::new();
        let mut longest = 1;
        for bytes in list {
            if tokens.contains_key(&bytes) {
                continue;
            }
            longest = longest.max(bytes.len());
            tokens.insert(bytes.clone(), builder.len() as TokenId);
            builder.push(&bytes, false);
        }
        let eos = builder.len() as TokenId;
        builder.push(b"<|end|>", true);
        Self { vocabulary: builder.build(None, vec![eos]), tokens, longest }
    }

    /// Always the longest token.
    pub(crate) fn encode_text(&self, text: &str) -> Vec<TokenId> {
        let mut rest = text.as_bytes();
        let mut out = Vec::new();
        while !rest.is_empty() {
            let most = self.longest.min(rest.len());
            let found = (1..=most).rev().find_map(|n| self.tokens.get(&rest[..n]).map(|&t| (t, n)));
            let (token, n) = found.unwrap_or((TokenId::from(rest[0]), 1));
            out.push(token);
            rest = &rest[n..];
        }
        out
    }
}

impl Tokenizer for Words {
    fn vocabulary(&self) -> &Vocabulary {
        &self.vocabulary
    }

    fn encode(&self, text: &str, _: EncodeOptions) -> Result<Vec<TokenId>> {
        Ok(self.encode_text(text))
    }

    fn is_canonical(&self) -> bool {
        true
    }
}

/// JSON as Python's `json.dumps(value, ensure_ascii=False)` writes it.
pub(crate) fn dumps(value: &Value) -> String {
    let mut text = String::new();
    write(value, &mut text);
    text
}

fn write(value: &Value, text: &mut String) {
    match value {
        Value::Array(items) => {
            text.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    text.push_str(", ");
                }
                write(item, text);
            }
            text.push(']');
        }
        Value::Object(members) => {
            text.push('{');
            for (index, (key, item)) in members.iter().enumerate() {
                if index > 0 {
                    text.push_str(", ");
                }
                let _ = write!(text, "{}: ", Value::String(key.clone()));
                write(item, text);
            }
            text.push('}');
        }
        other => {
            let _ = write!(text, "{other}");
        }
    }
}
