//! What changes in the executor's KV cache, told to routers. A thread of its own waits for events, so that those behind the
//! last answer come as well, and nothing of it concerns the engine's thread. Must not outlive the plugin's engine.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use llgtrt_core::{BlockHash, Error, KvBlocks, KvEventQueue, Result, TokenId};

use crate::abi::{self, kv_event, status};
use crate::library::{Handle, KvEvents};
use crate::native::slice;

/// How long a wait for events may be: the end waits for it.
const WAIT: Duration = Duration::from_millis(100);

/// The thread that reads.
pub(crate) struct Reader {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// The plugin's function and what it is called with.
struct Source {
    function: KvEvents,
    handle: *mut Handle,
}

// SAFETY: the function may be called while another thread uses the handle, by one thread, which is the one that has this.
unsafe impl Send for Source {}

impl Source {
    /// Waits for events and enters them; false if there never are any.
    fn read(&self, mirror: &mut Mirror) -> bool {
        let (mut list, mut count) = (std::ptr::null(), 0);
        let start = Instant::now();
        // SAFETY: the handle is alive until the thread has ended, and the results have a place.
        let outcome =
            unsafe { (self.function)(self.handle, WAIT.as_millis() as i64, &raw mut list, &raw mut count) };
        if outcome != status::OK {
            return false;
        }
        // SAFETY: the plugin's list, and all that it points to, is valid until the next call.
        for event in unsafe { slice(list, count) } {
            // SAFETY: as above.
            mirror.enter(&unsafe { Event::of(event) });
        }
        mirror.blocks.publish();
        if count == 0 && start.elapsed() < WAIT / 2 {
            // An executor that has no events to wait for.
            std::thread::sleep(WAIT);
        }
        true
    }
}

impl Reader {
    /// Starts the thread. `handle` is alive until this is dropped.
    ///
    /// # Errors
    /// The executor tells of nothing, or its blocks are no whole number of those that routers count in.
    pub(crate) fn start(
        function: KvEvents,
        handle: *mut Handle,
        tokens_per_block: usize,
        queue: Arc<KvEventQueue>,
    ) -> Result<Self> {
        if !tokens_per_block.is_multiple_of(queue.block_tokens()) {
            return Err(Error::configuration(format!(
                "the engine's blocks have {tokens_per_block} tokens, which {} does not divide",
                queue.block_tokens()
            ))
            .with_param("kv_events.block_size"));
        }
        let source = Source { function, handle };
        let mut mirror = Mirror::new(tokens_per_block, queue);
        if !source.read(&mut mirror) {
            return Err(Error::configuration(
                "TensorRT-LLM tells of no events: it does not reuse blocks of this engine's cache",
            )
            .with_param("kv_events"));
        }
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let read = move || {
            // The whole of it crosses, not its fields.
            let source = source;
            while !stopped.load(Ordering::Relaxed) && source.read(&mut mirror) {}
        };
        let thread = std::thread::Builder::new()
            .name("llgtrt-kv-trtllm".into())
            .spawn(read)
            .map_err(|error| Error::internal(format!("cannot start a thread: {error}")))?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// An event of the executor.
struct Event<'a> {
    number: u64,
    kind: i32,
    window: i32,
    parent: Option<u64>,
    hashes: &'a [u64],
    tokens: &'a [i32],
    ends: &'a [usize],
    plain: &'a [u8],
}

impl<'a> Event<'a> {
    /// # Safety
    /// What the event points to is valid for as long as the result.
    unsafe fn of(event: &'a abi::KvEvent) -> Self {
        // SAFETY: the caller's promise; there are as many ends and marks as stored blocks.
        unsafe {
            let ends = slice(event.tokens.ends, event.tokens.count);
            Self {
                number: event.number,
                kind: event.kind,
                window: event.window,
                parent: (event.has_parent != 0).then_some(event.parent),
                hashes: slice(event.hashes, event.count),
                tokens: slice(event.tokens.ids, ends.last().copied().unwrap_or(0)),
                ends,
                plain: slice(event.plain, event.tokens.count),
            }
        }
    }
}

/// A block of the executor's, in those that routers count in.
struct Known {
    parts: Vec<BlockHash>,
    /// Larger than that of the block before it.
    order: u64,
}

/// What the executor's cache holds, as far as it said so and routers can use it: whole blocks whose tokens are all that
/// they depend on, behind others that are known.
struct Mirror {
    tokens_per_block: usize,
    blocks: KvBlocks,
    /// By the executor's identity.
    known: HashMap<u64, Known>,
    order: u64,
    next: Option<u64>,
    /// The largest attention window; the blocks of shorter ones are of other layers.
    window: i32,
}

impl Mirror {
    fn new(tokens_per_block: usize, queue: Arc<KvEventQueue>) -> Self {
        let blocks = KvBlocks::new(queue);
        Self { tokens_per_block, blocks, known: HashMap::new(), order: 0, next: None, window: 0 }
    }

    fn enter(&mut self, event: &Event<'_>) {
        if self.next.replace(event.number + 1).is_some_and(|next| next != event.number) {
            // What is missing may have removed anything.
            tracing::warn!("TensorRT-LLM forgot events of its KV cache: raise runtime.event_buffer_max_size");
            self.forget_all();
        }
        if event.window > self.window {
            self.window = event.window;
            self.forget_all();
        }
        if event.window < self.window {
            return;
        }
        match event.kind {
            kv_event::CREATED => self.forget_all(),
            kv_event::STORED => self.store(event),
            kv_event::REMOVED => event.hashes.iter().for_each(|hash| self.remove(*hash)),
            _ => {}
        }
    }

    fn store(&mut self, event: &Event<'_>) {
        let mut before = match event.parent.map(|parent| self.known.get(&parent)) {
            None => None,
            Some(Some(parent)) => parent.parts.last().copied(),
            Some(None) => return,
        };
        let mut start = 0;
        for ((&hash, &end), &plain) in event.hashes.iter().zip(event.ends).zip(event.plain) {
            let tokens = event.tokens.get(start..end).unwrap_or_default();
            start = end;
            if let Some(known) = self.known.get(&hash) {
                before = known.parts.last().copied();
                continue;
            }
            if plain == 0 || tokens.len() != self.tokens_per_block {
                return;
            }
            let tokens: Vec<TokenId> = tokens.iter().map(|token| token.cast_unsigned()).collect();
            let mut parts = Vec::with_capacity(1);
            for part in tokens.chunks(self.blocks.block_tokens()) {
                before = Some(self.blocks.hold(before, part));
                parts.extend(before);
            }
            self.order += 1;
            self.known.insert(hash, Known { parts, order: self.order });
        }
    }

    fn remove(&mut self, hash: u64) {
        for part in self.known.remove(&hash).into_iter().flat_map(|known| known.parts.into_iter().rev()) {
            self.blocks.release(part);
        }
    }

    fn forget_all(&mut self) {
        let mut all: Vec<(u64, u64)> = self.known.iter().map(|(hash, known)| (known.order, *hash)).collect();
        all.sort_unstable();
        all.into_iter().rev().for_each(|(_, hash)| self.remove(hash));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use llgtrt_core::{KvEvent, block_hash};

    const TOKENS: [i32; 8] = [1, 2, 3, 4, 5, 6, 7, 8];

    fn stored(number: u64, parent: Option<u64>, hashes: &'static [u64]) -> Event<'static> {
        Event {
            number,
            kind: kv_event::STORED,
            window: 64,
            parent,
            hashes,
            tokens: &TOKENS[..4 * hashes.len()],
            ends: &[4, 8][..hashes.len()],
            plain: &[1, 1][..hashes.len()],
        }
    }

    fn removed(number: u64, hashes: &'static [u64]) -> Event<'static> {
        let none = Event { kind: kv_event::REMOVED, ..stored(number, None, &[]) };
        Event { hashes, ..none }
    }

    /// A cache whose blocks have 4 tokens, for routers that count in 2.
    fn mirror() -> (Mirror, Arc<KvEventQueue>) {
        let queue = KvEventQueue::new(2);
        (Mirror::new(4, Arc::clone(&queue)), queue)
    }

    fn told(mirror: &mut Mirror, queue: &KvEventQueue) -> Vec<KvEvent> {
        mirror.blocks.publish();
        queue.take(Duration::ZERO).unwrap()
    }

    fn chain(tokens: &[u32]) -> Vec<BlockHash> {
        tokens.chunks(2).fold(Vec::new(), |mut chain, part| {
            chain.push(block_hash(chain.last().copied(), part));
            chain
        })
    }

    #[test]
    fn a_block_is_told_in_parts_and_removed_from_its_end() {
        let (mut mirror, queue) = mirror();
        mirror.enter(&stored(0, None, &[10, 11]));
        let hashes = chain(&[1, 2, 3, 4, 5, 6, 7, 8]);
        let tokens = vec![1, 2, 3, 4, 5, 6, 7, 8];
        let all = KvEvent::Stored { parent: None, hashes: hashes.clone(), tokens };
        assert_eq!(told(&mut mirror, &queue), [all]);
        mirror.enter(&removed(1, &[11]));
        let gone = KvEvent::Removed { hashes: vec![hashes[3], hashes[2]] };
        assert_eq!(told(&mut mirror, &queue), [gone]);
        mirror.enter(&stored(2, Some(10), &[12]));
        let behind = KvEvent::Stored {
            parent: Some(hashes[1]),
            hashes: chain(&[1, 2, 3, 4, 1, 2, 3, 4])[2..].to_vec(),
            tokens: vec![1, 2, 3, 4],
        };
        assert_eq!(told(&mut mirror, &queue), [behind]);
    }

    #[test]
    fn what_routers_cannot_use_is_left_out_with_all_behind_it() {
        let (mut mirror, queue) = mirror();
        mirror.enter(&Event { plain: &[0, 1], ..stored(0, None, &[10, 11]) });
        mirror.enter(&stored(1, Some(11), &[12]));
        mirror.enter(&Event { ends: &[3], tokens: &TOKENS[..3], ..stored(2, None, &[13]) });
        mirror.enter(&stored(3, Some(99), &[14]));
        mirror.enter(&removed(4, &[10, 14, 99]));
        assert!(told(&mut mirror, &queue).is_empty());
        // Of the layers with a shorter window.
        mirror.enter(&Event { window: 32, ..stored(5, None, &[15]) });
        mirror.enter(&Event { kind: 0, ..stored(6, None, &[16]) });
        assert!(told(&mut mirror, &queue).is_empty());
    }

    #[test]
    fn a_gap_forgets_what_was_known() {
        let (mut mirror, queue) = mirror();
        mirror.enter(&stored(7, None, &[10, 11]));
        told(&mut mirror, &queue);
        mirror.enter(&stored(9, Some(11), &[12]));
        let mut hashes = chain(&[1, 2, 3, 4, 5, 6, 7, 8]);
        hashes.reverse();
        assert_eq!(told(&mut mirror, &queue), [KvEvent::Removed { hashes }]);
        mirror.enter(&stored(10, None, &[10]));
        assert_eq!(told(&mut mirror, &queue).len(), 1);
    }
}
