//! The tokens in a slot of the KV cache, and what of them a router may be told. Plain data, owned by the engine.

use std::sync::Arc;

use llgtrt_core::{BlockHash, KvBlocks, KvEventQueue, TokenId};

/// The tokens whose cells a slot holds, from position 0. Knows how many stayed since it was last asked.
#[derive(Debug, Default)]
pub(crate) struct Cells {
    tokens: Vec<TokenId>,
    unchanged: usize,
}

impl Cells {
    pub(crate) fn push(&mut self, token: TokenId) {
        self.tokens.push(token);
    }

    pub(crate) fn truncate(&mut self, length: usize) {
        self.tokens.truncate(length);
        self.unchanged = self.unchanged.min(length);
    }

    pub(crate) fn clear(&mut self) {
        self.truncate(0);
    }

    pub(crate) fn extend(&mut self, tokens: &[TokenId]) {
        self.tokens.extend_from_slice(tokens);
    }

    /// How many tokens at the beginning have not changed since the last call.
    fn take_unchanged(&mut self) -> usize {
        std::mem::replace(&mut self.unchanged, self.tokens.len())
    }
}

impl std::ops::Deref for Cells {
    type Target = [TokenId];

    fn deref(&self) -> &[TokenId] {
        &self.tokens
    }
}

impl From<Vec<TokenId>> for Cells {
    fn from(tokens: Vec<TokenId>) -> Self {
        Self { tokens, unchanged: 0 }
    }
}

/// The whole blocks of every slot. A block that is in any slot can be reused, even one in a busy slot: it is copied.
#[derive(Debug)]
pub(crate) struct SlotBlocks {
    blocks: KvBlocks,
    slots: Vec<Vec<BlockHash>>,
}

impl SlotBlocks {
    pub(crate) fn new(slots: usize, queue: Arc<KvEventQueue>) -> Self {
        Self { blocks: KvBlocks::new(queue), slots: vec![Vec::new(); slots] }
    }

    /// Takes note of what a slot holds now.
    pub(crate) fn update(&mut self, slot: usize, cells: &mut Cells) {
        let size = self.blocks.block_tokens();
        let held = &mut self.slots[slot];
        let unchanged = cells.take_unchanged() / size;
        while held.len() > unchanged
            && let Some(hash) = held.pop()
        {
            self.blocks.release(hash);
        }
        for tokens in cells.chunks_exact(size).skip(held.len()) {
            held.push(self.blocks.hold(held.last().copied(), tokens));
        }
    }

    /// Tells of what has changed in all slots.
    pub(crate) fn publish(&mut self) {
        self.blocks.publish();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use llgtrt_core::{KvEvent, block_hash};
    use std::time::Duration;

    fn chain(tokens: &[TokenId]) -> Vec<BlockHash> {
        let mut hashes = Vec::new();
        for block in tokens.chunks_exact(2) {
            hashes.push(block_hash(hashes.last().copied(), block));
        }
        hashes
    }

    struct Fixture {
        cells: Vec<Cells>,
        blocks: SlotBlocks,
        queue: Arc<KvEventQueue>,
    }

    impl Fixture {
        fn new(slots: usize) -> Self {
            let queue = KvEventQueue::new(2);
            let cells = (0..slots).map(|_| Cells::default()).collect();
            Self { cells, blocks: SlotBlocks::new(slots, Arc::clone(&queue)), queue }
        }

        fn told(&mut self) -> Vec<KvEvent> {
            for (slot, cells) in self.cells.iter_mut().enumerate() {
                self.blocks.update(slot, cells);
            }
            self.blocks.publish();
            self.queue.take(Duration::ZERO).unwrap()
        }
    }

    fn stored(parent: Option<BlockHash>, hashes: &[BlockHash], tokens: &[TokenId]) -> KvEvent {
        KvEvent::Stored { parent, hashes: hashes.to_vec(), tokens: tokens.to_vec() }
    }

    #[test]
    fn a_growing_slot_tells_whole_blocks_once() {
        let mut slots = Fixture::new(1);
        slots.cells[0].extend(&[1, 2, 3]);
        let hashes = chain(&[1, 2, 3, 4]);
        assert_eq!(slots.told(), [stored(None, &hashes[..1], &[1, 2])]);
        assert!(slots.told().is_empty());
        slots.cells[0].push(4);
        assert_eq!(slots.told(), [stored(Some(hashes[0]), &hashes[1..], &[3, 4])]);
    }

    #[test]
    fn a_slot_that_is_overwritten_between_two_calls_tells_both() {
        let mut slots = Fixture::new(1);
        slots.cells[0].extend(&[1, 2, 3, 4, 5, 6]);
        slots.told();
        let (old, new) = (chain(&[1, 2, 3, 4, 5, 6]), chain(&[1, 2, 3, 9, 5, 6, 7, 8]));
        slots.cells[0].truncate(3);
        slots.cells[0].extend(&[9, 5, 6, 7, 8]);
        let removed = KvEvent::Removed { hashes: vec![old[2], old[1]] };
        let tail = stored(Some(new[0]), &new[1..], &[3, 9, 5, 6, 7, 8]);
        assert_eq!(slots.told(), [removed, tail]);
    }

    #[test]
    fn a_copied_beginning_stays_when_either_slot_goes_on() {
        let mut slots = Fixture::new(2);
        slots.cells[0].extend(&[1, 2, 3, 4]);
        slots.told();
        slots.cells[1].extend(&[1, 2, 3, 4]);
        assert!(slots.told().is_empty());
        slots.cells[0].clear();
        assert!(slots.told().is_empty());
        slots.cells[1].truncate(2);
        let last = chain(&[1, 2, 3, 4])[1];
        assert_eq!(slots.told(), [KvEvent::Removed { hashes: vec![last] }]);
    }
}
