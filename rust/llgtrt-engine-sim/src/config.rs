//! The sim engine's options. Read once, before the engine exists; must not be consulted for anything that a
//! request could influence: faults come from here only.

use serde::Deserialize;

use llgtrt_core::{Error, Result};

/// Options of the sim engine.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SimConfig {
    /// Sequences that generate at the same time.
    pub max_batch_size: u32,
    /// Prompt plus generated tokens of one sequence.
    pub max_sequence_tokens: u32,
    /// Sequences that may wait for a slot; more are refused as overload.
    pub max_waiting: u32,
    /// Prompt tokens evaluated in one step, over all sequences.
    pub prefill_chunk_tokens: u32,
    /// Tokens of the pretended prefix cache; fewer than a block: there is none.
    pub prefix_cache_tokens: u32,
    /// Added to a step for each prompt token that it evaluates, in microseconds.
    pub prefill_us_per_token: u64,
    /// Time of a step, in microseconds; 0 runs as fast as possible.
    pub step_us: u64,
    /// Added to a step for each sequence that generates, in microseconds.
    pub step_us_per_sequence: u64,
    /// Whether runs of forced tokens are appended at once.
    pub fast_forward: bool,
    /// What unconstrained sequences say.
    pub text: SimText,
    /// The answer in `script` mode.
    pub script: Option<String>,
    /// What follows the script.
    pub script_end: ScriptEnd,
    /// Shortest random answer, in tokens.
    pub min_answer_tokens: u32,
    /// Longest random answer, in tokens; a constrained answer closes everything that it can after this.
    pub max_answer_tokens: u32,
    /// Changes every random text.
    pub seed: u64,
    /// Failures to act out.
    pub faults: Vec<Fault>,
}

impl Default for SimConfig {
    fn default() -> Self {
        Self {
            max_batch_size: 256,
            max_sequence_tokens: 4096,
            max_waiting: 1024,
            prefill_chunk_tokens: 512,
            prefix_cache_tokens: 0,
            prefill_us_per_token: 0,
            step_us: 0,
            step_us_per_sequence: 0,
            fast_forward: true,
            text: SimText::Random,
            script: None,
            script_end: ScriptEnd::Eos,
            min_answer_tokens: 16,
            max_answer_tokens: 128,
            seed: 0,
            faults: Vec::new(),
        }
    }
}

impl SimConfig {
    /// Refuses values that no engine can work with.
    pub(crate) fn validate(&self) -> Result<()> {
        let positive = [
            ("max_batch_size", self.max_batch_size),
            ("max_sequence_tokens", self.max_sequence_tokens),
            ("prefill_chunk_tokens", self.prefill_chunk_tokens),
            ("min_answer_tokens", self.min_answer_tokens),
        ];
        if let Some((name, _)) = positive.iter().find(|(_, value)| *value == 0) {
            return Err(Error::configuration(format!("sim: {name} must be at least 1")).with_param(*name));
        }
        if self.max_answer_tokens < self.min_answer_tokens {
            return Err(Error::configuration("sim: max_answer_tokens is below min_answer_tokens")
                .with_param("max_answer_tokens"));
        }
        if self.text == SimText::Script && self.script.as_deref().unwrap_or("").is_empty() {
            return Err(
                Error::configuration("sim: text is \"script\" but script is empty").with_param("script")
            );
        }
        if self.faults.iter().any(|fault| fault.every == Some(0)) {
            return Err(Error::configuration("sim: a fault's every must be at least 1").with_param("faults"));
        }
        Ok(())
    }
}

/// What unconstrained sequences say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SimText {
    /// Words of the vocabulary, for a length that depends on the seed.
    Random,
    /// The configured script.
    Script,
}

/// What follows the script.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScriptEnd {
    /// The end-of-sequence token.
    Eos,
    /// The script again.
    Repeat,
}

/// A failure to act out.
///
/// With `prompt_contains` or `every` it happens when a matching sequence has generated `at_step` tokens.
/// Without, [`FaultKind::FailSequence`] and [`FaultKind::NanRow`] concern every sequence, and the other kinds
/// happen at the engine's forward pass number `at_step`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// What happens.
    pub kind: FaultKind,
    /// When.
    #[serde(default)]
    pub at_step: u64,
    /// Only sequences whose prompt holds this text.
    #[serde(default)]
    pub prompt_contains: Option<String>,
    /// Only every n-th submitted sequence, counted from 1.
    #[serde(default)]
    pub every: Option<u64>,
}

/// What a [`Fault`] does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// The sequence fails with an internal error.
    FailSequence,
    /// The sequence's row of logits is not a number.
    NanRow,
    /// `poll` never returns.
    Hang,
    /// `poll` returns an error: the engine is dead.
    FailEngine,
    /// The process aborts.
    Abort,
    /// `poll` panics.
    Panic,
}
