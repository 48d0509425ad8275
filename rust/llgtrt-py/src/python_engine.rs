//! Engines in Python: an object of the operator's that gives rows of logits, called by the engine's thread once in a
//! pass, for all sequences. What is above rows of logits (sampling, masks, log-probabilities) is
//! `llgtrt_stepped::RowEngine`.
//!
//! The thread takes the GIL for that call alone; masks are computed by the pool's threads, which never take it. Nothing
//! that holds the GIL waits for the engine's thread.

use std::path::PathBuf;

use llgtrt_core::{Error, ErrorKind, Result};
use llgtrt_stepped::{Part, PassError, RowModel, RowTraits};
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyList, PyMemoryView};

/// Name of the engine in errors and in what is told of the model.
const NAME: &str = "python";
/// Where the object does not say.
const DEFAULT_SLOTS: u32 = 4;
const DEFAULT_PASS_TOKENS: u32 = 512;

/// The object and what it said of itself.
pub(crate) struct PyRowModel {
    object: Py<PyAny>,
    traits: RowTraits,
    /// Of the pass before: another one with as many rows uses them again.
    buffer: Option<Buffer>,
    /// tokenizer.json, if the model has one.
    pub(crate) tokenizer: Option<PathBuf>,
    /// Its chat template, if it has one.
    pub(crate) chat_template: Option<String>,
}

/// Rows of Python's.
struct Buffer {
    rows: usize,
    /// Memory that outlives any view of it that is kept.
    bytes: Py<PyByteArray>,
    view: Py<PyAny>,
}

impl PyRowModel {
    /// Asks an object what it is.
    ///
    /// # Errors
    /// [`ErrorKind::Configuration`]: it does not say, or its numbers are of no use.
    pub(crate) fn new(object: &Bound<'_, PyAny>) -> Result<Self> {
        let traits = RowTraits {
            name: NAME,
            vocab_size: number(object, "vocab_size", None)?,
            slots: number(object, "slots", Some(DEFAULT_SLOTS))?,
            context_tokens: number(object, "context_tokens", None)?,
            pass_tokens: number(object, "pass_tokens", Some(DEFAULT_PASS_TOKENS))?,
        };
        if traits.slots > 4096 || traits.context_tokens < 2 {
            return Err(Error::configuration(
                "the Python engine's slots are at most 4096, its context_tokens at least 2",
            ));
        }
        Ok(Self {
            object: object.clone().unbind(),
            traits,
            buffer: None,
            tokenizer: attribute(object, "tokenizer")?,
            chat_template: attribute(object, "chat_template")?,
        })
    }

    pub(crate) fn vocab_size(&self) -> usize {
        self.traits.vocab_size as usize
    }

    fn call(&mut self, py: Python<'_>, parts: &[Part<'_>], rows: &mut [f32]) -> PyResult<()> {
        let width = self.vocab_size();
        let count = rows.len() / width;
        let buffer = match self.buffer.take() {
            Some(buffer) if buffer.rows == count => buffer,
            _ => Buffer::new(py, count, width)?,
        };
        let batch = PyList::empty(py);
        for part in parts {
            batch.append((part.slot, part.start, PyList::new(py, part.tokens)?, part.rows))?;
        }
        buffer.clear(py);
        let answer = self.object.bind(py).call_method1("forward", (batch, &buffer.view))?;
        if !answer.is_none() {
            let kind = answer.get_type().name()?;
            let message = format!("forward gave a {kind}: it has to write the rows and to return None");
            return Err(PyException::new_err(message));
        }
        buffer.read(py, rows);
        self.buffer = Some(buffer);
        Ok(())
    }
}

impl Buffer {
    fn new(py: Python<'_>, rows: usize, width: usize) -> PyResult<Self> {
        let bytes = PyByteArray::new_with(py, rows * width * size_of::<f32>(), |_| Ok(()))?;
        // While there is a view of it, nobody can change its size.
        let flat = PyMemoryView::from(&bytes)?;
        let view = match rows {
            // A view of several dimensions has no empty one.
            0 => flat.call_method1("cast", ("f",))?,
            _ => flat.call_method1("cast", ("f", (rows, width)))?,
        };
        Ok(Self { rows, bytes: bytes.unbind(), view: view.unbind() })
    }

    /// What is not written is no number, and the sequence's sampler says so.
    fn clear(&self, py: Python<'_>) {
        // SAFETY: the GIL is held and no Python code runs until the slice is gone; `view` keeps its size.
        unsafe { self.bytes.bind(py).as_bytes_mut() }.fill(0xff);
    }

    fn read(&self, py: Python<'_>, rows: &mut [f32]) {
        // SAFETY: as in `clear`.
        let bytes = unsafe { self.bytes.bind(py).as_bytes() };
        for (to, from) in rows.iter_mut().zip(bytes.chunks_exact(size_of::<f32>())) {
            *to = f32::from_ne_bytes([from[0], from[1], from[2], from[3]]);
        }
    }
}

impl RowModel for PyRowModel {
    fn traits(&self) -> RowTraits {
        self.traits
    }

    fn forward(&mut self, parts: &[Part<'_>], rows: &mut [f32]) -> Result<(), PassError> {
        let called = Python::try_attach(|py| {
            self.call(py, parts, rows).map_err(|raised| {
                log(py, &raised);
                // SystemExit and the like: the engine says that it is over.
                if raised.is_instance_of::<PyException>(py) {
                    let message = "the engine failed in a forward pass with this request";
                    PassError::Failed(Error::new(ErrorKind::ForwardPass, message))
                } else {
                    PassError::Fatal(Error::engine("the Python engine has ended"))
                }
            })
        });
        called.unwrap_or_else(|| Err(PassError::Fatal(Error::engine("the interpreter has ended"))))
    }

    fn free(&mut self, slot: usize) {
        self.tell("free", Some(slot));
    }
}

impl PyRowModel {
    /// Calls a method that the object need not have.
    fn tell(&self, method: &str, slot: Option<usize>) {
        Python::try_attach(|py| {
            let object = self.object.bind(py);
            let called = match (object.getattr_opt(method), slot) {
                (Ok(None), _) => return,
                (Ok(Some(method)), Some(slot)) => method.call1((slot,)),
                (Ok(Some(method)), None) => method.call0(),
                (Err(error), _) => Err(error),
            };
            if let Err(raised) = called {
                log(py, &raised);
            }
        });
    }
}

impl Drop for PyRowModel {
    fn drop(&mut self) {
        self.tell("close", None);
    }
}

/// A number that the object has to have, unless there is a default.
fn number(object: &Bound<'_, PyAny>, name: &str, default: Option<u32>) -> Result<u32> {
    let found: Option<u32> = attribute(object, name)?;
    let number = found.or(default).ok_or_else(|| wrong(name, "is missing"))?;
    if number == 0 { Err(wrong(name, "must be at least 1")) } else { Ok(number) }
}

/// An attribute that the object may have.
fn attribute<T: for<'a, 'py> FromPyObject<'a, 'py>>(
    object: &Bound<'_, PyAny>,
    name: &str,
) -> Result<Option<T>> {
    let found = object.getattr_opt(name).map_err(|error| wrong(name, &error.to_string()))?;
    let Some(found) = found.filter(|found| !found.is_none()) else { return Ok(None) };
    found.extract().map(Some).map_err(|_| wrong(name, "is of another type than it has to be"))
}

fn wrong(name: &str, what: &str) -> Error {
    Error::configuration(format!("the Python engine's {name} {what}"))
}

fn log(py: Python<'_>, raised: &PyErr) {
    let traceback = raised.traceback(py).map(|traceback| traceback.format().unwrap_or_default());
    tracing::error!(
        traceback = traceback.as_deref().map(str::trim_end),
        "the Python engine failed: {raised}"
    );
}
