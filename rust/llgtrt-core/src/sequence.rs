//! One generation: its identity and everything an engine needs to run it.

use std::sync::Arc;

use crate::{LogitsProcessor, Phase, RequestOptions, SamplingParams};

/// Index into the vocabulary.
pub type TokenId = u32;

/// Identity of a sequence, unique within a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SequenceId(pub u64);

/// A generation handed to [`Engine::submit`](crate::Engine::submit).
///
/// The submitter guarantees: the prompt is not empty, every id is below
/// [`Capabilities::vocab_size`](crate::Capabilities::vocab_size), and
/// `prompt.len() + max_tokens <= max_sequence_tokens`.
#[derive(Debug, Clone)]
pub struct SequenceSpec {
    /// Identity, echoed in every output.
    pub id: SequenceId,
    /// Prompt tokens. Sequences whose prompt is the same allocation (`Arc::ptr_eq`) are choices of
    /// one request: evaluate the prompt once.
    pub prompt: Arc<[TokenId]>,
    /// Most tokens to generate, at least 1.
    pub max_tokens: u32,
    /// How to sample.
    pub sampling: SamplingParams,
    /// Tokens that end the sequence beside the vocabulary's end-of-sequence set.
    pub stop_token_ids: Arc<[TokenId]>,
    /// Whether the [`MaskSource`](crate::MaskSource) holds a slot for this sequence.
    pub constrained: bool,
    /// Report log-probabilities of the prompt's own tokens in the first output.
    pub prompt_logprobs: bool,
    /// What only some engines have; `None` asks for nothing.
    pub options: Option<Arc<RequestOptions>>,
    /// Changes each row of logits before the mask. Only for engines with
    /// [`Capabilities::host_logits`](crate::Capabilities::host_logits).
    pub processor: Option<Arc<dyn LogitsProcessor>>,
    /// Which part of the sequence is asked for.
    pub phase: Phase,
}
