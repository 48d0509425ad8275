//! What every thread of the runtime shares: the ready list, the signal, health and metrics.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use llgtrt_core::{Error, ErrorKind};

use crate::metrics::Metrics;
use crate::outbox::RequestState;
use crate::request::{Embeddings, Payload};
use crate::signal::Signal;
use crate::sync::{AtomicUsize, Mutex};

/// Whether the runtime can serve.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    /// Serving.
    Ready,
    /// Finishing what runs, refusing what is new.
    Draining,
    /// The engine has work and makes no progress.
    Stalled,
    /// The engine is dead.
    Failed(Error),
}

impl Health {
    /// Stable lower-case name.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Draining => "draining",
            Self::Stalled => "stalled",
            Self::Failed(_) => "failed",
        }
    }
}

#[derive(Debug, Default)]
struct Lifecycle {
    draining: bool,
    stalled: bool,
    failed: Option<Error>,
}

/// State reachable from every thread.
#[derive(Debug)]
pub(crate) struct Shared {
    pub signal: Signal,
    pub metrics: Arc<Metrics>,
    ready: Mutex<Vec<Arc<RequestState>>>,
    /// Empty between drains: the memory of the list of ready requests, which changes places with it.
    drained: Mutex<Vec<Arc<RequestState>>>,
    embedded: Mutex<Vec<(u64, Payload)>>,
    lifecycle: Mutex<Lifecycle>,
    active: Arc<AtomicUsize>,
}

impl Shared {
    pub(crate) fn new(signal: Signal, metrics: Arc<Metrics>) -> Arc<Self> {
        Arc::new(Self {
            signal,
            metrics,
            ready: Mutex::default(),
            drained: Mutex::default(),
            embedded: Mutex::default(),
            lifecycle: Mutex::default(),
            active: Arc::default(),
        })
    }

    /// The counter that every live request holds.
    pub(crate) fn active_counter(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.active)
    }

    /// Requests that are neither delivered nor cancelled.
    pub(crate) fn active(&self) -> usize {
        self.active.load(Ordering::Acquire)
    }

    /// Ends a request with an error, unless it ended before.
    pub(crate) fn fail(&self, state: &Arc<RequestState>, error: Error) {
        if state.fail(error) {
            self.deliver([Arc::clone(state)]);
        }
    }

    /// Queues requests for the next drain and wakes the event loop once.
    pub(crate) fn deliver(&self, requests: impl IntoIterator<Item = Arc<RequestState>>) {
        let mut ready = self.ready.lock();
        let before = ready.len();
        ready.extend(requests);
        let any = ready.len() > before;
        drop(ready);
        if any {
            self.signal.raise();
        }
    }

    /// Hands over the answer to a request for vectors and wakes the event loop.
    pub(crate) fn deliver_embeddings(&self, id: u64, answer: Result<Embeddings, Error>) {
        self.embedded.lock().push((id, Payload::Embeddings(answer)));
        self.signal.raise();
    }

    /// Everything that readers wait for. One thread drains at a time.
    pub(crate) fn drain(&self) -> Vec<(u64, Payload, bool)> {
        self.signal.lower();
        let mut drained = self.drained.lock();
        std::mem::swap(&mut *drained, &mut *self.ready.lock());
        let embedded = std::mem::take(&mut *self.embedded.lock());
        drained
            .drain(..)
            .filter_map(|state| state.collect().map(|(payload, last)| (state.id(), payload, last)))
            .chain(embedded.into_iter().map(|(id, payload)| (id, payload, true)))
            .collect()
    }

    pub(crate) fn health(&self) -> Health {
        let lifecycle = self.lifecycle.lock();
        match &*lifecycle {
            Lifecycle { failed: Some(error), .. } => Health::Failed(error.clone()),
            Lifecycle { draining: true, .. } => Health::Draining,
            Lifecycle { stalled: true, .. } => Health::Stalled,
            _ => Health::Ready,
        }
    }

    pub(crate) fn set_draining(&self) {
        self.lifecycle.lock().draining = true;
    }

    pub(crate) fn set_stalled(&self, stalled: bool) {
        self.lifecycle.lock().stalled = stalled;
    }

    /// The first failure is the one that is kept.
    pub(crate) fn set_failed(&self, error: &Error) {
        self.lifecycle.lock().failed.get_or_insert_with(|| error.clone());
    }

    /// Whether anything can be generated.
    pub(crate) fn check_alive(&self) -> Result<(), Error> {
        match self.health() {
            Health::Failed(error) => Err(error),
            Health::Ready | Health::Stalled | Health::Draining => Ok(()),
        }
    }

    /// Whether a new request may come in.
    pub(crate) fn check_open(&self) -> Result<(), Error> {
        match self.health() {
            Health::Ready | Health::Stalled => Ok(()),
            Health::Draining => Err(Error::new(ErrorKind::ShuttingDown, "the server is shutting down")),
            Health::Failed(error) => Err(error),
        }
    }
}
