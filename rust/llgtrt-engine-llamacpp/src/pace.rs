//! How many prompt tokens a forward pass takes while other sequences generate, as far as the latest passes tell.
//!
//! Prompts are evaluated in passes that those others hardly notice: with them in the same pass, or with a pass for them after
//! each. Shorter ones would cost more: the weights are read for each anew, the others' passes between them are many, and
//! sequences that wait for their prompts generate late and alone instead of together. So where passes may be longer than those
//! others', they are the shorter, the fewer wait beside those that generate. They are longer where all came together, and those that
//! generate were only the first: what there is of waiting they share.

use std::ops::RangeInclusive;
use std::time::Duration;

/// Weight of the latest pass in what a token or a step costs.
const LATEST: f64 = 0.3;

/// A pass counts for at most so many times what was known: one that took longer was interrupted, as by requests that come. What is known
/// of a step then is all there is while passes are mixed.
const MOST_MORE: f64 = 2.0;

/// Passes of fewer prompt tokens tell nothing: what they cost is mostly that of reading the weights.
const FEW: usize = 16;

/// Tokens of a pass before anything is known.
pub(crate) const FIRST_TOKENS: usize = 64;

/// The least in a pass of their own: fewer tokens cost nearly as much. What [`FEW`] says holds for no full pass then.
const LEAST_TOKENS: usize = FEW;

/// The least in a pass that reads the weights for others anyway: what a prompt attends to is read for all its tokens at once.
const LEAST_BESIDE: usize = 4;

/// The shortest pass, as a part of the longest, and in tokens if so many fit into that: with fewer a token costs more.
const SHORTEST: f64 = 1.0 / 3.0;
const ENOUGH_TOKENS: usize = 64;

/// What prompts have of a pass takes as long as so many steps of the sequences that generate, where that is longer. With one step
/// all was slower, and gaps hardly shorter: fewer tokens cost more each, and sequences wait long for their prompts.
const STEPS: f64 = 2.0;

/// The same of those that are evaluated apart, where fewer tokens at a time cost hardly more.
const STEPS_APART: f64 = 1.0;

/// How long those go on at a time while nothing is generated, in seconds: a request that comes meanwhile is seen then.
const SECONDS_ALONE_APART: f64 = 0.02;

/// The same, and the longest, where those that generate came first and the others had to wait for their prompts: now they wait in turn.
/// Each step in between is one of few sequences then, which takes nearly as long as one of all.
const STEPS_TOGETHER: f64 = 6.0;
const SECONDS_TOGETHER: f64 = 0.15;

/// The longest pass while nothing is generated, or of those that came together, in seconds, but with no fewer tokens than these: a request that comes meanwhile
/// waits for its end.
const ALONE_SECONDS: f64 = 2.0;
const WIDE_TOKENS: usize = 128;

/// What a pass may have of prompts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Part {
    /// In ordinary tokens: those that attend to little.
    pub(crate) tokens: usize,
    /// Of a prompt that does not end in the pass at least so many tokens, whatever they cost.
    pub(crate) least: usize,
    /// Whether a token counts for what it costs. Otherwise for one.
    pub(crate) is_weighed: bool,
}

impl Part {
    /// How many tokens of one prompt that is, where each costs as much as so many ordinary ones.
    pub(crate) fn tokens_at(self, cost: f64) -> usize {
        let cost = if self.is_weighed { cost } else { 1.0 };
        ((self.tokens as f64 / cost) as usize).max(self.least)
    }
}

/// How those that generate came to do so before others that wait for their prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Came {
    /// One of them generated when those were admitted, or passed one by.
    Apart,
    /// All of those were admitted while their prompts were evaluated, which came first.
    Together,
}

impl Came {
    /// Of one that waits, by the order of admission, and those that generate: each's own place in it, and that of the latest that
    /// was admitted before its prompt was evaluated.
    pub(crate) fn of(oldest: Option<u64>, generating: impl IntoIterator<Item = RangeInclusive<u64>>) -> Self {
        let together = oldest.is_none_or(|oldest| generating.into_iter().all(|one| one.contains(&oldest)));
        if together { Self::Together } else { Self::Apart }
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct PrefillPace {
    pass: Duration,
    /// Whether that holds for those that came together as well.
    same_for_all: bool,
    /// Tokens of a pass, where that is fixed.
    fixed: Option<usize>,
    /// Of an ordinary one.
    seconds_per_token: Option<f64>,
    /// Of a pass of so many sequences that generate as its place says; 0 where there was none.
    seconds_per_step: Vec<f64>,
}

impl PrefillPace {
    /// What prompts have of a pass takes `pass` at most, or twice as long as a step of the sequences that generate, of which
    /// there are `slots` at most, where that is longer; or it has `fixed` tokens.
    pub(crate) fn new(pass: Duration, fixed: Option<usize>, slots: usize) -> Self {
        Self {
            pass,
            same_for_all: true,
            fixed,
            seconds_per_token: None,
            seconds_per_step: vec![0.0; slots + 1],
        }
    }

    /// But longer for those that come together.
    pub(crate) fn with_longer_together(self) -> Self {
        Self { same_for_all: false, ..self }
    }

    /// Learns that a pass over `tokens` tokens of prompts, which were expected to cost as much as `work` ordinary ones, took
    /// `elapsed`.
    pub(crate) fn observe_prompts(&mut self, tokens: usize, work: f64, elapsed: Duration) {
        if tokens >= FEW {
            self.observe_token(elapsed.as_secs_f64() / work);
        }
    }

    fn observe_token(&mut self, latest: f64) {
        self.seconds_per_token = Some(learned(self.seconds_per_token.unwrap_or(0.0), latest));
    }

    /// The same of a pass over those of `generating` sequences as well. It takes the place of two passes, and may take as long
    /// as they would.
    pub(crate) fn observe_mixed(&mut self, tokens: usize, work: f64, generating: usize, elapsed: Duration) {
        let elapsed = elapsed.as_secs_f64();
        let step = self.step(generating).min(elapsed / 2.0);
        // Beside a step that takes longer than they do, few tokens tell nothing.
        let tells = |cost: f64| work * cost >= step / 2.0;
        if tokens >= FEW || (tokens > 0 && self.seconds_per_token.is_some_and(tells)) {
            self.observe_token((elapsed - step) / work);
        }
    }

    /// Learns that a pass of `generating` sequences took `elapsed`.
    pub(crate) fn observe_step(&mut self, generating: usize, elapsed: Duration) {
        let latest = elapsed.as_secs_f64();
        if let Some(known) = self.seconds_per_step.get_mut(generating) {
            *known = learned(*known, latest);
        }
    }

    /// Seconds of a pass of so many sequences. If none is known, as much as with fewer, and what as many tokens of prompts as there are
    /// sequences more would take; but no more than with more, and no less than its part of that.
    fn step(&self, generating: usize) -> f64 {
        let steps = &self.seconds_per_step;
        let known = |place: &usize| steps[*place] > 0.0;
        let fewer = (0..steps.len().min(generating + 1)).rfind(known);
        let more = (generating..steps.len()).find(known);
        let further = |fewer: usize| (generating - fewer) as f64 * self.seconds_per_token.unwrap_or(0.0);
        let least = fewer.map_or(0.0, |fewer| steps[fewer] + further(fewer));
        let Some(more) = more else { return least };
        let part = steps[more] * generating as f64 / more.max(1) as f64;
        least.clamp(part.min(steps[more]), steps[more])
    }

    /// How long prompts that are evaluated apart go on at a time, where so many are and so many sequences generate.
    pub(crate) fn slice(&self, waiting: usize, generating: usize, came: Came) -> Duration {
        let (seconds, _) = self.seconds_of_prompts(waiting, generating, came, STEPS_APART);
        Duration::from_secs_f64(if generating > 0 { seconds } else { SECONDS_ALONE_APART })
    }

    /// Seconds of an ordinary token, if that is known.
    pub(crate) fn token_seconds(&self) -> Option<f64> {
        self.seconds_per_token
    }

    /// What prompts have of a pass, where so many of them wait and so many sequences generate, which are `beside` them in the
    /// pass or have passes of their own.
    pub(crate) fn part(&self, waiting: usize, generating: usize, beside: bool, came: Came) -> Part {
        if let Some(tokens) = self.fixed {
            return Part { tokens, least: 0, is_weighed: false };
        }
        let (seconds, longest) = self.seconds_of_prompts(waiting, generating, came, STEPS);
        let least = if beside { LEAST_BESIDE } else { LEAST_TOKENS };
        let measured = self.seconds_per_token.map(|cost| {
            let enough = ((longest / cost) as usize).min(ENOUGH_TOKENS);
            ((seconds / cost) as usize).max(enough).max(least)
        });
        Part { tokens: measured.unwrap_or(FIRST_TOKENS), least, is_weighed: true }
    }

    /// How long prompts may take before those that generate go on, with `steps` of their steps at least; and the longest of that, whatever
    /// their number.
    fn seconds_of_prompts(&self, waiting: usize, generating: usize, came: Came, steps: f64) -> (f64, f64) {
        let part = (2 * waiting) as f64 / (waiting + generating).max(1) as f64;
        let part = part.clamp(SHORTEST, 1.0);
        let step = self.step(generating);
        let (longest, steps) = if came == Came::Together && !self.same_for_all {
            let together = (STEPS_TOGETHER * part).min(ALONE_SECONDS / step);
            (self.pass.as_secs_f64().max(SECONDS_TOGETHER), together.max(steps))
        } else {
            (self.pass.as_secs_f64(), steps)
        };
        ((longest * part).max(steps * step), longest.max(steps * step))
    }

    /// Most tokens of a pass over prompts while nothing is generated, where each costs as much as so many ordinary ones.
    pub(crate) fn tokens_alone(&self, cost: f64) -> usize {
        let measured = self.seconds_per_token.map(|seconds| (ALONE_SECONDS / (seconds * cost)) as usize);
        measured.map_or(usize::MAX, |tokens| tokens.max(WIDE_TOKENS))
    }
}

/// What is known from now on; 0 before anything is.
fn learned(known: f64, latest: f64) -> f64 {
    if known > 0.0 { known + LATEST * (latest.min(MOST_MORE * known) - known) } else { latest }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn pace() -> PrefillPace {
        PrefillPace::new(50 * MS, None, 8)
    }

    /// Of a pass of prompts alone.
    fn tokens(pace: &PrefillPace, waiting: usize, generating: usize) -> usize {
        pace.part(waiting, generating, false, Came::Apart).tokens
    }

    #[test]
    fn the_cost_of_a_token_is_learned() {
        let mut pace = pace();
        assert_eq!(tokens(&pace, 1, 0), FIRST_TOKENS);
        pace.observe_prompts(200, 200.0, 80 * MS);
        assert_eq!(tokens(&pace, 1, 0), 125);
        for _ in 0..50 {
            pace.observe_prompts(200, 200.0, 160 * MS);
        }
        assert!((61..=63).contains(&tokens(&pace, 1, 0)), "{pace:?}");
    }

    #[test]
    fn a_pass_takes_no_less_than_two_steps() {
        let mut pace = pace();
        pace.observe_prompts(200, 200.0, 200 * MS);
        assert_eq!(tokens(&pace, 1, 1), 50);
        pace.observe_step(1, 80 * MS);
        assert_eq!(tokens(&pace, 1, 1), 160);
        assert_eq!(tokens(&pace, 1, 0), 50);
        for _ in 0..50 {
            pace.observe_step(1, 10 * MS);
        }
        assert_eq!(tokens(&pace, 1, 1), 50);
    }

    #[test]
    fn an_interrupted_pass_tells_little() {
        let mut pace = PrefillPace::new(Duration::ZERO, None, 8);
        for _ in 0..10 {
            pace.observe_prompts(100, 100.0, 100 * MS);
            pace.observe_step(1, 10 * MS);
        }
        assert_eq!(tokens(&pace, 1, 1), 20);
        pace.observe_step(1, 1000 * MS);
        assert_eq!(tokens(&pace, 1, 1), 26);
        pace.observe_prompts(100, 100.0, 10_000 * MS);
        assert_eq!(tokens(&pace, 1, 1), 20);
        for _ in 0..50 {
            pace.observe_prompts(100, 100.0, 1000 * MS);
            pace.observe_step(1, 1000 * MS);
        }
        assert_eq!(tokens(&pace, 1, 1), 199, "but what all take is believed");
    }

    #[test]
    fn a_step_takes_as_long_as_those_of_so_many_sequences_did() {
        let mut pace = PrefillPace::new(Duration::ZERO, None, 8);
        pace.observe_prompts(1000, 1000.0, 1000 * MS);
        pace.observe_step(2, 40 * MS);
        let further = [80, 82, 92];
        assert_eq!([0, 1].map(|generating| tokens(&pace, 1, generating)), [16, 40]);
        assert_eq!(
            [2, 3, 8].map(|generating| tokens(&pace, 1, generating)),
            further,
            "as prompts would take"
        );
        pace.observe_step(8, 120 * MS);
        assert_eq!([1, 2, 3, 4, 8].map(|generating| tokens(&pace, 1, generating)), [40, 80, 90, 120, 240]);
        pace.observe_step(9, 1000 * MS);
        assert_eq!(tokens(&pace, 1, 9), 242, "there are eight slots");
    }

    #[test]
    fn a_pass_is_the_shorter_the_fewer_wait() {
        let of_some = |pace: &PrefillPace| {
            [(1, 0), (4, 1), (1, 1), (1, 2), (1, 3), (1, 9), (0, 0)]
                .map(|(waiting, generating)| tokens(pace, waiting, generating))
        };
        let mut fast = pace();
        fast.observe_prompts(1000, 1000.0, 100 * MS);
        assert_eq!(of_some(&fast), [500, 500, 500, 333, 250, 166, 166]);
        fast.observe_step(8, 15 * MS);
        assert_eq!(tokens(&fast, 1, 8), 300, "but no shorter than two steps");
        let mut slower = pace();
        slower.observe_prompts(100, 100.0, 50 * MS);
        assert_eq!(of_some(&slower), [100, 100, 100, 66, 64, 64, 64]);
        let mut slow = pace();
        slow.observe_prompts(100, 100.0, 100 * MS);
        assert_eq!(of_some(&slow), [50; 7]);
    }

    #[test]
    fn what_is_evaluated_apart_goes_on_as_long_as_a_step() {
        let mut pace = PrefillPace::new(Duration::ZERO, None, 8).with_longer_together();
        let slices = |pace: &PrefillPace| {
            [(1, 0, Came::Apart), (1, 2, Came::Apart), (9, 2, Came::Apart), (1, 2, Came::Together)]
                .map(|(waiting, generating, came)| pace.slice(waiting, generating, came).as_millis())
        };
        assert_eq!(slices(&pace), [20, 0, 0, 100], "nothing is known of a step");
        pace.observe_step(2, 10 * MS);
        assert_eq!(slices(&pace), [20, 10, 10, 100]);
        let pace = PrefillPace { pass: 40 * MS, ..pace };
        assert_eq!(slices(&pace), [20, 26, 40, 100], "or as the operator says");
    }

    #[test]
    fn who_was_admitted_while_a_prompt_was_evaluated_came_together_with_it() {
        assert_eq!(Came::of(Some(5), [1..=8, 4..=8, 2..=5]), Came::Together);
        assert_eq!(Came::of(Some(5), [1..=8, 4..=4]), Came::Apart, "one generated already");
        assert_eq!(Came::of(Some(5), [1..=8, 6..=8]), Came::Apart, "one passed it by");
        assert_eq!(Came::of(None, [1..=8, 6..=8]), Came::Together, "nobody waits");
    }

    #[test]
    fn those_that_came_together_wait_for_each_other() {
        let mut pace = PrefillPace::new(Duration::ZERO, None, 8).with_longer_together();
        pace.observe_prompts(1000, 1000.0, 1000 * MS);
        pace.observe_step(1, 10 * MS);
        pace.observe_step(7, 40 * MS);
        let of = |pace: &PrefillPace, waiting, generating| {
            [Came::Apart, Came::Together].map(|came| pace.part(waiting, generating, false, came).tokens)
        };
        assert_eq!(of(&pace, 7, 1), [20, 150], "150 ms");
        assert_eq!(of(&pace, 1, 7), [80, 80], "a third of 150 ms, or of six steps");
        for _ in 0..50 {
            pace.observe_step(1, 100 * MS);
        }
        assert_eq!(of(&pace, 7, 1), [199, 599], "six steps");
        for _ in 0..50 {
            pace.observe_step(1, 512 * MS);
        }
        assert_eq!(of(&pace, 7, 1), [1023, 2000], "two seconds");
        for _ in 0..50 {
            pace.observe_step(1, 100 * MS);
        }
        let pace = PrefillPace { same_for_all: true, ..pace };
        assert_eq!(of(&pace, 7, 1), [200, 200]);
    }

    #[test]
    fn while_nothing_is_generated_a_pass_takes_two_seconds_or_is_wide() {
        let mut pace = pace();
        assert_eq!(pace.tokens_alone(1.0), usize::MAX);
        pace.observe_prompts(512, 512.0, 512 * MS);
        assert_eq!(pace.tokens_alone(1.0), 2000);
        for _ in 0..50 {
            pace.observe_prompts(100, 100.0, 3000 * MS);
        }
        assert_eq!(pace.tokens_alone(1.0), WIDE_TOKENS);
    }

    #[test]
    fn a_pass_has_enough_tokens_to_be_worth_it() {
        let mut pace = pace();
        pace.observe_prompts(100, 100.0, 5000 * MS);
        assert_eq!(pace.part(1, 1, false, Came::Apart).tokens, LEAST_TOKENS);
        assert_eq!(pace.part(1, 1, true, Came::Apart).tokens, LEAST_BESIDE);
    }

    #[test]
    fn passes_of_few_prompt_tokens_tell_nothing() {
        let mut pace = pace();
        pace.observe_prompts(FEW - 1, 15.0, MS);
        pace.observe_mixed(FEW - 1, 15.0, 1, MS);
        assert_eq!(tokens(&pace, 1, 0), FIRST_TOKENS);
    }

    #[test]
    fn a_mixed_pass_may_take_as_long_as_the_two_that_it_stands_for() {
        let mut pace = pace();
        pace.observe_step(1, 30 * MS);
        pace.observe_mixed(100, 100.0, 1, 130 * MS);
        assert_eq!(pace.part(1, 1, true, Came::Apart).tokens, 60, "two steps of 30 ms, and 1 ms for a token");
        pace.observe_mixed(100, 100.0, 1, 40 * MS);
        assert!(pace.seconds_per_token.unwrap() > 0.0, "{pace:?}");
    }

    #[test]
    fn few_tokens_of_a_mixed_pass_tell_what_they_cost_if_that_is_much() {
        let mut pace = PrefillPace::new(Duration::ZERO, None, 8);
        pace.observe_step(1, 10 * MS);
        pace.observe_prompts(100, 100.0, 200 * MS);
        assert_eq!(pace.part(1, 1, true, Came::Apart).tokens, 10);
        pace.observe_mixed(2, 2.0, 1, 40 * MS);
        assert_eq!(pace.part(1, 1, true, Came::Apart).tokens, 10, "the end of a prompt");
        for _ in 0..50 {
            pace.observe_mixed(5, 5.0, 1, 15 * MS);
        }
        assert_eq!(pace.part(1, 1, true, Came::Apart).tokens, 13, "half of the pass is theirs");
        for _ in 0..50 {
            pace.observe_mixed(6, 6.0, 1, 70 * MS);
        }
        assert_eq!(pace.part(1, 1, true, Came::Apart).tokens, LEAST_BESIDE);
    }

    #[test]
    fn tokens_behind_much_take_their_part() {
        let mut pace = PrefillPace::new(30 * MS, None, 8);
        pace.observe_prompts(100, 200.0, 200 * MS);
        let part = pace.part(8, 1, true, Came::Apart);
        assert_eq!([1.0, 3.0, 100.0].map(|cost| part.tokens_at(cost)), [30, 10, LEAST_BESIDE]);
        let fixed = PrefillPace::new(30 * MS, Some(7), 8).part(8, 1, true, Came::Apart);
        assert_eq!([1.0, 3.0, 100.0].map(|cost| fixed.tokens_at(cost)), [7; 3]);
    }

    #[test]
    fn a_pass_can_be_fixed() {
        let mut pace = PrefillPace::new(50 * MS, Some(7), 8);
        assert_eq!(tokens(&pace, 1, 0), 7);
        pace.observe_prompts(64, 64.0, MS);
        pace.observe_step(1, 1000 * MS);
        pace.observe_prompts(64, 64.0, Duration::ZERO);
        assert_eq!(tokens(&pace, 1, 1), 7);
    }

    #[test]
    fn a_clock_that_stands_still_does_no_harm() {
        let mut pace = pace();
        pace.observe_prompts(64, 64.0, Duration::ZERO);
        pace.observe_step(1, Duration::ZERO);
        pace.observe_mixed(4, 4.0, 1, Duration::ZERO);
        pace.observe_mixed(0, 0.0, 1, Duration::ZERO);
        assert!(tokens(&pace, 1, 0) >= LEAST_TOKENS);
        assert!(tokens(&pace, 1, 1) >= LEAST_TOKENS);
        pace.observe_prompts(64, 64.0, 64 * MS);
        assert_eq!(tokens(&pace, 1, 0), 50, "and it may go on");
    }
}
