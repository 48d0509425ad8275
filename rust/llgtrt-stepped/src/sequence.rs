//! One running sequence: what is known of it, what was reported, and when it ends. Plain data, owned by the
//! engine.

use crate::draft::{Acceptance, Drafter, Worth};
use llgtrt_core::sampler::{Sampled, Sampler, token_logprobs};
use llgtrt_core::{
    AdvanceState, Finish, SequenceSpec, StepBatch, StopCause, TokenId, TokenLogprobs, TokenOutput,
};

/// A sequence that holds a slot. Its tokens are the prompt, then the generated ones; the slot knows how many
/// of them have been evaluated.
pub struct Sequence {
    /// What it was asked.
    pub spec: SequenceSpec,
    /// Draws its tokens.
    pub sampler: Sampler,
    /// Sampled and forced tokens.
    pub generated: Vec<TokenId>,
    /// How many of `generated` were put into `outbox`. The rest were forced.
    reported: usize,
    /// Tokens for the next report.
    pub outbox: Vec<TokenOutput>,
    /// How it ends, once everything generated has been reported.
    pub closing: Option<Finish>,
    /// Whether the whole prompt has been evaluated.
    pub started: bool,
    /// Whether the mask source has not seen the latest tokens.
    pub unseen: bool,
    /// Generated tokens that are certain to stay, as the mask source said last.
    pub certain: Option<usize>,
    /// Tokens that stay of those that were reported, where others were withdrawn since.
    pub retract_to: Option<usize>,
    /// Prompt tokens found in the cache; taken by the first report.
    pub cached: Option<u32>,
    /// Log-probabilities of the prompt, if asked for; taken by the first report.
    pub prompt_logprobs: Option<Vec<Option<TokenLogprobs>>>,
    /// Order of admission.
    pub age: u64,
    /// Age of the latest that was admitted before this one's prompt was evaluated, once that is.
    pub waited_for_by: Option<u64>,
    drafter: Drafter,
    /// Guesses at the tokens behind those that are known, for the present pass.
    pub draft: Vec<TokenId>,
    /// Position of the first guess.
    guessed_from: usize,
    /// Tokens that could be expected to come true of what a small model's guesses took the place of.
    without_model: f32,
    /// Tokens that a pass gives it, on average over the latest that it shared: one, and the guesses that came true.
    rate: f32,
    /// How many times as much as an ordinary token a guess costs, in the present pass.
    price: f32,
}

/// Weight of the latest pass in the tokens that one gives a sequence.
const LATEST_PASS: f32 = 1.0 / 32.0;

/// What guesses cost where sequences share passes: all wait for one that one of them wins by. They are to shorten the time that the
/// sequences wait for a token, on average over them. With r tokens of a pass a sequence waits 1/r of it for each, and with a few more
/// of them less by 1/r² for each: so a guess is worth the less, the more its sequence has won already, and one whose text repeats
/// does not take the passes of all others.
#[derive(Debug, Clone, Copy)]
pub struct Prices {
    /// What a token more is worth, on average over the sequences.
    value: f32,
}

impl Prices {
    /// Of the sequences that a pass gives tokens.
    pub fn among<'a>(sequences: impl Iterator<Item = &'a Sequence>) -> Self {
        let (count, sum) =
            sequences.fold((0, 0.0), |(count, sum), sequence| (count + 1, sum + sequence.token_value()));
        Self { value: sum / count.max(1) as f32 }
    }

    /// How many times as much as an ordinary token a guess of one of them costs, which takes as long as `work` such tokens.
    pub fn of(self, sequence: &Sequence, work: f64) -> f32 {
        work as f32 * self.value / sequence.token_value()
    }
}

impl Sequence {
    /// A sequence that was just given its slot, of whose prompt `cached` tokens were there already; `age` is the order of
    /// admission.
    pub fn new(spec: SequenceSpec, eos: &[TokenId], cached: usize, age: u64) -> Self {
        let sampler = Sampler::new(spec.sampling.clone(), &spec.prompt, eos, &spec.stop_token_ids);
        Self {
            sampler,
            generated: Vec::with_capacity(spec.max_tokens.min(1024) as usize),
            reported: 0,
            outbox: Vec::new(),
            closing: None,
            started: false,
            unseen: spec.constrained,
            certain: None,
            retract_to: None,
            cached: Some(cached as u32),
            prompt_logprobs: spec.prompt_logprobs.then(|| vec![None]),
            age,
            waited_for_by: None,
            drafter: Drafter::default(),
            draft: Vec::new(),
            guessed_from: 0,
            without_model: 0.0,
            rate: 1.0,
            price: 1.0,
            spec,
        }
    }

    /// Tokens known so far.
    #[expect(clippy::len_without_is_empty, reason = "a prompt has tokens")]
    pub fn len(&self) -> usize {
        self.spec.prompt.len() + self.generated.len()
    }

    /// The token at a position; behind the known ones, until another is known, what is guessed.
    pub fn token(&self, position: usize) -> TokenId {
        match position.checked_sub(self.len()) {
            Some(guess) => self.draft[guess],
            None => known(&self.spec.prompt, &self.generated, position),
        }
    }

    /// What one token more of a pass is worth to it: see [`Prices`].
    fn token_value(&self) -> f32 {
        (self.rate * self.rate).recip()
    }

    /// How many times as much as an ordinary token a guess costs, as [`guess`](Self::guess) was told.
    pub fn price(&self) -> f32 {
        self.price
    }

    /// Guesses at the tokens to come from what is known; none that the sequence has no room for, and none that is not worth
    /// it: see [`PassCost::worth`](crate::pass_cost::PassCost::worth), which is multiplied by `price` here.
    pub fn guess(&mut self, worth: f32, price: f32, context: usize) {
        self.price = price;
        self.drafter.clear(&mut self.draft);
        self.guessed_from = self.len();
        let most = self.room_for_guesses(context);
        if most == 0 {
            return;
        }
        let (prompt, generated) = (&self.spec.prompt, &self.generated);
        let token = |position| known(prompt, generated, position);
        self.drafter.propose(prompt.len() + generated.len(), token, most, worth * price, &mut self.draft);
    }

    /// Expects a small model to be right as often as `usual` says.
    pub fn expect_of_model(&mut self, usual: &Acceptance) {
        self.drafter.expect(usual);
    }

    /// Whether a small model is to guess in place of what is repeated. Asked once for each token, after
    /// [`guess`](Self::guess).
    pub fn wants_model(&mut self, worth: Worth, context: usize) -> bool {
        if self.room_for_guesses(context) == 0 {
            return false;
        }
        let worth = worth.times(self.price);
        let gain = self.drafter.gain_of_model(worth);
        let wants = gain > 0.0 && gain > self.drafter.gain_of_draft(worth);
        self.without_model = if wants { self.drafter.expected() } else { 0.0 };
        if wants {
            self.drafter.clear(&mut self.draft);
        } else {
            self.drafter.without_model();
        }
        wants
    }

    /// The probability of each guess that it and those before it come true, as far as is known.
    pub fn chances(&self) -> impl Iterator<Item = f32> {
        self.drafter.chances().take(self.draft.len())
    }

    /// Whether a small model made the guesses, and how many tokens could be expected to come true without it.
    pub fn guessed_by_model(&self) -> Option<f32> {
        self.drafter.is_of_model().then_some(self.without_model)
    }

    /// Adds a small model's guess at the next token, with the probability that it gives it, if there is room and it is worth
    /// it. `usual` learns what can be expected of it. Answers whether the model is to be asked for one more behind it.
    pub fn guess_more(
        &mut self,
        guess: (TokenId, f32),
        worth: Worth,
        usual: &mut Acceptance,
        context: usize,
    ) -> bool {
        let (room, worth) = (self.room_for_guesses(context), worth.times(self.price));
        self.draft.len() < room
            && self.drafter.push(guess, worth.there, usual, &mut self.draft)
            && self.draft.len() < room
            && self.drafter.wants_more(worth, &self.draft)
    }

    /// Tokens that may be guessed.
    fn room_for_guesses(&self, context: usize) -> usize {
        // Log-probabilities of forced tokens are read from passes that ask for them before they are known.
        // Processors see each row once, after all tokens before it.
        let unfit = self.closing.is_some()
            || !self.started
            || self.spec.processor.is_some()
            || (self.spec.constrained && self.wants_logprobs());
        if unfit {
            return 0;
        }
        let left = (self.spec.max_tokens as usize).saturating_sub(self.generated.len());
        left.min(context - self.len().min(context)).saturating_sub(1)
    }

    /// How many of `cells`, the evaluated tokens, are the sequence's: all known ones, and the guesses that came true.
    pub fn guessed_right(&self, cells: &[TokenId]) -> usize {
        let end = self.len().min(cells.len());
        let right =
            |&position: &usize| cells[position] == known(&self.spec.prompt, &self.generated, position);
        let start = self.guessed_from.min(end);
        start + (start..end).take_while(right).count()
    }

    /// Takes note of a pass that gave it a token and others too, and of how many of its guesses came true in it.
    pub fn shared_pass(&mut self, accepted: usize) {
        self.rate += LATEST_PASS * ((1 + accepted) as f32 - self.rate);
    }

    /// Forgets the guesses, where the first `right` evaluated tokens turned out to be the sequence's. Answers how
    /// many there were and how many came true; `usual` learns it.
    pub fn settle_guesses(&mut self, right: usize, usual: Option<&mut Acceptance>) -> (usize, usize) {
        let counts = (self.draft.len(), right.saturating_sub(self.guessed_from));
        self.drafter.learn(counts.0, counts.1, usual);
        self.drafter.clear(&mut self.draft);
        counts
    }

    /// Tokens to evaluate before anything else can happen: all, unless the end is known.
    pub fn target(&self) -> usize {
        match (&self.closing, self.wants_logprobs()) {
            (None, _) => self.len(),
            (Some(_), true) => (self.len() - 1).max(self.spec.prompt.len()),
            (Some(_), false) => self.spec.prompt.len(),
        }
    }

    /// Whether log-probabilities are asked for.
    pub fn wants_logprobs(&self) -> bool {
        self.spec.sampling.logprobs.is_some()
    }

    /// Whether the logits at `position`, which predict the next token, are needed.
    pub fn wants_output(&self, position: usize) -> bool {
        let next = position + 1;
        let to_sample = self.closing.is_none() && next >= self.len();
        let of_forced = self.wants_logprobs() && next >= self.spec.prompt.len() && next < self.len();
        let of_prompt = self.prompt_logprobs.is_some() && next < self.spec.prompt.len();
        to_sample || of_forced || of_prompt
    }

    /// Whether more than one of the next `pending` positions may need its logits.
    pub fn wants_many_outputs(&self, pending: usize) -> bool {
        pending > 1
            && (self.prompt_logprobs.is_some()
                || (self.wants_logprobs() && !self.generated.is_empty())
                || !self.draft.is_empty())
    }

    /// Adds a token and finds out whether it is the last one. `context` is the longest a sequence can be.
    fn append(&mut self, token: TokenId, eos: &[TokenId], context: usize) {
        self.generated.push(token);
        let count = self.generated.len() as u32;
        let sampling = &self.spec.sampling;
        let may_stop = count > sampling.min_tokens;
        // A grammar gives the end only where it allows nothing else, or as one choice among others.
        let may_end = self.spec.constrained || (may_stop && !sampling.ignore_eos);
        self.closing = if may_stop && self.spec.stop_token_ids.contains(&token) {
            Some(Finish::Stop(StopCause::StopToken(token)))
        } else if may_end && eos.contains(&token) {
            Some(Finish::Stop(StopCause::EndOfSequence))
        } else if count >= self.spec.max_tokens || self.len() >= context {
            Some(Finish::Length)
        } else {
            None
        };
    }

    /// Adds a token that the sampler drew.
    pub fn append_sampled(&mut self, sampled: Sampled, eos: &[TokenId], context: usize) {
        debug_assert_eq!(self.reported, self.generated.len(), "forced tokens are reported before sampling");
        let Sampled { token, removed_mass, logprobs } = sampled;
        self.append(token, eos, context);
        self.outbox.push(TokenOutput { token, forced: false, removed_mass, logprobs });
        self.reported = self.generated.len();
        // At its end, too: the grammar may be complete right there, or may not let it end like this.
        self.unseen = self.spec.constrained;
    }

    /// Follows the grammar's answer to [`advance`](llgtrt_core::MaskSource::advance): adds the tokens it forces,
    /// up to the end of the sequence, then takes its state.
    pub fn follow(&mut self, forced: &[TokenId], state: &AdvanceState, eos: &[TokenId], context: usize) {
        self.unseen = false;
        let mut left = forced.iter();
        while self.closing.is_none()
            && let Some(&token) = left.next()
        {
            self.sampler.accept(token);
            self.append(token, eos, context);
        }
        match (&self.closing, state) {
            (_, &AdvanceState::Retract { keep }) => self.retract(keep),
            // Also of an answer that the end token would have ended: it is not complete.
            (None | Some(Finish::Stop(_)), AdvanceState::Failed(error)) => {
                self.closing = Some(Finish::Failed(error.clone()));
            }
            // Complete exactly at the length limit is complete.
            (None | Some(Finish::Length), AdvanceState::Stop) if left.len() == 0 => {
                self.closing = Some(Finish::Stop(StopCause::GrammarComplete));
            }
            (None, AdvanceState::Limit) if left.len() == 0 => self.closing = Some(Finish::Length),
            _ => {}
        }
    }

    /// Withdraws all but the first `keep` generated tokens. The caller removes them from the cache.
    fn retract(&mut self, keep: usize) {
        let keep = keep.min(self.generated.len());
        self.sampler.retract(&self.generated[keep..]);
        self.generated.truncate(keep);
        self.closing = None;
        let told = self.reported - self.outbox.len();
        self.outbox.truncate(keep.saturating_sub(told));
        self.reported = self.reported.min(keep);
        if keep < told {
            self.retract_to = Some(keep);
        }
    }

    /// Notes that `evaluated` tokens are in the cache, and puts forced tokens that wait for nothing into the
    /// outbox.
    pub fn release(&mut self, evaluated: usize) {
        self.started |= evaluated >= self.spec.prompt.len();
        if self.started && !self.wants_logprobs() {
            self.outbox.extend(self.generated[self.reported..].iter().map(|&token| TokenOutput {
                token,
                forced: true,
                removed_mass: None,
                logprobs: None,
            }));
            self.reported = self.generated.len();
        }
    }

    /// Takes the log-probabilities of the known token after `position` from its row of logits: of the prompt's for the
    /// first report; a forced token is put into the outbox with its own.
    pub fn read_logprobs(&mut self, position: usize, logits: &[f32]) {
        if position + 1 < self.spec.prompt.len() {
            self.read_prompt_logprobs(position, logits);
        } else {
            self.release_with_logprobs(position, logits);
        }
    }

    fn read_prompt_logprobs(&mut self, position: usize, logits: &[f32]) {
        let sampling = &self.spec.sampling;
        let count = sampling.logprobs.unwrap_or(0) as usize;
        let row = sampling.prompt_logits.then(|| logits.into());
        let logprobs = token_logprobs(logits, self.spec.prompt[position + 1], count).ok();
        let logprobs = logprobs.map(|logprobs| TokenLogprobs { row, ..logprobs });
        if let Some(all) = &mut self.prompt_logprobs {
            all.push(logprobs);
        }
    }

    fn release_with_logprobs(&mut self, position: usize, logits: &[f32]) {
        let next = position + 1;
        if let Some(index) = next.checked_sub(self.spec.prompt.len()).filter(|&index| index == self.reported)
            && let Some(&token) = self.generated.get(index)
        {
            let logprobs = self.sampler.logprobs_of(logits, token, index as u32);
            // The mask had allowed nothing else.
            let wanted = logprobs.as_ref().filter(|_| self.spec.sampling.removed_mass);
            let removed_mass = wanted.map(|own| (1.0 - own.logprob.exp()).clamp(0.0, 1.0));
            self.outbox.push(TokenOutput { token, forced: true, removed_mass, logprobs });
            self.reported += 1;
        }
    }

    /// Moves what is new into the output of a step; its end is the caller's.
    pub fn report(&mut self, batch: &mut StepBatch) {
        let output = batch.begin(self.spec.id);
        output.cached_prompt_tokens = self.cached.take();
        output.prompt_logprobs = self.prompt_logprobs.take();
        output.retract_to = self.retract_to.take();
        output.certain = self.certain;
        for token in self.outbox.drain(..) {
            batch.push_token(token);
        }
    }

    /// Whether it has ended and everything was put into the outbox.
    pub fn is_done(&self) -> bool {
        match &self.closing {
            Some(Finish::Failed(_)) => true,
            Some(_) => self.started && self.reported == self.generated.len(),
            None => false,
        }
    }
}

/// The token at a position of a prompt and what follows it.
fn known(prompt: &[TokenId], generated: &[TokenId], position: usize) -> TokenId {
    if position < prompt.len() { prompt[position] } else { generated[position - prompt.len()] }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pass_cost::PassCost;
    use llgtrt_core::{SamplingParams, SequenceId};

    const EOS: &[TokenId] = &[2];

    fn sequence(max_tokens: u32, sampling: SamplingParams) -> Sequence {
        let spec = SequenceSpec {
            id: SequenceId(1),
            prompt: [5, 6, 7].into(),
            max_tokens,
            sampling,
            stop_token_ids: [9].into(),
            constrained: true,
            prompt_logprobs: false,
            options: None,
            processor: None,
            phase: llgtrt_core::Phase::Whole,
        };
        Sequence::new(spec, EOS, 0, 0)
    }

    fn sampled(token: TokenId) -> Sampled {
        Sampled { token, removed_mass: None, logprobs: None }
    }

    #[test]
    fn a_forced_run_is_cut_at_its_end() {
        let mut sequence = sequence(3, SamplingParams::default());
        sequence.follow(&[11, 12, 13, 14], &AdvanceState::Stop, EOS, 100);
        assert_eq!(sequence.generated, [11, 12, 13]);
        assert_eq!(sequence.closing, Some(Finish::Length));
        assert_eq!(sequence.target(), 3);
        assert!(!sequence.is_done());
        sequence.release(3);
        assert!(sequence.is_done());
        assert!(sequence.outbox.iter().all(|token| token.forced) && sequence.outbox.len() == 3);
    }

    /// A pass over `count` sequences, the first `repeating` of which say the same again and again: its seconds, where one takes 5 ms and
    /// half a millisecond for each token, and the guesses that came true.
    fn pass(cost: &mut PassCost, sequences: &mut [Sequence], repeating: usize) -> (f64, usize) {
        let count = sequences.len();
        let there = cost.worth(count as f64, count, 0.0);
        let prices = Prices::among(sequences.iter());
        for sequence in &mut *sequences {
            sequence.guess(there, prices.of(sequence, 1.0), 100_000);
        }
        let tokens: usize = sequences.iter().map(|sequence| 1 + sequence.draft.len()).sum();
        let seconds = 0.005 + 0.0005 * tokens as f64;
        cost.observe(count, tokens, tokens as f64, seconds);
        let mut won = 0;
        for (index, sequence) in sequences.iter_mut().enumerate() {
            let right = if index < repeating { sequence.draft.len() } else { 0 };
            won += right;
            let from = sequence.len();
            for place in 0..=right {
                let token = if index < repeating { (from + place) % 7 } else { 1000 + from };
                sequence.generated.push(token as TokenId);
            }
            sequence.settle_guesses(from + right, None);
            if count > 1 {
                sequence.shared_pass(right);
            }
        }
        (seconds, won)
    }

    /// Milliseconds of a pass, and guesses that came true in it, on average over a thousand of them.
    fn passes(count: usize, repeating: usize) -> (f64, f64) {
        let mut cost = PassCost::default();
        let mut sequences: Vec<_> =
            (0..count).map(|_| sequence(1_000_000, SamplingParams::default())).collect();
        for sequence in &mut sequences {
            sequence.spec.constrained = false;
            sequence.started = true;
        }
        let all = (0..2000).map(|_| pass(&mut cost, &mut sequences, repeating)).skip(1000);
        let (seconds, won) = all.fold((0.0, 0), |sum, pass| (sum.0 + pass.0, sum.1 + pass.1));
        (seconds, won as f64 / 1000.0)
    }

    #[test]
    fn a_sequence_that_repeats_itself_does_not_take_the_passes_of_others() {
        let near = |found: f64, expected: f64| (found - expected).abs() < 0.1 * expected;
        let (alone, guesses) = passes(1, 1);
        assert!(guesses > 14.0 && near(alone, 13.0), "{alone} {guesses}");
        let (all, guesses) = passes(8, 8);
        assert!(guesses > 8.0 * 14.0 && near(all, 69.0), "{all} {guesses}");
        let (beside, guesses) = passes(8, 1);
        assert!(beside < 9.0 * 1.1 && guesses > 0.2, "they wait 9 ms without any: {beside} {guesses}");
        let (beside, guesses) = passes(2, 1);
        assert!(beside < 6.0 * 1.3 && guesses > 2.0, "{beside} {guesses}");
    }

    #[test]
    fn a_grammar_complete_at_the_limit_is_complete() {
        let mut sequence = sequence(3, SamplingParams::default());
        sequence.follow(&[11, 12, 13], &AdvanceState::Stop, EOS, 100);
        assert_eq!(sequence.closing, Some(Finish::Stop(StopCause::GrammarComplete)));
    }

    #[test]
    fn what_is_withdrawn_was_not_reported_or_is_said_to_be() {
        let mut sequence = sequence(9, SamplingParams::default());
        sequence.started = true;
        for token in [11, 12, 13, 2] {
            sequence.append_sampled(sampled(token), EOS, 100);
        }
        assert_eq!(sequence.closing, Some(Finish::Stop(StopCause::EndOfSequence)));
        assert!(sequence.unseen);
        sequence.follow(&[], &AdvanceState::Retract { keep: 3 }, EOS, 100);
        assert_eq!((sequence.closing.clone(), sequence.retract_to), (None, None));
        assert_eq!(sequence.outbox.drain(..).map(|t| t.token).collect::<Vec<_>>(), [11, 12, 13]);
        sequence.append_sampled(sampled(14), EOS, 100);
        sequence.follow(&[], &AdvanceState::Retract { keep: 1 }, EOS, 100);
        assert_eq!((sequence.retract_to, sequence.outbox.len()), (Some(1), 0));
        sequence.append_sampled(sampled(15), EOS, 100);
        assert_eq!((&sequence.generated[..], sequence.outbox.len()), (&[11, 15][..], 1));
    }

    #[test]
    fn an_end_that_the_grammar_refuses_is_a_failure() {
        let mut sequence = sequence(9, SamplingParams::default());
        sequence.append_sampled(sampled(2), EOS, 100);
        sequence.follow(&[], &AdvanceState::Failed(llgtrt_core::Error::internal("no")), EOS, 100);
        assert!(matches!(sequence.closing, Some(Finish::Failed(_))) && sequence.is_done());
    }

    #[test]
    fn with_logprobs_forced_tokens_wait_for_their_logits() {
        let params = SamplingParams { logprobs: Some(0), ..SamplingParams::default() };
        let mut sequence = sequence(8, params);
        sequence.follow(&[11, 9, 12], &AdvanceState::Sample, EOS, 100);
        assert_eq!(sequence.closing, Some(Finish::Stop(StopCause::StopToken(9))));
        assert_eq!(sequence.target(), 4);
        assert_eq!([1, 2, 3, 4].map(|position| sequence.wants_output(position)), [false, true, true, false]);
        sequence.release(3);
        assert!(sequence.outbox.is_empty());
        sequence.release_with_logprobs(2, &[0.0; 16]);
        sequence.release_with_logprobs(3, &[0.0; 16]);
        assert!(sequence.is_done());
        assert!(sequence.outbox.iter().all(|token| token.logprobs.is_some()));
    }

    #[test]
    fn ends_respect_min_tokens_and_ignore_eos() {
        let params = SamplingParams { min_tokens: 1, ..SamplingParams::default() };
        let mut early = sequence(8, params);
        early.spec.constrained = false;
        early.append_sampled(sampled(2), EOS, 100);
        assert_eq!(early.closing, None);
        early.append_sampled(sampled(2), EOS, 100);
        assert_eq!(early.closing, Some(Finish::Stop(StopCause::EndOfSequence)));
        let params = SamplingParams { ignore_eos: true, ..SamplingParams::default() };
        let mut ignoring = sequence(8, params);
        ignoring.spec.constrained = false;
        ignoring.append_sampled(sampled(2), EOS, 100);
        assert_eq!(ignoring.closing, None);
        ignoring.append_sampled(sampled(4), EOS, 5);
        assert_eq!(ignoring.closing, Some(Finish::Length));
    }
}
