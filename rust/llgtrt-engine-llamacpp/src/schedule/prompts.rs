//! How the tokens of a pass over prompts are divided: the oldest prompt goes first, and short ones do not wait for the end of a
//! long one.

use super::{Demand, Limits, Outputs, Work};

/// Shares of prompts, the oldest first. The first that the pass does not finish leaves half of what there is to those behind
/// it, the shortest first: whole ones, and a part of one that has half as much to go or less. So each prompt is read at half the
/// speed of one that is alone or faster, when it is the oldest and when it is the shortest.
pub(super) fn prompt_shares(demands: &[Demand], limits: Limits, outputs: &mut Outputs, shares: &mut [usize]) {
    let mut left = limits.tokens as f64;
    let mut oldest_first: Vec<usize> =
        (0..demands.len()).filter(|&i| demands[i].work == Work::Prompts).collect();
    oldest_first.sort_unstable_by_key(|&i| demands[i].age);
    let pending = |&index: &usize| demands[index].pending;
    let ends_in = |&index: &usize, left: f64| demands[index].pending as f64 * demands[index].cost <= left;
    let within = |index: usize, left: f64| (left / demands[index].cost) as usize;
    let mut grant = |index: usize, share: usize, left: &mut f64| {
        shares[index] = outputs.grant(&demands[index], 0, share);
        *left -= shares[index] as f64 * demands[index].cost;
    };
    let mut whole = 0;
    while let Some(index) = oldest_first.get(whole).filter(|index| ends_in(index, left)) {
        grant(*index, pending(index), &mut left);
        whole += 1;
    }
    let Some((long, younger)) = oldest_first[whole..].split_first_mut() else { return };
    younger.sort_by_key(|index| pending(index));
    let mut half = left / 2.0;
    let mut next = 0;
    for index in &*younger {
        let share = pending(index).min(within(*index, half).max(usize::from(half >= 1.0)));
        let is_whole = share == pending(index);
        if share == 0 || (!is_whole && pending(index) > pending(long) / 2) {
            break;
        }
        grant(*index, share, &mut left);
        half -= share as f64 * demands[*index].cost;
        next += 1;
        if !is_whole {
            break;
        }
    }
    grant(*long, pending(long).min(within(*long, left).max(limits.least)), &mut left);
    // Where the long one has no room for more rows of logits.
    for index in &younger[next..] {
        if ends_in(index, left) {
            grant(*index, pending(index), &mut left);
        }
    }
}

/// How many tokens a pass over prompts has while nothing is generated: `most`, or fewer where that has a short one done soon
/// that it finishes, and others keep the next passes full. `pace` are those of a pass beside sequences that generate.
pub(crate) fn tokens_of_prompts(
    pending: impl Iterator<Item = usize> + Clone,
    pace: usize,
    most: usize,
) -> usize {
    let (shortest, longest) = (pending.clone().min().unwrap_or(0), pending.max().unwrap_or(0));
    if longest > most && shortest <= most / 4 { pace.max(2 * shortest).min(most) } else { most }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of prompts of so many tokens, the oldest first.
    fn prompts(pending: &[usize], tokens: usize) -> Vec<usize> {
        let demand = |(slot, &pending)| Demand {
            slot,
            work: Work::Prompts,
            pending,
            cost: 1.0,
            every_output: false,
            age: slot as u64,
        };
        shares(&pending.iter().enumerate().map(demand).collect::<Vec<_>>(), tokens, 32)
    }

    fn shares(demands: &[Demand], tokens: usize, outputs: usize) -> Vec<usize> {
        let mut shares = vec![0; demands.len()];
        let limits = Limits { tokens, least: 0, outputs };
        prompt_shares(demands, limits, &mut Outputs { spare: outputs - demands.len() }, &mut shares);
        shares
    }

    #[test]
    fn the_oldest_goes_first() {
        let demand = |slot, pending, age| Demand {
            slot,
            work: Work::Prompts,
            pending,
            cost: 1.0,
            every_output: false,
            age,
        };
        assert_eq!(shares(&[demand(1, 40, 8), demand(2, 10, 7)], 16, 32), [6, 10]);
        assert_eq!(prompts(&[40, 10], 64), [40, 10]);
        assert_eq!(prompts(&[100, 51], 64), [64, 0]);
    }

    #[test]
    fn a_long_prompt_leaves_half_of_a_pass_to_short_ones() {
        assert_eq!(prompts(&[100, 5], 64), [59, 5]);
        assert_eq!(prompts(&[100, 30, 5, 2, 1], 64), [32, 24, 5, 2, 1], "the shortest first");
        assert_eq!(prompts(&[90, 200, 6], 16), [10, 0, 6], "and none to other long ones");
        assert_eq!(prompts(&[10, 90, 3], 16), [10, 3, 3]);
        assert_eq!(prompts(&[90, 1], 1), [1, 0]);
    }

    #[test]
    fn a_short_prompt_that_does_not_fit_goes_on_beside_a_long_one() {
        assert_eq!(prompts(&[3000, 40], 16), [8, 8]);
        assert_eq!(prompts(&[3000, 40, 41], 16), [8, 8, 0], "one of them");
        assert_eq!(prompts(&[3000, 1500], 64), [32, 32]);
        assert_eq!(prompts(&[3000, 1501], 64), [64, 0], "it is no short one");
        // Steps until it is done, beside a prompt that would take a thousand.
        let (mut pending, mut steps) = ([16_000, 40], 0);
        while pending[1] > 0 {
            let shares = prompts(&pending, 16);
            pending = [pending[0] - shares[0], pending[1] - shares[1]];
            steps += 1;
        }
        assert_eq!(steps, 5);
    }

    #[test]
    fn the_oldest_is_done_however_many_short_ones_come() {
        let (mut long, mut steps) = (1000, 0);
        while long > 0 {
            long -= prompts(&[long, 7, 9, 11, 6, 8], 64)[0];
            steps += 1;
        }
        assert!(steps <= 1000 / 32 + 1, "{steps}");
    }

    #[test]
    fn others_have_what_a_prompt_with_many_rows_of_logits_leaves() {
        let demand = |slot, pending, every_output| Demand {
            slot,
            work: Work::Prompts,
            pending,
            cost: 1.0,
            every_output,
            age: slot as u64,
        };
        let demands = [demand(0, 100, true), demand(1, 40, false), demand(2, 4, false)];
        assert_eq!(shares(&demands, 64, 16), [14, 28, 4]);
    }

    #[test]
    fn a_token_counts_for_what_it_costs() {
        let of = |pending: &[(usize, f64)], tokens, least| {
            let demand = |(slot, &(pending, cost))| Demand {
                slot,
                work: Work::Prompts,
                pending,
                cost,
                every_output: false,
                age: slot as u64,
            };
            let demands: Vec<_> = pending.iter().enumerate().map(demand).collect();
            let mut shares = vec![0; demands.len()];
            let limits = Limits { tokens, least, outputs: 32 };
            prompt_shares(&demands, limits, &mut Outputs { spare: 30 }, &mut shares);
            shares
        };
        assert_eq!(of(&[(7000, 6.0)], 24, 0), [4]);
        assert_eq!(of(&[(7000, 6.0), (40, 1.0)], 24, 0), [2, 12]);
        assert_eq!(of(&[(7000, 6.0), (40, 1.0)], 24, 4), [4, 12], "however much they cost");
        assert_eq!(of(&[(3, 6.0), (40, 1.0)], 24, 4), [3, 6]);
        assert_eq!(of(&[(5, 6.0), (4, 3.0)], 24, 0), [2, 4], "the second is whole, and half of the pass");
        assert_eq!(of(&[(7000, 2.0), (3, 9.0), (40, 1.0)], 8, 4), [4, 1, 0], "the shortest goes on");
    }

    #[test]
    fn a_pass_that_finishes_a_short_prompt_beside_a_long_one_is_short() {
        let tokens = |pending: &[usize], pace| tokens_of_prompts(pending.iter().copied(), pace, 512);
        assert_eq!(tokens(&[3000, 40], 150), 150);
        assert_eq!(tokens(&[3000, 40], 24), 80, "half of it is the long one's");
        assert_eq!(tokens(&[3000, 40], 2000), 512);
        assert_eq!(tokens(&[3000, 300], 24), 512, "it is not short");
        assert_eq!(tokens(&[400, 40], 24), 512, "a pass finishes both");
        assert_eq!(tokens(&[40; 100], 24), 512);
        assert_eq!(tokens(&[], 24), 512);
    }
}
