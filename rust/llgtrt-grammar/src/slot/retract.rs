//! What a slot does with a check beside its grammar: takes back tokens that lead to no valid answer.
//!
//! Called by [`Slot::advance`], under the slot's lock.

use std::time::Instant;

use llgtrt_core::{Error, TokenId};
use toktrie::SimpleVob;

use super::{Mask, Slot, State, refused};
use crate::verify::{Wrong, too_many_withdrawn};

impl Slot {
    /// How many generated tokens, forced ones included, are certain to stay; `None` if all are.
    pub(crate) fn certain(&self) -> Option<usize> {
        self.verifier.as_ref().map(|verifier| verifier.certain())
    }

    /// Checks tokens that the matcher has consumed. False if tokens were taken back.
    pub(super) fn verify(&mut self, tokens: &[TokenId]) -> Result<bool, Error> {
        let Some(verifier) = &mut self.verifier else { return Ok(true) };
        let allowance = &mut self.allowance;
        let checked = tokens.iter().try_for_each(|&token| verifier.push(token, allowance));
        self.follow(checked)
    }

    /// Checks that the text may end here. False if tokens were taken back.
    pub(super) fn verify_end(&mut self) -> Result<bool, Error> {
        let Some(verifier) = &mut self.verifier else { return Ok(true) };
        let checked = verifier.end(&mut self.allowance);
        self.follow(checked)
    }

    /// Does what a check asks for. False if tokens were taken back.
    fn follow(&mut self, checked: Result<(), Wrong>) -> Result<bool, Error> {
        match checked {
            Ok(()) => Ok(true),
            Err(Wrong::Failed(error)) => Err(error),
            Err(Wrong::Here) => self.step_back().map(|()| false),
            Err(Wrong::PutOff) => self.put_off().map(|()| false),
        }
    }

    /// Whether a check waits for its turn.
    pub(crate) fn is_put_off(&self) -> bool {
        self.put_off
    }

    /// Whether something that was taken back must not come again here.
    pub(super) fn has_bans_here(&self) -> bool {
        matches!(self.mask, Mask::Stale) && self.verifier.as_ref().is_some_and(|v| v.is_banned_here())
    }

    /// Computes the mask at once and takes out what was found wrong.
    pub(super) fn restrict_mask(&mut self) -> Result<(), Error> {
        let Some(verifier) = &mut self.verifier else { return Ok(()) };
        let began = Instant::now();
        let mut mask = self.matcher.compute_mask().map_err(refused)?;
        self.mask_time += began.elapsed();
        if verifier.restrict(&mut mask) {
            self.mask = Mask::Ready(self.bound_digits(mask));
            return Ok(());
        }
        verifier.give_up_here();
        self.step_back()
    }

    /// An error if tokens are taken back, of `len` that the engine has, though too many were before. Where another way is
    /// left after that, as many again may be.
    pub(super) fn withdraws_in_proportion(&self, len: usize) -> Result<(), Error> {
        if self.retract.is_some() && self.withdrawn > self.most_withdrawn(len) {
            return Err(too_many_withdrawn(self.withdrawn));
        }
        Ok(())
    }

    /// How many tokens may be taken back of an answer that is `len` long; any number where nothing is checked: there the
    /// limit alone goes back, once.
    pub(super) fn most_withdrawn(&self, len: usize) -> usize {
        self.verifier.as_ref().map_or(usize::MAX / 2, |verifier| verifier.most_withdrawn(len))
    }

    /// Goes back to where another way begins. The engine has `seen` tokens: those among them that do not
    /// stay are to be withdrawn, those beyond them that stay are forced.
    pub(super) fn step_back(&mut self) -> Result<(), Error> {
        let Self { verifier: Some(verifier), matcher, taken, mask_time, .. } = self else { return Ok(()) };
        let mask = verifier.step_back(|kept| {
            matcher.rollback(taken.len().saturating_sub(kept)).map_err(refused)?;
            taken.truncate(kept);
            let began = Instant::now();
            let mask = matcher.compute_mask().map_err(refused);
            *mask_time += began.elapsed();
            mask
        })?;
        self.resume(mask);
        Ok(())
    }

    /// Goes back to before the last token: its check is made when it comes again.
    fn put_off(&mut self) -> Result<(), Error> {
        let Self { verifier: Some(verifier), matcher, taken, mask_time, .. } = self else { return Ok(()) };
        let kept = verifier.put_off()?;
        matcher.rollback(taken.len().saturating_sub(kept)).map_err(refused)?;
        taken.truncate(kept);
        let began = Instant::now();
        let mut mask = matcher.compute_mask().map_err(refused)?;
        *mask_time += began.elapsed();
        verifier.restrict(&mut mask);
        self.put_off = true;
        self.resume(mask);
        Ok(())
    }

    /// Goes on from the tokens that the verifier has kept, under this mask.
    fn resume(&mut self, mask: SimpleVob) {
        let Some(verifier) = &self.verifier else { return };
        let kept: Vec<TokenId> = verifier.tokens().collect();
        // Whatever was taken back is behind the tokens that stay.
        if let Some(digits) = &mut self.digits {
            digits.restart();
        }
        self.mask = Mask::Ready(self.bound_digits(mask));
        self.state = State::Open;
        self.tried_force = true;
        if kept.len() < self.seen {
            self.seen = kept.len();
            self.retract = Some(kept.len());
            self.forced.clear();
        } else {
            self.forced = kept[self.seen..].to_vec();
        }
    }
}
