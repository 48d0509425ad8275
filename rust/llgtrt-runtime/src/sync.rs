//! Locks and atomics of what several threads share: `shared`, `outbox`, `gate` and `signal`.
//!
//! `llgtrt-interleavings` compiles those files over the model checker's own, so they name none of the standard
//! library's or of `parking_lot` themselves. `Arc` is the standard library's in both.

pub(crate) use std::sync::atomic::{AtomicBool, AtomicUsize};

pub(crate) use parking_lot::Mutex;
