//! A runtime over the sim engine, and a reader that waits as the event loop would.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses its part of this module")]

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use llgtrt_core::{Error, GrammarSpec, Tokenizer};
use llgtrt_engine_sim::{SimConfig, SimEngine};
use llgtrt_grammar::GrammarConfig;
use llgtrt_runtime::{
    Delta, GenerateRequest, OutputFormat, Payload, Prompt, RequestHandle, Runtime, RuntimeConfig,
};
use llgtrt_text::ByteTokenizer;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// No test waits longer than this for anything.
const DEADLINE: Duration = Duration::from_secs(20);

/// A runtime over sim with a byte vocabulary.
pub fn start(sim: SimConfig, max_queue_size: usize) -> Runtime {
    start_with(sim, max_queue_size, Arc::new(ByteTokenizer::new()))
}

/// A runtime over sim with another tokenizer.
pub fn start_with(sim: SimConfig, max_queue_size: usize, tokenizer: Arc<dyn Tokenizer>) -> Runtime {
    let vocab_size = tokenizer.vocabulary().len();
    let config = RuntimeConfig {
        max_queue_size,
        seed: Some(1),
        stall_timeout: Duration::from_millis(300),
        grammar: GrammarConfig::default(),
    };
    let shared = Arc::clone(&tokenizer);
    let factory = Box::new(move |masks| Ok(Box::new(SimEngine::new(sim, shared, masks)?) as Box<_>));
    Runtime::start(&config, tokenizer, vocab_size, factory).expect("runtime")
}

/// The configuration of a sim engine from JSON.
pub fn sim(json: &str) -> SimConfig {
    serde_json::from_str(json).expect("sim configuration")
}

/// A prompt.
pub fn text(text: impl Into<String>) -> Prompt {
    Prompt::Text(Arc::new(text.into()))
}

/// A request with defaults for everything but the prompt.
pub fn request(prompt: &str, output: OutputFormat) -> GenerateRequest {
    GenerateRequest {
        prompts: vec![text(prompt)],
        max_tokens: Some(64),
        seed: Some(7),
        receipt: Some("json_schema".to_owned()),
        output,
        response_id: "chatcmpl-test".to_owned(),
        model: "sim".to_owned(),
        created: 1,
        ..GenerateRequest::default()
    }
}

/// A schema grammar.
pub fn schema(json: &str) -> GrammarSpec {
    GrammarSpec::JsonSchema(json.to_owned())
}

/// Submits.
pub fn submit(runtime: &Runtime, request: GenerateRequest) -> RequestHandle {
    let permit = runtime.reserve(request.sequences()).expect("room");
    runtime.submit(Arc::new(request), permit).expect("submitted")
}

/// Waits until the runtime has something to drain.
pub fn wait_readable(runtime: &Runtime, deadline: Instant) {
    let left = deadline.saturating_duration_since(Instant::now());
    assert!(!left.is_zero(), "nothing came in time");
    // SAFETY: the runtime outlives the borrow and owns the descriptor.
    #[expect(unsafe_code, reason = "a test borrows the descriptor that asyncio would watch")]
    let fd = unsafe { BorrowedFd::borrow_raw(runtime.event_fd()) };
    let mut fds = [PollFd::new(&fd, PollFlags::IN)];
    let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
    poll(&mut fds, Some(&timeout)).expect("poll");
}

/// Every payload of one request, read as fast as they come.
pub fn read_all(runtime: &Runtime, handle: &RequestHandle) -> Vec<Payload> {
    let deadline = Instant::now() + DEADLINE;
    let mut payloads = Vec::new();
    loop {
        let (payload, last) = handle.take().unwrap_or_else(|| {
            loop {
                let mine = runtime.drain().into_iter().find(|(id, ..)| *id == handle.id());
                if let Some((_, payload, last)) = mine {
                    return (payload, last);
                }
                wait_readable(runtime, deadline);
            }
        });
        payloads.push(payload);
        if last {
            return payloads;
        }
    }
}

/// The text of every choice, the last delta, and the error.
pub fn collect(payloads: Vec<Payload>) -> (Vec<String>, Delta) {
    let mut texts: Vec<String> = Vec::new();
    let mut last = Delta::default();
    for payload in payloads {
        let Payload::Delta(delta) = payload else { panic!("expected a delta") };
        for choice in &delta.choices {
            let index = choice.index as usize;
            texts.resize(texts.len().max(index + 1), String::new());
            texts[index].push_str(&choice.text);
        }
        last = delta;
    }
    (texts, last)
}

/// Runs one request to its error.
pub fn error_of(runtime: &Runtime, request: GenerateRequest) -> Error {
    let handle = submit(runtime, request);
    collect(read_all(runtime, &handle)).1.error.expect("an error")
}

/// Polls a condition that other threads bring about.
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !condition() {
        assert!(Instant::now() < deadline, "never came true: {what}");
        std::thread::yield_now();
    }
}

/// The value of a metric without labels.
pub fn metric(runtime: &Runtime, name: &str) -> f64 {
    let text = runtime.metrics().expect("metrics");
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no metric {name}")).parse().expect("a number")
}
