//! The slots of the KV cache and the choice of one for a new sequence. Plain data, owned by the engine.

use llgtrt_core::TokenId;

use crate::cells::Cells;

/// Prompt tokens that one more group of slots in a forward pass is worth avoiding. llama.cpp evaluates slots
/// with consecutive numbers in one pass over the weights, and each further group in a pass of its own.
const GROUP_COST: usize = 64;

/// Copying a slot costs as much as evaluating one token per this many cells copied.
const CELLS_PER_COPY_COST: usize = 64;

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
    /// When it was last given up; larger is later.
    pub(crate) released: u64,
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
}

/// Length of the common start.
pub(crate) fn common_prefix(a: &[TokenId], b: &[TokenId]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// The cheapest free slot for a prompt of `length` tokens, of which the first `usable[i]` are in slot `i`: costs
/// are tokens to evaluate, now and when a conversation goes on whose cells were overwritten.
/// Among equals the one given up longest ago.
pub(crate) fn place(slots: &[Slot], usable: &[usize], length: usize) -> Option<Placement> {
    let (best, best_reuse) =
        usable.iter().copied().enumerate().max_by_key(|&(index, reuse)| (reuse, std::cmp::Reverse(index)))?;
    let copy_cost = 1 + slots[best].tokens.len() / CELLS_PER_COPY_COST;
    let busy = |index: Option<usize>| index.and_then(|i| slots.get(i)).is_some_and(|slot| slot.busy);
    let free = slots.iter().enumerate().filter(|(_, slot)| !slot.busy);
    let ended: Vec<u64> =
        free.clone().filter(|(_, slot)| !slot.tokens.is_empty()).map(|(_, slot)| slot.released).collect();
    let cost = |index: usize, slot: &Slot| {
        let own = usable[index];
        let overwritten = slot.tokens.len() - own.min(slot.tokens.len());
        let age_rank = ended.iter().filter(|&&released| released <= slot.released).count();
        let lost = overwritten.min(KEEP_LAST) * age_rank / ended.len().max(1);
        // Joining two groups saves one, standing alone adds one.
        let neighbours = usize::from(busy(index.checked_sub(1))) + usize::from(busy(Some(index + 1)));
        let groups = (2 - neighbours) * GROUP_COST;
        let stay = length - own;
        let copy = length - best_reuse + copy_cost;
        let copied = best_reuse >= own + MIN_COPY_GAIN && copy < stay;
        (if copied { copy } else { stay } + lost + groups, copied)
    };
    free.map(|(index, slot)| {
        let (cost, copied) = cost(index, slot);
        let (source, reused) = if copied { (best, best_reuse) } else { (index, usable[index]) };
        (cost, slot.released, Placement { slot: index, source, reused })
    })
    .min_by_key(|&(cost, released, placement)| (cost, released, placement.slot))
    .map(|(_, _, placement)| placement)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slots(states: &[(usize, bool, u64)]) -> Vec<Slot> {
        let slot = |&(cells, busy, released)| Slot { tokens: vec![7; cells].into(), busy, released };
        states.iter().map(slot).collect()
    }

    #[test]
    fn the_longest_start_wins_and_stays_in_place() {
        let slots = slots(&[(300, false, 2), (405, false, 3), (0, false, 0)]);
        let placed = place(&slots, &[100, 400, 0], 450).unwrap();
        assert_eq!(placed, Placement { slot: 1, source: 1, reused: 400 });
    }

    #[test]
    fn among_equals_the_oldest_is_taken() {
        let slots = slots(&[(64, false, 5), (64, false, 4), (64, false, 6)]);
        assert_eq!(place(&slots, &[3, 3, 3], 50).unwrap().slot, 1);
    }

    #[test]
    fn neighbours_of_busy_slots_are_preferred() {
        let slots = slots(&[(0, false, 0), (0, false, 0), (0, false, 0), (9, true, 0), (0, false, 0)]);
        assert_eq!(place(&slots, &[0; 5], 50).unwrap().slot, 2);
    }

    #[test]
    fn a_gap_is_filled_first() {
        let slots =
            slots(&[(9, true, 0), (0, false, 0), (0, false, 0), (9, true, 0), (0, false, 9), (9, true, 0)]);
        assert_eq!(place(&slots, &[0; 6], 50).unwrap().slot, 4);
    }

    #[test]
    fn a_busy_slot_is_copied_when_that_saves_tokens() {
        let slots = slots(&[(100, true, 0), (0, false, 0)]);
        assert_eq!(place(&slots, &[90, 0], 91).unwrap(), Placement { slot: 1, source: 0, reused: 90 });
        assert_eq!(place(&slots, &[5, 0], 91).unwrap(), Placement { slot: 1, source: 1, reused: 0 });
    }

    #[test]
    fn conversations_that_share_a_beginning_keep_their_own_slots() {
        // Of the first conversation's 500 tokens only a system prompt of 60 is shared: it is copied, not cut.
        let one = slots(&[(500, false, 1), (0, false, 0)]);
        assert_eq!(place(&one, &[60, 0], 100).unwrap(), Placement { slot: 1, source: 0, reused: 60 });
        // A long shared beginning is no reason to lose an answer either.
        let one = slots(&[(2300, false, 1), (0, false, 0)]);
        assert_eq!(place(&one, &[2000, 0], 2100).unwrap(), Placement { slot: 1, source: 0, reused: 2000 });
        // Where no slot is empty, the one given up longest ago is overwritten, even if it holds more.
        let full = slots(&[(100, false, 6), (500, false, 1), (100, false, 4), (100, false, 5)]);
        assert_eq!(place(&full, &[0; 4], 80).unwrap().slot, 1);
        // A conversation that goes on stays where it is.
        assert_eq!(
            place(&full, &[100, 0, 0, 0], 140).unwrap(),
            Placement { slot: 0, source: 0, reused: 100 }
        );
    }

    #[test]
    fn no_free_slot_is_no_placement() {
        assert_eq!(place(&slots(&[(1, true, 0)]), &[1], 3), None);
    }
}
