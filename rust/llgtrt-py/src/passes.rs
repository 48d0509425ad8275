//! Forward passes as Python objects.

use llgtrt_core::Pass;
use pyo3::prelude::*;

/// A forward pass that has ended.
#[pyclass(frozen, module = "llgtrt._native")]
pub(crate) struct ForwardPass(pub(crate) Pass);

#[pymethods]
impl ForwardPass {
    #[getter]
    fn duration_s(&self) -> f64 {
        self.0.duration.as_secs_f64()
    }

    #[getter]
    fn prefill_sequences(&self) -> u32 {
        self.0.prefill_sequences
    }

    #[getter]
    fn prefill_tokens(&self) -> u32 {
        self.0.prefill_tokens
    }

    #[getter]
    fn prefill_context_tokens(&self) -> u64 {
        self.0.prefill_context_tokens
    }

    #[getter]
    fn decode_sequences(&self) -> u32 {
        self.0.decode_sequences
    }

    #[getter]
    fn decode_tokens(&self) -> u32 {
        self.0.decode_tokens
    }

    #[getter]
    fn decode_context_tokens(&self) -> u64 {
        self.0.decode_context_tokens
    }
}
