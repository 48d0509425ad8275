//! The Python extension module `llgtrt._native`: the only crate with `PyO3`; picks the engine.
//!
//! Everything here runs on Python's threads. Rust threads never call into Python.

mod config;
mod engine;
mod errors;
mod grammar;
mod options;
mod output;
mod request;
mod start;
mod trtllm;

use pyo3::prelude::*;

/// Masks on several threads allocate at the same time, which glibc's allocator makes them wait for.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// JSON: the fields of every configuration section as Rust reads them.
#[pyfunction]
fn config_fields() -> String {
    config::fields().to_string()
}

/// Sends the core's log to standard error. Levels: `error`, `warn`, `info`, `debug`, `trace`, `off`, or the
/// directives of tracing's filter (`warn,llgtrt_engine_llamacpp=debug`). The first call wins.
#[pyfunction]
fn init_logging(level: &str) -> PyResult<()> {
    let filter = tracing_subscriber::EnvFilter::try_new(level)
        .map_err(|e| pyo3::exceptions::PyValueError::new_err(format!("log level {level:?}: {e}")))?;
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(false);
    // A second call finds the subscriber set, by us or by an embedding program.
    let _ = log.try_init();
    Ok(())
}

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    errors::register(module)?;
    module.add_class::<request::GrammarSpec>()?;
    module.add_class::<request::GenerateRequest>()?;
    module.add_class::<output::Usage>()?;
    module.add_class::<output::ChoiceDelta>()?;
    module.add_class::<output::Delta>()?;
    module.add_class::<output::RequestHandle>()?;
    module.add_class::<engine::Permit>()?;
    module.add_class::<engine::Engine>()?;
    module.add_class::<grammar::GrammarChecker>()?;
    module.add_function(wrap_pyfunction!(grammar::explain_schema, module)?)?;
    module.add_function(wrap_pyfunction!(init_logging, module)?)?;
    module.add_function(wrap_pyfunction!(trtllm::trtllm_plugin_sources, module)?)?;
    module.add_function(wrap_pyfunction!(trtllm::mpi_rank, module)?)?;
    module.add_function(wrap_pyfunction!(trtllm::run_trtllm_worker, module)?)?;
    module.add_function(wrap_pyfunction!(config_fields, module)?)
}
