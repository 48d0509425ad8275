//! What Python gets: SSE bytes, or structured deltas. Runs with the GIL held.

use std::os::fd::{BorrowedFd, RawFd};
use std::time::Instant;

use llgtrt_runtime as runtime;
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::embed::Embeddings;
use crate::errors;
use crate::logits::Logits;

/// Token counts of a request.
#[pyclass(frozen, module = "llgtrt._native")]
pub(crate) struct Usage(runtime::Usage);

#[pymethods]
impl Usage {
    #[getter]
    fn prompt_tokens(&self) -> u64 {
        self.0.prompt_tokens
    }

    #[getter]
    fn completion_tokens(&self) -> u64 {
        self.0.completion_tokens
    }

    #[getter]
    fn cached_tokens(&self) -> u64 {
        self.0.cached_tokens
    }

    #[getter]
    fn forced_tokens(&self) -> u64 {
        self.0.forced_tokens
    }
}

/// Id of the request, its first tokens, guesses at the next ones, and the state.
type Handover<'py> = (u64, Vec<u32>, Vec<u32>, Bound<'py, PyBytes>);

/// New text of one choice.
#[pyclass(frozen, module = "llgtrt._native")]
pub(crate) struct ChoiceDelta(runtime::ChoiceDelta);

#[pymethods]
impl ChoiceDelta {
    #[getter]
    fn index(&self) -> u32 {
        self.0.index
    }

    #[getter]
    fn text(&self) -> &str {
        &self.0.text
    }

    #[getter]
    fn token_count(&self) -> u64 {
        self.0.token_count
    }

    #[getter]
    fn token_ids(&self) -> Vec<u32> {
        self.0.token_ids.clone()
    }

    #[getter]
    fn text_token_ids(&self) -> Option<Vec<u32>> {
        self.0.text_token_ids.clone()
    }

    #[getter]
    fn prompt_token_ids(&self) -> Option<Vec<u32>> {
        self.0.prompt_token_ids.as_deref().map(<[u32]>::to_vec)
    }

    #[getter]
    fn prompt_logprobs(&self) -> Option<&str> {
        self.0.prompt_logprobs.as_deref()
    }

    #[getter]
    fn logprobs(&self) -> Option<&str> {
        self.0.logprobs.as_deref()
    }

    /// To ask for the text itself makes a copy of it.
    #[getter]
    fn logprobs_bytes(&self) -> Option<usize> {
        self.0.logprobs.as_ref().map(String::len)
    }

    #[getter]
    fn prompt_logprobs_bytes(&self) -> Option<usize> {
        self.0.prompt_logprobs.as_ref().map(String::len)
    }

    fn logprobs_piece<'py>(&self, py: Python<'py>, start: usize, size: usize) -> Bound<'py, PyBytes> {
        piece(py, self.0.logprobs.as_deref(), start, size)
    }

    fn prompt_logprobs_piece<'py>(&self, py: Python<'py>, start: usize, size: usize) -> Bound<'py, PyBytes> {
        piece(py, self.0.prompt_logprobs.as_deref(), start, size)
    }

    #[getter]
    fn finish_reason(&self) -> Option<&'static str> {
        self.0.finish.as_ref().map(runtime::ChoiceFinish::reason)
    }

    #[getter]
    fn stop_reason<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        match &self.0.finish {
            Some(runtime::ChoiceFinish::StopString(text)) => text.into_bound_py_any(py).map(Some),
            Some(runtime::ChoiceFinish::StopToken(token)) => token.into_bound_py_any(py).map(Some),
            _ => Ok(None),
        }
    }

    #[getter]
    fn context_logits(&self) -> Option<Logits> {
        self.0.logits.as_ref()?.context.clone().map(Logits)
    }

    #[getter]
    fn generation_logits(&self) -> Option<Logits> {
        self.0.logits.as_ref()?.generation.clone().map(Logits)
    }

    #[getter]
    fn handover<'py>(&self, py: Python<'py>) -> Option<Handover<'py>> {
        let handover = self.0.handover.as_ref()?;
        let state = PyBytes::new(py, &handover.state);
        Some((handover.request_id, handover.first_tokens.clone(), handover.draft_tokens.clone(), state))
    }

    #[getter]
    fn constraint(&self) -> PyResult<Option<String>> {
        let json = self.0.receipt.as_ref().map(serde_json::to_string).transpose();
        json.map_err(|error| PyRuntimeError::new_err(error.to_string()))
    }
}

/// Bytes of a text from `start` on, at most `size` and as many as there are.
fn piece<'py>(py: Python<'py>, text: Option<&str>, start: usize, size: usize) -> Bound<'py, PyBytes> {
    let rest = text.and_then(|text| text.as_bytes().get(start..)).unwrap_or_default();
    PyBytes::new(py, &rest[..size.min(rest.len())])
}

/// When a request got how far, in seconds since its submission.
#[pyclass(frozen, module = "llgtrt._native")]
pub(crate) struct Summary(runtime::Summary);

impl Summary {
    fn since(&self, moment: Option<Instant>) -> Option<f64> {
        moment.map(|moment| self.0.times.since_submission(moment).as_secs_f64())
    }
}

#[pymethods]
impl Summary {
    #[getter]
    fn usage(&self) -> Usage {
        Usage(self.0.usage)
    }

    #[getter]
    fn finish_reasons(&self) -> Vec<&'static str> {
        self.0.finish_reasons.clone()
    }

    #[getter]
    fn compile_s(&self) -> Option<(f64, f64)> {
        let (asked, done) = self.0.times.compile?;
        self.since(Some(asked)).zip(self.since(Some(done)))
    }

    #[getter]
    fn started_s(&self) -> Option<f64> {
        self.since(self.0.times.started)
    }

    #[getter]
    fn first_token_s(&self) -> Option<f64> {
        self.since(self.0.times.first_token)
    }

    #[getter]
    fn ended_s(&self) -> Option<f64> {
        self.since(self.0.times.ended)
    }
}

/// What happened to a request since the last delta.
#[pyclass(frozen, module = "llgtrt._native")]
pub(crate) struct Delta {
    choices: Vec<Py<ChoiceDelta>>,
    so_far: Py<Usage>,
    usage: Option<Py<Usage>>,
    error: Option<llgtrt_core::Error>,
}

impl Delta {
    fn new(py: Python<'_>, delta: runtime::Delta) -> PyResult<Self> {
        Ok(Self {
            choices: delta
                .choices
                .into_iter()
                .map(|choice| Py::new(py, ChoiceDelta(choice)))
                .collect::<PyResult<_>>()?,
            so_far: Py::new(py, Usage(delta.so_far))?,
            usage: delta.usage.map(|usage| Py::new(py, Usage(usage))).transpose()?,
            error: delta.error,
        })
    }
}

#[pymethods]
impl Delta {
    #[getter]
    fn choices(&self, py: Python<'_>) -> Vec<Py<ChoiceDelta>> {
        self.choices.iter().map(|choice| choice.clone_ref(py)).collect()
    }

    #[getter]
    fn so_far(&self, py: Python<'_>) -> Py<Usage> {
        self.so_far.clone_ref(py)
    }

    #[getter]
    fn usage(&self, py: Python<'_>) -> Option<Py<Usage>> {
        self.usage.as_ref().map(|usage| usage.clone_ref(py))
    }

    #[getter]
    fn error(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        // Anew each time: a raised exception leads to its frames, those to the delta, and Python's garbage collector does
        // not see into a delta. If it held what it gives out, the whole request would stay for ever.
        self.error.as_ref().map(|error| errors::to_py(py, error).into_value(py).into_any())
    }
}

/// `bytes`, [`Delta`] or [`Embeddings`].
pub(crate) fn payload(py: Python<'_>, payload: runtime::Payload) -> PyResult<Bound<'_, PyAny>> {
    match payload {
        runtime::Payload::Sse(bytes) => Ok(PyBytes::new(py, &bytes).into_any()),
        runtime::Payload::Unsent(bytes) => {
            Ok(Bound::new(py, Unsent { data: PyBytes::new(py, &bytes).unbind() })?.into_any())
        }
        runtime::Payload::Delta(delta) => Ok(Bound::new(py, Delta::new(py, delta)?)?.into_any()),
        runtime::Payload::Embeddings(answer) => Ok(Bound::new(py, Embeddings::new(answer))?.into_any()),
    }
}

/// The end of a chunk that a connection did not take at once.
#[pyclass(frozen, module = "llgtrt._native")]
pub(crate) struct Unsent {
    #[pyo3(get)]
    data: Py<PyBytes>,
}

#[pymethods]
impl Unsent {
    #[new]
    const fn new(data: Py<PyBytes>) -> Self {
        Self { data }
    }
}

/// A submitted request. Dropping the last reference cancels it.
#[pyclass(frozen, module = "llgtrt._native")]
pub(crate) struct RequestHandle(pub(crate) runtime::RequestHandle);

#[pymethods]
impl RequestHandle {
    #[getter]
    fn id(&self) -> u64 {
        self.0.id()
    }

    fn take<'py>(&self, py: Python<'py>) -> PyResult<Option<(Bound<'py, PyAny>, bool)>> {
        self.0.take().map(|(taken, last)| Ok((payload(py, taken)?, last))).transpose()
    }

    fn write_to<'py>(&self, py: Python<'py>, socket: RawFd, frames: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
        if socket < 0 {
            return Err(PyValueError::new_err("`socket` is no file descriptor"));
        }
        // SAFETY: the number is not -1, and it is not closed in between: the caller has the interpreter's lock, and what
        // is done with a descriptor that is not open is an error.
        let socket = unsafe { BorrowedFd::borrow_raw(socket) };
        // It does not block: the lock of the interpreter is kept, which others would not give back at once.
        let rest = self.0.write_to(socket, frames)?;
        Ok(PyBytes::new(py, &rest))
    }

    fn stop_writing<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.stop_writing())
    }

    fn written_ago_s(&self) -> Option<f64> {
        self.0.since_written().map(|time| time.as_secs_f64())
    }

    fn summary(&self) -> Summary {
        Summary(self.0.summary())
    }

    fn cancel(&self) {
        self.0.cancel();
    }
}
