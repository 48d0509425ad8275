//! Bounds the sequences in the system: those that run plus those that wait.
//!
//! Reserved on the event loop before anything expensive happens to a request, given back when the
//! sequence is gone from the engine. Lock-free.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use llgtrt_core::{Error, ErrorKind, Result};

use crate::sync::AtomicUsize;

/// The bound.
#[derive(Debug)]
pub(crate) struct Gate {
    limit: usize,
    taken: AtomicUsize,
}

impl Gate {
    /// A gate for `limit` sequences.
    pub(crate) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit, taken: AtomicUsize::new(0) })
    }

    /// Sequences that hold a place.
    #[cfg(test)]
    pub(crate) fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }

    /// Takes `n` places.
    pub(crate) fn reserve(self: &Arc<Self>, n: usize) -> Result<Permit> {
        if n == 0 || n > self.limit {
            let message =
                format!("the request asks for {n} answers at once; this server takes 1 to {}", self.limit);
            return Err(Error::invalid("n", message));
        }
        self.taken
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, |taken| {
                (taken + n <= self.limit).then_some(taken + n)
            })
            .map_err(|_| Error::new(ErrorKind::Overloaded, "the server is at capacity; try again later"))?;
        Ok(Permit { gate: Arc::clone(self), places: n, lender: None })
    }
}

/// Places taken from a [`Gate`]; dropping gives them back.
#[derive(Debug)]
pub struct Permit {
    gate: Arc<Gate>,
    places: usize,
    /// Whose places these are, where they are lent.
    lender: Option<Arc<Self>>,
}

impl Permit {
    /// Places held.
    pub fn places(&self) -> usize {
        self.places
    }

    /// Moves one place into a permit of its own.
    pub(crate) fn split_one(&mut self) -> Option<Self> {
        self.places = self.places.checked_sub(1)?;
        Some(Self { gate: Arc::clone(&self.gate), places: 1, lender: self.lender.clone() })
    }

    /// One of these places for a part of the request that holds them, again and again: they go back when the last of
    /// all permits on them is gone. How many parts run at a time is the lender's care.
    pub fn lend_one(self: &Arc<Self>) -> Self {
        Self { gate: Arc::clone(&self.gate), places: 1, lender: Some(Arc::clone(self)) }
    }

    /// Whether its places belong to a request that came in before.
    pub fn is_lent(&self) -> bool {
        self.lender.is_some()
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if self.lender.is_some() {
            return;
        }
        self.gate.taken.fetch_sub(self.places, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_come_back_however_they_were_split() {
        let gate = Gate::new(3);
        let mut permit = gate.reserve(3).expect("fits");
        assert_eq!(gate.reserve(1).expect_err("full").kind, ErrorKind::Overloaded);
        let one = permit.split_one().expect("one");
        drop(permit);
        assert_eq!(gate.taken(), 1);
        drop(one);
        assert_eq!(gate.taken(), 0);
        assert!(gate.reserve(3).is_ok());
    }

    #[test]
    fn places_that_are_lent_are_taken_once() {
        let gate = Gate::new(3);
        let lender = Arc::new(gate.reserve(2).expect("fits"));
        let mut part = lender.lend_one();
        assert!(part.is_lent() && !lender.is_lent());
        assert_eq!((gate.taken(), part.places()), (2, 1));
        let sequence = part.split_one().expect("one");
        drop(part);
        assert_eq!(gate.taken(), 2);
        drop(lender);
        assert_eq!(gate.taken(), 2);
        drop(sequence);
        assert_eq!(gate.taken(), 0);
    }

    #[test]
    fn more_than_the_gate_holds_is_the_requests_fault() {
        assert_eq!(Gate::new(2).reserve(3).expect_err("too many").kind, ErrorKind::InvalidRequest);
        assert_eq!(Gate::new(2).reserve(0).expect_err("none").kind, ErrorKind::InvalidRequest);
    }
}
