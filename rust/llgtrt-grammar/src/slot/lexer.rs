//! The memory of a slot's lexer, which grows with what the answer holds: llguidance builds the states of a lexer when
//! they are first needed and drops none. A slot can begin with a fresh lexer at any token.

use llgtrt_core::Error;

use super::{Slot, refused};
use crate::compiled::BYTES_PER_FUEL;

/// Tokens taken again between two masks: a mask gives the lexer its fuel.
const TOKENS_PER_MASK: usize = 64;

impl Slot {
    /// Estimated memory of what this sequence's lexer has learned beyond what its grammar knew, in bytes.
    pub(crate) fn lexer_bytes(&self) -> u64 {
        (self.fuel - self.learned) * BYTES_PER_FUEL
    }

    /// Begins again with what the grammar knows, and takes the tokens so far.
    pub(super) fn renew_lexer(&mut self) -> Result<(), Error> {
        let copy = self.grammar.copy();
        (self.matcher, self.start) = (copy.matcher, Some(copy.start));
        (self.fuel, self.learned) = (copy.fuel, copy.fuel);
        for tokens in self.taken.chunks(TOKENS_PER_MASK) {
            self.matcher.consume_tokens(tokens).map_err(refused)?;
            if !self.matcher.is_stopped() {
                self.matcher.compute_mask().map_err(refused)?;
                self.fuel += self.matcher.last_step_stats().map_or(0, |stats| stats.lexer_cost);
            }
        }
        Ok(())
    }

    /// Drops what the lexer has learned, if it is more than `bytes`: what is needed of it is built again.
    pub(crate) fn shrink_lexer(&mut self, bytes: u64) {
        if self.lexer_bytes() <= bytes || self.is_failed() {
            return;
        }
        let mask = std::mem::replace(&mut self.mask, super::Mask::Stale);
        match super::guard(|| self.renew_lexer()) {
            Ok(()) => self.mask = mask,
            Err(error) => self.fail(error),
        }
    }
}
