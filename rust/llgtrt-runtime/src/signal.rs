//! A file descriptor that becomes readable when there is something to drain.
//!
//! Set from Rust threads, watched by asyncio (`loop.add_reader`), reset by the drain. Setting it
//! twice before a reset costs one system call, not two.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use llgtrt_core::{Error, Result};

/// An eventfd on Linux, a pipe elsewhere.
#[derive(Debug)]
pub(crate) struct Signal {
    read: OwnedFd,
    #[cfg(not(target_os = "linux"))]
    write: OwnedFd,
    raised: AtomicBool,
}

impl Signal {
    /// A lowered signal.
    pub(crate) fn new() -> Result<Self> {
        let failed =
            |e: rustix::io::Errno| Error::internal(format!("cannot create a wake-up descriptor: {e}"));
        #[cfg(target_os = "linux")]
        {
            use rustix::event::{EventfdFlags, eventfd};
            let read = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).map_err(failed)?;
            Ok(Self { read, raised: AtomicBool::new(false) })
        }
        #[cfg(not(target_os = "linux"))]
        {
            let (read, write) = rustix::pipe::pipe().map_err(failed)?;
            for fd in [&read, &write] {
                rustix::io::ioctl_fionbio(fd, true).map_err(failed)?;
            }
            Ok(Self { read, write, raised: AtomicBool::new(false) })
        }
    }

    /// The descriptor to watch for readability.
    pub(crate) fn fd(&self) -> RawFd {
        self.read.as_raw_fd()
    }

    /// Makes the descriptor readable.
    pub(crate) fn raise(&self) {
        if self.raised.swap(true, Ordering::AcqRel) {
            return;
        }
        // A full counter or pipe means that it is readable already.
        #[cfg(target_os = "linux")]
        let _ = rustix::io::write(&self.read, &1u64.to_ne_bytes());
        #[cfg(not(target_os = "linux"))]
        let _ = rustix::io::write(&self.write, &[1]);
    }

    /// Makes it unreadable again. Call before collecting what was signalled, so that nothing is missed.
    pub(crate) fn lower(&self) {
        let mut buffer = [0u8; 8];
        let _ = rustix::io::read(&self.read, &mut buffer);
        self.raised.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;

    fn readable(signal: &Signal) -> bool {
        let mut fds = [PollFd::new(&signal.read, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).expect("poll") == 1
    }

    #[test]
    fn is_readable_between_raise_and_lower() {
        let signal = Signal::new().expect("signal");
        assert!(!readable(&signal));
        signal.raise();
        signal.raise();
        assert!(readable(&signal));
        signal.lower();
        assert!(!readable(&signal));
        signal.raise();
        assert!(readable(&signal));
    }
}
