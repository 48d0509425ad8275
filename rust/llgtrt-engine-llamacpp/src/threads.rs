//! Picks the number of llama.cpp's threads by how much of the machine they get. Owned by the engine's thread.
//!
//! llama.cpp's threads meet at a barrier after each of several hundred operations of a forward pass and spin
//! while they wait. If other processes take the cores, a thread waits for one that is not running: on 2 cores
//! with a load of 6, two threads were measured to give 1 to 3 tokens per second where one gives 85.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// Forward passes are judged together until they have taken this long.
const WINDOW: Duration = Duration::from_millis(200);

/// Below this share of a core the threads are in each other's way.
const CROWDED: f64 = 0.6;

/// Above this share of a core there may be room for more threads.
const ROOMY: f64 = 0.9;

/// Windows until more threads are tried again; doubled each time that fails.
const FIRST_PATIENCE: u32 = 20;
const MOST_PATIENCE: u32 = 150;

/// The number of threads as a fraction of those configured: 1, 1/2, 1/4 ...
#[derive(Debug)]
pub(crate) struct Threads {
    most: u32,
    /// How often the configured number is halved.
    halvings: u32,
    most_halvings: u32,
    wall: Duration,
    cpu: Duration,
    patience: u32,
    /// Windows since the last change.
    windows: u32,
}

/// A forward pass that is being timed.
pub(crate) struct Pass {
    wall: Instant,
    cpu: Duration,
}

impl Threads {
    /// Starts with `most` threads, and keeps to them if not `adaptive`.
    pub(crate) fn new(most: u32, adaptive: bool) -> Self {
        let most = most.max(1);
        Self {
            most,
            halvings: 0,
            most_halvings: if adaptive { most.ilog2() } else { 0 },
            wall: Duration::ZERO,
            cpu: Duration::ZERO,
            patience: FIRST_PATIENCE,
            windows: 0,
        }
    }

    /// Threads to use out of a configured number.
    pub(crate) fn of(&self, configured: u32) -> u32 {
        (configured >> self.halvings).max(1)
    }

    /// Starts timing.
    pub(crate) fn begin() -> Pass {
        Pass { wall: Instant::now(), cpu: thread_time() }
    }

    /// Ends timing. True if the number of threads changes.
    pub(crate) fn end(&mut self, pass: &Pass) -> bool {
        if self.most_halvings == 0 {
            return false;
        }
        self.book(pass.wall.elapsed(), thread_time().saturating_sub(pass.cpu))
    }

    fn book(&mut self, wall: Duration, cpu: Duration) -> bool {
        self.wall += wall;
        self.cpu += cpu;
        if self.wall < WINDOW {
            return false;
        }
        let share = self.cpu.as_secs_f64() / self.wall.as_secs_f64();
        (self.wall, self.cpu) = (Duration::ZERO, Duration::ZERO);
        self.windows = self.windows.saturating_add(1);
        let before = self.halvings;
        if share < CROWDED && self.halvings < self.most_halvings {
            // Right after a step up it was the wrong time for that.
            self.patience =
                if self.windows <= 1 { (self.patience * 2).min(MOST_PATIENCE) } else { FIRST_PATIENCE };
            self.halvings += 1;
        } else if share > ROOMY && self.halvings > 0 && self.windows >= self.patience {
            self.halvings -= 1;
        }
        if self.halvings != before {
            self.windows = 0;
            tracing::debug!(threads = self.of(self.most), share, "changed the number of threads");
        }
        self.halvings != before
    }
}

/// Processor time of this thread.
fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Threads in use after `windows` windows with this share of a core.
    fn after(threads: &mut Threads, windows: u32, share: f64) -> u32 {
        for _ in 0..windows {
            threads.book(WINDOW, WINDOW.mul_f64(share));
        }
        threads.of(threads.most)
    }

    #[test]
    fn a_crowded_machine_gets_fewer_threads_and_a_free_one_all() {
        let mut threads = Threads::new(8, true);
        assert_eq!(after(&mut threads, 10, 0.95), 8);
        assert_eq!(after(&mut threads, 1, 0.4), 4);
        assert_eq!(after(&mut threads, 5, 0.4), 1);
        assert_eq!(after(&mut threads, 20, 0.7), 1, "not free yet");
        assert_eq!(after(&mut threads, 300, 0.95), 8);
    }

    #[test]
    fn trying_in_vain_becomes_rare() {
        let mut threads = Threads::new(2, true);
        let mut tries = 0;
        for _ in 0..1000 {
            // One thread has a core for itself, two do not.
            let share = if threads.of(2) == 2 { 0.4 } else { 1.0 };
            tries += u32::from(threads.of(2) == 2);
            after(&mut threads, 1, share);
        }
        assert!((2..15).contains(&tries), "{tries}");
    }

    #[test]
    fn a_fixed_number_stays() {
        let mut fixed = Threads::new(4, false);
        let pass = Pass { wall: Instant::now(), cpu: thread_time() };
        assert!(!fixed.end(&pass));
        assert_eq!(after(&mut fixed, 5, 0.1), 4);
        assert_eq!(Threads::new(1, true).of(1), 1);
    }
}
