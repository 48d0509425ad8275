//! How many prompt tokens a forward pass takes while other sequences generate, as far as the latest passes tell.
//!
//! A long prompt is evaluated in parts then, with a pass for the others after each, so that they wait little. Short
//! prompts are another matter: cut into parts they cost more, and the sequences that wait for theirs generate late and
//! alone instead of together. So a pass finishes as many as a reader of the others does not notice.

use std::time::Duration;

/// Weight of the latest pass in what a token or a step costs.
const LATEST: f64 = 0.3;

/// Passes of fewer prompt tokens tell nothing: what they cost is mostly that of reading the weights.
const FEW: usize = 16;

/// A part before anything is known.
pub(crate) const FIRST_PART: usize = 64;

/// The least part: fewer tokens cost a pass nearly as much. What [`FEW`] says holds for no part then.
const LEAST_PART: usize = FEW;

/// See the module.
#[derive(Debug)]
pub(crate) struct PrefillPace {
    part: Duration,
    pass: Duration,
    /// Tokens of a part, where that is fixed.
    part_tokens: Option<usize>,
    seconds_per_token: Option<f64>,
    /// Of a pass of the sequences that generate.
    seconds_per_step: f64,
}

impl PrefillPace {
    /// A part takes as long as `part`, or as a step of the sequences that generate where that is longer; or it has
    /// `part_tokens` tokens. A pass that finishes prompts takes as long as `pass`.
    pub(crate) fn new(part: Duration, part_tokens: Option<usize>, pass: Duration) -> Self {
        Self { part, pass, part_tokens, seconds_per_token: None, seconds_per_step: 0.0 }
    }

    /// Learns that a pass over `tokens` tokens of prompts took `elapsed`.
    pub(crate) fn observe_prompts(&mut self, tokens: usize, elapsed: Duration) {
        if tokens < FEW {
            return;
        }
        let latest = elapsed.as_secs_f64() / tokens as f64;
        let known = self.seconds_per_token.unwrap_or(latest);
        self.seconds_per_token = Some(known + LATEST * (latest - known));
    }

    /// Learns that a pass of the sequences that generate took `elapsed`.
    pub(crate) fn observe_step(&mut self, elapsed: Duration) {
        self.seconds_per_step += LATEST * (elapsed.as_secs_f64() - self.seconds_per_step);
    }

    /// Tokens of a part of a long prompt.
    pub(crate) fn part(&self) -> usize {
        self.part_tokens.unwrap_or_else(|| {
            let time = self.part.as_secs_f64().max(self.seconds_per_step);
            self.tokens_in(time).map_or(FIRST_PART, |tokens| tokens.max(LEAST_PART))
        })
    }

    /// Tokens of prompts that a pass finishes; at least those of a part.
    pub(crate) fn finished(&self) -> usize {
        self.tokens_in(self.pass.as_secs_f64()).unwrap_or(0).max(self.part())
    }

    fn tokens_in(&self, seconds: f64) -> Option<usize> {
        self.seconds_per_token.map(|cost| (seconds / cost) as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn pace() -> PrefillPace {
        PrefillPace::new(50 * MS, None, 100 * MS)
    }

    #[test]
    fn the_cost_of_a_token_is_learned() {
        let mut pace = pace();
        assert_eq!((pace.part(), pace.finished()), (FIRST_PART, FIRST_PART));
        pace.observe_prompts(200, 80 * MS);
        assert_eq!((pace.part(), pace.finished()), (125, 250));
        for _ in 0..50 {
            pace.observe_prompts(200, 160 * MS);
        }
        assert!((61..=63).contains(&pace.part()) && (124..=126).contains(&pace.finished()), "{pace:?}");
    }

    #[test]
    fn a_part_takes_no_less_than_a_step() {
        let mut pace = pace();
        pace.observe_prompts(200, 200 * MS);
        assert_eq!(pace.part(), 50);
        for _ in 0..50 {
            pace.observe_step(80 * MS);
        }
        assert!((79..=80).contains(&pace.part()), "{pace:?}");
        for _ in 0..50 {
            pace.observe_step(10 * MS);
        }
        assert_eq!(pace.part(), 50);
    }

    #[test]
    fn a_part_is_not_too_small_for_a_pass() {
        let mut pace = pace();
        pace.observe_prompts(100, 1000 * MS);
        assert_eq!((pace.part(), pace.finished()), (LEAST_PART, LEAST_PART));
    }

    #[test]
    fn passes_of_few_prompt_tokens_tell_nothing() {
        let mut pace = pace();
        pace.observe_prompts(FEW - 1, MS);
        assert_eq!(pace.part(), FIRST_PART);
    }

    #[test]
    fn a_part_can_be_fixed() {
        let mut pace = PrefillPace::new(50 * MS, Some(7), Duration::ZERO);
        assert_eq!((pace.part(), pace.finished()), (7, 7));
        pace.observe_prompts(64, MS);
        pace.observe_step(1000 * MS);
        assert_eq!((pace.part(), pace.finished()), (7, 7));
        pace.observe_prompts(64, Duration::ZERO);
        assert_eq!((pace.part(), pace.finished()), (7, 7));
    }
}
