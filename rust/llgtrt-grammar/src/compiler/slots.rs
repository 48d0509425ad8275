//! Who compiles: the threads that take work, and those whose work overran its time.
//!
//! Nothing can interrupt a compilation in progress. One that runs for longer than the limit is *overrun*: it no
//! longer counts as a slot, another thread takes its place, and its own thread ends with it. Both together are
//! bounded, and with them the memory of all compilations: each is bounded by the limits of the normaliser and of
//! llguidance. At that bound an overrun compilation is not replaced until another one ends.
//!
//! Plain data behind the compiler's lock; it starts no threads and reads no clock.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Number of a compile thread.
pub(super) type Worker = u64;

/// A compilation in progress.
#[derive(Debug)]
struct Job {
    deadline: Instant,
    overrun: bool,
}

#[derive(Debug)]
pub(super) struct Slots {
    /// Threads that should take work.
    width: usize,
    /// Threads that may exist.
    most: usize,
    limit: Duration,
    /// Threads that take work, at work or idle.
    serving: usize,
    jobs: HashMap<Worker, Job>,
    hired: u64,
}

impl Slots {
    /// `width` threads that take work, and not more than `most` in all; a job that takes longer than `limit` is
    /// overrun.
    pub(super) fn new(width: usize, most: usize, limit: Duration) -> Self {
        Self { width, most: most.max(width), limit, serving: 0, jobs: HashMap::new(), hired: 0 }
    }

    /// Counts a thread that is about to start, if one is missing and there is room for it.
    pub(super) fn hire(&mut self) -> Option<Worker> {
        if self.serving >= self.width || self.serving + self.overrun() >= self.most {
            return None;
        }
        self.serving += 1;
        self.hired += 1;
        Some(self.hired)
    }

    /// Takes back a [`hire`](Self::hire): the thread could not be started.
    pub(super) fn dismiss(&mut self) {
        self.serving -= 1;
    }

    /// The worker begins a job; the answer is when that is overrun.
    pub(super) fn begin(&mut self, worker: Worker, now: Instant) -> Instant {
        let deadline = now + self.limit;
        self.jobs.insert(worker, Job { deadline, overrun: false });
        deadline
    }

    /// The worker has ended its job; false if its thread has to end as well.
    pub(super) fn end(&mut self, worker: Worker) -> bool {
        self.jobs.remove(&worker).is_none_or(|job| !job.overrun)
    }

    /// Marks the jobs that are overrun by now, and answers whose they are.
    pub(super) fn overdue(&mut self, now: Instant) -> Vec<Worker> {
        let mut overdue = Vec::new();
        for (&worker, job) in &mut self.jobs {
            if !job.overrun && job.deadline <= now {
                job.overrun = true;
                overdue.push(worker);
            }
        }
        self.serving -= overdue.len();
        overdue
    }

    /// When the next job is overrun.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.jobs.values().filter(|job| !job.overrun).map(|job| job.deadline).min()
    }

    /// Jobs that are overrun and not ended.
    pub(super) fn overrun(&self) -> usize {
        self.jobs.values().filter(|job| job.overrun).count()
    }

    /// Jobs that have not ended.
    #[cfg(test)]
    pub(super) fn at_work(&self) -> usize {
        self.jobs.len()
    }

    /// Threads that take work.
    #[cfg(test)]
    pub(super) fn serving(&self) -> usize {
        self.serving
    }

    /// Whether no thread takes work, and none can be added before an overrun job ends.
    pub(super) fn is_exhausted(&self) -> bool {
        self.serving == 0 && self.overrun() >= self.most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn staffed(width: usize, most: usize) -> (Slots, Vec<Worker>) {
        let mut slots = Slots::new(width, most, Duration::from_secs(5));
        let workers = std::iter::from_fn(|| slots.hire()).collect();
        (slots, workers)
    }

    #[test]
    fn an_overrun_job_is_replaced_and_its_thread_ends() {
        let start = Instant::now();
        let (mut slots, workers) = staffed(2, 4);
        assert_eq!(workers.len(), 2);
        slots.begin(workers[0], start);
        slots.begin(workers[1], start + Duration::from_secs(1));
        assert_eq!(slots.next_deadline(), Some(start + Duration::from_secs(5)));
        assert_eq!(slots.overdue(start + Duration::from_secs(4)), [0; 0]);
        assert_eq!(slots.overdue(start + Duration::from_secs(5)), [workers[0]]);
        assert_eq!(slots.overdue(start + Duration::from_secs(5)), [0; 0], "it is said once");
        assert!(slots.hire().is_some(), "its slot is free");
        assert!(slots.hire().is_none(), "the width is two");
        assert!(slots.end(workers[1]) && !slots.end(workers[0]));
        assert_eq!((slots.overrun(), slots.hire()), (0, None));
    }

    #[test]
    fn overrun_jobs_are_bounded_and_what_is_left_serves() {
        let start = Instant::now();
        let (mut slots, mut workers) = staffed(2, 3);
        let late = start + Duration::from_secs(5);
        for round in 1..=3 {
            let worker = workers.pop().expect("somebody takes work");
            slots.begin(worker, start);
            assert_eq!(slots.overdue(late), [worker]);
            workers.extend(slots.hire());
            assert_eq!(slots.overrun(), round);
            assert_eq!(slots.is_exhausted(), round == 3);
            assert_eq!(workers.len(), [2, 1, 0][round - 1]);
        }
        // The first that ends makes room for one that takes work.
        assert!(!slots.end(1));
        assert!(slots.hire().is_some() && !slots.is_exhausted());
    }
}
