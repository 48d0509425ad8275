//! Long prompts: evaluated apart from the passes of others, a part of a layer at a time (`paused`), so that nobody waits for the end of a
//! pass over one.

use std::time::Duration;

use llgtrt_core::{Error, Pass, Result, TokenId};
use llgtrt_stepped::Sequence;

use crate::context::DecodeError;
use crate::engine::LlamaCppEngine;
use crate::forward::work;
use crate::pace::{Came, FIRST_TOKENS};
use crate::schedule::Work;
use crate::slot::Slot;

/// A prompt of which so many tokens are to be evaluated is evaluated apart, until one is left. Shorter ones share passes with others.
const LONG: usize = 256;

/// A pass while nothing is generated has as many tokens as take so long a layer, in seconds, and no fewer than these: fewer cost more
/// each. A request that comes meanwhile waits for parts of layers of this length until the pass ends.
const LAYER_ALONE: f64 = 0.02;
const ENOUGH_ALONE: usize = 128;

/// Whose turn it is.
#[derive(Debug, Default)]
pub(crate) struct ApartTurns {
    /// Of the long prompts: the shortest one's, not the oldest one's.
    shortest: bool,
    /// Of all prompts beside sequences that generate: those that share passes with these.
    others: bool,
}

impl LlamaCppEngine {
    /// Goes on with the prompts that are evaluated apart, for as long as sequences that generate may wait. What it evaluated is added to
    /// `pass`. Answers whether these are to go on alone now: other prompts have their turn after the next step.
    ///
    /// # Errors
    /// The context is of no further use.
    pub(crate) fn go_on_apart(&mut self, pass: &mut Pass) -> Result<bool> {
        if self.cache.paused.is_none() {
            return Ok(false);
        }
        self.set_apart();
        let held = self.sequences.running.iter().zip(&self.cache.slots);
        let count = |wanted: Work| held.clone().filter(|&held| work(held) == Some(wanted)).count();
        let (generating, others) = (count(Work::Answers), count(Work::Prompts));
        let waiting = held.filter(|(_, slot)| slot.is_apart).count();
        self.apart.others = waiting > 0 && generating > 0 && others > 0 && !self.apart.others;
        if waiting == 0 || self.apart.others {
            return Ok(false);
        }
        let came = self.came();
        let slice = self.prefill_pace.slice(waiting, generating, came);
        let layer = if generating > 0 && came == Came::Apart { slice.as_secs_f64() } else { LAYER_ALONE };
        if self.cache.slots.iter().all(|slot| slot.begun == 0) {
            self.begin_apart(layer, if generating > 0 { 0 } else { ENOUGH_ALONE });
        }
        let turn = self.turns.take();
        let ended = self.cache.paused.as_mut().and_then(|paused| paused.resume(slice));
        drop(turn);
        if let Some((elapsed, result)) = ended {
            self.end_apart(elapsed, result, pass)?;
        }
        Ok(generating > 0)
    }

    /// Decides which prompts are evaluated apart.
    fn set_apart(&mut self) {
        for (sequence, slot) in self.sequences.running.iter().zip(&mut self.cache.slots) {
            let least = if slot.is_apart { 1 } else { LONG };
            slot.is_apart = slot.begun > 0
                || sequence.as_deref().is_some_and(|sequence| {
                    let left = left(sequence, slot);
                    left >= least && !sequence.is_done() && !sequence.wants_many_outputs(left)
                });
        }
    }

    /// Begins a pass over the next prompt, of as many tokens as take so many seconds a layer, and `enough` at least. The next one is the
    /// oldest, or in every other pass the shortest, where that has half as much to go or less.
    fn begin_apart(&mut self, layer: f64, enough: usize) {
        let held = self.sequences.running.iter().zip(&self.cache.slots).enumerate();
        let waiting = held.filter(|(_, (_, slot))| slot.is_apart);
        let waiting = waiting.filter_map(|(index, (sequence, slot))| {
            let sequence = sequence.as_deref()?;
            Some((index, sequence, left(sequence, slot)))
        });
        let oldest = waiting.clone().min_by_key(|(_, sequence, _)| sequence.age);
        let shortest = waiting.min_by_key(|&(.., left)| left);
        let (Some(oldest), Some(shortest), Some(paused)) = (oldest, shortest, &mut self.cache.paused) else {
            return;
        };
        self.apart.shortest = !self.apart.shortest && shortest.2 <= oldest.2 / 2;
        let (slot, sequence, left) = if self.apart.shortest { shortest } else { oldest };
        let start = self.cache.slots[slot].tokens.len();
        let most = self.prefill_pace.token_seconds().map_or(FIRST_TOKENS, |seconds| {
            paused.tokens_of(layer, seconds * self.costs.token_behind(start)).max(enough)
        });
        let tokens: Vec<TokenId> =
            (start..start + left.min(most)).map(|position| sequence.token(position)).collect();
        self.cache.slots[slot].begun = paused.begin(slot, start, &tokens);
    }

    /// Books a pass that has ended.
    fn end_apart(
        &mut self,
        elapsed: Duration,
        result: Result<(), DecodeError>,
        pass: &mut Pass,
    ) -> Result<()> {
        let Some(slot) = self.cache.slots.iter().position(|slot| slot.begun > 0) else { return Ok(()) };
        let begun = std::mem::take(&mut self.cache.slots[slot].begun);
        match result {
            Ok(()) => {}
            Err(DecodeError::Fatal(code)) => return Err(DecodeError::fatal(code)),
            Err(DecodeError::NoRoom | DecodeError::Refused) => {
                self.fail(slot, Error::internal("llama.cpp refused a part of the prompt"));
                return Ok(());
            }
        }
        self.stats.forward_passes += 1;
        let Some(sequence) = &mut self.sequences.running[slot] else { return Ok(()) };
        let cells = &mut self.cache.slots[slot].tokens;
        let work = begun as f64 * self.costs.token_behind(cells.len() + begun / 2);
        self.prefill_pace.observe_prompts(begun, work, elapsed);
        pass.add(sequence.spec.prompt.len(), cells.len(), begun);
        for _ in 0..begun {
            cells.push(sequence.token(cells.len()));
        }
        sequence.release(cells.len());
        Ok(())
    }
}

/// Tokens of a prompt that are to be evaluated apart: all but the last one, whose logits are needed.
fn left(sequence: &Sequence, slot: &Slot) -> usize {
    let evaluated = slot.tokens.len();
    if evaluated < sequence.spec.prompt.len() { sequence.target().saturating_sub(evaluated + 1) } else { 0 }
}
