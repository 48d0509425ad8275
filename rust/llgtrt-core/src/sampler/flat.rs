//! top-k, top-p and min-p of flat rows, where thousands of tokens stay in the race. Owned by the thread's
//! scratch memory.
//!
//! One pass counts and weighs the tokens in buckets of their distance to the largest logit. The bucket in which a
//! limit falls is gathered and sorted out exactly; the others are wholly in or out. What stays is described by
//! one [`Cutoff`], so nothing is sorted or selected from but that bucket: however flat a row is, it takes a few passes.

use super::row::{BLOCK, Cutoff, Peak, Row, scale, weight};
use super::select::{Candidate, nucleus, sum};
use crate::SamplingParams;

/// Buckets per halving of the weight, and in all: after 127 of them a token weighs nothing.
const FINENESS: f32 = 11.0;
const BUCKETS: usize = 127 * 11 + 1;

#[derive(Default)]
pub(super) struct Buckets {
    buckets: Vec<Bucket>,
    list: Vec<Candidate>,
}

/// What is in a bucket, in one place of the memory: it is written once per token of the row.
#[derive(Clone, Copy, Default)]
struct Bucket {
    mass: f64,
    count: u64,
}

/// What is needed to find a token's bucket.
#[derive(Clone, Copy)]
struct Distance {
    peak: Peak,
    scale: f32,
    min_weight: f32,
}

impl Distance {
    /// Falls with the logit, in floating point too.
    fn bucket(self, logit: f32) -> u32 {
        // Adding 2^23 rounds to an integer and leaves it in the low bits; a cast of Rust's would be no vector code.
        const ROUND: f32 = 8_388_608.0;
        const LAST: f32 = (BUCKETS - 1) as f32;
        let distance = (self.peak.max - logit) * self.scale * FINENESS;
        let within = if distance < LAST { distance } else { LAST };
        (within + ROUND).to_bits() - ROUND.to_bits()
    }

    fn weight(self, logit: f32) -> f32 {
        weight(logit, self.peak.max, self.scale)
    }
}

impl Buckets {
    /// The least likely token that `params` keep. `total` is the mass of which `top_p` is a part: that of the whole row,
    /// where this is only what was left of one; if there is none, that of what the other limits keep.
    pub(super) fn cutoff(
        &mut self,
        row: &Row,
        logits: &[f32],
        peak: Peak,
        params: &SamplingParams,
        total: Option<f64>,
    ) -> Cutoff {
        let min_weight = params.min_p.clamp(f32::MIN_POSITIVE, 1.0);
        let distance = Distance { peak, scale: scale(params.temperature), min_weight };
        self.count(row, logits, distance);

        let mut kept = Cutoff::NONE;
        let mut total = total.unwrap_or_else(|| self.buckets.iter().map(|bucket| bucket.mass).sum());
        let all: u64 = self.buckets.iter().map(|bucket| bucket.count).sum();
        let top_k = u64::from(params.top_k);
        if top_k > 0 && top_k < all {
            let (bucket, before) = locate(&self.buckets, |bucket| bucket.count, top_k);
            self.gather(row, logits, distance, bucket, kept);
            let index = (top_k - before) as usize - 1;
            kept.logit = self.list.select_nth_unstable_by(index, Candidate::order).1.logit;
            self.list.retain(|c| c.logit >= kept.logit);
            total = self.buckets[..bucket].iter().map(|bucket| bucket.mass).sum::<f64>() + sum(&self.list);
        } else if params.min_p > 0.0
            && let Some(bucket) = self.buckets.iter().rposition(|bucket| bucket.count > 0)
        {
            self.gather(row, logits, distance, bucket, kept);
            kept.logit = self.list.iter().map(|c| c.logit).fold(f32::INFINITY, f32::min);
        }
        if params.top_p < 1.0 {
            let target = f64::from(params.top_p) * total;
            let (bucket, before) = locate(&self.buckets, |bucket| bucket.mass, target);
            self.gather(row, logits, distance, bucket, kept);
            let count = nucleus(&mut self.list, target - before);
            if let Some(worst) = self.list[..count].iter().max_by(|a, b| a.order(b)) {
                kept = Cutoff { logit: worst.logit, position: worst.position };
            }
        }
        kept
    }

    fn count(&mut self, row: &Row, logits: &[f32], distance: Distance) {
        self.buckets.clear();
        self.buckets.resize(BUCKETS, Bucket::default());
        let buckets = &mut self.buckets[..BUCKETS];
        let (mut weights, mut places) = ([0.0; BLOCK], [0; BLOCK]);
        row.each_block(logits, |block| {
            // Vector code first, then the additions, which cannot be. Buckets are many enough for every weight above 0.
            for ((&logit, weight), place) in block.iter().zip(&mut weights).zip(&mut places) {
                let known = distance.weight(logit);
                *weight = if known >= distance.min_weight { known } else { 0.0 };
                *place = distance.bucket(logit);
            }
            for (&weight, &place) in weights[..block.len()].iter().zip(&places) {
                let bucket = &mut buckets[(place as usize).min(BUCKETS - 1)];
                bucket.mass += f64::from(weight);
                bucket.count += u64::from(weight > 0.0);
            }
        });
    }

    /// The tokens of a bucket, of those that `kept` keeps.
    fn gather(&mut self, row: &Row, logits: &[f32], distance: Distance, bucket: usize, kept: Cutoff) {
        // A little below the bucket's end, for rounding; the exact test follows.
        let bound = distance.peak.max - (bucket as f32 + 1.01) / (FINENESS * distance.scale);
        let list = &mut self.list;
        list.clear();
        row.at_least(logits, bound.max(kept.logit), |position, logit| {
            if distance.bucket(logit) as usize == bucket {
                let weight = distance.weight(logit);
                if weight >= distance.min_weight {
                    list.push(Candidate { position: position as u32, logit, weight });
                }
            }
            true
        });
    }
}

/// The bucket in which the running sum reaches `target`, and the sum before it.
fn locate<N>(buckets: &[Bucket], value: impl Fn(&Bucket) -> N, target: N) -> (usize, N)
where
    N: Copy + Default + PartialOrd + std::ops::Add<Output = N>,
{
    let (mut before, mut last) = (N::default(), (0, N::default()));
    for (index, bucket) in buckets.iter().enumerate() {
        let value = value(bucket);
        if value > N::default() {
            last = (index, before);
            if before + value >= target {
                break;
            }
        }
        before = before + value;
    }
    last
}
