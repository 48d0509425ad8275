//! Connections that frames go to without Python: the event loop's thread writes them while it drains.
//!
//! A chunk costs one system call here. By way of Python it costs three times as much: a bytes object, a few calls and
//! a turn of the transport's queue.

use std::collections::HashMap;
use std::io::{Result, Write};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use parking_lot::MutexGuard;
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

/// Memory of frames that a connection keeps for those to come: a few chunks of an answer.
const MOST_KEPT: usize = 4 << 10;

/// A connection at rest: nothing else waits to be written to it.
struct Outlet {
    /// A descriptor of its own: that of the event loop may be closed, and its number given to another connection.
    socket: OwnedFd,
    written: Instant,
    /// Memory for frames. What is free goes back to the system at once, so memory for each step would be new pages.
    empty: Vec<u8>,
}

/// The outlets of all requests, by their ids.
#[derive(Default)]
pub(crate) struct Outlets(Mutex<HashMap<u64, Outlet>>);

impl std::fmt::Debug for Outlets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Outlets").field("open", &self.0.lock().len()).finish()
    }
}

impl Outlets {
    /// Writes frames to a connection, and from then on whatever a drain finds for the request. Gives what the
    /// connection did not take, which ends that.
    ///
    /// # Errors
    /// There is no second descriptor for the connection; nothing was written.
    pub(crate) fn open(&self, id: u64, socket: BorrowedFd<'_>, frames: &[u8]) -> Result<Vec<u8>> {
        let socket = fcntl_dupfd_cloexec(socket, 0)?;
        let most = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX) / SHARE_OF_FILES;
        if u64::try_from(socket.as_raw_fd()).is_ok_and(|number| number >= most) {
            return Err(Errno::MFILE.into());
        }
        let outlet = Outlet { socket, written: Instant::now(), empty: Vec::new() };
        let rest = outlet.write(frames, &mut Vec::new());
        if rest.is_empty() {
            self.0.lock().insert(id, outlet);
        }
        Ok(rest)
    }

    /// Writes no more for a request.
    pub(crate) fn close(&self, id: u64) {
        self.0.lock().remove(&id);
    }

    /// How long ago something was written for a request that has an outlet.
    pub(crate) fn since_written(&self, id: u64) -> Option<Duration> {
        self.0.lock().get(&id).map(|outlet| outlet.written.elapsed())
    }

    /// For one drain.
    pub(crate) fn writer(&self) -> Writer<'_> {
        Writer { outlets: self.0.lock(), now: Instant::now(), chunk: Vec::new() }
    }
}

/// Writes what a drain finds to the outlets.
pub(crate) struct Writer<'a> {
    outlets: MutexGuard<'a, HashMap<u64, Outlet>>,
    now: Instant,
    /// The chunk that is being written.
    chunk: Vec<u8>,
}

impl Writer<'_> {
    /// What the reader of a request gets: all of it, or what its connection did not take, or is not for it to take.
    pub(crate) fn collect(&mut self, request: &RequestState) -> Option<(Payload, bool)> {
        let Some(outlet) = self.outlets.get_mut(&request.id()) else { return request.collect() };
        for _ in 0..MOST_WRITES {
            let (payload, last, all) = request.collect_frames(std::mem::take(&mut outlet.empty))?;
            let mut frames = match payload {
                Payload::Sse(frames) if !last => frames,
                // The end is the reader's to write, and so is what is not text.
                payload => {
                    self.outlets.remove(&request.id());
                    return Some((payload, last));
                }
            };
            let rest = outlet.write(&frames, &mut self.chunk);
            outlet.written = self.now;
            if !rest.is_empty() {
                self.outlets.remove(&request.id());
                return Some((Payload::Unsent(rest), false));
            }
            if frames.capacity() <= MOST_KEPT {
                frames.clear();
                outlet.empty = frames;
            }
            if all {
                return None;
            }
        }
        // So is more than one drain writes.
        self.outlets.remove(&request.id());
        request.collect()
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
