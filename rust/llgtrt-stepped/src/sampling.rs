//! Samples under the masks and tells the mask source what was sampled. Runs in a poll.

use llgtrt_core::{AdvanceState, Error, Finish, MaskSlot, MaskVerdict, Processed, StopCause};

use crate::engine::{RowEngine, Running};
use crate::forward::Output;
use crate::sequence::Sequence;

impl RowEngine {
    /// Draws a token from every row of `outputs`.
    pub(crate) fn sample(&mut self) {
        let outputs = std::mem::take(&mut self.outputs);
        // While they run, the masks are computed by other threads.
        self.process_rows(&outputs);
        self.fill_masks(&outputs);
        let (end, width) = (self.context_end(), self.capabilities.vocab_size as usize);
        let mut masks = 0;
        for &Output { slot, row } in &outputs {
            let Some(Running { sequence, .. }) = self.running[slot].as_deref_mut() else { continue };
            let mut mask = None;
            if sequence.spec.constrained {
                let index = masks;
                masks += 1;
                match self.mask_rows.verdict(index) {
                    MaskVerdict::Mask => mask = Some(self.mask_rows.row(index)),
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
            let logits = &self.rows[row * width..(row + 1) * width];
            let changed = sequence.spec.processor.as_ref().and_then(|_| self.processed.get(slot)).transpose();
            let sampled = changed.and_then(|changed| sequence.sampler.sample_changed(logits, changed, mask));
            match sampled {
                Ok(sampled) => sequence.append_sampled(sampled, &self.eos, end),
                Err(error) => sequence.closing = Some(Finish::Failed(error)),
            }
        }
        self.outputs = outputs;
    }

    /// Lets the processors of the sequences change copies of their rows.
    fn process_rows(&mut self, outputs: &[Output]) {
        self.processed.clear();
        let (running, width) = (&self.running, self.capabilities.vocab_size as usize);
        let sequence = |slot: usize| running[slot].as_deref().map(|running| &running.sequence);
        for &Output { slot, row } in outputs {
            if sequence(slot).is_some_and(|sequence| sequence.spec.processor.is_some()) {
                self.processed.push(slot, &self.rows[row * width..(row + 1) * width]);
            }
        }
        self.processed.run(|slot| {
            let sequence = sequence(slot)?;
            Some(Processed {
                processor: sequence.spec.processor.as_deref()?,
                prompt: &sequence.spec.prompt,
                generated: &sequence.generated,
            })
        });
    }

    /// Asks for one row per constrained sequence of `outputs`, in its order.
    fn fill_masks(&mut self, outputs: &[Output]) {
        let constrained = |output: &Output| {
            let sequence = &self.running[output.slot].as_deref()?.sequence;
            sequence.spec.constrained.then(|| mask_slot(sequence))
        };
        let slots: Vec<MaskSlot<'_>> = outputs.iter().filter_map(constrained).collect();
        if !slots.is_empty() {
            self.mask_rows.reset(slots.len(), self.capabilities.vocab_size as usize);
            self.masks.fill(&slots, &mut self.mask_rows);
        }
    }

    /// Tells the mask source about new tokens of constrained sequences and appends what the grammar forces.
    pub(crate) fn advance(&mut self) {
        let unseen = self.running.iter().flatten().filter(|running| running.sequence.unseen);
        let slots: Vec<MaskSlot<'_>> = unseen.map(|running| mask_slot(&running.sequence)).collect();
        if slots.is_empty() {
            return;
        }
        self.advances.clear();
        self.masks.advance(&slots, true, &mut self.advances);
        drop(slots);

        let end = self.context_end();
        let unseen = self.running.iter_mut().flatten().filter(|running| running.sequence.unseen);
        for (answer, running) in unseen.enumerate() {
            let sequence = &mut running.sequence;
            if answer >= self.advances.len() {
                sequence.unseen = false;
                sequence.closing = Some(Finish::Failed(Error::internal("the mask source gave no answer")));
                continue;
            }
            let (forced, state) = self.advances.get(answer);
            sequence.certain = self.advances.certain(answer);
            sequence.follow(forced, state, &self.eos, end);
            if matches!(state, AdvanceState::Retract { .. }) {
                // The logits after the last token that stays are needed again.
                running.evaluated = running.evaluated.min(sequence.len() - 1);
            }
            sequence.release(running.evaluated);
        }
    }
}

fn mask_slot(sequence: &Sequence) -> MaskSlot<'_> {
    MaskSlot { sequence: sequence.spec.id, tokens: &sequence.generated }
}
