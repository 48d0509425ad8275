//! Compiles grammars in bounded slots, with a deadline, and keeps the results.
//!
//! `llgtrt-compile-N` threads take grammars from a bounded queue; requests for a grammar that is already
//! queued or being compiled wait for that one. The `llgtrt-deadline` thread answers requests whose
//! deadline passed, and replaces threads whose work takes longer than that ([`slots`]): what they do goes on at
//! the lowest priority, and its result is kept. Only outcomes that do not depend on time are kept.
//! Callbacks run without the lock held.

mod pending;
mod priority;
mod slots;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use llgtrt_core::{Error, ErrorKind, GrammarSpec, Result, Tokenizer};
use llguidance::ParserFactory;
use llguidance::earley::SlicedBiasComputer;
use parking_lot::{Condvar, Mutex};
use prometheus::Registry;
use toktrie::InferenceCapabilities;

use self::pending::{Grammars, Waiter};
use self::priority::Thread;
use self::slots::{Slots, Worker};
use crate::cache::{Cache, Key, Outcome, key, text_key};
use crate::compiled::{CompiledGrammar, Failure, GrammarFacts, build};
use crate::config::GrammarConfig;
use crate::metrics::CompilerMetrics;
use crate::refusal::Refusal;
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
    pub(crate) factory: Arc<ParserFactory>,
    pub(crate) env: Arc<TokenEnv>,
    pub(crate) config: GrammarConfig,
    /// Whether answers can be checked beside their grammar: only where tokens can be taken back.
    verifies: AtomicBool,
    metrics: CompilerMetrics,
    state: Mutex<State>,
    /// A grammar was queued, or the compiler was closed.
    work: Condvar,
    /// A request with a deadline was added, or the compiler was closed.
    timer: Condvar,
}

struct State {
    cache: Cache,
    grammars: Grammars,
    queue: VecDeque<Work>,
    slots: Slots,
    /// The threads at work.
    threads: HashMap<Worker, Thread>,
    /// When the timer looks again by itself.
    timer_wakes: Option<Instant>,
    closed: bool,
}

/// What waits for a slot.
enum Work {
    Grammar(Key, GrammarSpec),
    Task(Task),
}

/// What a compilation ended with.
enum Compiled {
    /// Something that the next compilation would end with as well.
    Settled(Outcome),
    /// A refusal for which the clock may be the reason.
    Unsettled(Error),
    /// It was stopped, because nobody waited for it.
    Stopped,
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
        admission::check_defaults(&config).map_err(|refusal| unusable(&refusal.error))?;
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
        let slots = Slots::new(
            config.compile_slots.max(1),
            config.most_compiles(),
            Duration::from_millis(config.compile_deadline_ms),
        );
        let shared = Arc::new(Shared {
            factory: Arc::new(factory),
            env,
            verifies: AtomicBool::new(true),
            metrics,
            state: Mutex::new(State {
                cache: Cache::new(capacity),
                grammars: Grammars::default(),
                queue: VecDeque::new(),
                slots,
                threads: HashMap::new(),
                timer_wakes: None,
                closed: false,
            }),
            work: Condvar::new(),
            timer: Condvar::new(),
            config,
        });
        // From here on, dropping the compiler ends the threads.
        let compiler = Arc::new(Self { shared });
        compiler.shared.staff().map_err(|e| unusable(&e))?;
        let shared = Arc::clone(&compiler.shared);
        std::thread::Builder::new()
            .name("llgtrt-deadline".to_owned())
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
        admission::check_size(&spec, &shared.config).inspect_err(|_| shared.metrics.errors.inc())?;
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
        match state.grammars.join(&key, Waiter { deadline, done }) {
            Ok(()) => shared.metrics.cache_hits.inc(),
            Err(waiter) => {
                shared.check_room(&state)?;
                state.queue.push_back(Work::Grammar(key, spec));
                state.grammars.add(key, waiter);
                shared.metrics.cache_misses.inc();
                shared.work.notify_one();
            }
        }
        shared.set_timer(&state, deadline);
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

    /// From now on a schema is refused, unless it says otherwise itself, for what no grammar can hold: the engine
    /// cannot take tokens back. To be called before the first grammar.
    pub fn never_verify(&self) {
        self.shared.verifies.store(false, Ordering::Relaxed);
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
        let waiters = state.grammars.drain();
        drop(state);
        self.shared.work.notify_all();
        self.shared.timer.notify_all();
        answer(waiters, &Err(closed()));
    }
}

impl Shared {
    /// What to do with what no grammar can hold, where nobody says it.
    pub(crate) fn residual(&self) -> ResidualMode {
        if self.verifies.load(Ordering::Relaxed) { self.config.residual.into() } else { ResidualMode::Refuse }
    }

    /// Starts the threads that are missing.
    fn staff(self: &Arc<Self>) -> std::io::Result<()> {
        loop {
            let mut state = self.state.lock();
            if state.closed {
                return Ok(());
            }
            let Some(worker) = state.slots.hire() else { return Ok(()) };
            drop(state);
            let shared = Arc::clone(self);
            if let Err(error) =
                spawn_big_stack(&format!("llgtrt-compile-{worker}"), move || shared.work_loop(worker))
            {
                self.state.lock().slots.dismiss();
                return Err(error);
            }
        }
    }

    /// As [`staff`](Self::staff), where there is nobody to tell.
    fn restaff(self: &Arc<Self>) {
        if let Err(error) = self.staff() {
            tracing::error!(%error, "no thread for a compile slot");
        }
    }

    fn work_loop(self: &Arc<Self>, worker: Worker) {
        let thread = Thread::current();
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
            if let Work::Grammar(key, _) = &work
                && !state.grammars.start(key)
            {
                // The timer removes grammars that nobody waits for any more.
                continue;
            }
            let deadline = state.slots.begin(worker, Instant::now());
            state.threads.insert(worker, thread);
            self.set_timer(&state, deadline);
            drop(state);

            match work {
                Work::Grammar(key, spec) => {
                    let compiled = self.compile(key, &spec);
                    self.conclude(key, spec, compiled);
                }
                Work::Task(task) => {
                    if catch_unwind(AssertUnwindSafe(|| task(self))).is_err() {
                        tracing::error!("a task of the grammar compiler panicked");
                    }
                }
            }

            let mut state = self.state.lock();
            state.threads.remove(&worker);
            let goes_on = state.slots.end(worker);
            self.metrics.overrun.set(state.slots.overrun() as i64);
            drop(state);
            if !goes_on {
                // Where overrun work had used up all threads, there is room for one again.
                self.restaff();
                return;
            }
        }
    }

    /// Keeps what a compilation ended with and tells who waits for it.
    fn conclude(&self, key: Key, spec: GrammarSpec, compiled: Compiled) {
        let mut state = self.state.lock();
        let outcome = match compiled {
            Compiled::Settled(outcome) => {
                state.cache.insert(key, &outcome);
                self.metrics.cache_bytes.set(state.cache.bytes() as i64);
                outcome
            }
            Compiled::Unsettled(error) => Err(error),
            Compiled::Stopped => {
                if state.grammars.stopped(&key) {
                    state.queue.push_back(Work::Grammar(key, spec));
                    self.work.notify_one();
                }
                return;
            }
        };
        let waiters = state.grammars.finish(&key);
        drop(state);
        answer(waiters, &outcome);
    }

    fn compile(&self, key: Key, spec: &GrammarSpec) -> Compiled {
        let started = Instant::now();
        let on_cancellable = |handle| self.state.lock().grammars.watch(&key, handle);
        let mut same = None;
        let result = catch_unwind(AssertUnwindSafe(|| {
            let mut admitted = admission::admit(spec, &self.config, self.residual())?;
            // Schemas that differ only in what has no meaning share a grammar.
            same = admitted.text().map(|text| text_key(&text));
            let known = same.and_then(|key| self.state.lock().cache.same(&key));
            let grammar = match known {
                Some(grammar) => grammar,
                None => {
                    build(&self.factory, &self.env, spec.kind(), &mut admitted, &self.config, on_cancellable)?
                }
            };
            Ok(grammar.with_facts(GrammarFacts::new(&admitted.notes, started.elapsed())))
        }));
        self.metrics.compile_seconds.observe(started.elapsed().as_secs_f64());
        let refused = match result {
            Ok(Ok(grammar)) => {
                if let Some(same) = same {
                    self.state.lock().cache.share(same, &grammar);
                }
                return Compiled::Settled(Ok(grammar));
            }
            Ok(Err(Failure::Cancelled)) => return Compiled::Stopped,
            Ok(Err(Failure::Refused(refusal))) if !refusal.timed => Compiled::Settled(Err(refusal.into())),
            Ok(Err(Failure::Refused(refusal))) => Compiled::Unsettled(refusal.into()),
            Err(_) => Compiled::Unsettled(Error::internal("the grammar compiler panicked")),
        };
        self.metrics.errors.inc();
        refused
    }

    fn check_room(&self, state: &State) -> Result<()> {
        if state.slots.is_exhausted() {
            let message = "every grammar that is being compiled takes too long, and no other can be started";
            return Err(Error::new(ErrorKind::Overloaded, message));
        }
        if state.queue.len() >= self.config.compile_queue_size {
            return Err(Error::new(ErrorKind::Overloaded, "too many grammars wait to be compiled"));
        }
        Ok(())
    }

    fn deadline_error(&self) -> Error {
        late(&self.config).into()
    }

    /// Wakes the timer if it would sleep beyond the deadline. Mostly it would not: another thread that wakes up for each
    /// grammar would take time from those that compile.
    fn set_timer(&self, state: &State, deadline: Instant) {
        if state.timer_wakes.is_none_or(|at| deadline < at) {
            self.timer.notify_one();
        }
    }

    fn timer_loop(self: &Arc<Self>) {
        loop {
            if self.attend(Instant::now()) {
                continue;
            }
            let mut state = self.state.lock();
            if state.closed {
                return;
            }
            let next = [state.grammars.next_deadline(), state.slots.next_deadline()];
            state.timer_wakes = next.into_iter().flatten().min();
            match state.timer_wakes {
                Some(deadline) => _ = self.timer.wait_until(&mut state, deadline),
                None => self.timer.wait(&mut state),
            }
        }
    }

    /// Answers the requests whose deadline has passed by `now`, and replaces the threads whose work is overrun; false
    /// if there were none.
    fn attend(self: &Arc<Self>, now: Instant) -> bool {
        let mut state = self.state.lock();
        let overdue = state.slots.overdue(now);
        for worker in &overdue {
            self.metrics.overruns.inc();
            // It is at work, and stays so for as long as the lock is held.
            state.threads.get(worker).copied().into_iter().for_each(Thread::yield_to_all);
        }
        let expired = state.take_expired(now);
        if expired.is_empty() && overdue.is_empty() {
            return false;
        }
        self.metrics.overrun.set(state.slots.overrun() as i64);
        drop(state);
        self.restaff();
        answer(expired, &Err(self.deadline_error()));
        true
    }
}

impl State {
    /// Removes the requests whose deadline passed, and what nobody waits for.
    fn take_expired(&mut self, now: Instant) -> Vec<Waiter> {
        let Self { grammars, queue, .. } = self;
        let expired = grammars.take_expired(now);
        if !expired.is_empty() {
            queue.retain(|work| match work {
                Work::Grammar(key, _) => grammars.is_pending(key),
                Work::Task(_) => true,
            });
        }
        expired
    }
}

/// The refusal of a grammar that takes too long.
pub(crate) fn late(config: &GrammarConfig) -> Refusal {
    let limit = config.compile_deadline_ms;
    let message = format!("the grammar was not compiled within the limit of {limit} ms");
    Refusal::new(message, "use fewer alternatives, shorter patterns and fewer optional properties")
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
