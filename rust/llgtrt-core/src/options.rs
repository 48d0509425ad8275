//! What a request may ask of the engines that have it, beyond what every engine does. Plain data.

use std::sync::Arc;

use serde::Deserialize;

use crate::{Error, Result, TokenId};

/// Element type of a [`HostTensor`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ElementType {
    /// One byte, 0 or 1.
    Bool,
    /// 32-bit integer.
    I32,
    /// 64-bit integer.
    I64,
    /// bfloat16.
    Bf16,
    /// 8-bit float.
    Fp8,
    /// IEEE half.
    Fp16,
    /// IEEE single.
    Fp32,
}

impl ElementType {
    /// Bytes of one element.
    pub const fn size(self) -> usize {
        match self {
            Self::Bool | Self::Fp8 => 1,
            Self::Bf16 | Self::Fp16 => 2,
            Self::I32 | Self::Fp32 => 4,
            Self::I64 => 8,
        }
    }
}

/// A row-major tensor in host memory, of at most four dimensions.
#[derive(Debug, Clone, PartialEq)]
pub struct HostTensor {
    /// What the bytes are.
    pub element: ElementType,
    /// Sizes, outermost first.
    pub shape: Vec<usize>,
    /// The elements, as this machine lays them out.
    pub bytes: Arc<[u8]>,
}

impl HostTensor {
    /// Whether the bytes are as many as the shape says, and the shape one that can be passed on.
    pub fn is_sound(&self) -> bool {
        let elements = self.shape.iter().try_fold(1_usize, |product, size| product.checked_mul(*size));
        (1..=4).contains(&self.shape.len())
            && elements.and_then(|count| count.checked_mul(self.element.size())) == Some(self.bytes.len())
    }
}

/// When an adapter's weights are sent along.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LoadWeights {
    /// With the first request, and again if the cache has lost them.
    #[default]
    Auto,
    /// With every request.
    Always,
    /// Never: a request whose adapter is not in the cache fails.
    Never,
}

/// A LoRA adapter by name.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Adapter {
    /// `NAME.safetensors` in the folder of adapters.
    pub name: String,
    /// When to send its weights.
    #[serde(default)]
    pub load: LoadWeights,
}

/// A table of embeddings for tokens past the vocabulary (images and the like).
#[derive(Debug, Clone, PartialEq)]
pub struct PromptTable {
    /// `[virtual tokens, hidden size]` in the model's type.
    pub embeddings: HostTensor,
    /// One number per prompt token that tells equal virtual tokens of different content apart; empty: none.
    pub extra_ids: Vec<u64>,
}

/// Rotary embeddings of a request, for models with mrope.
#[derive(Debug, Clone, PartialEq)]
pub struct Mrope {
    /// Cosines and sines, 32-bit floats.
    pub rotary_cos_sin: HostTensor,
    /// Offset of the answer's positions.
    pub position_deltas: i32,
}

/// The encoder's side of a request.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct EncoderInput {
    /// Tokens for the encoder.
    pub tokens: Vec<TokenId>,
    /// Features in place of tokens.
    pub features: Option<HostTensor>,
    /// Length of the encoder's output, where it differs from its input.
    pub output_length: Option<u32>,
    /// Which inputs the decoder attends to.
    pub cross_attention_mask: Option<HostTensor>,
    /// Layers without cross attention.
    pub skip_cross_attention: Option<HostTensor>,
}

/// How long a range of the prompt stays in the KV cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Retention {
    /// First token.
    pub start: u32,
    /// One past the last; None: to the end.
    pub end: Option<u32>,
    /// 0 to 100, higher stays longer.
    pub priority: u32,
    /// For how long; None: until it has to go.
    pub duration_ms: Option<u64>,
}

/// Sampling that not every engine has. None: the engine's default, which is off.
#[derive(Debug, Clone, Copy, PartialEq, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ExtraSampling {
    /// No run of this many tokens comes twice; not with a constraint.
    pub no_repeat_ngram_size: Option<u32>,
    /// `top_p` shrinks to this share of itself with each token, 0 to 1.
    pub top_p_decay: Option<f32>,
    /// But not below this, 0 to 1.
    pub top_p_min: Option<f32>,
    /// And is as given again after this token.
    pub top_p_reset_ids: Option<TokenId>,
}

/// Everything that a request may ask for. The default asks for nothing. An engine that lacks something refuses it,
/// or is never asked: see its documentation.
///
/// Read from JSON with the names of the API's fields; what is made of other things has no part in that.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RequestOptions {
    /// The LoRA adapter.
    pub adapter: Option<Adapter>,
    /// 0 to 1, higher first; None: 0.5.
    pub priority: Option<f32>,
    /// Prefixes are shared only with requests of the same salt.
    pub cache_salt: Option<u64>,
    /// Most time that the request may take.
    pub allotted_time_ms: Option<u64>,
    /// Sampling beyond [`SamplingParams`](crate::SamplingParams).
    pub sampling: ExtraSampling,
    /// Runs of tokens that must not be generated.
    #[serde(skip)]
    pub bad_words: Vec<Vec<TokenId>>,
    /// Runs of tokens that end the answer, beside the stop tokens.
    #[serde(skip)]
    pub stop_words: Vec<Vec<TokenId>>,
    /// Positions of the prompt's tokens; empty: 0, 1, 2 and so on.
    #[serde(skip)]
    pub position_ids: Vec<u32>,
    /// Embeddings for tokens past the vocabulary.
    #[serde(skip)]
    pub prompt_table: Option<PromptTable>,
    /// Rotary embeddings.
    #[serde(skip)]
    pub mrope: Option<Mrope>,
    /// The encoder's side.
    #[serde(skip)]
    pub encoder: Option<EncoderInput>,
    /// How long parts of the prompt stay in the KV cache.
    pub retention: Vec<Retention>,
    /// The same for the answer: priority, 0 to 100, and how long.
    pub decode_retention: Option<(u32, Option<u64>)>,
    /// Length of the beams; 1: no beam search. Constrained requests need 1.
    #[serde(skip)]
    pub beam_width: Option<u32>,
    /// Lookahead decoding: window, n-gram and verification set.
    #[serde(skip)]
    pub lookahead: Option<[u32; 3]>,
}

impl RequestOptions {
    /// The request field of something that is asked for; None: nothing is. A priority changes no answer: an engine
    /// without it serves in the order of arrival.
    pub fn asks_for(&self) -> Option<&'static str> {
        let Self {
            adapter,
            priority: _,
            cache_salt,
            allotted_time_ms,
            sampling: ExtraSampling { no_repeat_ngram_size, top_p_decay, top_p_min, top_p_reset_ids },
            bad_words,
            stop_words,
            position_ids,
            prompt_table,
            mrope,
            encoder,
            retention,
            decode_retention,
            beam_width,
            lookahead,
        } = self;
        let fields = [
            ("lora_model", adapter.is_some()),
            ("cache_salt", cache_salt.is_some()),
            ("allotted_time_ms", allotted_time_ms.is_some()),
            ("no_repeat_ngram_size", no_repeat_ngram_size.is_some()),
            ("top_p_decay", top_p_decay.is_some()),
            ("top_p_min", top_p_min.is_some()),
            ("top_p_reset_ids", top_p_reset_ids.is_some()),
            ("bad_words", !bad_words.is_empty()),
            ("stop_words", !stop_words.is_empty()),
            ("position_ids", !position_ids.is_empty()),
            ("prompt_table", prompt_table.is_some()),
            ("mrope_cos_sin", mrope.is_some()),
            ("encoder", encoder.is_some()),
            ("kv_cache_retention", !retention.is_empty()),
            ("kv_cache_retention", decode_retention.is_some()),
            ("beam_width", beam_width.is_some()),
            ("lookahead_config", lookahead.is_some()),
        ];
        fields.into_iter().find_map(|(name, asked)| asked.then_some(name))
    }

    /// Checks what belongs to the tokens of a prompt against them: every token is of the vocabulary or a row of the
    /// prompt table, and lists with a number per token have as many.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidRequest`](crate::ErrorKind::InvalidRequest), with the option, or none where a token is
    /// at fault.
    pub fn check_prompt(&self, tokens: &[TokenId], vocab_size: u32) -> Result<()> {
        let mut end = u64::from(vocab_size);
        if let Some(table) = &self.prompt_table {
            let &[rows, _] = table.embeddings.shape.as_slice() else {
                return Err(Error::invalid("prompt_table", "prompt_table must have two dimensions"));
            };
            end += rows as u64;
            per_token("prompt_table_extra_ids", table.extra_ids.len(), tokens)?;
        }
        per_token("position_ids", self.position_ids.len(), tokens)?;
        let Some(bad) = tokens.iter().find(|&&token| u64::from(token) >= end) else { return Ok(()) };
        let rows = if self.prompt_table.is_some() { " and of the prompt table" } else { "" };
        let message = format!("token id {bad} is outside the vocabulary of {vocab_size}{rows}");
        Err(Error::new(crate::ErrorKind::InvalidRequest, message))
    }
}

/// A list that is not empty has a number for each token.
fn per_token(name: &str, count: usize, tokens: &[TokenId]) -> Result<()> {
    if count == 0 || count == tokens.len() {
        return Ok(());
    }
    Err(Error::invalid(name, format!("{name} has {count} numbers for {} tokens", tokens.len())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_of_the_vocabulary_or_of_the_table() {
        let embeddings =
            HostTensor { element: ElementType::Fp16, shape: vec![2, 3], bytes: Arc::from([0; 12]) };
        assert!(embeddings.is_sound());
        let table = PromptTable { embeddings, extra_ids: Vec::new() };
        let options = RequestOptions { prompt_table: Some(table), ..RequestOptions::default() };
        options.check_prompt(&[9, 10, 11], 10).unwrap();
        assert!(options.check_prompt(&[12], 10).unwrap_err().message.contains("12"));
        let plain = RequestOptions::default();
        plain.check_prompt(&[9], 10).unwrap();
        assert_eq!(plain.check_prompt(&[10], 10).unwrap_err().param, None);
    }

    #[test]
    fn what_is_asked_for_has_a_name() {
        assert_eq!(RequestOptions::default().asks_for(), None);
        let options = RequestOptions { cache_salt: Some(0), ..RequestOptions::default() };
        assert_eq!(options.asks_for(), Some("cache_salt"));
    }

    #[test]
    fn lists_have_a_number_per_token() {
        let options = RequestOptions { position_ids: vec![0, 1], ..RequestOptions::default() };
        options.check_prompt(&[1, 2], 10).unwrap();
        assert_eq!(options.check_prompt(&[1], 10).unwrap_err().param.as_deref(), Some("position_ids"));
    }

    #[test]
    fn the_bytes_of_a_tensor_fit_its_shape() {
        let tensor = |shape: &[usize], bytes: usize| HostTensor {
            element: ElementType::Bool,
            shape: shape.to_vec(),
            bytes: vec![0; bytes].into(),
        };
        assert!(tensor(&[2, 3], 6).is_sound());
        for (shape, bytes) in [(&[2, 3][..], 5), (&[], 1), (&[1; 5], 1), (&[usize::MAX, 2], 2)] {
            assert!(!tensor(shape, bytes).is_sound(), "{shape:?}");
        }
    }
}
