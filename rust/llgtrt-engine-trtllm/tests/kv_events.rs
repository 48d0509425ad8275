//! What routers are told of the executor's KV cache, as far as the stand-in has one.

mod common;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use common::{EngineDir, finish, spec, write_adapter};
use llgtrt_conformance::support::{AllowAll, Bytes};
use llgtrt_core::{
    Adapter, BlockHash, Engine, ErrorKind, KvEvent, KvEventQueue, LoadWeights, RequestOptions, Result,
    SequenceSpec, TokenId, block_hash,
};
use llgtrt_engine_trtllm::{TrtllmEngine, TrtllmSetup};

/// Of the executor's blocks of 16 tokens two.
const BLOCK: usize = 8;

fn engine_that_tells(setup: &TrtllmSetup, queue: &Arc<KvEventQueue>) -> Result<TrtllmEngine> {
    let mut setup = setup.clone();
    setup.batching.event_buffer_max_size = Some(100);
    let mut engine = TrtllmEngine::new(&setup, Bytes::shared(), Arc::new(AllowAll))?;
    engine.tell_kv_events(Arc::clone(queue))?;
    Ok(engine)
}

/// What a router believes is cached.
#[derive(Default)]
struct Router(HashSet<BlockHash>);

impl Router {
    /// Reads until that many blocks are cached.
    fn read_until(&mut self, queue: &KvEventQueue, blocks: usize) {
        while self.0.len() != blocks {
            self.read(queue);
        }
    }

    fn read(&mut self, queue: &KvEventQueue) {
        let events = queue.take(Duration::from_secs(60)).expect("the queue is open");
        assert!(!events.is_empty(), "nothing came");
        for event in events {
            match event {
                KvEvent::Stored { parent, hashes, tokens } => {
                    let mut parent = parent;
                    for (hash, part) in hashes.into_iter().zip(tokens.chunks(BLOCK)) {
                        assert_eq!(hash, block_hash(parent, part));
                        assert!(self.0.insert(hash), "stored twice");
                        parent = Some(hash);
                    }
                }
                KvEvent::Removed { hashes } => hashes.iter().for_each(|hash| assert!(self.0.remove(hash))),
                KvEvent::Cleared => self.0.clear(),
            }
        }
    }

    /// How many blocks at the beginning of a prompt are cached.
    fn finds(&self, prompt: &str) -> usize {
        let tokens: Vec<TokenId> = prompt.bytes().map(TokenId::from).collect();
        let mut parent = None;
        let known = |part: &&[TokenId]| {
            let hash = block_hash(parent, part);
            parent = Some(hash);
            self.0.contains(&hash)
        };
        tokens.chunks_exact(BLOCK).take_while(known).count()
    }
}

const FIRST: &str = "a prompt of three blocks and a bit more than that, see";
const SECOND: &str = "a prompt of three that goes on in another way, and ends";

#[test]
fn routers_learn_what_is_stored_and_what_is_removed() {
    // The two have one block in common, and there is room for four.
    let dir = EngineDir::new("cache_blocks=4\n");
    let queue = KvEventQueue::new(BLOCK);
    let mut engine = engine_that_tells(&dir.setup(), &queue).unwrap();
    let mut router = Router::default();
    engine.submit(spec(1, FIRST, 2)).unwrap();
    assert_eq!(finish(&mut engine, &[1])[0].cached, Some(0));
    // Nobody polls the engine any more.
    router.read_until(&queue, 6);
    assert_eq!((router.finds(FIRST), router.finds(SECOND)), (6, 2));
    engine.submit(spec(2, SECOND, 2)).unwrap();
    assert_eq!(finish(&mut engine, &[2])[0].cached, Some(16));
    while router.finds(SECOND) < 6 || router.0.len() != 8 {
        router.read(&queue);
    }
    // The end of the first had to go.
    assert_eq!(router.finds(FIRST), 4);
    engine.submit(spec(3, FIRST, 2)).unwrap();
    assert_eq!(finish(&mut engine, &[3])[0].cached, Some(32));
}

#[test]
fn blocks_of_an_adapter_are_not_told() {
    let dir = EngineDir::new("");
    write_adapter(dir.path(), "own", 8);
    let mut setup = dir.setup();
    setup.lora_root = Some(dir.path().to_path_buf());
    let queue = KvEventQueue::new(BLOCK);
    let mut engine = engine_that_tells(&setup, &queue).unwrap();
    let adapter = Adapter { name: "own".to_owned(), load: LoadWeights::Auto };
    let options = RequestOptions { adapter: Some(adapter), ..RequestOptions::default() };
    let with_adapter = SequenceSpec { options: Some(Arc::new(options)), ..spec(1, FIRST, 2) };
    engine.submit(with_adapter).unwrap();
    finish(&mut engine, &[1]);
    engine.submit(spec(2, "another prompt, of a block", 2)).unwrap();
    finish(&mut engine, &[2]);
    let mut router = Router::default();
    router.read_until(&queue, 2);
    assert_eq!(router.finds(FIRST), 0);
    assert_eq!(router.finds("another prompt, "), 2);
}

#[test]
fn what_cannot_be_told_is_refused_at_the_start() {
    let dir = EngineDir::new("");
    let refused = |setup: &TrtllmSetup, block: usize| {
        let error = engine_that_tells(setup, &KvEventQueue::new(block)).err().expect("it is refused");
        assert_eq!(error.kind, ErrorKind::Configuration);
        error.param.unwrap_or_default()
    };
    assert_eq!(refused(&dir.setup(), 12), "kv_events.block_size");
    let mut setup = dir.setup();
    setup.batching.enable_kv_cache_reuse = false;
    assert_eq!(refused(&setup, BLOCK), "kv_events");
}
