//! One request as seen from both sides: the output thread appends, the event loop takes.
//!
//! A reader that is slower than the model gets longer chunks, never more of them: output waits as
//! merged text per choice and becomes a frame when the reader asks. The lock is held for appends,
//! encoding and one write that does not wait, so neither side waits noticeably for the other.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use llgtrt_core::{Error, Handover, Receipt, TokenId, Tokenizer, Vocabulary};
use llgtrt_text::{
    ChoiceEnd, ChunkHead, LogprobEntry, SseEncoder, SseKind, chat_logprobs, completion_logprobs,
    token_logprobs,
};

use crate::connection::Connection;
use crate::frames::Frames;
use crate::logits::ChoiceLogits;
use crate::outlet::Outlet;
use crate::request::{
    ChoiceDelta, ChoiceFinish, Delta, GenerateRequest, LogprobsForm, OutputFormat, Payload, Summary, Usage,
};
use crate::sync::{AtomicUsize, Mutex};
use crate::times::Times;

/// Log-probabilities, those of alternatives among them, that may wait to be written out. The output thread writes what
/// is more: the event loop would be held by it.
const MOST_UNWRITTEN: usize = 2048;

/// A piece of one choice's output.
#[derive(Debug, Default)]
pub(crate) struct Piece {
    pub text: String,
    pub tokens: u64,
    pub token_ids: Vec<TokenId>,
    pub prompt: Option<PromptPiece>,
    pub logprobs: Vec<LogprobEntry>,
    pub logits: Option<Box<ChoiceLogits>>,
    pub finish: Option<ChoiceFinish>,
    pub handover: Option<Arc<Handover>>,
    pub receipt: Option<Box<Receipt>>,
}

/// What is reported of a choice's prompt.
#[derive(Debug, Default)]
pub(crate) struct PromptPiece {
    pub token_ids: Option<Arc<[TokenId]>>,
    /// JSON.
    pub logprobs: Option<String>,
}

#[derive(Debug, Default)]
struct Choice {
    text: String,
    tokens: u64,
    token_ids: Vec<TokenId>,
    prompt: PromptPiece,
    logprobs: Vec<LogprobEntry>,
    /// Their JSON, where it was written ahead.
    written: Option<String>,
    logits: Option<Box<ChoiceLogits>>,
    /// Characters whose log-probabilities were delivered.
    offset: usize,
    finish: Option<ChoiceFinish>,
    handover: Option<Arc<Handover>>,
    receipt: Option<Box<Receipt>>,
    dirty: bool,
    finished: bool,
}

impl Choice {
    /// The JSON of the log-probabilities that wait.
    fn take_logprobs(&mut self, form: Option<LogprobsForm>, vocabulary: &Vocabulary) -> Option<String> {
        let written = self.written.take();
        if written.is_some() {
            return written;
        }
        let json = form.map(|form| match form {
            LogprobsForm::Chat => chat_logprobs(vocabulary, &self.logprobs),
            LogprobsForm::Completion => completion_logprobs(vocabulary, &self.logprobs, &mut self.offset),
            LogprobsForm::Tokens => token_logprobs(&self.logprobs),
        });
        self.logprobs.clear();
        json
    }
}

struct Outbox {
    choices: Vec<Choice>,
    /// Choices that have not finished.
    open: usize,
    usage: Usage,
    /// Of the choices that have finished.
    reasons: Vec<&'static str>,
    times: Times,
    error: Option<Error>,
    sse: Option<SseEncoder>,
    /// Frames encoded ahead by the output thread.
    encoded: Frames,
    /// Deltas made ahead by the output thread.
    ahead: VecDeque<Delta>,
    /// Log-probabilities that wait, with those of alternatives.
    unwritten: usize,
    /// The closing frames were encoded.
    ended: bool,
    /// The reader waits for the next drain.
    wanted: bool,
    /// Where frames go while the reader waits.
    outlet: Outlet,
    /// Nothing more will be delivered: the last payload was taken, or the reader left.
    closed: bool,
}

/// Who is to have what was appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Awaited {
    /// Nobody for now: the reader comes for it.
    No,
    /// A reader waits.
    ByReader,
    /// A connection, and it is not in the list of those that something is to be written to.
    ByConnection,
}

/// What became of an attempt to write to a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Written {
    /// What there was.
    All,
    /// A part of it: the connection is in the list once more.
    Part,
    /// There is something for the reader.
    LeftToReader,
}

/// The state of one request.
pub(crate) struct RequestState {
    id: u64,
    format: OutputFormat,
    include_usage: bool,
    logprobs: Option<LogprobsForm>,
    names_text_tokens: bool,
    /// When the request was submitted.
    pub submitted: Instant,
    /// Lines of the log within it name the request.
    pub span: tracing::Span,
    tokenizer: Arc<dyn Tokenizer>,
    active: Arc<AtomicUsize>,
    outbox: Mutex<Outbox>,
}

impl std::fmt::Debug for RequestState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RequestState").field("id", &self.id).finish_non_exhaustive()
    }
}

impl RequestState {
    pub(crate) fn new(
        id: u64,
        request: &GenerateRequest,
        tokenizer: Arc<dyn Tokenizer>,
        active: Arc<AtomicUsize>,
    ) -> Arc<Self> {
        active.fetch_add(1, Ordering::AcqRel);
        let count = request.sequences();
        let sse = match request.output {
            OutputFormat::ChatSse => Some(SseKind::Chat),
            OutputFormat::CompletionSse => Some(SseKind::Completion),
            OutputFormat::Final | OutputFormat::Deltas => None,
        }
        .map(|kind| {
            let head = ChunkHead {
                id: &request.response_id,
                model: &request.model,
                created: request.created,
                system_fingerprint: request.system_fingerprint.as_deref(),
            };
            SseEncoder::new(kind, head, request.include_usage, request.first_chunk_fields.as_deref())
        });
        let logprobs = request.sampling.logprobs.map(|_| match request.output {
            OutputFormat::ChatSse => LogprobsForm::Chat,
            OutputFormat::CompletionSse => LogprobsForm::Completion,
            OutputFormat::Final | OutputFormat::Deltas => request.logprobs_form,
        });
        let times = Times::new();
        Arc::new(Self {
            id,
            format: request.output,
            include_usage: request.include_usage,
            logprobs,
            names_text_tokens: request.names_text_tokens(),
            submitted: times.submitted,
            span: tracing::error_span!("request", request_id = request.request_id),
            tokenizer,
            active,
            outbox: Mutex::new(Outbox {
                choices: (0..count).map(|_| Choice::default()).collect(),
                open: count,
                usage: Usage::default(),
                reasons: Vec::new(),
                times,
                error: None,
                sse,
                encoded: Frames::default(),
                ahead: VecDeque::new(),
                unwritten: 0,
                ended: false,
                wanted: false,
                outlet: Outlet::Closed,
                closed: false,
            }),
        })
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Whether the reader is gone or has everything.
    pub(crate) fn is_closed(&self) -> bool {
        self.outbox.lock().closed
    }

    /// Whether nothing more can be appended.
    pub(crate) fn is_over(&self) -> bool {
        let outbox = self.outbox.lock();
        outbox.closed || outbox.error.is_some() || outbox.open == 0
    }

    /// Adds to the usage and appends a piece of choice `index`. Returns who waits for it. Called by one thread.
    pub(crate) fn append(&self, index: u32, mut piece: Piece, usage: Usage) -> Awaited {
        let written = self.write_logprobs(index, &mut piece);
        let mut outbox = self.outbox.lock();
        if outbox.closed || outbox.error.is_some() {
            return Awaited::No;
        }
        outbox.usage.prompt_tokens += usage.prompt_tokens;
        outbox.usage.completion_tokens += usage.completion_tokens;
        outbox.usage.cached_tokens += usage.cached_tokens;
        outbox.usage.forced_tokens += usage.forced_tokens;
        let choice = &mut outbox.choices[index as usize];
        if choice.finished {
            return Awaited::No;
        }
        if choice.text.is_empty() {
            choice.text = piece.text;
        } else {
            choice.text.push_str(&piece.text);
        }
        choice.tokens += piece.tokens;
        choice.token_ids.extend(piece.token_ids);
        if let Some(prompt) = piece.prompt {
            choice.prompt = prompt;
        }
        let unwritten: usize = piece.logprobs.iter().map(weight).sum();
        choice.logprobs.extend(piece.logprobs);
        choice.written = written;
        match (&mut choice.logits, piece.logits) {
            (Some(logits), Some(later)) => logits.append(*later),
            (logits @ None, new) => *logits = new,
            (Some(_), None) => {}
        }
        let reason = piece.finish.as_ref().map(ChoiceFinish::reason);
        choice.finish = piece.finish;
        choice.handover = piece.handover;
        choice.receipt = piece.receipt;
        choice.finished = choice.finish.is_some();
        choice.dirty |= !choice.text.is_empty()
            || !choice.logprobs.is_empty()
            || choice.written.is_some()
            || choice.logits.is_some()
            || choice.finished;
        if let Some(reason) = reason {
            outbox.reasons.push(reason);
            outbox.open -= 1;
            if outbox.open == 0 {
                outbox.times.ended = Some(Instant::now());
            }
        }
        outbox.unwritten += unwritten;
        let awaited = self.awaited(&mut outbox);
        if self.format != OutputFormat::Final && !outbox.wanted && outbox.unwritten > MOST_UNWRITTEN {
            if self.format.is_sse() {
                self.encode(&mut outbox);
            } else {
                let delta = self.delta(&mut outbox);
                outbox.ahead.push_back(delta);
            }
        }
        awaited
    }

    fn awaited(&self, outbox: &mut Outbox) -> Awaited {
        if !outbox.wanted || !self.deliverable(outbox) {
            return Awaited::No;
        }
        let queued = if self.is_for_connection(outbox) { outbox.outlet.queue() } else { None };
        match queued {
            None => Awaited::ByReader,
            Some(true) => Awaited::ByConnection,
            Some(false) => Awaited::No,
        }
    }

    /// Of an answer that is delivered whole: the JSON of a choice's log-probabilities, when its last ones come. The
    /// outbox is not locked meanwhile.
    fn write_logprobs(&self, index: u32, piece: &mut Piece) -> Option<String> {
        if self.format != OutputFormat::Final || self.names_text_tokens || piece.finish.is_none() {
            return None;
        }
        let form = self.logprobs?;
        let mut choice = Choice::default();
        {
            let mut outbox = self.outbox.lock();
            let waiting = outbox.choices.get_mut(index as usize).filter(|waiting| !waiting.finished)?;
            (choice.logprobs, choice.offset) = (std::mem::take(&mut waiting.logprobs), waiting.offset);
        }
        choice.logprobs.append(&mut piece.logprobs);
        choice.take_logprobs(Some(form), self.tokenizer.vocabulary())
    }

    /// Ends the request with an error. Returns whether a reader waits for it.
    pub(crate) fn fail(&self, error: Error) -> bool {
        let mut outbox = self.outbox.lock();
        if outbox.closed || outbox.error.is_some() || outbox.open == 0 {
            return false;
        }
        outbox.error = Some(error);
        outbox.times.ended = Some(Instant::now());
        outbox.wanted
    }

    /// The reader left: drops what is pending.
    pub(crate) fn close(&self) {
        let mut outbox = self.outbox.lock();
        outbox.outlet = Outlet::Closed;
        outbox.encoded = Frames::default();
        outbox.ahead = VecDeque::new();
        outbox.choices = Vec::new();
        outbox.sse = None;
        self.mark_closed(&mut outbox);
    }

    fn mark_closed(&self, outbox: &mut Outbox) {
        if !outbox.closed {
            outbox.closed = true;
            outbox.times.ended.get_or_insert_with(Instant::now);
            self.active.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Notes that the request got further.
    pub(crate) fn note(&self, update: impl FnOnce(&mut Times)) {
        update(&mut self.outbox.lock().times);
    }

    /// What is known of the request.
    pub(crate) fn summary(&self) -> Summary {
        let outbox = self.outbox.lock();
        Summary { usage: outbox.usage, finish_reasons: outbox.reasons.clone(), times: outbox.times }
    }

    /// Encodes what a waiting reader will take, so that the event loop need not.
    pub(crate) fn encode_ahead(&self) {
        let mut outbox = self.outbox.lock();
        if outbox.wanted && !outbox.closed {
            self.encode(&mut outbox);
        }
    }

    /// What is ready, and whether it is the last; `None` registers the reader for the next drain, also where that has
    /// the end of a chunk for it.
    pub(crate) fn take(&self) -> Option<(Payload, bool)> {
        let mut outbox = self.outbox.lock();
        if outbox.closed {
            return None;
        }
        let taken = if outbox.outlet.is_cut() { None } else { self.take_for_reader(&mut outbox) };
        outbox.wanted = taken.is_none();
        taken
    }

    /// What is ready for a reader that waits. After the end of a chunk the reader asks again: it may be in the list of those that wait
    /// twice, and what it would be given the second time must not come behind what it takes meanwhile.
    pub(crate) fn collect(&self) -> Option<(Payload, bool)> {
        let mut outbox = self.outbox.lock();
        if outbox.closed || !outbox.wanted {
            return None;
        }
        if outbox.outlet.is_cut() {
            outbox.wanted = false;
            return Some((Payload::Unsent(outbox.outlet.close()), false));
        }
        let taken = self.take_for_reader(&mut outbox);
        outbox.wanted = taken.is_none();
        taken
    }

    fn take_for_reader(&self, outbox: &mut Outbox) -> Option<(Payload, bool)> {
        let taken = self.take_locked(outbox, Vec::new());
        if taken.is_some() {
            outbox.outlet = Outlet::Closed;
        }
        taken
    }

    /// Writes frames to a connection, and lets [`Self::write_frames`] write those to come while the reader waits. Gives
    /// the end of the chunk that is still to be written; then nothing else is written there.
    pub(crate) fn open_outlet(&self, connection: Connection, frames: &[u8]) -> Vec<u8> {
        self.outbox.lock().outlet.open(connection, frames)
    }

    /// Leaves what comes to the reader again. Gives the end of a chunk that is to be written before anything else.
    pub(crate) fn close_outlet(&self) -> Vec<u8> {
        self.outbox.lock().outlet.close()
    }

    /// How long ago something was written to the connection that frames go to.
    pub(crate) fn since_written(&self) -> Option<Duration> {
        self.outbox.lock().outlet.since_written()
    }

    /// Writes what is ready to the connection that was put into the list. `chunk` is memory. Called by the output
    /// thread.
    pub(crate) fn write_frames(&self, chunk: &mut Vec<u8>) -> Written {
        let mut outbox = self.outbox.lock();
        let mut open = match std::mem::take(&mut outbox.outlet) {
            Outlet::Open(open) => open,
            other => {
                outbox.outlet = other;
                return Written::LeftToReader;
            }
        };
        open.queued = false;
        let mut written = Written::All;
        if outbox.wanted
            && self.is_for_connection(&outbox)
            && let Some((Payload::Sse(frames), _)) =
                self.take_locked(&mut outbox, std::mem::take(&mut open.empty))
        {
            let rest = open.write(&frames, chunk);
            if !rest.is_empty() {
                outbox.outlet = Outlet::Cut(rest);
                return Written::LeftToReader;
            }
            open.keep(frames);
            if !outbox.encoded.is_empty() {
                open.queued = true;
                written = Written::Part;
            }
        }
        outbox.outlet = Outlet::Open(open);
        written
    }

    /// Whether what is ready may go to a connection: the end is the reader's to write, and what is not text.
    fn is_for_connection(&self, outbox: &Outbox) -> bool {
        self.format.is_sse() && outbox.open > 0 && outbox.error.is_none() && !outbox.closed
    }

    fn deliverable(&self, outbox: &Outbox) -> bool {
        if outbox.error.is_some() || outbox.open == 0 {
            return true;
        }
        self.format != OutputFormat::Final
            && (!outbox.ahead.is_empty() || outbox.choices.iter().any(|choice| choice.dirty))
    }

    fn take_locked(&self, outbox: &mut Outbox, empty: Vec<u8>) -> Option<(Payload, bool)> {
        if outbox.encoded.is_empty() && !self.deliverable(outbox) {
            return None;
        }
        let complete = outbox.open == 0 && outbox.error.is_none();
        if self.format.is_sse() {
            self.encode(outbox);
            let frames = outbox.encoded.take(empty);
            let complete = complete && outbox.encoded.is_empty();
            if complete {
                self.mark_closed(outbox);
            }
            if complete || !frames.is_empty() {
                return Some((Payload::Sse(frames), complete));
            }
        }
        if let Some(delta) = outbox.ahead.pop_front() {
            return Some((Payload::Delta(delta), false));
        }
        let mut delta = self.delta(outbox);
        delta.error.clone_from(&outbox.error);
        delta.usage = complete.then_some(outbox.usage);
        let last = complete || delta.error.is_some();
        if last {
            self.mark_closed(outbox);
        }
        Some((Payload::Delta(delta), last))
    }

    fn encode(&self, outbox: &mut Outbox) {
        outbox.unwritten = 0;
        let Outbox { choices, sse: Some(sse), encoded, open, usage, error, ended, .. } = outbox else {
            return;
        };
        let out = &mut encoded.bytes;
        for (index, choice) in choices.iter_mut().enumerate().filter(|(_, choice)| choice.dirty) {
            let logprobs = choice.take_logprobs(self.logprobs, self.tokenizer.vocabulary());
            let finish = choice.finish.take();
            let stop_reason = finish.as_ref().and_then(stop_reason_json);
            let receipt = choice.receipt.take().and_then(|receipt| serde_json::to_string(&receipt).ok());
            let end = finish.as_ref().map(|finish| ChoiceEnd {
                finish_reason: finish.reason(),
                stop_reason: stop_reason.as_deref(),
                constraint: receipt.as_deref(),
            });
            sse.chunk(out, index as u32, &choice.text, logprobs.as_deref(), end);
            choice.text.clear();
            choice.tokens = 0;
            choice.dirty = false;
        }
        if *open == 0 && error.is_none() && !std::mem::replace(ended, true) {
            if self.include_usage {
                sse.usage_chunk(out, usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens);
            }
            sse.done(out);
        }
    }

    /// What waits, without what only the end has.
    fn delta(&self, outbox: &mut Outbox) -> Delta {
        outbox.unwritten = 0;
        // Of an answer that is delivered whole nothing comes with an error.
        let is_void = self.format == OutputFormat::Final && outbox.error.is_some();
        let choices = if is_void { Vec::new() } else { self.choice_deltas(&mut outbox.choices) };
        Delta { choices, so_far: outbox.usage, ..Delta::default() }
    }

    fn choice_deltas(&self, choices: &mut [Choice]) -> Vec<ChoiceDelta> {
        let dirty = choices.iter_mut().enumerate().filter(|(_, choice)| choice.dirty);
        dirty
            .map(|(index, choice)| {
                choice.dirty = false;
                ChoiceDelta {
                    index: index as u32,
                    text: std::mem::take(&mut choice.text),
                    token_count: std::mem::take(&mut choice.tokens),
                    token_ids: std::mem::take(&mut choice.token_ids),
                    prompt_token_ids: choice.prompt.token_ids.take(),
                    prompt_logprobs: choice.prompt.logprobs.take(),
                    text_token_ids: self
                        .names_text_tokens
                        .then(|| choice.logprobs.iter().map(|entry| entry.token).collect()),
                    logprobs: choice.take_logprobs(self.logprobs, self.tokenizer.vocabulary()),
                    logits: choice.logits.take(),
                    finish: choice.finish.take(),
                    handover: choice.handover.take(),
                    receipt: choice.receipt.take(),
                }
            })
            .collect()
    }
}

/// A token and its alternatives.
fn weight(entry: &LogprobEntry) -> usize {
    1 + entry.logprobs.as_ref().map_or(0, |logprobs| logprobs.top.len())
}

/// The JSON of `stop_reason`: the stop string, or the stop token's id.
fn stop_reason_json(finish: &ChoiceFinish) -> Option<String> {
    match finish {
        ChoiceFinish::StopString(text) => serde_json::to_string(text).ok(),
        ChoiceFinish::StopToken(token) => Some(token.to_string()),
        ChoiceFinish::Stop | ChoiceFinish::Length | ChoiceFinish::HandedOver => None,
    }
}

impl Drop for RequestState {
    fn drop(&mut self) {
        if !self.outbox.get_mut().closed {
            self.active.fetch_sub(1, Ordering::AcqRel);
        }
    }
}
