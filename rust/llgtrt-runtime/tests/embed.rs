//! Requests for vectors over an embedder that a test steps: turns, limits, cancellation, failures.

mod support;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};
use llgtrt_core::{EmbedText, Embedder, EmbedderTraits, Error, ErrorKind, Result, TokenId};
use llgtrt_runtime::{EmbedHandle, EmbedInput, EmbedRequest, Embeddings, Payload, Runtime};
use support::{sim, start, wait_readable, wait_until};

const INPUTS: usize = 4;

/// What a step is to do.
enum Order {
    /// Answer everything.
    Answer,
    /// Fail the inputs that begin with this token.
    FailInput(TokenId),
    /// The embedder fails.
    Die,
    /// It panics.
    Panic,
}

/// An embedder of two numbers per token list, `[first token, count]`, which makes a step when it is told to.
struct Scripted {
    traits: EmbedderTraits,
    orders: Receiver<Order>,
    inside: Vec<(u64, Vec<TokenId>)>,
    /// First tokens, in the order in which they were submitted, and inputs that were cancelled.
    seen: Arc<Mutex<(Vec<TokenId>, usize)>>,
}

impl Embedder for Scripted {
    fn traits(&self) -> &EmbedderTraits {
        &self.traits
    }

    fn tokenize(&self, text: &EmbedText, most: Option<usize>) -> Result<Vec<TokenId>> {
        let bytes = |text: &str| text.bytes().map(TokenId::from).collect::<Vec<_>>();
        assert!(*text != EmbedText::Single("panic".to_owned()), "told to");
        let mut tokens = match text {
            EmbedText::Single(text) => bytes(text),
            EmbedText::Pair(query, document) => [bytes(query), bytes(document)].concat(),
        };
        tokens.truncate(most.unwrap_or(usize::MAX));
        Ok(tokens)
    }

    fn submit(&mut self, id: u64, tokens: Vec<TokenId>, _rank: bool) {
        assert!(self.inside.len() < INPUTS, "more inputs than it can hold");
        self.seen.lock().unwrap().0.push(tokens[0]);
        self.inside.push((id, tokens));
    }

    fn cancel(&mut self, id: u64) {
        self.inside.retain(|(inside, _)| *inside != id);
        self.seen.lock().unwrap().1 += 1;
    }

    fn step(&mut self, done: &mut Vec<(u64, Result<Vec<f32>>)>) -> Result<()> {
        let order = self.orders.recv().unwrap_or(Order::Answer);
        for (id, tokens) in self.inside.drain(..) {
            let vector = match order {
                Order::Die => return Err(Error::engine("told to")),
                Order::Panic => panic!("told to"),
                Order::FailInput(first) if tokens[0] == first => Err(Error::internal("told to")),
                _ => Ok(vec![tokens[0] as f32, tokens.len() as f32]),
            };
            done.push((id, vector));
        }
        Ok(())
    }
}

struct Setup {
    runtime: Runtime,
    orders: Sender<Order>,
    seen: Arc<Mutex<(Vec<TokenId>, usize)>>,
}

fn setup(most_waiting: usize) -> Setup {
    let runtime = start(sim("{}"), 4);
    let (orders, receiver) = bounded(1000);
    let seen = Arc::default();
    let traits = EmbedderTraits {
        dimensions: Some(2),
        ranks: true,
        max_tokens: 8,
        vocab_size: 256,
        max_token_bytes: 1,
        max_inputs: INPUTS,
        pooling: "mean",
    };
    let embedder = Scripted { traits, orders: receiver, inside: Vec::new(), seen: Arc::clone(&seen) };
    runtime.serve_embedder(Box::new(embedder), most_waiting).unwrap();
    Setup { runtime, orders, seen }
}

fn texts(texts: &[&str]) -> EmbedRequest {
    let inputs = texts.iter().map(|text| EmbedInput::Text((*text).to_owned())).collect();
    EmbedRequest { inputs, param: "input".to_owned(), dimensions: None, most_tokens: None }
}

/// The answers to some requests, by their ids, as soon as all are there.
fn answers(runtime: &Runtime, handles: &[&EmbedHandle]) -> HashMap<u64, Result<Embeddings>> {
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut found = HashMap::new();
    while found.len() < handles.len() {
        wait_readable(runtime, deadline);
        for (id, payload, last) in runtime.drain() {
            let Payload::Embeddings(answer) = payload else { panic!("expected vectors") };
            assert!(last && found.insert(id, answer).is_none());
        }
    }
    found
}

fn answer(runtime: &Runtime, request: EmbedRequest) -> Result<Embeddings> {
    let handle = runtime.embed(request)?;
    answers(runtime, &[&handle]).remove(&handle.id()).unwrap()
}

fn close(a: f32, b: f32) -> bool {
    (a - b).abs() < 1e-6
}

#[test]
fn vectors_come_in_order_and_with_length_one() {
    let Setup { runtime, orders, .. } = setup(4);
    for _ in 0..3 {
        orders.send(Order::Answer).unwrap();
    }
    let six = ["aaa", "b", "cc", "dd", "e", "f"];
    let embeddings = answer(&runtime, texts(&six)).unwrap();
    assert_eq!(embeddings.tokens, 10);
    assert_eq!(embeddings.vectors.len(), 6);
    for (text, vector) in six.iter().zip(&embeddings.vectors) {
        let (first, count) = (f32::from(text.as_bytes()[0]), text.len() as f32);
        let length = first.hypot(count);
        assert!(close(vector[0], first / length) && close(vector[1], count / length), "{text}: {vector:?}");
    }
    let cut = answer(&runtime, EmbedRequest { dimensions: Some(1), ..texts(&["abc"]) }).unwrap();
    assert_eq!(cut.vectors, [[1.0]]);
    orders.send(Order::Answer).unwrap();
    let pair = EmbedInput::Pair("ab".into(), "c".into());
    let scores = answer(&runtime, EmbedRequest { inputs: vec![pair], ..texts(&[]) }).unwrap();
    assert_eq!(scores.vectors, [[97.0, 3.0]], "scores are as they are");
}

#[test]
fn a_long_request_does_not_keep_a_short_one_waiting() {
    let Setup { runtime, orders, seen } = setup(4);
    let long = runtime.embed(texts(&["l"; 20])).unwrap();
    wait_until("the first inputs are inside", || seen.lock().unwrap().0.len() == INPUTS);
    let short = runtime.embed(texts(&["s"])).unwrap();
    for _ in 0..2 {
        orders.send(Order::Answer).unwrap();
    }
    let found = answers(&runtime, &[&short]);
    assert_eq!(found[&short.id()].as_ref().unwrap().tokens, 1);
    for _ in 0..10 {
        orders.send(Order::Answer).unwrap();
    }
    assert_eq!(answers(&runtime, &[&long])[&long.id()].as_ref().unwrap().vectors.len(), 20);
}

#[test]
fn what_nobody_waits_for_is_not_computed() {
    let Setup { runtime, orders, seen } = setup(2);
    let left = runtime.embed(texts(&["x"; 20])).unwrap();
    wait_until("the first inputs are inside", || seen.lock().unwrap().0.len() == INPUTS);
    let stays = runtime.embed(texts(&["y"])).unwrap();
    let full = runtime.embed(texts(&["z"])).unwrap_err();
    assert_eq!(full.kind, ErrorKind::Overloaded);
    drop(left);
    for _ in 0..4 {
        orders.send(Order::Answer).unwrap();
    }
    assert!(answers(&runtime, &[&stays])[&stays.id()].is_ok());
    let submitted = seen.lock().unwrap().0.iter().filter(|&&first| first == TokenId::from(b'x')).count();
    assert!(submitted <= 2 * INPUTS, "{submitted} inputs of a request that nobody waits for");
    wait_until("its place is free", || runtime.active_requests() == 0);
    orders.send(Order::Answer).unwrap();
    answer(&runtime, texts(&["z"])).unwrap();
}

#[test]
fn longer_inputs_are_cut_where_that_is_asked_for() {
    let Setup { runtime, orders, .. } = setup(4);
    let long = "x".repeat(100_000);
    let counted = |inputs: Vec<EmbedInput>, most| {
        orders.send(Order::Answer).unwrap();
        let request = EmbedRequest { inputs, most_tokens: Some(most), ..texts(&[]) };
        answer(&runtime, request).map(|embeddings| embeddings.tokens)
    };
    assert_eq!(counted(vec![EmbedInput::Text(long.clone()), EmbedInput::Text("ab".into())], 5).unwrap(), 7);
    assert_eq!(counted(vec![EmbedInput::Tokens(vec![1; 50]), EmbedInput::Tokens(vec![1])], 5).unwrap(), 6);
    assert_eq!(counted(vec![EmbedInput::Pair("ab".into(), long.clone())], 6).unwrap(), 6);
    // More than the model takes is what the model takes.
    assert_eq!(counted(vec![EmbedInput::Text(long.clone())], 1000).unwrap(), 8);
    // Characters are never cut: the bound on a text is 6 bytes here, in the middle of its third one.
    assert_eq!(counted(vec![EmbedInput::Text("ä→→ü".into())], 3).unwrap(), 3);
    let query = counted(vec![EmbedInput::Pair(long, "ab".into())], 6).unwrap_err();
    assert_eq!((query.kind, query.param.as_deref()), (ErrorKind::ContextLength, Some("input")));
}

#[test]
fn a_wrong_input_is_named_and_fails_its_request_alone() {
    let Setup { runtime, orders, .. } = setup(4);
    let one = |input| EmbedRequest { inputs: vec![EmbedInput::Text("a".into()), input], ..texts(&[]) };
    let wrong = [
        (one(EmbedInput::Text(String::new())), ErrorKind::InvalidRequest, "input[1]"),
        (one(EmbedInput::Text("123456789".into())), ErrorKind::ContextLength, "input[1]"),
        (one(EmbedInput::Tokens(vec![1; 9])), ErrorKind::ContextLength, "input[1]"),
        (one(EmbedInput::Tokens(vec![256])), ErrorKind::InvalidRequest, "input[1]"),
        (texts(&["123456789"]), ErrorKind::ContextLength, "input"),
        (EmbedRequest { dimensions: Some(3), ..texts(&["a"]) }, ErrorKind::InvalidRequest, "dimensions"),
        (EmbedRequest { dimensions: Some(0), ..texts(&["a"]) }, ErrorKind::InvalidRequest, "dimensions"),
    ];
    for (request, kind, param) in wrong {
        let error = answer(&runtime, request.clone()).unwrap_err();
        assert_eq!((error.kind, error.param.as_deref()), (kind, Some(param)), "{request:?}");
    }
    let panicked = answer(&runtime, texts(&["panic"])).unwrap_err();
    assert_eq!(panicked.kind, ErrorKind::Internal);
    let mixed = one(EmbedInput::Pair("a".into(), "b".into()));
    assert_eq!(answer(&runtime, mixed).unwrap_err().kind, ErrorKind::InvalidRequest);

    let bad = runtime.embed(texts(&["a", "b"])).unwrap();
    let good = runtime.embed(texts(&["c"])).unwrap();
    for _ in 0..4 {
        orders.send(Order::FailInput(TokenId::from(b'b'))).unwrap();
    }
    let found = answers(&runtime, &[&bad, &good]);
    assert_eq!(found[&bad.id()].as_ref().unwrap_err().param.as_deref(), Some("input[1]"));
    assert!(found[&good.id()].is_ok());
}

#[test]
fn a_dead_embedder_fails_its_requests_and_leaves_the_engine_alone() {
    for order in [Order::Die, Order::Panic] {
        let Setup { runtime, orders, .. } = setup(4);
        orders.send(order).unwrap();
        let first = answer(&runtime, texts(&["a", "b"])).unwrap_err();
        let later = answer(&runtime, texts(&["a"])).unwrap_err();
        assert_eq!(first.kind, later.kind);
        assert_eq!(runtime.health().as_str(), "ready");
        let generated =
            support::submit(&runtime, support::request("hello", llgtrt_runtime::OutputFormat::Final));
        assert_eq!(support::collect(support::read_all(&runtime, &generated)).1.error, None);
    }
}
