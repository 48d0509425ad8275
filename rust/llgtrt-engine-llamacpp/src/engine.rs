//! The engine: accepts sequences, and steps all that hold a slot with one forward pass per poll.
//!
//! One thread makes every call. A poll goes: admit waiting sequences (`admit`), tell the mask source what is
//! new, evaluate one batch (`forward`), sample under the masks (`sampling`), report. It must not wait for
//! anything but llama.cpp and the masks.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use llgtrt_core::{
    AdvanceBatch, Capabilities, Engine, EngineStats, Error, ErrorKind, Finish, KvEventQueue, MaskBatch,
    MaskSource, ProcessedRows, Result, SequenceId, SequenceSpec, StepBatch, TokenId,
};

use llgtrt_stepped::{PassCost, Sequence};

use crate::cells::SlotBlocks;
use crate::config::Speculation;
use crate::context::Context;
use crate::forward::Output;
use crate::model::LlamaCppModel;
use crate::schedule::Demand;
use crate::slot::Slot;
use crate::turns::Turns;

/// The embedded engine. See [`Engine`] for the contract.
pub struct LlamaCppEngine {
    pub(crate) context: Context,
    pub(crate) turns: Arc<Turns>,
    pub(crate) capabilities: Capabilities,
    pub(crate) masks: Arc<dyn MaskSource>,
    pub(crate) eos: Vec<TokenId>,
    pub(crate) reuse_prefix: bool,
    pub(crate) prefill_chunk: usize,
    /// Whether idle slots may take part in a pass.
    pub(crate) bridging: bool,
    /// What decides whether guesses at the next tokens take part in a pass; `None` if they never do.
    pub(crate) pass_cost: Option<PassCost>,
    max_waiting: usize,
    pub(crate) slots: Vec<Slot>,
    /// What routers are told of `slots`; `None`: nobody asks.
    blocks: Option<SlotBlocks>,
    /// The sequence in each slot.
    pub(crate) running: Vec<Option<Box<Sequence>>>,
    pub(crate) waiting: VecDeque<SequenceSpec>,
    /// Sequences that ended without a forward pass.
    pub(crate) ended: Vec<(SequenceId, Finish)>,
    /// Counts admissions and releases.
    pub(crate) clock: u64,
    pub(crate) stats: EngineStats,
    dead: bool,
    // Reused between polls.
    pub(crate) demands: Vec<Demand>,
    pub(crate) shares: Vec<usize>,
    pub(crate) outputs: Vec<Output>,
    /// Idle slots that take part in the current pass.
    pub(crate) bridged: Vec<usize>,
    pub(crate) usable: Vec<usize>,
    pub(crate) advances: AdvanceBatch,
    pub(crate) mask_rows: MaskBatch,
    pub(crate) processed: ProcessedRows,
}

impl LlamaCppEngine {
    /// An engine over a loaded model. `masks` answers for the constrained sequences.
    ///
    /// # Errors
    /// [`ErrorKind::Configuration`]: llama.cpp cannot run the model as configured.
    pub fn new(model: &LlamaCppModel, masks: Arc<dyn MaskSource>) -> Result<Self> {
        let config = &model.config;
        let mut context = Context::new(&model.weights, config)?;
        let slots = config.max_batch_size as usize;
        let capabilities = Capabilities {
            max_batch_size: config.max_batch_size,
            max_sequence_tokens: context.slot_tokens(),
            vocab_size: context.vocab_size() as u32,
            fast_forward: true,
            prompt_logprobs: true,
            allowed_logprobs: true,
            host_logits: true,
            retract: true,
            request_options: false,
            name: "llamacpp",
        };
        let bridging = context.can_take_back();
        // Wrong guesses have to leave the cache.
        let guessing = bridging
            && match config.speculation {
                Speculation::On => true,
                Speculation::Off => false,
                Speculation::Auto => context.tokens_are_independent(),
            };
        Ok(Self {
            context,
            turns: Arc::clone(&model.turns),
            bridging,
            pass_cost: guessing.then(PassCost::default),
            capabilities,
            masks,
            eos: model.tokenizer().vocabulary().eos().to_vec(),
            reuse_prefix: config.reuse_prefix,
            prefill_chunk: config.prefill_chunk_tokens as usize,
            max_waiting: config.max_waiting as usize,
            slots: (0..slots).map(|_| Slot::default()).collect(),
            blocks: None,
            running: (0..slots).map(|_| None).collect(),
            waiting: VecDeque::new(),
            ended: Vec::new(),
            clock: 0,
            stats: EngineStats::default(),
            dead: false,
            demands: Vec::with_capacity(slots),
            shares: Vec::with_capacity(slots),
            outputs: Vec::with_capacity(slots),
            bridged: Vec::with_capacity(slots),
            usable: Vec::with_capacity(slots),
            advances: AdvanceBatch::default(),
            mask_rows: MaskBatch::default(),
            processed: ProcessedRows::default(),
        })
    }

    /// Tells `queue` from now on what the slots hold. Without reuse of prefixes there is nothing to tell.
    #[must_use]
    pub fn with_kv_events(mut self, queue: Arc<KvEventQueue>) -> Self {
        self.blocks = self.reuse_prefix.then(|| SlotBlocks::new(self.slots.len(), queue));
        self
    }

    fn tell_blocks(&mut self) {
        let Some(blocks) = &mut self.blocks else { return };
        for (index, slot) in self.slots.iter_mut().enumerate() {
            blocks.update(index, &mut slot.tokens);
        }
        blocks.publish();
    }

    /// The next tick of the engine's own clock.
    pub(crate) fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// The longest a sequence can be.
    pub(crate) fn context_end(&self) -> usize {
        self.capabilities.max_sequence_tokens as usize
    }

    /// Takes a sequence out of its slot: the one place where that happens. Its cells stay for reuse.
    pub(crate) fn release(&mut self, slot: usize) -> Option<Box<Sequence>> {
        let sequence = self.running[slot].take()?;
        let released = self.tick();
        let cells = &mut self.slots[slot];
        (cells.busy, cells.released) = (false, released);
        Some(sequence)
    }

    /// Ends the sequence in `slot` with an error, without its pending tokens.
    pub(crate) fn fail(&mut self, slot: usize, error: Error) {
        if let Some(sequence) = self.release(slot) {
            self.ended.push((sequence.spec.id, Finish::Failed(error)));
        }
    }

    /// Reports what is in the outboxes and releases the sequences that are done.
    fn report(&mut self, batch: &mut StepBatch) {
        for (id, finish) in self.ended.drain(..) {
            batch.begin(id);
            batch.finish(finish);
        }
        for slot in 0..self.running.len() {
            let Some(sequence) = &mut self.running[slot] else { continue };
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
        } else if self.waiting.len() >= self.max_waiting.saturating_add(self.free_slots()) {
            Err(Error::new(ErrorKind::Overloaded, "too many sequences are waiting"))
        } else {
            Ok(())
        }
    }

    fn free_slots(&self) -> usize {
        self.slots.iter().filter(|slot| !slot.busy).count()
    }
}

impl Engine for LlamaCppEngine {
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
        let runs = |sequence: &Option<Box<Sequence>>| sequence.as_ref().is_some_and(|s| s.spec.id == id);
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
        self.turns.set_generating(self.running.iter().any(Option::is_some));
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
        self.tell_blocks();
        self.turns.set_generating(self.has_work());
        Ok(())
    }

    fn has_work(&self) -> bool {
        !self.waiting.is_empty() || !self.ended.is_empty() || self.running.iter().any(Option::is_some)
    }

    fn stats(&self) -> EngineStats {
        let busy = self.slots.iter().filter(|slot| slot.busy);
        let cells: usize = busy.map(|slot| slot.tokens.len()).sum();
        EngineStats {
            running: self.running.iter().flatten().count() as u32,
            waiting: self.waiting.len() as u32,
            kv_cache_usage: cells as f64 / (self.context_end() * self.slots.len()) as f64,
            processors: self.processed.stats(),
            ..self.stats
        }
    }
}
