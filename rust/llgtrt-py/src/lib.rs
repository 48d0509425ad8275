//! The Python extension module `llgtrt._native`: the only crate with `PyO3`; picks the engine.
//!
//! Everything here runs on Python's threads, but for `processor` and `python_engine`: Python of the
//! operator's that the engine's thread calls.

mod config;
mod embed;
mod engine;
mod errors;
mod grammar;
mod huge_pages;
mod json;
mod kv_events;
mod log;
mod logits;
mod options;
mod output;
mod passes;
mod processor;
mod python_engine;
mod read_json;
mod request;
mod start;
mod tokens;
mod trtllm;
mod written;

use pyo3::prelude::*;

/// Masks on several threads allocate at the same time, which glibc's allocator makes them wait for.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// jemalloc's settings, which it looks for under this name; those of `_RJEM_MALLOC_CONF` in the environment come after
/// them. What is free goes back to the system at once: grammars take hundreds of megabytes for a moment. Few arenas:
/// each keeps pages of every size in use, and threads have caches of their own before them. Those have few places per
/// size: frees fill them, and only what their own thread allocates later empties them. With jemalloc's usual number 15
/// threads and those of Python held 4 MB after 20 rounds of the soak's load, 8 MB after 200, and more with every hour.
/// They are for blocks of up to 4 KB: without those over 1 KB a mask of a small vocabulary takes 12 % longer, and the
/// soak's memory is the same.
#[unsafe(export_name = "_rjem_malloc_conf")]
static MALLOC_CONF: &[u8; 113] =
    b"narenas:4,dirty_decay_ms:0,muzzy_decay_ms:0,tcache_max:4096,tcache_nslots_small_min:4,tcache_nslots_small_max:24\0";

/// JSON: the fields of every configuration section as Rust reads them.
#[pyfunction]
fn config_fields() -> String {
    config::fields().to_string()
}

/// JSON: the fields of a request, and of each object in it, as Rust reads them.
#[pyfunction]
fn request_fields() -> String {
    request::fields().to_string()
}

/// Bytes that are free on the GPUs that llama.cpp can use; None: it can use none.
#[pyfunction]
fn free_gpu_memory(py: Python<'_>) -> Option<u64> {
    py.detach(llgtrt_engine_llamacpp::free_gpu_memory)
}

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    errors::register(module)?;
    module.add_class::<request::GrammarSpec>()?;
    module.add_class::<request::GenerateRequest>()?;
    module.add_class::<output::Usage>()?;
    module.add_class::<output::Summary>()?;
    module.add_class::<logits::Logits>()?;
    module.add_class::<output::ChoiceDelta>()?;
    module.add_class::<output::Delta>()?;
    module.add_class::<output::RequestHandle>()?;
    module.add_class::<output::Unsent>()?;
    module.add_class::<embed::EmbedHandle>()?;
    module.add_class::<embed::Embeddings>()?;
    module.add_class::<kv_events::KvEvent>()?;
    module.add_class::<passes::ForwardPass>()?;
    module.add_class::<engine::Permit>()?;
    module.add_class::<engine::Engine>()?;
    module.add_class::<grammar::GrammarChecker>()?;
    module.add_function(wrap_pyfunction!(grammar::explain_schema, module)?)?;
    module.add_function(wrap_pyfunction!(log::init_logging, module)?)?;
    module.add_function(wrap_pyfunction!(huge_pages::use_huge_pages, module)?)?;
    module.add_function(wrap_pyfunction!(tokens::tokenize_with, module)?)?;
    module.add_function(wrap_pyfunction!(read_json::read_json, module)?)?;
    module.add_function(wrap_pyfunction!(trtllm::trtllm_plugin_sources, module)?)?;
    module.add_function(wrap_pyfunction!(trtllm::mpi_rank, module)?)?;
    module.add_function(wrap_pyfunction!(trtllm::run_trtllm_worker, module)?)?;
    module.add_function(wrap_pyfunction!(free_gpu_memory, module)?)?;
    module.add_function(wrap_pyfunction!(config_fields, module)?)?;
    module.add_function(wrap_pyfunction!(request_fields, module)?)
}
