//! The seeds of requests that bring none.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

/// Distance between the first seeds of neighbouring base seeds: 2^64 divided by the golden ratio.
const FAR_APART: u64 = 0x9E37_79B9_7F4A_7C15;

/// Gives each sequence without a seed one of its own.
#[derive(Debug)]
pub(crate) enum Seeds {
    /// From the operating system: different after every start.
    Fresh,
    /// The same ones in the same order after every start.
    Repeatable {
        /// The next one; each is one more than the one before.
        next: AtomicU64,
    },
}

impl Seeds {
    /// Seeds derived from `base`, or from the operating system.
    pub(crate) const fn new(base: Option<u64>) -> Self {
        match base {
            // Multiplied by an odd number: neighbouring base seeds share none for the first 2^32 sequences.
            Some(base) => Self::Repeatable { next: AtomicU64::new(base.wrapping_mul(FAR_APART)) },
            None => Self::Fresh,
        }
    }

    /// The next seed.
    pub(crate) fn next(&self) -> u64 {
        match self {
            // std seeds every RandomState from the operating system and then counts: distinct per call.
            Self::Fresh => RandomState::new().hash_one(0u8),
            Self::Repeatable { next } => next.fetch_add(1, Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(seeds: &Seeds) -> [u64; 4] {
        std::array::from_fn(|_| seeds.next())
    }

    #[test]
    fn fresh_seeds_differ() {
        let seeds = Seeds::new(None);
        assert_ne!(seeds.next(), seeds.next());
    }

    #[test]
    fn a_configured_seed_repeats_the_others() {
        let [one, again, other] = [7, 7, 8].map(|base| first(&Seeds::new(Some(base))));
        assert_eq!(one, again);
        assert!(one.iter().all(|seed| !other.contains(seed)));
        assert!(one.iter().enumerate().all(|(at, seed)| !one[..at].contains(seed)));
    }
}
