//! A deterministic engine without a model, for tests and load: programmable prefill and step time, scripted
//! or random text over any tokenizer, and failures that only the configuration can switch on.
//!
//! Owns no threads: everything runs in `poll`, on the thread that owns the engine. It computes no logits, so that
//! it can drive hundreds of streams with little CPU time.

mod config;
mod embedder;
mod engine;
mod fault;
mod handover;
mod hash;
mod lexicon;
mod logprobs;
mod prefix;
mod processed;
mod sequence;
mod voice;

pub use config::{Fault, FaultKind, ScriptEnd, SimConfig, SimText};
pub use embedder::SimEmbedder;
pub use engine::SimEngine;
