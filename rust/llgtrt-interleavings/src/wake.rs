//! An eventfd as a model: a counter that is readable while it is not zero, and that a thread can wait for.

use std::os::fd::RawFd;

use llgtrt_core::Result;
use loom::sync::{Condvar, Mutex};

#[derive(Debug)]
pub(crate) struct Wake {
    count: Mutex<u64>,
    readable: Condvar,
}

impl Wake {
    #[expect(clippy::unnecessary_wraps, reason = "the real one may fail")]
    pub(crate) fn new() -> Result<Self> {
        Ok(Self { count: Mutex::new(0), readable: Condvar::new() })
    }

    /// There is no descriptor.
    #[expect(clippy::unused_self, reason = "the real one has it")]
    pub(crate) fn fd(&self) -> RawFd {
        -1
    }

    pub(crate) fn set(&self) {
        *self.count.lock().expect("a panic ends the model") += 1;
        self.readable.notify_all();
    }

    pub(crate) fn clear(&self) {
        *self.count.lock().expect("a panic ends the model") = 0;
    }

    /// Blocks until it is readable, as the event loop does.
    pub(crate) fn wait(&self) {
        let mut count = self.count.lock().expect("a panic ends the model");
        while *count == 0 {
            count = self.readable.wait(count).expect("a panic ends the model");
        }
    }
}
