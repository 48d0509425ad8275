//! Decides how many tokens of each slot go into the next forward pass, and what goes along so that slots share it.
//! Plain data and functions.
//!
//! With one KV stream per slot llama.cpp cuts a batch into groups, each of which passes over the weights: slots with
//! consecutive numbers and the same number of tokens share one, the tokens that stick out take more. A group costs as
//! much as some tokens ([`Costs`]), so a ragged end is only worth a group of its own if it is long; otherwise it goes along with the
//! next step, at no loss: its tokens were reported when the grammar forced them. For the same reason slots get tokens
//! beside their own, which are taken back afterwards: an idle slot between busy ones, and one with a few tokens less than
//! its neighbours. Where all kernels of a pass are ours they leave such tokens out (`repack`), so that they cost little.

use std::cmp::Reverse;
use std::ops::Range;

use crate::costs::Costs;

mod prompts;

use prompts::prompt_shares;
pub(crate) use prompts::tokens_of_prompts;

/// What a pass is over. Prompts and answers have passes of their own, in turns: those of answers stay short, and what each takes
/// is known; unless answers cost so little beside prompts that they can go along ([`Costs::mixes`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    /// Tokens of prompts, and what a grammar forces behind them.
    Prompts,
    /// What sequences generate.
    Answers,
    /// Both.
    Mixed,
}

/// What one slot has to evaluate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Demand {
    /// Its number.
    pub(crate) slot: usize,
    /// Whether this is of a prompt or of an answer.
    pub(crate) work: Work,
    /// Tokens known but not evaluated, at least 1.
    pub(crate) pending: usize,
    /// What one of them counts for in a pass over prompts, at least 1.
    pub(crate) cost: f64,
    /// Whether every token needs its logits, or only the last pending one.
    pub(crate) every_output: bool,
    /// Order of admission.
    pub(crate) age: u64,
}

/// Bounds of a forward pass.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Tokens in all; of answers at least one per slot. Where prompts and answers are mixed, those of prompts.
    pub(crate) tokens: usize,
    /// Tokens of a prompt that the pass does not finish, at least, whatever they cost.
    pub(crate) least: usize,
    /// Rows of logits; at least one per slot.
    pub(crate) outputs: usize,
}

/// Whether slots `left` and `right` (`left < right`) can share a pass.
fn joined(left: usize, right: usize, costs: Costs) -> bool {
    right - left <= 1 + costs.bridged()
}

/// The slots that a pass over answers goes over, where the shape of passes matters: those of the passes before, until the
/// idle ones at its ends have cost as much as another shape does.
#[derive(Debug, Default)]
pub(crate) struct Span {
    slots: Range<usize>,
    idle: usize,
}

impl Span {
    /// How many slots the latest pass went over.
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// The slots of a pass that has to go over `needed`.
    pub(crate) fn cover(&mut self, needed: Range<usize>, costs: Costs) -> Range<usize> {
        let covers = self.slots.start <= needed.start && needed.end <= self.slots.end;
        let idle = self.slots.len().saturating_sub(needed.len());
        self.idle = if idle == 0 { 0 } else { self.idle + idle };
        if !covers || self.idle > costs.reshape {
            *self = Self { slots: needed, idle: 0 };
        }
        self.slots.clone()
    }
}

/// Gives neighbouring slots as many tokens as each other, as far as that avoids a group for less than it costs, and takes no
/// more than `spare` tokens. `widths` are the tokens of slots with consecutive numbers; `fits` says whether the slot at an index of
/// it has room for so many.
pub(crate) fn level(
    widths: &mut [usize],
    work: Work,
    costs: Costs,
    mut spare: usize,
    fits: impl Fn(usize, usize) -> bool,
) {
    // Runs of slots with the same number of tokens. Each round joins at least two of them.
    let mut runs: Vec<Range<usize>> = Vec::new();
    for index in 0..widths.len() {
        match runs.last_mut() {
            Some(run) if widths[run.start] == widths[index] => run.end += 1,
            _ => runs.push(index..index + 1),
        }
    }
    loop {
        let raise = |place: usize| {
            let run = &runs[place];
            let own = widths[run.start];
            let before = place.checked_sub(1).map(|place| widths[runs[place].start]);
            let after = runs.get(place + 1).map(|run| widths[run.start]);
            let higher = [before, after].into_iter().flatten().filter(|&width| width > own).min()?;
            let cost = (higher - own) * run.len();
            let fits =
                cost <= costs.group_of(work).min(spare) && run.clone().all(|index| fits(index, higher));
            fits.then_some((cost, place, higher))
        };
        let Some((cost, place, width)) = (0..runs.len()).filter_map(raise).min() else { return };
        spare -= cost;
        widths[runs[place].clone()].fill(width);
        if place + 1 < runs.len() && widths[runs[place + 1].start] == width {
            let end = runs.remove(place + 1).end;
            runs[place].end = end;
        }
        if place > 0 && widths[runs[place - 1].start] == width {
            let end = runs.remove(place).end;
            runs[place - 1].end = end;
        }
    }
}

/// The same where tokens that are taken back cost little, if the pass is one group: gives all slots as many tokens as the longest
/// has, if that costs less than the groups that it avoids. Whether it did.
pub(crate) fn share_group(
    widths: &mut [usize],
    work: Work,
    costs: Costs,
    spare: usize,
    fits: impl Fn(usize, usize) -> bool,
) -> bool {
    let width = widths.iter().copied().max().unwrap_or(0);
    let padding = widths.iter().map(|own| width - own).sum::<usize>();
    let changes = widths.windows(2).filter(|pair| pair[0] != pair[1]).count();
    let shares = costs.shares_groups()
        && padding <= spare.min(costs.padding * costs.group_of(work) * changes)
        && (0..widths.len()).all(|index| fits(index, width));
    if shares {
        widths.fill(width);
    }
    shares
}

/// The tokens of each of `slots` slots with which a pass wins most, 0 if it wins nothing. `places` have what the tokens at a
/// place of their slots win, and how many slots have one there; at each of the others there is padding, which costs `padding`.
pub(crate) fn worthy_width(places: &[(f32, usize)], slots: usize, padding: f32) -> usize {
    let (mut width, mut most, mut sum) = (0, 0.0, 0.0);
    for (place, &(wins, tokens)) in places.iter().enumerate() {
        sum += wins - padding * (slots - tokens) as f32;
        if sum > most {
            (width, most) = (place + 1, sum);
        }
    }
    width
}

/// Fills `shares` with the number of tokens for each demand, in order. `demands` is sorted by slot.
pub(crate) fn plan(work: Work, demands: &[Demand], limits: Limits, costs: Costs, shares: &mut Vec<usize>) {
    shares.clear();
    shares.resize(demands.len(), 0);
    let mut outputs = Outputs { spare: limits.outputs.saturating_sub(demands.len()) };
    match work {
        Work::Prompts => prompt_shares(demands, limits, &mut outputs, shares),
        Work::Mixed => mixed_shares(demands, limits, &mut outputs, shares),
        Work::Answers => answer_shares(demands, limits.tokens, costs, &mut outputs, shares),
    }
}

/// Shares of prompts, and of answers that have no more tokens than the longest of them.
fn mixed_shares(demands: &[Demand], limits: Limits, outputs: &mut Outputs, shares: &mut [usize]) {
    prompt_shares(demands, limits, outputs, shares);
    let width = shares.iter().copied().max().unwrap_or(0).max(1);
    for (demand, share) in demands.iter().zip(shares) {
        if demand.work == Work::Answers {
            *share = outputs.grant(demand, 0, demand.pending.min(width));
        }
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
fn answer_shares(
    demands: &[Demand],
    tokens: usize,
    costs: Costs,
    outputs: &mut Outputs,
    shares: &mut [usize],
) {
    let mut used = 0;
    let mut passes = 0;
    let mut rest: Vec<(usize, usize)> = demands.iter().map(|demand| demand.pending).enumerate().collect();
    let depth = shared_depth(demands, tokens, costs);
    let mut is_level = true;
    let mut previous = None;
    for (index, pending) in &mut rest {
        let wanted = depth.min(*pending);
        is_level &= wanted == depth;
        let share = outputs.grant(&demands[*index], 0, wanted);
        shares[*index] = share;
        // A slot that was cut short by its rows goes on in the next step.
        *pending = if share < wanted { 0 } else { *pending - share };
        used += share;
        let slot = demands[*index].slot;
        if previous.is_none_or(|previous| !joined(previous, slot, costs)) {
            passes += 1;
        }
        previous = Some(slot);
    }
    if !is_level {
        // One group: with others beside it the padding would be computed. What sticks out waits for the next step.
        return;
    }
    // What sticks out, one pass at a time: worth it if the pass holds as many tokens as the others do.
    loop {
        rest.retain(|&(_, pending)| pending > 0);
        let Some((start, end, depth)) = largest_group(demands, &rest) else { break };
        let depth = depth.min((tokens - used) / (end - start));
        let size = depth * (end - start);
        if size == 0 || depth < costs.shortest_run || size * passes < used * costs.ragged() {
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

/// How many tokens of each slot go into the first group, as far as it has them: those that all have; or more, where so many have
/// more that the others' padding costs no more than these tokens.
fn shared_depth(demands: &[Demand], tokens: usize, costs: Costs) -> usize {
    let mut pending: Vec<usize> = demands.iter().map(|demand| demand.pending).collect();
    // Of `n` slots, `deep` with more: `n - deep <= padding * deep`.
    let deep = if costs.shares_groups() { pending.len().div_ceil(costs.padding + 1) } else { pending.len() };
    let Some(last) = deep.checked_sub(1) else { return 0 };
    let (_, &mut depth, _) = pending.select_nth_unstable_by_key(last, |&pending| Reverse(pending));
    let depth = depth.min(tokens / demands.len());
    if depth < costs.shortest_run { depth.min(1) } else { depth }
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

    const ALONE: Limits = Limits { tokens: 64, least: 0, outputs: 32 };
    const BESIDE: Limits = Limits { tokens: 16, ..ALONE };

    fn demand(slot: usize, pending: usize) -> Demand {
        Demand { slot, work: Work::Prompts, pending, cost: 1.0, every_output: false, age: slot as u64 }
    }

    fn shares(work: Work, demands: &[Demand], limits: Limits) -> Vec<usize> {
        let mut shares = Vec::new();
        plan(work, demands, limits, Costs::CPU, &mut shares);
        shares
    }

    /// Of answers: so many tokens each, in slots of these numbers.
    fn answers(demands: &[(usize, usize)]) -> Vec<usize> {
        let demands: Vec<_> = demands.iter().map(|&(slot, pending)| demand(slot, pending)).collect();
        shares(Work::Answers, &demands, ALONE)
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

    fn leveled(widths: &[usize], work: Work, costs: Costs, spare: usize) -> Vec<usize> {
        let mut widths = widths.to_vec();
        level(&mut widths, work, costs, spare, |_, _| true);
        widths
    }

    #[test]
    fn short_gaps_are_filled() {
        let answers = |widths: &[usize]| leveled(widths, Work::Answers, Costs::CPU, 64);
        assert_eq!(answers(&[1, 1]), [1, 1]);
        assert_eq!(answers(&[1, 0, 1]), [1, 1, 1]);
        assert_eq!(answers(&[1, 0, 0, 1]), [1, 1, 1, 1]);
        assert_eq!(answers(&[1, 0, 0, 0, 1]), [1, 0, 0, 0, 1]);
        assert_eq!(answers(&[3, 0, 3]), [3, 0, 3], "three tokens cost more than a group");
        assert_eq!(answers(&[1, 3]), [3, 3]);
        assert_eq!(answers(&[1, 1, 3]), [1, 1, 3]);
        let mut widths = [1, 0, 1];
        level(&mut widths, Work::Answers, Costs::CPU, 64, |index, _| index != 1);
        assert_eq!(widths, [1, 0, 1], "a slot without room stays as it is");
        assert_eq!(
            leveled(&[1, 0, 0, 1, 0, 1], Work::Answers, Costs::CPU, 2),
            [1, 0, 0, 1, 1, 1],
            "the cheapest first"
        );
    }

    #[test]
    fn prompts_of_nearly_the_same_length_share_a_pass() {
        assert_eq!(leveled(&[30, 28, 31, 40], Work::Prompts, Costs::CPU, 64), [31, 31, 31, 40]);
        assert_eq!(leveled(&[30, 28, 31, 40], Work::Prompts, Costs::GPU, 64), [40, 40, 40, 40]);
        assert_eq!(leveled(&[30, 28, 31, 400], Work::Prompts, Costs::GPU, 64), [31, 31, 31, 400]);
        assert_eq!(leveled(&[30, 28, 31], Work::Prompts, Costs::GPU, 2), [30, 30, 31]);
    }

    #[test]
    fn where_padding_costs_little_slots_share_a_group() {
        let costs = Costs::CPU.without_padding();
        let answers = |pending: &[usize]| {
            let demands: Vec<_> =
                pending.iter().enumerate().map(|(slot, &pending)| demand(slot, pending)).collect();
            let mut shares = Vec::new();
            let limits = Limits { tokens: 256, outputs: 256, ..ALONE };
            plan(Work::Answers, &demands, limits, costs, &mut shares);
            let mut widths = shares.clone();
            let level = share_group(&mut widths, Work::Answers, costs, 256, |_, _| true);
            (shares, level.then_some(widths[0]))
        };
        assert_eq!(answers(&[1, 6, 1, 3]), (vec![1, 6, 1, 3], Some(6)));
        assert_eq!(answers(&[1, 60]), (vec![1, 60], Some(60)));
        assert_eq!(answers(&[1, 100]), (vec![1, 100], Some(100)));
        assert_eq!(answers(&[1, 1, 1, 1, 200]).0, [1, 1, 1, 1, 51], "as much as fits into a pass");
        let forty_and = |long: usize| [vec![1; 40], vec![6; long]].concat();
        assert_eq!(answers(&forty_and(1)).0, [1; 41], "it waits for the next step");
        assert_eq!(answers(&forty_and(2)), (forty_and(2), Some(6)));

        let shared = |widths: &[usize], work, spare| {
            let mut widths = widths.to_vec();
            share_group(&mut widths, work, costs, spare, |index, _| index != 5).then_some(widths)
        };
        assert_eq!(shared(&[1, 0, 0, 4], Work::Answers, 64), Some(vec![4; 4]), "idle slots between");
        assert_eq!(shared(&[1, 300], Work::Answers, 512), None, "a group costs less");
        assert_eq!(shared(&[30, 28, 31, 40], Work::Prompts, 64), Some(vec![40; 4]));
        assert_eq!(shared(&[30, 400], Work::Prompts, 512), None, "a group costs less");
        assert_eq!(shared(&[30, 28, 31, 40], Work::Prompts, 20), None, "there is no room");
        assert_eq!(shared(&[1, 1, 1, 1, 1, 1, 2], Work::Answers, 64), None, "one of the slots has no room");
        let mut widths = [1, 3];
        assert!(!share_group(&mut widths, Work::Answers, Costs::CPU, 64, |_, _| true) && widths == [1, 3]);
    }

    #[test]
    fn guesses_win_what_the_padding_of_others_costs() {
        // One known token each of four slots; then two of them have a guess, and one has two more.
        let places = [(0.0, 4), (0.5, 2), (0.1, 1), (0.2, 1), (0.0, 0)];
        assert_eq!(worthy_width(&places, 4, 0.0), 4);
        assert_eq!(worthy_width(&places, 4, 0.04), 4, "what the third loses the fourth wins");
        assert_eq!(worthy_width(&places, 4, 0.06), 2);
        assert_eq!(worthy_width(&places, 4, 0.3), 0);
    }

    #[test]
    fn on_a_gpu_only_long_runs_are_worth_another_shape() {
        let answers = |demands: &[(usize, usize)]| {
            let demands: Vec<_> = demands.iter().map(|&(slot, pending)| demand(slot, pending)).collect();
            let mut shares = Vec::new();
            plan(Work::Answers, &demands, ALONE, Costs::GPU, &mut shares);
            shares
        };
        assert_eq!(answers(&[(0, 3)]), [1]);
        assert_eq!(answers(&[(0, 4)]), [4]);
        assert_eq!(answers(&[(0, 1), (1, 3)]), [1, 1]);
        assert_eq!(answers(&[(0, 1), (1, 9)]), [1, 9]);
        assert_eq!(answers(&[(0, 1), (1, 1), (2, 1), (3, 8)]), [1; 4]);
    }

    #[test]
    fn guesses_on_a_gpu_fill_what_is_free() {
        let widths = |costs: Costs| [1, 2, 3, 4, 5, 64].map(|slots| costs.guessing_width(slots));
        assert_eq!(widths(Costs::GPU), [8, 4, 2, 2, 1, 1].map(Some));
        assert_eq!(widths(Costs::CPU), [None; 6]);
    }

    #[test]
    fn a_gpu_copies_all_of_a_slot_and_a_cpu_what_is_used() {
        let copy = |costs: Costs, cells| costs.with_slots_of(150_000).copy_of(cells);
        assert_eq!((copy(Costs::CPU, 0), copy(Costs::CPU, 6400)), (1, 101));
        assert_eq!((copy(Costs::GPU, 0), copy(Costs::GPU, 6400)), (148, 148));
    }

    #[test]
    fn a_span_stays_until_its_idle_slots_have_cost_as_much_as_another() {
        let mut span = Span::default();
        assert_eq!(span.cover(2..10, Costs::GPU), 2..10);
        assert_eq!(span.cover(2..12, Costs::GPU), 2..12, "what is needed is there at once");
        for _ in 0..32 {
            assert_eq!(span.cover(2..10, Costs::GPU), 2..12);
        }
        assert_eq!(span.cover(2..10, Costs::GPU), 2..10);
        assert_eq!(span.cover(0..64, Costs::GPU), 0..64);
        assert_eq!(span.cover(5..6, Costs::GPU), 0..64);
        assert_eq!(span.cover(0..64, Costs::GPU), 0..64, "used again");
        assert_eq!(span.cover(5..6, Costs::GPU), 0..64);
        assert_eq!(span.cover(5..6, Costs::GPU), 5..6);
    }

    /// How many groups llama.cpp makes of slots with these numbers of tokens.
    fn groups(widths: &[usize]) -> usize {
        let mut groups = 0;
        let mut left = widths.to_vec();
        while let Some(start) = left.iter().position(|&width| width > 0) {
            let end =
                left[start..].iter().position(|&width| width == 0).map_or(left.len(), |end| start + end);
            let common = left[start..end].iter().copied().min().unwrap_or(0);
            left[start..end].iter_mut().for_each(|width| *width -= common);
            groups += 1;
        }
        groups
    }

    #[test]
    fn leveling_saves_groups_and_keeps_within_its_bounds() {
        let mut state = 11_u64;
        let mut random = |bound: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((state >> 33) % bound) as usize
        };
        let (mut before, mut after, mut paid, mut worth) = (0, 0, 0, 0);
        for round in 0..5000 {
            let widths: Vec<usize> = (0..=random(40)).map(|_| random(40)).collect();
            let spare = random(400);
            let work = if round % 2 == 0 { Work::Prompts } else { Work::Answers };
            let costs = if round % 3 == 0 { Costs::CPU } else { Costs::GPU };
            let level = leveled(&widths, work, costs, spare);
            assert!(widths.iter().zip(&level).all(|(own, level)| level >= own));
            let added = level.iter().sum::<usize>() - widths.iter().sum::<usize>();
            let saved = groups(&widths).checked_sub(groups(&level)).expect("never more groups");
            assert!(added <= spare, "{widths:?} {level:?}");
            (before, after) = (before + groups(&widths), after + groups(&level));
            (paid, worth) = (paid + added, worth + saved * costs.group_of(work));
        }
        assert!(after * 3 < before * 2 && paid * 2 < worth, "{before} {after} {paid} {worth}");
    }

    #[test]
    fn answers_go_along_with_prompts_where_padding_costs_less_than_a_pass() {
        let costs = Costs::CPU.without_padding();
        assert!(costs.mixes(8, 37, 512) && !costs.mixes(9, 37, 512), "256 tokens of padding");
        assert!(costs.mixes(2, 200, 512) && !costs.mixes(3, 200, 512));
        assert!(!costs.mixes(4, 40, 128), "there is no room");
        assert!(!Costs::CPU.mixes(2, 2, 512) && !Costs::GPU.mixes(2, 2, 512));

        let mixed = |demands: &[(Work, usize)], tokens| {
            let demand = |(slot, &(work, pending))| Demand { work, ..demand(slot, pending) };
            let demands: Vec<_> = demands.iter().enumerate().map(demand).collect();
            shares(Work::Mixed, &demands, Limits { tokens, ..ALONE })
        };
        let (prompt, answer) = (Work::Prompts, Work::Answers);
        assert_eq!(mixed(&[(answer, 1), (prompt, 100), (answer, 3), (prompt, 51)], 16), [1, 16, 3, 0]);
        assert_eq!(
            mixed(&[(answer, 30), (prompt, 5), (answer, 1)], 16),
            [5, 5, 1],
            "no more than the prompt has"
        );
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
            let weighs = round % 2 == 0;
            let demands: Vec<_> = slots
                .into_iter()
                .map(|slot| Demand {
                    slot,
                    work: [Work::Prompts, Work::Answers][random(2) as usize],
                    pending: 1 + random(30) as usize,
                    cost: if weighs { [1.0, 1.3, 6.0][random(3) as usize] } else { 1.0 },
                    every_output: random(5) == 0,
                    age: random(1000) * 12 + slot as u64,
                })
                .collect();
            let work = [Work::Prompts, Work::Answers, Work::Mixed][round % 3];
            let demands: Vec<_> = match work {
                Work::Mixed => demands,
                _ => demands.into_iter().map(|demand| Demand { work, ..demand }).collect(),
            };
            let tokens = if work == Work::Answers { ALONE.tokens } else { 1 + random(60) as usize };
            let least = random(10) as usize;
            let shares = shares(work, &demands, Limits { tokens, least, ..BESIDE });
            let counts =
                |(demand, _): &(&Demand, &usize)| work != Work::Mixed || demand.work == Work::Prompts;
            let used: usize = demands.iter().zip(&shares).filter(counts).map(|(_, share)| share).sum();
            let is_none = !demands.iter().zip(&shares).any(|pair| counts(&pair));
            let rows = |(demand, &share): (&Demand, &usize)| {
                if demand.every_output { share } else { share.min(1) }
            };
            assert!(used <= tokens + least);
            assert!(used > 0 || is_none || (least == 0 && tokens < 6));
            let cut = |(demand, share): &(&Demand, &usize)| {
                **share > 0
                    && **share < demand.pending
                    && !demand.every_output
                    && demand.work == Work::Prompts
            };
            let mut parts: Vec<_> = demands.iter().zip(&shares).filter(cut).collect();
            parts.sort_unstable_by_key(|(demand, _)| demand.age);
            match parts[..] {
                [] | [_] => {}
                [(old, &more), (young, &less)] => {
                    assert!(young.pending <= old.pending / 2, "{old:?} {young:?}");
                    let (less, most) = (less as f64 * young.cost, more as f64 * old.cost);
                    // Where costs differ a part of a token is left over, and the young one has a token whatever it costs.
                    let rest = if weighs { old.cost } else { 0.0 };
                    assert!(less <= (most + rest).max(young.cost), "{old:?} {young:?}");
                }
                _ => panic!("at most two are cut: {parts:?}"),
            }
            assert!(demands.iter().zip(&shares).map(rows).sum::<usize>() <= BESIDE.outputs);
            for (demand, &share) in demands.iter().zip(&shares) {
                assert!(share <= demand.pending && (demand.work == Work::Prompts || share > 0));
            }
        }
    }
}
