//! Connections that frames go to without Python: the event loop's thread writes them while it drains.
//!
//! A chunk costs one system call here. By way of Python it costs three times as much: a bytes object, a few calls and
//! a turn of the transport's queue.

use std::collections::HashMap;
use std::io::{Result, Write};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::net::{SendFlags, send};
use rustix::process::{Resource, getrlimit};

use crate::outbox::RequestState;
use crate::request::Payload;
use crate::sync::Mutex;

/// One of so many files that may be open may be a second descriptor of a connection: its number is below that part of
/// the limit. The server takes as many connections as the others are enough for (`api/connections.py`).
const SHARE_OF_FILES: u64 = 8;

/// Chunks of one answer that one drain writes. An answer that comes faster than it is written must not keep the event
/// loop.
const MOST_WRITES: usize = 2;

/// A connection at rest: nothing else waits to be written to it.
struct Outlet {
    state: Arc<RequestState>,
    /// A descriptor of its own: that of the event loop may be closed, and its number given to another connection.
    socket: OwnedFd,
    written: Instant,
}

/// The outlets of all requests, by their ids.
#[derive(Default)]
pub(crate) struct Outlets(Mutex<Table>);

#[derive(Default)]
struct Table {
    outlets: HashMap<u64, Outlet>,
    /// The chunk that is being written.
    chunk: Vec<u8>,
}

impl std::fmt::Debug for Outlets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Outlets").field("open", &self.0.lock().outlets.len()).finish()
    }
}

impl Outlets {
    /// Writes frames to a connection, and from then on whatever a drain finds for the request. Gives what the
    /// connection did not take, which ends that.
    ///
    /// # Errors
    /// There is no second descriptor for the connection; nothing was written.
    pub(crate) fn open(
        &self,
        state: &Arc<RequestState>,
        socket: BorrowedFd<'_>,
        frames: &[u8],
    ) -> Result<Vec<u8>> {
        let socket = fcntl_dupfd_cloexec(socket, 0)?;
        let most = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX) / SHARE_OF_FILES;
        if u64::try_from(socket.as_raw_fd()).is_ok_and(|number| number >= most) {
            return Err(Errno::MFILE.into());
        }
        let mut table = self.0.lock();
        let Table { outlets, chunk } = &mut *table;
        let outlet = Outlet { state: Arc::clone(state), socket, written: Instant::now() };
        let rest = outlet.write(frames, chunk);
        if rest.is_empty() {
            outlets.insert(state.id(), outlet);
        }
        Ok(rest)
    }

    /// Writes no more for a request.
    pub(crate) fn close(&self, id: u64) {
        self.0.lock().outlets.remove(&id);
    }

    /// How long ago something was written for a request that has an outlet.
    pub(crate) fn since_written(&self, id: u64) -> Option<Duration> {
        self.0.lock().outlets.get(&id).map(|outlet| outlet.written.elapsed())
    }

    /// Writes what was drained to the outlets; the rest is for the reader.
    pub(crate) fn pass(&self, drained: Vec<(u64, Payload, bool)>) -> Vec<(u64, Payload, bool)> {
        let mut table = self.0.lock();
        if table.outlets.is_empty() {
            return drained;
        }
        let written = Instant::now();
        drained.into_iter().filter_map(|(id, payload, last)| table.pass(id, payload, last, written)).collect()
    }
}

impl Table {
    fn pass(
        &mut self,
        id: u64,
        payload: Payload,
        last: bool,
        written: Instant,
    ) -> Option<(u64, Payload, bool)> {
        let Self { outlets, chunk } = self;
        let Some(outlet) = outlets.get_mut(&id) else { return Some((id, payload, last)) };
        let mut next = Some((payload, last));
        for _ in 0..MOST_WRITES {
            let Some((Payload::Sse(frames), false)) = &next else { break };
            let rest = outlet.write(frames, chunk);
            outlet.written = written;
            if !rest.is_empty() {
                outlets.remove(&id);
                return Some((id, Payload::Unsent(rest), false));
            }
            // Nothing ready asks the next drain for it, as a reader that waits does.
            next = outlet.state.take();
        }
        // The end is the reader's to write, and so is what is not text, and more than one drain writes.
        let (payload, last) = next?;
        outlets.remove(&id);
        Some((id, payload, last))
    }
}

impl Outlet {
    /// Writes frames as a chunk of an HTTP/1.1 body, as far as the socket takes it at once. Gives the end of the chunk
    /// that it did not take.
    fn write(&self, frames: &[u8], chunk: &mut Vec<u8>) -> Vec<u8> {
        chunk.clear();
        let head = write!(chunk, "{:x}\r\n", frames.len());
        debug_assert!(head.is_ok(), "memory takes what is written");
        chunk.extend_from_slice(frames);
        chunk.extend_from_slice(b"\r\n");
        // Who writes the rest meets the error of a connection that is gone.
        let sent = send(&self.socket, chunk, SendFlags::DONTWAIT | SendFlags::NOSIGNAL).unwrap_or(0);
        chunk[sent..].to_vec()
    }
}
