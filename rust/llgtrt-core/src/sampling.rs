//! How one token is drawn from a row of logits.

use serde::Deserialize;

use crate::TokenId;

/// Sampling parameters of one sequence, already validated by the API layer.
///
/// Read from JSON with the names of the API's fields, what is left out having its default.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "independent switches")]
pub struct SamplingParams {
    /// 0 is greedy; otherwise logits are divided by it.
    pub temperature: f32,
    /// Keep the k most likely tokens; 0 keeps all.
    pub top_k: u32,
    /// Nucleus mass in (0, 1]; 1 keeps all.
    pub top_p: f32,
    /// Keep tokens with at least this fraction of the best token's probability; 0 keeps all.
    pub min_p: f32,
    /// Subtracted once from tokens already generated.
    pub presence_penalty: f32,
    /// Subtracted per occurrence from tokens already generated.
    pub frequency_penalty: f32,
    /// Divides (positive) or multiplies (negative) logits of tokens in the prompt or the answer; 1 is off.
    pub repetition_penalty: f32,
    /// Added to single logits before anything else.
    pub logit_bias: Vec<(TokenId, f32)>,
    /// Seed of this sequence's own generator; it follows from the request's.
    #[serde(skip)]
    pub seed: u64,
    /// `Some(n)` reports the chosen token's log-probability and the n most likely alternatives.
    pub logprobs: Option<u32>,
    /// Log-probabilities among the tokens that the mask allows instead of among all; a forced token has 0. Only for
    /// engines with [`Capabilities::allowed_logprobs`](crate::Capabilities::allowed_logprobs).
    pub allowed_logprobs: bool,
    /// The log-probabilities of so many of the first generated tokens come with their
    /// [row](crate::TokenLogprobs::row).
    #[serde(skip)]
    pub logits_rows: u32,
    /// So do those of the prompt's tokens, where
    /// [`SequenceSpec::prompt_logprobs`](crate::SequenceSpec::prompt_logprobs) asks for them.
    #[serde(skip)]
    pub prompt_logits: bool,
    /// Report of each sampled token how much probability the mask had removed; takes a sum over the whole row.
    #[serde(skip)]
    pub removed_mass: bool,
    /// No end-of-sequence or stop token before this many tokens.
    pub min_tokens: u32,
    /// Never finish on the vocabulary's end-of-sequence tokens.
    pub ignore_eos: bool,
}

impl Default for SamplingParams {
    fn default() -> Self {
        Self {
            temperature: 1.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            repetition_penalty: 1.0,
            logit_bias: Vec::new(),
            seed: 0,
            logprobs: None,
            allowed_logprobs: false,
            logits_rows: 0,
            prompt_logits: false,
            removed_mass: false,
            min_tokens: 0,
            ignore_eos: false,
        }
    }
}
