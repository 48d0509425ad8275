//! The output thread: tokens in, text and frames out.
//!
//! Detokenizes, finds stop strings, keeps usage and latency metrics, and appends to the requests'
//! outboxes; wakes the event loop once per event. Never takes the GIL and never waits for a reader.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender};

use llgtrt_core::{
    Error, ErrorKind, Finish, Receipt, SequenceId, SequenceOutput, StepBatch, StopCause, TokenId,
    TokenOutput, Tokenizer, Vocabulary,
};
use llgtrt_grammar::{MaskPool, Tally};
use llgtrt_text::{LogprobEntry, TextOutput, TextPipe, prompt_logprob_entries, prompt_logprobs_by_token};

use crate::engine_loop::{Command, panic_text};
use crate::gate::Permit;
use crate::held::Held;
use crate::logits::LogitsReport;
use crate::outbox::{Piece, PromptPiece, RequestState};
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

/// What the output thread is told.
pub(crate) enum Event {
    /// Sequences that are about to be submitted.
    Admitted(Vec<NewSequence>),
    /// A step of the engine.
    Step(StepBatch),
    /// The engine did not accept a sequence.
    Refused(SequenceId, Error),
    /// The reader of a request left.
    Closed(Arc<RequestState>),
    /// The engine's thread ended, by request or by failure.
    EngineEnded(Option<Error>),
    /// End the thread; whatever is live has lost its engine.
    Shutdown,
}

/// A sequence in the engine.
#[expect(clippy::struct_excessive_bools, reason = "independent states of a sequence")]
struct Live {
    request: Arc<RequestState>,
    index: u32,
    pipe: TextPipe,
    stop: Arc<[String]>,
    prompt: Option<Arc<[TokenId]>>,
    counts_prompt: bool,
    prompt_only: bool,
    reports: Reports,
    logits: Option<Box<LogitsReport>>,
    started: Option<Instant>,
    first_output: Option<Instant>,
    last_output: Instant,
    /// Nothing of it is delivered any more; it only waits for the engine to let go.
    muted: bool,
    /// Ended here, at a stop string.
    stopped: bool,
    /// Text that is put before the first piece.
    echo: Option<String>,
    /// Tokens that may be withdrawn.
    held: Held,
    receipt: Option<Box<ReceiptDraft>>,
    /// What of the usage is this sequence's.
    counted: Usage,
    /// Held until the engine is done with the sequence.
    _permit: Permit,
}

/// Everything the thread works with.
pub(crate) struct OutputLoop {
    pub events: Receiver<Event>,
    pub commands: Sender<Command>,
    /// Where emptied batches go back to the engine.
    pub batches: Sender<StepBatch>,
    pub shared: Arc<Shared>,
    pub masks: Arc<MaskPool>,
    pub tokenizer: Arc<dyn Tokenizer>,
    live: HashMap<SequenceId, Live>,
    /// Requests that a reader waits for, collected during an event.
    touched: Vec<Arc<RequestState>>,
    /// Why nothing can be generated any more.
    ended: Option<Error>,
}

impl OutputLoop {
    pub(crate) fn new(
        events: Receiver<Event>,
        commands: Sender<Command>,
        batches: Sender<StepBatch>,
        shared: Arc<Shared>,
        masks: Arc<MaskPool>,
        tokenizer: Arc<dyn Tokenizer>,
    ) -> Self {
        Self {
            events,
            commands,
            batches,
            shared,
            masks,
            tokenizer,
            live: HashMap::new(),
            touched: Vec::new(),
            ended: None,
        }
    }

    /// Runs until [`Event::Shutdown`]. A panic ends the service, not the thread: every request, those to come
    /// included, is told of it.
    pub(crate) fn run(mut self) {
        while let Ok(event) = self.events.recv() {
            if matches!(event, Event::Shutdown) {
                break;
            }
            let handled = catch_unwind(AssertUnwindSafe(|| {
                self.handle(event);
                self.flush();
            }));
            if let Err(panic) = handled {
                let error = Error::internal(format!("the output thread failed: {}", panic_text(&*panic)));
                self.engine_ended(Some(error));
                let _ = self.commands.send(Command::Shutdown);
            }
        }
        self.engine_ended(None);
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Admitted(news) => news.into_iter().for_each(|new| self.admit(new)),
            Event::Step(batch) => {
                self.step(&batch);
                // The engine's thread may be gone; then nobody needs the batch.
                let _ = self.batches.send(batch);
            }
            Event::Refused(id, error) => self.end_failed(id, error),
            Event::Closed(request) => self.cancel_request(&request),
            Event::EngineEnded(error) => self.engine_ended(error),
            Event::Shutdown => {}
        }
    }

    fn admit(&mut self, new: NewSequence) {
        if let Some(error) = self.ended.clone() {
            self.masks.remove(new.id);
            self.fail_request(&new.request, error);
            return;
        }
        let live = Live {
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
        };
        self.live.insert(new.id, live);
    }

    fn step(&mut self, batch: &StepBatch) {
        let now = Instant::now();
        let metrics = &self.shared.metrics;
        for (id, at) in batch.started() {
            if let Some(live) = self.live.get_mut(id) {
                live.started = Some(*at);
                live.request.note(|times| _ = times.started.get_or_insert(*at));
                live.request.span.in_scope(|| tracing::debug!(sequence = id.0, "got a slot"));
                metrics.queue_time.observe((*at - live.request.submitted).as_secs_f64());
            }
        }
        let mut forced_tokens = 0;
        let mut total = 0;
        for (output, tokens) in batch.iter() {
            total += tokens.len() as u64;
            forced_tokens += forced(tokens);
            self.sequence_output(output, tokens, now);
            if let Some(finish) = &output.finish {
                self.release(output.id, finish, now);
            }
        }
        let metrics = &self.shared.metrics;
        metrics.generation_tokens.inc_by(total);
        metrics.forced_tokens.inc_by(forced_tokens);
        metrics.sampled_tokens.inc_by(total - forced_tokens);
    }

    fn sequence_output(&mut self, output: &SequenceOutput, tokens: &[TokenOutput], now: Instant) {
        let Some(live) = self.live.get_mut(&output.id) else { return };
        let reported = tokens;
        let (any, mut tokens) = (!reported.is_empty(), live.held.pass(output, reported));
        if live.prompt_only {
            tokens = std::borrow::Cow::default();
        }
        let mut usage = Usage {
            completion_tokens: tokens.len() as u64,
            forced_tokens: forced(&tokens),
            ..Usage::default()
        };
        if any {
            live.observe_tokens(&self.shared, now);
        }
        if let Some(cached) = output.cached_prompt_tokens {
            usage.prompt_tokens = if live.counts_prompt { live.prompt_len() } else { 0 };
            usage.cached_tokens = if live.counts_prompt { u64::from(cached) } else { 0 };
            self.shared.metrics.prompt_tokens.inc_by(live.prompt_len());
        }
        if live.muted {
            return;
        }
        let vocabulary = self.tokenizer.vocabulary();
        let mut released = TextOutput { text: live.echo.take().unwrap_or_default(), logprobs: Vec::new() };
        let prompt = live.prompt_piece(output, vocabulary);
        if let (true, Some(entries), Some(prompt)) =
            (live.reports.echoed, &output.prompt_logprobs, &live.prompt)
        {
            released.logprobs.extend(prompt_logprob_entries(vocabulary, prompt, entries));
        }
        let end_token =
            matches!(output.finish, Some(Finish::Stop(StopCause::EndOfSequence | StopCause::StopToken(_))))
                && live.held.len() == 0;
        let text_tokens = tokens.len() - usize::from(end_token && !tokens.is_empty());
        let mut finish = None;
        for (position, token) in tokens.iter().enumerate() {
            if let Some(stop) = live.pipe.push(vocabulary, token, position < text_tokens, &mut released) {
                let kept = &tokens[..=position];
                usage.completion_tokens = kept.len() as u64;
                usage.forced_tokens = forced(kept);
                finish = Some(ChoiceFinish::StopString(live.stop[stop].clone()));
                break;
            }
        }
        if finish.is_some() {
            live.muted = true;
            live.stopped = true;
            if output.finish.is_none() {
                // The engine's thread may have ended; its own end is reported as an event.
                let _ = self.commands.send(Command::Cancel(output.id));
            }
        } else if let Some(end) = &output.finish {
            // Cut off before it was certain: it counts, but nobody sees it.
            usage.completion_tokens += live.held.len() as u64;
            usage.forced_tokens += live.held.forced() as u64;
            live.pipe.finish(&mut released);
            released.logprobs.extend(live.end_entry(end_token, &tokens));
            match choice_finish(end) {
                Ok(end) => finish = Some(if live.prompt_only { ChoiceFinish::Length } else { end }),
                Err(error) => {
                    let request = Arc::clone(&live.request);
                    self.fail_request(&request, error);
                    return;
                }
            }
        }
        live.counted.completion_tokens += usage.completion_tokens;
        live.counted.forced_tokens += usage.forced_tokens;
        let counted = &tokens[..tokens.len().min(usage.completion_tokens as usize)];
        let receipt =
            live.receipt(finish.as_ref(), &tokens, counted, vocabulary, || self.masks.tally(output.id));
        live.reports.limit(&mut released.logprobs);
        let token_ids = counted.iter().filter(|_| live.reports.token_ids).map(|token| token.token).collect();
        let logits = live.logits.as_mut().map_or(Ok(None), |report| report.take(output, reported, counted));
        let logits = match logits {
            Ok(logits) => logits,
            Err(error) => {
                let request = Arc::clone(&live.request);
                self.fail_request(&request, error);
                return;
            }
        };
        let handover = match (&output.finish, &finish) {
            (Some(Finish::HandedOver(handover)), Some(ChoiceFinish::HandedOver)) => {
                Some(Arc::clone(handover))
            }
            _ => None,
        };
        let piece = Piece {
            text: released.text,
            tokens: usage.completion_tokens,
            token_ids,
            prompt,
            logprobs: released.logprobs,
            logits,
            finish,
            handover,
            receipt,
        };
        if live.request.append(live.index, piece, usage) {
            self.touched.push(Arc::clone(&live.request));
        }
    }

    /// The one place where a sequence leaves: its matcher, its place and its entry go together.
    fn release(&mut self, id: SequenceId, finish: &Finish, now: Instant) {
        self.masks.remove(id);
        let Some(live) = self.live.remove(&id) else { return };
        let metrics = &self.shared.metrics;
        let reason = match finish {
            Finish::Stop(_) => "stop",
            Finish::Length => "length",
            Finish::HandedOver(_) => "handed_over",
            // A stop string found here ends the engine's sequence by cancellation.
            Finish::Cancelled if live.stopped => "stop",
            Finish::Cancelled => "abort",
            Finish::Failed(_) => "error",
        };
        metrics.finished.with_label_values(&[reason]).inc();
        let tokens = live.counted.completion_tokens;
        metrics.prompt_lengths.observe(live.prompt_len() as f64);
        metrics.generation_lengths.observe(tokens as f64);
        live.request.span.in_scope(|| tracing::debug!(sequence = id.0, reason, tokens, "ended"));
        if let Some(first) = live.first_output {
            metrics.decode_time.observe((now - first).as_secs_f64());
        }
        metrics.e2e_latency.observe((now - live.request.submitted).as_secs_f64());
    }

    fn end_failed(&mut self, id: SequenceId, error: Error) {
        if let Some(live) = self.live.get(&id) {
            let request = Arc::clone(&live.request);
            self.fail_request(&request, error.clone());
        }
        self.release(id, &Finish::Failed(error), Instant::now());
    }

    /// Fails a request and ends its other sequences.
    fn fail_request(&mut self, request: &Arc<RequestState>, error: Error) {
        if request.fail(error) {
            self.touched.push(Arc::clone(request));
        }
        self.cancel_request(request);
    }

    fn cancel_request(&mut self, request: &Arc<RequestState>) {
        for (id, live) in &mut self.live {
            if Arc::ptr_eq(&live.request, request) {
                live.muted = true;
                let _ = self.commands.send(Command::Cancel(*id));
            }
        }
    }

    /// Nothing is generated any more: every request gets the error, also where telling one of them panics.
    fn engine_ended(&mut self, error: Option<Error>) {
        let error = match error {
            Some(error) => {
                tracing::error!(error = %error, "the engine failed");
                self.shared.set_failed(&error);
                error
            }
            None => Error::new(ErrorKind::ShuttingDown, "the server is shutting down"),
        };
        self.ended.get_or_insert(error.clone());
        let ids: Vec<_> = self.live.keys().copied().collect();
        for id in ids {
            let error = error.clone();
            if catch_unwind(AssertUnwindSafe(|| self.end_failed(id, error))).is_err() {
                tracing::error!(sequence = id.0, "a sequence could not be ended");
            }
        }
        // One by one: what one of them does to the encoder must not keep the others waiting.
        for request in std::mem::take(&mut self.touched) {
            if catch_unwind(AssertUnwindSafe(|| request.encode_ahead())).is_err() {
                tracing::error!("the end of a request could not be encoded");
            }
            self.shared.deliver([request]);
        }
    }

    /// Encodes and announces what the event brought, with one wake-up.
    fn flush(&mut self) {
        if self.touched.is_empty() {
            return;
        }
        for request in &self.touched {
            request.encode_ahead();
        }
        self.shared.deliver(self.touched.drain(..));
    }
}

impl Reports {
    /// Leaves out alternatives that were not asked for.
    fn limit(&self, entries: &mut [LogprobEntry]) {
        for logprobs in entries.iter_mut().filter_map(|entry| entry.logprobs.as_mut()) {
            logprobs.top.truncate(self.top);
        }
    }
}

impl Live {
    /// The entry of the token that ended an echoed answer. Who has the prompt repeated to learn its
    /// log-probabilities counts on one entry per token, and takes the last for the one that had to be generated.
    fn end_entry(&self, end_token: bool, tokens: &[TokenOutput]) -> Option<LogprobEntry> {
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
    fn receipt(
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
    fn prompt_piece(&self, output: &SequenceOutput, vocabulary: &Vocabulary) -> Option<PromptPiece> {
        output.cached_prompt_tokens?;
        let prompt = self.prompt.as_ref()?;
        let logprobs = self.reports.prompt_top.map(|top| {
            let entries = output.prompt_logprobs.as_deref().unwrap_or_default();
            prompt_logprobs_by_token(vocabulary, prompt, entries, top as usize)
        });
        let token_ids = self.reports.token_ids.then(|| Arc::clone(prompt));
        (logprobs.is_some() || token_ids.is_some()).then_some(PromptPiece { token_ids, logprobs })
    }

    fn prompt_len(&self) -> u64 {
        self.prompt.as_ref().map_or(0, |prompt| prompt.len() as u64)
    }

    fn observe_tokens(&mut self, shared: &Shared, now: Instant) {
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
fn forced(tokens: &[TokenOutput]) -> u64 {
    tokens.iter().filter(|token| token.forced).count() as u64
}

/// How the API words the end of a sequence that nobody here ended.
fn choice_finish(finish: &Finish) -> Result<ChoiceFinish, Error> {
    match finish {
        Finish::Stop(StopCause::StopToken(token)) => Ok(ChoiceFinish::StopToken(*token)),
        Finish::Stop(_) => Ok(ChoiceFinish::Stop),
        Finish::Length => Ok(ChoiceFinish::Length),
        Finish::HandedOver(_) => Ok(ChoiceFinish::HandedOver),
        Finish::Cancelled => Err(Error::new(ErrorKind::ShuttingDown, "the generation was cancelled")),
        Finish::Failed(error) => Err(error.clone()),
    }
}
