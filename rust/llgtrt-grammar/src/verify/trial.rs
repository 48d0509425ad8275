//! The check as a search for the end of an answer follows it: over tokens that are tried, and back again.

use llgtrt_core::TokenId;

use super::{Allowance, Verifier, Wrong};

/// Bans that are gone through in about 0.2 us, the unit of what a search spends.
const BANS_PER_COST: u64 = 64;

/// A copy of a sequence's check. Nothing that it finds wrong is banned for the sequence.
pub(crate) struct Trial<'a> {
    /// Where the sequence stands.
    start: &'a Verifier,
    now: Verifier,
    allowance: Allowance,
    /// False once the allowance did not suffice: from there on nothing is found wrong.
    is_on: bool,
}

impl<'a> Trial<'a> {
    /// From where `start` is. Judges spend from the allowance.
    pub(crate) fn new(start: &'a Verifier, allowance: Allowance) -> Self {
        Self { now: start.clone(), start, allowance, is_on: true }
    }

    /// Takes tokens that the grammar allows. False if everything that begins like this is wrong.
    pub(crate) fn take(&mut self, tokens: &[TokenId]) -> bool {
        if !self.is_on {
            return true;
        }
        let checked = tokens.iter().try_for_each(|&token| self.now.push(token, &mut self.allowance));
        self.hold(&checked) && !self.now.is_banned(false)
    }

    /// Whether the answer may end here. Takes no more tokens before it goes back.
    pub(crate) fn ends(&mut self) -> bool {
        if !self.is_on {
            return true;
        }
        let checked = self.now.end(&mut self.allowance);
        self.hold(&checked) && !self.now.is_banned(true)
    }

    fn hold(&mut self, checked: &Result<(), Wrong>) -> bool {
        self.is_on &= !matches!(checked, Err(Wrong::PutOff | Wrong::Failed(_)));
        !matches!(checked, Err(Wrong::Here))
    }

    /// Back to where `path`, which was found right, leads from the start. Answers what that costs: one for each of its tokens,
    /// and for 32 bytes of the answer before it.
    pub(crate) fn back_to(&mut self, path: &[TokenId]) -> u64 {
        let cost = (path.len() + self.start.text.len() / 32) as u64;
        if self.is_on {
            self.now.clone_from(self.start);
            for &token in path {
                self.now.follow(token);
            }
        }
        cost
    }

    /// What it costs to look for a token among what is known to be wrong.
    pub(crate) fn cost(&self) -> u64 {
        self.now.bans() as u64 / BANS_PER_COST
    }

    /// What is left of the allowance, and whether it sufficed.
    pub(crate) fn into_rest(self) -> (Allowance, bool) {
        (self.allowance, self.is_on)
    }
}
