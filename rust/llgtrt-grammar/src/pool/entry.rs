//! A slot as the threads of the pool share it, with what is counted of it.
//!
//! The counts are atomics: whoever reads them waits for nobody that computes a mask.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::slot::Slot;
use crate::sync::{AtomicBool, AtomicU32, AtomicU64, Mutex};

/// A slot as the threads share it.
pub(super) struct Entry {
    pub(super) slot: Mutex<Slot>,
    /// Expected cost of the next mask, in nanoseconds: the last one, or a fading peak.
    pub(super) cost: AtomicU32,
    /// The same of the next advance, if the slot has no check beside the grammar.
    pub(super) advance_cost: AtomicU32,
    /// What its lexer is counted with.
    lexer_bytes: AtomicU64,
    lexers: Arc<Lexers>,
    /// What [`Tally`] reports, readable while a worker has the slot.
    mask_nanos: AtomicU64,
    retracted: AtomicU64,
    closed: AtomicBool,
}

/// What happened to a sequence so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Time spent on its masks, on whichever thread.
    pub mask_time: Duration,
    /// Tokens that the engine was told to withdraw.
    pub retracted: u64,
    /// Its answer was completed because its limit was near.
    pub closed: bool,
}

/// The memory of the lexers of all sequences.
pub(super) struct Lexers {
    bytes: AtomicU64,
    sequences: AtomicU64,
    limit: u64,
}

impl Lexers {
    pub(super) fn new(limit: u64) -> Arc<Self> {
        Arc::new(Self { bytes: AtomicU64::new(0), sequences: AtomicU64::new(0), limit })
    }

    /// What all have grown to.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// What one sequence may keep, once all together have more than the limit.
    fn share(&self) -> Option<u64> {
        let over = self.bytes.load(Ordering::Relaxed) > self.limit;
        over.then(|| self.limit / self.sequences.load(Ordering::Relaxed).max(1))
    }
}

impl Entry {
    /// A slot whose next mask is expected to take `cost` nanoseconds.
    pub(super) fn new(slot: Slot, cost: u32, lexers: &Arc<Lexers>) -> Self {
        lexers.sequences.fetch_add(1, Ordering::Relaxed);
        Self {
            slot: Mutex::new(slot),
            cost: AtomicU32::new(cost),
            advance_cost: AtomicU32::new(0),
            lexer_bytes: AtomicU64::new(0),
            lexers: Arc::clone(lexers),
            mask_nanos: AtomicU64::new(0),
            retracted: AtomicU64::new(0),
            closed: AtomicBool::new(false),
        }
    }

    /// Counts the growth of the slot's lexer. A lexer that has more than its share begins anew where all together have
    /// too much.
    pub(super) fn account(&self, slot: &mut Slot) {
        self.count(slot);
        if let Some(share) = self.lexers.share() {
            slot.shrink_lexer(share);
            self.count(slot);
        }
    }

    pub(super) fn count_masks(&self, time: Duration) {
        self.mask_nanos.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
    }

    pub(super) fn count_retracted(&self, tokens: u64) {
        self.retracted.fetch_add(tokens, Ordering::Relaxed);
    }

    /// Takes over what the slot's advance has to report.
    pub(super) fn note_advance(&self, slot: &mut Slot) {
        let time = slot.take_mask_time();
        if !time.is_zero() {
            self.count_masks(time);
        }
        if slot.is_closed() {
            self.closed.store(true, Ordering::Relaxed);
        }
    }

    pub(super) fn tally(&self) -> Tally {
        Tally {
            mask_time: Duration::from_nanos(self.mask_nanos.load(Ordering::Relaxed)),
            retracted: self.retracted.load(Ordering::Relaxed),
            closed: self.closed.load(Ordering::Relaxed),
        }
    }

    fn count(&self, slot: &Slot) {
        let now = slot.lexer_bytes();
        let before = self.lexer_bytes.swap(now, Ordering::Relaxed);
        // Wrapping: one of the two is the larger.
        self.lexers.bytes.fetch_add(now.wrapping_sub(before), Ordering::Relaxed);
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.lexers.bytes.fetch_sub(self.lexer_bytes.load(Ordering::Relaxed), Ordering::Relaxed);
        self.lexers.sequences.fetch_sub(1, Ordering::Relaxed);
    }
}
