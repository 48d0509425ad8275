//! A file descriptor that becomes readable when there is something to drain.
//!
//! Set from Rust threads, watched by asyncio (`loop.add_reader`), reset by the drain. Setting it
//! twice before a reset costs one system call, not two.

use std::os::fd::RawFd;
use std::sync::atomic::Ordering;

use llgtrt_core::Result;

use crate::sync::AtomicBool;
use crate::wake::Wake;

#[derive(Debug)]
pub(crate) struct Signal {
    pub wake: Wake,
    raised: AtomicBool,
}

impl Signal {
    /// A lowered signal.
    pub(crate) fn new() -> Result<Self> {
        Ok(Self { wake: Wake::new()?, raised: AtomicBool::new(false) })
    }

    /// The descriptor to watch for readability.
    pub(crate) fn fd(&self) -> RawFd {
        self.wake.fd()
    }

    /// Makes the descriptor readable.
    pub(crate) fn raise(&self) {
        if !self.raised.swap(true, Ordering::AcqRel) {
            self.wake.set();
        }
    }

    /// Makes it unreadable again. Call before collecting what was signalled, so that nothing is missed.
    pub(crate) fn lower(&self) {
        self.wake.clear();
        // Exchanges have one order among each other, also for the model checker; it takes a store for one that may come
        // before an exchange that it did not see.
        self.raised.swap(false, Ordering::AcqRel);
    }
}
