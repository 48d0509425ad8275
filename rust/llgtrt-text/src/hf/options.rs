//! What the configuration says about a tokenizer.
//!
//! Plain data, read once at start.

use serde::Deserialize;

/// Overrides of what the tokenizer's own files say. Every field may be absent or null: no override.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TokenizerOptions {
    /// Tokens in the vocabulary, where the model has more than the tokenizer's files.
    pub n_vocab_override: Option<u32>,
    /// Text of the beginning-of-sequence token.
    pub bos_token: Option<String>,
    /// Text of the main end-of-sequence token.
    pub eos_token: Option<String>,
    /// Whether prompts begin with the beginning-of-sequence token.
    pub add_bos_token: Option<bool>,
}
