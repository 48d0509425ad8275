//! What the prefix cache holds, for routers: events as Python objects. The GIL is released while waiting for them.

use std::time::Duration;

use llgtrt_core::{KvEvent as CoreEvent, KvEventQueue};
use pyo3::prelude::*;

/// Longest wait for events: a thread that waits has to see the end of its process.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// A change of what the prefix cache holds.
#[pyclass(frozen, module = "llgtrt._native")]
pub(crate) struct KvEvent(CoreEvent);

#[pymethods]
impl KvEvent {
    #[getter]
    fn kind(&self) -> &'static str {
        match self.0 {
            CoreEvent::Stored { .. } => "stored",
            CoreEvent::Removed { .. } => "removed",
            CoreEvent::Cleared => "cleared",
        }
    }

    #[getter]
    fn hashes(&self) -> &[u64] {
        match &self.0 {
            CoreEvent::Stored { hashes, .. } | CoreEvent::Removed { hashes } => hashes,
            CoreEvent::Cleared => &[],
        }
    }

    #[getter]
    fn parent(&self) -> Option<u64> {
        match self.0 {
            CoreEvent::Stored { parent, .. } => parent,
            CoreEvent::Removed { .. } | CoreEvent::Cleared => None,
        }
    }

    #[getter]
    fn tokens(&self) -> &[u32] {
        match &self.0 {
            CoreEvent::Stored { tokens, .. } => tokens,
            CoreEvent::Removed { .. } | CoreEvent::Cleared => &[],
        }
    }
}

/// What has happened since the last call; `None` at the end.
pub(crate) fn take(py: Python<'_>, queue: &KvEventQueue, timeout_s: f64) -> Option<Vec<KvEvent>> {
    let timeout = Duration::try_from_secs_f64(timeout_s).unwrap_or_default().min(LONGEST_WAIT);
    let events = py.detach(|| queue.take(timeout))?;
    Some(events.into_iter().map(KvEvent).collect())
}
