//! A file descriptor that one side makes readable and the other unreadable: an eventfd on Linux, a pipe elsewhere.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use llgtrt_core::{Error, Result};

#[derive(Debug)]
pub(crate) struct Wake {
    read: OwnedFd,
    #[cfg(not(target_os = "linux"))]
    write: OwnedFd,
}

impl Wake {
    /// An unreadable one.
    pub(crate) fn new() -> Result<Self> {
        let failed =
            |e: rustix::io::Errno| Error::internal(format!("cannot create a wake-up descriptor: {e}"));
        #[cfg(target_os = "linux")]
        {
            use rustix::event::{EventfdFlags, eventfd};
            let read = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).map_err(failed)?;
            Ok(Self { read })
        }
        #[cfg(not(target_os = "linux"))]
        {
            let (read, write) = rustix::pipe::pipe().map_err(failed)?;
            for fd in [&read, &write] {
                rustix::io::ioctl_fionbio(fd, true).map_err(failed)?;
            }
            Ok(Self { read, write })
        }
    }

    /// The descriptor to watch for readability.
    pub(crate) fn fd(&self) -> RawFd {
        self.read.as_raw_fd()
    }

    /// Makes it readable.
    pub(crate) fn set(&self) {
        // A full counter or pipe means that it is readable already.
        #[cfg(target_os = "linux")]
        let _ = rustix::io::write(&self.read, &1u64.to_ne_bytes());
        #[cfg(not(target_os = "linux"))]
        let _ = rustix::io::write(&self.write, &[1]);
    }

    /// Makes it unreadable.
    pub(crate) fn clear(&self) {
        let mut buffer = [0u8; 8];
        let _ = rustix::io::read(&self.read, &mut buffer);
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;
    use crate::signal::Signal;

    fn readable(wake: &Wake) -> bool {
        let mut fds = [PollFd::new(&wake.read, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).expect("poll") == 1
    }

    #[test]
    fn a_signal_is_readable_between_raise_and_lower() {
        let signal = Signal::new().expect("signal");
        assert!(!readable(&signal.wake));
        signal.raise();
        signal.raise();
        assert!(readable(&signal.wake));
        signal.lower();
        assert!(!readable(&signal.wake));
        signal.raise();
        assert!(readable(&signal.wake));
    }
}
