//! Tokens of texts without an engine. Runs with the GIL released.

use std::path::Path;

use llgtrt_core::{EncodeOptions, Result, Tokenizer};
use llgtrt_text::{HfTokenizer, TokenizerOptions};
use pyo3::prelude::*;

use crate::errors::OrRaise;

/// Tokens of texts under a `tokenizer.json`.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "extracted from a Python list")]
pub(crate) fn tokenize_with(
    py: Python<'_>,
    tokenizer_path: &str,
    texts: Vec<String>,
) -> PyResult<Vec<Vec<u32>>> {
    py.detach(|| tokens(tokenizer_path, &texts)).or_raise(py)
}

fn tokens(tokenizer_path: &str, texts: &[String]) -> Result<Vec<Vec<u32>>> {
    let tokenizer = HfTokenizer::from_path(Path::new(tokenizer_path), &TokenizerOptions::default())?;
    let options = EncodeOptions { add_special: false, parse_special: true };
    texts.iter().map(|text| tokenizer.encode(text, options)).collect()
}
