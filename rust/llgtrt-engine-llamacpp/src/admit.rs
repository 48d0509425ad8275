//! Admission: gives waiting sequences a slot, starting from cells that are already there. Runs in a poll, on
//! the engine's thread.

use std::cmp::Reverse;
use std::sync::Arc;

use llgtrt_core::{SequenceSpec, StepBatch};
use llgtrt_stepped::KvCache;

use crate::engine::LlamaCppEngine;
use crate::slot::{Placement, Slot, common_prefix, place};

/// Waiting sequences looked at in one poll.
const LOOK_AHEAD: usize = 32;

/// A sequence waits for another one's prompt if that saves it this many tokens.
const MIN_SHARED: usize = 64;

impl LlamaCppEngine {
    /// Starts waiting sequences, oldest first, while there are free slots. One whose prompt is just being
    /// evaluated for another sequence waits for that, and lets others pass.
    pub(crate) fn admit(&mut self, batch: &mut StepBatch) {
        let mut index = 0;
        while index < self.sequences.waiting.len().min(LOOK_AHEAD)
            && self.cache.slots.iter().any(|slot| !slot.busy)
        {
            match self.placement(index) {
                Some(placement) => {
                    if let Some(spec) = self.sequences.waiting.remove(index) {
                        batch.start(spec.id);
                        self.start(spec, placement);
                    }
                }
                None => index += 1,
            }
        }
    }

    /// Where the waiting sequence `index` goes, or `None` if it should wait for a prompt in evaluation.
    fn placement(&mut self, index: usize) -> Option<Placement> {
        let spec = &self.sequences.waiting[index];
        // The last token is always evaluated: its logits are needed.
        let most = spec.prompt.len() - 1;
        self.usable.clear();
        for (index, (slot, sequence)) in self.cache.slots.iter().zip(&self.sequences.running).enumerate() {
            let choice = sequence.as_ref().is_some_and(|s| Arc::ptr_eq(&s.spec.prompt, &spec.prompt));
            let usable = if spec.prompt_logprobs || !(self.reuse_prefix || choice) {
                0
            } else {
                self.cache.kept(index, common_prefix(&slot.tokens, &spec.prompt).min(most))
            };
            self.usable.push(usable);
        }
        let best = self.usable.iter().copied().max().unwrap_or(0);
        for (slot, sequence) in self.sequences.running.iter().enumerate() {
            let Some(other) = sequence.as_ref().filter(|other| !other.started) else { continue };
            if spec.prompt_logprobs {
                break;
            }
            let (shared, least) = if Arc::ptr_eq(&other.spec.prompt, &spec.prompt) {
                (most, 1)
            } else if self.reuse_prefix {
                (common_prefix(&other.spec.prompt, &spec.prompt).min(most), MIN_SHARED)
            } else {
                continue;
            };
            if shared > self.cache.slots[slot].tokens.len()
                && shared >= best + least
                && self.cache.save_at(slot, shared)
            {
                return None;
            }
        }
        place(&self.cache.slots, &self.usable, spec.prompt.len(), self.reuse_prefix, self.costs)
    }

    fn start(&mut self, spec: SequenceSpec, placement: Placement) {
        let parting = self.parting(&spec);
        let reused = self.prepare_slot(placement);
        if parting >= reused + MIN_SHARED {
            self.cache.save_at(placement.slot, parting);
        }
        if self.reuse_prefix && !spec.prompt_logprobs {
            self.cache.save_before_end(placement.slot, spec.prompt.len());
        }
        self.stats.prefix_cache_queries += spec.prompt.len() as u64;
        self.stats.prefix_cache_hits += reused as u64;
        let age = self.cache.tick();
        self.cache.slots[placement.slot].busy = true;
        self.sequences.start(placement.slot, spec, reused, age);
        if let (Some(model), Some(sequence)) =
            (&self.draft_model, &mut self.sequences.running[placement.slot])
        {
            sequence.expect_of_model(&model.usual);
        }
    }

    /// Where a prompt parts from what the slots hold: others may begin as both do.
    fn parting(&self, spec: &SequenceSpec) -> usize {
        if !self.reuse_prefix || spec.prompt_logprobs {
            return 0;
        }
        let most = spec.prompt.len() - 1;
        let shared = |slot: &Slot| common_prefix(&slot.tokens, &spec.prompt).min(most);
        self.cache.slots.iter().map(shared).max().unwrap_or(0)
    }

    /// Brings the reused cells into the slot and removes all others. Answers how many there are.
    fn prepare_slot(&mut self, Placement { slot, source, reused, refuge }: Placement) -> usize {
        if let Some(refuge) = refuge {
            self.copy(slot, refuge);
            self.cache.slots[refuge].released = self.cache.slots[slot].released;
        }
        if source != slot {
            self.copy(source, slot);
            let source = &mut self.cache.slots[source];
            if !source.busy && source.tokens.len() == reused {
                // All of it is in the slot as well.
                source.released = 0;
            }
        }
        self.cache.slots[slot].save_at.clear();
        self.cache.keep(slot, reused);
        self.cache.slots[slot].tokens.len()
    }

    /// Replaces what slot `to` holds by a copy of slot `from`; by nothing, if that fails.
    fn copy(&mut self, from: usize, to: usize) {
        self.cache.copy(from, to);
        if let Some(draft) = &mut self.draft_model {
            draft.copy(from, to);
        }
    }

    /// The running slot that was admitted last.
    pub(crate) fn youngest(&self) -> Option<usize> {
        let ages =
            self.sequences.running.iter().enumerate().filter_map(|(slot, s)| Some((slot, s.as_ref()?.age)));
        ages.min_by_key(|&(_, age)| Reverse(age)).map(|(slot, _)| slot)
    }
}
