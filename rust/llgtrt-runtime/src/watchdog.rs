//! Watches that the engine makes progress while it has work.
//!
//! Own thread; wakes a few times a second while running. A step may be long (a big prefill), so the
//! limit is generous and only the absence of any forward pass or output counts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError};

/// What the engine thread tells the watchdog; two relaxed stores a step.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    busy: AtomicBool,
    steps: AtomicU64,
}

impl Progress {
    /// The engine did something.
    pub(crate) fn step(&self) {
        self.steps.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether the engine has work at all.
    pub(crate) fn set_busy(&self, busy: bool) {
        self.busy.store(busy, Ordering::Relaxed);
    }
}

/// Decides from observations whether the engine is stalled.
#[derive(Debug)]
pub(crate) struct StallDetector {
    limit: Duration,
    /// The most that one observation counts.
    most: Duration,
    steps: u64,
    seen: Instant,
    without_progress: Duration,
}

impl StallDetector {
    /// Stalled means busy without progress for longer than `limit`, seen every `period` or so.
    ///
    /// When the whole process does not run for a while (a suspended machine, a starved container), the watchdog
    /// may be the first to run again: such a gap says nothing about the engine and counts as two periods.
    pub(crate) fn new(limit: Duration, period: Duration, now: Instant) -> Self {
        Self { limit, most: period * 2, steps: 0, seen: now, without_progress: Duration::ZERO }
    }

    /// One observation.
    pub(crate) fn observe(&mut self, progress: &Progress, now: Instant) -> bool {
        let passed = now.duration_since(self.seen).min(self.most);
        self.seen = now;
        let steps = progress.steps.load(Ordering::Relaxed);
        if steps != self.steps || !progress.busy.load(Ordering::Relaxed) {
            self.steps = steps;
            self.without_progress = Duration::ZERO;
        } else {
            self.without_progress += passed;
        }
        self.without_progress > self.limit
    }
}

/// Runs until `stop` is disconnected, reporting every change.
pub(crate) fn run(
    progress: &Arc<Progress>,
    limit: Duration,
    stop: &Receiver<()>,
    mut report: impl FnMut(bool),
) {
    let period = (limit / 4).clamp(Duration::from_millis(10), Duration::from_millis(500));
    let mut detector = StallDetector::new(limit, period, Instant::now());
    let mut stalled = false;
    while stop.recv_timeout(period) == Err(RecvTimeoutError::Timeout) {
        let now_stalled = detector.observe(progress, Instant::now());
        if now_stalled != stalled {
            stalled = now_stalled;
            report(stalled);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_busy_engine_without_steps_is_stalled() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let progress = Progress::default();
        let mut detector = StallDetector::new(Duration::from_millis(100), Duration::from_millis(60), start);
        assert!(!detector.observe(&progress, at(500)), "idle");
        progress.set_busy(true);
        assert!(!detector.observe(&progress, at(590)));
        assert!(detector.observe(&progress, at(700)), "busy, no step");
        progress.step();
        assert!(!detector.observe(&progress, at(710)), "recovers");
        assert!(!detector.observe(&progress, at(800)));
        assert!(detector.observe(&progress, at(900)));
        progress.set_busy(false);
        assert!(!detector.observe(&progress, at(2000)), "idle again");
    }

    #[test]
    fn a_process_that_did_not_run_is_no_stalled_engine() {
        let start = Instant::now();
        let progress = Progress::default();
        progress.set_busy(true);
        let mut detector = StallDetector::new(Duration::from_millis(100), Duration::from_millis(25), start);
        assert!(!detector.observe(&progress, start + Duration::from_secs(60)));
        progress.step();
        assert!(!detector.observe(&progress, start + Duration::from_secs(61)));
    }
}
