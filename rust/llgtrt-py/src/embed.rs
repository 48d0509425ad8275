//! Vectors and scores as Python objects. Runs with the GIL held; only moves data.

use llgtrt_core::Error;
use llgtrt_runtime as runtime;
use llgtrt_runtime::EmbedInput;
use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::errors;

/// An input as Python gives it.
#[derive(FromPyObject)]
pub(crate) enum Input {
    Text(String),
    Pair((String, String)),
    Tokens(Vec<u32>),
}

/// The request for some inputs.
pub(crate) fn request(
    inputs: Vec<Input>,
    param: String,
    dimensions: Option<u32>,
    most_tokens: Option<u32>,
) -> PyResult<runtime::EmbedRequest> {
    if inputs.is_empty() {
        return Err(PyValueError::new_err("inputs must not be empty"));
    }
    let inputs = inputs
        .into_iter()
        .map(|input| match input {
            Input::Text(text) => EmbedInput::Text(text),
            Input::Pair((query, document)) => EmbedInput::Pair(query, document),
            Input::Tokens(tokens) => EmbedInput::Tokens(tokens),
        })
        .collect();
    Ok(runtime::EmbedRequest { inputs, param, dimensions, most_tokens })
}

/// A submitted request. Dropping the last reference cancels it.
#[pyclass(frozen, module = "llgtrt._native")]
pub(crate) struct EmbedHandle(pub(crate) runtime::EmbedHandle);

#[pymethods]
impl EmbedHandle {
    #[getter]
    fn id(&self) -> u64 {
        self.0.id()
    }

    fn cancel(&self) {
        self.0.cancel();
    }
}

/// The answer to a request for vectors or scores.
#[pyclass(frozen, module = "llgtrt._native")]
pub(crate) struct Embeddings(Result<runtime::Embeddings, Error>);

impl Embeddings {
    pub(crate) fn new(answer: Result<runtime::Embeddings, Error>) -> Self {
        Self(answer)
    }

    fn vectors(&self) -> &[Vec<f32>] {
        self.0.as_ref().map_or(&[], |answer| &answer.vectors)
    }

    fn vector(&self, index: usize) -> PyResult<&[f32]> {
        let vector = self.vectors().get(index).map(Vec::as_slice);
        vector.ok_or_else(|| PyIndexError::new_err("there is no such vector"))
    }
}

#[pymethods]
impl Embeddings {
    #[getter]
    fn error(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        let error = self.0.as_ref().err()?;
        Some(errors::to_py(py, error).into_value(py).into_any())
    }

    #[getter]
    fn tokens(&self) -> u64 {
        self.0.as_ref().map_or(0, |answer| answer.tokens)
    }

    fn __len__(&self) -> usize {
        self.vectors().len()
    }

    fn json<'py>(&self, py: Python<'py>, index: usize) -> PyResult<Bound<'py, PyBytes>> {
        let json = serde_json::to_vec(self.vector(index)?);
        let json = json.map_err(|error| PyValueError::new_err(error.to_string()))?;
        Ok(PyBytes::new(py, &json))
    }

    fn raw<'py>(&self, py: Python<'py>, index: usize) -> PyResult<Bound<'py, PyBytes>> {
        let bytes: Vec<u8> = self.vector(index)?.iter().flat_map(|value| value.to_le_bytes()).collect();
        Ok(PyBytes::new(py, &bytes))
    }

    fn scores(&self, index: usize) -> PyResult<Vec<f32>> {
        Ok(self.vector(index)?.to_vec())
    }
}
