//! What work that does not end does to the service of others.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::yield_now;

use llgtrt_conformance::support::Bytes;

use super::*;

/// Work that goes on until it is let go.
struct Endless {
    compiler: Arc<GrammarCompiler>,
    begun: (Sender<()>, Receiver<()>),
    release: Vec<Sender<()>>,
}

impl Endless {
    fn new(compile_slots: usize, most: u64) -> Self {
        let config = GrammarConfig {
            compile_slots,
            compile_memory_megabytes: 256 * most,
            // The tests themselves say when it has passed.
            compile_deadline_ms: 3_600_000,
            ..GrammarConfig::default()
        };
        let compiler = GrammarCompiler::alone(Bytes::shared(), config).unwrap();
        Self { compiler, begun: channel(), release: Vec::new() }
    }

    /// Begins a piece of it, whose deadline passes.
    fn begin(&mut self) {
        let (release, wait) = channel::<()>();
        self.release.push(release);
        let begun = self.begun.0.clone();
        let work = move |_: &Shared| {
            begun.send(()).unwrap();
            // Ends with an error when the sender is dropped.
            let _ = wait.recv();
        };
        self.compiler.run(Box::new(work)).unwrap();
        self.begun.1.recv().unwrap();
        // A grammar is answered for a moment before its thread is free.
        while self.compiler.shared.state.lock().slots.at_work() > self.release.len() {
            yield_now();
        }
        assert!(self.compiler.shared.attend(Instant::now() + Duration::from_secs(7200)));
        assert_eq!(self.overrun(), self.release.len());
    }

    fn overrun(&self) -> usize {
        usize::try_from(self.compiler.shared.metrics.overrun.get()).unwrap()
    }

    /// A simple grammar that nobody has asked for yet.
    fn compile(&self, number: usize) -> Outcome {
        self.compiler.compile(&GrammarSpec::Regex(format!("x{{{number}}}")))
    }
}

#[test]
fn work_that_does_not_end_leaves_its_slot() {
    let mut endless = Endless::new(2, 5);
    for round in 1..=3 {
        endless.begin();
        endless.compile(round).unwrap();
    }
    assert_eq!(endless.compiler.shared.metrics.overruns.get(), 3);
    let serving = |endless: &Endless| endless.compiler.shared.state.lock().slots.serving();
    assert_eq!(serving(&endless), 2, "service goes on at full width");
    endless.release.clear();
    while endless.overrun() > 0 {
        yield_now();
    }
    assert_eq!(serving(&endless), 2, "those threads have ended");
}

#[test]
fn beyond_the_bound_it_is_overload_until_something_ends() {
    let mut endless = Endless::new(1, 2);
    endless.begin();
    endless.begin();
    let error = endless.compile(1).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Overloaded, "{}", error.message);
    endless.release.pop();
    while endless.overrun() > 1 {
        yield_now();
    }
    // The thread that takes work again is started right after that.
    while endless.compile(1).is_err() {
        yield_now();
    }
}

#[test]
fn what_the_clock_decided_is_not_remembered() {
    let compiler = GrammarCompiler::alone(Bytes::shared(), GrammarConfig::default()).unwrap();
    let key = key(&GrammarSpec::JsonObject);
    let refusals = [Compiled::Unsettled(Error::new(ErrorKind::Grammar, "late")), Compiled::Stopped];
    for compiled in refusals {
        compiler.shared.conclude(key, GrammarSpec::JsonObject, compiled);
        assert!(compiler.shared.state.lock().cache.get(&key).is_none());
    }
    let settled = Compiled::Settled(Err(Error::new(ErrorKind::Grammar, "no")));
    compiler.shared.conclude(key, GrammarSpec::JsonObject, settled);
    assert!(compiler.shared.state.lock().cache.get(&key).is_some());
}
