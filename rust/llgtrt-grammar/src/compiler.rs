//! Compiles grammars in bounded slots, with a deadline, and keeps the results.
//!
//! `grammar-N` threads take grammars from a bounded queue; requests for a grammar that is already
//! queued or being compiled wait for that one. The `grammar-timer` thread answers requests whose
//! deadline passed; their compilation goes on, in its slot, and its result is kept. Callbacks run
//! without the lock held.

use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use llgtrt_core::{Error, ErrorKind, GrammarSpec, Result, Tokenizer};
use llguidance::earley::SlicedBiasComputer;
use llguidance::{CancellationHandle, ParserFactory};
use parking_lot::{Condvar, Mutex};
use prometheus::Registry;
use toktrie::InferenceCapabilities;

use crate::admission::Refusal;
use crate::cache::{Cache, Key, Outcome, key, text_key};
use crate::compiled::{CompiledGrammar, Failure, build};
use crate::config::GrammarConfig;
use crate::metrics::CompilerMetrics;
use crate::text::grammar_error;
use crate::{TokenEnv, admission, spawn_big_stack};
use llgtrt_schema::ResidualMode;

type Done = Box<dyn FnOnce(Outcome) + Send>;

/// Other work for a slot.
pub(crate) type Task = Box<dyn FnOnce(&Shared) + Send>;

/// Compiles grammars for one tokenizer. Shared by all threads that admit requests.
pub struct GrammarCompiler {
    shared: Arc<Shared>,
}

/// What the compiler's threads share.
pub(crate) struct Shared {
    pub(crate) factory: ParserFactory,
    pub(crate) env: Arc<TokenEnv>,
    pub(crate) config: GrammarConfig,
    metrics: CompilerMetrics,
    state: Mutex<State>,
    /// A grammar was queued, or the compiler was closed.
    work: Condvar,
    /// A request with a deadline was added, or the compiler was closed.
    timer: Condvar,
}

struct State {
    cache: Cache,
    /// Grammars queued or being compiled.
    pending: HashMap<Key, Pending>,
    queue: VecDeque<Work>,
    closed: bool,
}

/// What waits for a slot.
enum Work {
    Grammar(Key, GrammarSpec),
    Task(Task),
}

/// A grammar that is not compiled yet, and who waits for it.
#[derive(Default)]
struct Pending {
    waiters: Vec<Waiter>,
    started: bool,
    /// Set while the first mask is computed.
    cancel: Option<CancellationHandle>,
}

struct Waiter {
    deadline: Instant,
    done: Done,
}

impl GrammarCompiler {
    /// Builds the token trie and starts the compile threads.
    ///
    /// # Errors
    /// The vocabulary or the configuration is unusable, or threads cannot be started.
    pub fn new(
        tokenizer: Arc<dyn Tokenizer>,
        vocab_size: usize,
        config: GrammarConfig,
        registry: &Registry,
    ) -> Result<Arc<Self>> {
        let env = TokenEnv::new(tokenizer, vocab_size)?;
        let unusable =
            |error: &dyn std::fmt::Display| Error::configuration(format!("grammar compiler: {error}"));
        let mut factory = ParserFactory::new(
            &env.tok_env(),
            InferenceCapabilities::default(),
            &SlicedBiasComputer::general_slices(),
        )
        .map_err(|e| unusable(&e))?;
        *factory.limits_mut() = (&config.limits).into();
        factory.quiet().set_stderr_log_level(config.log_level);
        let metrics = CompilerMetrics::new(registry);
        let capacity = usize::try_from(config.cache_megabytes << 20).unwrap_or(usize::MAX);
        let shared = Arc::new(Shared {
            factory,
            env,
            metrics,
            state: Mutex::new(State {
                cache: Cache::new(capacity),
                pending: HashMap::new(),
                queue: VecDeque::new(),
                closed: false,
            }),
            work: Condvar::new(),
            timer: Condvar::new(),
            config,
        });
        // From here on, dropping the compiler ends the threads.
        let compiler = Arc::new(Self { shared });
        for slot in 0..compiler.shared.config.compile_slots.max(1) {
            let shared = Arc::clone(&compiler.shared);
            spawn_big_stack(&format!("grammar-{slot}"), move || shared.compile_loop())
                .map_err(|e| unusable(&e))?;
        }
        let shared = Arc::clone(&compiler.shared);
        std::thread::Builder::new()
            .name("grammar-timer".to_owned())
            .spawn(move || shared.timer_loop())
            .map_err(|e| unusable(&e))?;
        Ok(compiler)
    }

    /// As [`new`](Self::new), for no engine: its rows are as wide as the vocabulary, and its metrics are its own.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn alone(tokenizer: Arc<dyn Tokenizer>, config: GrammarConfig) -> Result<Arc<Self>> {
        let vocab_size = tokenizer.vocabulary().len();
        Self::new(tokenizer, vocab_size, config, &Registry::new())
    }

    /// Compiles a grammar, or finds it compiled, and waits for it.
    ///
    /// # Errors
    /// As [`compile_async`](Self::compile_async).
    pub fn compile(&self, spec: &GrammarSpec) -> Result<CompiledGrammar> {
        let (send, receive) = std::sync::mpsc::sync_channel(1);
        self.compile_async(
            spec.clone(),
            Box::new(move |outcome| {
                let _ = send.send(outcome);
            }),
        )?;
        receive.recv().unwrap_or_else(|_| Err(Error::internal("the grammar compiler dropped a request")))
    }

    /// Compiles a grammar and calls `done` once: at once on this thread if the grammar is known,
    /// otherwise later on a thread of the compiler. `done` must not block.
    ///
    /// # Errors
    /// `done` will not be called: the text is too long ([`ErrorKind::Grammar`]), the queue is full
    /// ([`ErrorKind::Overloaded`]), or the compiler was closed ([`ErrorKind::ShuttingDown`]).
    pub fn compile_async(&self, spec: GrammarSpec, done: Done) -> Result<()> {
        let shared = &self.shared;
        admission::check_size(&spec, &shared.config).map_err(|error| {
            shared.metrics.errors.inc();
            Refusal::from(error)
        })?;
        let key = key(&spec);
        let deadline = Instant::now() + Duration::from_millis(shared.config.compile_deadline_ms);
        let mut state = shared.state.lock();
        if let Some(outcome) = state.cache.get(&key) {
            drop(state);
            shared.metrics.cache_hits.inc();
            done(outcome);
            return Ok(());
        }
        if state.closed {
            return Err(closed());
        }
        let waiter = Waiter { deadline, done };
        if let Some(pending) = state.pending.get_mut(&key) {
            pending.waiters.push(waiter);
            shared.metrics.cache_hits.inc();
        } else {
            shared.check_room(&state)?;
            state.queue.push_back(Work::Grammar(key, spec));
            state.pending.insert(key, Pending { waiters: vec![waiter], ..Pending::default() });
            shared.metrics.cache_misses.inc();
            shared.work.notify_one();
        }
        shared.timer.notify_one();
        Ok(())
    }

    /// Runs `task` in a slot, as if it were a grammar to compile. The task bounds its own time. It is dropped
    /// if the compiler is closed before its turn comes.
    ///
    /// # Errors
    /// The task will not run: the queue is full, or the compiler was closed.
    pub(crate) fn run(&self, task: Task) -> Result<()> {
        let mut state = self.shared.state.lock();
        if state.closed {
            return Err(closed());
        }
        self.shared.check_room(&state)?;
        state.queue.push_back(Work::Task(task));
        drop(state);
        self.shared.work.notify_one();
        Ok(())
    }

    pub(crate) fn config(&self) -> &GrammarConfig {
        &self.shared.config
    }

    /// The tokenizer and its trie.
    pub fn env(&self) -> &Arc<TokenEnv> {
        &self.shared.env
    }

    /// Grammars waiting for a slot.
    pub fn queue_len(&self) -> usize {
        self.shared.state.lock().queue.len()
    }
}

impl Drop for GrammarCompiler {
    /// Answers everyone who waits and tells the threads to end. A compilation in progress finishes
    /// on its own; nobody waits for it.
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        state.closed = true;
        state.queue.clear();
        let waiters: Vec<Waiter> =
            state.pending.values_mut().flat_map(|pending| pending.waiters.drain(..)).collect();
        drop(state);
        self.shared.work.notify_all();
        self.shared.timer.notify_all();
        answer(waiters, &Err(closed()));
    }
}

impl Shared {
    fn compile_loop(&self) {
        loop {
            let mut state = self.state.lock();
            let work = loop {
                if state.closed {
                    return;
                }
                if let Some(next) = state.queue.pop_front() {
                    break next;
                }
                self.work.wait(&mut state);
            };
            let (key, spec) = match work {
                Work::Grammar(key, spec) => (key, spec),
                Work::Task(task) => {
                    drop(state);
                    if catch_unwind(AssertUnwindSafe(|| task(self))).is_err() {
                        tracing::error!("a task of the grammar compiler panicked");
                    }
                    continue;
                }
            };
            // The timer removes grammars that nobody waits for any more.
            let Some(pending) = state.pending.get_mut(&key) else { continue };
            pending.started = true;
            drop(state);

            let outcome = self.compile(key, &spec);

            let mut state = self.state.lock();
            let waiters = state.pending.remove(&key).map(|pending| pending.waiters).unwrap_or_default();
            state.cache.insert(key, outcome.clone());
            self.metrics.cache_bytes.set(state.cache.bytes() as i64);
            drop(state);
            answer(waiters, &outcome);
        }
    }

    fn compile(&self, key: Key, spec: &GrammarSpec) -> Outcome {
        let started = Instant::now();
        let on_cancellable = |handle: CancellationHandle| {
            if let Some(pending) = self.state.lock().pending.get_mut(&key) {
                // The last request may have given up while the grammar was compiled.
                if pending.waiters.is_empty() {
                    handle.cancel();
                }
                pending.cancel = Some(handle);
            }
        };
        let mut same = None;
        let result = catch_unwind(AssertUnwindSafe(|| {
            let mut admitted = admission::admit(spec, &self.config, ResidualMode::Refuse)?;
            // Schemas that differ only in what has no meaning share a grammar.
            same = admitted.text().map(|text| text_key(&text));
            let known = same.and_then(|key| self.state.lock().cache.get(&key));
            if let Some(Ok(grammar)) = known {
                return Ok(grammar);
            }
            build(&self.factory, &self.env, spec.kind(), &mut admitted, &self.config, on_cancellable)
        }));
        self.metrics.compile_seconds.observe(started.elapsed().as_secs_f64());
        let outcome = match result {
            Ok(Ok(grammar)) => Ok(grammar),
            Ok(Err(Failure::Refused(refusal))) => Err(refusal.into()),
            // Remembered as a refusal: the next attempt would take as long.
            Ok(Err(Failure::Cancelled)) => Err(self.deadline_error()),
            Err(_) => Err(Error::internal("the grammar compiler panicked")),
        };
        match (&outcome, same) {
            (Err(_), _) => self.metrics.errors.inc(),
            (Ok(_), Some(same)) => self.state.lock().cache.insert(same, outcome.clone()),
            (Ok(_), None) => {}
        }
        outcome
    }

    fn check_room(&self, state: &State) -> Result<()> {
        if state.queue.len() >= self.config.compile_queue_size {
            return Err(Error::new(ErrorKind::Overloaded, "too many grammars wait to be compiled"));
        }
        Ok(())
    }

    fn deadline_error(&self) -> Error {
        late(&self.config).into()
    }

    fn timer_loop(&self) {
        let mut state = self.state.lock();
        while !state.closed {
            let now = Instant::now();
            let expired = state.take_expired(now);
            if !expired.is_empty() {
                drop(state);
                answer(expired, &Err(self.deadline_error()));
                state = self.state.lock();
                continue;
            }
            match state.next_deadline() {
                Some(deadline) => _ = self.timer.wait_until(&mut state, deadline),
                None => self.timer.wait(&mut state),
            }
        }
    }
}

impl State {
    fn next_deadline(&self) -> Option<Instant> {
        self.pending.values().flat_map(|pending| &pending.waiters).map(|waiter| waiter.deadline).min()
    }

    /// Removes the requests whose deadline passed, and stops what nobody waits for.
    fn take_expired(&mut self, now: Instant) -> Vec<Waiter> {
        let mut expired = Vec::new();
        for pending in self.pending.values_mut() {
            let before = expired.len();
            expired.extend(pending.waiters.extract_if(.., |waiter| waiter.deadline <= now));
            if expired.len() > before && pending.waiters.is_empty() {
                if let Some(handle) = &pending.cancel {
                    handle.cancel();
                }
            }
        }
        if !expired.is_empty() {
            self.pending.retain(|_, pending| pending.started || !pending.waiters.is_empty());
            let pending = &self.pending;
            self.queue.retain(|work| match work {
                Work::Grammar(key, _) => pending.contains_key(key),
                Work::Task(_) => true,
            });
        }
        expired
    }
}

/// The refusal of a grammar that takes too long.
pub(crate) fn late(config: &GrammarConfig) -> Refusal {
    let limit = config.compile_deadline_ms;
    grammar_error(format!("the grammar was not compiled within the limit of {limit} ms")).into()
}

fn closed() -> Error {
    Error::new(ErrorKind::ShuttingDown, "the server is shutting down")
}

/// Calls back; a panic of one callback reaches neither the others nor the compiler's thread.
fn answer(waiters: Vec<Waiter>, outcome: &Outcome) {
    for waiter in waiters {
        let outcome = outcome.clone();
        if catch_unwind(AssertUnwindSafe(|| (waiter.done)(outcome))).is_err() {
            tracing::error!("a callback of the grammar compiler panicked");
        }
    }
}
