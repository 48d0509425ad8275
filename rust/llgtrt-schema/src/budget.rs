//! The budget of one normalisation: steps of work, bytes that are held, and depth of recursion.
//!
//! It counts, and never looks at a clock to decide: the same schema gives the same answer on any machine
//! and under any load, so a refusal may be cached. The wall clock is a last resort against mistakes in the
//! counting; what it ends is [`Spent::Time`], which says nothing about the schema.
//!
//! What keeps a caller from forgetting it:
//! - The arenas of formulas and of languages grow in one function each (`intern`), which charges the budget.
//!   Every other table that grows with the schema is filled through [`Budget::hold`].
//! - A budget that is spent stays spent. The arenas do not grow any more then and answer with a constant, which
//!   may be wrong; but nothing that is computed from it gets out, because an attempt ends with
//!   [`Budget::check`] and its result is dropped. So a function that has no error to return may use
//!   [`Budget::charge`], and a search inside of it ends soon all the same.
//! - Loops over combinations and recursive functions use [`Budget::spend`] and [`Budget::enter`], whose results
//!   must be used. A [`Level`] of recursion is left when it is dropped: there is no call to forget.
//!
//! A step is about 50 ns of work: one node looked up in an arena, or some tens of bytes copied or compared.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Instant;

use crate::error::Spending;
use crate::limits::NormalizeLimits;

/// Steps between two looks at the clock.
const STEPS_PER_LOOK: u64 = 1 << 15;

/// What ran out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spent {
    Steps,
    Bytes,
    Depth,
    Time,
    Properties,
    Ways,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Budget {
    /// Steps so far, and how many may be spent until the end of the present attempt.
    steps: Cell<u64>,
    until: Cell<u64>,
    max_steps: u64,
    /// Bytes that the present attempt holds, and the most that an attempt held.
    bytes: Cell<u64>,
    peak: Cell<u64>,
    max_bytes: u64,
    depth: Cell<usize>,
    max_depth: usize,
    deadline: Instant,
    next_look: Cell<u64>,
    spent: Cell<Option<Spent>>,
}

impl Budget {
    pub(crate) fn new(limits: &NormalizeLimits) -> Rc<Self> {
        Rc::new(Self {
            steps: Cell::new(0),
            until: Cell::new(limits.max_steps),
            max_steps: limits.max_steps,
            bytes: Cell::new(0),
            peak: Cell::new(0),
            max_bytes: limits.max_bytes,
            depth: Cell::new(0),
            max_depth: limits.max_depth,
            deadline: Instant::now() + limits.max_time,
            next_look: Cell::new(STEPS_PER_LOOK),
            spent: Cell::new(None),
        })
    }

    /// Begins another attempt at the same schema, after the tables of the one before were dropped. It may
    /// spend one part in `parts` of what is left.
    pub(crate) fn begin(&self, parts: u64) {
        let left = self.max_steps.saturating_sub(self.steps.get());
        self.until.set(self.steps.get() + left / parts);
        self.bytes.set(0);
        if self.spent.get() != Some(Spent::Time) {
            self.spent.set(None);
        }
    }

    /// Counts steps before they are done. Those that are refused are not counted.
    pub(crate) fn spend(&self, steps: u64) -> Result<(), Spent> {
        self.charge(steps);
        self.check()
    }

    /// Counts bytes that stay until the end of the attempt, before they are allocated.
    pub(crate) fn hold(&self, bytes: usize) -> Result<(), Spent> {
        self.charge_bytes(bytes);
        self.check()
    }

    /// As [`Budget::spend`], for functions that have no error to return.
    pub(crate) fn charge(&self, steps: u64) {
        if self.is_spent() {
            return;
        }
        let total = self.steps.get().saturating_add(steps.max(1));
        if total > self.until.get() {
            self.end(Spent::Steps);
            return;
        }
        self.steps.set(total);
        if total >= self.next_look.get() {
            self.next_look.set(total + STEPS_PER_LOOK);
            if Instant::now() > self.deadline {
                self.end(Spent::Time);
            }
        }
    }

    /// As [`Budget::hold`], for functions that have no error to return.
    pub(crate) fn charge_bytes(&self, bytes: usize) {
        if self.is_spent() {
            return;
        }
        let total = self.bytes.get().saturating_add(bytes as u64);
        if total > self.max_bytes {
            self.end(Spent::Bytes);
            return;
        }
        self.bytes.set(total);
        self.peak.set(self.peak.get().max(total));
    }

    fn end(&self, why: Spent) {
        if self.spent.get().is_none() {
            self.spent.set(Some(why));
        }
    }

    /// What ran out, if anything did.
    pub(crate) fn check(&self) -> Result<(), Spent> {
        self.spent.get().map_or(Ok(()), Err)
    }

    pub(crate) fn is_spent(&self) -> bool {
        self.spent.get().is_some()
    }

    /// Enters a level of recursion, which lasts as long as what is returned.
    pub(crate) fn enter(self: &Rc<Self>) -> Result<Level, Spent> {
        self.spend(1)?;
        if self.depth.get() >= self.max_depth {
            return Err(Spent::Depth);
        }
        self.depth.set(self.depth.get() + 1);
        Ok(Level(Rc::clone(self)))
    }

    /// Steps so far.
    pub(crate) fn steps(&self) -> u64 {
        self.steps.get()
    }

    /// Steps that one attempt may spend on questions about languages that need no answer.
    pub(crate) fn max_search_steps(&self) -> u64 {
        self.max_steps / 3
    }

    /// What was spent, as it is reported.
    pub(crate) fn spending(&self) -> Spending {
        Spending { steps: self.steps.get(), bytes: self.peak.get() }
    }
}

/// A level of recursion.
#[derive(Debug)]
#[must_use = "the level is left when this is dropped"]
pub(crate) struct Level(Rc<Budget>);

impl Drop for Level {
    fn drop(&mut self) {
        self.0.depth.set(self.0.depth.get() - 1);
    }
}

/// Rough number of nodes of a JSON value, long texts counted by their length. Recurses as deep as the value is nested.
pub(crate) fn weight(value: &serde_json::Value) -> u64 {
    use serde_json::Value;
    match value {
        Value::String(text) => 1 + text.len() as u64 / 32,
        Value::Array(items) => 1 + items.iter().map(weight).sum::<u64>(),
        Value::Object(members) => {
            1 + members.iter().map(|(key, value)| 1 + key.len() as u64 / 32 + weight(value)).sum::<u64>()
        }
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn budget(max_steps: u64, max_bytes: u64, max_depth: usize) -> Rc<Budget> {
        Budget::new(&NormalizeLimits { max_steps, max_bytes, max_depth, ..NormalizeLimits::default() })
    }

    #[test]
    fn what_is_spent_stays_spent_until_the_next_attempt() {
        let budget = budget(100, 1000, 10);
        assert_eq!(budget.spend(60), Ok(()));
        budget.charge(41);
        assert_eq!(budget.spend(1), Err(Spent::Steps));
        assert_eq!(budget.hold(5000), Err(Spent::Steps));
        budget.begin(1);
        assert_eq!(budget.hold(900), Ok(()));
        assert_eq!(budget.hold(101), Err(Spent::Bytes));
        assert_eq!(budget.spending(), Spending { steps: 60, bytes: 900 });
    }

    #[test]
    fn an_attempt_gets_its_part_of_what_is_left() {
        let budget = budget(100, 1000, 10);
        assert_eq!(budget.spend(40), Ok(()));
        budget.begin(2);
        assert_eq!(budget.spend(30), Ok(()));
        assert_eq!(budget.spend(1), Err(Spent::Steps));
        budget.begin(1);
        assert_eq!(budget.spend(29), Ok(()));
    }

    #[test]
    fn levels_are_left_by_themselves() {
        let budget = budget(100, 1000, 2);
        for _ in 0..3 {
            let outer = budget.enter().unwrap();
            let inner = budget.enter().unwrap();
            assert_eq!(budget.enter().unwrap_err(), Spent::Depth);
            drop((outer, inner));
        }
        assert!(!budget.is_spent());
    }

    #[test]
    fn the_clock_is_a_last_resort() {
        let limits = NormalizeLimits { max_time: Duration::ZERO, ..NormalizeLimits::default() };
        let budget = Budget::new(&limits);
        assert_eq!(budget.spend(STEPS_PER_LOOK - 1), Ok(()));
        assert_eq!(budget.spend(1), Err(Spent::Time));
        budget.begin(1);
        assert_eq!(budget.check(), Err(Spent::Time));
    }
}
