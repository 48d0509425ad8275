//! The last forward passes, for whoever asks. The engine's thread writes, one reader takes; a ring of fixed size, so that
//! a pass costs a lock that nobody else holds and a copy.

use llgtrt_core::Pass;

use crate::sync::Mutex;

/// Passes that are kept.
const KEPT: usize = 64;

#[derive(Debug)]
struct Ring {
    passes: [Pass; KEPT],
    /// Passes that came since the start.
    came: u64,
    /// Those of them that were taken, or replaced before anybody did.
    gone: u64,
}

/// The last 64 passes that nobody has taken yet.
#[derive(Debug)]
pub(crate) struct Passes(Mutex<Ring>);

impl Default for Passes {
    fn default() -> Self {
        Self(Mutex::new(Ring { passes: [Pass::default(); KEPT], came: 0, gone: 0 }))
    }
}

impl Passes {
    /// Adds passes, in place of the oldest.
    pub(crate) fn add(&self, passes: &[Pass]) {
        if passes.is_empty() {
            return;
        }
        let mut ring = self.0.lock();
        for &pass in passes {
            let place = ring.came as usize % KEPT;
            ring.passes[place] = pass;
            ring.came += 1;
        }
        ring.gone = ring.gone.max(ring.came.saturating_sub(KEPT as u64));
    }

    /// Takes what has come since the last call, the oldest first.
    pub(crate) fn take(&self) -> Vec<Pass> {
        let mut ring = self.0.lock();
        let taken = (ring.gone..ring.came).map(|number| ring.passes[number as usize % KEPT]).collect();
        ring.gone = ring.came;
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pass(number: u32) -> Pass {
        Pass { decode_tokens: number, ..Pass::default() }
    }

    fn numbers(passes: &Passes) -> Vec<u32> {
        passes.take().iter().map(|pass| pass.decode_tokens).collect()
    }

    #[test]
    fn each_pass_is_taken_once() {
        let passes = Passes::default();
        passes.add(&[]);
        assert!(numbers(&passes).is_empty());
        passes.add(&[pass(1), pass(2)]);
        passes.add(&[pass(3)]);
        assert_eq!(numbers(&passes), [1, 2, 3]);
        assert!(numbers(&passes).is_empty());
    }

    #[test]
    fn the_last_ones_are_kept() {
        let passes = Passes::default();
        (0..1000).for_each(|number| passes.add(&[pass(number)]));
        assert_eq!(numbers(&passes), (1000 - KEPT as u32..1000).collect::<Vec<_>>());
        passes.add(&[pass(7)]);
        assert_eq!(numbers(&passes), [7]);
    }
}
