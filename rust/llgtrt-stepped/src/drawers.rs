//! Threads that draw tokens beside the engine's, where a step has rows enough.
//!
//! A forward pass uses all cores, and drawing comes between two passes: with one thread alone the other cores would wait for it.
//! The threads do nothing else, so the engine's waits for none of them longer than a row takes. What is drawn does not
//! depend on them: each sequence has its own generator.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use rayon::{ThreadPool, ThreadPoolBuilder};

/// Expected work for which waking one more thread pays, in nanoseconds: the hand-off takes 10 to 30 us.
const WAKE_NANOS: u64 = 100_000;

/// Weight of the latest step in what a row costs, as one part in so many.
const LATEST: u64 = 4;

/// See the module.
pub(crate) struct Drawers {
    /// Threads beside the caller's.
    others: usize,
    pool: Started,
    /// What a row has cost of late, in nanoseconds of the thread that drew from it.
    row_nanos: u64,
}

/// The threads are started when they are needed first.
enum Started {
    NotYet,
    Failed,
    Pool(ThreadPool),
}

impl Drawers {
    /// So many threads in all, the caller's included.
    pub(crate) fn new(threads: usize) -> Self {
        Self { others: threads.saturating_sub(1), pool: Started::NotYet, row_nanos: 0 }
    }

    /// Calls `draw` for each of `jobs`, and returns when all are done.
    pub(crate) fn each<T: Send>(&mut self, jobs: &mut [T], draw: impl Fn(&mut T) + Sync) {
        let (count, spent) = (jobs.len() as u64, AtomicU64::new(0));
        let helpers = self.helpers(count);
        let queue = Mutex::new(jobs.iter_mut());
        // The lock is held for taking a job, not while it is done.
        let take = || queue.lock().next();
        let work = || {
            let started = Instant::now();
            while let Some(job) = take() {
                draw(job);
            }
            spent.fetch_add(started.elapsed().as_nanos() as u64, Ordering::Relaxed);
        };
        match self.pool(helpers) {
            None => work(),
            Some(pool) => pool.in_place_scope(|scope| {
                for _ in 0..helpers {
                    scope.spawn(|_| work());
                }
                work();
            }),
        }
        if let Some(latest) = spent.into_inner().checked_div(count) {
            let known = if self.row_nanos == 0 { latest } else { self.row_nanos };
            self.row_nanos = (known * (LATEST - 1) + latest) / LATEST;
        }
    }

    /// How many threads to wake for so many rows.
    fn helpers(&self, rows: u64) -> usize {
        let worth = usize::try_from(rows * self.row_nanos / WAKE_NANOS).unwrap_or(usize::MAX);
        worth.min(self.others).min(rows.saturating_sub(1) as usize)
    }

    fn pool(&mut self, helpers: usize) -> Option<&ThreadPool> {
        if helpers == 0 {
            return None;
        }
        if let Started::NotYet = self.pool {
            let builder = ThreadPoolBuilder::new().num_threads(self.others);
            self.pool = match builder.thread_name(|index| format!("llgtrt-draw-{index}")).build() {
                Ok(pool) => Started::Pool(pool),
                Err(error) => {
                    tracing::warn!(%error, "no threads to draw tokens; the engine's draws all");
                    Started::Failed
                }
            };
        }
        match &self.pool {
            Started::Pool(pool) => Some(pool),
            Started::NotYet | Started::Failed => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::sync::Barrier;
    use std::thread::ThreadId;

    #[test]
    fn every_job_is_done_once_by_however_many_threads() {
        for threads in [1, 2, 5] {
            let mut drawers = Drawers { row_nanos: 1 << 30, ..Drawers::new(threads) };
            let mut jobs: Vec<(usize, usize)> = (0..100).map(|index| (index, 0)).collect();
            for round in 1..=3 {
                drawers.each(&mut jobs, |(_, done)| *done += 1);
                assert!(jobs.iter().all(|&(_, done)| done == round));
            }
            drawers.each(&mut jobs[..0], |_| unreachable!());
        }
    }

    #[test]
    fn rows_that_cost_much_are_shared() {
        let mut drawers = Drawers { row_nanos: 1 << 30, ..Drawers::new(2) };
        // Nobody gets past the barrier alone.
        let (met, names) = (Barrier::new(2), Mutex::new(HashSet::<ThreadId>::new()));
        drawers.each(&mut [(), ()], |()| {
            names.lock().insert(std::thread::current().id());
            met.wait();
        });
        assert_eq!(names.into_inner().len(), 2);
    }

    #[test]
    fn cheap_steps_wake_nobody() {
        let drawers = |row_nanos| Drawers { row_nanos, ..Drawers::new(8) };
        assert_eq!(drawers(0).helpers(64), 0, "nothing is known yet");
        assert_eq!(drawers(20_000).helpers(4), 0);
        assert_eq!(drawers(20_000).helpers(16), 3);
        assert_eq!(drawers(20_000).helpers(1000), 7);
        assert_eq!(drawers(1 << 40).helpers(1), 0);
        assert_eq!(Drawers { row_nanos: 1 << 40, ..Drawers::new(1) }.helpers(64), 0);
    }

    #[test]
    fn what_a_row_costs_is_learned() {
        let mut drawers = Drawers::new(1);
        let spin = |(): &mut ()| {
            let started = Instant::now();
            while started.elapsed().as_micros() < 200 {
                std::hint::spin_loop();
            }
        };
        drawers.each(&mut [(); 8], spin);
        assert!(drawers.row_nanos >= 200_000, "{}", drawers.row_nanos);
    }
}
