//! The pretended prefix cache: what a prompt finds of earlier sequences, and what routers are told.

use std::sync::Arc;
use std::time::Duration;

use llgtrt_conformance::support::{AllowAll, Bytes};
use llgtrt_core::{
    Engine, KvEvent, KvEventQueue, SamplingParams, SequenceId, SequenceSpec, StepBatch, TokenId,
};
use llgtrt_engine_sim::{SimConfig, SimEngine};

fn engine(json: &str) -> SimEngine {
    let config: SimConfig = serde_json::from_str(json).expect("a valid configuration");
    SimEngine::new(config, Bytes::shared(), Arc::new(AllowAll)).expect("a valid configuration")
}

fn spec(id: u64, prompt: &str) -> SequenceSpec {
    SequenceSpec {
        id: SequenceId(id),
        prompt: prompt.bytes().map(TokenId::from).collect(),
        max_tokens: 8,
        sampling: SamplingParams { ignore_eos: true, ..SamplingParams::default() },
        stop_token_ids: Arc::from([]),
        constrained: false,
        prompt_logprobs: false,
        options: None,
        processor: None,
        phase: llgtrt_core::Phase::Whole,
    }
}

/// Runs one sequence; its tokens, and how many prompt tokens were cached.
fn run(engine: &mut SimEngine, spec: SequenceSpec) -> (Vec<TokenId>, u32) {
    engine.submit(spec).expect("accepted");
    let (mut answer, mut cached, mut batch) = (Vec::new(), None, StepBatch::default());
    while engine.has_work() {
        batch.clear();
        engine.poll(Duration::from_millis(100), &mut batch).expect("alive");
        for (output, tokens) in batch.iter() {
            cached = cached.or(output.cached_prompt_tokens);
            answer.extend(tokens.iter().map(|token| token.token));
        }
    }
    (answer, cached.expect("the first output tells"))
}

#[test]
fn a_conversation_finds_its_beginning_and_the_answer_stays_the_same() {
    let prompt = "0123456789".repeat(5);
    let mut cached = engine(r#"{"prefix_cache_tokens": 4096, "prefill_chunk_tokens": 8}"#);
    let (first, none) = run(&mut cached, spec(1, &prompt));
    assert_eq!(none, 0);
    let longer: String = prompt.chars().chain(first.iter().map(|&byte| char::from(byte as u8))).collect();
    let passes = cached.stats().forward_passes;
    let (again, found) = run(&mut cached, spec(2, &longer));
    assert_eq!(found, 48, "whole blocks of 16, of the answer as well");
    assert_eq!(
        cached.stats().forward_passes - passes,
        9,
        "two for the ten tokens left, seven more for the answer"
    );
    assert_eq!((cached.stats().prefix_cache_queries, cached.stats().prefix_cache_hits), (108, 48));
    assert_eq!(again, run(&mut engine("{}"), spec(2, &longer)).0);
    assert_eq!(run(&mut engine("{}"), spec(3, &prompt)).1, 0);
}

#[test]
fn routers_learn_what_comes_and_what_has_to_go() {
    let queue = KvEventQueue::new(8);
    let mut engine = engine(r#"{"prefix_cache_tokens": 40}"#).with_kv_events(Arc::clone(&queue));
    run(&mut engine, spec(1, &"a".repeat(32)));
    let told = queue.take(Duration::ZERO).expect("open");
    let [
        KvEvent::Stored { parent: None, hashes: prompt, .. },
        KvEvent::Stored { parent: Some(parent), hashes: answer, .. },
    ] = &told[..]
    else {
        panic!("{told:?}");
    };
    assert_eq!((prompt.len(), answer.len()), (4, 1));
    assert_eq!(parent, &prompt[3]);
    run(&mut engine, spec(2, &"b".repeat(16)));
    let told = queue.take(Duration::ZERO).expect("open");
    let removed: Vec<_> = told
        .iter()
        .filter_map(|event| match event {
            KvEvent::Removed { hashes } => Some(&hashes[..]),
            _ => None,
        })
        .flatten()
        .copied()
        .collect();
    assert_eq!(removed, [answer[0], prompt[3], prompt[2]], "three blocks came, so three had to go");
}
