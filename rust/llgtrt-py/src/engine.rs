//! The running core as a Python object. Calls that may be slow release the GIL.

use std::os::fd::RawFd;
use std::sync::Arc;

use llgtrt_core::{EncodeOptions, Error, KvEventQueue};
use llgtrt_runtime::{Health, Runtime};
use llgtrt_text::decode_lossy;
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::config::NativeConfig;
use crate::embed::{self, EmbedHandle};
use crate::errors::{OrRaise, to_py};
use crate::grammar::report;
use crate::json;
use crate::kv_events::{self, KvEvent};
use crate::output::{RequestHandle, payload};
use crate::passes::ForwardPass;
use crate::python_engine::PyRowModel;
use crate::request::{GenerateRequest, GrammarSpec};
use crate::{start, written};

/// A reserved place for some sequences.
#[pyclass(frozen, module = "llgtrt._native")]
pub(crate) struct Permit {
    sequences: usize,
    inner: Mutex<Option<Arc<llgtrt_runtime::Permit>>>,
}

#[pymethods]
impl Permit {
    #[getter]
    fn sequences(&self) -> usize {
        self.sequences
    }

    fn lend_one(&self, py: Python<'_>) -> PyResult<Self> {
        let lent = self.inner.lock().as_ref().map(llgtrt_runtime::Permit::lend_one);
        let lent = lent.ok_or_else(|| to_py(py, &used_before()))?;
        Ok(Self { sequences: 1, inner: Mutex::new(Some(Arc::new(lent))) })
    }
}

fn used_before() -> Error {
    Error::internal("the permit was used before")
}

/// The running core.
#[pyclass(frozen, module = "llgtrt._native")]
pub(crate) struct Engine {
    runtime: Runtime,
    model_info: String,
    kv_events: Option<Arc<KvEventQueue>>,
}

impl Drop for Engine {
    fn drop(&mut self) {
        // The engine's thread may wait for the GIL, in a logits processor, while this one waits for its end.
        Python::try_attach(|py| py.detach(|| self.runtime.shutdown()));
    }
}

#[pymethods]
impl Engine {
    #[new]
    #[pyo3(signature = (config, model=None))]
    fn new(py: Python<'_>, config: &str, model: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let misunderstood =
            |wrong: &str| Error::configuration(format!("the configuration is not understood: {wrong}"));
        let config: NativeConfig = json::read(config.as_bytes(), misunderstood).or_raise(py)?;
        let model = model.map(PyRowModel::new).transpose().or_raise(py)?;
        let kv_events = config.kv_events.as_ref().map(|section| KvEventQueue::new(section.block_size));
        let (runtime, model_info) =
            py.detach(|| start::start(config, model, kv_events.as_ref())).or_raise(py)?;
        Ok(Self { runtime, model_info, kv_events })
    }

    #[getter]
    fn model_info(&self) -> &str {
        &self.model_info
    }

    #[getter]
    fn event_fd(&self) -> RawFd {
        self.runtime.event_fd()
    }

    fn drain<'py>(&self, py: Python<'py>) -> PyResult<Vec<(u64, Bound<'py, PyAny>, bool)>> {
        self.runtime
            .drain()
            .into_iter()
            .map(|(id, taken, last)| Ok((id, payload(py, taken)?, last)))
            .collect()
    }

    fn reserve(&self, py: Python<'_>, sequences: usize) -> PyResult<Permit> {
        let permit = self.runtime.reserve(sequences).or_raise(py)?;
        Ok(Permit { sequences, inner: Mutex::new(Some(Arc::new(permit))) })
    }

    fn submit(
        &self,
        py: Python<'_>,
        request: &Bound<'_, GenerateRequest>,
        permit: &Bound<'_, Permit>,
    ) -> PyResult<RequestHandle> {
        let permit = permit.get().inner.lock().take();
        // Who has lent of it keeps it.
        let permit = permit.and_then(Arc::into_inner).ok_or_else(|| to_py(py, &used_before()))?;
        self.runtime.submit(Arc::clone(&request.get().0), permit).map(RequestHandle).or_raise(py)
    }

    #[pyo3(signature = (inputs, *, param="input", dimensions=None, most_tokens=None))]
    fn embed(
        &self,
        py: Python<'_>,
        inputs: Vec<embed::Input>,
        param: &str,
        dimensions: Option<u32>,
        most_tokens: Option<u32>,
    ) -> PyResult<EmbedHandle> {
        let request = embed::request(inputs, param.to_owned(), dimensions, most_tokens)?;
        self.runtime.embed(request).map(EmbedHandle).or_raise(py)
    }

    #[pyo3(signature = (text, add_special=true, parse_special=true))]
    fn tokenize(
        &self,
        py: Python<'_>,
        text: &str,
        add_special: bool,
        parse_special: bool,
    ) -> PyResult<Vec<u32>> {
        let tokenizer = self.runtime.tokenizer();
        let options = EncodeOptions { add_special, parse_special };
        py.detach(|| tokenizer.encode(text, options)).or_raise(py)
    }

    #[expect(clippy::needless_pass_by_value, reason = "extracted from a Python list")]
    fn detokenize(&self, py: Python<'_>, tokens: Vec<u32>) -> String {
        let tokenizer = self.runtime.tokenizer();
        py.detach(|| decode_lossy(tokenizer.vocabulary(), &tokens))
    }

    #[expect(clippy::needless_pass_by_value, reason = "extracted from a Python mapping")]
    fn write(
        &self,
        py: Python<'_>,
        entries: Vec<written::Entry>,
        form: written::Form,
    ) -> (String, String, Option<String>) {
        let tokenizer = self.runtime.tokenizer();
        py.detach(|| written::write(tokenizer.vocabulary(), entries, &form))
    }

    #[pyo3(signature = (grammar, *, instances=Vec::new(), residual=None, places=Vec::new()))]
    fn report<'py>(
        &self,
        py: Python<'py>,
        grammar: &Bound<'py, GrammarSpec>,
        instances: Vec<String>,
        residual: Option<&str>,
        places: Vec<(String, String)>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let compiler = self.runtime.compiler().or_raise(py)?;
        report(py, &compiler, grammar, instances, residual, places)
    }

    fn kv_events(&self, py: Python<'_>, timeout_s: f64) -> Option<Vec<KvEvent>> {
        kv_events::take(py, self.kv_events.as_deref()?, timeout_s)
    }

    fn kv_cache_usage(&self) -> f64 {
        self.runtime.kv_cache_usage()
    }

    fn take_forward_passes(&self) -> Vec<ForwardPass> {
        self.runtime.take_passes().into_iter().map(ForwardPass).collect()
    }

    fn metrics(&self, py: Python<'_>) -> PyResult<String> {
        py.detach(|| self.runtime.metrics()).or_raise(py)
    }

    fn health(&self) -> (&'static str, String) {
        let health = self.runtime.health();
        let text = match &health {
            Health::Ready => "serving".to_owned(),
            Health::Draining => "finishing running requests".to_owned(),
            Health::Stalled => "the engine makes no progress".to_owned(),
            Health::Failed(error) => error.message.clone(),
        };
        (health.as_str(), text)
    }

    fn active_requests(&self) -> usize {
        self.runtime.active_requests()
    }

    fn begin_drain(&self) {
        self.runtime.begin_drain();
    }

    fn shutdown(&self, py: Python<'_>) {
        py.detach(|| self.runtime.shutdown());
        if let Some(queue) = &self.kv_events {
            queue.close();
        }
    }
}
