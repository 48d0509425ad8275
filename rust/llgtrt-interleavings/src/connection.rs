//! A connection as a model: it takes all of the first write and so many bytes of each later one.

use std::cell::Cell;
use std::sync::Arc;

use crate::sync::Mutex;

/// What a client has received, whoever wrote it.
pub(crate) type Received = Arc<Mutex<Vec<u8>>>;

#[derive(Debug)]
pub(crate) struct Connection {
    received: Received,
    takes: usize,
    is_full: Cell<bool>,
}

impl Connection {
    pub(crate) fn new(received: &Received, takes: usize) -> Self {
        Self { received: Arc::clone(received), takes, is_full: Cell::new(false) }
    }

    pub(crate) fn write(&self, data: &[u8]) -> usize {
        let takes = if self.is_full.replace(true) { self.takes } else { usize::MAX };
        let taken = data.len().min(takes);
        self.received.lock().extend_from_slice(&data[..taken]);
        taken
    }
}
