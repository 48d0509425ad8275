//! The only source of chance: a hash of what the tokens may depend on. Pure; runs on any thread.

/// Mixes two words into one, well enough that neighbouring positions look unrelated (`splitmix64`).
pub(crate) fn mix(a: u64, b: u64) -> u64 {
    let mut x = a.rotate_left(32) ^ b.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// A number in [0, 1).
pub(crate) fn unit(hash: u64) -> f32 {
    (hash >> 40) as f32 / 16_777_216.0
}

/// An index below `len`, which is not 0.
pub(crate) fn index(hash: u64, len: usize) -> usize {
    ((u128::from(hash) * len as u128) >> 64) as usize
}
