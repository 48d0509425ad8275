//! The sequences of an engine that we step, from submission to their end: who waits, who holds a slot, how tokens are
//! drawn under the masks. What a slot holds of a sequence is the engine's ([`KvCache`]).

use std::collections::VecDeque;
use std::sync::Arc;

use llgtrt_core::{
    AdvanceBatch, AdvanceState, Capabilities, Error, ErrorKind, Finish, MaskBatch, MaskSlot, MaskSource,
    MaskVerdict, Processed, ProcessedRows, ProcessorStats, Result, SequenceId, SequenceSpec, StepBatch,
    StopCause, TokenId,
};

use crate::drawers::Drawers;
use crate::sequence::Sequence;

/// What the slots of an engine hold of their sequences.
pub trait KvCache {
    /// Tokens of the sequence in `slot` that were evaluated.
    fn evaluated(&self, slot: usize) -> usize;

    /// Forgets all but the first `count` of them.
    fn keep(&mut self, slot: usize, count: usize);

    /// The sequence in `slot` is over.
    fn free(&mut self, slot: usize);
}

/// The rows of logits of a forward pass.
pub trait Rows {
    /// The row that an [`Output::index`] names; `None` if the pass did not give it.
    fn logits(&self, index: usize) -> Option<&[f32]>;
}

/// A row of logits of a forward pass.
#[derive(Debug, Clone, Copy)]
pub struct Output {
    /// The slot of its sequence.
    pub slot: usize,
    /// Position of the token behind which the row is.
    pub position: usize,
    /// Names the row to the engine.
    pub index: usize,
}

/// A token to be drawn.
struct Draw<'a> {
    sequence: &'a mut Sequence,
    logits: &'a [f32],
    /// What a processor made of them.
    changed: Option<&'a [f32]>,
    mask: Option<&'a [u32]>,
}

impl Draw<'_> {
    fn run(&mut self, eos: &[TokenId], context: usize) {
        match self.sequence.sampler.sample_changed(self.logits, self.changed, self.mask) {
            Ok(sampled) => self.sequence.append_sampled(sampled, eos, context),
            Err(error) => self.sequence.closing = Some(Finish::Failed(error)),
        }
    }
}

/// The sequences of an engine.
pub struct Sequences {
    /// The sequence in each slot.
    pub running: Vec<Option<Box<Sequence>>>,
    /// Those without a slot, oldest first.
    pub waiting: VecDeque<SequenceSpec>,
    /// Sequences that ended without a forward pass.
    ended: Vec<(SequenceId, Finish)>,
    masks: Arc<dyn MaskSource>,
    eos: Vec<TokenId>,
    vocab_size: u32,
    context: usize,
    max_waiting: usize,
    drawers: Drawers,
    /// Of which outputs the masks in `mask_rows` were made ahead: whose, and behind how many generated tokens.
    ahead: Vec<Option<(SequenceId, usize)>>,
    // Reused between polls.
    advances: AdvanceBatch,
    mask_rows: MaskBatch,
    processed: ProcessedRows,
}

impl Sequences {
    /// None yet, of an engine whose vocabulary ends answers with `eos`. `masks` answers for the constrained ones; so
    /// many as `max_waiting` may wait for a slot. As many as `threads` draw tokens, the one that polls included.
    pub fn new(
        capabilities: &Capabilities,
        eos: &[TokenId],
        max_waiting: usize,
        threads: usize,
        masks: Arc<dyn MaskSource>,
    ) -> Self {
        Self {
            running: (0..capabilities.max_batch_size).map(|_| None).collect(),
            waiting: VecDeque::new(),
            ended: Vec::new(),
            masks,
            eos: eos.to_vec(),
            vocab_size: capabilities.vocab_size,
            context: capabilities.max_sequence_tokens as usize,
            max_waiting,
            drawers: Drawers::new(threads),
            ahead: Vec::new(),
            advances: AdvanceBatch::default(),
            mask_rows: MaskBatch::default(),
            processed: ProcessedRows::default(),
        }
    }

    /// The longest a sequence can be, in tokens.
    pub fn context(&self) -> usize {
        self.context
    }

    /// Takes a sequence into the queue.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidRequest`], [`ErrorKind::ContextLength`], and [`ErrorKind::Overloaded`] if the queue is full.
    pub fn submit(&mut self, spec: SequenceSpec) -> Result<()> {
        let (vocab_size, context) = (self.vocab_size, self.context);
        let tokens = spec.prompt.len().saturating_add(spec.max_tokens as usize);
        let free = self.running.iter().filter(|slot| slot.is_none()).count();
        if spec.prompt.is_empty() {
            return Err(Error::invalid("prompt", "the prompt is empty"));
        }
        if spec.max_tokens == 0 {
            return Err(Error::invalid("max_tokens", "must be at least 1"));
        }
        if spec.prompt.iter().any(|&token| token >= vocab_size) {
            return Err(Error::invalid("prompt", format!("a token id is not below {vocab_size}")));
        }
        if tokens > context {
            let message = format!("{tokens} tokens do not fit the context of {context}");
            return Err(Error::new(ErrorKind::ContextLength, message));
        }
        if self.waiting.len() >= self.max_waiting.saturating_add(free) {
            return Err(Error::new(ErrorKind::Overloaded, "too many sequences are waiting"));
        }
        self.waiting.push_back(spec);
        Ok(())
    }

    /// Gives a sequence a free slot that holds the first `cached` tokens of its prompt; `age` is the order of admission.
    pub fn start(&mut self, slot: usize, spec: SequenceSpec, cached: usize, age: u64) {
        self.running[slot] = Some(Box::new(Sequence::new(spec, &self.eos, cached, age)));
    }

    /// Cancels a sequence, if it is there.
    pub fn cancel(&mut self, id: SequenceId, cache: &mut impl KvCache) {
        let runs = |sequence: &Option<Box<Sequence>>| sequence.as_ref().is_some_and(|s| s.spec.id == id);
        if let Some(index) = self.waiting.iter().position(|spec| spec.id == id) {
            self.waiting.remove(index);
            self.ended.push((id, Finish::Cancelled));
        } else if let Some(slot) = self.running.iter().position(runs) {
            self.end(slot, Finish::Cancelled, cache);
        }
    }

    /// Ends the sequence in `slot`, if there is one, without its pending tokens.
    pub fn end(&mut self, slot: usize, finish: Finish, cache: &mut impl KvCache) {
        if let Some(sequence) = self.running[slot].take() {
            cache.free(slot);
            self.ended.push((sequence.spec.id, finish));
        }
    }

    /// Reports what is in the outboxes; the sequences that are done give up their slots.
    pub fn report(&mut self, batch: &mut StepBatch, cache: &mut impl KvCache) {
        for (id, finish) in self.ended.drain(..) {
            batch.begin(id);
            batch.finish(finish);
        }
        for (slot, running) in self.running.iter_mut().enumerate() {
            let Some(sequence) = running else { continue };
            let done = sequence.is_done();
            if sequence.outbox.is_empty() && sequence.retract_to.is_none() && !done {
                continue;
            }
            sequence.report(batch);
            if done {
                if let Some(finish) = sequence.closing.take() {
                    batch.finish(finish);
                }
                *running = None;
                cache.free(slot);
            }
        }
    }

    /// Whether no sequence holds a slot.
    pub fn is_idle(&self) -> bool {
        self.running.iter().all(Option::is_none)
    }

    /// Whether anything is left to do or to report.
    pub fn has_work(&self) -> bool {
        !self.waiting.is_empty() || self.has_ended() || !self.is_idle()
    }

    /// Whether sequences ended of which nobody was told.
    pub fn has_ended(&self) -> bool {
        !self.ended.is_empty()
    }

    /// How many hold a slot.
    pub fn count_running(&self) -> u32 {
        self.running.iter().flatten().count() as u32
    }

    /// What the processors of logits have cost so far.
    pub fn processors(&self) -> ProcessorStats {
        self.processed.stats()
    }

    /// Draws a token for every output of `round`, at most one of each sequence.
    pub fn sample(&mut self, round: &[Output], rows: &impl Rows) {
        // While they run, the masks are computed by other threads.
        self.process_rows(round, rows);
        self.fill_masks(round);
        let mut running: Vec<Option<&mut Sequence>> =
            self.running.iter_mut().map(Option::as_deref_mut).collect();
        let mut draws = Vec::with_capacity(round.len());
        let mut mask_row = 0;
        for &Output { slot, index, .. } in round {
            let Some(sequence) = running[slot].take() else { continue };
            let mut mask = None;
            if sequence.spec.constrained {
                let row = mask_row;
                mask_row += 1;
                match self.mask_rows.verdict(row) {
                    MaskVerdict::Mask => mask = Some(self.mask_rows.row(row)),
                    MaskVerdict::Stop => {
                        sequence.closing = Some(Finish::Stop(StopCause::GrammarComplete));
                        continue;
                    }
                    MaskVerdict::Failed(error) => {
                        sequence.closing = Some(Finish::Failed(error.clone()));
                        continue;
                    }
                }
            }
            let changed = sequence.spec.processor.as_ref().and_then(|_| self.processed.get(slot)).transpose();
            match (rows.logits(index), changed) {
                (Some(logits), Ok(changed)) => draws.push(Draw { sequence, logits, changed, mask }),
                (Some(_), Err(error)) => sequence.closing = Some(Finish::Failed(error)),
                (None, _) => {
                    let error = Error::internal("the forward pass gave no logits");
                    sequence.closing = Some(Finish::Failed(error));
                }
            }
        }
        let (eos, context) = (&self.eos, self.context);
        self.drawers.each(&mut draws, |draw| draw.run(eos, context));
    }

    /// Lets the processors of the round's sequences change copies of their rows.
    fn process_rows(&mut self, round: &[Output], rows: &impl Rows) {
        self.processed.clear();
        for output in round {
            let has = |sequence: &Sequence| sequence.spec.processor.is_some();
            if self.running[output.slot].as_deref().is_some_and(has)
                && let Some(logits) = rows.logits(output.index)
            {
                self.processed.push(output.slot, logits);
            }
        }
        let running = &self.running;
        self.processed.run(|slot| {
            let sequence = running[slot].as_deref()?;
            Some(Processed {
                processor: sequence.spec.processor.as_deref()?,
                prompt: &sequence.spec.prompt,
                generated: &sequence.generated,
            })
        });
    }

    /// Whether of some output's row only the logits that its mask allows will be looked at, and [`Self::masks_ahead`] can be
    /// asked: for one output of each sequence, behind its last token.
    pub fn needs_part_of_rows(&self, outputs: &[Output]) -> bool {
        let is_next = |output: &Output| {
            let sequence = self.running[output.slot].as_deref();
            sequence.is_some_and(|sequence| output.position + 1 == sequence.len())
        };
        outputs.iter().all(is_next) && outputs.iter().any(|output| self.needs_allowed_only(output))
    }

    fn needs_allowed_only(&self, output: &Output) -> bool {
        self.running[output.slot].as_deref().is_some_and(|sequence| {
            sequence.spec.constrained
                && sequence.spec.processor.is_none()
                && !sequence.spec.sampling.removed_mass
                && !sequence.wants_logprobs()
                && sequence.closing.is_none()
        })
    }

    /// The masks under which the next tokens of the outputs' sequences will be drawn, before their rows are there. The
    /// following [`sample`](Self::sample), if it is of these outputs, does not ask for them again. `None`: all of the row will
    /// be looked at, or the sequence ends there.
    pub fn masks_ahead(&mut self, outputs: &[Output]) -> impl Iterator<Item = Option<&[u32]>> {
        self.fill_masks(outputs);
        self.ahead.extend(outputs.iter().map(|output| whose(&self.running, output)));
        let this = &*self;
        let mut next_row = 0;
        outputs.iter().map(move |output| {
            if !is_constrained(&this.running, output) {
                return None;
            }
            let row = next_row;
            next_row += 1;
            let is_mask = matches!(this.mask_rows.verdict(row), MaskVerdict::Mask);
            (is_mask && this.needs_allowed_only(output)).then(|| this.mask_rows.row(row))
        })
    }

    /// Asks for one mask per constrained sequence of `round`, in its order.
    fn fill_masks(&mut self, round: &[Output]) {
        let running = &self.running;
        let is_there = self.ahead.iter().copied().eq(round.iter().map(|output| whose(running, output)));
        self.ahead.clear();
        if is_there {
            return;
        }
        let constrained = round.iter().filter(|output| is_constrained(running, output));
        let slots: Vec<MaskSlot<'_>> =
            constrained.filter_map(|output| running[output.slot].as_deref().map(mask_slot)).collect();
        if !slots.is_empty() {
            self.mask_rows.reset(slots.len(), self.vocab_size as usize);
            self.masks.fill(&slots, &mut self.mask_rows);
        }
    }

    /// Tells the mask source about new tokens of constrained sequences and appends what the grammar forces.
    pub fn advance(&mut self, cache: &mut impl KvCache) {
        let unseen = |sequence: &Sequence| sequence.unseen;
        let slots: Vec<MaskSlot<'_>> =
            self.running.iter().flatten().filter(|s| unseen(s)).map(|s| mask_slot(s)).collect();
        if slots.is_empty() {
            return;
        }
        self.advances.clear();
        self.masks.advance(&slots, true, &mut self.advances);
        drop(slots);

        let mut answer = 0;
        for (slot, sequence) in self.running.iter_mut().enumerate() {
            let Some(sequence) = sequence.as_deref_mut().filter(|s| unseen(s)) else { continue };
            if answer >= self.advances.len() {
                sequence.unseen = false;
                sequence.closing = Some(Finish::Failed(Error::internal("the mask source gave no answer")));
                continue;
            }
            let (forced, state) = self.advances.get(answer);
            sequence.certain = self.advances.certain(answer);
            answer += 1;
            sequence.follow(forced, state, &self.eos, self.context);
            if matches!(state, AdvanceState::Retract { .. }) {
                // The logits after the last token that stays are needed again.
                cache.keep(slot, sequence.len() - 1);
            }
            sequence.release(cache.evaluated(slot));
        }
    }
}

/// Whose output it is, and how many tokens were generated.
fn whose(running: &[Option<Box<Sequence>>], output: &Output) -> Option<(SequenceId, usize)> {
    running[output.slot].as_deref().map(|sequence| (sequence.spec.id, sequence.generated.len()))
}

fn is_constrained(running: &[Option<Box<Sequence>>], output: &Output) -> bool {
    running[output.slot].as_deref().is_some_and(|sequence| sequence.spec.constrained)
}

fn mask_slot(sequence: &Sequence) -> MaskSlot<'_> {
    MaskSlot { sequence: sequence.spec.id, tokens: &sequence.generated }
}
