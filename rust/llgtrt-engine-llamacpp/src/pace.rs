//! How many prompt tokens a forward pass takes while other sequences generate, as far as the latest passes tell.
//!
//! Prompts are evaluated in passes that those others hardly notice, with a pass for them after each. Shorter ones would cost
//! more: the weights are read for each anew, the others' passes between them are many, and sequences that wait for their
//! prompts generate late and alone instead of together. So they are the shorter, the fewer wait beside those that generate.

use std::time::Duration;

/// Weight of the latest pass in what a token or a step costs.
const LATEST: f64 = 0.3;

/// Passes of fewer prompt tokens tell nothing: what they cost is mostly that of reading the weights.
const FEW: usize = 16;

/// Tokens of a pass before anything is known.
pub(crate) const FIRST_TOKENS: usize = 64;

/// The least: fewer tokens cost a pass nearly as much. What [`FEW`] says holds for no full pass then.
const LEAST_TOKENS: usize = FEW;

/// The shortest pass, as a part of the longest, and in tokens if so many fit into that: with fewer a token costs more.
const SHORTEST: f64 = 1.0 / 3.0;
const ENOUGH_TOKENS: usize = 64;

/// The longest pass while nothing is generated, in seconds, but with no fewer tokens than these: a request that comes meanwhile
/// waits for its end.
const ALONE_SECONDS: f64 = 2.0;
const WIDE_TOKENS: usize = 128;

/// See the module.
#[derive(Debug)]
pub(crate) struct PrefillPace {
    pass: Duration,
    /// Tokens of a pass, where that is fixed.
    fixed: Option<usize>,
    seconds_per_token: Option<f64>,
    /// Of a pass of the sequences that generate.
    seconds_per_step: f64,
}

impl PrefillPace {
    /// A pass takes `pass` at most, or as long as a step of the sequences that generate where that is longer; or it has
    /// `fixed` tokens.
    pub(crate) fn new(pass: Duration, fixed: Option<usize>) -> Self {
        Self { pass, fixed, seconds_per_token: None, seconds_per_step: 0.0 }
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

    /// Learns that a pass over `tokens` tokens of prompts and those of the sequences that generate took `elapsed`. It takes the
    /// place of two passes, and may take as long as they would.
    pub(crate) fn observe_mixed(&mut self, tokens: usize, elapsed: Duration) {
        let step = Duration::from_secs_f64(self.seconds_per_step).min(elapsed / 2);
        self.observe_prompts(tokens, elapsed.saturating_sub(step));
    }

    /// Learns that a pass of the sequences that generate took `elapsed`.
    pub(crate) fn observe_step(&mut self, elapsed: Duration) {
        self.seconds_per_step += LATEST * (elapsed.as_secs_f64() - self.seconds_per_step);
    }

    /// Tokens of a pass over prompts, where so many prompts wait and so many sequences generate.
    pub(crate) fn tokens(&self, waiting: usize, generating: usize) -> usize {
        let longest = self.pass.as_secs_f64();
        let part = (2 * waiting) as f64 / (waiting + generating).max(1) as f64;
        let within = |seconds: f64, cost: f64| (seconds.max(self.seconds_per_step) / cost) as usize;
        let measured = self.seconds_per_token.map(|cost| {
            let enough = within(longest, cost).min(ENOUGH_TOKENS);
            within(longest * part.clamp(SHORTEST, 1.0), cost).max(enough).max(LEAST_TOKENS)
        });
        self.fixed.or(measured).unwrap_or(FIRST_TOKENS)
    }

    /// Most tokens of a pass over prompts while nothing is generated.
    pub(crate) fn tokens_alone(&self) -> usize {
        self.seconds_per_token.map_or(usize::MAX, |cost| ((ALONE_SECONDS / cost) as usize).max(WIDE_TOKENS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn pace() -> PrefillPace {
        PrefillPace::new(50 * MS, None)
    }

    #[test]
    fn the_cost_of_a_token_is_learned() {
        let mut pace = pace();
        assert_eq!(pace.tokens(1, 0), FIRST_TOKENS);
        pace.observe_prompts(200, 80 * MS);
        assert_eq!(pace.tokens(1, 0), 125);
        for _ in 0..50 {
            pace.observe_prompts(200, 160 * MS);
        }
        assert!((61..=63).contains(&pace.tokens(1, 0)), "{pace:?}");
    }

    #[test]
    fn a_pass_takes_no_less_than_a_step() {
        let mut pace = pace();
        pace.observe_prompts(200, 200 * MS);
        assert_eq!(pace.tokens(1, 0), 50);
        for _ in 0..50 {
            pace.observe_step(80 * MS);
        }
        assert!((79..=80).contains(&pace.tokens(1, 0)), "{pace:?}");
        for _ in 0..50 {
            pace.observe_step(10 * MS);
        }
        assert_eq!(pace.tokens(1, 0), 50);
    }

    #[test]
    fn a_pass_is_the_shorter_the_fewer_wait() {
        let tokens = |pace: &PrefillPace| {
            [(1, 0), (4, 1), (1, 1), (1, 2), (1, 3), (1, 9), (0, 0)]
                .map(|(waiting, generating)| pace.tokens(waiting, generating))
        };
        let mut fast = PrefillPace::new(50 * MS, None);
        fast.observe_prompts(1000, 100 * MS);
        assert_eq!(tokens(&fast), [500, 500, 500, 333, 250, 166, 166]);
        fast.observe_step(100 * MS);
        assert_eq!(fast.tokens(1, 9), 300, "but no shorter than a step");
        let mut slower = PrefillPace::new(50 * MS, None);
        slower.observe_prompts(100, 50 * MS);
        assert_eq!(tokens(&slower), [100, 100, 100, 66, 64, 64, 64]);
        let mut slow = PrefillPace::new(50 * MS, None);
        slow.observe_prompts(100, 100 * MS);
        assert_eq!(tokens(&slow), [50; 7]);
    }

    #[test]
    fn while_nothing_is_generated_a_pass_takes_two_seconds_or_is_wide() {
        let mut pace = pace();
        assert_eq!(pace.tokens_alone(), usize::MAX);
        pace.observe_prompts(512, 512 * MS);
        assert_eq!(pace.tokens_alone(), 2000);
        for _ in 0..50 {
            pace.observe_prompts(100, 3000 * MS);
        }
        assert_eq!(pace.tokens_alone(), WIDE_TOKENS);
    }

    #[test]
    fn a_pass_has_enough_tokens_to_be_worth_it() {
        let mut pace = pace();
        pace.observe_prompts(100, 1000 * MS);
        assert_eq!(pace.tokens(1, 0), LEAST_TOKENS);
    }

    #[test]
    fn passes_of_few_prompt_tokens_tell_nothing() {
        let mut pace = pace();
        pace.observe_prompts(FEW - 1, MS);
        assert_eq!(pace.tokens(1, 0), FIRST_TOKENS);
    }

    #[test]
    fn a_mixed_pass_may_take_as_long_as_the_two_that_it_stands_for() {
        let mut pace = pace();
        pace.observe_step(100 * MS);
        pace.observe_mixed(100, 130 * MS);
        assert_eq!(pace.tokens(1, 0), 50, "a step of 30 ms, and 1 ms for a token");
        pace.observe_mixed(100, 40 * MS);
        assert!(pace.seconds_per_token.unwrap() > 0.0, "{pace:?}");
    }

    #[test]
    fn a_pass_can_be_fixed() {
        let mut pace = PrefillPace::new(50 * MS, Some(7));
        assert_eq!(pace.tokens(1, 0), 7);
        pace.observe_prompts(64, MS);
        pace.observe_step(1000 * MS);
        pace.observe_prompts(64, Duration::ZERO);
        assert_eq!(pace.tokens(1, 0), 7);
    }

    #[test]
    fn a_clock_that_stands_still_does_no_harm() {
        let mut pace = pace();
        pace.observe_prompts(64, Duration::ZERO);
        assert!(pace.tokens(1, 0) >= LEAST_TOKENS);
    }
}
