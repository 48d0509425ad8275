//! The output thread: tokens in, text and frames out.
//!
//! Detokenizes, finds stop strings, keeps usage and latency metrics, and appends to the requests'
//! outboxes. Writes frames to the connections that take them, and wakes the event loop once per event for other
//! readers. Never takes the GIL and never waits for a reader.

use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender, TryRecvError};

use llgtrt_core::{
    Error, ErrorKind, Finish, SequenceId, SequenceOutput, StepBatch, StopCause, TokenOutput, Tokenizer,
};
use llgtrt_grammar::MaskPool;
use llgtrt_text::{TextOutput, prompt_logprob_entries};

use crate::engine_loop::{Command, panic_text};
use crate::live::{Live, NewSequence, choice_finish, forced};
use crate::outbox::{Awaited, Piece, RequestState, Written};
use crate::request::{ChoiceFinish, Usage};
use crate::shared::Shared;

/// Of the connections that something is to be written to, one of so many gets it before the next event: where steps come
/// faster than they are written, frames get longer, and the engine need not wait.
const SHARE_WRITTEN: usize = 4;

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
    /// Requests whose connections something is to be written to, each once.
    unwritten: VecDeque<Arc<RequestState>>,
    /// Memory for the chunk that is being written.
    chunk: Vec<u8>,
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
            unwritten: VecDeque::new(),
            chunk: Vec::new(),
            ended: None,
        }
    }

    /// Runs until [`Event::Shutdown`]. A panic ends the service, not the thread: every request, those to come
    /// included, is told of it.
    pub(crate) fn run(mut self) {
        while let Some(event) = self.next_event() {
            if matches!(event, Event::Shutdown) {
                break;
            }
            self.guarded(|output| {
                output.handle(event);
                output.flush();
                output.write(output.unwritten.len().div_ceil(SHARE_WRITTEN));
            });
        }
        self.engine_ended(None);
    }

    /// Waits for an event, and writes while there is none.
    fn next_event(&mut self) -> Option<Event> {
        while !self.unwritten.is_empty() {
            match self.events.try_recv() {
                Ok(event) => return Some(event),
                Err(TryRecvError::Empty) => self.guarded(|output| output.write(1)),
                Err(TryRecvError::Disconnected) => return None,
            }
        }
        self.events.recv().ok()
    }

    /// Writes to so many of the connections.
    fn write(&mut self, connections: usize) {
        for _ in 0..connections {
            let Some(request) = self.unwritten.pop_front() else { return };
            match request.write_frames(&mut self.chunk) {
                Written::All => {}
                Written::Part => self.unwritten.push_back(request),
                Written::LeftToReader => self.shared.deliver([request]),
            }
        }
    }

    fn guarded(&mut self, work: impl FnOnce(&mut Self)) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| work(self))) {
            let error = Error::internal(format!("the output thread failed: {}", panic_text(&*panic)));
            self.engine_ended(Some(error));
            let _ = self.commands.send(Command::Shutdown);
        }
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
        self.live.insert(new.id, Live::new(new));
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
        let (request, index) = (Arc::clone(&live.request), live.index);
        self.append(request, index, piece, usage);
    }

    fn append(&mut self, request: Arc<RequestState>, index: u32, piece: Piece, usage: Usage) {
        match request.append(index, piece, usage) {
            Awaited::No => {}
            Awaited::ByReader => self.touched.push(request),
            Awaited::ByConnection => self.unwritten.push_back(request),
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

    /// Encodes and announces what the event brought to readers, with one wake-up.
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

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use llgtrt_text::ByteTokenizer;

    use super::*;
    use crate::connection::Connection;
    use crate::request::{GenerateRequest, OutputFormat, Payload, Prompt};

    /// With another of its size more than a reader takes at once, and a socket takes both.
    const LONG: usize = 140 << 10;

    #[test]
    fn what_is_much_is_written_in_parts() {
        let request = GenerateRequest {
            prompts: vec![Prompt::Tokens(vec![1])],
            n: 2,
            output: OutputFormat::ChatSse,
            ..GenerateRequest::default()
        };
        let state = RequestState::new(1, &request, Arc::new(ByteTokenizer::new()), Arc::default());
        let (ours, mut theirs) = UnixStream::pair().expect("sockets");
        rustix::net::sockopt::set_socket_send_buffer_size(&ours, 4 * LONG).expect("memory");
        let connection = Connection::of(ours.as_fd()).expect("a descriptor");
        assert!(state.open_outlet(connection, b"data: begun\n\n").is_empty());
        assert!(state.take().is_none());
        let append = |index, letter: &str| {
            let piece = Piece { text: letter.repeat(LONG), tokens: 1, ..Piece::default() };
            state.append(index, piece, Usage::default())
        };
        assert_eq!(append(0, "a"), Awaited::ByConnection);
        assert_eq!(append(1, "b"), Awaited::No, "it is in the list");
        let mut chunk = Vec::new();
        assert_eq!(state.write_frames(&mut chunk), Written::Part);
        assert_eq!(state.write_frames(&mut chunk), Written::All);
        assert_eq!(append(0, "c"), Awaited::ByConnection, "it is no longer in the list");
        assert!(state.close_outlet().is_empty());
        assert_eq!(state.write_frames(&mut chunk), Written::LeftToReader);
        drop(ours);
        let mut body = String::new();
        theirs.read_to_string(&mut body).expect("the body");
        let order: Vec<_> = ["begun", "aaa", "bbb"].map(|text| body.find(text)).into();
        assert!(order.is_sorted() && order[0].is_some(), "{order:?}");
        assert!(!body.contains("ccc"), "it is the reader's");
    }

    #[test]
    fn what_comes_behind_the_end_of_a_chunk_stays_in_order() {
        let request = GenerateRequest {
            prompts: vec![Prompt::Tokens(vec![1])],
            output: OutputFormat::ChatSse,
            ..GenerateRequest::default()
        };
        let state = RequestState::new(1, &request, Arc::new(ByteTokenizer::new()), Arc::default());
        let (ours, _theirs) = UnixStream::pair().expect("sockets");
        let append = |letter: &str, count: usize| {
            let piece = Piece { text: letter.repeat(count), tokens: 1, ..Piece::default() };
            state.append(0, piece, Usage::default())
        };
        let connection = Connection::of(ours.as_fd()).expect("a descriptor");
        assert!(state.open_outlet(connection, b"begun").is_empty());
        assert!(state.take().is_none());
        // More than a socket takes that nobody reads.
        assert_eq!(append("a", 8 << 20), Awaited::ByConnection);
        let mut written = state.write_frames(&mut Vec::new());
        while written == Written::Part {
            written = state.write_frames(&mut Vec::new());
        }
        assert_eq!(written, Written::LeftToReader);
        // Which puts it in the list of readers; this does so again.
        assert_eq!(append("b", 1), Awaited::ByReader);
        assert!(matches!(state.collect(), Some((Payload::Unsent(_), false))));
        assert!(state.collect().is_none(), "what follows is taken behind the end of the chunk");
        assert!(matches!(state.take(), Some((Payload::Sse(_), false))));
    }
}
