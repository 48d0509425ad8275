//! When a request got how far. Plain data.

use std::time::{Duration, Instant};

/// Moments in the life of a request; those that it did not get to are missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    /// It was submitted.
    pub submitted: Instant,
    /// Its grammar was asked for, and was there. Almost the same for one found compiled.
    pub compile: Option<(Instant, Instant)>,
    /// The first of its sequences got a slot of the engine: queueing ends and prefill begins.
    pub started: Option<Instant>,
    /// Its first token: prefill ends and decoding begins.
    pub first_token: Option<Instant>,
    /// Its end, however it ended.
    pub ended: Option<Instant>,
}

impl Times {
    pub(crate) fn new() -> Self {
        Self { submitted: Instant::now(), compile: None, started: None, first_token: None, ended: None }
    }

    /// A moment as the time since the submission.
    pub fn since_submission(&self, moment: Instant) -> Duration {
        moment.saturating_duration_since(self.submitted)
    }
}
