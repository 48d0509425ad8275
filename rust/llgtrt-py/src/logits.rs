//! Rows of logits as Python gets them: one at a time, because all of them may be hundreds of megabytes.

use llgtrt_runtime as runtime;
use pyo3::exceptions::{PyIndexError, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// Rows of logits.
#[pyclass(frozen, module = "llgtrt._native")]
pub(crate) struct Logits(pub(crate) runtime::Logits);

impl Logits {
    fn at(&self, index: usize) -> PyResult<&[f32]> {
        let row = self.0.rows().get(index);
        row.map(|row| &**row).ok_or_else(|| PyIndexError::new_err("there is no such row"))
    }
}

#[pymethods]
impl Logits {
    #[getter]
    fn columns(&self) -> usize {
        self.0.rows().first().map_or(0, |row| row.len())
    }

    fn __len__(&self) -> usize {
        self.0.rows().len()
    }

    fn raw<'py>(&self, py: Python<'py>, index: usize) -> PyResult<Bound<'py, PyBytes>> {
        let row = self.at(index)?;
        PyBytes::new_with(py, size_of_val(row), |bytes| {
            for (to, from) in bytes.chunks_exact_mut(size_of::<f32>()).zip(row) {
                to.copy_from_slice(&from.to_le_bytes());
            }
            Ok(())
        })
    }

    fn json<'py>(&self, py: Python<'py>, index: usize) -> PyResult<Bound<'py, PyBytes>> {
        let row = self.at(index)?;
        let text = py.detach(|| serde_json::to_vec(row));
        let text = text.map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
        // Without its brackets: the rows of a tensor are one list.
        Ok(PyBytes::new(py, &text[1..text.len() - 1]))
    }
}
