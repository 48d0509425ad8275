//! A request between the threads that write its output and the event loop that reads it: signal, ready list and outbox.

use std::collections::VecDeque;
use std::mem::ManuallyDrop;
use std::sync::{Arc, OnceLock};

use llgtrt_core::{Error, Tokenizer};
use llgtrt_text::ByteTokenizer;
use loom::thread;
use prometheus::Registry;

use crate::connection::{self, Connection};
use crate::explore;
use crate::metrics::Metrics;
use crate::outbox::{Awaited, Piece, RequestState, Written};
use crate::request::{ChoiceFinish, GenerateRequest, OutputFormat, Payload, Prompt, Usage};
use crate::shared::Shared;
use crate::signal::Signal;

const FORMATS: [OutputFormat; 3] = [OutputFormat::Deltas, OutputFormat::ChatSse, OutputFormat::Final];

/// What no model shares between its runs in a way that could matter; made once, because a run is short.
fn metrics() -> Arc<Metrics> {
    static METRICS: OnceLock<Arc<Metrics>> = OnceLock::new();
    Arc::clone(METRICS.get_or_init(|| Arc::new(Metrics::new(&Registry::new()).expect("new names"))))
}

fn tokenizer() -> Arc<dyn Tokenizer> {
    static TOKENIZER: OnceLock<Arc<dyn Tokenizer>> = OnceLock::new();
    Arc::clone(TOKENIZER.get_or_init(|| Arc::new(ByteTokenizer::new())))
}

fn shared() -> Arc<Shared> {
    Shared::new(Signal::new().expect("a model"), metrics())
}

fn request(shared: &Shared, id: u64, output: OutputFormat) -> Arc<RequestState> {
    let request = GenerateRequest {
        prompts: vec![Prompt::Tokens(vec![1])],
        max_tokens: Some(4),
        output,
        ..GenerateRequest::default()
    };
    RequestState::new(id, &request, tokenizer(), shared.active_counter())
}

/// A step of the engine as the output thread treats it.
fn write(shared: &Shared, state: &Arc<RequestState>, text: &str, last: bool) {
    let finish = last.then_some(ChoiceFinish::Stop);
    let piece = Piece { text: text.to_owned(), tokens: 1, finish, ..Piece::default() };
    match state.append(0, piece, Usage::default()) {
        Awaited::No => {}
        Awaited::ByReader => {
            state.encode_ahead();
            shared.deliver([Arc::clone(state)]);
        }
        Awaited::ByConnection => match state.write_frames(&mut Vec::new()) {
            Written::All => {}
            Written::Part => panic!("the frames are few"),
            Written::LeftToReader => shared.deliver([Arc::clone(state)]),
        },
    }
}

/// What a client got.
#[derive(Debug, Default)]
struct Received {
    text: String,
    failed: bool,
    ends: usize,
}

impl Received {
    fn add(&mut self, (payload, last): (Payload, bool)) {
        match payload {
            Payload::Embeddings(_) | Payload::Unsent(_) => panic!("nobody asked for that"),
            Payload::Sse(frames) => self.text.push_str(&contents(&frames)),
            Payload::Delta(delta) => {
                for choice in &delta.choices {
                    self.text.push_str(&choice.text);
                }
                self.failed |= delta.error.is_some();
            }
        }
        self.ends += usize::from(last);
    }
}

/// The text in a stream's frames.
fn contents(frames: &[u8]) -> String {
    let frames = std::str::from_utf8(frames).expect("frames are text");
    let chunks = frames
        .split("\n\n")
        .filter_map(|frame| frame.strip_prefix("data: "))
        .filter(|data| *data != "[DONE]");
    chunks
        .map(|data| {
            let chunk: serde_json::Value = serde_json::from_str(data).expect("chunks are JSON");
            chunk["choices"][0]["delta"]["content"].as_str().unwrap_or_default().to_owned()
        })
        .collect()
}

/// What the event loop does once while frames go to a connection.
#[derive(Debug, Clone, Copy)]
enum Meanwhile {
    Nothing,
    /// It writes there itself.
    Ping,
    /// It asks for what there is.
    Take,
}

/// The event loop with one request, whose frames go to a connection that takes so many bytes at once. Whatever comes to
/// the reader it writes there too.
fn serve_connection(
    shared: &Shared,
    state: &RequestState,
    takes: usize,
    mut meanwhile: Meanwhile,
) -> Vec<u8> {
    let received = connection::Received::default();
    let write_end = |rest: &[u8]| received.lock().extend_from_slice(rest);
    let write_chunk = |frames: &[u8]| write_end(&chunk(frames));
    loop {
        let mut came: VecDeque<_> = state.take().into_iter().collect();
        while came.is_empty() {
            match std::mem::replace(&mut meanwhile, Meanwhile::Nothing) {
                Meanwhile::Nothing => {}
                Meanwhile::Ping => {
                    write_end(&state.close_outlet());
                    write_chunk(b": ping\n\n");
                    break;
                }
                Meanwhile::Take => break,
            }
            shared.signal.wake.wait();
            came.extend(shared.drain().into_iter().map(|(_, payload, last)| (payload, last)));
        }
        while let Some((payload, last)) = came.pop_front() {
            match payload {
                Payload::Sse(frames) if last => {
                    write_chunk(&frames);
                    return received.lock().clone();
                }
                Payload::Sse(frames) => {
                    let rest = state.open_outlet(Connection::new(&received, takes), &frames);
                    write_end(&rest);
                }
                Payload::Unsent(rest) => {
                    write_end(&rest);
                    // At once, as the event loop does: what else came is behind it.
                    if let Some(taken) = state.take() {
                        came.push_front(taken);
                    }
                }
                Payload::Delta(_) | Payload::Embeddings(_) => panic!("nobody asked for that"),
            }
        }
    }
}

/// A chunk of an HTTP/1.1 body.
fn chunk(frames: &[u8]) -> Vec<u8> {
    [format!("{:x}\r\n", frames.len()).as_bytes(), frames, b"\r\n"].concat()
}

/// The frames of a body.
fn dechunked(mut body: &[u8]) -> Vec<u8> {
    let mut frames = Vec::new();
    while !body.is_empty() {
        let head = body.windows(2).position(|end| end == b"\r\n").expect("the size of a chunk");
        let size = std::str::from_utf8(&body[..head]).expect("digits");
        let size = usize::from_str_radix(size, 16).expect("a number");
        frames.extend_from_slice(&body[head + 2..][..size]);
        body = body[head + 2 + size..].strip_prefix(b"\r\n").expect("the end of a chunk");
    }
    frames
}

/// The event loop with one request: takes what is ready, and waits for the signal where nothing is.
fn read(shared: &Shared, state: &RequestState) -> Received {
    let mut received = Received::default();
    while received.ends == 0 {
        if let Some(taken) = state.take() {
            received.add(taken);
            continue;
        }
        loop {
            shared.signal.wake.wait();
            let drained = shared.drain();
            let any = !drained.is_empty();
            for (_, payload, last) in drained {
                received.add((payload, last));
            }
            if any {
                break;
            }
        }
    }
    received
}

/// All output arrives, in order, once, and its reader never waits for a signal that does not come.
pub fn all_output_arrives() {
    for format in FORMATS {
        arrives(format, read);
    }
}

/// A connection gets whole chunks, in order, once, whoever writes them and however little it takes at once.
pub fn a_connection_gets_whole_chunks_in_order() {
    let whiles = [Meanwhile::Nothing, Meanwhile::Ping, Meanwhile::Take];
    for (takes, meanwhile) in [usize::MAX, 5].into_iter().flat_map(|takes| whiles.map(|one| (takes, one))) {
        explore(move || {
            let shared = shared();
            let state = request(&shared, 1, OutputFormat::ChatSse);
            let writer = {
                let (shared, state) = (Arc::clone(&shared), Arc::clone(&state));
                thread::spawn(move || {
                    write(&shared, &state, "a", false);
                    write(&shared, &state, "b", false);
                    write(&shared, &state, "c", true);
                })
            };
            let body = serve_connection(&shared, &state, takes, meanwhile);
            assert_eq!(contents(&dechunked(&body)), "abc");
            writer.join().expect("the output thread does not panic");
            assert!(state.take().is_none() && shared.drain().is_empty(), "nothing comes after the end");
            assert_eq!(shared.active(), 0);
        });
    }
}

fn arrives(format: OutputFormat, read: fn(&Shared, &RequestState) -> Received) {
    explore(move || {
        let shared = shared();
        let state = request(&shared, 1, format);
        let writer = {
            let (shared, state) = (Arc::clone(&shared), Arc::clone(&state));
            thread::spawn(move || {
                write(&shared, &state, "a", false);
                write(&shared, &state, "b", true);
            })
        };
        let received = read(&shared, &state);
        assert_eq!((received.text.as_str(), received.ends), ("ab", 1), "{format:?}");
        writer.join().expect("the output thread does not panic");
        assert!(state.take().is_none() && shared.drain().is_empty(), "nothing comes after the end");
        assert_eq!(shared.active(), 0);
    });
}

/// Output of two requests that different threads end, one of them with an error: one event loop learns of both.
pub fn two_threads_announce_two_requests() {
    announce_two(Shared::drain);
}

/// A signal that is lowered after what it announced was collected: the mistake that the models are there to find.
pub fn a_signal_that_is_lowered_too_late() {
    announce_two(|shared| {
        let drained = shared.drain();
        shared.signal.lower();
        drained
    });
}

fn announce_two(drain: fn(&Shared) -> Vec<(u64, Payload, bool)>) {
    explore(move || {
        let shared = shared();
        // Left behind: where the model ends by a deadlock, dropping them would use locks outside of it.
        let waiting = |id, format| ManuallyDrop::new(request(&shared, id, format));
        let (one, other) = (waiting(1, OutputFormat::Deltas), waiting(2, OutputFormat::ChatSse));
        assert!(one.take().is_none() && other.take().is_none(), "both wait");
        let output = {
            let (shared, one) = (Arc::clone(&shared), Arc::clone(&one));
            thread::spawn(move || write(&shared, &one, "a", true))
        };
        let admission = {
            let (shared, other) = (Arc::clone(&shared), Arc::clone(&other));
            thread::spawn(move || shared.fail(&other, Error::internal("refused")))
        };
        let mut ended = Vec::new();
        while ended.len() < 2 {
            shared.signal.wake.wait();
            ended.extend(drain(&shared).into_iter().filter(|(_, _, last)| *last).map(|(id, ..)| id));
        }
        ended.sort_unstable();
        assert_eq!(ended, [1, 2]);
        output.join().expect("the output thread does not panic");
        admission.join().expect("the admission thread does not panic");
        assert_eq!(shared.active(), 0);
    });
}

/// A request ends and fails at the same time: its reader is told of one of both, once.
pub fn a_request_ends_once() {
    for format in FORMATS {
        explore(move || {
            let shared = shared();
            let state = request(&shared, 1, format);
            let writer = {
                let (shared, state) = (Arc::clone(&shared), Arc::clone(&state));
                thread::spawn(move || write(&shared, &state, "a", true))
            };
            let admission = {
                let (shared, state) = (Arc::clone(&shared), Arc::clone(&state));
                thread::spawn(move || shared.fail(&state, Error::internal("late")))
            };
            let received = read(&shared, &state);
            assert_eq!(received.ends, 1);
            assert!(received.failed || received.text == "a", "{received:?}");
            writer.join().expect("the output thread does not panic");
            admission.join().expect("the admission thread does not panic");
            assert!(shared.drain().is_empty());
            assert_eq!(shared.active(), 0);
        });
    }
}

/// A reader leaves while output comes: the request stops counting, once, and nothing is delivered any more.
pub fn a_reader_may_leave_at_any_time() {
    for format in FORMATS {
        explore(move || {
            let shared = shared();
            let state = request(&shared, 1, format);
            let writer = {
                let (shared, state) = (Arc::clone(&shared), Arc::clone(&state));
                thread::spawn(move || {
                    write(&shared, &state, "a", false);
                    write(&shared, &state, "b", true);
                })
            };
            let _ = state.take();
            state.close();
            assert!(state.take().is_none() && state.is_over());
            writer.join().expect("the output thread does not panic");
            assert!(shared.drain().is_empty() && state.is_closed());
            assert_eq!(shared.active(), 0);
            drop(state);
            assert_eq!(shared.active(), 0, "it does not count down twice");
        });
    }
}
