//! Reports on grammars, with an engine or without. Waits for a compile slot with the GIL released.

use std::path::Path;
use std::sync::Arc;

use llgtrt_core::{Error, ErrorKind, Result, Tokenizer};
use llgtrt_grammar::{GrammarCompiler, GrammarConfig, ReportRequest, spawn_big_stack};
use llgtrt_schema::{NormalizeLimits, ResidualMode};
use llgtrt_text::{ByteTokenizer, HfTokenizer, TokenizerOptions};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::errors::OrRaise;
use crate::request::GrammarSpec;

/// The report of `compiler` as JSON.
pub(crate) fn report<'py>(
    py: Python<'py>,
    compiler: &GrammarCompiler,
    grammar: &Bound<'py, GrammarSpec>,
    instances: Vec<String>,
    residual: Option<&str>,
    places: Vec<(String, String)>,
) -> PyResult<Bound<'py, PyBytes>> {
    let residual = residual.map(residual_mode).transpose()?;
    let request = ReportRequest { spec: grammar.get().0.clone(), residual, instances, places };
    let text = py.detach(|| -> Result<Vec<u8>> {
        let report = compiler.report(request)?;
        serde_json::to_vec(&report).map_err(|e| Error::internal(format!("cannot write the report: {e}")))
    });
    Ok(PyBytes::new(py, &text.or_raise(py)?))
}

/// The stages that a schema goes through, as Markdown.
#[pyfunction]
#[pyo3(signature = (schema, *, residual=None, standard=false))]
pub(crate) fn explain_schema(
    py: Python<'_>,
    schema: &str,
    residual: Option<&str>,
    standard: bool,
) -> PyResult<String> {
    let residual = residual_mode(residual.unwrap_or("verify"))?;
    let limits = NormalizeLimits { residual, standard, compose: true, ..NormalizeLimits::default() };
    py.detach(|| explain(schema, limits)).or_raise(py)
}

/// The compiler of schemas recurses, so it runs on a thread with a big stack.
fn explain(schema: &str, limits: NormalizeLimits) -> Result<String> {
    let schema: serde_json::Value = serde_json::from_str(schema)
        .map_err(|e| Error::new(ErrorKind::Grammar, format!("the schema is not JSON: {e}")))?;
    let run = move || {
        llgtrt_schema::explain(&schema, &limits)
            .map_err(|error| Error::new(ErrorKind::Grammar, error.to_string()).with_param(error.param()))
    };
    spawn_big_stack("explain", run)
        .map_err(|e| Error::internal(format!("no thread: {e}")))?
        .join()
        .unwrap_or_else(|_| Err(Error::internal("explaining a schema panicked")))
}

fn residual_mode(name: &str) -> PyResult<ResidualMode> {
    match name {
        "refuse" => Ok(ResidualMode::Refuse),
        "verify" => Ok(ResidualMode::Verify),
        other => Err(PyValueError::new_err(format!("unknown residual mode {other:?}"))),
    }
}

/// Reports on grammars without an engine.
#[pyclass(frozen, module = "llgtrt._native")]
pub(crate) struct GrammarChecker(Arc<GrammarCompiler>);

#[pymethods]
impl GrammarChecker {
    #[new]
    #[pyo3(signature = (llguidance, tokenizer_path=None))]
    fn new(py: Python<'_>, llguidance: &str, tokenizer_path: Option<&str>) -> PyResult<Self> {
        py.detach(|| start(llguidance, tokenizer_path)).map(Self).or_raise(py)
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
        report(py, &self.0, grammar, instances, residual, places)
    }
}

fn start(llguidance: &str, tokenizer_path: Option<&str>) -> Result<Arc<GrammarCompiler>> {
    let config: GrammarConfig = serde_json::from_str(llguidance)
        .map_err(|e| Error::configuration(format!("the llguidance section is not understood: {e}")))?;
    let tokenizer: Arc<dyn Tokenizer> = match tokenizer_path {
        Some(path) => Arc::new(HfTokenizer::from_path(Path::new(path), &TokenizerOptions::default())?),
        None => Arc::new(ByteTokenizer::new()),
    };
    GrammarCompiler::alone(tokenizer, config)
}
