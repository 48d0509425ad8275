//! How much of the processor a thread gets beside others.

/// A thread whose priority can be lowered.
#[cfg(target_os = "linux")]
#[derive(Debug, Clone, Copy)]
pub(super) struct Thread(rustix::thread::Pid);

/// A thread; here its priority stays as it is.
#[cfg(not(target_os = "linux"))]
#[derive(Debug, Clone, Copy)]
pub(super) struct Thread;

#[cfg(target_os = "linux")]
impl Thread {
    /// The calling thread.
    pub(super) fn current() -> Self {
        Self(rustix::thread::gettid())
    }

    /// Leaves the thread what no other thread wants. Nothing undoes this. It must not have ended.
    pub(super) fn yield_to_all(self) {
        /// The lowest priority; on Linux it is a thread's own.
        const NICEST: i32 = 19;
        if let Err(error) = rustix::process::setpriority_process(Some(self.0), NICEST) {
            tracing::warn!(%error, "the priority of an overrun compilation stays as it is");
        }
    }
}

#[cfg(not(target_os = "linux"))]
impl Thread {
    /// The calling thread.
    pub(super) fn current() -> Self {
        Self
    }

    /// Nothing: only Linux knows priorities of threads without privileges.
    pub(super) fn yield_to_all(self) {}
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn the_priority_of_one_thread_is_lowered() {
        let nice = || rustix::process::getpriority_process(Some(rustix::thread::gettid())).unwrap();
        let before = nice();
        let lowered = std::thread::spawn(move || {
            Thread::current().yield_to_all();
            nice()
        });
        assert_eq!(lowered.join().unwrap(), 19);
        assert_eq!(nice(), before, "of that one only");
    }
}
