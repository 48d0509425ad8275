//! The mask pool's entries: what the lexers of all sequences take is counted truly while sequences come and go.

use std::time::Duration;

// The last one to let go of an entry counts it out, and relies on the order that `Arc` gives.
use loom::sync::Arc;
use loom::thread;

use crate::explore;
use crate::slot::Slot;

#[path = "../../llgtrt-grammar/src/pool/entry.rs"]
mod entry;

use self::entry::{Entry, Lexers};

/// Bytes that all lexers together may take.
const LIMIT: u64 = 100;

fn entry(lexers: &std::sync::Arc<Lexers>) -> Arc<Entry> {
    Arc::new(Entry::new(Slot::default(), 1, lexers))
}

/// A mask is computed: the lexer grows, and is counted.
fn compute(entry: &Entry, bytes: u64) {
    let mut slot = entry.slot.lock();
    slot.lexer_bytes += bytes;
    entry.account(&mut slot);
}

/// A worker and the engine's thread compute masks of the same two sequences, which then end: no order counts a byte twice or
/// leaves one behind, and beyond the limit lexers begin anew.
pub fn lexers_are_counted_truly() {
    explore(|| {
        let lexers = Lexers::new(LIMIT);
        let (one, other) = (entry(&lexers), entry(&lexers));
        let worker = {
            let (one, other) = (Arc::clone(&one), Arc::clone(&other));
            thread::spawn(move || {
                compute(&one, 80);
                compute(&other, 80);
            })
        };
        compute(&one, 30);
        drop(one);
        worker.join().expect("the worker does not panic");
        let held = other.slot.lock().lexer_bytes;
        assert!(held <= LIMIT, "{held} bytes of {LIMIT}");
        assert_eq!(lexers.bytes(), held, "the sequence that is left");
        drop(other);
        assert_eq!(lexers.bytes(), 0);
    });
}

/// Whoever reads a tally waits for nobody, and sees what was reported before.
pub fn a_tally_is_seen_whole_by_who_comes_after() {
    explore(|| {
        let lexers = Lexers::new(LIMIT);
        let entry = entry(&lexers);
        let engine = {
            let entry = Arc::clone(&entry);
            thread::spawn(move || {
                let mut slot = entry.slot.lock();
                (slot.closed, slot.mask_time) = (true, Duration::from_nanos(1));
                entry.note_advance(&mut slot);
                entry.count_retracted(2);
            })
        };
        let early = entry.tally();
        assert!(early.retracted == 0 || early.retracted == 2);
        engine.join().expect("the engine does not panic");
        let tally = entry.tally();
        assert!(tally.closed && tally.retracted == 2 && !tally.mask_time.is_zero());
    });
}
