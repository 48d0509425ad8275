//! Locks and atomics of what the threads of the mask pool share ([`pool`](crate::MaskPool)'s entries).
//!
//! `llgtrt-interleavings` compiles that file over the model checker's own, so it names none of the standard library's
//! or of `parking_lot` itself.

pub(crate) use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

pub(crate) use parking_lot::Mutex;
