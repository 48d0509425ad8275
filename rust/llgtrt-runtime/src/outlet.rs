//! Where the frames of a stream go: to its reader, or to its connection, past Python.
//!
//! A chunk costs one system call here. By way of Python it costs three times as much (a bytes object, a few calls and a
//! turn of the transport's queue), and comes when the interpreter has nothing else to do.

use std::io::Write;
use std::time::{Duration, Instant};

use crate::connection::Connection;

/// Memory of frames that a connection keeps for those to come: a few chunks of an answer.
const MOST_KEPT: usize = 4 << 10;

/// Part of what an outbox holds, under its lock: what is taken for the connection is written before anybody else takes
/// anything.
#[derive(Debug, Default)]
pub(crate) enum Outlet {
    /// The reader takes the frames.
    #[default]
    Closed,
    /// The output thread writes them while the reader waits.
    Open(OpenOutlet),
    /// The end of a chunk that the connection did not take. The reader has to write it before anything else.
    Cut(Vec<u8>),
}

/// A connection at rest: nothing else waits to be written to it.
#[derive(Debug)]
pub(crate) struct OpenOutlet {
    connection: Connection,
    written: Instant,
    /// Memory for frames. What is free goes back to the system at once, so memory for each step would be new pages.
    pub empty: Vec<u8>,
    /// It is in the output thread's list of those to write to.
    pub queued: bool,
}

impl Outlet {
    /// Writes frames to a connection, and leaves it open for those to come. Gives what is still to be written, which
    /// closes it.
    pub(crate) fn open(&mut self, connection: Connection, frames: &[u8]) -> Vec<u8> {
        let mut open = OpenOutlet { connection, written: Instant::now(), empty: Vec::new(), queued: false };
        let mut rest = self.close();
        if !rest.is_empty() {
            append_chunk(&mut rest, frames);
            return rest;
        }
        rest = open.write(frames, &mut Vec::new());
        if rest.is_empty() {
            *self = Self::Open(open);
        }
        rest
    }

    /// Leaves what comes to the reader. Gives the end of a chunk that the connection did not take.
    pub(crate) fn close(&mut self) -> Vec<u8> {
        match std::mem::take(self) {
            Self::Closed | Self::Open(_) => Vec::new(),
            Self::Cut(rest) => rest,
        }
    }

    /// Puts the connection in the list of those that something is to be written to. `None` where there is none; false
    /// where it is in the list.
    pub(crate) fn queue(&mut self) -> Option<bool> {
        match self {
            Self::Open(open) => Some(!std::mem::replace(&mut open.queued, true)),
            Self::Closed | Self::Cut(_) => None,
        }
    }

    /// Whether a chunk's end is still to be written.
    pub(crate) const fn is_cut(&self) -> bool {
        matches!(self, Self::Cut(_))
    }

    /// How long ago something was written to a connection that is open.
    pub(crate) fn since_written(&self) -> Option<Duration> {
        match self {
            Self::Open(open) => Some(open.written.elapsed()),
            Self::Closed | Self::Cut(_) => None,
        }
    }
}

impl OpenOutlet {
    /// Writes frames as a chunk of an HTTP/1.1 body, as far as the connection takes it at once. Gives the end of the
    /// chunk that it did not take. `chunk` is memory.
    pub(crate) fn write(&mut self, frames: &[u8], chunk: &mut Vec<u8>) -> Vec<u8> {
        chunk.clear();
        append_chunk(chunk, frames);
        let sent = self.connection.write(chunk);
        self.written = Instant::now();
        chunk[sent..].to_vec()
    }

    /// Keeps the memory of frames that were written, unless it is much.
    pub(crate) fn keep(&mut self, mut frames: Vec<u8>) {
        if frames.capacity() <= MOST_KEPT {
            frames.clear();
            self.empty = frames;
        }
    }
}

fn append_chunk(out: &mut Vec<u8>, frames: &[u8]) {
    let head = write!(out, "{:x}\r\n", frames.len());
    debug_assert!(head.is_ok(), "memory takes what is written");
    out.extend_from_slice(frames);
    out.extend_from_slice(b"\r\n");
}
