//! Models of what threads share, for loom, which runs them under every order of their steps that the memory model allows.
//!
//! What is checked is the production code itself: `signal`, `outbox`, `outlet`, `shared` and `gate` of `llgtrt-runtime` and
//! `pool/entry` of `llgtrt-grammar` are compiled here once more, over [`sync`], [`wake`] and [`connection`] in place of
//! their own. A model panics where an order breaks what it promises; a wake-up that is lost is a deadlock, which loom
//! finds.
//!
//! What judges values beside a grammar (`verify/judge.rs` of `llgtrt-grammar`) has no model: threads share it unchanged, and
//! what it may spend belongs to whoever asks.

#![allow(dead_code, reason = "of the sources that are compiled here once more, models use a part")]
#![allow(unreachable_pub, clippy::struct_field_names, reason = "they are public in their own crate")]

mod connection;
mod slot;
mod sync;
mod wake;

#[path = "../../llgtrt-runtime/src/frames.rs"]
mod frames;
#[path = "../../llgtrt-runtime/src/gate.rs"]
mod gate;
#[path = "../../llgtrt-runtime/src/logits.rs"]
mod logits;
#[path = "../../llgtrt-runtime/src/metrics.rs"]
mod metrics;
#[path = "../../llgtrt-runtime/src/outbox.rs"]
mod outbox;
#[path = "../../llgtrt-runtime/src/outlet.rs"]
mod outlet;
#[path = "../../llgtrt-runtime/src/passes.rs"]
mod passes;
#[path = "../../llgtrt-runtime/src/request.rs"]
mod request;
#[path = "../../llgtrt-runtime/src/shared.rs"]
mod shared;
#[path = "../../llgtrt-runtime/src/signal.rs"]
mod signal;
#[path = "../../llgtrt-runtime/src/times.rs"]
mod times;

pub mod delivery;
pub mod places;
pub mod pool;

/// Runs a model under every order with at most so many preemptions; more of them find hardly anything more.
fn explore(model: impl Fn() + Sync + Send + 'static) {
    const PREEMPTIONS: usize = 3;
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS);
    builder.check(model);
}
