//! The gate: never more sequences than it has places, and each place comes back once.

use std::sync::Arc;

use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

use crate::explore;
use crate::gate::{Gate, Permit};

const PLACES: usize = 3;

/// Three requests ask for two of three places each, and give them back one by one: at most one of them is let in at a time, and in the
/// end all places are free.
pub fn the_gate_is_never_overbooked() {
    explore(|| {
        let gate = Gate::new(PLACES);
        let inside = Arc::new(AtomicUsize::new(0));
        let request = |gate: Arc<Gate>, inside: Arc<AtomicUsize>| {
            let Ok(mut permit) = gate.reserve(2) else { return };
            assert_eq!(inside.fetch_add(2, Ordering::AcqRel), 0, "two requests hold four of three places");
            let one: Option<Permit> = permit.split_one();
            // Counted before it is free: who takes it must find the count lowered.
            inside.fetch_sub(2, Ordering::AcqRel);
            drop(permit);
            drop(one);
        };
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let (gate, inside) = (Arc::clone(&gate), Arc::clone(&inside));
                thread::spawn(move || request(gate, inside))
            })
            .collect();
        request(Arc::clone(&gate), Arc::clone(&inside));
        for thread in threads {
            thread.join().expect("no request panics");
        }
        assert!(gate.reserve(PLACES).is_ok(), "all places are free again");
    });
}
