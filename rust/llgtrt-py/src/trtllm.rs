//! What the command line needs of TensorRT-LLM beside an engine: the plugin's sources, and the part of a process that
//! works for a leader. Long calls run with the GIL released.

use llgtrt_core::Error;
use llgtrt_engine_trtllm::{PLUGIN_SOURCES, Ranks};
use pyo3::prelude::*;

use crate::config::NativeConfig;
use crate::errors::OrRaise;

/// Path and text of every file that the plugin is built from.
#[pyfunction]
pub(crate) fn trtllm_plugin_sources() -> Vec<(&'static str, &'static str)> {
    PLUGIN_SOURCES.to_vec()
}

/// This process's rank and the number of processes, as mpirun or Slurm tell them.
#[pyfunction]
pub(crate) fn mpi_rank() -> (u32, u32) {
    let ranks = Ranks::from_env();
    (ranks.rank, ranks.size)
}

/// Works for the leader of a group of processes until it ends.
#[pyfunction]
pub(crate) fn run_trtllm_worker(py: Python<'_>, config: &str) -> PyResult<()> {
    let config: NativeConfig = serde_json::from_str(config)
        .map_err(|error| Error::configuration(format!("the configuration is not understood: {error}")))
        .or_raise(py)?;
    py.detach(|| llgtrt_engine_trtllm::run_worker(&config.trtllm()?)).or_raise(py)
}
