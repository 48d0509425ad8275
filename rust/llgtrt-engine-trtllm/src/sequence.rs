//! One live sequence: what it was asked, what it said, and why it ends. Owned by the engine's thread.

use std::sync::Arc;

use llgtrt_core::{
    Error, ErrorKind, Finish, Phase, RequestOptions, SequenceSpec, StepBatch, StopCause, TokenId,
    TokenLogprobs, TokenOutput, Vocabulary, token_logprobs,
};

use crate::masks::{MaskCallback, SharedSlot, Verdict};
use crate::native::{Failure, Logits, Native, Response};

/// `tensorrt_llm::executor::FinishReason`, of which later versions may have more.
mod reason {
    pub(super) const END_ID: i32 = 1;
    pub(super) const STOP_WORDS: i32 = 2;
    pub(super) const LENGTH: i32 = 3;
    pub(super) const TIMED_OUT: i32 = 4;
    pub(super) const CANCELLED: i32 = 5;
}

/// A sequence that the executor works on.
pub(crate) struct Live {
    pub(crate) spec: SequenceSpec,
    pub(crate) options: Arc<RequestOptions>,
    /// The executor's id of its request.
    pub(crate) request_id: u64,
    pub(crate) slot: Option<SharedSlot>,
    /// The weights of its adapter were sent a second time.
    pub(crate) retried: bool,
    /// The executor has answered: it has a place in the batch.
    pub(crate) started: bool,
    /// Lines of the log belong to the request that it came with.
    pub(crate) span: tracing::Span,
    tokens: Vec<TokenId>,
    first_reported: bool,
}

/// What a response means for its sequence.
pub(crate) enum Progress {
    GoesOn,
    /// The executor may still be working on it.
    Ended(Finish),
}

/// What it takes to read a response.
pub(crate) struct Reader<'a> {
    pub(crate) native: &'a mut Native,
    pub(crate) vocabulary: &'a Vocabulary,
    pub(crate) vocab_size: usize,
    pub(crate) tokens_per_block: u32,
}

impl Live {
    pub(crate) fn new(
        spec: SequenceSpec,
        options: Arc<RequestOptions>,
        request_id: u64,
        slot: Option<SharedSlot>,
    ) -> Self {
        Self {
            spec,
            options,
            request_id,
            slot,
            retried: false,
            started: false,
            span: tracing::Span::current(),
            tokens: Vec::new(),
            first_reported: false,
        }
    }

    /// Tokens of the prompt and of the answer so far.
    pub(crate) fn len(&self) -> usize {
        self.spec.prompt.len() + self.tokens.len()
    }

    /// Prompt tokens that can have come from the cache.
    pub(crate) fn cached(&self, response: &Response, tokens_per_block: u32) -> u32 {
        let most = (self.spec.prompt.len() as u32).saturating_sub(1);
        response.reused_blocks.saturating_mul(tokens_per_block).min(most)
    }

    /// Reports what a response says.
    pub(crate) fn read(
        &mut self,
        response: &Response,
        reader: &mut Reader<'_>,
        batch: &mut StepBatch,
    ) -> Progress {
        let _within = self.span.clone().entered();
        if !self.started {
            self.started = true;
            batch.start(self.spec.id);
        }
        if let Some(failure) = &response.error {
            batch.begin(self.spec.id);
            return Progress::Ended(Finish::Failed(match failure {
                Failure::Request(text) | Failure::AdapterMissing(text) => {
                    Error::internal(format!("TensorRT-LLM: {text}"))
                }
                Failure::AdapterCacheFull => Error::new(
                    ErrorKind::Overloaded,
                    "all LoRA adapters in TensorRT-LLM's cache are in use; try again later",
                ),
            }));
        }
        match self.report(response, reader, batch) {
            Ok(progress) => progress,
            Err(error) => Progress::Ended(Finish::Failed(error)),
        }
    }

    fn report(
        &mut self,
        response: &Response,
        reader: &mut Reader<'_>,
        batch: &mut StepBatch,
    ) -> Result<Progress, Error> {
        let verdict = self.slot.as_ref().and_then(|slot| slot.lock().verdict.clone());
        let over = |count: usize| verdict.as_ref().filter(|(position, _)| count >= *position);
        let reason = if response.is_final { response.finish_reason } else { 0 };
        if response.tokens.is_empty() && !response.is_final && response.context_logits.is_none() {
            return Ok(Progress::GoesOn);
        }

        let cached = self.cached(response, reader.tokens_per_block);
        let prompt_logprobs = match &response.context_logits {
            Some(logits) if self.spec.prompt_logprobs && !self.first_reported => {
                Some(self.prompt_logprobs(logits, reader.vocab_size)?)
            }
            _ => None,
        };
        let output = batch.begin(self.spec.id);
        output.prompt_logprobs = prompt_logprobs;
        if !self.first_reported && (!response.tokens.is_empty() || reason == reason::END_ID) {
            self.first_reported = true;
            output.cached_prompt_tokens = Some(cached);
        }
        for &token in &response.tokens {
            if let Some((_, verdict)) = over(self.tokens.len()) {
                return Ok(Progress::Ended(finish_of(verdict)));
            }
            self.push(token, reader, batch)?;
            if self.is_generation_at_limit() {
                return Ok(Progress::Ended(self.at_length(reader.native.callback())));
            }
        }
        if let Some((_, verdict)) = over(self.tokens.len()) {
            return Ok(Progress::Ended(finish_of(verdict)));
        }
        if let Some(handover) = response.handover.as_ref().filter(|_| response.is_final) {
            return Ok(Progress::Ended(match self.at_length(reader.native.callback()) {
                Finish::Length => Finish::HandedOver(Arc::new(handover.clone())),
                over => over,
            }));
        }
        if !response.is_final {
            return Ok(Progress::GoesOn);
        }
        self.finish(reason, reader, batch).map(Progress::Ended)
    }

    fn push(&mut self, token: TokenId, reader: &mut Reader<'_>, batch: &mut StepBatch) -> Result<(), Error> {
        let (removed_mass, logprobs) = self.measured(token, reader)?;
        self.tokens.push(token);
        batch.push_token(TokenOutput { token, forced: false, removed_mass, logprobs });
        Ok(())
    }

    /// What was asked of the row that the model made, before masks, biases and temperature: the mass that the mask
    /// removed, and the token's log-probabilities.
    fn measured(
        &mut self,
        token: TokenId,
        reader: &mut Reader<'_>,
    ) -> Result<(Option<f32>, Option<Box<TokenLogprobs>>), Error> {
        let sampling = &self.spec.sampling;
        if sampling.logprobs.is_none() && !sampling.removed_mass {
            return Ok((None, None));
        }
        let position = self.spec.prompt.len() + self.tokens.len();
        let result = reader.native.row_result(self.request_id, position).unwrap_or_default();
        let removed_mass = result.removed_mass.filter(|_| sampling.removed_mass);
        let Some(count) = sampling.logprobs else { return Ok((removed_mass, None)) };
        let row = result.logits.ok_or_else(|| Error::internal("a token came without its logits"))?;
        let row = &row.values[..reader.vocab_size.min(row.values.len())];
        let logprobs = token_logprobs(row, token, count as usize)?;
        let kept = (self.tokens.len() < sampling.logits_rows as usize).then(|| row.into());
        Ok((removed_mass, Some(Box::new(TokenLogprobs { row: kept, ..logprobs }))))
    }

    fn prompt_logprobs(
        &self,
        logits: &Logits,
        vocab_size: usize,
    ) -> Result<Vec<Option<TokenLogprobs>>, Error> {
        let prompt = &self.spec.prompt;
        let rows: Vec<_> = logits.values.chunks_exact(logits.columns.max(1)).collect();
        if rows.len() != prompt.len() {
            return Err(Error::internal("the engine did not return the logits of the whole prompt"));
        }
        let count = self.spec.sampling.logprobs.unwrap_or(0) as usize;
        let known = prompt.iter().skip(1).zip(&rows).map(|(token, row)| {
            let row = &row[..vocab_size.min(row.len())];
            let kept = self.spec.sampling.prompt_logits.then(|| row.into());
            let logprobs = token_logprobs(row, *token, count)?;
            Ok(Some(TokenLogprobs { row: kept, ..logprobs }))
        });
        std::iter::once(Ok(None)).chain(known).collect()
    }

    /// Why the executor has ended the sequence.
    fn finish(
        &mut self,
        reason: i32,
        reader: &mut Reader<'_>,
        batch: &mut StepBatch,
    ) -> Result<Finish, Error> {
        let last = self.tokens.last().copied();
        Ok(match reason {
            reason::END_ID => {
                // The executor does not report the end token; we do.
                if let Some(&eos) = reader.vocabulary.eos().first()
                    && last != Some(eos)
                {
                    self.push(eos, reader, batch)?;
                }
                self.at_end(reader.native.callback())
            }
            reason::STOP_WORDS => match last {
                Some(token) if reader.vocabulary.is_eos(token) && self.stops_at_eos() => {
                    self.at_end(reader.native.callback())
                }
                Some(token) => Finish::Stop(StopCause::StopToken(token)),
                None => Finish::Stop(StopCause::EndOfSequence),
            },
            reason::LENGTH => self.at_length(reader.native.callback()),
            reason::CANCELLED => Finish::Cancelled,
            reason::TIMED_OUT => {
                let error = Error::new(ErrorKind::Overloaded, "the request took longer than it may");
                Finish::Failed(error)
            }
            other => {
                tracing::warn!(
                    reason = other,
                    sequence = self.spec.id.0,
                    "unknown finish reason of TensorRT-LLM"
                );
                self.at_length(reader.native.callback())
            }
        })
    }

    /// The executor may give one token more than are asked for, to a sequence that it has taken over.
    fn is_generation_at_limit(&self) -> bool {
        matches!(self.spec.phase, Phase::Generation(_)) && self.tokens.len() >= self.spec.max_tokens as usize
    }

    fn stops_at_eos(&self) -> bool {
        self.spec.constrained || !self.spec.sampling.ignore_eos
    }

    /// The mask source is told of the end as well, and may have a reason against the answer.
    fn at_end(&self, masks: &MaskCallback) -> Finish {
        let verdict = self.spec.constrained.then(|| masks.last_word(self.spec.id, &self.tokens)).flatten();
        match verdict {
            Some(Verdict::Failed(error)) => Finish::Failed(error),
            _ => Finish::Stop(StopCause::EndOfSequence),
        }
    }

    /// A grammar may be complete exactly at the limit: its answer comes first.
    fn at_length(&self, masks: &MaskCallback) -> Finish {
        let verdict = self.spec.constrained.then(|| masks.last_word(self.spec.id, &self.tokens)).flatten();
        match verdict {
            Some(verdict) => finish_of(&verdict),
            None => Finish::Length,
        }
    }
}

fn finish_of(verdict: &Verdict) -> Finish {
    match verdict {
        Verdict::Stop => Finish::Stop(StopCause::GrammarComplete),
        Verdict::Failed(error) => Finish::Failed(error.clone()),
    }
}
