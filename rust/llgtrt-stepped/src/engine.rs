//! The engine over a [`RowModel`]: accepts sequences, gives them slots, and steps all of them with one forward pass per
//! poll.
//!
//! One thread makes every call. A poll goes: admit, tell the mask source what is new, evaluate one batch (`forward`),
//! sample under the masks (`sampling`), report. No prefix is kept: each sequence evaluates its own prompt.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use llgtrt_core::{
    AdvanceBatch, Capabilities, Engine, EngineStats, Error, ErrorKind, Finish, MaskBatch, MaskSource,
    ProcessedRows, Result, SequenceId, SequenceSpec, StepBatch, TokenId,
};

use crate::forward::{Output, Share};
use crate::model::RowModel;
use crate::sequence::Sequence;

/// A sequence that holds a slot.
pub(crate) struct Running {
    pub(crate) sequence: Sequence,
    /// Tokens of it that the model holds.
    pub(crate) evaluated: usize,
}

/// An engine over a model that gives rows of logits. See [`Engine`] for the contract.
pub struct RowEngine {
    pub(crate) model: Box<dyn RowModel>,
    pub(crate) pass_tokens: usize,
    pub(crate) capabilities: Capabilities,
    pub(crate) masks: Arc<dyn MaskSource>,
    pub(crate) eos: Vec<TokenId>,
    max_waiting: usize,
    /// The sequence in each slot.
    pub(crate) running: Vec<Option<Box<Running>>>,
    waiting: VecDeque<SequenceSpec>,
    /// Sequences that ended without a forward pass.
    ended: Vec<(SequenceId, Finish)>,
    admitted: u64,
    pub(crate) stats: EngineStats,
    dead: bool,
    // Reused between polls.
    pub(crate) shares: Vec<Share>,
    pub(crate) tokens: Vec<TokenId>,
    pub(crate) rows: Vec<f32>,
    pub(crate) outputs: Vec<Output>,
    pub(crate) advances: AdvanceBatch,
    pub(crate) mask_rows: MaskBatch,
    pub(crate) processed: ProcessedRows,
}

impl RowEngine {
    /// An engine over a model whose vocabulary ends answers with `eos`. `masks` answers for the constrained sequences;
    /// so many as `max_waiting` may wait for a slot.
    ///
    /// # Errors
    /// [`ErrorKind::Configuration`]: the model has no room for a sequence.
    pub fn new(
        model: Box<dyn RowModel>,
        eos: &[TokenId],
        max_waiting: usize,
        masks: Arc<dyn MaskSource>,
    ) -> Result<Self> {
        let traits = model.traits();
        if traits.vocab_size == 0 || traits.slots == 0 || traits.context_tokens < 2 || traits.pass_tokens == 0
        {
            return Err(Error::configuration("the model has no vocabulary, no slot or no context"));
        }
        Ok(Self {
            pass_tokens: (traits.pass_tokens.max(traits.slots)) as usize,
            capabilities: Capabilities {
                max_batch_size: traits.slots,
                max_sequence_tokens: traits.context_tokens,
                vocab_size: traits.vocab_size,
                fast_forward: true,
                prompt_logprobs: true,
                allowed_logprobs: true,
                retract: true,
                host_logits: true,
                request_options: false,
                name: traits.name,
            },
            model,
            masks,
            eos: eos.to_vec(),
            max_waiting,
            running: (0..traits.slots).map(|_| None).collect(),
            waiting: VecDeque::new(),
            ended: Vec::new(),
            admitted: 0,
            stats: EngineStats::default(),
            dead: false,
            shares: Vec::new(),
            tokens: Vec::new(),
            rows: Vec::new(),
            outputs: Vec::new(),
            advances: AdvanceBatch::default(),
            mask_rows: MaskBatch::default(),
            processed: ProcessedRows::default(),
        })
    }

    /// The longest a sequence can be.
    pub(crate) fn context_end(&self) -> usize {
        self.capabilities.max_sequence_tokens as usize
    }

    /// Takes a sequence out of its slot: the one place where that happens.
    fn release(&mut self, slot: usize) -> Option<Box<Running>> {
        let running = self.running[slot].take()?;
        self.model.free(slot);
        Some(running)
    }

    /// Ends the sequence in `slot` with an error, without its pending tokens.
    pub(crate) fn fail(&mut self, slot: usize, error: Error) {
        if let Some(running) = self.release(slot) {
            self.ended.push((running.sequence.spec.id, Finish::Failed(error)));
        }
    }

    /// Starts waiting sequences, oldest first, while there are free slots.
    fn admit(&mut self, batch: &mut StepBatch) {
        for slot in &mut self.running {
            if slot.is_none()
                && let Some(spec) = self.waiting.pop_front()
            {
                batch.start(spec.id);
                self.admitted += 1;
                let sequence = Sequence::new(spec, &self.eos, 0, self.admitted);
                *slot = Some(Box::new(Running { sequence, evaluated: 0 }));
            }
        }
    }

    /// Reports what is in the outboxes and releases the sequences that are done.
    fn report(&mut self, batch: &mut StepBatch) {
        for (id, finish) in self.ended.drain(..) {
            batch.begin(id);
            batch.finish(finish);
        }
        for slot in 0..self.running.len() {
            let Some(running) = &mut self.running[slot] else { continue };
            let sequence = &mut running.sequence;
            let done = sequence.is_done();
            if sequence.outbox.is_empty() && sequence.retract_to.is_none() && !done {
                continue;
            }
            sequence.report(batch);
            if done {
                if let Some(finish) = sequence.closing.take() {
                    batch.finish(finish);
                }
                self.release(slot);
            }
        }
    }

    fn check(&self, spec: &SequenceSpec) -> Result<()> {
        let vocab_size = self.capabilities.vocab_size;
        let tokens = spec.prompt.len().saturating_add(spec.max_tokens as usize);
        let free = self.running.iter().filter(|slot| slot.is_none()).count();
        if self.dead {
            Err(Error::engine("the engine has failed"))
        } else if spec.prompt.is_empty() {
            Err(Error::invalid("prompt", "the prompt is empty"))
        } else if spec.max_tokens == 0 {
            Err(Error::invalid("max_tokens", "must be at least 1"))
        } else if spec.prompt.iter().any(|&token| token >= vocab_size) {
            Err(Error::invalid("prompt", format!("a token id is not below {vocab_size}")))
        } else if tokens > self.context_end() {
            let message = format!("{tokens} tokens do not fit the context of {}", self.context_end());
            Err(Error::new(ErrorKind::ContextLength, message))
        } else if self.waiting.len() >= self.max_waiting.saturating_add(free) {
            Err(Error::new(ErrorKind::Overloaded, "too many sequences are waiting"))
        } else {
            Ok(())
        }
    }
}

impl Engine for RowEngine {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn submit(&mut self, spec: SequenceSpec) -> Result<()> {
        self.check(&spec)?;
        self.waiting.push_back(spec);
        Ok(())
    }

    fn cancel(&mut self, id: SequenceId) {
        if let Some(index) = self.waiting.iter().position(|spec| spec.id == id) {
            self.waiting.remove(index);
            self.ended.push((id, Finish::Cancelled));
            return;
        }
        let runs = |slot: &Option<Box<Running>>| slot.as_ref().is_some_and(|one| one.sequence.spec.id == id);
        if let Some(slot) = self.running.iter().position(runs) {
            self.release(slot);
            self.ended.push((id, Finish::Cancelled));
        }
    }

    fn poll(&mut self, timeout: Duration, batch: &mut StepBatch) -> Result<()> {
        if self.dead {
            return Err(Error::engine("the engine has failed"));
        }
        self.admit(batch);
        self.advance();
        if self.running.iter().all(Option::is_none) {
            if self.ended.is_empty() {
                std::thread::sleep(timeout);
            }
        } else if let Some((mut pass, started)) = self.forward().inspect_err(|_| self.dead = true)? {
            self.sample();
            self.advance();
            pass.duration = started.elapsed();
            batch.pass(pass);
        }
        self.report(batch);
        Ok(())
    }

    fn has_work(&self) -> bool {
        !self.waiting.is_empty() || !self.ended.is_empty() || self.running.iter().any(Option::is_some)
    }

    fn stats(&self) -> EngineStats {
        let held: usize = self.running.iter().flatten().map(|running| running.evaluated).sum();
        EngineStats {
            running: self.running.iter().flatten().count() as u32,
            waiting: self.waiting.len() as u32,
            kv_cache_usage: held as f64 / (self.context_end() * self.running.len()) as f64,
            processors: self.processed.stats(),
            ..self.stats
        }
    }
}
