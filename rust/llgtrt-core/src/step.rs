//! What an engine reports after a step: tokens per sequence, flat, so that a step allocates nothing per token.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use crate::{Error, Handover, Pass, SequenceId, TokenId};

/// Why a sequence stopped by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopCause {
    /// An end-of-sequence token of the vocabulary; it is the last token reported.
    EndOfSequence,
    /// One of the request's stop tokens; it is the last token reported.
    StopToken(TokenId),
    /// The grammar is complete and allows nothing more; every token reported is text.
    GrammarComplete,
}

/// The end of a sequence. Exactly one is reported per submitted sequence.
#[derive(Debug, Clone, PartialEq)]
pub enum Finish {
    /// Ended by itself.
    Stop(StopCause),
    /// Reached `max_tokens` or the context's end.
    Length,
    /// The prompt is evaluated, as [`Phase::Context`](crate::Phase::Context) asked; another engine goes on.
    HandedOver(Arc<Handover>),
    /// [`Engine::cancel`](crate::Engine::cancel) was called.
    Cancelled,
    /// This sequence failed; its neighbours go on.
    Failed(Error),
}

/// Log-probabilities at one position, natural log, from the model's own distribution (before the
/// mask, the penalties and the temperature), or from that of what the mask allows
/// ([`SamplingParams::allowed_logprobs`](crate::SamplingParams::allowed_logprobs)).
#[derive(Debug, Clone, PartialEq)]
pub struct TokenLogprobs {
    /// Of the token itself. May be `-inf`; encoders clip.
    pub logprob: f32,
    /// The most likely tokens, best first.
    pub top: Vec<(TokenId, f32)>,
    /// The model's own logits at this position, one per entry of the vocabulary, where they are asked for
    /// ([`SamplingParams::logits_rows`](crate::SamplingParams::logits_rows)). Shared: a copy is a megabyte.
    pub row: Option<Arc<[f32]>>,
}

/// One generated token.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenOutput {
    /// The token.
    pub token: TokenId,
    /// Forced by the grammar rather than sampled.
    pub forced: bool,
    /// Probability, in the distribution of [`TokenLogprobs`], of the tokens that the mask had removed, where
    /// [`SamplingParams::removed_mass`](crate::SamplingParams::removed_mass) asked for it. Of a forced token only
    /// where its logits were computed.
    pub removed_mass: Option<f32>,
    /// Present if the request asked for it.
    pub logprobs: Option<Box<TokenLogprobs>>,
}

/// The part of a [`StepBatch`] that belongs to one sequence.
#[derive(Debug, Clone)]
pub struct SequenceOutput {
    /// Whose.
    pub id: SequenceId,
    /// Range in [`StepBatch::tokens`].
    tokens: Range<usize>,
    /// Set on the last output of the sequence.
    pub finish: Option<Finish>,
    /// Prompt tokens found in the engine's cache; set on the output that carries the first token.
    pub cached_prompt_tokens: Option<u32>,
    /// One entry per prompt token (the first has no logprob), if asked for; on the first output.
    pub prompt_logprobs: Option<Vec<Option<TokenLogprobs>>>,
    /// Before the tokens of this output: of all tokens reported, only the first so many stay
    /// ([`AdvanceState::Retract`](crate::AdvanceState::Retract)).
    pub retract_to: Option<usize>,
    /// After the tokens of this output: how many of all tokens reported are certain to stay, at most
    /// ([`AdvanceBatch::certain`](crate::AdvanceBatch::certain)); `None` if all are.
    pub certain: Option<usize>,
}

/// Everything that happened in one [`Engine::poll`](crate::Engine::poll). Reused between polls.
#[derive(Debug, Default)]
pub struct StepBatch {
    outputs: Vec<SequenceOutput>,
    tokens: Vec<TokenOutput>,
    started: Vec<(SequenceId, Instant)>,
    passes: Vec<Pass>,
}

impl StepBatch {
    /// Empties the batch, keeping its memory.
    pub fn clear(&mut self) {
        self.outputs.clear();
        self.tokens.clear();
        self.started.clear();
        self.passes.clear();
    }

    /// Notes that a waiting sequence got its slot: its prefill starts now. Every engine calls it once per
    /// sequence, before the first token: the times of queue and prefill are measured by it.
    pub fn start(&mut self, id: SequenceId) {
        self.started.push((id, Instant::now()));
    }

    /// Sequences that got their slot in this poll, and when. A batch is read after its forward pass, so the time
    /// of reading would count the pass to the queue.
    pub fn started(&self) -> &[(SequenceId, Instant)] {
        &self.started
    }

    /// Notes a forward pass that has ended.
    pub fn pass(&mut self, pass: Pass) {
        self.passes.push(pass);
    }

    /// The forward passes that ended in this poll, the oldest first; of an engine that owns its loop those that it
    /// tells of.
    pub fn passes(&self) -> &[Pass] {
        &self.passes
    }

    /// Whether nothing happened to any sequence.
    pub fn is_empty(&self) -> bool {
        self.outputs.is_empty() && self.started.is_empty()
    }

    /// Starts the output of one sequence; tokens pushed next belong to it.
    pub fn begin(&mut self, id: SequenceId) -> &mut SequenceOutput {
        let start = self.tokens.len();
        self.outputs.push(SequenceOutput {
            id,
            tokens: start..start,
            finish: None,
            cached_prompt_tokens: None,
            prompt_logprobs: None,
            retract_to: None,
            certain: None,
        });
        self.outputs.last_mut().expect("just pushed")
    }

    /// Adds a token to the output begun last.
    pub fn push_token(&mut self, token: TokenOutput) {
        self.tokens.push(token);
        let output = self.outputs.last_mut().expect("push_token after begin");
        output.tokens.end = self.tokens.len();
    }

    /// Ends the sequence whose output was begun last.
    pub fn finish(&mut self, finish: Finish) {
        let output = self.outputs.last_mut().expect("finish after begin");
        debug_assert!(output.finish.is_none(), "a sequence ends once");
        output.finish = Some(finish);
    }

    /// The output begun last.
    pub fn current(&mut self) -> Option<&mut SequenceOutput> {
        self.outputs.last_mut()
    }

    /// Outputs with their tokens, in the order reported.
    pub fn iter(&self) -> impl Iterator<Item = (&SequenceOutput, &[TokenOutput])> {
        self.outputs.iter().map(|output| (output, &self.tokens[output.tokens.clone()]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_belong_to_the_output_begun_last() {
        let token = |token| TokenOutput { token, forced: false, removed_mass: None, logprobs: None };
        let mut batch = StepBatch::default();
        batch.begin(SequenceId(1));
        batch.push_token(token(7));
        batch.push_token(token(8));
        batch.begin(SequenceId(2)).cached_prompt_tokens = Some(3);
        batch.finish(Finish::Length);
        let seen: Vec<_> = batch
            .iter()
            .map(|(o, t)| (o.id.0, t.iter().map(|t| t.token).collect::<Vec<_>>(), o.finish.clone()))
            .collect();
        assert_eq!(seen, vec![(1, vec![7, 8], None), (2, vec![], Some(Finish::Length))]);
        batch.clear();
        assert!(batch.is_empty());
    }
}
