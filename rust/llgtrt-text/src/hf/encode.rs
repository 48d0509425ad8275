//! Text to tokens, step by step.
//!
//! Runs on worker threads. The steps are those of `tokenizers::Tokenizer::encode`, taken apart because
//! three things differ from call to call: whether control-token names are read, whether the text begins
//! a prompt, and guards, which have to go after the names were looked for and before the model sees them.
//! Truncation and padding, which some files carry over from training, are not applied.

use std::panic::{AssertUnwindSafe, catch_unwind};

use llgtrt_core::{EncodeOptions, Error, Result, TokenId};
use serde_json::Value;
use tokenizers::{
    AddedVocabulary, Encoding, Model, NormalizerWrapper, OffsetType, PostProcessor, PreTokenizer,
    PreTokenizerWrapper, Token, Tokenizer,
};

use super::files::TokenizerParts;
use crate::GUARD;

/// Stands for a text while the post-processor is asked what it adds.
const TEXT: TokenId = TokenId::MAX;

/// The steps before the model.
struct Steps {
    normalizer: Option<NormalizerWrapper>,
    pre_tokenizer: Option<PreTokenizerWrapper>,
}

/// A tokenizer taken apart.
pub(super) struct Pipeline {
    tokenizer: Tokenizer,
    /// The tokenizer's added tokens, with the names of control tokens left as text.
    plain: AddedVocabulary,
    /// For a text that continues another: no blank is put before it.
    continuation: Steps,
}

impl Pipeline {
    pub(super) fn new(tokenizer: Tokenizer, mut parts: TokenizerParts) -> Result<Self> {
        let mut plain = tokenizer.get_added_vocabulary().clone();
        plain.set_encode_special_tokens(true);
        remove_prefix(&mut parts.normalizer, "normalizers");
        remove_prefix(&mut parts.pre_tokenizer, "pretokenizers");
        let invalid = |error| Error::configuration(format!("cannot be read as a tokenizer: {error}"));
        let continuation = Steps {
            normalizer: serde_json::from_value(parts.normalizer).map_err(invalid)?,
            pre_tokenizer: serde_json::from_value(parts.pre_tokenizer).map_err(invalid)?,
        };
        Ok(Self { tokenizer, plain, continuation })
    }

    /// What the post-processor puts before a text.
    pub(super) fn added_by_post_processor(&self) -> Vec<TokenId> {
        let Some(post_processor) = self.tokenizer.get_post_processor() else { return Vec::new() };
        let text = Encoding::from_tokens(vec![Token::new(TEXT, String::new(), (0, 0))], 0);
        let Ok(processed) = post_processor.process(text, None, true) else { return Vec::new() };
        processed.get_ids().iter().copied().take_while(|&token| token != TEXT).collect()
    }

    /// Tokens of `text`, without what is put before a prompt.
    pub(super) fn encode(&self, text: &str, options: EncodeOptions) -> Result<Vec<TokenId>> {
        // Some steps assert what hostile text might break; that must not end more than this request.
        catch_unwind(AssertUnwindSafe(|| self.steps(text, options)))
            .map_err(|_| Error::internal("the tokenizer failed on this text"))?
            .map_err(|error| Error::internal(format!("the tokenizer failed on this text: {error}")))
    }

    fn steps(&self, text: &str, options: EncodeOptions) -> tokenizers::Result<Vec<TokenId>> {
        let added = if options.parse_special { self.tokenizer.get_added_vocabulary() } else { &self.plain };
        let (normalizer, pre_tokenizer) = if options.add_special || options.parse_special {
            (self.tokenizer.get_normalizer(), self.tokenizer.get_pre_tokenizer())
        } else {
            (self.continuation.normalizer.as_ref(), self.continuation.pre_tokenizer.as_ref())
        };
        let guarded = text.contains(GUARD);
        if guarded && text.chars().all(|character| character == GUARD) {
            return Ok(Vec::new());
        }
        let mut pieces = added.extract_and_normalize(normalizer, text);
        if guarded {
            pieces.normalize(|piece| {
                piece.filter(|character| character != GUARD);
                Ok(())
            })?;
        }
        if let Some(pre_tokenizer) = pre_tokenizer {
            pre_tokenizer.pre_tokenize(&mut pieces)?;
        }
        let model = self.tokenizer.get_model();
        pieces.tokenize(|piece| model.tokenize(piece.get()))?;
        Ok(pieces.into_encoding(None, 0, OffsetType::None)?.get_ids().to_vec())
    }
}

/// Takes out of a normalizer or pre-tokenizer what puts a blank before the text. `member` names the list
/// of a sequence.
fn remove_prefix(step: &mut Value, member: &str) {
    let Some(kind) = step["type"].as_str().map(str::to_owned) else { return };
    match kind.as_str() {
        "Sequence" => {
            for inner in step[member].as_array_mut().into_iter().flatten() {
                remove_prefix(inner, member);
            }
        }
        "Prepend" => step["prepend"] = "".into(),
        "Metaspace" => {
            step["prepend_scheme"] = "never".into();
            step["add_prefix_space"] = false.into();
        }
        "ByteLevel" if step.get("add_prefix_space").is_some() => step["add_prefix_space"] = false.into(),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn prefixes_are_removed_wherever_they_stand() {
        let mut normalizer = json!({"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": "▁"}, {"type": "NFC"}]});
        remove_prefix(&mut normalizer, "normalizers");
        assert_eq!(normalizer["normalizers"], json!([{"type": "Prepend", "prepend": ""}, {"type": "NFC"}]));
        let mut pre =
            json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": false});
        remove_prefix(&mut pre, "pretokenizers");
        assert_eq!(pre["prepend_scheme"], "never");
        let mut nothing = Value::Null;
        remove_prefix(&mut nothing, "pretokenizers");
        assert_eq!(nothing, Value::Null);
    }
}
