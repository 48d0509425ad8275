//! The engine over a [`RowModel`]: accepts sequences, gives them slots, and steps all of them with one forward pass per
//! poll.
//!
//! One thread makes every call. A poll goes: admit, tell the mask source what is new, evaluate one batch (`forward`),
//! sample under the masks (`sequences`), report. No prefix is kept: each sequence evaluates its own prompt.

use std::sync::Arc;
use std::time::Duration;

use llgtrt_core::{
    Capabilities, Engine, EngineStats, Error, MaskSource, Result, SequenceId, SequenceSpec, StepBatch,
    TokenId,
};

use crate::forward::Share;
use crate::model::RowModel;
use crate::sequences::{KvCache, Output, Rows, Sequences};

/// The model, and what it holds of the sequences.
pub(crate) struct Held {
    pub(crate) model: Box<dyn RowModel>,
    /// Tokens of the sequence in each slot.
    pub(crate) evaluated: Vec<usize>,
}

impl KvCache for Held {
    fn evaluated(&self, slot: usize) -> usize {
        self.evaluated[slot]
    }

    fn keep(&mut self, slot: usize, count: usize) {
        self.evaluated[slot] = self.evaluated[slot].min(count);
    }

    fn free(&mut self, slot: usize) {
        self.model.free(slot);
        self.evaluated[slot] = 0;
    }
}

/// The rows of the latest pass, each of `width` logits.
struct PassRows<'a> {
    rows: &'a [f32],
    width: usize,
}

impl Rows for PassRows<'_> {
    fn logits(&self, index: usize) -> Option<&[f32]> {
        self.rows.chunks_exact(self.width).nth(index)
    }
}

/// An engine over a model that gives rows of logits. See [`Engine`] for the contract.
pub struct RowEngine {
    pub(crate) pass_tokens: usize,
    pub(crate) capabilities: Capabilities,
    pub(crate) sequences: Sequences,
    pub(crate) cache: Held,
    admitted: u64,
    pub(crate) stats: EngineStats,
    dead: bool,
    // Reused between polls.
    pub(crate) shares: Vec<Share>,
    pub(crate) tokens: Vec<TokenId>,
    pub(crate) rows: Vec<f32>,
    pub(crate) outputs: Vec<Output>,
}

impl RowEngine {
    /// An engine over a model whose vocabulary ends answers with `eos`. `masks` answers for the constrained sequences;
    /// so many as `max_waiting` may wait for a slot. As many as `threads` draw tokens, the one that polls included.
    ///
    /// # Errors
    /// [`ErrorKind::Configuration`]: the model has no room for a sequence.
    pub fn new(
        model: Box<dyn RowModel>,
        eos: &[TokenId],
        max_waiting: usize,
        threads: usize,
        masks: Arc<dyn MaskSource>,
    ) -> Result<Self> {
        let traits = model.traits();
        if traits.vocab_size == 0 || traits.slots == 0 || traits.context_tokens < 2 || traits.pass_tokens == 0
        {
            return Err(Error::configuration("the model has no vocabulary, no slot or no context"));
        }
        let capabilities = Capabilities {
            max_batch_size: traits.slots,
            max_sequence_tokens: traits.context_tokens,
            vocab_size: traits.vocab_size,
            fast_forward: true,
            prompt_logprobs: true,
            allowed_logprobs: true,
            retract: true,
            host_logits: true,
            request_options: false,
            handover: false,
            name: traits.name,
        };
        Ok(Self {
            pass_tokens: (traits.pass_tokens.max(traits.slots)) as usize,
            sequences: Sequences::new(&capabilities, eos, max_waiting, threads, masks),
            capabilities,
            cache: Held { model, evaluated: vec![0; traits.slots as usize] },
            admitted: 0,
            stats: EngineStats::default(),
            dead: false,
            shares: Vec::new(),
            tokens: Vec::new(),
            rows: Vec::new(),
            outputs: Vec::new(),
        })
    }

    /// Starts waiting sequences, oldest first, while there are free slots.
    fn admit(&mut self, batch: &mut StepBatch) {
        for slot in 0..self.sequences.running.len() {
            if self.sequences.running[slot].is_none()
                && let Some(spec) = self.sequences.waiting.pop_front()
            {
                batch.start(spec.id);
                self.admitted += 1;
                self.sequences.start(slot, spec, 0, self.admitted);
            }
        }
    }

    fn advance(&mut self) {
        self.sequences.advance(&mut self.cache);
    }

    fn sample(&mut self) {
        let rows = PassRows { rows: &self.rows, width: self.capabilities.vocab_size as usize };
        self.sequences.sample(&self.outputs, &rows);
    }
}

impl Engine for RowEngine {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn submit(&mut self, spec: SequenceSpec) -> Result<()> {
        if self.dead {
            return Err(Error::engine("the engine has failed"));
        }
        self.sequences.submit(spec)
    }

    fn cancel(&mut self, id: SequenceId) {
        self.sequences.cancel(id, &mut self.cache);
    }

    fn poll(&mut self, timeout: Duration, batch: &mut StepBatch) -> Result<()> {
        if self.dead {
            return Err(Error::engine("the engine has failed"));
        }
        self.admit(batch);
        self.advance();
        if self.sequences.is_idle() {
            if !self.sequences.has_ended() {
                std::thread::sleep(timeout);
            }
        } else if let Some((mut pass, started)) = self.forward().inspect_err(|_| self.dead = true)? {
            self.sample();
            self.advance();
            pass.duration = started.elapsed();
            batch.pass(pass);
        }
        self.sequences.report(batch, &mut self.cache);
        Ok(())
    }

    fn has_work(&self) -> bool {
        self.sequences.has_work()
    }

    fn stats(&self) -> EngineStats {
        let held: usize = self.cache.evaluated.iter().sum();
        EngineStats {
            running: self.sequences.count_running(),
            waiting: self.sequences.waiting.len() as u32,
            kv_cache_usage: held as f64 / (self.sequences.context() * self.sequences.running.len()) as f64,
            processors: self.sequences.processors(),
            ..self.stats
        }
    }
}
