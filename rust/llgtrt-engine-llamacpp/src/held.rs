//! llama.cpp's context and what its slots hold. Owned by the engine, on its thread.
//!
//! The state of a recurrent model is that behind its last token: none can be taken back out of it. So it is saved at places where
//! another prompt may go on: where two prompts part, and shortly before the end of one. A slot goes back to the last such place.

use std::cmp::Reverse;
use std::sync::Arc;

use llgtrt_stepped::KvCache;

use crate::context::Context;
use crate::paused::PausedPasses;
use crate::slot::Slot;

/// Saved states at most, for each slot there is; those that were used longest ago go. A slot's own state has as many bytes as one.
const STATES_PER_SLOT: usize = 2;

/// Places of a prompt where its state is to be saved, at most: each costs a pass more.
const PLACES_PER_SLOT: usize = 4;

/// A prompt of so many tokens is worth a pass more, which ends where its state is saved.
const LONG_PROMPT: usize = 256;

/// So many tokens before the end of a prompt: what a chat template writes last it leaves out where the conversation goes on.
const BEFORE_END: usize = 16;

/// A state of a recurrent model behind so many tokens of a slot.
#[derive(Debug, Clone)]
pub(crate) struct SavedState {
    tokens: usize,
    /// When it was saved, or last used; larger is later.
    used: u64,
    bytes: Arc<Vec<u8>>,
}

/// See the module.
pub(crate) struct Held {
    /// Passes over prompts that sequences which generate need not wait for. Goes before the context.
    pub(crate) paused: Option<PausedPasses>,
    pub(crate) context: Context,
    pub(crate) slots: Vec<Slot>,
    /// Whether tokens can be taken back.
    takes_back: bool,
    /// Counts admissions, releases, and uses of saved states.
    clock: u64,
}

impl Held {
    pub(crate) fn new(context: Context, paused: Option<PausedPasses>, slots: usize) -> Self {
        let takes_back = context.can_take_back();
        Self { paused, context, slots: (0..slots).map(|_| Slot::default()).collect(), takes_back, clock: 0 }
    }

    /// The next tick of the engine's own clock.
    pub(crate) fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// How many of the first `count` tokens of a slot can be kept where the others are taken back.
    pub(crate) fn kept(&self, slot: usize, count: usize) -> usize {
        let held = &self.slots[slot];
        if self.takes_back || count >= held.tokens.len() {
            return count.min(held.tokens.len());
        }
        held.saved.iter().map(|state| state.tokens).filter(|&tokens| tokens <= count).max().unwrap_or(0)
    }

    /// Whether the first `tokens` tokens of a prompt that a slot evaluates can be kept later: where none can be taken back, its state is
    /// saved when it holds so many.
    pub(crate) fn save_at(&mut self, slot: usize, tokens: usize) -> bool {
        let held = &mut self.slots[slot];
        if self.takes_back || held.save_at.contains(&tokens) {
            return true;
        }
        let can = tokens > held.tokens.len() && held.save_at.len() < PLACES_PER_SLOT;
        if can {
            held.save_at.push(tokens);
            held.save_at.sort_unstable_by_key(|&tokens| Reverse(tokens));
        }
        can
    }

    /// Lets the state be saved where a conversation may part from this prompt of so many tokens.
    pub(crate) fn save_before_end(&mut self, slot: usize, prompt: usize) {
        if prompt >= LONG_PROMPT {
            self.save_at(slot, prompt - BEFORE_END);
        }
    }

    /// Saves the state of a slot if this is where that is wanted.
    pub(crate) fn save(&mut self, slot: usize) {
        let held = &mut self.slots[slot];
        let tokens = held.tokens.len();
        while held.save_at.pop_if(|next| *next < tokens).is_some() {}
        if held.save_at.pop_if(|next| *next == tokens).is_none() {
            return;
        }
        let Some(bytes) = self.context.save(slot) else { return };
        let used = self.tick();
        self.slots[slot].saved.push(SavedState { tokens, used, bytes });
        self.drop_oldest();
    }

    fn drop_oldest(&mut self) {
        while self.slots.iter().map(|slot| slot.saved.len()).sum::<usize>()
            > STATES_PER_SLOT * self.slots.len()
        {
            let oldest = |slot: &Slot| slot.saved.iter().map(|state| state.used).min();
            let with_oldest =
                self.slots.iter_mut().filter(|slot| !slot.saved.is_empty()).min_by_key(|slot| oldest(slot));
            let Some(slot) = with_oldest else { return };
            let used = oldest(slot);
            slot.saved.retain(|state| Some(state.used) != used);
        }
    }

    /// Replaces what slot `to` holds by a copy of slot `from`; by nothing, if that fails.
    pub(crate) fn copy(&mut self, from: usize, to: usize) {
        let mut tokens = std::mem::take(&mut self.slots[to].tokens);
        tokens.clear();
        let mut saved = Vec::new();
        if self.context.copy(from, to) {
            if self.slots[from].begun > 0 {
                // The copy has cells of tokens that are not evaluated yet.
                self.context.truncate(to, self.slots[from].tokens.len());
            }
            tokens.extend(&self.slots[from].tokens);
            saved.clone_from(&self.slots[from].saved);
        }
        let slot = &mut self.slots[to];
        (slot.tokens, slot.saved) = (tokens, saved);
    }

    /// Ends a pass that is begun over a slot.
    fn stop(&mut self, slot: usize) {
        if self.slots[slot].begun > 0
            && let Some(paused) = &mut self.paused
        {
            paused.stop();
            self.slots[slot].begun = 0;
            self.context.truncate(slot, self.slots[slot].tokens.len());
        }
    }

    /// Empties a slot whose cells are in doubt.
    pub(crate) fn forget(&mut self, slot: usize) {
        self.stop(slot);
        self.context.truncate(slot, 0);
        let slot = &mut self.slots[slot];
        slot.tokens.clear();
        slot.saved.clear();
    }
}

impl KvCache for Held {
    fn evaluated(&self, slot: usize) -> usize {
        self.slots[slot].tokens.len()
    }

    fn keep(&mut self, slot: usize, count: usize) {
        self.stop(slot);
        let mut kept = self.kept(slot, count);
        let now = self.tick();
        let held = &mut self.slots[slot];
        if kept < held.tokens.len()
            && let Some(state) = held.saved.iter_mut().find(|state| state.tokens == kept)
        {
            state.used = now;
            kept = if self.context.restore(slot, &state.bytes) { kept } else { 0 };
        }
        self.context.keep(slot, &mut held.tokens, kept);
        let kept = held.tokens.len();
        held.saved.retain(|state| state.tokens <= kept);
        self.drop_oldest();
    }

    /// The cells stay for reuse.
    fn free(&mut self, slot: usize) {
        self.stop(slot);
        let released = self.tick();
        let held = &mut self.slots[slot];
        (held.busy, held.is_apart, held.released) = (false, false, released);
    }
}
