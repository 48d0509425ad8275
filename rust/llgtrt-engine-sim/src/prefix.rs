//! A pretended prefix cache: blocks of tokens, the one used longest ago goes first. Owned by the engine.

use std::sync::Arc;

use llgtrt_core::{BlockHash, KvBlocks, KvEventQueue, TokenId, block_hash};
use lru::LruCache;

/// Tokens of a block where nobody is told of them.
const BLOCK_TOKENS: usize = 16;

/// Which beginnings of sequences need no evaluation.
pub(crate) struct PrefixCache {
    block_tokens: usize,
    /// Most blocks.
    capacity: usize,
    /// The most recent first. A block is used after all behind it, so that the oldest one has none behind it.
    used: LruCache<BlockHash, ()>,
    told: Option<KvBlocks>,
}

impl PrefixCache {
    /// A cache of so many tokens, in whole blocks; `None` if there is no room for one.
    pub(crate) fn new(tokens: u32, queue: Option<Arc<KvEventQueue>>) -> Option<Self> {
        let block_tokens = queue.as_ref().map_or(BLOCK_TOKENS, |queue| queue.block_tokens());
        let capacity = tokens as usize / block_tokens;
        let told = queue.map(KvBlocks::new);
        (capacity > 0).then(|| Self { block_tokens, capacity, used: LruCache::unbounded(), told })
    }

    /// How many tokens of a prompt are there; never all, as the logits of the last one are needed.
    pub(crate) fn find(&mut self, prompt: &[TokenId]) -> u32 {
        let mut chain = self.chain(prompt);
        let known = chain.iter().take_while(|hash| self.used.contains(hash)).count();
        chain.truncate(known);
        self.touch(&chain);
        (known * self.block_tokens).min(prompt.len().saturating_sub(1)) as u32
    }

    /// Keeps the whole blocks of a sequence.
    pub(crate) fn store<'a>(&mut self, tokens: impl Iterator<Item = &'a TokenId>) {
        let tokens: Vec<TokenId> = tokens.copied().take(self.capacity * self.block_tokens).collect();
        let chain = self.chain(&tokens);
        let mut parent = None;
        for (&hash, block) in chain.iter().zip(tokens.chunks_exact(self.block_tokens)) {
            if !self.used.contains(&hash) {
                self.used.put(hash, ());
                if let Some(told) = &mut self.told {
                    told.hold(parent, block);
                }
            }
            parent = Some(hash);
        }
        self.touch(&chain);
        while self.used.len() > self.capacity
            && let Some((oldest, ())) = self.used.pop_lru()
        {
            if let Some(told) = &mut self.told {
                told.release(oldest);
            }
        }
    }

    /// Tells of what has changed.
    pub(crate) fn publish(&mut self) {
        if let Some(told) = &mut self.told {
            told.publish();
        }
    }

    fn chain(&self, tokens: &[TokenId]) -> Vec<BlockHash> {
        let mut chain = Vec::with_capacity(tokens.len() / self.block_tokens);
        for block in tokens.chunks_exact(self.block_tokens) {
            chain.push(block_hash(chain.last().copied(), block));
        }
        chain
    }

    fn touch(&mut self, chain: &[BlockHash]) {
        for hash in chain.iter().rev() {
            self.used.promote(hash);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use llgtrt_core::KvEvent;
    use std::time::Duration;

    fn tokens(start: u32, count: u32) -> Vec<TokenId> {
        (start..start + count).collect()
    }

    #[test]
    fn the_oldest_ending_goes_first_and_the_router_learns_of_it() {
        let queue = KvEventQueue::new(4);
        let mut cache = PrefixCache::new(16, Some(Arc::clone(&queue))).unwrap();
        cache.store(tokens(0, 13).iter());
        assert_eq!(cache.find(&tokens(0, 40)), 12);
        assert_eq!(cache.find(&tokens(0, 12)), 11, "the last token is evaluated again");
        cache.store(tokens(100, 8).iter());
        cache.publish();
        // Five blocks, of which the last of the older sequence had to go: it came and went unsaid.
        let told = queue.take(Duration::ZERO).unwrap();
        assert!(told.iter().all(|event| matches!(event, KvEvent::Stored { .. })), "{told:?}");
        assert_eq!(cache.find(&tokens(0, 40)), 8);
        assert_eq!(cache.find(&tokens(100, 40)), 8);
        cache.store(tokens(200, 16).iter());
        cache.publish();
        let told = queue.take(Duration::ZERO).unwrap();
        let [KvEvent::Removed { hashes }, KvEvent::Stored { parent: None, hashes: stored, .. }] = &told[..]
        else {
            panic!("{told:?}");
        };
        assert_eq!((hashes.len(), stored.len()), (4, 4));
        assert_eq!(cache.find(&tokens(0, 40)), 0);
    }

    #[test]
    fn a_sequence_longer_than_the_cache_leaves_its_beginning() {
        let mut cache = PrefixCache::new(40, None).unwrap();
        cache.store(tokens(0, 100).iter());
        assert_eq!(cache.find(&tokens(0, 100)), 32);
        assert!(PrefixCache::new(15, None).is_none());
    }
}
