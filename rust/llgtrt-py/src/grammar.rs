//! Reports on grammars, with an engine or without. Waits for a compile slot with the GIL released.

use std::path::Path;
use std::sync::Arc;

use llgtrt_core::{Error, Result, Tokenizer};
use llgtrt_grammar::{GrammarCompiler, GrammarConfig, ReportRequest};
use llgtrt_schema::ResidualMode;
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
    let residual = match residual {
        None => None,
        Some("refuse") => Some(ResidualMode::Refuse),
        Some("verify") => Some(ResidualMode::Verify),
        Some(other) => return Err(PyValueError::new_err(format!("unknown residual mode {other:?}"))),
    };
    let request = ReportRequest { spec: grammar.get().0.clone(), residual, instances, places };
    let text = py.detach(|| -> Result<Vec<u8>> {
        let report = compiler.report(request)?;
        serde_json::to_vec(&report).map_err(|e| Error::internal(format!("cannot write the report: {e}")))
    });
    Ok(PyBytes::new(py, &text.or_raise(py)?))
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
