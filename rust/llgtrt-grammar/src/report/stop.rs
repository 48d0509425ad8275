//! The end of a report's time: looked at by the slot, set by the caller that waits no longer.

use std::time::Instant;

use llguidance::CancellationHandle;
use parking_lot::Mutex;

pub(super) struct Stop {
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
    pub(super) fn new(deadline: Instant) -> Self {
        Self { deadline, state: Mutex::default() }
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
    use std::time::Duration;

    #[test]
    fn a_deadline_or_the_caller_ends_it() {
        assert!(Stop::new(Instant::now()).is_set());
        let stop = Stop::new(Instant::now() + Duration::from_secs(3600));
        assert!(!stop.is_set());
        stop.set();
        assert!(stop.is_set());
    }
}
