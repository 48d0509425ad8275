//! What Python asks for. Runs with the GIL held; only moves data.
//!
//! A request is one JSON object, read into the runtime's own type, so that no field is declared here. Beside it cross what
//! would cost more as JSON: prompts (long texts would be escaped and unescaped, lists of tokens written as digits), the
//! bytes of tensors, and the grammar, which is a native object already.

use std::sync::Arc;
use std::time::Duration;

use llgtrt_core::{
    Adapter, Error, ExtraSampling, Handover, LogitsProcessor, RequestOptions, Retention, SamplingParams,
};
use llgtrt_runtime as runtime;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::{PyBackedBytes, PyBackedStr};
use pyo3::types::{PyBytes, PyString};
use serde::Deserialize;
use serde_aux::serde_introspection::serde_introspect;
use serde_json::{Value, json};

use crate::errors::OrRaise;
use crate::json;
use crate::options::{self, PromptExtras};
use crate::processor::PyProcessors;
use crate::read_json::encoded;

/// A constraint on the answer: a kind and its source text.
#[pyclass(frozen, module = "llgtrt._native")]
#[derive(Clone)]
pub(crate) struct GrammarSpec(pub(crate) llgtrt_core::GrammarSpec);

#[pymethods]
impl GrammarSpec {
    #[staticmethod]
    fn json_schema(schema: &Bound<'_, PyString>) -> PyResult<Self> {
        Ok(Self(llgtrt_core::GrammarSpec::JsonSchema(encoded(schema)?)))
    }

    #[staticmethod]
    fn json_object() -> Self {
        Self(llgtrt_core::GrammarSpec::JsonObject)
    }

    #[staticmethod]
    fn regex(pattern: &Bound<'_, PyString>) -> PyResult<Self> {
        Ok(Self(llgtrt_core::GrammarSpec::Regex(encoded(pattern)?)))
    }

    #[staticmethod]
    #[expect(clippy::needless_pass_by_value, reason = "extracted from a Python list")]
    fn choice(choices: Vec<Bound<'_, PyString>>) -> PyResult<Self> {
        let texts = choices.iter().map(encoded).collect::<PyResult<_>>()?;
        Ok(Self(llgtrt_core::GrammarSpec::Choice(texts)))
    }

    #[staticmethod]
    fn lark(grammar: &Bound<'_, PyString>) -> PyResult<Self> {
        Ok(Self(llgtrt_core::GrammarSpec::Lark(encoded(grammar)?)))
    }

    #[staticmethod]
    fn llguidance(grammar: &Bound<'_, PyString>) -> PyResult<Self> {
        Ok(Self(llgtrt_core::GrammarSpec::Llguidance(encoded(grammar)?)))
    }

    #[getter]
    fn kind(&self) -> &'static str {
        self.0.kind()
    }

    #[getter]
    fn source(&self) -> String {
        use llgtrt_core::GrammarSpec as Spec;
        match &self.0 {
            Spec::JsonSchema(text) | Spec::Regex(text) | Spec::Lark(text) | Spec::Llguidance(text) => {
                text.clone()
            }
            Spec::JsonObject => r#"{"type":"object"}"#.to_owned(),
            Spec::Choice(choices) => serde_json::Value::from(choices.as_slice()).to_string(),
        }
    }

    fn __repr__(&self) -> String {
        format!("GrammarSpec.{}(...)", self.0.kind())
    }
}

/// A prompt as Python gives it.
#[derive(FromPyObject)]
pub(crate) enum Prompt {
    Text(PyBackedStr),
    Tokens(Vec<u32>),
    /// A long text in pieces of UTF-8.
    Pieces(Vec<PyBackedBytes>),
}

impl Prompt {
    fn into_runtime(self, py: Python<'_>) -> PyResult<runtime::Prompt> {
        Ok(match self {
            Self::Text(text) => runtime::Prompt::Text(Arc::new(text)),
            Self::Tokens(tokens) => runtime::Prompt::Tokens(tokens),
            Self::Pieces(pieces) => {
                // Other threads run meanwhile.
                let text = py.detach(|| {
                    let pieces: Vec<&[u8]> = pieces.iter().map(|piece| &**piece).collect();
                    String::from_utf8(pieces.concat())
                });
                runtime::Prompt::Text(Arc::new(
                    text.map_err(|error| PyValueError::new_err(error.to_string()))?,
                ))
            }
        })
    }
}

/// A request as it crosses.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Crossing {
    request: runtime::GenerateRequest,
    #[serde(default)]
    extras: PromptExtras,
}

/// One HTTP request's worth of generation.
#[pyclass(frozen, module = "llgtrt._native")]
pub(crate) struct GenerateRequest(pub(crate) Arc<runtime::GenerateRequest>);

#[pymethods]
impl GenerateRequest {
    #[new]
    #[pyo3(signature = (fields, *, prompts, grammar=None, buffers=Vec::new(), processors=Vec::new(), processor_limit_s=1.0, handover_state=None))]
    #[expect(clippy::needless_pass_by_value, reason = "extracted from a Python list")]
    #[expect(clippy::too_many_arguments, reason = "named in Python")]
    fn new(
        py: Python<'_>,
        fields: &[u8],
        prompts: Vec<Prompt>,
        grammar: Option<Bound<'_, GrammarSpec>>,
        buffers: Vec<Bound<'_, PyBytes>>,
        processors: Vec<Vec<(String, Py<PyAny>)>>,
        processor_limit_s: f64,
        handover_state: Option<Bound<'_, PyBytes>>,
    ) -> PyResult<Self> {
        let Crossing { mut request, extras } = json::read(fields, misunderstood).or_raise(py)?;
        if prompts.is_empty() || request.n == 0 {
            return Err(PyValueError::new_err("prompts and n must not be empty or zero"));
        }
        let of_prompt = extras.options(&buffers).or_raise(py)?;
        if prompts.len() > 1
            && let Some(name) = of_prompt.asks_for()
        {
            return Err(Error::invalid(name, format!("{name} belongs to a single prompt"))).or_raise(py);
        }
        let options = request.options.take().map(Arc::unwrap_or_clone).unwrap_or_default();
        options::check(&options).or_raise(py)?;
        let RequestOptions { position_ids, prompt_table, mrope, encoder, .. } = of_prompt;
        let options = RequestOptions { position_ids, prompt_table, mrope, encoder, ..options };
        request.options = (options != RequestOptions::default()).then(|| Arc::new(options));
        request.prompts =
            prompts.into_iter().map(|prompt| prompt.into_runtime(py)).collect::<PyResult<_>>()?;
        if !(processors.is_empty() || processors.len() == request.sequences()) {
            return Err(PyValueError::new_err("processors are given for all sequences or for none"));
        }
        let limit = Duration::try_from_secs_f64(processor_limit_s)
            .map_err(|error| PyValueError::new_err(format!("processor_limit_s: {error}")))?;
        request.processors = processors
            .into_iter()
            .map(|chain| Arc::new(PyProcessors::new(chain, limit)) as Arc<dyn LogitsProcessor>)
            .collect();
        match (&mut request.handover, &handover_state) {
            (Some(handover), Some(state)) => handover.state = state.as_bytes().into(),
            (None, None) => {}
            _ => return Err(PyValueError::new_err("a handover and its state come together")),
        }
        request.grammar = grammar.map(|grammar| grammar.get().0.clone());
        Ok(Self(Arc::new(request)))
    }
}

/// Clients cannot cause it: their requests were checked.
fn misunderstood(wrong: &str) -> Error {
    Error::internal(format!("the request is not understood: {wrong}"))
}

/// The fields of a request, for the test that compares them with Python's models.
pub(crate) fn fields() -> Value {
    json!({
        "": serde_introspect::<Crossing>(),
        "request": serde_introspect::<runtime::GenerateRequest>(),
        "request.sampling": serde_introspect::<SamplingParams>(),
        "request.options": serde_introspect::<RequestOptions>(),
        "request.options.adapter": serde_introspect::<Adapter>(),
        "request.options.sampling": serde_introspect::<ExtraSampling>(),
        "request.options.retention": serde_introspect::<Retention>(),
        "request.handover": serde_introspect::<Handover>(),
        "extras": serde_introspect::<PromptExtras>(),
    })
}
