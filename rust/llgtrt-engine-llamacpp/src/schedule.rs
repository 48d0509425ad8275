//! Decides how many tokens of each slot go into the next forward pass. Pure functions.
//!
//! With one KV stream per slot llama.cpp cuts a batch into passes over the weights: slots with consecutive
//! numbers and the same number of tokens share one, the tokens that stick out take more. A pass costs as much
//! as some tokens (one to two where llama.cpp multiplies row by column, five with weights rearranged for
//! batches), so a ragged end is only worth a pass of its own if it is long; otherwise it goes along with the next
//! step, at no loss: its tokens were reported when the grammar forced them. For the same reason an idle slot or
//! two between busy ones take part with a token that is taken back afterwards: a bridge.

/// What a pass is over. Prompts and answers have passes of their own: those of answers stay short, and what each takes is
/// known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    /// Tokens of prompts, and what a grammar forces behind them.
    Prompts,
    /// What sequences generate.
    Answers,
}

/// What one slot has to evaluate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Demand {
    /// Its number.
    pub(crate) slot: usize,
    /// Tokens known but not evaluated, at least 1.
    pub(crate) pending: usize,
    /// Whether every token needs its logits, or only the last pending one.
    pub(crate) every_output: bool,
    /// Order of admission.
    pub(crate) age: u64,
}

/// Bounds of a forward pass.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Tokens in all; of answers at least one per slot.
    pub(crate) tokens: usize,
    /// Rows of logits; at least one per slot.
    pub(crate) outputs: usize,
}

/// Idle slots in a row that are cheaper to take along than to go around.
pub(crate) const LONGEST_BRIDGE: usize = 2;

/// Whether slots `left` and `right` (`left < right`) can share a pass.
fn joined(left: usize, right: usize) -> bool {
    right - left <= 1 + LONGEST_BRIDGE
}

/// The slots between `left` and `right` that have to take part if those are to share a pass; none if they are
/// neighbours, too far apart, or one between them cannot.
pub(crate) fn bridge(left: usize, right: usize, is_idle: impl Fn(usize) -> bool) -> std::ops::Range<usize> {
    let between = left + 1..right;
    if joined(left, right) && between.clone().all(is_idle) { between } else { 0..0 }
}

/// Fills `shares` with the number of tokens for each demand, in order. `demands` is sorted by slot.
pub(crate) fn plan(work: Work, demands: &[Demand], limits: Limits, shares: &mut Vec<usize>) {
    shares.clear();
    shares.resize(demands.len(), 0);
    let mut outputs = Outputs { spare: limits.outputs.saturating_sub(demands.len()) };
    match work {
        Work::Prompts => prompt_shares(demands, limits.tokens, &mut outputs, shares),
        Work::Answers => answer_shares(demands, limits.tokens, &mut outputs, shares),
    }
}

/// Shares of prompts, the oldest first. One that the pass does not finish leaves up to half of it to younger ones that it does:
/// short prompts do not wait for the end of a long one.
fn prompt_shares(demands: &[Demand], tokens: usize, outputs: &mut Outputs, shares: &mut [usize]) {
    let mut left = tokens;
    let mut has_part = false;
    let mut oldest_first: Vec<usize> = (0..demands.len()).collect();
    oldest_first.sort_unstable_by_key(|&i| demands[i].age);
    for (place, &index) in oldest_first.iter().enumerate() {
        let pending = demands[index].pending;
        let share = if pending <= left {
            pending
        } else if has_part {
            0
        } else {
            has_part = true;
            let mut reserved = 0;
            for &younger in &oldest_first[place + 1..] {
                if reserved + demands[younger].pending <= left / 2 {
                    reserved += demands[younger].pending;
                }
            }
            left - reserved
        };
        shares[index] = outputs.grant(&demands[index], 0, share);
        left -= shares[index];
    }
}

/// Rows of logits beyond the one that every slot may have.
struct Outputs {
    spare: usize,
}

impl Outputs {
    /// At most `share` more tokens of a demand that has `before` already; fewer if each needs a row and
    /// there are not enough.
    fn grant(&mut self, demand: &Demand, before: usize, share: usize) -> usize {
        if !demand.every_output {
            return share;
        }
        let free = usize::from(before == 0).min(share);
        let extra = (share - free).min(self.spare);
        self.spare -= extra;
        extra + free
    }
}

/// Shares of answers.
fn answer_shares(demands: &[Demand], tokens: usize, outputs: &mut Outputs, shares: &mut [usize]) {
    let mut used = 0;
    let mut passes = 0;
    let mut rest: Vec<(usize, usize)> = demands.iter().map(|demand| demand.pending).enumerate().collect();
    // The part that all slots have in common.
    let common = rest.iter().map(|&(_, pending)| pending).min().unwrap_or(0).min(tokens / rest.len().max(1));
    let mut previous = None;
    for (index, pending) in &mut rest {
        let share = outputs.grant(&demands[*index], 0, common);
        shares[*index] = share;
        // A slot that was cut short by its rows goes on in the next step.
        *pending = if share < common { 0 } else { *pending - share };
        used += share;
        let slot = demands[*index].slot;
        if previous.is_none_or(|previous| !joined(previous, slot)) {
            passes += 1;
        }
        previous = Some(slot);
    }
    // What sticks out, one pass at a time: worth it if the pass holds as many tokens as the others do.
    loop {
        rest.retain(|&(_, pending)| pending > 0);
        let Some((start, end, depth)) = largest_group(demands, &rest) else { break };
        let depth = depth.min((tokens - used) / (end - start));
        let size = depth * (end - start);
        if size == 0 || size * passes < used {
            break;
        }
        for (index, pending) in &mut rest[start..end] {
            let share = outputs.grant(&demands[*index], shares[*index], depth);
            shares[*index] += share;
            *pending = if share < depth { 0 } else { *pending - share };
            used += share;
        }
        passes += 1;
    }
}

/// The run of neighbouring slots (as a range of `rest`) and the number of tokens each that make the largest
/// pass.
fn largest_group(demands: &[Demand], rest: &[(usize, usize)]) -> Option<(usize, usize, usize)> {
    let mut best: Option<(usize, usize, usize)> = None;
    let mut start = 0;
    while start < rest.len() {
        let mut end = start + 1;
        while end < rest.len() && demands[rest[end].0].slot == demands[rest[end - 1].0].slot + 1 {
            end += 1;
        }
        let depth = rest[start..end].iter().map(|&(_, pending)| pending).min()?;
        if best.is_none_or(|(s, e, d)| (end - start) * depth > (e - s) * d) {
            best = Some((start, end, depth));
        }
        start = end;
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALONE: Limits = Limits { tokens: 64, outputs: 32 };
    const BESIDE: Limits = Limits { tokens: 16, ..ALONE };

    fn demand(slot: usize, pending: usize) -> Demand {
        Demand { slot, pending, every_output: false, age: slot as u64 }
    }

    fn shares(work: Work, demands: &[Demand], limits: Limits) -> Vec<usize> {
        let mut shares = Vec::new();
        plan(work, demands, limits, &mut shares);
        shares
    }

    /// Of answers: so many tokens each, in slots of these numbers.
    fn answers(demands: &[(usize, usize)]) -> Vec<usize> {
        let demands: Vec<_> = demands.iter().map(|&(slot, pending)| demand(slot, pending)).collect();
        shares(Work::Answers, &demands, ALONE)
    }

    /// Of prompts of so many tokens, the oldest first.
    fn prompts(pending: &[usize], limits: Limits) -> Vec<usize> {
        let demands: Vec<_> =
            pending.iter().enumerate().map(|(slot, &pending)| demand(slot, pending)).collect();
        shares(Work::Prompts, &demands, limits)
    }

    #[test]
    fn every_answer_takes_part() {
        assert_eq!(answers(&[(0, 1), (1, 1), (3, 1)]), [1, 1, 1]);
    }

    #[test]
    fn equal_runs_are_evaluated_whole() {
        assert_eq!(answers(&[(0, 4), (1, 4)]), [4, 4]);
        assert_eq!(answers(&[(5, 40)]), [40]);
        assert_eq!(answers(&[(5, 400)]), [64]);
    }

    #[test]
    fn a_ragged_end_needs_to_fill_a_pass() {
        assert_eq!(answers(&[(0, 1), (1, 1), (2, 2), (3, 1)]), [1, 1, 1, 1]);
        assert_eq!(answers(&[(0, 1), (1, 9)]), [1, 9]);
        assert_eq!(answers(&[(0, 1), (1, 3), (2, 3)]), [1, 3, 3]);
    }

    #[test]
    fn a_ragged_end_goes_along_where_gaps_are_bridged() {
        // One pass of three tokens, or with slots far apart three passes of one each.
        assert_eq!(answers(&[(0, 2), (2, 1), (5, 1)]), [1, 1, 1]);
        assert_eq!(answers(&[(0, 2), (9, 1), (20, 1)]), [2, 1, 1]);
    }

    #[test]
    fn bridges_are_short_and_of_idle_slots() {
        assert!(bridge(3, 4, |_| true).is_empty());
        assert_eq!(bridge(3, 5, |_| true), 4..5);
        assert_eq!(bridge(3, 6, |_| true), 4..6);
        assert!(bridge(3, 7, |_| true).is_empty());
        assert!(bridge(3, 6, |slot| slot != 5).is_empty());
    }

    #[test]
    fn prompts_are_cut_beside_answers_and_the_oldest_goes_first() {
        let young = Demand { age: 8, ..demand(1, 40) };
        let old = Demand { age: 7, ..demand(2, 10) };
        assert_eq!(shares(Work::Prompts, &[young, old], BESIDE), [6, 10]);
        assert_eq!(prompts(&[40, 10], ALONE), [40, 10]);
        assert_eq!(prompts(&[100, 50], ALONE), [64, 0]);
    }

    #[test]
    fn a_long_prompt_leaves_half_of_a_pass_to_short_ones() {
        assert_eq!(prompts(&[100, 5], ALONE), [59, 5]);
        assert_eq!(prompts(&[100, 30, 5, 2, 1], ALONE), [32, 30, 0, 2, 0]);
        assert_eq!(prompts(&[90, 200, 6], BESIDE), [10, 0, 6], "and none to other long ones");
        assert_eq!(prompts(&[10, 90, 3], BESIDE), [10, 3, 3]);
        assert_eq!(prompts(&[90, 1], Limits { tokens: 1, ..ALONE }), [1, 0]);
    }

    #[test]
    fn rows_of_logits_are_bounded() {
        let every = |demand| Demand { every_output: true, ..demand };
        assert_eq!(shares(Work::Prompts, &[every(demand(0, 60)), demand(1, 4)], ALONE), [31, 4]);
        assert_eq!(shares(Work::Answers, &[every(demand(0, 50)), every(demand(1, 50))], ALONE), [31, 1]);
        let full: Vec<_> = (0..32).map(|slot| every(demand(slot, 3))).collect();
        assert_eq!(shares(Work::Answers, &full, ALONE), vec![1; 32]);
    }

    #[test]
    fn no_plan_exceeds_its_limits() {
        let mut state = 7_u64;
        let mut random = |bound: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % bound
        };
        for round in 0..20_000 {
            let slots: Vec<usize> = (0..12).filter(|_| random(3) > 0).collect();
            let demands: Vec<_> = slots
                .into_iter()
                .map(|slot| Demand {
                    slot,
                    pending: 1 + random(30) as usize,
                    every_output: random(5) == 0,
                    age: random(1000) * 12 + slot as u64,
                })
                .collect();
            let work = if round % 2 == 0 { Work::Prompts } else { Work::Answers };
            let tokens = if work == Work::Prompts { 1 + random(60) as usize } else { ALONE.tokens };
            let shares = shares(work, &demands, Limits { tokens, ..BESIDE });
            let used: usize = shares.iter().sum();
            let rows = |(demand, &share): (&Demand, &usize)| {
                if demand.every_output { share } else { share.min(1) }
            };
            assert!(used <= tokens);
            assert!(used > 0 || demands.is_empty());
            let cut = |(demand, share): &(&Demand, &usize)| {
                **share > 0 && **share < demand.pending && !demand.every_output
            };
            let parts = demands.iter().zip(&shares).filter(cut).count();
            assert!(work == Work::Answers || parts <= 1);
            assert!(demands.iter().zip(&shares).map(rows).sum::<usize>() <= BESIDE.outputs);
            for (demand, &share) in demands.iter().zip(&shares) {
                assert!(share <= demand.pending && (work == Work::Prompts || share > 0));
            }
        }
    }
}
