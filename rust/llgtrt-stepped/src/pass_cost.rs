//! What forward passes cost, as far as the latest ones tell, and which guesses are worth that. Plain data, owned by the engine.

use crate::draft::MAX_DRAFT;

/// What forward passes cost: as much as the latest ones over as many sequences, and for each token more what it was seen to
/// cost in passes over about as many sequences. A further sequence costs more than a token does: its cells are read for it.
#[derive(Debug, Default)]
pub struct PassCost {
    /// Of the latest passes, which were over so many sequences.
    sequences: usize,
    weight: f64,
    mean_tokens: f64,
    mean_seconds: f64,
    /// Of passes over 1 sequence, 2, 3 or 4, 5 to 8 and so on: while a pass waits for the weights a token more costs little, and beside
    /// many others much.
    slopes: [Slope; SIZES],
}

const SIZES: usize = 8;

/// What a token more costs.
#[derive(Debug, Default, Clone, Copy)]
struct Slope {
    /// Sums over passes, fading, of products of what they differ by from the means of passes over as many sequences.
    tokens_squared: f64,
    product: f64,
    /// Passes that these are of, fading.
    passes: f64,
    /// In seconds, once known.
    seconds: Option<f64>,
}

impl Slope {
    fn learn(&mut self, tokens_squared: f64, product: f64) {
        self.tokens_squared = self.tokens_squared * FADING + tokens_squared;
        self.product = self.product * FADING + product;
        self.passes = self.passes * FADING + 1.0;
        if self.passes > SEVERAL && self.tokens_squared > TELLING {
            self.seconds = Some(self.product / self.tokens_squared);
        }
    }
}

/// A pass of more tokens than so many times its sequences says nothing of what some tokens more cost.
const SMALL_PASS: usize = MAX_DRAFT + 1;

/// How much a pass counts after the next one.
const FADING: f64 = 0.98;

/// Passes that differ less, in tokens squared, do not tell what one costs.
const TELLING: f64 = 2.5;

/// Fewer passes say little: one of them may have been interrupted, and no others would follow where guesses seem dear.
const SEVERAL: f64 = 8.0;

/// What a token costs before anything is known, over a pass without any.
const FIRST_RATIO: f64 = 0.25;

/// The range of what is believed, over the mean pass.
const SLOPES: std::ops::RangeInclusive<f64> = 0.005..=0.67;

/// Sampling and masks of a guess that came true are not free either.
const OVERHEAD: f64 = 1.15;

impl PassCost {
    /// Learns that a pass over `tokens` tokens of `sequences` sequences, which were expected to cost as much as `work` ordinary
    /// ones, took `seconds`.
    pub fn observe(&mut self, sequences: usize, tokens: usize, work: f64, seconds: f64) {
        if tokens > sequences * SMALL_PASS {
            return;
        }
        if sequences != self.sequences {
            (self.sequences, self.weight) = (sequences, 0.0);
        }
        self.weight = self.weight * FADING + 1.0;
        let (more_tokens, more_seconds) = (work - self.mean_tokens, seconds - self.mean_seconds);
        self.mean_tokens += more_tokens / self.weight;
        self.mean_seconds += more_seconds / self.weight;
        // From the means with this pass; nothing where it is the first of its kind.
        let (tokens_off, seconds_off) = (work - self.mean_tokens, seconds - self.mean_seconds);
        self.slopes[size(sequences)].learn(more_tokens * tokens_off, more_tokens * seconds_off);
    }

    /// Seconds of a pass over what costs as much as `tokens` ordinary tokens; 0 before anything is known.
    pub fn seconds(&self, tokens: f64) -> f64 {
        let slope = self.token_seconds();
        (self.mean_seconds + slope * (tokens - self.mean_tokens)).max(slope * tokens)
    }

    /// Seconds of one more ordinary token in a pass.
    pub fn token_seconds(&self) -> f64 {
        let size = size(self.sequences);
        let seconds = self.slopes[size].seconds.unwrap_or_else(|| {
            let first = self.mean_seconds * FIRST_RATIO / (1.0 + FIRST_RATIO * self.mean_tokens);
            // Not less than beside fewer.
            self.slopes[..size].iter().rev().find_map(|slope| slope.seconds).unwrap_or(0.0).max(first)
        });
        seconds.clamp(self.mean_seconds * SLOPES.start(), self.mean_seconds * SLOPES.end())
    }

    /// Seconds of a pass that took `seconds`, if it had not been over what costs as much as `tokens` ordinary tokens.
    pub fn seconds_without(&self, seconds: f64, tokens: f64) -> f64 {
        (seconds - self.token_seconds() * tokens).max(seconds / 2.0)
    }

    /// The probability from which on a guess is worth its token, an ordinary one, in a pass over `tokens` tokens that samples
    /// `sequences`, where it takes `seconds` to guess: it gives as much per second as the pass does without.
    pub fn worth(&self, tokens: f64, sequences: usize, seconds: f64) -> f32 {
        let pass = self.seconds(tokens);
        let cost = OVERHEAD * self.token_seconds() + seconds;
        if pass > 0.0 { (cost * sequences as f64 / pass) as f32 } else { (OVERHEAD * FIRST_RATIO) as f32 }
    }
}

/// Which of the slopes is that of passes over so many sequences.
fn size(sequences: usize) -> usize {
    sequences.next_power_of_two().ilog2().min(SIZES as u32 - 1) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cost_of_a_token_is_learned() {
        let mut cost = PassCost::default();
        for step in 0..200 {
            let tokens = [1.0, 4.0, 9.0][step % 3];
            cost.observe(1, tokens as usize, tokens, 0.003 + 0.001 * tokens);
        }
        assert!((cost.token_seconds() - 0.001).abs() < 1e-6, "{cost:?}");
        let alone = cost.worth(1.0, 1, 0.0);
        assert!((f64::from(alone) - OVERHEAD * 0.25).abs() < 0.01, "{alone}");
        assert!(cost.worth(16.0, 16, 0.0) > 0.9, "sixteen streams fill a pass");
        assert!((cost.seconds(9.0) - 0.012).abs() < 1e-4, "{cost:?}");
        assert!((cost.seconds_without(0.012, 4.0) - 0.008).abs() < 1e-6, "{cost:?}");
        assert!((cost.seconds_without(0.012, 100.0) - 0.006).abs() < 1e-6, "no less than half of it");
        let asked = cost.worth(1.0, 1, 0.002) - alone;
        assert!((asked - 0.5).abs() < 0.01, "half of a step to guess: {asked}");
        let known = cost.token_seconds();
        for _ in 0..500 {
            cost.observe(1, 1, 1.0, 0.004);
        }
        assert!((cost.token_seconds() - known).abs() < 1e-6, "equal passes tell nothing");
        cost.observe(1, 512, 512.0, 0.2);
        assert!((cost.token_seconds() - known).abs() < 1e-6);
    }

    #[test]
    fn a_sequence_more_does_not_tell_what_a_token_costs() {
        let mut cost = PassCost::default();
        for step in 0..400 {
            let sequences = 1 + step / 10 % 8;
            let tokens = sequences + step % 3;
            let seconds = 0.003 + 0.004 * sequences as f64 + 0.001 * tokens as f64;
            cost.observe(sequences, tokens, tokens as f64, seconds);
        }
        assert!((cost.token_seconds() - 0.001).abs() < 1e-6, "{cost:?}");
        assert!((cost.seconds(10.0) - (0.003 + 0.004 * 8.0 + 0.01)).abs() < 1e-3, "{cost:?}");
    }

    #[test]
    fn what_a_token_costs_beside_few_says_nothing_of_what_it_costs_beside_many() {
        let mut cost = PassCost::default();
        let alone = |step: usize| [1.0, 4.0, 9.0][step % 3];
        for step in 0..100 {
            cost.observe(1, alone(step) as usize, alone(step), 0.05 + 0.002 * alone(step));
        }
        assert!((cost.token_seconds() - 0.002).abs() < 1e-6, "{cost:?}");
        cost.observe(8, 8, 8.0, 0.148);
        let first = 0.148 * FIRST_RATIO / (1.0 + FIRST_RATIO * 8.0);
        assert!((cost.token_seconds() - first).abs() < 1e-6, "{cost:?}");
        for step in 0..100 {
            let tokens = 8 + step % 3;
            cost.observe(8, tokens, tokens as f64, 0.02 + 0.016 * tokens as f64);
        }
        assert!((cost.token_seconds() - 0.016).abs() < 1e-6, "{cost:?}");
        cost.observe(1, 1, 1.0, 0.052);
        assert!((cost.token_seconds() - 0.002).abs() < 1e-6, "what was known stays: {cost:?}");
    }
}
