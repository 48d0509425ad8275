//! The contract of an inference engine, for engines that own their loop and engines that we step.

use std::time::Duration;

use crate::{ProcessorStats, Result, SequenceId, SequenceSpec, StepBatch};

/// What an engine can do; fixed after construction.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "independent abilities")]
pub struct Capabilities {
    /// Sequences that generate at the same time; more wait in the engine.
    pub max_batch_size: u32,
    /// Prompt plus generated tokens of one sequence.
    pub max_sequence_tokens: u32,
    /// Columns of a logits row, padding included.
    pub vocab_size: u32,
    /// Evaluates a run of forced tokens in one forward pass.
    pub fast_forward: bool,
    /// Honours `SequenceSpec::prompt_logprobs`.
    pub prompt_logprobs: bool,
    /// Honours [`SamplingParams::allowed_logprobs`](crate::SamplingParams::allowed_logprobs) under a mask.
    pub allowed_logprobs: bool,
    /// Honours [`AdvanceState::Retract`](crate::AdvanceState::Retract).
    pub retract: bool,
    /// Rows of logits pass through the host: honours [`SequenceSpec::processor`].
    pub host_logits: bool,
    /// Honours [`RequestOptions`](crate::RequestOptions); where not, requests come without.
    pub request_options: bool,
    /// Evaluates prompts for others, and goes on behind theirs: honours [`SequenceSpec::phase`].
    pub handover: bool,
    /// Short name, such as `llamacpp`.
    pub name: &'static str,
}

/// A snapshot for metrics.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct EngineStats {
    /// Sequences that hold a slot (prefill or decode).
    pub running: u32,
    /// Sequences accepted by the engine that have no slot yet.
    pub waiting: u32,
    /// Token positions of the KV cache in use, as a fraction of all, 0 to 1.
    pub kv_cache_usage: f64,
    /// Prompt tokens looked up in the prefix cache since start.
    pub prefix_cache_queries: u64,
    /// Prompt tokens found there since start.
    pub prefix_cache_hits: u64,
    /// Forward passes since start.
    pub forward_passes: u64,
    /// Guesses at next tokens that took part in them.
    pub draft_tokens: u64,
    /// Guesses that came true.
    pub accepted_draft_tokens: u64,
    /// What logits processors have done since start.
    pub processors: ProcessorStats,
    /// The KV cache in blocks, where the engine says.
    pub cache_blocks: Option<CacheBlocks>,
    /// What the engine's runtime holds, where it says.
    pub memory: Option<RuntimeMemory>,
    /// What the batcher did in the last forward pass, where the engine says.
    pub batcher: Option<Batcher>,
}

/// One forward pass of an in-flight batcher: which sequences took part.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Batcher {
    /// All that took part.
    pub scheduled: u32,
    /// Those of them whose prompt was read.
    pub context: u32,
    /// Those of them that generated.
    pub generation: u32,
    /// Sequences that had to give way.
    pub paused: u32,
    /// Prompt tokens that were read.
    pub context_tokens: u32,
    /// Which of the batches that take turns it was, where there are several (pipeline parallelism).
    pub micro_batch: u32,
}

/// The KV cache, counted in blocks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CacheBlocks {
    /// All of them.
    pub max: u32,
    /// Those that hold tokens of a sequence that runs.
    pub used: u32,
    /// Those that a new sequence may take.
    pub free: u32,
    /// Tokens of one block.
    pub tokens: u32,
}

/// Memory of an engine's runtime, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RuntimeMemory {
    /// Of the device.
    pub gpu: u64,
    /// Of the host, pageable.
    pub cpu: u64,
    /// Of the host, pinned.
    pub pinned: u64,
}

/// An inference engine. One thread owns it and makes every call.
///
/// The contract (the conformance suite checks it on every engine):
/// - every sequence that `submit` accepted ends with exactly one [`Finish`](crate::Finish), reported by a later
///   `poll`, and nothing is reported for it afterwards;
/// - `cancel` of an unknown or finished sequence is no error; of a live one it leads to
///   [`Finish::Cancelled`](crate::Finish::Cancelled) in the next non-empty `poll` (or to a finish that happened first) and frees
///   its slot before the next step;
/// - `poll` returns as soon as something happened, blocks at most about `timeout` when there is nothing
///   to do, never spins, and returns `Err` only if the engine as a whole is dead;
/// - a failure of one sequence ([`Finish::Failed`](crate::Finish::Failed)) leaves the others' outputs unchanged;
/// - a sequence that gets its slot is noted with [`StepBatch::start`] in the same poll;
/// - for constrained sequences the engine calls [`MaskSource::advance`](crate::MaskSource::advance) as soon as the
///   tokens of a step are known and [`MaskSource::fill`](crate::MaskSource::fill) before sampling the next.
pub trait Engine: Send {
    /// What this engine can do.
    fn capabilities(&self) -> &Capabilities;

    /// Accepts a sequence. An error concerns this sequence only; it was not accepted.
    fn submit(&mut self, spec: SequenceSpec) -> Result<()>;

    /// Ends a sequence early.
    fn cancel(&mut self, id: SequenceId);

    /// Makes progress and appends what happened to `batch` (which the caller cleared).
    ///
    /// # Errors
    /// The engine is dead: every live sequence is lost and no call will succeed again.
    fn poll(&mut self, timeout: Duration, batch: &mut StepBatch) -> Result<()>;

    /// Whether any sequence is live; an idle engine need not be polled.
    fn has_work(&self) -> bool;

    /// A snapshot for metrics; cheap.
    fn stats(&self) -> EngineStats;
}
