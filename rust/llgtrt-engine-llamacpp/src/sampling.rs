//! Samples under the masks and tells the mask source what was sampled. Runs in a poll, on the engine's thread.

use llgtrt_stepped::Output;

use crate::engine::LlamaCppEngine;
use crate::schedule::Work;

impl LlamaCppEngine {
    /// Draws tokens for every sequence of `outputs`: one, and one more as long as all behind the known ones is as
    /// guessed, what was drawn and what the grammar forced.
    pub(crate) fn sample(&mut self) {
        let outputs = std::mem::take(&mut self.outputs);
        let mut round: Vec<Output> = outputs.iter().copied().filter(|output| self.is_next(output)).collect();
        while !round.is_empty() {
            self.sequences.sample(&round, &self.cache.context);
            round.clear();
            if self.sequences.running.iter().flatten().any(|sequence| !sequence.draft.is_empty()) {
                self.advance();
                round.extend(outputs.iter().filter(|output| self.is_next(output)));
            }
        }
        self.outputs = outputs;
        self.settle_guesses();
    }

    /// Whether the next token of a sequence can be drawn from an output.
    fn is_next(&self, output: &Output) -> bool {
        let cells = &self.cache.slots[output.slot].tokens;
        self.sequences.running[output.slot].as_ref().is_some_and(|sequence| {
            sequence.closing.is_none()
                && output.position + 1 == sequence.len()
                && cells.len() > output.position
                && sequence.guessed_right(cells) == output.position + 1
        })
    }

    /// Removes from the cells what was guessed wrong, and learns from it.
    fn settle_guesses(&mut self) {
        if self.work == Work::Prompts {
            return;
        }
        let shared = self.demands.len() > 1;
        for (slot, sequence) in self.sequences.running.iter_mut().enumerate() {
            let Some(sequence) = sequence.as_deref_mut().filter(|sequence| sequence.started) else {
                continue;
            };
            if sequence.draft.is_empty() {
                if shared {
                    sequence.shared_pass(0);
                }
                continue;
            }
            let model = self.draft_model.as_mut().zip(sequence.guessed_by_model());
            let cells = &mut self.cache.slots[slot].tokens;
            let right = sequence.guessed_right(cells);
            self.cache.context.keep(slot, cells, right);
            let (evaluated, accepted) = match model {
                Some((model, without)) => {
                    let counts = sequence.settle_guesses(right, Some(&mut model.usual));
                    let work = counts.0 as f64 * self.costs.token_behind(right);
                    model.settle(work, counts.1, without);
                    counts
                }
                None => sequence.settle_guesses(right, None),
            };
            if shared {
                sequence.shared_pass(accepted);
            }
            self.stats.draft_tokens += evaluated as u64;
            self.stats.accepted_draft_tokens += accepted as u64;
        }
    }

    /// Tells the mask source about new tokens of constrained sequences and appends what the grammar forces.
    pub(crate) fn advance(&mut self) {
        self.sequences.advance(&mut self.cache);
    }
}
