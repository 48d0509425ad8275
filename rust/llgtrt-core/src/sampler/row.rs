//! A row of logits in blocks: masks, overrides, the maximum of each block, sums of exponentials.
//! Owned by the thread's scratch memory; must not depend on the width of vector registers: sums run in
//! [`LANES`] fixed lanes, which the compiler turns into vector code on any machine.
//!
//! A block is read from the caller's row unless something in it changed; then it is copied first. So banning one token
//! copies one block. A mask is laid over a block whenever that is looked at, in memory as small as a block.
//! Blocks are taken in order, and each with its maximum and its sum at once: a row of a large vocabulary comes from
//! memory, which is fast only where it is read from front to back, and once. So a block's sum is relative to the block's
//! own maximum: the row's is not known yet.

use std::ops::Range;

use crate::{Error, ErrorKind, TokenId};

/// Logits per block: small enough that the k-th largest block maximum bounds a usual top-k well,
/// large enough that the reduction at the end of a block does not matter.
pub(super) const BLOCK: usize = 512;
/// Bits per word of a mask.
const WORD: usize = 32;
/// Words of a mask for a block.
const WORDS: usize = BLOCK / WORD;
const LANES: usize = 16;
/// A mask that allows less than one in this many tokens is gathered instead of applied.
const SPARSE: usize = 16;
/// A weight has its binary logarithm above this, or it is 0.
const LOWEST: f32 = -127.0;

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
    /// Sum of weights per block, relative to its largest logit, which has 1; at [`Row::scale`] after loading, until
    /// sums at another scale or with a cutoff are asked for.
    sums: Vec<f32>,
    /// The scale that the row was loaded with.
    scale: Option<f32>,
    /// Largest logit of the blocks loaded so far, before anything was overridden.
    highest: f32,
    /// Tokens of a gathered row, ascending.
    ids: Vec<TokenId>,
    gathered: bool,
    /// For the copy and the tokens of what [`Row::narrow`] leaves.
    narrowed: (Vec<f32>, Vec<TokenId>),
    /// The mask has no bit set.
    masked_out: bool,
}

impl Row {
    /// Starts a row: `logits`, of which only the tokens in `mask` exist. With a `scale` (see [`weight`]) the weights are
    /// summed on the way.
    pub(super) fn load(&mut self, logits: &[f32], mask: Option<&[u32]>, scale: Option<f32>) {
        self.gathered = false;
        self.masked_out = false;
        self.len = logits.len();
        self.scale = scale;
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
            self.push_block(Source::Base, block);
        }
    }

    fn clear_blocks(&mut self) {
        self.source.clear();
        self.maxima.clear();
        self.nan.clear();
        self.changed.clear();
        self.sums.clear();
        self.highest = f32::NEG_INFINITY;
    }

    fn push_block(&mut self, source: Source, block: &[f32]) {
        let (max, nan) = block_max(block);
        self.highest = if max > self.highest { max } else { self.highest };
        self.source.push(source);
        self.maxima.push(max);
        self.nan.push(nan);
        self.changed.push(false);
        // At low temperatures most blocks weigh nothing beside one that was there before.
        let sum = self
            .scale
            .filter(|scale| (max - self.highest) * scale > LOWEST)
            .map_or(0.0, |scale| own_sum(block, max, scale));
        self.sums.push(sum);
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
        self.load_copy();
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
                self.push_block(Source::Empty, &[]);
            } else if words.iter().all(|&word| word == u32::MAX) {
                self.push_block(Source::Base, block);
            } else {
                self.push_block(Source::Masked, masked(block, words, &mut buffer));
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
                let values = self.block(logits, block, &mut buffer);
                let (max, nan) = block_max(values);
                let sum = self.scale.map_or(0.0, |scale| own_sum(values, max, scale));
                (self.maxima[block], self.nan[block], self.sums[block]) = (max, nan, sum);
            }
        }
        let (peak, nan) = (self.peak(), self.nan.contains(&true));
        if peak.max < self.highest {
            // What was left out beside the largest logit may weigh something now that it is gone.
            self.scale = None;
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

    fn peak(&self) -> Peak {
        let mut peak = Peak { max: f32::NEG_INFINITY, block: 0 };
        for (block, &max) in self.maxima.iter().enumerate() {
            if max > peak.max {
                peak = Peak { max, block };
            }
        }
        peak
    }

    /// Leaves the tokens with a logit of at least `bound`, gathered. Their positions are others then.
    pub(super) fn narrow(&mut self, logits: &[f32], bound: f32) -> Peak {
        let (mut copy, mut ids) = std::mem::take(&mut self.narrowed);
        copy.clear();
        ids.clear();
        let (mut buffer, mut found) = ([0.0; BLOCK], [0; BLOCK]);
        for (index, &max) in self.maxima.iter().enumerate() {
            if max < bound || max == f32::NEG_INFINITY {
                continue;
            }
            let block = self.block(logits, index, &mut buffer);
            // Which they are is as good as random: branches would be guessed wrong.
            let mut count = 0;
            for (offset, &logit) in block.iter().enumerate() {
                found[count % BLOCK] = offset;
                count += usize::from(logit >= bound);
            }
            copy.extend(found[..count].iter().map(|&offset| block[offset]));
            ids.extend(found[..count].iter().map(|&offset| self.token(index * BLOCK + offset)));
        }
        self.narrowed = (std::mem::replace(&mut self.copy, copy), std::mem::replace(&mut self.ids, ids));
        self.gathered = true;
        self.scale = None;
        self.load_copy();
        self.peak()
    }

    /// Starts the blocks of a gathered row.
    fn load_copy(&mut self) {
        let copy = std::mem::take(&mut self.copy);
        self.len = copy.len();
        self.clear_blocks();
        for block in copy.chunks(BLOCK) {
            self.push_block(Source::Copy, block);
        }
        self.copy = copy;
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
            for (group, values) in self.block(logits, index, &mut buffer).chunks(LANES).enumerate() {
                // Vector code first: few groups of a block have what is looked for.
                if values.iter().map(|&logit| u32::from(logit >= bound)).sum::<u32>() == 0 {
                    continue;
                }
                for (lane, &logit) in values.iter().enumerate() {
                    if logit >= bound && !take(index * BLOCK + group * LANES + lane, logit) {
                        return false;
                    }
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

    /// Sum of the weights of what `cutoff` keeps.
    pub(super) fn sum(&mut self, logits: &[f32], peak: Peak, scale: f32, cutoff: Cutoff) -> f64 {
        if self.scale != Some(scale) || cutoff.logit > f32::NEG_INFINITY {
            self.sum_blocks(logits, peak, scale, cutoff);
        }
        self.masses(peak, scale).sum()
    }

    fn sum_blocks(&mut self, logits: &[f32], peak: Peak, scale: f32, cutoff: Cutoff) {
        let mut sums = std::mem::take(&mut self.sums);
        let mut buffer = [0.0; BLOCK];
        for (index, (sum, &max)) in sums.iter_mut().zip(&self.maxima).enumerate() {
            let first = (index * BLOCK) as u32;
            let weighs = (max - peak.max) * scale > LOWEST && max >= cutoff.logit;
            let block = if weighs { self.block(logits, index, &mut buffer) } else { &[] };
            *sum = block_sum(block, |offset, logit| {
                let weight = weight(logit, max, scale);
                if cutoff.keeps(first + offset, logit) { weight } else { 0.0 }
            });
        }
        self.sums = sums;
        self.scale = None;
    }

    /// Sum of weights of each block, relative to the row's largest logit.
    fn masses(&self, peak: Peak, scale: f32) -> impl Iterator<Item = f64> {
        let blocks = self.sums.iter().zip(&self.maxima);
        blocks.map(move |(&sum, &max)| f64::from(sum) * f64::from(weight(max, peak.max, scale)))
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
        for (index, mass) in self.masses(peak, scale).enumerate().filter(|(_, mass)| *mass > 0.0) {
            chosen = index;
            if target < mass {
                break;
            }
            target -= mass;
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
            max[lane] = larger(value, max[lane]);
            nan[lane] |= u32::from(value.is_nan());
        }
    }
    for (lane, &value) in rest.iter().enumerate() {
        max[lane] = larger(value, max[lane]);
        nan[lane] |= u32::from(value.is_nan());
    }
    (halved(max, larger), halved(nan, |a, b| a | b) != 0)
}

#[inline]
fn larger(value: f32, max: f32) -> f32 {
    if value > max { value } else { max }
}

/// What `join` makes of all lanes, a power of two of them: the upper half joined to the lower until one is left.
/// One after the other would take as long as the rest of a block does.
#[inline]
fn halved<T: Copy, const N: usize>(mut lanes: [T; N], join: impl Fn(T, T) -> T) -> T {
    let mut half = N / 2;
    while half > 0 {
        for lane in 0..half {
            lanes[lane] = join(lanes[half + lane], lanes[lane]);
        }
        half /= 2;
    }
    lanes[0]
}

/// Sum of the weights of a block beside its largest logit.
#[inline]
fn own_sum(values: &[f32], max: f32, scale: f32) -> f32 {
    if max == f32::NEG_INFINITY {
        return 0.0;
    }
    block_sum(values, |_, logit| weight(logit, max, scale))
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
    halved(sums, |a, b| a + b)
}

/// What logits are multiplied with at a temperature to be the binary logarithms of weights.
pub(super) fn scale(temperature: f32) -> f32 {
    std::f32::consts::LOG2_E / temperature
}

/// `2 ** ((logit - max) * scale)` for a finite `max` that is the largest; 0 where that is 2^-127 or less.
///
/// The power has a relative error below 2e-7 down to 2^-126. Only multiplications and additions, fused or not, and integer
/// operations, so that it becomes vector code and rounds alike everywhere.
#[inline]
pub(super) fn weight(logit: f32, max: f32, scale: f32) -> f32 {
    // Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits.
    const ROUND: f32 = 12_582_912.0;
    let exponent = larger((logit - max) * scale, LOWEST);
    let shifted = exponent + ROUND;
    let r = exponent - (shifted - ROUND);
    // 2^r from -1/2 to 1/2; exactly 1 at 0, which makes it 0 at the lowest exponent.
    let p = 1.330_060_5e-3_f32;
    let p = p.mul_add(r, 9.669_691e-3);
    let p = p.mul_add(r, 5.550_558_5e-2);
    let p = p.mul_add(r, 0.240_222_83);
    let p = p.mul_add(r, std::f32::consts::LN_2);
    let p = p.mul_add(r, 1.0);
    f32::from_bits(p.to_bits().wrapping_add(shifted.to_bits() << 23))
}
