//! The slots of the KV cache and the choice of one for a new sequence. Plain data, owned by the engine.

use llgtrt_core::TokenId;

use crate::cells::Cells;
use crate::costs::Costs;
use crate::held::SavedState;

/// Prompt tokens a copy must save.
const MIN_COPY_GAIN: usize = 8;

/// Prompt tokens that it is worth to keep the cells of the sequence that ended last, if it has as many: its
/// conversation may go on. Of those that ended before it less, in equal steps.
const KEEP_LAST: usize = 128;

/// One sequence of the KV cache.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    /// The tokens whose cells it holds, from position 0.
    pub(crate) tokens: Cells,
    /// Whether a sequence runs in it.
    pub(crate) busy: bool,
    /// Whether its prompt is evaluated apart from the passes of others.
    pub(crate) is_apart: bool,
    /// Tokens behind those that it holds which a pass is begun over.
    pub(crate) begun: usize,
    /// When it was last given up; larger is later.
    pub(crate) released: u64,
    /// States of a recurrent model behind some of its tokens.
    pub(crate) saved: Vec<SavedState>,
    /// Numbers of tokens that it is to save such a state behind, the next one last.
    pub(crate) save_at: Vec<usize>,
}

impl Slot {
    /// The position behind all of its cells.
    pub(crate) fn end(&self) -> usize {
        self.tokens.len() + self.begun
    }
}

/// Where a new sequence goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Placement {
    /// Its slot.
    pub(crate) slot: usize,
    /// The slot whose cells it starts from, perhaps its own.
    pub(crate) source: usize,
    /// Tokens that need no evaluation.
    pub(crate) reused: usize,
    /// The free slot that takes over the cells which the slot holds now.
    pub(crate) refuge: Option<usize>,
}

/// Length of the common start.
pub(crate) fn common_prefix(a: &[TokenId], b: &[TokenId]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// What it costs the passes that slots in use have so many idle ones between them; `None`: nothing is in use on that side.
fn gap_cost(idle: Option<usize>, costs: Costs) -> usize {
    match idle {
        Some(idle) if idle <= costs.bridged() => idle * costs.bridge,
        _ => costs.lasting_group,
    }
}

/// What it adds to the cost of the passes, and that of a group, that slot `index` is in use as well.
fn passes_cost(slots: &[Slot], index: usize, costs: Costs) -> usize {
    let left = slots[..index].iter().rev().position(|slot| slot.busy);
    let right = slots[index + 1..].iter().position(|slot| slot.busy);
    let before = left.zip(right).map(|(left, right)| left + 1 + right);
    costs.lasting_group + gap_cost(left, costs) + gap_cost(right, costs) - gap_cost(before, costs)
}

/// The cheapest free slot for a prompt of `length` tokens, of which the first `usable[i]` are in slot `i`: costs
/// are tokens to evaluate, now and when a conversation goes on whose cells were overwritten, and what the slot's place
/// costs the passes. Cells worth more than those of another free slot can move there, so that a good place is no reason to
/// lose them; `keep`: whether they are worth anything. Among equals the one given up longest ago.
pub(crate) fn place(
    slots: &[Slot],
    usable: &[usize],
    length: usize,
    keep: bool,
    costs: Costs,
) -> Option<Placement> {
    let (best, best_reuse) =
        usable.iter().copied().enumerate().max_by_key(|&(index, reuse)| (reuse, std::cmp::Reverse(index)))?;
    let free = || slots.iter().enumerate().filter(|(_, slot)| !slot.busy);
    let mut ended: Vec<u64> =
        free().filter(|(_, slot)| !slot.tokens.is_empty()).map(|(_, slot)| slot.released).collect();
    ended.sort_unstable();
    // What is lost with so many of a slot's cells.
    let value = |slot: &Slot, cells: usize| {
        let age_rank = ended.partition_point(|&released| released <= slot.released);
        if keep { cells.min(KEEP_LAST) * age_rank / ended.len().max(1) } else { 0 }
    };
    // Three slots with the least to lose: a refuge is neither the slot itself nor the source.
    let mut least: Vec<(usize, u64, usize)> =
        free().map(|(index, slot)| (value(slot, slot.tokens.len()), slot.released, index)).collect();
    least.sort_unstable();
    least.truncate(3);
    free()
        .map(|(index, slot)| {
            let own = usable[index];
            let stay = length - own;
            let copy = length - best_reuse + costs.copy_of(slots[best].tokens.len());
            let copied = best_reuse >= own + MIN_COPY_GAIN && copy < stay;
            let (source, reused) = if copied { (best, best_reuse) } else { (index, own) };

            let overwritten = value(slot, slot.tokens.len().saturating_sub(own));
            let refuge = least.iter().find(|&&(_, _, refuge)| refuge != index && refuge != source);
            let moved = refuge.map(|&(value, _, refuge)| (value + costs.copy_of(slot.tokens.len()), refuge));
            let (lost, refuge) = match moved {
                Some((lost, refuge)) if lost < overwritten => (lost, Some(refuge)),
                _ => (overwritten, None),
            };
            let cost = if copied { copy } else { stay } + lost + passes_cost(slots, index, costs);
            (cost, slot.released, Placement { slot: index, source, reused, refuge })
        })
        .min_by_key(|&(cost, released, placement)| (cost, released, placement.slot))
        .map(|(_, _, placement)| placement)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slots(states: &[(usize, bool, u64)]) -> Vec<Slot> {
        let slot = |&(cells, busy, released)| Slot {
            tokens: vec![7; cells].into(),
            busy,
            released,
            ..Slot::default()
        };
        states.iter().map(slot).collect()
    }

    fn placed(slots: &[Slot], usable: &[usize], length: usize) -> Placement {
        place(slots, usable, length, true, Costs::CPU).unwrap()
    }

    fn at(slot: usize, source: usize, reused: usize) -> Placement {
        Placement { slot, source, reused, refuge: None }
    }

    #[test]
    fn the_longest_start_wins_and_stays_in_place() {
        let slots = slots(&[(300, false, 2), (405, false, 3), (0, false, 0)]);
        assert_eq!(placed(&slots, &[100, 400, 0], 450), at(1, 1, 400));
    }

    #[test]
    fn among_equals_the_oldest_is_taken() {
        let slots = slots(&[(64, false, 5), (64, false, 4), (64, false, 6)]);
        assert_eq!(placed(&slots, &[3, 3, 3], 50).slot, 1);
    }

    #[test]
    fn neighbours_of_busy_slots_are_preferred() {
        let slots = slots(&[(0, false, 0), (0, false, 0), (0, false, 0), (9, true, 0), (0, false, 0)]);
        assert_eq!(placed(&slots, &[0; 5], 50).slot, 2);
    }

    #[test]
    fn a_gap_is_filled_first() {
        let slots =
            slots(&[(9, true, 0), (0, false, 0), (9, true, 0), (0, false, 0), (0, false, 0), (0, false, 0)]);
        assert_eq!(placed(&slots, &[0; 6], 50).slot, 1);
    }

    #[test]
    fn a_busy_slot_is_copied_when_that_saves_tokens() {
        let slots = slots(&[(100, true, 0), (0, false, 0)]);
        assert_eq!(placed(&slots, &[90, 0], 91), at(1, 0, 90));
        assert_eq!(placed(&slots, &[5, 0], 91), at(1, 1, 0));
    }

    #[test]
    fn conversations_that_share_a_beginning_keep_their_own_slots() {
        // Of the first conversation's 500 tokens only a system prompt of 60 is shared: it is copied, not cut.
        let one = slots(&[(500, false, 1), (0, false, 0)]);
        assert_eq!(placed(&one, &[60, 0], 100), at(1, 0, 60));
        // A long shared beginning is no reason to lose an answer either.
        let one = slots(&[(2300, false, 1), (0, false, 0)]);
        assert_eq!(placed(&one, &[2000, 0], 2100), at(1, 0, 2000));
        // Where no slot is empty, the one given up longest ago is overwritten, even if it holds more.
        let full = slots(&[(100, false, 6), (500, false, 1), (100, false, 4), (100, false, 5)]);
        assert_eq!(placed(&full, &[0; 4], 80).slot, 1);
        // A conversation that goes on stays where it is.
        assert_eq!(placed(&full, &[100, 0, 0, 0], 140), at(0, 0, 100));
    }

    #[test]
    fn a_conversation_goes_on_beside_the_others() {
        let slots = slots(&[(500, false, 1), (0, false, 0), (0, false, 0), (0, false, 0), (9, true, 0)]);
        assert_eq!(placed(&slots, &[500, 0, 0, 0, 0], 520), at(3, 0, 500));
    }

    #[test]
    fn cells_move_out_of_a_good_place() {
        let talk = (300, false, 9);
        let one =
            slots(&[(0, false, 0), (0, false, 0), (0, false, 0), (0, false, 0), talk, (9, true, 0), talk]);
        assert_eq!(placed(&one, &[0; 7], 50), Placement { refuge: Some(0), ..at(4, 4, 0) });
        assert_eq!(place(&one, &[0; 7], 50, false, Costs::CPU).unwrap(), at(4, 4, 0));
        // Also those behind a beginning that is reused.
        let two = slots(&[(0, false, 0), (900, false, 1), (0, true, 0)]);
        assert_eq!(placed(&two, &[0, 80, 0], 100), Placement { refuge: Some(0), ..at(1, 1, 80) });
        // They stay where all other cells are worth as much.
        let old = slots(&[(200, false, 1), (300, false, 2), (0, true, 0)]);
        assert_eq!(placed(&old, &[150, 0, 0], 160), at(0, 0, 150));
    }

    /// A conversation, by its first token, and its length; the slot where it runs and until when, or when it goes on.
    struct Client {
        talk: TokenId,
        length: usize,
        slot: Option<usize>,
        until: u64,
    }

    /// 16 clients with conversations and pauses over 64 slots: busy slots stay together, and cells are not lost for it.
    #[test]
    fn busy_slots_stay_together() {
        let mut state = 7_u64;
        let mut random = |bound: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % bound
        };
        let mut clients: Vec<_> =
            (0..16).map(|id| Client { talk: id, length: 0, slot: None, until: u64::from(id) }).collect();
        let mut slots: Vec<Slot> = (0..64).map(|_| Slot::default()).collect();
        let (mut talks, mut groups, mut evaluated, mut prompts) = (16, 0, 0, 0);
        for step in 0..4000 {
            for client in clients.iter_mut().filter(|client| client.until == step) {
                if let Some(slot) = client.slot.take() {
                    client.until = step + 1 + random(100);
                    (slots[slot].busy, slots[slot].released) = (false, step);
                    if random(5) == 0 {
                        (client.talk, client.length) = (talks, 0);
                        talks += 1;
                    }
                    continue;
                }
                client.length += 100;
                let known = |slot: &Slot| {
                    if slot.tokens.first() == Some(&client.talk) { slot.tokens.len() } else { 0 }
                };
                let usable: Vec<usize> =
                    slots.iter().map(|slot| known(slot).min(client.length - 1)).collect();
                let Placement { slot, reused, refuge, .. } = placed(&slots, &usable, client.length);
                if let Some(refuge) = refuge {
                    let moved = slots[slot].tokens.to_vec();
                    (slots[refuge].tokens, slots[refuge].released) = (moved.into(), slots[slot].released);
                }
                (prompts, evaluated) = (prompts + 100, evaluated + client.length - reused);
                let answer = 20 + random(180);
                client.length += answer as usize;
                (slots[slot].busy, slots[slot].tokens) = (true, vec![client.talk; client.length].into());
                (client.slot, client.until) = (Some(slot), step + answer);
            }
            let busy: Vec<usize> = (0..64).filter(|&slot| slots[slot].busy).collect();
            groups += 1 + busy.windows(2).filter(|pair| pair[1] - pair[0] > 1 + Costs::CPU.group).count();
        }
        assert!(groups < 4000 * 13 / 10, "{groups} passes in 4000 steps");
        assert!(evaluated < prompts * 11 / 10, "{evaluated} tokens evaluated of {prompts} new ones");
    }

    #[test]
    fn no_free_slot_is_no_placement() {
        assert_eq!(place(&slots(&[(1, true, 0)]), &[1], 3, true, Costs::CPU), None);
    }
}
