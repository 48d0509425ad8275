//! Logits processors in Python: callables of the operator's that the engine's thread calls between two passes.
//!
//! The only place where a thread of the core takes the GIL, and only in passes with a sequence that has a processor:
//! once for all of them. Nothing that holds the GIL waits for the engine's thread, so it always comes.

use std::fmt;
use std::time::{Duration, Instant};

use llgtrt_core::{Error, ErrorKind, LogitsProcessor, Result, TokenId};
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyList, PyMemoryView, PyTuple};

/// The processors of one sequence, called one after the other with one row.
pub(crate) struct PyProcessors {
    /// Name and callable.
    chain: Vec<(String, Py<PyAny>)>,
    /// Longest that one call may take.
    limit: Duration,
    /// What the callables are given. Only its thread of the engine takes the lock, with the GIL.
    given: Mutex<Option<Given>>,
}

/// Python's side of a sequence, kept from row to row.
struct Given {
    prompt: Py<PyTuple>,
    generated: Py<PyList>,
    /// What `generated` holds.
    known: Vec<TokenId>,
    /// The row's memory, which outlives any view of it that a processor keeps.
    row: Py<PyByteArray>,
    view: Py<PyAny>,
}

impl PyProcessors {
    pub(crate) fn new(chain: Vec<(String, Py<PyAny>)>, limit: Duration) -> Self {
        Self { chain, limit, given: Mutex::new(None) }
    }

    fn call(&self, py: Python<'_>, prompt: &[TokenId], generated: &[TokenId], row: &mut [f32]) -> Result<()> {
        let mut given = self.given.lock();
        let given = match &mut *given {
            Some(given) => given,
            empty => empty.insert(Given::new(py, prompt, row.len()).map_err(|error| ours(py, &error))?),
        };
        given.follow(py, generated).map_err(|error| ours(py, &error))?;
        given.write(py, row);
        for (name, processor) in &self.chain {
            let started = Instant::now();
            let arguments = (&given.prompt, &given.generated, &given.view);
            let answer = processor.bind(py).call1(arguments).map_err(|error| failed(py, name, &error))?;
            if !answer.is_none() {
                let kind = answer.get_type().name().map_or_else(|_| "value".into(), |name| name.to_string());
                let message = format!("gave a {kind}: it has to change the row in place and to return None");
                return Err(error(name, &message));
            }
            let taken = started.elapsed();
            if taken > self.limit {
                let (taken, limit) = (taken.as_secs_f64(), self.limit.as_secs_f64());
                tracing::warn!(processor = name, taken, limit, "a logits processor was too slow");
                return Err(error(name, "took too long"));
            }
        }
        given.read(py, row);
        Ok(())
    }
}

impl Given {
    fn new(py: Python<'_>, prompt: &[TokenId], width: usize) -> PyResult<Self> {
        let row = PyByteArray::new_with(py, size_of::<f32>() * width, |_| Ok(()))?;
        // While there is a view of it, nobody can change its size.
        let view = PyMemoryView::from(&row)?.call_method1("cast", ("f",))?;
        Ok(Self {
            prompt: PyTuple::new(py, prompt)?.unbind(),
            generated: PyList::empty(py).unbind(),
            known: Vec::new(),
            row: row.unbind(),
            view: view.unbind(),
        })
    }

    /// Makes the list that processors see what was generated so far, whatever they did to it.
    fn follow(&mut self, py: Python<'_>, generated: &[TokenId]) -> PyResult<()> {
        let list = self.generated.bind(py);
        if list.len() != self.known.len() || !generated.starts_with(&self.known) {
            list.call_method0("clear")?;
            self.known.clear();
        }
        for &token in &generated[self.known.len()..] {
            list.append(token)?;
        }
        self.known.extend_from_slice(&generated[self.known.len()..]);
        Ok(())
    }

    fn write(&self, py: Python<'_>, row: &[f32]) {
        // SAFETY: the GIL is held and no Python code runs until the slice is gone; the memory keeps its place and its
        // size, which is that of the row, because `view` is a view of it.
        let bytes = unsafe { self.row.bind(py).as_bytes_mut() };
        for (to, from) in bytes.chunks_exact_mut(size_of::<f32>()).zip(row) {
            to.copy_from_slice(&from.to_ne_bytes());
        }
    }

    fn read(&self, py: Python<'_>, row: &mut [f32]) {
        // SAFETY: as in `write`.
        let bytes = unsafe { self.row.bind(py).as_bytes() };
        for (to, from) in row.iter_mut().zip(bytes.chunks_exact(size_of::<f32>())) {
            *to = f32::from_ne_bytes([from[0], from[1], from[2], from[3]]);
        }
    }
}

impl LogitsProcessor for PyProcessors {
    fn process(&self, prompt: &[TokenId], generated: &[TokenId], row: &mut [f32]) -> Result<()> {
        let called = Python::try_attach(|py| self.call(py, prompt, generated, row));
        called.unwrap_or_else(|| Err(Error::new(ErrorKind::ShuttingDown, "the server is shutting down")))
    }

    fn together(&self, work: &mut dyn FnMut()) {
        let mut done = false;
        let mut once = || {
            done = true;
            work();
        };
        Python::try_attach(|_| once());
        if !done {
            // The interpreter ends: each of them says so.
            work();
        }
    }
}

impl fmt::Debug for PyProcessors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.chain.iter().map(|(name, _)| name)).finish()
    }
}

fn error(name: &str, what: &str) -> Error {
    let message = format!("the logits processor {name} {what}");
    Error::new(ErrorKind::LogitsProcessor, message).with_param("logits_processors")
}

/// What the client is told of an exception; the log has the rest.
fn failed(py: Python<'_>, name: &str, raised: &PyErr) -> Error {
    let traceback = raised.traceback(py).map(|traceback| traceback.format().unwrap_or_default());
    tracing::error!(
        processor = name,
        traceback = traceback.as_deref().map(str::trim_end),
        "a logits processor failed: {raised}"
    );
    error(name, "failed")
}

fn ours(py: Python<'_>, raised: &PyErr) -> Error {
    raised.display(py);
    Error::internal("the arguments of a logits processor could not be made")
}
