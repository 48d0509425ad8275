//! Samples under the masks and tells the mask source what was sampled. Runs in a poll, on the engine's thread.

use llgtrt_core::{AdvanceState, Error, Finish, MaskSlot, MaskVerdict, Processed, StopCause};
use llgtrt_stepped::Sequence;

use crate::engine::LlamaCppEngine;
use crate::forward::Output;

impl LlamaCppEngine {
    /// Draws tokens for every sequence of `outputs`: one, and one more as long as all behind the known ones is as
    /// guessed, what was drawn and what the grammar forced.
    pub(crate) fn sample(&mut self) {
        let outputs = std::mem::take(&mut self.outputs);
        let mut round: Vec<Output> = outputs.iter().copied().filter(|output| self.is_next(output)).collect();
        while !round.is_empty() {
            self.sample_round(&round);
            round.clear();
            if self.running.iter().flatten().any(|sequence| !sequence.draft.is_empty()) {
                self.advance();
                round.extend(outputs.iter().filter(|output| self.is_next(output)));
            }
        }
        self.outputs = outputs;
        self.settle_guesses();
    }

    /// Whether the next token of a sequence can be drawn from an output.
    fn is_next(&self, output: &Output) -> bool {
        let cells = &self.slots[output.slot].tokens;
        self.running[output.slot].as_ref().is_some_and(|sequence| {
            sequence.closing.is_none()
                && output.position + 1 == sequence.len()
                && cells.len() > output.position
                && sequence.guessed_right(cells) == output.position + 1
        })
    }

    /// Draws a token for every entry of `round`.
    fn sample_round(&mut self, round: &[Output]) {
        // While they run, the masks are computed by other threads.
        self.process_rows(round);
        self.fill_masks(round);
        let end = self.context_end();
        let mut mask_row = 0;
        for &Output { slot, index, .. } in round {
            let Some(sequence) = self.running[slot].as_deref_mut() else { continue };
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
            let sampled = match (self.context.logits(index), changed) {
                (Some(logits), Ok(changed)) => sequence.sampler.sample_changed(logits, changed, mask),
                (Some(_), Err(error)) => Err(error),
                (None, _) => Err(Error::internal("llama.cpp computed no logits")),
            };
            match sampled {
                Ok(sampled) => sequence.append_sampled(sampled, &self.eos, end),
                Err(error) => sequence.closing = Some(Finish::Failed(error)),
            }
        }
    }

    /// Lets the processors of the round's sequences change copies of their rows.
    fn process_rows(&mut self, round: &[Output]) {
        self.processed.clear();
        for output in round {
            let has = |sequence: &Sequence| sequence.spec.processor.is_some();
            if self.running[output.slot].as_deref().is_some_and(has)
                && let Some(logits) = self.context.logits(output.index)
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

    /// Removes from the cells what was guessed wrong, and learns from it.
    fn settle_guesses(&mut self) {
        for (slot, sequence) in self.running.iter_mut().enumerate() {
            let Some(sequence) = sequence.as_deref_mut().filter(|sequence| !sequence.draft.is_empty()) else {
                continue;
            };
            let cells = &mut self.slots[slot].tokens;
            let right = sequence.guessed_right(cells);
            self.context.keep(slot, cells, right);
            let (evaluated, accepted) = sequence.settle_guesses(right);
            self.stats.draft_tokens += evaluated as u64;
            self.stats.accepted_draft_tokens += accepted as u64;
        }
    }

    /// Asks for one row per constrained sequence of `round`, in its order.
    fn fill_masks(&mut self, round: &[Output]) {
        let constrained = |output: &Output| {
            let sequence = self.running[output.slot].as_deref()?;
            sequence.spec.constrained.then(|| mask_slot(sequence))
        };
        let slots: Vec<MaskSlot<'_>> = round.iter().filter_map(constrained).collect();
        if !slots.is_empty() {
            self.mask_rows.reset(slots.len(), self.capabilities.vocab_size as usize);
            self.masks.fill(&slots, &mut self.mask_rows);
        }
    }

    /// Tells the mask source about new tokens of constrained sequences and appends what the grammar forces.
    pub(crate) fn advance(&mut self) {
        let unseen = |sequence: &Sequence| sequence.unseen;
        let slots: Vec<MaskSlot<'_>> =
            self.running.iter().flatten().filter(|s| unseen(s)).map(|s| mask_slot(s)).collect();
        if slots.is_empty() {
            return;
        }
        self.advances.clear();
        self.masks.advance(&slots, true, &mut self.advances);
        drop(slots);

        let end = self.context_end();
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
            sequence.follow(forced, state, &self.eos, end);
            if matches!(state, AdvanceState::Retract { .. }) {
                // The logits after the last token that stays are needed again.
                self.context.keep(slot, &mut self.slots[slot].tokens, sequence.len() - 1);
            }
            sequence.release(self.slots[slot].tokens.len());
        }
    }
}

fn mask_slot(sequence: &Sequence) -> MaskSlot<'_> {
    MaskSlot { sequence: sequence.spec.id, tokens: &sequence.generated }
}
