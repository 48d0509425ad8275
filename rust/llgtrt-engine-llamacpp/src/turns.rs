//! Who computes: the engine and the embedder take turns, pass by pass, because two forward passes at once
//! would take each other's cores and wait at each other's barriers.
//!
//! Whoever waits is next: a pass of the engine is late by at most one pass of the embedder.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, MutexGuard};

/// Shared by the engine and the embedder of a process.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    turn: Mutex<()>,
    generating: AtomicBool,
}

/// The right to compute one pass.
pub(crate) struct Turn<'a>(Option<MutexGuard<'a, ()>>);

impl Turns {
    /// Waits until nobody else computes.
    pub(crate) fn take(&self) -> Turn<'_> {
        Turn(Some(self.turn.lock()))
    }

    /// Tells whether sequences are being generated.
    pub(crate) fn set_generating(&self, generating: bool) {
        self.generating.store(generating, Ordering::Relaxed);
    }

    /// Whether sequences are being generated: passes of others are to be short then.
    pub(crate) fn generating(&self) -> bool {
        self.generating.load(Ordering::Relaxed)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        // An ordinary unlock would let this thread come first again and again.
        if let Some(guard) = self.0.take() {
            MutexGuard::unlock_fair(guard);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[test]
    fn who_waits_is_next() {
        let turns = Arc::new(Turns::default());
        let taken = Arc::new(AtomicUsize::new(0));
        let first = turns.take();
        let other = {
            let (turns, taken) = (Arc::clone(&turns), Arc::clone(&taken));
            std::thread::spawn(move || {
                let turn = turns.take();
                taken.store(1, Ordering::SeqCst);
                drop(turn);
            })
        };
        // parking_lot hands the lock over only to a thread that is parked already.
        let mut turn = first;
        while taken.load(Ordering::SeqCst) == 0 {
            drop(turn);
            turn = turns.take();
        }
        drop(turn);
        other.join().unwrap();
    }
}
