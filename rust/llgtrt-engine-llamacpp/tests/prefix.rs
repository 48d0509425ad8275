//! Reuse of the KV cache: between requests, between choices of one request, and never wrongly.

mod common;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use common::*;
use llgtrt_core::{BlockHash, Engine, KvEvent, KvEventQueue, SamplingParams, TokenId, block_hash};

const STORY: &str = "It was a bright cold day in April, and the clocks were striking. A man in a grey coat \
walked slowly along the river, counting the boats. He had lost his umbrella the week before, and now the \
clouds were gathering again over the old town with its crooked towers. ";

#[test]
fn a_conversation_finds_its_start_again() {
    let Some(model) = model() else { return };
    let mut cached = engine(model);
    let start = encode(model, STORY);
    let first = run(&mut cached, vec![spec(1, start.clone(), 12)]).remove(&1).unwrap();
    let mut longer = start.clone();
    longer.extend(first.ids());
    longer.extend(encode(model, " And then"));
    let next = |id| {
        let mut spec = spec(id, longer.clone(), 1);
        spec.sampling.logprobs = Some(1);
        spec
    };
    let again = run(&mut cached, vec![next(2)]).remove(&2).unwrap();
    let known = (start.len() + 11) as u32;
    assert_eq!(again.cached, Some(known), "all but the last sampled token were evaluated");
    let stats = cached.stats();
    assert_eq!(stats.prefix_cache_hits, u64::from(known));
    assert_eq!(stats.prefix_cache_queries, (start.len() + longer.len()) as u64);
    let fresh = run(&mut engine(model), vec![next(3)]).remove(&3).unwrap();
    let logprob = |answer: &Answer| answer.tokens[0].logprobs.as_ref().unwrap().top[0].1;
    // The answer was evaluated in batches of another size, which round otherwise.
    assert!((logprob(&again) - logprob(&fresh)).abs() < 0.3);
}

#[test]
fn a_prompt_that_is_all_cached_still_evaluates_its_last_token() {
    let Some(model) = model() else { return };
    let mut engine = engine(model);
    let prompt = encode(model, STORY);
    let first = run(&mut engine, vec![spec(1, prompt.clone(), 10)]);
    let second = run(&mut engine, vec![spec(2, prompt.clone(), 10)]);
    assert_eq!(second[&2].cached, Some(prompt.len() as u32 - 1));
    assert_eq!(first[&1].ids(), second[&2].ids());
}

#[test]
fn another_ending_reuses_the_common_part_only() {
    let Some(model) = model() else { return };
    let mut cached = engine(model);
    let (left, right) =
        (encode(model, &format!("{STORY}He sang")), encode(model, &format!("{STORY}She ran")));
    let common = left.iter().zip(&right).take_while(|(a, b)| a == b).count();
    run(&mut cached, vec![spec(1, left, 20)]);
    let answer = run(&mut cached, vec![spec(2, right.clone(), 20)]).remove(&2).unwrap();
    assert_eq!(answer.cached, Some(common as u32));
    let fresh = run(&mut engine(model), vec![spec(3, right, 20)]);
    assert_eq!(decode(model, &answer.ids()), decode(model, &fresh[&3].ids()));
}

#[test]
fn a_conversation_whose_slot_is_wanted_moves() {
    let Some(model) = model() else { return };
    let mut engine = engine(model);
    let slots = u64::from(engine.capabilities().max_batch_size);
    let talk = |id: u64| encode(model, &format!("{id} is the number of this story. {STORY}"));
    // All slots but one hold a conversation, the last one beside the empty slot.
    for id in 1..slots {
        run(&mut engine, vec![spec(id, talk(id), 4)]);
    }
    // The first takes the empty slot, the second its neighbour, whose cells move to where the oldest ones are.
    run(&mut engine, vec![spec(100, talk(100), 20), spec(101, talk(101), 20)]);
    let prompt = talk(slots - 1);
    let known = Some(prompt.len() as u32 - 1);
    let again = run(&mut engine, vec![spec(200, prompt.clone(), 20)]).remove(&200).unwrap();
    assert_eq!(again.cached, known);
    let fresh = run(&mut self::engine(model), vec![spec(1, prompt, 20)]).remove(&1).unwrap();
    assert_eq!(decode(model, &again.ids()), decode(model, &fresh.ids()));
    let oldest = run(&mut engine, vec![spec(201, talk(1), 4)]).remove(&201).unwrap();
    assert!(oldest.cached < known, "its cells were overwritten");
}

#[test]
fn conversations_with_one_beginning_keep_their_own_cells() {
    let Some(model) = model() else { return };
    let mut engine = engine(model);
    let mut talks = ["He sang", "She ran"].map(|end| encode(model, &format!("{STORY}{end}")));
    for turn in 0..2 {
        for (index, talk) in talks.iter_mut().enumerate() {
            let id = 1 + 2 * turn + index as u64;
            let answer = run(&mut engine, vec![spec(id, talk.clone(), 40)]).remove(&id).unwrap();
            if turn == 1 {
                // All but the last sampled token, which was not evaluated, and " And".
                assert_eq!(answer.cached, Some(talk.len() as u32 - 2), "conversation {index}");
            }
            talk.extend(answer.ids());
            talk.extend(encode(model, " And"));
        }
    }
}

#[test]
fn an_idle_slot_between_busy_ones_keeps_its_cells() {
    let Some(model) = model() else { return };
    let mut engine = engine(model);
    let prompts = ["The lighthouse", "The river", "The mountain"].map(|start| encode(model, start));
    let [left, middle, right] = [0, 1, 2].map(|i| prompts[i].clone());
    // The one in the middle ends long before the others.
    let long = run(
        &mut engine,
        vec![spec(1, left.clone(), 20), spec(2, middle.clone(), 6), spec(3, right.clone(), 20)],
    );
    let mut longer = middle;
    longer.extend(long[&2].ids());
    let again = run(&mut engine, vec![spec(4, longer.clone(), 12)]).remove(&4).unwrap();
    assert_eq!(again.cached, Some(longer.len() as u32 - 1), "its cells are still there");
    let fresh = run(&mut common::engine(model), vec![spec(5, longer, 12)]);
    assert_eq!(decode(model, &again.ids()), decode(model, &fresh[&5].ids()), "and are the right ones");
    for (id, prompt) in [(1, left), (3, right)] {
        let alone = run(&mut common::engine(model), vec![spec(id, prompt, 20)]);
        assert_eq!(decode(model, &alone[&id].ids()), decode(model, &long[&id].ids()));
    }
}

#[test]
fn choices_of_one_request_evaluate_the_prompt_once() {
    let Some(model) = model() else { return };
    let mut engine = engine(model);
    let prompt: Arc<[TokenId]> = encode(model, STORY).into();
    let specs = (0..4).map(|id| {
        let mut spec = spec(id, Arc::clone(&prompt), 16);
        spec.sampling = SamplingParams { temperature: 1.0, seed: id, ..SamplingParams::default() };
        spec
    });
    let answers = run(&mut engine, specs.clone().collect());
    let cached: Vec<u32> = answers.values().map(|answer| answer.cached.unwrap()).collect();
    assert_eq!(cached, [0, prompt.len() as u32 - 1, prompt.len() as u32 - 1, prompt.len() as u32 - 1]);
    assert_ne!(answers[&0].ids(), answers[&1].ids());
    for spec in specs {
        let id = spec.id.0;
        let alone = run(&mut common::engine(model), vec![spec]);
        assert_eq!(decode(model, &alone[&id].ids()), decode(model, &answers[&id].ids()));
    }
}

#[test]
fn choices_share_their_prompt_even_if_requests_do_not() {
    let Some(model) = model_with(|config| config.reuse_prefix = false) else { return };
    let mut engine = engine(&model);
    let prompt: Arc<[TokenId]> = encode(&model, STORY).into();
    let answers = run(&mut engine, (0..3).map(|id| spec(id, Arc::clone(&prompt), 30)).collect());
    assert_eq!(answers[&2].cached, Some(prompt.len() as u32 - 1));
    assert_eq!(answers[&0].ids(), answers[&2].ids());
    let later = run(&mut engine, vec![spec(9, prompt.to_vec(), 5)]);
    assert_eq!(later[&9].cached, Some(0));
}

#[test]
fn a_request_copies_the_prompt_of_one_that_is_running() {
    let Some(model) = model() else { return };
    let mut engine = engine(model);
    let mut answers = Answers::new();
    let prompt = encode(model, STORY);
    engine.submit(spec(1, prompt.clone(), 60)).unwrap();
    while !answers.contains_key(&1) {
        step(&mut engine, &mut answers);
    }
    let mut other = prompt.clone();
    other.extend(encode(model, "Suddenly"));
    engine.submit(spec(2, other.clone(), 20)).unwrap();
    finish(&mut engine, &mut answers);
    assert_eq!(answers[&2].cached, Some(prompt.len() as u32));
    let fresh = run(&mut common::engine(model), vec![spec(3, other, 20)]);
    assert_eq!(decode(model, &answers[&2].ids()), decode(model, &fresh[&3].ids()));
}

#[test]
fn when_the_first_of_several_choices_is_cancelled_the_others_go_on() {
    let Some(model) = model_with(|config| config.max_num_tokens = Some(16)) else { return };
    let mut engine = engine(&model);
    let prompt: Arc<[TokenId]> = encode(&model, STORY).into();
    for id in 0..3 {
        engine.submit(spec(id, Arc::clone(&prompt), 10)).unwrap();
    }
    let mut answers = Answers::new();
    step(&mut engine, &mut answers);
    assert_eq!((engine.stats().running, engine.stats().waiting), (1, 2), "two wait for the prompt");
    engine.cancel(llgtrt_core::SequenceId(0));
    finish(&mut engine, &mut answers);
    assert_eq!(answers[&1].ids(), answers[&2].ids());
    assert_eq!(answers[&1].cached, Some(16), "what the first one evaluated is not lost");
    assert_eq!(answers[&2].cached, Some(prompt.len() as u32 - 1));
}

#[test]
fn slots_hold_different_conversations() {
    let Some(model) = model_with(|config| config.max_batch_size = 3) else { return };
    let mut engine = engine(&model);
    let conversation = |word: &str| encode(&model, &format!("{word} {word} {word}: {STORY}"));
    let words = ["Apples", "Bridges", "Clouds"];
    for word in words {
        run(&mut engine, vec![spec(1, conversation(word), 4)]);
    }
    for word in words {
        let prompt = conversation(word);
        let answer = run(&mut engine, vec![spec(2, prompt.clone(), 4)]);
        assert_eq!(answer[&2].cached, Some(prompt.len() as u32 - 1), "{word}");
    }
}

/// What somebody who reads the events believes to be cached.
struct Router {
    queue: Arc<KvEventQueue>,
    blocks: BTreeSet<BlockHash>,
}

impl Router {
    fn read(&mut self) -> Vec<KvEvent> {
        let events = self.queue.take(Duration::ZERO).unwrap();
        for event in &events {
            match event {
                KvEvent::Stored { parent, hashes, .. } => {
                    assert!(parent.is_none_or(|parent| self.blocks.contains(&parent)));
                    for hash in hashes {
                        assert!(self.blocks.insert(*hash), "stored twice");
                    }
                }
                KvEvent::Removed { hashes } => {
                    for hash in hashes {
                        assert!(self.blocks.remove(hash), "removed what was not there");
                    }
                }
                KvEvent::Cleared => self.blocks.clear(),
            }
        }
        events
    }

    /// Tokens of the prompt that it believes to be cached.
    fn believes(&self, prompt: &[TokenId]) -> usize {
        let size = self.queue.block_tokens();
        let mut parent = None;
        let known = prompt.chunks_exact(size).take_while(|block| {
            let hash = block_hash(parent, block);
            parent = Some(hash);
            self.blocks.contains(&hash)
        });
        known.count() * size
    }
}

#[test]
fn what_routers_are_told_is_what_a_prompt_finds() {
    let Some(model) = model_with(|config| config.max_batch_size = 2) else { return };
    let queue = KvEventQueue::new(4);
    let mut engine = engine(&model).with_kv_events(Arc::clone(&queue));
    let mut router = Router { queue, blocks: BTreeSet::new() };
    let tellers = ["It was a dark night. ", "Once there was a king. ", "The machine began to hum. "];
    let mut removed = 0;
    let mut found = 0;
    // Three stories in two slots: each beginning is overwritten again and again.
    for round in 0..12 {
        let text = format!("{0}{0}{0}And then {round}", tellers[[0, 0, 1, 2, 1][round % 5]]);
        let prompt = encode(&model, &text);
        let believed = router.believes(&prompt).min(prompt.len() - 1);
        let id = round as u64;
        let answer = run(&mut engine, vec![spec(id, prompt.clone(), 9)]).remove(&id).unwrap();
        let cached = answer.cached.unwrap() as usize;
        assert_eq!(cached / 4, believed / 4, "{text}");
        found += cached;
        let events = router.read();
        removed += events.iter().filter(|event| matches!(event, KvEvent::Removed { .. })).count();
        let mut whole = prompt;
        whole.extend(answer.ids());
        // All but the last sampled token was evaluated.
        let evaluated = whole.len() - 1;
        assert_eq!(router.believes(&whole[..evaluated]), evaluated / 4 * 4);
    }
    assert!(removed > 3 && found > 50, "{removed} {found}");
}

#[test]
fn without_reuse_routers_are_told_nothing() {
    let Some(model) = model_with(|config| config.reuse_prefix = false) else { return };
    let queue = KvEventQueue::new(4);
    let mut engine = engine(&model).with_kv_events(Arc::clone(&queue));
    let prompt = encode(&model, STORY);
    run(&mut engine, vec![spec(1, prompt, 4)]);
    assert_eq!(queue.take(Duration::ZERO), Some(Vec::new()));
}
