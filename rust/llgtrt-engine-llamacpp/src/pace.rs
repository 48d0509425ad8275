//! How many prompt tokens a forward pass can take within a time, as far as the latest passes tell.
//!
//! While other sequences generate, a long prompt is evaluated in small parts, so that they wait little for each. Short
//! prompts are another matter: cut into parts they cost more, and the sequences that wait for theirs generate late and
//! alone instead of together. So a pass finishes as many as a reader of the others does not notice.

use std::time::Duration;

/// Weight of the latest pass in what a token costs.
const LATEST: f64 = 0.3;

/// Passes of fewer prompt tokens tell nothing: what they cost is mostly that of reading the weights.
const FEW: usize = 32;

/// See the module.
#[derive(Debug)]
pub(crate) struct PrefillPace {
    time: Duration,
    seconds_per_token: Option<f64>,
}

impl PrefillPace {
    /// For passes of so much time.
    pub(crate) fn new(time: Duration) -> Self {
        Self { time, seconds_per_token: None }
    }

    /// Learns that a pass over `tokens` tokens, `prefill` of them of prompts, took `elapsed`.
    pub(crate) fn observe(&mut self, tokens: usize, prefill: usize, elapsed: Duration) {
        if prefill < FEW {
            return;
        }
        let latest = elapsed.as_secs_f64() / tokens as f64;
        let known = self.seconds_per_token.unwrap_or(latest);
        self.seconds_per_token = Some(known + LATEST * (latest - known));
    }

    /// Prompt tokens that a pass can take; 0 while nothing is known.
    pub(crate) fn tokens(&self) -> usize {
        self.seconds_per_token.map_or(0, |cost| (self.time.as_secs_f64() / cost) as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cost_of_a_token_is_learned() {
        let mut pace = PrefillPace::new(Duration::from_millis(100));
        assert_eq!(pace.tokens(), 0);
        pace.observe(200, 192, Duration::from_millis(80));
        assert_eq!(pace.tokens(), 250);
        for _ in 0..50 {
            pace.observe(200, 192, Duration::from_millis(160));
        }
        assert!((124..=126).contains(&pace.tokens()), "{pace:?}");
    }

    #[test]
    fn passes_of_few_prompt_tokens_tell_nothing() {
        let mut pace = PrefillPace::new(Duration::from_millis(100));
        pace.observe(64, 0, Duration::from_millis(1));
        pace.observe(80, 16, Duration::from_millis(1));
        assert_eq!(pace.tokens(), 0);
    }

    #[test]
    fn no_time_is_no_tokens() {
        let mut pace = PrefillPace::new(Duration::ZERO);
        pace.observe(64, 64, Duration::ZERO);
        assert_eq!(pace.tokens(), 0);
        pace.observe(64, 64, Duration::from_millis(1));
        assert_eq!(pace.tokens(), 0);
    }
}
