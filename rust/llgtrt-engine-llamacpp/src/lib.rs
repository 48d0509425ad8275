//! The embedded engine: GGUF models through llama.cpp, with continuous batching.
//!
//! Owns the model, its tokenizer and one llama.cpp context whose sequences ("slots") hold the KV
//! cache. The engine's thread makes every call on [`LlamaCppEngine`]; the tokenizer is shared by all.
//! [`LlamaCppEmbedder`] has a context of its own over the same model or another, and a thread of its own; engine
//! and embedder take turns, pass by pass (`turns`).
//! Only `context`, `embed_context`, `log`, `memory` and `repack` contain `unsafe`. Nothing here knows grammars or HTTP.
//!
//! ```text
//! LlamaCppConfig -> LlamaCppModel::load -> tokenizer(), info()
//!                                       -> LlamaCppEngine::new(&model, masks)
//!                                       -> LlamaCppEmbedder::new(&model, &engine's model, config)
//! ```

mod admit;
mod apart;
mod cells;
mod config;
mod context;
mod costs;
mod draft_model;
mod embed_context;
mod embed_pack;
mod embedder;
mod engine;
mod forward;
mod gguf;
mod held;
mod log;
mod memory;
mod model;
mod pace;
mod paused;
mod pieces;
mod repack;
mod sampling;
mod schedule;
mod slot;
mod tokenizer;
mod turns;

pub use config::{FlashAttention, KvCacheType, LlamaCppConfig, Speculation};
pub use embedder::{EmbedderConfig, LlamaCppEmbedder, Pooling};
pub use engine::LlamaCppEngine;
pub use model::{LlamaCppModel, ModelInfo, free_gpu_memory};
