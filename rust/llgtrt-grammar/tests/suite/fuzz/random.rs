//! Choices out of a seed: the same seed makes the same schemas and instances on any machine.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{RngCore, SeedableRng};

pub struct Random(Xoshiro256PlusPlus);

impl Random {
    /// Choices of case `number` under `seed`.
    pub fn new(seed: u64, number: u64) -> Self {
        Self(Xoshiro256PlusPlus::seed_from_u64(seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
    }

    /// A number below `bound`, which is at least 1.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.0.next_u64() % bound as u64) as usize
    }

    /// True `percent` times out of a hundred.
    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    pub fn pick<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.below(list.len())]
    }

    pub fn word(&mut self, list: &[&'static str]) -> &'static str {
        list[self.below(list.len())]
    }
}
