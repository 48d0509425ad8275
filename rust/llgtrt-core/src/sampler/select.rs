//! top-k, top-p and min-p without sorting the row. Owned by the thread's scratch memory.
//!
//! The block maxima bound the k-th largest logit, and the nucleus of most rows is within a small distance of the
//! largest logit, so a few candidates are gathered. A row too flat for that goes to [`super::flat`]. Equal logits
//! are ordered by token, so the result is unique.

use std::cmp::Ordering;

use super::flat::Buckets;
use super::row::{Cutoff, Peak, Row, scale, weight};
use crate::{SamplingParams, TokenId};

/// Distance to the largest logit, after temperature, in which candidates are looked for: `exp(-5)` holds
/// the nucleus of most rows of a language model.
const DEPTH: f32 = 5.0;
/// More candidates than this are not gathered: counting them in buckets is faster.
const MANY: usize = 4096;

#[derive(Clone, Copy)]
pub(super) struct Candidate {
    pub(super) position: u32,
    pub(super) logit: f32,
    pub(super) weight: f32,
}

impl Candidate {
    /// Best first.
    pub(super) fn order(&self, other: &Self) -> Ordering {
        other.logit.total_cmp(&self.logit).then(self.position.cmp(&other.position))
    }
}

/// Tokens still in the race.
#[derive(Default)]
pub(super) struct Candidates {
    list: Vec<Candidate>,
    maxima: Vec<f32>,
    buckets: Buckets,
}

impl Candidates {
    /// The `count` most likely tokens with their logits, best first.
    pub(super) fn top<'a>(
        &'a mut self,
        row: &'a Row,
        logits: &[f32],
        count: usize,
    ) -> impl Iterator<Item = (TokenId, f32)> + 'a {
        self.list.clear();
        if count > 0 {
            let bound = self.top_bound(row, count).unwrap_or(f32::NEG_INFINITY);
            self.gather(row, logits, bound, usize::MAX);
            if self.list.len() > count {
                self.list.select_nth_unstable_by(count - 1, Candidate::order);
                self.list.truncate(count);
            }
            self.list.sort_unstable_by(Candidate::order);
        }
        self.list.iter().map(|c| (row.token(c.position as usize), c.logit))
    }

    /// Draws a position under `params`; `unit` is uniform in [0, 1).
    pub(super) fn draw(
        &mut self,
        row: &mut Row,
        logits: &[f32],
        peak: Peak,
        params: &SamplingParams,
        unit: f64,
    ) -> usize {
        let temperature = params.temperature;
        let scale = scale(temperature);
        let top_k = params.top_k as usize;
        let top_p = f64::from(params.top_p);
        let depth = peak.max - DEPTH * temperature;
        // Rounded down a little: the weights decide.
        let floor = if params.min_p > 0.0 {
            peak.max + (params.min_p.min(1.0).ln() - 1e-3) * temperature
        } else {
            f32::NEG_INFINITY
        };

        // Nothing that is kept has a smaller logit.
        let mut bound = floor;
        let mut all = None;
        let total = if top_k > 0 && top_k < row.len() {
            let reached = self.top_bound(row, top_k);
            bound = bound.max(reached.unwrap_or(f32::NEG_INFINITY));
            let gathered = self.gather(row, logits, reached.unwrap_or(depth).max(floor), MANY);
            // Without a bound it is only known that enough were found, or all above the floor.
            (gathered && (reached.is_some() || self.list.len() >= top_k || floor > depth)).then(|| {
                if self.list.len() > top_k {
                    let (_, kth, _) = self.list.select_nth_unstable_by(top_k - 1, Candidate::order);
                    let kth = kth.logit;
                    self.list.retain(|c| c.logit >= kth);
                }
                self.weigh(peak, scale, params.min_p)
            })
        } else if params.min_p > 0.0 {
            self.gather(row, logits, floor, MANY).then(|| self.weigh(peak, scale, params.min_p))
        } else {
            let total = row.sum(logits, peak, scale, Cutoff::NONE);
            all = Some(total);
            // All that is further down weighs less than what is left out, were it the whole row.
            let spare = (1.0 - top_p) * total / row.len() as f64;
            bound = peak.max + (spare.ln() as f32 - 1e-3) * temperature;
            let gathered = self.gather(row, logits, depth, MANY);
            (gathered && self.weigh(peak, scale, 0.0) >= top_p * total).then_some(total)
        };
        let Some(total) = total else {
            let peak = if bound > f32::NEG_INFINITY { row.narrow(logits, bound) } else { peak };
            let cutoff = self.buckets.cutoff(row, logits, peak, params, all);
            return row.draw(logits, peak, scale, cutoff, unit);
        };
        if top_p < 1.0 {
            let kept = nucleus(&mut self.list, top_p * total);
            self.list.truncate(kept);
        }
        // Selection leaves an order that the definition does not fix.
        self.list.sort_unstable_by_key(|c| c.position);
        self.pick(unit)
    }

    /// Gathers every logit of at least `bound`; false if there are more than `most`.
    fn gather(&mut self, row: &Row, logits: &[f32], bound: f32, most: usize) -> bool {
        let list = &mut self.list;
        list.clear();
        row.at_least(logits, bound, |position, logit| {
            list.push(Candidate { position: position as u32, logit, weight: 0.0 });
            list.len() <= most
        })
    }

    /// A bound that at least `count` logits reach: so many blocks have a maximum above it.
    fn top_bound(&mut self, row: &Row, count: usize) -> Option<f32> {
        if count > row.maxima().len() {
            return None;
        }
        self.maxima.clear();
        self.maxima.extend_from_slice(row.maxima());
        Some(*self.maxima.select_nth_unstable_by(count - 1, |a, b| b.total_cmp(a)).1)
    }

    /// Sets the weights, drops those below `min_p` of the best, and returns their sum.
    fn weigh(&mut self, peak: Peak, scale: f32, min_p: f32) -> f64 {
        for candidate in &mut self.list {
            candidate.weight = weight(candidate.logit, peak.max, scale);
        }
        if min_p > 0.0 {
            // The best has weight 1 and stays whatever min_p is.
            self.list.retain(|c| c.weight >= min_p.min(1.0));
        }
        sum(&self.list)
    }

    fn pick(&self, unit: f64) -> usize {
        let mut target = unit * sum(&self.list);
        let mut chosen = 0;
        for candidate in self.list.iter().filter(|c| c.weight > 0.0) {
            chosen = candidate.position as usize;
            if target < f64::from(candidate.weight) {
                break;
            }
            target -= f64::from(candidate.weight);
        }
        chosen
    }
}

pub(super) fn sum(list: &[Candidate]) -> f64 {
    list.iter().map(|c| f64::from(c.weight)).sum()
}

/// Moves to the front the best candidates whose predecessors weigh less than `target`; returns how many.
/// Halves the range in question each time, so it costs a constant number of passes.
pub(super) fn nucleus(list: &mut [Candidate], target: f64) -> usize {
    let (mut low, mut high) = (0, list.len());
    let mut mass = 0.0;
    while high - low > 32 {
        let middle = usize::midpoint(low, high);
        list[low..high].select_nth_unstable_by(middle - low, Candidate::order);
        let upper = sum(&list[low..middle]);
        if mass + upper >= target {
            high = middle;
        } else {
            mass += upper;
            low = middle;
        }
    }
    list[low..high].sort_unstable_by(Candidate::order);
    for candidate in &list[low..high] {
        if low > 0 && mass >= target {
            break;
        }
        mass += f64::from(candidate.weight);
        low += 1;
    }
    low
}
