//! The memory of a slot's lexer, which grows with what the answer holds: llguidance builds the states of a lexer when
//! they are first needed and drops none. A slot can begin with a fresh lexer at any token.

use llgtrt_core::{Error, TokenId};
use toktrie::SimpleVob;

use super::{Slot, refused};
use crate::compiled::lexer_bytes;
use crate::matcher::Matcher;

/// Tokens taken again between two masks: a mask gives the lexer its fuel.
const TOKENS_PER_MASK: usize = 64;

/// Work on masks that were beyond the limits, for one answer, in units of [`Matcher::work`]. Others wait for them.
pub(super) const REPAIRS_PER_ANSWER: u64 = 8_000_000;

impl Slot {
    /// Estimated memory of what this sequence's lexer has learned beyond what its grammar knew, in bytes.
    pub(crate) fn lexer_bytes(&self) -> u64 {
        self.start
            .as_ref()
            .map_or(0, |start| lexer_bytes(start).saturating_sub(self.lexer_bytes_at_start) as u64)
    }

    /// Begins again with what the grammar knows, and takes the tokens so far, with masks on the way if they are wanted.
    /// False, and all is as before, if that is more work than is `left`.
    fn renew_lexer(&mut self, masks: bool, left: &mut u64) -> Result<bool, Error> {
        let mut copy = self.grammar.copy();
        let taken = retake(&mut copy.matcher, &self.taken, masks, *left);
        *left = left.saturating_sub(copy.matcher.work());
        if taken? {
            (self.matcher, self.start) = (copy.matcher, Some(copy.start));
            self.lexer_bytes_at_start = copy.lexer_bytes;
        }
        Ok(*left > 0)
    }

    /// Moves over tokens that may follow. The mask before them may have left the lexer at one of its limits: then with a
    /// lexer that begins anew.
    pub(super) fn take(&mut self, tokens: &[TokenId]) -> anyhow::Result<()> {
        if let Err(error) = self.matcher.consume_tokens(tokens) {
            let mut left = std::mem::take(&mut self.repairs_left);
            let is_renewed = self.renew_lexer(false, &mut left).unwrap_or(false);
            self.repairs_left = left;
            if !is_renewed {
                return Err(error);
            }
            self.matcher.consume_tokens(tokens)?;
        }
        self.taken.extend_from_slice(tokens);
        Ok(())
    }

    /// A mask that was beyond the limits, once more: a lexer that has reached one of them is of no further use, and what
    /// filled it was perhaps the way here, not what comes next.
    pub(super) fn repair_mask(&mut self, error: Error) -> Result<SimpleVob, Error> {
        let mut left = std::mem::take(&mut self.repairs_left);
        let again = self.renew_lexer(true, &mut left).and_then(|is_renewed| {
            if !is_renewed {
                return Err(error);
            }
            let before = self.matcher.work();
            let mask = self.matcher.compute_mask().map_err(refused);
            left = left.saturating_sub(self.matcher.work() - before);
            mask
        });
        let mask = again.or_else(|error| self.narrow_mask(error, &mut left));
        self.repairs_left = left;
        mask
    }

    /// Of the next tokens, those of one byte, tried one by one: for a position whose mask takes more than the limits
    /// allow. The answer goes on, with fewer tokens to choose from. `error` if none of them may follow, or to tell takes more
    /// work than is `left`.
    fn narrow_mask(&mut self, error: Error, left: &mut u64) -> Result<SimpleVob, Error> {
        if *left == 0 || !self.renew_lexer(false, left)? {
            return Err(error);
        }
        let mut mask = SimpleVob::alloc(self.env.vocab_size());
        for &token in self.env.bytes_tokens() {
            let before = self.matcher.work();
            if self.matcher.validate_tokens(&[token]).map_err(refused)? == 1 {
                mask.allow_token(token);
            }
            *left = left.saturating_sub(self.matcher.work() - before);
            if *left == 0 {
                return Err(error);
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
        let mut left = REPAIRS_PER_ANSWER;
        match super::guard(|| self.renew_lexer(true, &mut left)) {
            Ok(_) => self.mask = mask,
            Err(error) => self.fail(error),
        }
    }
}

/// Takes the tokens; false if that is more work than is `left`.
fn retake(matcher: &mut Matcher, tokens: &[TokenId], masks: bool, left: u64) -> Result<bool, Error> {
    for tokens in tokens.chunks(TOKENS_PER_MASK) {
        if matcher.work() >= left {
            return Ok(false);
        }
        matcher.consume_tokens(tokens).map_err(refused)?;
        if masks && !matcher.is_stopped() {
            matcher.compute_mask().map_err(refused)?;
        }
    }
    Ok(matcher.work() < left)
}
