//! A row of logits in blocks: masks, overrides, the maximum of each block, sums of exponentials.
//! Owned by the thread's scratch memory; must not depend on the width of vector registers: sums run in
//! [`LANES`] fixed lanes, which the compiler turns into vector code on any machine.
//!
//! A block is read from the caller's row unless something in it changed; then it is copied first. So banning one token
//! copies one block. A mask is laid over a block whenever that is looked at, in memory as small as a block.
//! Blocks are taken in order, and each with its maximum at once: a row of a large vocabulary comes from memory, which is
//! fast only where it is read from front to back, and once.

use std::ops::Range;

use crate::{Error, ErrorKind, TokenId};

/// Logits per block: small enough that the k-th largest block maximum bounds a usual top-k well,
/// large enough that the reduction at the end of a block does not matter.
pub(super) const BLOCK: usize = 256;
/// Bits per word of a mask.
const WORD: usize = 32;
/// Words of a mask for a block.
const WORDS: usize = BLOCK / WORD;
const LANES: usize = 16;
/// A mask that allows less than one in this many tokens is gathered instead of applied.
const SPARSE: usize = 16;
/// Differences below this have weight 0; `exp` is exact enough above.
const LOWEST: f32 = -86.0;

/// Where a block's logits are.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Source {
    /// In the caller's row.
    #[default]
    Base,
    /// In the caller's row, those that the mask allows.
    Masked,
    /// In [`Row::copy`].
    Copy,
    /// Nowhere: the mask allows none of its tokens.
    Empty,
}

/// The largest logit.
#[derive(Debug, Clone, Copy)]
pub(super) struct Peak {
    pub(super) max: f32,
    block: usize,
}

/// The least likely token that may be drawn; of the tokens with its logit, those up to its position may.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cutoff {
    pub(super) logit: f32,
    pub(super) position: u32,
}

impl Cutoff {
    /// Cuts nothing.
    pub(super) const NONE: Self = Self { logit: f32::NEG_INFINITY, position: u32::MAX };

    #[inline]
    fn keeps(self, position: u32, logit: f32) -> bool {
        logit > self.logit || (logit == self.logit && position <= self.position)
    }
}

/// The row being sampled from. Positions are indices of the row; [`Row::token`] maps them to tokens.
#[derive(Default)]
pub(super) struct Row {
    len: usize,
    /// Changed blocks, at their offset; or all of a gathered row.
    copy: Vec<f32>,
    /// The mask's words, if there is one and the row is not gathered.
    mask: Vec<u32>,
    source: Vec<Source>,
    /// Largest logit per block.
    maxima: Vec<f32>,
    /// Blocks with a NaN.
    nan: Vec<bool>,
    /// Blocks of which something was overridden since their maximum was computed.
    changed: Vec<bool>,
    /// Sum of weights per block.
    sums: Vec<f32>,
    /// Tokens of a gathered row, ascending.
    ids: Vec<TokenId>,
    gathered: bool,
    /// The mask has no bit set.
    masked_out: bool,
}

impl Row {
    /// Starts a row: `logits`, of which only the tokens in `mask` exist.
    pub(super) fn load(&mut self, logits: &[f32], mask: Option<&[u32]>) {
        self.gathered = false;
        self.masked_out = false;
        self.len = logits.len();
        if let Some(mask) = mask {
            let allowed: usize = mask.iter().map(|word| word.count_ones() as usize).sum();
            self.masked_out = allowed == 0;
            if allowed < logits.len() / SPARSE {
                self.gather(logits, mask);
            } else {
                self.apply_mask(logits, mask);
            }
            return;
        }
        self.clear_blocks();
        for block in logits.chunks(BLOCK) {
            self.push_block(Source::Base, block_max(block));
        }
    }

    fn clear_blocks(&mut self) {
        self.source.clear();
        self.maxima.clear();
        self.nan.clear();
        self.changed.clear();
    }

    fn push_block(&mut self, source: Source, (max, nan): (f32, bool)) {
        self.source.push(source);
        self.maxima.push(max);
        self.nan.push(nan);
        self.changed.push(false);
    }

    fn gather(&mut self, logits: &[f32], mask: &[u32]) {
        self.gathered = true;
        self.copy.clear();
        self.ids.clear();
        for (index, &word) in mask.iter().enumerate() {
            let mut rest = word;
            while rest != 0 {
                let token = index * WORD + rest.trailing_zeros() as usize;
                rest &= rest - 1;
                if let Some(&logit) = logits.get(token) {
                    self.copy.push(logit);
                    self.ids.push(token as TokenId);
                }
            }
        }
        self.len = self.ids.len();
        self.clear_blocks();
        for start in (0..self.len).step_by(BLOCK) {
            let end = (start + BLOCK).min(self.len);
            self.push_block(Source::Copy, block_max(&self.copy[start..end]));
        }
    }

    fn apply_mask(&mut self, logits: &[f32], mask: &[u32]) {
        self.mask.clear();
        self.mask.extend_from_slice(mask);
        self.mask.resize(logits.len().div_ceil(BLOCK) * WORDS, 0);
        self.clear_blocks();
        let mask = std::mem::take(&mut self.mask);
        let mut buffer = [0.0; BLOCK];
        for (block, words) in logits.chunks(BLOCK).zip(mask.as_chunks().0) {
            if words.iter().all(|&word| word == 0) {
                self.push_block(Source::Empty, (f32::NEG_INFINITY, false));
            } else if words.iter().all(|&word| word == u32::MAX) {
                self.push_block(Source::Base, block_max(block));
            } else {
                self.push_block(Source::Masked, block_max(masked(block, words, &mut buffer)));
            }
        }
        self.mask = mask;
    }

    /// Overrides one logit, unless the mask excludes the token.
    pub(super) fn set(&mut self, logits: &[f32], token: TokenId, value: f32) {
        let index = token as usize;
        if self.gathered {
            if let Ok(position) = self.ids.binary_search(&token) {
                self.copy[position] = value;
                self.changed[position / BLOCK] = true;
            }
            return;
        }
        if index >= self.len {
            return;
        }
        let block = index / BLOCK;
        self.changed[block] = true;
        match self.source[block] {
            Source::Empty => {}
            Source::Copy => self.set_copied(index, value),
            Source::Base | Source::Masked => {
                let mut buffer = [0.0; BLOCK];
                let mut copy = std::mem::take(&mut self.copy);
                copy.resize(self.len, 0.0);
                copy[self.range(block)].copy_from_slice(self.block(logits, block, &mut buffer));
                self.copy = copy;
                self.source[block] = Source::Copy;
                self.set_copied(index, value);
            }
        }
    }

    /// A token that the mask excludes is at minus infinity and stays there.
    fn set_copied(&mut self, index: usize, value: f32) {
        if self.copy[index] > f32::NEG_INFINITY {
            self.copy[index] = value;
        }
    }

    /// Positions in the row.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The token at a position.
    pub(super) fn token(&self, position: usize) -> TokenId {
        if self.gathered { self.ids[position] } else { position as TokenId }
    }

    fn range(&self, block: usize) -> Range<usize> {
        block * BLOCK..((block + 1) * BLOCK).min(self.len)
    }

    /// The logits of a block; `buffer` is for those that a mask is laid over.
    fn block<'a>(&'a self, logits: &'a [f32], block: usize, buffer: &'a mut [f32; BLOCK]) -> &'a [f32] {
        let range = self.range(block);
        match self.source[block] {
            Source::Base => &logits[range],
            Source::Masked => masked(&logits[range], &self.mask.as_chunks().0[block], buffer),
            Source::Copy => &self.copy[range],
            Source::Empty => &[],
        }
    }

    /// Finds the largest logit and checks that the row can be sampled from. Everything below needs this first.
    pub(super) fn find_peak(&mut self, logits: &[f32]) -> Result<Peak, Error> {
        if self.masked_out {
            return Err(Error::new(ErrorKind::Grammar, "the mask allows no token"));
        }
        let mut buffer = [0.0; BLOCK];
        for block in 0..self.changed.len() {
            if std::mem::take(&mut self.changed[block]) {
                (self.maxima[block], self.nan[block]) = block_max(self.block(logits, block, &mut buffer));
            }
        }
        let nan = self.nan.contains(&true);
        let mut peak = Peak { max: f32::NEG_INFINITY, block: 0 };
        for (block, &max) in self.maxima.iter().enumerate() {
            if max > peak.max {
                peak = Peak { max, block };
            }
        }
        if nan || peak.max == f32::INFINITY {
            return Err(Error::new(ErrorKind::NotFinite, "the model produced a logit that is not a number"));
        }
        if peak.max == f32::NEG_INFINITY {
            return Err(Error::new(
                ErrorKind::NotFinite,
                "the model produced no finite logit for any allowed token",
            ));
        }
        Ok(peak)
    }

    /// The first position of the maximum.
    pub(super) fn argmax(&self, logits: &[f32], peak: Peak) -> usize {
        let mut buffer = [0.0; BLOCK];
        let block = self.block(logits, peak.block, &mut buffer);
        let offset = block.iter().position(|&logit| logit == peak.max).unwrap_or(0);
        peak.block * BLOCK + offset
    }

    /// The maximum of each block.
    pub(super) fn maxima(&self) -> &[f32] {
        &self.maxima
    }

    /// Calls `take` with the position and logit of every logit of at least `bound`, ascending, until it
    /// answers false; returns whether that did not happen. Minus infinity is never taken.
    pub(super) fn at_least(
        &self,
        logits: &[f32],
        bound: f32,
        mut take: impl FnMut(usize, f32) -> bool,
    ) -> bool {
        let bound = bound.max(f32::MIN);
        let mut buffer = [0.0; BLOCK];
        for (index, &max) in self.maxima.iter().enumerate() {
            if max < bound {
                continue;
            }
            for (offset, &logit) in self.block(logits, index, &mut buffer).iter().enumerate() {
                if logit >= bound && !take(index * BLOCK + offset, logit) {
                    return false;
                }
            }
        }
        true
    }

    /// Calls `take` with the logits of every block that holds a finite one.
    pub(super) fn each_block(&self, logits: &[f32], mut take: impl FnMut(&[f32])) {
        let mut buffer = [0.0; BLOCK];
        for (index, &max) in self.maxima.iter().enumerate() {
            if max > f32::NEG_INFINITY {
                take(self.block(logits, index, &mut buffer));
            }
        }
    }

    /// Sum of `exp((logit - max) * scale)` over what `cutoff` keeps.
    pub(super) fn sum(&mut self, logits: &[f32], peak: Peak, scale: f32, cutoff: Cutoff) -> f64 {
        let mut sums = std::mem::take(&mut self.sums);
        sums.clear();
        let mut total = 0.0;
        let mut buffer = [0.0; BLOCK];
        for (index, &max) in self.maxima.iter().enumerate() {
            // At low temperatures most blocks weigh nothing.
            let weighs = (max - peak.max) * scale >= LOWEST && max >= cutoff.logit;
            let block = if weighs { self.block(logits, index, &mut buffer) } else { &[] };
            let sum = if cutoff.logit == f32::NEG_INFINITY {
                block_sum(block, |_, logit| weight(logit, peak.max, scale))
            } else {
                let first = (index * BLOCK) as u32;
                block_sum(block, |offset, logit| {
                    let weight = weight(logit, peak.max, scale);
                    if cutoff.keeps(first + offset, logit) { weight } else { 0.0 }
                })
            };
            total += f64::from(sum);
            sums.push(sum);
        }
        self.sums = sums;
        total
    }

    /// A position that `cutoff` keeps, drawn with probability proportional to its weight; `unit` is uniform
    /// in [0, 1).
    pub(super) fn draw(
        &mut self,
        logits: &[f32],
        peak: Peak,
        scale: f32,
        cutoff: Cutoff,
        unit: f64,
    ) -> usize {
        let mut target = unit * self.sum(logits, peak, scale, cutoff);
        let mut chosen = peak.block;
        for (index, &sum) in self.sums.iter().enumerate().filter(|(_, sum)| **sum > 0.0) {
            chosen = index;
            if target < f64::from(sum) {
                break;
            }
            target -= f64::from(sum);
        }
        // The block's sum was added in another order, so the walk may end a rounding error short of the
        // target: then it is the last token with any weight.
        let mut position = chosen * BLOCK;
        let mut buffer = [0.0; BLOCK];
        for (offset, &logit) in self.block(logits, chosen, &mut buffer).iter().enumerate() {
            let here = chosen * BLOCK + offset;
            let weight = weight(logit, peak.max, scale);
            if weight > 0.0 && cutoff.keeps(here as u32, logit) {
                position = here;
                if target < f64::from(weight) {
                    break;
                }
                target -= f64::from(weight);
            }
        }
        position
    }
}

/// The logits that `words` allow, in `buffer`; the others are minus infinity.
fn masked<'a>(logits: &[f32], words: &[u32; WORDS], buffer: &'a mut [f32; BLOCK]) -> &'a [f32] {
    for ((from, to), word) in logits.chunks(WORD).zip(buffer.chunks_mut(WORD)).zip(words) {
        for (bit, (&logit, to)) in from.iter().zip(to).enumerate() {
            *to = if word >> bit & 1 == 1 { logit } else { f32::NEG_INFINITY };
        }
    }
    &buffer[..logits.len()]
}

/// The largest value, and whether any is NaN. Wide enough to hide the latency of the comparison; the
/// order does not matter for a maximum.
fn block_max(values: &[f32]) -> (f32, bool) {
    const WIDTH: usize = 4 * LANES;
    let mut max = [f32::NEG_INFINITY; WIDTH];
    let mut nan = [0_u32; WIDTH];
    let chunks = values.chunks_exact(WIDTH);
    let rest = chunks.remainder();
    for chunk in chunks {
        for lane in 0..WIDTH {
            let value = chunk[lane];
            max[lane] = if value > max[lane] { value } else { max[lane] };
            nan[lane] |= u32::from(value.is_nan());
        }
    }
    for (lane, &value) in rest.iter().enumerate() {
        max[lane] = if value > max[lane] { value } else { max[lane] };
        nan[lane] |= u32::from(value.is_nan());
    }
    (max.into_iter().fold(f32::NEG_INFINITY, f32::max), nan.into_iter().fold(0, |a, b| a | b) != 0)
}

/// Sum of the weights, in a fixed order; `weigh` gets the offset in the block and the logit.
#[inline]
fn block_sum(values: &[f32], weigh: impl Fn(u32, f32) -> f32) -> f32 {
    let mut sums = [0.0_f32; LANES];
    let chunks = values.chunks_exact(LANES);
    let rest = chunks.remainder();
    for (index, chunk) in chunks.enumerate() {
        for lane in 0..LANES {
            sums[lane] += weigh((index * LANES + lane) as u32, chunk[lane]);
        }
    }
    let first = values.len() - rest.len();
    for (lane, &value) in rest.iter().enumerate() {
        sums[lane] += weigh((first + lane) as u32, value);
    }
    sums.into_iter().sum()
}

/// `exp((logit - max) * scale)` for a finite `max` that is the largest; 0 below `exp(-86)`.
///
/// Relative error below 2e-7. Only fused multiplications and additions and integer operations, so that it becomes
/// vector code and rounds alike everywhere.
#[inline]
pub(super) fn weight(logit: f32, max: f32, scale: f32) -> f32 {
    // Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits.
    const ROUND: f32 = 12_582_912.0;
    let x = (logit - max) * scale;
    let shifted = x.mul_add(std::f32::consts::LOG2_E, ROUND);
    let whole = shifted - ROUND;
    // ln 2 in two parts, the first with few bits, so that the difference is exact.
    let r = whole.mul_add(2.121_944_4e-4, whole.mul_add(-0.693_359_4, x));
    let p = 1.987_569_1e-4_f32;
    let p = p.mul_add(r, 1.398_199_9e-3);
    let p = p.mul_add(r, 8.333_452e-3);
    let p = p.mul_add(r, 4.166_579_6e-2);
    let p = p.mul_add(r, 0.166_666_66);
    let p = p.mul_add(r, 0.5);
    let p = p.mul_add(r, 1.0);
    let p = p.mul_add(r, 1.0);
    let value = f32::from_bits(p.to_bits().wrapping_add(shifted.to_bits() << 23));
    if x >= LOWEST { value } else { 0.0 }
}
