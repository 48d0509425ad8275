//! An answer whose first tokens were generated elsewhere: the slot has followed them, the engine has not generated them.
//!
//! A slot counts the tokens of the whole answer; an engine counts its own. Nothing of what came before is ever taken back.

use std::borrow::Cow;

use llgtrt_core::{AdvanceState, Error, ErrorKind, TokenId};

use super::Slot;
use crate::verify::Allowance;

impl Slot {
    /// Follows tokens that were generated before, one by one: so the slot comes to know at each what it knew when
    /// they were generated. A part of an answer ([`MaskPool::register_behind`](crate::MaskPool::register_behind)) takes all
    /// but the last at once, without a limit.
    pub(crate) fn begin_behind(&mut self, generated: &[TokenId], is_part: bool) -> Result<(), Error> {
        let at_once = if is_part { generated.len().saturating_sub(1) } else { 0 };
        if at_once > 0 {
            let limit = self.limit.take();
            self.begin_with(&generated[..at_once])?;
            self.limit = limit;
        }
        for taken in at_once + 1..=generated.len() {
            self.begin_with(&generated[..taken])?;
        }
        self.before = generated.into();
        Ok(())
    }

    fn begin_with(&mut self, generated: &[TokenId]) -> Result<(), Error> {
        self.advance(generated, false, &mut Allowance::check());
        match self.outcome().1 {
            AdvanceState::Sample | AdvanceState::Stop | AdvanceState::Limit => Ok(()),
            AdvanceState::Retract { .. } | AdvanceState::Failed(_) => {
                let message = "the tokens generated before do not begin an answer to the constraint";
                Err(Error::new(ErrorKind::Grammar, message))
            }
        }
    }

    /// The whole answer of a sequence that has generated these tokens here.
    pub(crate) fn answer<'a>(&self, generated: &'a [TokenId]) -> Cow<'a, [TokenId]> {
        if self.before.is_empty() {
            Cow::Borrowed(generated)
        } else {
            Cow::Owned([&self.before, generated].concat())
        }
    }

    /// How many of the first `tokens` of the answer were generated here.
    pub(crate) fn generated_here(&self, tokens: usize) -> usize {
        tokens.saturating_sub(self.before.len())
    }

    /// What the last advance led to, with tokens counted as the engine does.
    pub(crate) fn outcome_here(&self) -> (&[TokenId], AdvanceState) {
        match self.outcome() {
            (_, AdvanceState::Retract { keep }) if keep < self.before.len() => {
                let message = "no way on was found behind the tokens that were generated before";
                (&[], AdvanceState::Failed(Error::new(ErrorKind::Constraint, message)))
            }
            (forced, AdvanceState::Retract { keep }) => {
                (forced, AdvanceState::Retract { keep: self.generated_here(keep) })
            }
            other => other,
        }
    }
}
