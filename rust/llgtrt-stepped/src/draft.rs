//! Drafts: guesses at a sequence's next tokens, evaluated in the same forward pass as the last known one.
//!
//! Every token is sampled from its own logits, under its own mask and by the sequence's own generator; a draft only
//! decides whether those logits are known already. What was guessed wrong leaves the cache again. Drafts are what
//! followed the same tokens earlier, in the prompt or in the answer: an answer that quotes its prompt, as an
//! extraction does, is mostly guessed right.
//!
//! Their length follows from what was measured: how many guesses came true behind as many tokens that agree with the
//! earlier place, and what a token more costs a pass. Plain data, owned by the engine.

use std::collections::HashMap;

use llgtrt_core::TokenId;

/// Longest draft. With the token before it, one tile of the matrix kernels for batches.
const MAX_DRAFT: usize = 15;

/// Lengths of the runs of tokens that are looked up, the more telling first. A value that is copied into quotes begins
/// otherwise than in the text, so often one token is all that is known of its place.
const RUNS: [usize; 3] = [4, 2, 1];

/// From so many tokens on, by class, the text before the next token agrees with that of the earlier place.
const AGREEING: [usize; 6] = [1, 2, 3, 4, 6, 9];

/// Share of guesses that come true in each class before anything was guessed, and where it goes back to while nothing
/// is.
const PRIOR: [f32; AGREEING.len()] = [0.45, 0.55, 0.65, 0.7, 0.8, 0.85];

/// Weight of the latest guess in the share of guesses that came true.
const LATEST: f32 = 0.15;

/// How fast it goes back, for each token without a draft. A sequence whose guesses fail guesses again after some
/// hundreds of tokens, which costs it less than a hundredth.
const FORGETTING: f32 = 0.002;

/// One sequence's drafts.
#[derive(Debug, Default)]
pub struct Drafter {
    /// For each length of `RUNS`: the position behind a run, where it occurred last.
    behind: [HashMap<[TokenId; 4], u32>; RUNS.len()],
    /// Tokens that have been looked at.
    indexed: usize,
    /// Share of guesses that came true.
    came_true: Shares,
    /// Tokens that agree before the present draft.
    agreeing: usize,
}

#[derive(Debug)]
struct Shares([f32; AGREEING.len()]);

impl Default for Shares {
    fn default() -> Self {
        Self(PRIOR)
    }
}

/// The class of a guess behind so many tokens that agree, at least 1.
fn class(agreeing: usize) -> usize {
    AGREEING.partition_point(|&least| least <= agreeing).saturating_sub(1)
}

impl Drafter {
    /// Writes to `draft` what probably follows the `len` tokens that `token` gives by position: at most `most`
    /// tokens, each of which comes true with a probability of at least `worth`, as far as is known.
    pub fn propose(
        &mut self,
        len: usize,
        token: impl Fn(usize) -> TokenId,
        most: usize,
        worth: f32,
        draft: &mut Vec<TokenId>,
    ) {
        draft.clear();
        self.index(len, &token);
        let found = RUNS.iter().zip(&self.behind).find_map(|(&run, behind)| {
            let start = len.checked_sub(run)?;
            let behind = *behind.get(&key(start, run, &token))? as usize;
            // What was withdrawn since may have been indexed: its place can be taken by other tokens.
            (behind < len).then_some(behind)
        });
        let Some(behind) = found else { return };
        let longest = AGREEING[AGREEING.len() - 1].min(behind);
        self.agreeing = (1..=longest).take_while(|&back| token(behind - back) == token(len - back)).count();
        let mut probability = 1.0;
        // A draft that reaches the end goes on with itself: the text repeats.
        while draft.len() < most.min(MAX_DRAFT) {
            probability *= self.came_true.0[class(self.agreeing + draft.len())];
            if probability < worth {
                break;
            }
            let position = behind + draft.len();
            draft.push(if position < len { token(position) } else { draft[position - len] });
        }
        if draft.is_empty() {
            let class = class(self.agreeing);
            self.came_true.0[class] += FORGETTING * (PRIOR[class] - self.came_true.0[class]);
        }
    }

    /// Learns how many tokens of a draft of `drafted` came true.
    pub fn learn(&mut self, drafted: usize, accepted: usize) {
        for guess in 0..drafted.min(accepted + 1) {
            let share = &mut self.came_true.0[class(self.agreeing + guess)];
            *share += LATEST * (f32::from(u8::from(guess < accepted)) - *share);
        }
    }

    /// Notes the runs that end before the last token; the last run itself must find an earlier one.
    fn index(&mut self, len: usize, token: &impl Fn(usize) -> TokenId) {
        for end in self.indexed.min(len)..len {
            for (behind, &run) in self.behind.iter_mut().zip(&RUNS) {
                if let Some(start) = end.checked_sub(run) {
                    behind.insert(key(start, run, token), end as u32);
                }
            }
        }
        self.indexed = len;
    }
}

fn key(start: usize, run: usize, token: impl Fn(usize) -> TokenId) -> [TokenId; 4] {
    let mut key = [TokenId::MAX; 4];
    for (offset, slot) in key[..run].iter_mut().enumerate() {
        *slot = token(start + offset);
    }
    key
}

/// What forward passes cost, as a straight line over their number of tokens: learned from the latest passes.
#[derive(Debug)]
pub struct PassCost {
    // Sums over passes, fading: number, tokens, seconds, and products.
    weight: f64,
    tokens: f64,
    seconds: f64,
    tokens_squared: f64,
    product: f64,
    /// Seconds of a token over seconds of a pass without any.
    ratio: f64,
}

/// Passes of more tokens say nothing of what some tokens more cost a small one.
const SMALL_PASS: usize = 64;

/// How much a pass counts after the next one.
const FADING: f64 = 0.98;

/// Before anything is known, and the range of what is believed.
const FIRST_RATIO: f64 = 0.25;
const RATIOS: std::ops::RangeInclusive<f64> = 0.01..=2.0;

/// Sampling and masks of a guess that came true are not free either.
const OVERHEAD: f64 = 1.15;

impl Default for PassCost {
    fn default() -> Self {
        Self { weight: 0.0, tokens: 0.0, seconds: 0.0, tokens_squared: 0.0, product: 0.0, ratio: FIRST_RATIO }
    }
}

impl PassCost {
    /// Learns that a pass over `tokens` tokens took `seconds`.
    pub fn observe(&mut self, tokens: usize, seconds: f64) {
        if tokens > SMALL_PASS {
            return;
        }
        let tokens = tokens as f64;
        for (sum, value) in [
            (&mut self.weight, 1.0),
            (&mut self.tokens, tokens),
            (&mut self.seconds, seconds),
            (&mut self.tokens_squared, tokens * tokens),
            (&mut self.product, tokens * seconds),
        ] {
            *sum = *sum * FADING + value;
        }
        let spread = self.weight * self.tokens_squared - self.tokens * self.tokens;
        // Passes of nearly the same size do not tell.
        if self.weight > 8.0 && spread > 0.05 * self.weight * self.weight {
            let slope = (self.weight * self.product - self.tokens * self.seconds) / spread;
            let base = (self.seconds - slope * self.tokens) / self.weight;
            let ratio = if base > 0.0 { slope / base } else { *RATIOS.end() };
            self.ratio = ratio.clamp(*RATIOS.start(), *RATIOS.end());
        }
    }

    /// The probability from which on a guess is worth its token in a pass over `tokens` tokens that samples
    /// `sequences`: it gives as much per second as the pass does without.
    pub fn worth(&self, tokens: usize, sequences: usize) -> f32 {
        let without = sequences as f64 / (1.0 + self.ratio * tokens as f64);
        (OVERHEAD * self.ratio * without) as f32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn propose(drafter: &mut Drafter, text: &[TokenId], most: usize, worth: f32) -> Vec<TokenId> {
        let mut draft = Vec::new();
        drafter.propose(text.len(), |position| text[position], most, worth, &mut draft);
        draft
    }

    #[test]
    fn what_followed_the_same_tokens_is_guessed() {
        let mut drafter = Drafter::default();
        let mut text = vec![1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2];
        assert_eq!(propose(&mut drafter, &text, 4, 0.1), [3, 4, 5, 6]);
        text.extend([3, 9]);
        assert_eq!(propose(&mut drafter, &text, 4, 0.1), [1, 2, 3, 9], "3, 9 never occurred, 9 did");
        text.extend([1]);
        assert_eq!(propose(&mut drafter, &text, 4, 0.1), [2, 3, 9, 1], "9, 1 did, and the text goes on");
        text.extend([10]);
        assert!(propose(&mut drafter, &text, 4, 0.1).is_empty(), "10 never occurred");
    }

    #[test]
    fn the_longer_run_decides_and_the_latest_place() {
        let text = [1, 2, 3, 4, 50, 9, 9, 3, 4, 60, 8, 8, 3, 4, 70, 7, 1, 2, 3, 4];
        assert_eq!(propose(&mut Drafter::default(), &text, 1, 0.1), [50]);
        assert_eq!(propose(&mut Drafter::default(), &text[4..], 1, 0.1), [70]);
    }

    #[test]
    fn a_repetition_goes_on() {
        let text = [5, 1, 2, 1, 2];
        assert_eq!(propose(&mut Drafter::default(), &text, 7, 0.01), [1, 2, 1, 2, 1, 2, 1]);
    }

    #[test]
    fn guesses_that_fail_become_fewer_and_are_tried_again_later() {
        let mut drafter = Drafter::default();
        let text = [1, 2, 3, 4, 5, 6, 7, 8, 1, 2];
        let first = propose(&mut drafter, &text, 15, 0.2).len();
        assert!((3..8).contains(&first), "{first}");
        for _ in 0..20 {
            drafter.learn(3, 0);
        }
        assert!(propose(&mut drafter, &text, 15, 0.2).is_empty());
        let pauses = (0..10_000).take_while(|_| propose(&mut drafter, &text, 15, 0.2).is_empty()).count();
        assert!((100..1000).contains(&pauses), "{pauses}");
        for _ in 0..20 {
            drafter.learn(3, 3);
        }
        assert!(propose(&mut drafter, &text, 15, 0.2).len() > 6);
    }

    #[test]
    fn the_more_tokens_agree_the_longer_the_draft() {
        let mut drafter = Drafter::default();
        let text: Vec<TokenId> = (0..20).chain([99, 3]).collect();
        for _ in 0..20 {
            assert!(propose(&mut drafter, &text, 15, 0.0).len() > 1);
            drafter.learn(2, 0);
        }
        assert!(propose(&mut drafter, &text, 15, 0.2).is_empty(), "one token that agrees has told nothing");
        let copied: Vec<TokenId> = (0..20).chain([99, 3, 4, 5, 6, 7, 8]).collect();
        assert!(propose(&mut drafter, &copied, 15, 0.2).len() > 6, "six of them may");
    }

    #[test]
    fn withdrawn_tokens_do_no_harm() {
        let mut drafter = Drafter::default();
        let long = [1, 2, 3, 4, 1, 2, 7, 1, 2];
        assert_eq!(propose(&mut drafter, &long, 2, 0.1), [7, 1]);
        // Five of them are withdrawn: what is known of their places is a guess like any other.
        let draft = propose(&mut drafter, &[1, 2, 3, 1, 2], 3, 0.1);
        assert!(draft.len() <= 3);
    }

    #[test]
    fn the_cost_of_a_token_is_learned() {
        let mut cost = PassCost::default();
        for step in 0..200 {
            let tokens = [1, 4, 9][step % 3];
            cost.observe(tokens, 0.003 + 0.001 * tokens as f64);
        }
        assert!((cost.ratio - 1.0 / 3.0).abs() < 0.01, "{cost:?}");
        let alone = cost.worth(1, 1);
        assert!((f64::from(alone) - OVERHEAD * 0.25).abs() < 0.01, "{alone}");
        assert!(cost.worth(16, 16) > 0.9, "sixteen streams fill a pass");
        let known = cost.ratio;
        for _ in 0..500 {
            cost.observe(1, 0.004);
        }
        assert!((cost.ratio - known).abs() < 0.05, "equal passes tell nothing");
        cost.observe(512, 0.2);
        assert!((cost.ratio - known).abs() < 0.05);
    }
}
