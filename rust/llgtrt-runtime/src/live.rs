//! A sequence from its admission to its end, as the output thread has it: what is asked of it, what was counted and
//! noted of it so far.

use std::sync::Arc;
use std::time::Instant;

use llgtrt_core::{
    Error, ErrorKind, Finish, Receipt, SequenceId, SequenceOutput, StopCause, TokenId, TokenOutput,
    Vocabulary,
};
use llgtrt_grammar::Tally;
use llgtrt_text::{LogprobEntry, TextPipe, prompt_logprobs_by_token};

use crate::gate::Permit;
use crate::held::Held;
use crate::logits::LogitsReport;
use crate::outbox::{PromptPiece, RequestState};
use crate::receipt::ReceiptDraft;
use crate::request::{ChoiceFinish, Usage};
use crate::shared::Shared;

/// A sequence that the engine will be given.
pub(crate) struct NewSequence {
    pub id: SequenceId,
    pub request: Arc<RequestState>,
    pub index: u32,
    /// Text to put before the answer.
    pub echo: Option<String>,
    /// The prompt, where it is counted or its log-probabilities are reported.
    pub prompt: Option<Arc<[TokenId]>>,
    /// Whether this sequence accounts for its prompt's tokens.
    pub counts_prompt: bool,
    pub reports: Reports,
    /// If rows of logits are reported.
    pub logits: Option<Box<LogitsReport>>,
    /// Only the prompt is asked for: the token that the engine must generate is not shown and not counted.
    pub prompt_only: bool,
    pub stop: Arc<[String]>,
    pub pipe: TextPipe,
    /// If the answer is to have a receipt.
    pub receipt: Option<Box<ReceiptDraft>>,
    pub permit: Permit,
}

/// What is reported of a sequence beside its text.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reports {
    /// The entries of the echoed prompt.
    pub echoed: bool,
    /// Alternatives at each token of the prompt, where its log-probabilities are reported by themselves.
    pub prompt_top: Option<u32>,
    /// Alternatives at each token of the answer: the engine may give more.
    pub top: usize,
    pub token_ids: bool,
}

/// A sequence in the engine.
#[expect(clippy::struct_excessive_bools, reason = "independent states of a sequence")]
pub(crate) struct Live {
    pub request: Arc<RequestState>,
    pub index: u32,
    pub pipe: TextPipe,
    pub stop: Arc<[String]>,
    pub prompt: Option<Arc<[TokenId]>>,
    pub counts_prompt: bool,
    pub prompt_only: bool,
    pub reports: Reports,
    pub logits: Option<Box<LogitsReport>>,
    pub started: Option<Instant>,
    pub first_output: Option<Instant>,
    pub last_output: Instant,
    /// Nothing of it is delivered any more; it only waits for the engine to let go.
    pub muted: bool,
    /// Ended here, at a stop string.
    pub stopped: bool,
    /// Text that is put before the first piece.
    pub echo: Option<String>,
    /// Tokens that may be withdrawn.
    pub held: Held,
    pub receipt: Option<Box<ReceiptDraft>>,
    /// What of the usage is this sequence's.
    pub counted: Usage,
    /// Held until the engine is done with the sequence.
    _permit: Permit,
}

impl Reports {
    /// Leaves out alternatives that were not asked for.
    pub(crate) fn limit(&self, entries: &mut [LogprobEntry]) {
        for logprobs in entries.iter_mut().filter_map(|entry| entry.logprobs.as_mut()) {
            logprobs.top.truncate(self.top);
        }
    }
}

impl Live {
    pub(crate) fn new(new: NewSequence) -> Self {
        Self {
            index: new.index,
            pipe: new.pipe,
            stop: new.stop,
            prompt: new.prompt,
            counts_prompt: new.counts_prompt,
            prompt_only: new.prompt_only,
            reports: new.reports,
            logits: new.logits,
            started: None,
            first_output: None,
            last_output: Instant::now(),
            muted: new.request.is_over(),
            stopped: false,
            echo: new.echo,
            held: Held::default(),
            receipt: new.receipt,
            counted: Usage::default(),
            request: new.request,
            _permit: new.permit,
        }
    }

    /// The entry of the token that ended an echoed answer. Who has the prompt repeated to learn its
    /// log-probabilities counts on one entry per token, and takes the last for the one that had to be generated.
    pub(crate) fn end_entry(&self, end_token: bool, tokens: &[TokenOutput]) -> Option<LogprobEntry> {
        let token = tokens.last().filter(|_| end_token && self.reports.echoed)?;
        Some(LogprobEntry {
            token: token.token,
            characters: 0,
            removed_mass: token.removed_mass,
            logprobs: token.logprobs.clone(),
        })
    }

    /// The receipt of an answer that has ended; before, takes note of its tokens. `counted` are those of them that
    /// belong to the answer.
    pub(crate) fn receipt(
        &mut self,
        finish: Option<&ChoiceFinish>,
        tokens: &[TokenOutput],
        counted: &[TokenOutput],
        vocabulary: &Vocabulary,
        tally: impl FnOnce() -> Tally,
    ) -> Option<Box<Receipt>> {
        let draft = self.receipt.as_mut()?;
        let Some(finish) = finish else {
            draft.observe(tokens);
            return None;
        };
        draft.observe(counted);
        let tally = tally();
        let complete = match finish {
            ChoiceFinish::Stop | ChoiceFinish::StopString(_) => true,
            // Whatever the client's own stop tokens cut off is not looked at.
            ChoiceFinish::StopToken(token) => vocabulary.is_eos(*token),
            ChoiceFinish::Length => tally.closed,
            ChoiceFinish::HandedOver => false,
        };
        Some(Box::new(draft.finish(&self.counted, &tally, complete)))
    }

    /// What is reported of the prompt, with the output that says that it was evaluated.
    pub(crate) fn prompt_piece(
        &self,
        output: &SequenceOutput,
        vocabulary: &Vocabulary,
    ) -> Option<PromptPiece> {
        output.cached_prompt_tokens?;
        let prompt = self.prompt.as_ref()?;
        let logprobs = self.reports.prompt_top.map(|top| {
            let entries = output.prompt_logprobs.as_deref().unwrap_or_default();
            prompt_logprobs_by_token(vocabulary, prompt, entries, top as usize)
        });
        let token_ids = self.reports.token_ids.then(|| Arc::clone(prompt));
        (logprobs.is_some() || token_ids.is_some()).then_some(PromptPiece { token_ids, logprobs })
    }

    pub(crate) fn prompt_len(&self) -> u64 {
        self.prompt.as_ref().map_or(0, |prompt| prompt.len() as u64)
    }

    pub(crate) fn observe_tokens(&mut self, shared: &Shared, now: Instant) {
        if self.first_output.is_none() {
            self.first_output = Some(now);
            self.request.note(|times| _ = times.first_token.get_or_insert(now));
            shared.metrics.time_to_first_token.observe((now - self.request.submitted).as_secs_f64());
            if let Some(started) = self.started {
                shared.metrics.prefill_time.observe((now - started).as_secs_f64());
            }
        } else {
            shared.metrics.inter_token_latency.observe((now - self.last_output).as_secs_f64());
        }
        self.last_output = now;
    }
}

/// How many of the tokens were forced.
pub(crate) fn forced(tokens: &[TokenOutput]) -> u64 {
    tokens.iter().filter(|token| token.forced).count() as u64
}

/// How the API words the end of a sequence that nobody here ended.
pub(crate) fn choice_finish(finish: &Finish) -> Result<ChoiceFinish, Error> {
    match finish {
        Finish::Stop(StopCause::StopToken(token)) => Ok(ChoiceFinish::StopToken(*token)),
        Finish::Stop(_) => Ok(ChoiceFinish::Stop),
        Finish::Length => Ok(ChoiceFinish::Length),
        Finish::HandedOver(_) => Ok(ChoiceFinish::HandedOver),
        Finish::Cancelled => Err(Error::new(ErrorKind::ShuttingDown, "the generation was cancelled")),
        Finish::Failed(error) => Err(error.clone()),
    }
}
