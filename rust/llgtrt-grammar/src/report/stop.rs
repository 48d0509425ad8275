//! The end of a report's time: looked at by the slot, set by the caller that waits no longer.

use std::time::{Duration, Instant};

use llguidance::CancellationHandle;
use parking_lot::Mutex;

pub(super) struct Stop {
    half: Instant,
    deadline: Instant,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    set: bool,
    /// Stops the mask that is being computed.
    mask: Option<CancellationHandle>,
}

impl Stop {
    /// An end after `limit` from now.
    pub(super) fn after(limit: Duration) -> Self {
        let now = Instant::now();
        Self { half: now + limit / 2, deadline: now + limit, state: Mutex::default() }
    }

    /// Whether half of the time is over, so that nothing long should be begun.
    pub(super) fn is_near(&self) -> bool {
        Instant::now() >= self.half || self.is_set()
    }

    /// Ends the work: nobody waits for it.
    pub(super) fn set(&self) {
        let mut state = self.state.lock();
        state.set = true;
        if let Some(mask) = &state.mask {
            mask.cancel();
        }
    }

    /// Whether the work should end.
    pub(super) fn is_set(&self) -> bool {
        Instant::now() >= self.deadline || self.state.lock().set
    }

    /// Takes the handle of the mask that is computed next.
    pub(super) fn watch(&self, mask: CancellationHandle) {
        let mut state = self.state.lock();
        if state.set {
            mask.cancel();
        }
        state.mask = Some(mask);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_or_the_caller_ends_it() {
        assert!(Stop::after(Duration::ZERO).is_set());
        let stop = Stop::after(Duration::from_secs(3600));
        assert!(!stop.is_set() && !stop.is_near());
        stop.set();
        assert!(stop.is_set() && stop.is_near());
    }
}
