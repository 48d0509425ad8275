//! A connection of a server, to write to without waiting.

use std::io::Result;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::net::{SendFlags, send};
use rustix::process::{Resource, getrlimit};

/// One of so many files that may be open may be a second descriptor of a connection: its number is below that part of
/// the limit. The server takes as many connections as the others are enough for (`api/connections.py`).
const SHARE_OF_FILES: u64 = 8;

/// Has a descriptor of its own: that of the event loop may be closed, and its number given to another connection.
#[derive(Debug)]
pub(crate) struct Connection(OwnedFd);

impl Connection {
    /// The connection that a descriptor belongs to.
    ///
    /// # Errors
    /// There is no second descriptor for it.
    pub(crate) fn of(socket: BorrowedFd<'_>) -> Result<Self> {
        let socket = fcntl_dupfd_cloexec(socket, 0)?;
        let most = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX) / SHARE_OF_FILES;
        if u64::try_from(socket.as_raw_fd()).is_ok_and(|number| number >= most) {
            return Err(Errno::MFILE.into());
        }
        Ok(Self(socket))
    }

    /// Writes what the connection takes at once, and says how many bytes. None where it is gone: who writes the rest
    /// meets the error.
    pub(crate) fn write(&self, data: &[u8]) -> usize {
        send(&self.0, data, SendFlags::DONTWAIT | SendFlags::NOSIGNAL).unwrap_or(0)
    }
}
