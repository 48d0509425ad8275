//! Tokens that wait until they are certain to stay. One value per sequence, used by the output thread.

use std::borrow::Cow;

use llgtrt_core::{SequenceOutput, TokenOutput};

/// Tokens reported and not passed on, because the engine may withdraw them.
#[derive(Debug, Default)]
pub(crate) struct Held {
    /// Tokens passed on so far.
    passed: usize,
    waiting: Vec<TokenOutput>,
}

impl Held {
    /// Takes the tokens of an output and gives those that are certain, older ones first.
    pub(crate) fn pass<'a>(
        &mut self,
        output: &SequenceOutput,
        tokens: &'a [TokenOutput],
    ) -> Cow<'a, [TokenOutput]> {
        if let Some(keep) = output.retract_to {
            self.waiting.truncate(keep.saturating_sub(self.passed));
        }
        if self.waiting.is_empty() && output.certain.is_none() {
            self.passed += tokens.len();
            return Cow::Borrowed(tokens);
        }
        self.waiting.extend_from_slice(tokens);
        let certain = output.certain.map_or(usize::MAX, |certain| certain.saturating_sub(self.passed));
        let ready: Vec<_> = self.waiting.drain(..certain.min(self.waiting.len())).collect();
        self.passed += ready.len();
        Cow::Owned(ready)
    }

    /// Tokens that wait.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// How many of them were forced.
    pub(crate) fn forced(&self) -> usize {
        self.waiting.iter().filter(|token| token.forced).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use llgtrt_core::{SequenceId, StepBatch, TokenId};

    fn step(
        held: &mut Held,
        retract_to: Option<usize>,
        new: &[TokenId],
        certain: Option<usize>,
    ) -> Vec<TokenId> {
        let mut batch = StepBatch::default();
        let output = batch.begin(SequenceId(1));
        (output.retract_to, output.certain) = (retract_to, certain);
        for &token in new {
            batch.push_token(TokenOutput { token, forced: false, removed_mass: None, logprobs: None });
        }
        let (output, tokens) = batch.iter().next().unwrap();
        held.pass(output, tokens).iter().map(|output| output.token).collect()
    }

    #[test]
    fn only_what_is_certain_is_passed_on_and_only_once() {
        let mut held = Held::default();
        assert_eq!(step(&mut held, None, &[1, 2], Some(2)), [1, 2]);
        assert_eq!(step(&mut held, None, &[3, 4], Some(2)), [0_u32; 0]);
        assert_eq!(step(&mut held, Some(3), &[5], Some(3)), [3]);
        assert_eq!(step(&mut held, Some(3), &[], Some(3)), [0_u32; 0]);
        assert_eq!(held.len(), 0);
        assert_eq!(step(&mut held, None, &[6, 7], Some(5)), [6, 7]);
    }

    #[test]
    fn without_a_bound_everything_is_passed_on() {
        let mut held = Held::default();
        assert_eq!(step(&mut held, None, &[1], Some(0)), [0_u32; 0]);
        assert_eq!(step(&mut held, None, &[2], None), [1, 2]);
        assert_eq!(step(&mut held, None, &[3], None), [3]);
    }
}
