//! One live sequence: what it was asked, what it said, what of that was reported. Owned by the engine's thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use llgtrt_core::{
    AdvanceState, Finish, MaskSlot, Pass, SequenceSpec, StepBatch, StopCause, TokenId, TokenLogprobs,
    TokenOutput, Vocabulary,
};

use crate::hash::mix;
use crate::logprobs::{self, Choice};
use crate::processed::Said;

/// A sequence with or without a slot.
pub(crate) struct Sequence {
    pub(crate) spec: SequenceSpec,
    /// Everything that its random choices depend on beside the position.
    pub(crate) key: u64,
    /// Indices of the configured faults that concern it.
    pub(crate) faults: Vec<usize>,
    pub(crate) tokens: Vec<TokenId>,
    pub(crate) finish: Option<Finish>,
    /// Prompt tokens still to evaluate; shared by the choices of a request.
    remaining: Arc<AtomicU32>,
    cached: u32,
    /// Generated tokens that passes have taken in.
    evaluated: usize,
    /// Tokens reported so far, and which of the others was sampled.
    reported: usize,
    sampled: Option<usize>,
    /// The mass that the mask had removed from that one, if asked for.
    removed_mass: Option<f32>,
    /// Its log-probabilities among what the mask allowed, if asked for.
    among: Option<TokenLogprobs>,
    first_reported: bool,
    /// What was said in this step, where a processor has yet to change it.
    pub(crate) said: Option<Said>,
    /// Tokens that the grammar knows of.
    advanced: Option<usize>,
    /// Tokens that are certain to stay, as the grammar said last.
    pub(crate) certain: Option<usize>,
    /// Tokens that stay of those that were reported, where others were withdrawn since.
    retract_to: Option<usize>,
    limit: usize,
    /// Whether the prompt is in the prefix cache.
    stored: bool,
}

impl Sequence {
    pub(crate) fn new(spec: SequenceSpec, faults: Vec<usize>, seed: u64, max_sequence_tokens: u32) -> Self {
        let prompt = spec.prompt.iter().fold(seed, |hash, token| mix(hash, u64::from(*token)));
        let sampling = &spec.sampling;
        let greedy = sampling.temperature <= 0.0 || sampling.top_k == 1;
        let limit = spec.max_tokens.min(max_sequence_tokens.saturating_sub(spec.prompt.len() as u32));
        let tokens = spec.first_tokens().to_vec();
        // What another engine has evaluated came with its tokens.
        let remaining = if tokens.is_empty() { spec.prompt.len() as u32 } else { 0 };
        let over = !spec.constrained && tokens.len() >= limit as usize;
        Self {
            key: mix(prompt, if greedy { 0 } else { mix(1, sampling.seed) }),
            faults,
            tokens,
            finish: over.then_some(Finish::Length),
            remaining: Arc::new(AtomicU32::new(remaining)),
            cached: 0,
            evaluated: 0,
            reported: 0,
            sampled: None,
            removed_mass: None,
            among: None,
            first_reported: false,
            said: None,
            advanced: None,
            certain: None,
            retract_to: None,
            limit: limit as usize,
            stored: false,
            spec,
        }
    }

    /// Shares the prompt's evaluation with a sequence that has the same prompt.
    pub(crate) fn join(&mut self, other: &Self) {
        self.remaining = Arc::clone(&other.remaining);
        // A real engine evaluates the last token again, to have its logits.
        self.cached = self.spec.prompt.len() as u32 - 1;
    }

    /// Takes the first `cached` prompt tokens from the prefix cache.
    pub(crate) fn reuse(&mut self, cached: u32) {
        self.cached = cached;
        self.remaining.store(self.spec.prompt.len() as u32 - cached, Ordering::Relaxed);
    }

    /// Whether something of it belongs into the prefix cache: its prompt as soon as that is evaluated, and all at
    /// its end.
    pub(crate) fn must_store(&mut self) -> bool {
        let due = self.is_ready() && (!self.stored || self.finish.is_some());
        self.stored |= due;
        due
    }

    /// Prompt tokens that a choice before it had evaluated, or that were in the prefix cache.
    pub(crate) fn cached(&self) -> u32 {
        self.cached
    }

    /// Takes part in a pass, with up to `budget` prompt tokens or with what is new of its answer; returns the number of
    /// prompt tokens.
    pub(crate) fn evaluate(&mut self, budget: u32, pass: &mut Pass) -> u32 {
        let remaining = self.remaining.load(Ordering::Relaxed);
        let prompt = self.spec.prompt.len();
        if remaining == 0 {
            let context = prompt + self.evaluated.min(self.tokens.len());
            self.evaluated = self.tokens.len();
            pass.add(prompt, context, prompt + self.evaluated - context);
            return 0;
        }
        let taken = remaining.min(budget);
        if taken > 0 {
            pass.add(prompt, prompt - remaining as usize, taken as usize);
            self.remaining.store(remaining - taken, Ordering::Relaxed);
        }
        taken
    }

    /// Whether the prompt is evaluated, so that a token can be sampled.
    pub(crate) fn is_ready(&self) -> bool {
        self.remaining.load(Ordering::Relaxed) == 0
    }

    pub(crate) fn slot(&self) -> MaskSlot<'_> {
        MaskSlot { sequence: self.spec.id, tokens: &self.tokens }
    }

    /// Tokens in the pretended KV cache.
    pub(crate) fn context(&self) -> u64 {
        (self.spec.prompt.len() + self.tokens.len()) as u64
    }

    /// Appends a token that was sampled under a mask, if it was under one.
    pub(crate) fn push_sampled(&mut self, token: TokenId, mask: Option<&[u32]>, vocabulary: &Vocabulary) {
        self.sampled = Some(self.tokens.len());
        self.removed_mass = self.spec.sampling.removed_mass.then(|| {
            let hash = mix(self.key, self.tokens.len() as u64);
            logprobs::removed_mass(hash, mask.map_or(Choice::Free, Choice::Masked), vocabulary)
        });
        let asked = self.spec.sampling.logprobs.filter(|_| self.spec.sampling.allowed_logprobs);
        self.among = asked.map(|count| {
            let hash = mix(self.key, self.tokens.len() as u64);
            logprobs::among(hash, token, count, mask, vocabulary)
        });
        self.push(token, vocabulary);
        // A grammar may be complete exactly at the limit: its answer comes first.
        if self.finish.is_none() && !self.spec.constrained && self.tokens.len() >= self.limit {
            self.finish = Some(Finish::Length);
        }
    }

    /// The logits that `token` comes next from.
    pub(crate) fn row(&self, token: TokenId, vocabulary: &Vocabulary) -> Arc<[f32]> {
        logprobs::row(mix(self.key, self.tokens.len() as u64), token, vocabulary)
    }

    /// Whether the grammar has to be told of new tokens, or of the start.
    pub(crate) fn must_advance(&self) -> bool {
        let failed = matches!(self.finish, Some(Finish::Failed(_)));
        self.spec.constrained && !failed && self.advanced != Some(self.tokens.len())
    }

    /// Whether the next token can be sampled.
    pub(crate) fn must_sample(&self) -> bool {
        self.is_ready() && self.finish.is_none()
    }

    /// Applies what the grammar says after the tokens so far.
    pub(crate) fn advance(&mut self, forced: &[TokenId], state: &AdvanceState, vocabulary: &Vocabulary) {
        if let &AdvanceState::Retract { keep } = state {
            self.retract(keep);
            return;
        }
        self.advanced = Some(self.tokens.len() + forced.len());
        if let (Some(Finish::Stop(_)), AdvanceState::Failed(error)) = (&self.finish, state) {
            // The grammar has a reason against the answer that the end token would have ended.
            self.finish = Some(Finish::Failed(error.clone()));
        }
        if self.finish.is_some() {
            return;
        }
        for &token in forced {
            if self.tokens.len() >= self.limit {
                self.finish = Some(Finish::Length);
                return;
            }
            self.push(token, vocabulary);
            if self.finish.is_some() {
                return;
            }
        }
        self.finish = match state {
            AdvanceState::Stop => Some(Finish::Stop(StopCause::GrammarComplete)),
            AdvanceState::Limit => Some(Finish::Length),
            _ if self.tokens.len() >= self.limit => Some(Finish::Length),
            AdvanceState::Failed(error) => Some(Finish::Failed(error.clone())),
            AdvanceState::Sample | AdvanceState::Retract { .. } => None,
        };
    }

    /// Withdraws all but the first `keep` tokens.
    pub(crate) fn retract(&mut self, keep: usize) {
        self.tokens.truncate(keep);
        self.advanced = Some(self.tokens.len());
        self.finish = None;
        self.sampled = self.sampled.filter(|&position| position < keep);
        if self.reported > self.tokens.len() {
            self.reported = self.tokens.len();
            self.retract_to = Some(self.reported);
        }
    }

    fn push(&mut self, token: TokenId, vocabulary: &Vocabulary) {
        self.tokens.push(token);
        // A grammar that allows the end is complete: ignore_eos cannot go on from there.
        if vocabulary.is_eos(token) && (self.spec.constrained || !self.spec.sampling.ignore_eos) {
            self.finish = Some(Finish::Stop(StopCause::EndOfSequence));
        } else if self.tokens.len() > self.spec.sampling.min_tokens as usize
            && self.spec.stop_token_ids.contains(&token)
        {
            self.finish = Some(Finish::Stop(StopCause::StopToken(token)));
        }
    }

    /// Reports what is new; returns whether the sequence lives on.
    pub(crate) fn report(&mut self, batch: &mut StepBatch, vocabulary: &Vocabulary) -> bool {
        // Runs that were forced before the prompt was evaluated wait for it; a failure does not.
        let failed = matches!(self.finish, Some(Finish::Failed(_)));
        if !self.is_ready() && !failed {
            return true;
        }
        let output = batch.begin(self.spec.id);
        if !self.first_reported && self.is_ready() {
            self.first_reported = true;
            output.cached_prompt_tokens = Some(self.cached);
            if self.spec.prompt_logprobs {
                output.prompt_logprobs = Some(logprobs::of_prompt(&self.spec, vocabulary));
            }
        }
        output.retract_to = self.retract_to.take();
        output.certain = self.certain;
        for position in self.reported..self.tokens.len() {
            let token = self.tokens[position];
            let hash = mix(self.key, position as u64);
            let sampling = &self.spec.sampling;
            let elsewhere = position < self.spec.first_tokens().len();
            let forced = self.sampled != Some(position) && !elsewhere;
            let logprobs = sampling.logprobs.map(|count| {
                let own = match (&self.among, sampling.allowed_logprobs) {
                    (Some(among), true) if !forced => among.clone(),
                    (_, true) => logprobs::of_forced(token, count),
                    (_, false) => logprobs::of_token(hash, token, count, vocabulary),
                };
                let row = (position < sampling.logits_rows as usize)
                    .then(|| logprobs::row(hash, token, vocabulary));
                Box::new(TokenLogprobs { row, ..own })
            });
            // As in engines with a model: the logits of forced tokens are there with log-probabilities only.
            let removed_mass = match (forced, &logprobs) {
                _ if elsewhere => None,
                (false, _) => self.removed_mass,
                (true, Some(_)) if sampling.removed_mass => {
                    Some(logprobs::removed_mass(hash, Choice::Forced, vocabulary))
                }
                (true, _) => None,
            };
            batch.push_token(TokenOutput { token, forced, removed_mass, logprobs });
        }
        self.reported = self.tokens.len();
        self.sampled = None;
        match &self.finish {
            Some(finish) => batch.finish(finish.clone()),
            None => return true,
        }
        false
    }
}
