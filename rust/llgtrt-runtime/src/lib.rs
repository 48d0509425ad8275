//! Sequence table, step loop, output queues, statistics and watchdog over any engine.
//!
//! Threads: `llgtrt-engine` owns the engine, `llgtrt-output` turns tokens into text and frames,
//! `llgtrt-admit-*` tokenize and admit, `llgtrt-watchdog` watches progress,
//! `llgtrt-embed` owns the embedder. None of them ever needs
//! Python. See `docs/architecture.md` for the trace of one request.

mod admission;
mod connection;
mod constrained;
mod embed;
mod engine_loop;
mod frames;
mod gate;
mod held;
mod live;
mod logits;
mod metrics;
mod outbox;
mod outlet;
mod output;
mod passes;
mod receipt;
mod request;
mod runtime;
mod seeds;
mod shared;
mod signal;
mod sync;
mod times;
mod wake;
mod watchdog;

pub use embed::{EmbedHandle, EmbedInput, EmbedRequest};
pub use gate::Permit;
pub use logits::{ChoiceLogits, Logits};
pub use request::{
    AtLimit, ChoiceDelta, ChoiceFinish, Delta, Embeddings, GenerateRequest, LogprobsForm, OutputFormat,
    Payload, Prompt, Summary, Text, Usage,
};
pub use runtime::{EngineFactory, RequestHandle, Runtime, RuntimeConfig};
pub use shared::Health;
pub use times::Times;
