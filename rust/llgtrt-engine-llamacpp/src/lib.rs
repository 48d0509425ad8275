//! The embedded engine: GGUF models through llama.cpp, with continuous batching.
//!
//! Owns the model, its tokenizer and one llama.cpp context whose sequences ("slots") hold the KV
//! cache. The engine's thread makes every call on [`LlamaCppEngine`]; the tokenizer is shared by all.
//! Only `context`, `log` and `repack` contain `unsafe`. Nothing here knows grammars or HTTP.
//!
//! ```text
//! LlamaCppConfig -> LlamaCppModel::load -> tokenizer(), info()
//!                                       -> LlamaCppEngine::new(&model, masks)
//! ```

mod admit;
mod config;
mod context;
mod draft;
mod engine;
mod forward;
mod gguf;
mod log;
mod model;
mod pieces;
mod repack;
mod sampling;
mod schedule;
mod sequence;
mod slot;
mod tokenizer;

pub use config::{FlashAttention, KvCacheType, LlamaCppConfig, Speculation};
pub use engine::LlamaCppEngine;
pub use model::{LlamaCppModel, ModelInfo};
