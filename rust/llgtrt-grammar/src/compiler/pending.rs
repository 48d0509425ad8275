//! Grammars that are queued or being compiled, and who waits for them. Plain data behind the compiler's lock.

use std::collections::HashMap;
use std::time::Instant;

use llguidance::CancellationHandle;

use super::Done;
use crate::cache::Key;

/// Who waits for a grammar, and until when.
pub(super) struct Waiter {
    pub(super) deadline: Instant,
    pub(super) done: Done,
}

/// A grammar that is not compiled yet.
#[derive(Default)]
struct Pending {
    waiters: Vec<Waiter>,
    started: bool,
    /// Set while the first mask is computed.
    cancel: Option<CancellationHandle>,
}

/// All of them.
#[derive(Default)]
pub(super) struct Grammars {
    pending: HashMap<Key, Pending>,
}

impl Grammars {
    /// Waits for a grammar that is pending; gives the waiter back if it is not.
    pub(super) fn join(&mut self, key: &Key, waiter: Waiter) -> Result<(), Waiter> {
        match self.pending.get_mut(key) {
            Some(pending) => {
                pending.waiters.push(waiter);
                Ok(())
            }
            None => Err(waiter),
        }
    }

    /// A grammar was queued.
    pub(super) fn add(&mut self, key: Key, waiter: Waiter) {
        self.pending.insert(key, Pending { waiters: vec![waiter], ..Pending::default() });
    }

    pub(super) fn is_pending(&self, key: &Key) -> bool {
        self.pending.contains_key(key)
    }

    /// Its compilation begins; false if nobody waits for it any more.
    pub(super) fn start(&mut self, key: &Key) -> bool {
        self.pending.get_mut(key).is_some_and(|pending| {
            pending.started = true;
            true
        })
    }

    /// Its first mask is about to be computed, which the handle stops.
    pub(super) fn watch(&mut self, key: &Key, handle: CancellationHandle) {
        if let Some(pending) = self.pending.get_mut(key) {
            // The last request may have given up while the grammar was compiled.
            if pending.waiters.is_empty() {
                handle.cancel();
            }
            pending.cancel = Some(handle);
        }
    }

    /// Its compilation has an outcome: who is to be told.
    pub(super) fn finish(&mut self, key: &Key) -> Vec<Waiter> {
        self.pending.remove(key).map(|pending| pending.waiters).unwrap_or_default()
    }

    /// Its compilation was stopped because nobody waited. True if somebody does again, who has the whole time
    /// ahead and gets another compilation.
    pub(super) fn stopped(&mut self, key: &Key) -> bool {
        match self.pending.get_mut(key) {
            Some(pending) if !pending.waiters.is_empty() => {
                (pending.started, pending.cancel) = (false, None);
                true
            }
            _ => {
                self.pending.remove(key);
                false
            }
        }
    }

    /// Removes everyone who waits.
    pub(super) fn drain(&mut self) -> Vec<Waiter> {
        self.pending.values_mut().flat_map(|pending| pending.waiters.drain(..)).collect()
    }

    /// When the next one stops waiting.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.pending.values().flat_map(|pending| &pending.waiters).map(|waiter| waiter.deadline).min()
    }

    /// Removes the requests whose deadline passed, and what nobody waits for unless it has been started: that is
    /// stopped as soon as it can be.
    pub(super) fn take_expired(&mut self, now: Instant) -> Vec<Waiter> {
        let mut expired = Vec::new();
        for pending in self.pending.values_mut() {
            let before = expired.len();
            expired.extend(pending.waiters.extract_if(.., |waiter| waiter.deadline <= now));
            if expired.len() > before && pending.waiters.is_empty() {
                if let Some(handle) = &pending.cancel {
                    handle.cancel();
                }
            }
        }
        if !expired.is_empty() {
            self.pending.retain(|_, pending| pending.started || !pending.waiters.is_empty());
        }
        expired
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn waiter(deadline: Instant) -> Waiter {
        Waiter { deadline, done: Box::new(|_| {}) }
    }

    #[test]
    fn who_joins_what_was_stopped_gets_another_compilation() {
        let key = blake3::hash(b"a grammar");
        let now = Instant::now();
        let mut grammars = Grammars::default();
        grammars.add(key, waiter(now));
        assert!(grammars.start(&key));
        assert_eq!(grammars.take_expired(now).len(), 1);
        assert!(grammars.is_pending(&key), "it was started");
        let later = now + Duration::from_secs(9);
        assert!(grammars.join(&key, waiter(later)).is_ok());
        assert!(grammars.stopped(&key), "it is compiled again");
        assert_eq!(grammars.next_deadline(), Some(later));
        assert!(grammars.start(&key));
        assert_eq!(grammars.finish(&key).len(), 1);
        assert!(!grammars.is_pending(&key));
    }

    #[test]
    fn what_was_stopped_and_nobody_waits_for_is_forgotten() {
        let key = blake3::hash(b"a grammar");
        let now = Instant::now();
        let mut grammars = Grammars::default();
        grammars.add(key, waiter(now));
        assert!(grammars.start(&key));
        grammars.take_expired(now);
        assert!(!grammars.stopped(&key) && !grammars.is_pending(&key));
        grammars.add(key, waiter(now));
        grammars.take_expired(now);
        assert!(!grammars.is_pending(&key), "it was never started");
    }
}
