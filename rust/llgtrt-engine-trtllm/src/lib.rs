//! TensorRT-LLM's C++ executor as an engine, through a plugin that is opened at run time.
//!
//! The plugin (`plugin/`, C++ and CUDA) is built against an installed TensorRT-LLM 1.2; this crate needs neither it
//! nor CUDA to build. The engine's thread makes every call on [`TrtllmEngine`]; the executor's thread calls back for
//! masks. Only `library`, `native`, `masks` and `abi` contain `unsafe`. Nothing here knows grammars or HTTP.
//!
//! ```text
//! plugin/include/llgtrt_trtllm.h   the C interface          abi, library
//! plugin/src                       C++ over the executor     native, masks
//!                                                            request, sequence -> engine
//! ```

mod abi;
mod admission;
mod check;
mod config;
mod engine;
mod engine_dir;
mod kv_events;
mod library;
mod lora;
mod masks;
mod native;
mod ranks;
mod request;
mod sequence;
mod sources;

pub use config::{Batching, ChunkingPolicy, DecodingMode, TransceiverBackend, TrtllmConfig, TrtllmSetup};
pub use engine::{TrtllmEngine, run_worker};
pub use engine_dir::EngineInfo;
pub use lora::adapter_names;
pub use ranks::Ranks;
pub use sources::PLUGIN_SOURCES;
