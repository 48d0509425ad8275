//! What a prefix cache holds, told block by block: routers send a prompt to the worker that has its beginning.
//!
//! A block is so many tokens behind all that come before them. The engine's thread holds and releases blocks in a
//! [`KvBlocks`], which puts what changed into a [`KvEventQueue`]; one reader takes it from there. The queue is
//! bounded: when nobody reads, what is in it is replaced by everything that the cache holds, so that a slow reader
//! misses events and never the state. Nothing here blocks the engine for longer than it takes to move a list.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::TokenId;

/// Identity of a block: of its tokens and of all before it. 63 bits, so that a signed integer holds it as well.
/// Indexers take it as a name; they compute hashes of their own from the tokens.
pub type BlockHash = u64;

/// Blocks that may wait in a queue beside twice as many as the cache holds.
const SLACK_BLOCKS: usize = 1024;

/// The identity of the block of `tokens` behind `parent`.
pub fn block_hash(parent: Option<BlockHash>, tokens: &[TokenId]) -> BlockHash {
    let mut hasher = blake3::Hasher::new();
    // No block is its own parent, so that no hash can be taken for "none".
    hasher.update(&parent.map_or([0xff; 8], u64::to_le_bytes));
    for token in tokens {
        hasher.update(&token.to_le_bytes());
    }
    let mut first = [0; 8];
    hasher.finalize_xof().fill(&mut first);
    u64::from_le_bytes(first) >> 1
}

/// A change of what the cache holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KvEvent {
    /// Blocks, each behind the one before.
    Stored {
        /// The block before the first; none: the first begins the sequence.
        parent: Option<BlockHash>,
        /// Their identities.
        hashes: Vec<BlockHash>,
        /// Their tokens, the same number for each.
        tokens: Vec<TokenId>,
    },
    /// Blocks that are gone.
    Removed {
        /// Their identities; one that others stood on comes after those.
        hashes: Vec<BlockHash>,
    },
    /// Nothing is held any more of what was told before.
    Cleared,
}

impl KvEvent {
    fn blocks(&self) -> usize {
        match self {
            Self::Stored { hashes, .. } | Self::Removed { hashes } => hashes.len(),
            Self::Cleared => 0,
        }
    }
}

#[derive(Debug, Default)]
struct Queued {
    events: Vec<KvEvent>,
    blocks: usize,
    closed: bool,
}

/// Events on their way from one engine to one reader.
#[derive(Debug)]
pub struct KvEventQueue {
    block_tokens: usize,
    queued: Mutex<Queued>,
    changed: Condvar,
}

impl KvEventQueue {
    /// An empty queue for blocks of `block_tokens` tokens, at least 1.
    pub fn new(block_tokens: usize) -> Arc<Self> {
        let block_tokens = block_tokens.max(1);
        Arc::new(Self { block_tokens, queued: Mutex::default(), changed: Condvar::new() })
    }

    /// Tokens of a block.
    pub fn block_tokens(&self) -> usize {
        self.block_tokens
    }

    /// What has happened since the last call; waits for it up to `timeout`, and gives an empty list after that.
    /// `None` once the queue is closed and empty.
    pub fn take(&self, timeout: Duration) -> Option<Vec<KvEvent>> {
        let queued = self.lock();
        let waits = |queued: &mut Queued| queued.events.is_empty() && !queued.closed;
        let (mut queued, _) =
            self.changed.wait_timeout_while(queued, timeout, waits).unwrap_or_else(PoisonError::into_inner);
        if queued.events.is_empty() && queued.closed {
            return None;
        }
        queued.blocks = 0;
        Some(std::mem::take(&mut queued.events))
    }

    /// Lets the reader come to an end.
    pub fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    /// Adds `events`, unless more than `most` blocks would wait: then they stay, and it answers false.
    fn push(&self, events: &mut Vec<KvEvent>, most: usize) -> bool {
        let blocks: usize = events.iter().map(KvEvent::blocks).sum();
        let mut queued = self.lock();
        if queued.blocks + blocks > most {
            return false;
        }
        queued.blocks += blocks;
        queued.events.append(events);
        drop(queued);
        self.changed.notify_all();
        true
    }

    fn replace(&self, events: Vec<KvEvent>) {
        let mut queued = self.lock();
        queued.blocks = events.iter().map(KvEvent::blocks).sum();
        queued.events = events;
        drop(queued);
        self.changed.notify_all();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Queued> {
        // A list is whole after every statement.
        self.queued.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
struct Held {
    parent: Option<BlockHash>,
    tokens: Box<[TokenId]>,
    /// In how many places; none until the next [`KvBlocks::publish`].
    places: u32,
    /// Whether it was told of.
    told: bool,
    /// Larger than that of its parent.
    order: u64,
}

/// The blocks of one engine's cache. A block may be in several places, such as slots with the same beginning; it
/// is told of once.
#[derive(Debug)]
pub struct KvBlocks {
    queue: Arc<KvEventQueue>,
    held: HashMap<BlockHash, Held>,
    order: u64,
    /// Blocks that were new since the last publication, oldest first.
    new: Vec<BlockHash>,
    /// Blocks that were in no place at some moment since then.
    left: Vec<BlockHash>,
}

impl KvBlocks {
    /// An empty cache that tells `queue` of its blocks.
    pub fn new(queue: Arc<KvEventQueue>) -> Self {
        Self { queue, held: HashMap::new(), order: 0, new: Vec::new(), left: Vec::new() }
    }

    /// Tokens of a block.
    pub fn block_tokens(&self) -> usize {
        self.queue.block_tokens
    }

    /// How many different blocks there are.
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Notes one more place that holds the block of `tokens` behind `parent`, which is held itself.
    pub fn hold(&mut self, parent: Option<BlockHash>, tokens: &[TokenId]) -> BlockHash {
        debug_assert!(parent.is_none_or(|parent| self.held.contains_key(&parent)));
        let hash = block_hash(parent, tokens);
        let held = self.held.entry(hash).or_insert_with(|| {
            self.order += 1;
            self.new.push(hash);
            Held { parent, tokens: tokens.into(), places: 0, told: false, order: self.order }
        });
        held.places += 1;
        hash
    }

    /// Notes one place less. A place lets its blocks go from the last to the first.
    pub fn release(&mut self, hash: BlockHash) {
        if let Some(held) = self.held.get_mut(&hash) {
            held.places = held.places.saturating_sub(1);
            if held.places == 0 {
                self.left.push(hash);
            }
        }
    }

    /// Tells of everything that changed since the last call. What came and went in between is not told.
    pub fn publish(&mut self) {
        if self.new.is_empty() && self.left.is_empty() {
            return;
        }
        let mut events = Vec::new();
        let mut removed = Vec::new();
        for hash in self.left.drain(..) {
            if self.held.get(&hash).is_some_and(|held| held.places == 0)
                && let Some(held) = self.held.remove(&hash)
                && held.told
            {
                removed.push(hash);
            }
        }
        if !removed.is_empty() {
            events.push(KvEvent::Removed { hashes: removed });
        }
        for hash in self.new.drain(..) {
            if let Some(held) = self.held.get_mut(&hash).filter(|held| !held.told) {
                held.told = true;
                append(&mut events, hash, held);
            }
        }
        let most = 2 * self.held.len() + SLACK_BLOCKS;
        if !events.is_empty() && !self.queue.push(&mut events, most) {
            self.queue.replace(self.snapshot());
        }
    }

    /// Everything that is held, as to somebody who knows nothing.
    fn snapshot(&self) -> Vec<KvEvent> {
        let mut all: Vec<(&BlockHash, &Held)> = self.held.iter().collect();
        all.sort_unstable_by_key(|(_, held)| held.order);
        let mut events = vec![KvEvent::Cleared];
        for (&hash, held) in all {
            append(&mut events, hash, held);
        }
        events
    }
}

/// Adds a stored block, to the last event where it follows what is in there.
fn append(events: &mut Vec<KvEvent>, hash: BlockHash, held: &Held) {
    if let Some(KvEvent::Stored { hashes, tokens, .. }) = events.last_mut()
        && held.parent.is_some()
        && hashes.last().copied() == held.parent
    {
        hashes.push(hash);
        tokens.extend_from_slice(&held.tokens);
    } else {
        events.push(KvEvent::Stored {
            parent: held.parent,
            hashes: vec![hash],
            tokens: held.tokens.to_vec(),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// What a reader believes is cached; fails on an event that cannot be.
    #[derive(Default)]
    struct Reader(HashSet<BlockHash>);

    impl Reader {
        fn read(&mut self, events: Vec<KvEvent>, block_tokens: usize) {
            for event in events {
                match event {
                    KvEvent::Cleared => self.0.clear(),
                    KvEvent::Removed { hashes } => {
                        for hash in hashes {
                            assert!(self.0.remove(&hash), "removed what was not stored");
                        }
                    }
                    KvEvent::Stored { parent, hashes, tokens } => {
                        let mut parent = parent;
                        assert_eq!(hashes.len() * block_tokens, tokens.len());
                        for (&hash, tokens) in hashes.iter().zip(tokens.chunks(block_tokens)) {
                            assert!(parent.is_none_or(|parent| self.0.contains(&parent)));
                            assert_eq!(hash, block_hash(parent, tokens));
                            assert!(self.0.insert(hash), "stored twice");
                            parent = Some(hash);
                        }
                    }
                }
            }
        }
    }

    fn take(queue: &KvEventQueue) -> Vec<KvEvent> {
        queue.take(Duration::ZERO).unwrap()
    }

    #[test]
    fn a_hash_stands_for_everything_before_as_well() {
        let first = block_hash(None, &[1, 2]);
        assert_ne!(block_hash(Some(first), &[3, 4]), block_hash(None, &[3, 4]));
        assert_ne!(first, block_hash(None, &[2, 1]));
        assert_eq!(first >> 63, 0);
    }

    #[test]
    fn a_block_in_two_places_is_told_once_and_removed_with_the_last() {
        let queue = KvEventQueue::new(2);
        let mut blocks = KvBlocks::new(Arc::clone(&queue));
        let a = blocks.hold(None, &[1, 2]);
        let b = blocks.hold(Some(a), &[3, 4]);
        assert_eq!(blocks.hold(None, &[1, 2]), a);
        blocks.publish();
        let stored = KvEvent::Stored { parent: None, hashes: vec![a, b], tokens: vec![1, 2, 3, 4] };
        assert_eq!(take(&queue), [stored]);
        blocks.release(b);
        blocks.release(a);
        blocks.publish();
        assert_eq!(take(&queue), [KvEvent::Removed { hashes: vec![b] }]);
        blocks.release(a);
        blocks.publish();
        assert_eq!(take(&queue), [KvEvent::Removed { hashes: vec![a] }]);
        assert!(blocks.is_empty());
    }

    #[test]
    fn what_comes_and_goes_or_goes_and_comes_between_two_publications_is_not_told() {
        let queue = KvEventQueue::new(1);
        let mut blocks = KvBlocks::new(Arc::clone(&queue));
        let a = blocks.hold(None, &[1]);
        blocks.release(a);
        blocks.publish();
        assert!(take(&queue).is_empty() && blocks.is_empty());
        let a = blocks.hold(None, &[1]);
        blocks.publish();
        take(&queue);
        blocks.release(a);
        blocks.hold(None, &[1]);
        blocks.publish();
        assert!(take(&queue).is_empty());
        blocks.release(a);
        blocks.release(a);
        blocks.publish();
        assert_eq!(take(&queue), [KvEvent::Removed { hashes: vec![a] }]);
    }

    #[test]
    fn a_reader_that_sleeps_learns_the_state_and_the_queue_stays_bounded() {
        let queue = KvEventQueue::new(1);
        let mut blocks = KvBlocks::new(Arc::clone(&queue));
        let mut reader = Reader::default();
        let root = blocks.hold(None, &[0]);
        blocks.publish();
        reader.read(take(&queue), 1);
        let mut last = None;
        for token in 1..20_000 {
            let hash = blocks.hold(Some(root), &[token]);
            if let Some(last) = last.replace(hash) {
                blocks.release(last);
            }
            blocks.publish();
            assert!(queue.lock().blocks <= 2 * blocks.len() + SLACK_BLOCKS);
        }
        let events = take(&queue);
        assert!(events.contains(&KvEvent::Cleared));
        reader.read(events, 1);
        assert_eq!(reader.0, blocks.held.keys().copied().collect());
        assert_eq!(reader.0.len(), 2);
    }

    #[test]
    fn whoever_waits_is_woken_by_events_and_by_the_end() {
        let queue = KvEventQueue::new(1);
        let reader = {
            let queue = Arc::clone(&queue);
            std::thread::spawn(move || {
                let mut found = Vec::new();
                while let Some(events) = queue.take(Duration::from_secs(600)) {
                    found.extend(events);
                }
                found
            })
        };
        let mut blocks = KvBlocks::new(Arc::clone(&queue));
        let a = blocks.hold(None, &[1]);
        blocks.publish();
        queue.close();
        let stored = KvEvent::Stored { parent: None, hashes: vec![a], tokens: vec![1] };
        assert_eq!(reader.join().unwrap(), [stored]);
    }
}
