//! The memory of a slot's lexer, which grows with what the answer holds: llguidance builds the states of a lexer when
//! they are first needed and drops none. A slot can begin with a fresh lexer at any token.

use llgtrt_core::Error;
use toktrie::SimpleVob;

use super::{Slot, refused};
use crate::compiled::lexer_bytes;

/// Tokens taken again between two masks: a mask gives the lexer its fuel.
const TOKENS_PER_MASK: usize = 64;

impl Slot {
    /// Estimated memory of what this sequence's lexer has learned beyond what its grammar knew, in bytes.
    pub(crate) fn lexer_bytes(&self) -> u64 {
        self.start
            .as_ref()
            .map_or(0, |start| lexer_bytes(start).saturating_sub(self.lexer_bytes_at_start) as u64)
    }

    /// Begins again with what the grammar knows, and takes the tokens so far.
    pub(super) fn renew_lexer(&mut self) -> Result<(), Error> {
        self.copy_grammar();
        for tokens in self.taken.chunks(TOKENS_PER_MASK) {
            self.matcher.consume_tokens(tokens).map_err(refused)?;
            if !self.matcher.is_stopped() {
                self.matcher.compute_mask().map_err(refused)?;
            }
        }
        Ok(())
    }

    fn copy_grammar(&mut self) {
        let copy = self.grammar.copy();
        (self.matcher, self.start) = (copy.matcher, Some(copy.start));
        self.lexer_bytes_at_start = copy.lexer_bytes;
    }

    /// Of the next tokens, those of one byte, tried one by one: for a position whose mask takes more than the limits
    /// allow. The answer goes on, with fewer tokens to choose from. `error` if none of them may follow.
    pub(super) fn narrow_mask(&mut self, error: Error) -> Result<SimpleVob, Error> {
        self.copy_grammar();
        self.matcher.consume_tokens(&self.taken).map_err(refused)?;
        let mut mask = SimpleVob::alloc(self.env.vocab_size());
        for &token in self.env.bytes_tokens() {
            if self.matcher.validate_tokens(&[token]).map_err(refused)? == 1 {
                mask.allow_token(token);
            }
        }
        if self.matcher.is_accepting().map_err(refused)?
            && let Some(eos) = self.env.first_eos()
        {
            mask.allow_token(eos);
        }
        if mask.is_zero() { Err(error) } else { Ok(mask) }
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
