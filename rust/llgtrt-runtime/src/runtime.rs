//! Starts the threads and hands requests to them: what the Python module drives.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use parking_lot::Mutex;
use prometheus::Registry;

use llgtrt_core::{
    Capabilities, Embedder, EmbedderTraits, Engine, Error, ErrorKind, MaskSource, Pass, Result, StepBatch,
    Tokenizer,
};
use llgtrt_grammar::{GrammarCompiler, GrammarConfig, MaskPool, spawn_big_stack};
use llgtrt_text::GuardedEncoder;

use crate::admission::{Admission, Job};
use crate::connection::Connection;
use crate::embed::{EmbedHandle, EmbedRequest, EmbedService};
use crate::engine_loop::{Command, EngineLoop};
use crate::gate::{Gate, Permit};
use crate::metrics::Metrics;
use crate::outbox::RequestState;
use crate::output::{Event, OutputLoop};
use crate::request::{GenerateRequest, Payload, Summary};
use crate::seeds::Seeds;
use crate::shared::{Health, Shared};
use crate::signal::Signal;
use crate::watchdog::{self, Progress};

/// Threads that tokenize and admit.
const ADMISSION_THREADS: usize = 2;
/// Step batches in flight between the engine and the output thread.
const STEP_BATCHES: usize = 4;
/// How long a shutdown waits for each thread; an engine that hangs is left behind.
const JOIN_TIMEOUT: Duration = Duration::from_secs(5);

/// What the runtime itself is told by the configuration.
#[derive(Debug, Clone)]
pub struct RuntimeConfig {
    /// Sequences that may wait beyond those that run.
    pub max_queue_size: usize,
    /// What the seeds of requests without one are derived from; `None` draws each from the operating system.
    pub seed: Option<u64>,
    /// No progress for this long while busy is a stall.
    pub stall_timeout: Duration,
    /// Grammar limits, cache and threads.
    pub grammar: GrammarConfig,
}

/// Builds the engine on the thread that will own it, over the runtime's masks.
pub type EngineFactory = Box<dyn FnOnce(Arc<dyn MaskSource>) -> Result<Box<dyn Engine>> + Send>;

/// The running core.
pub struct Runtime {
    shared: Arc<Shared>,
    gate: Arc<Gate>,
    tokenizer: Arc<dyn Tokenizer>,
    /// Ends with the admission threads, which own it.
    compiler: Weak<GrammarCompiler>,
    capabilities: Capabilities,
    next_request: AtomicU64,
    events: Sender<Event>,
    commands: Sender<Command>,
    /// Taken by the shutdown.
    embed: Mutex<Option<EmbedService>>,
    /// Taken by the shutdown.
    running: Mutex<Option<Running>>,
}

struct Running {
    jobs: Sender<Job>,
    watchdog_stop: Sender<()>,
    threads: Vec<JoinHandle<()>>,
}

impl std::fmt::Debug for Runtime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Runtime").field("capabilities", &self.capabilities).finish_non_exhaustive()
    }
}

impl Runtime {
    /// Builds the engine and starts every thread. May take as long as loading a model.
    ///
    /// `vocab_size` is the width of a logits row of the engine to come.
    pub fn start(
        config: &RuntimeConfig,
        tokenizer: Arc<dyn Tokenizer>,
        vocab_size: usize,
        engine: EngineFactory,
    ) -> Result<Self> {
        let registry = Registry::new();
        let metrics = Arc::new(Metrics::new(&registry)?);
        let shared = Shared::new(Signal::new()?, Arc::clone(&metrics));
        let compiler =
            GrammarCompiler::new(Arc::clone(&tokenizer), vocab_size, config.grammar.clone(), &registry)?;
        let weak_compiler = Arc::downgrade(&compiler);
        let masks = MaskPool::new(vocab_size, &config.grammar, &registry);
        let progress = Arc::new(Progress::default());

        let (commands, command_receiver) = unbounded();
        let (events, event_receiver) = unbounded();
        let (batches, batch_receiver) = bounded(STEP_BATCHES);
        for _ in 0..STEP_BATCHES {
            batches.send(StepBatch::default()).map_err(|_| Error::internal("batch channel"))?;
        }
        let mut threads = Vec::new();

        let (built, built_receiver) = bounded(1);
        {
            let masks: Arc<dyn MaskSource> = masks.clone();
            let (events, progress, metrics) = (events.clone(), Arc::clone(&progress), Arc::clone(&metrics));
            let thread = spawn_big_stack("llgtrt-engine", move || match engine(masks) {
                Ok(engine) => {
                    if built.send(Ok(engine.capabilities().clone())).is_ok() {
                        let commands = command_receiver;
                        EngineLoop { engine, commands, events, batches: batch_receiver, progress, metrics }
                            .run();
                    }
                }
                Err(error) => drop(built.send(Err(error))),
            });
            threads.push(thread.map_err(no_thread)?);
        }
        let capabilities = built_receiver
            .recv()
            .map_err(|_| Error::engine("the engine's thread ended while starting"))??;
        if capabilities.vocab_size as usize != vocab_size {
            let actual = capabilities.vocab_size;
            return Err(Error::configuration(format!(
                "the engine's vocabulary has {actual} entries, not {vocab_size}"
            )));
        }

        if !capabilities.retract {
            compiler.never_verify();
        }

        let output = OutputLoop::new(
            event_receiver,
            commands.clone(),
            batches,
            Arc::clone(&shared),
            Arc::clone(&masks),
            Arc::clone(&tokenizer),
        );
        threads.push(spawn_big_stack("llgtrt-output", move || output.run()).map_err(no_thread)?);

        let (jobs, job_receiver) = unbounded();
        let admission = Arc::new(Admission {
            shared: Arc::clone(&shared),
            max_token_bytes: tokenizer.vocabulary().max_token_bytes(),
            encoder: GuardedEncoder::new(Arc::clone(&tokenizer))?,
            tokenizer: Arc::clone(&tokenizer),
            compiler,
            masks,
            capabilities: capabilities.clone(),
            commands: commands.clone(),
            events: events.clone(),
            next_sequence: AtomicU64::new(1),
            seeds: Seeds::new(config.seed),
            logits: Arc::default(),
        });
        for index in 0..ADMISSION_THREADS {
            let (admission, jobs) = (Arc::clone(&admission), job_receiver.clone());
            let name = format!("llgtrt-admit-{index}");
            threads.push(spawn_big_stack(&name, move || admission.run(&jobs)).map_err(no_thread)?);
        }

        let (watchdog_stop, stop) = bounded(0);
        threads.push(spawn_watchdog(Arc::clone(&shared), progress, config.stall_timeout, stop)?);

        Ok(Self {
            shared,
            gate: Gate::new(capabilities.max_batch_size as usize + config.max_queue_size),
            tokenizer,
            compiler: weak_compiler,
            capabilities,
            next_request: AtomicU64::new(1),
            events,
            commands,
            embed: Mutex::new(None),
            running: Mutex::new(Some(Running { jobs, watchdog_stop, threads })),
        })
    }

    /// What the engine can do.
    pub fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    /// The tokenizer in use.
    pub fn tokenizer(&self) -> &Arc<dyn Tokenizer> {
        &self.tokenizer
    }

    /// The compiler of grammars, for reports on them. Hold it no longer than a call.
    ///
    /// # Errors
    /// The runtime was shut down.
    pub fn compiler(&self) -> Result<Arc<GrammarCompiler>> {
        let ended = || Error::new(ErrorKind::ShuttingDown, "the server is shutting down");
        self.compiler.upgrade().ok_or_else(ended)
    }

    /// Takes places for `sequences` sequences.
    pub fn reserve(&self, sequences: usize) -> Result<Permit> {
        self.shared.check_open()?;
        self.gate.reserve(sequences).inspect_err(|_| self.shared.metrics.rejected.inc())
    }

    /// Starts a request on the places of `permit`. Returns at once: nothing of its size is done here.
    pub fn submit(&self, request: Arc<GenerateRequest>, permit: Permit) -> Result<RequestHandle> {
        if permit.is_lent() {
            // It is a part of a request that came in before.
            self.shared.check_alive()?;
        } else {
            self.shared.check_open()?;
        }
        let asked = request.sequences();
        if asked == 0 || permit.places() != asked {
            return Err(Error::internal(format!("permit for {} of {asked} sequences", permit.places())));
        }
        let id = self.next_request.fetch_add(1, Ordering::Relaxed);
        let state =
            RequestState::new(id, &request, Arc::clone(&self.tokenizer), self.shared.active_counter());
        let handle = RequestHandle { state: Arc::clone(&state), events: self.events.clone() };
        let running = self.running.lock();
        let jobs = &running.as_ref().ok_or_else(|| Error::internal("the runtime was shut down"))?.jobs;
        jobs.send(Job { state, request, permit, logits: None })
            .map_err(|_| Error::internal("admission has ended"))?;
        Ok(handle)
    }

    /// Starts the thread of an embedder. Once, before any request.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn serve_embedder(&self, embedder: Box<dyn Embedder>, most_waiting: usize) -> Result<()> {
        let (service, body) = EmbedService::new(embedder, Arc::clone(&self.shared), most_waiting);
        let thread = spawn_big_stack("llgtrt-embed", body).map_err(no_thread)?;
        *self.embed.lock() = Some(service);
        if let Some(running) = &mut *self.running.lock() {
            running.threads.push(thread);
        }
        Ok(())
    }

    /// What the embedder is, if there is one.
    pub fn embedder(&self) -> Option<EmbedderTraits> {
        self.embed.lock().as_ref().map(|service| service.traits().clone())
    }

    /// Asks for vectors or scores. Returns at once; [`Self::drain`] gives the answer.
    ///
    /// # Errors
    /// There is no embedder, or too many requests wait for it.
    pub fn embed(&self, request: EmbedRequest) -> Result<EmbedHandle> {
        self.shared.check_open()?;
        let service = self.embed.lock();
        let service = service.as_ref().ok_or_else(|| Error::internal("there is no embedder"))?;
        let id = self.next_request.fetch_add(1, Ordering::Relaxed);
        service
            .submit(id, request, self.shared.active_counter())
            .inspect_err(|_| self.shared.metrics.rejected.inc())
    }

    /// The descriptor that becomes readable when [`Self::drain`] has something.
    pub fn event_fd(&self) -> std::os::fd::RawFd {
        self.shared.signal.fd()
    }

    /// `(request id, payload, last)` for every request that has something for a reader that waits.
    pub fn drain(&self) -> Vec<(u64, Payload, bool)> {
        self.shared.drain()
    }

    /// Prometheus text.
    pub fn metrics(&self) -> Result<String> {
        self.shared.metrics.render()
    }

    /// Token positions of the KV cache that running sequences use, as a fraction of all, 0 to 1.
    pub fn kv_cache_usage(&self) -> f64 {
        self.shared.metrics.kv_cache_usage.get()
    }

    /// The forward passes since the last call, the oldest first; of more than 64 the last ones.
    pub fn take_passes(&self) -> Vec<Pass> {
        self.shared.metrics.passes.take()
    }

    /// Whether the core can serve.
    pub fn health(&self) -> Health {
        self.shared.health()
    }

    /// Requests that are not over.
    pub fn active_requests(&self) -> usize {
        self.shared.active()
    }

    /// Refuses new requests from now on.
    pub fn begin_drain(&self) {
        self.shared.set_draining();
    }

    /// Cancels what runs and ends every thread; one that hangs is left behind. Idempotent.
    pub fn shutdown(&self) {
        self.shared.set_draining();
        let Some(Running { jobs, watchdog_stop, threads }) = self.running.lock().take() else { return };
        drop((jobs, watchdog_stop, self.embed.lock().take()));
        let _ = self.commands.send(Command::Shutdown);
        let deadline = Instant::now() + JOIN_TIMEOUT;
        for (index, thread) in threads.into_iter().enumerate() {
            join_until(thread, deadline);
            if index == 0 {
                // The engine's thread came first: what it reported last is in the queue by now.
                let _ = self.events.send(Event::Shutdown);
            }
        }
    }
}

#[expect(clippy::needless_pass_by_value, reason = "the shape that map_err wants")]
fn no_thread(error: std::io::Error) -> Error {
    Error::internal(format!("cannot start a thread: {error}"))
}

fn spawn_watchdog(
    shared: Arc<Shared>,
    progress: Arc<Progress>,
    limit: Duration,
    stop: Receiver<()>,
) -> Result<JoinHandle<()>> {
    let watch = move || {
        watchdog::run(&progress, limit, &stop, |stalled| {
            if stalled {
                tracing::error!(?limit, "the engine makes no progress");
            } else {
                tracing::warn!("the engine makes progress again");
            }
            shared.set_stalled(stalled);
        });
    };
    std::thread::Builder::new().name("llgtrt-watchdog".into()).spawn(watch).map_err(no_thread)
}

/// Joins a thread unless it outlives the deadline.
fn join_until(thread: JoinHandle<()>, deadline: Instant) {
    while !thread.is_finished() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(1));
    }
    if thread.is_finished() {
        let _ = thread.join();
    } else {
        tracing::warn!(thread = thread.thread().name(), "a thread did not end and is left behind");
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        self.shutdown();
    }
}

/// A submitted request, held by its reader. Dropping it cancels the request.
#[derive(Debug)]
pub struct RequestHandle {
    state: Arc<RequestState>,
    events: Sender<Event>,
}

impl RequestHandle {
    /// Identity in what [`Runtime::drain`] returns.
    pub fn id(&self) -> u64 {
        self.state.id()
    }

    /// What is known of it: all, once the last payload was taken.
    pub fn summary(&self) -> Summary {
        self.state.summary()
    }

    /// What is ready now, and whether it is the last; `None` asks [`Runtime::drain`] for the next.
    pub fn take(&self) -> Option<(Payload, bool)> {
        self.state.take()
    }

    /// Writes frames to a connection to which nothing else waits to be written, as a chunk of an HTTP/1.1 body; from then
    /// on the output thread writes those that come while the reader waits, but for the last one and errors. Gives the
    /// end of the chunk that the connection did not take at once, which is for the caller to write; then nothing more is
    /// written, and so it is after [`Payload::Unsent`].
    ///
    /// # Errors
    /// There are too many open files; nothing was written.
    pub fn write_to(&self, socket: BorrowedFd<'_>, frames: &[u8]) -> std::io::Result<Vec<u8>> {
        Ok(self.state.open_outlet(Connection::of(socket)?, frames))
    }

    /// Leaves what comes to the reader again. To be called before anything else is written to the connection: gives the
    /// end of a chunk that is to be written before it.
    #[must_use]
    pub fn stop_writing(&self) -> Vec<u8> {
        self.state.close_outlet()
    }

    /// How long ago something was written to the connection; `None` where the reader writes.
    pub fn since_written(&self) -> Option<Duration> {
        self.state.since_written()
    }

    /// Ends the request; nothing is delivered any more. Idempotent.
    pub fn cancel(&self) {
        if !self.state.is_closed() {
            self.state.close();
            // After the engine's end there is nothing left to cancel.
            let _ = self.events.send(Event::Closed(Arc::clone(&self.state)));
        }
    }
}

impl Drop for RequestHandle {
    fn drop(&mut self) {
        self.cancel();
    }
}
