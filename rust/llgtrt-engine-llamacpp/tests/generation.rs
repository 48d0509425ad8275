//! Plain generation on the demo model: the answers are llama.cpp's own, whatever runs beside them.

mod common;

use std::mem::ManuallyDrop;
use std::num::NonZeroU32;
use std::sync::Arc;

use common::*;
use llama_cpp_2::context::params::LlamaContextParams;
use llama_cpp_2::llama_backend::LlamaBackend;
use llama_cpp_2::llama_batch::LlamaBatch;
use llama_cpp_2::model::LlamaModel;
use llama_cpp_2::model::params::LlamaModelParams;
use llama_cpp_2::sampling::LlamaSampler;
use llama_cpp_2::token::LlamaToken;
use llgtrt_core::{Engine, ErrorKind, Finish, SamplingParams, SequenceId, StopCause, TokenId};
use llgtrt_engine_llamacpp::{KvCacheType, LlamaCppModel};

const PROMPTS: [&str; 8] = [
    "The capital of France is",
    "Once upon a time there was a",
    "def fibonacci(n):\n",
    "Water boils at",
    "<|im_start|>user\nName three colours.<|im_end|>\n<|im_start|>assistant\n",
    "1, 2, 3, 4,",
    "Die Katze sitzt auf",
    "In 1969 people landed on the",
];

/// Greedy tokens from llama.cpp alone: one sequence, its own sampler.
fn reference(prompts: &[Vec<TokenId>], count: usize) -> Vec<Vec<TokenId>> {
    // The engine under test shares the backend, so it must not be freed here.
    let backend = ManuallyDrop::new(LlamaBackend::init().unwrap_or(LlamaBackend {}));
    let params = LlamaModelParams::default();
    let model = LlamaModel::load_from_file(&backend, model_path().unwrap(), &params).unwrap();
    let params = LlamaContextParams::default().with_n_ctx(NonZeroU32::new(512)).with_n_threads(1);
    let mut context = model.new_context(&backend, params.with_n_threads_batch(1)).unwrap();
    let mut answers = Vec::new();
    for prompt in prompts {
        context.clear_kv_cache();
        let mut sampler = LlamaSampler::greedy();
        let mut batch = LlamaBatch::new(512, 1);
        let tokens: Vec<LlamaToken> = prompt.iter().map(|&token| LlamaToken(token as i32)).collect();
        batch.add_sequence(&tokens, 0, false).unwrap();
        let mut answer = Vec::new();
        for position in prompt.len() as i32.. {
            context.decode(&mut batch).unwrap();
            let token = sampler.sample(&context, batch.n_tokens() - 1);
            answer.push(token.0 as TokenId);
            if answer.len() == count || model.vocab().is_eog(token) {
                break;
            }
            batch.clear();
            batch.add(token, position, &[0], true).unwrap();
        }
        answers.push(answer);
    }
    answers
}

fn prompts(model: &llgtrt_engine_llamacpp::LlamaCppModel) -> Vec<Vec<TokenId>> {
    PROMPTS.iter().map(|text| encode(model, text)).collect()
}

#[test]
fn greedy_answers_are_llama_cpps_own() {
    let Some(model) = model() else { return };
    let prompts = prompts(model);
    let expected = reference(&prompts, 48);
    let mut engine = engine(model);
    for (prompt, expected) in prompts.into_iter().zip(expected) {
        let answer = run(&mut engine, vec![spec(1, prompt, 48)]).remove(&1).unwrap();
        assert_eq!(answer.ids(), expected);
        let ended = model.tokenizer().vocabulary().is_eos(*expected.last().unwrap());
        let finish = if ended { Finish::Stop(StopCause::EndOfSequence) } else { Finish::Length };
        assert_eq!(answer.finish, Some(finish));
        assert!(answer.cached.is_some());
    }
}

#[test]
fn eight_at_once_answer_as_one_at_a_time() {
    let Some(model) = model() else { return };
    check_eight_at_once(model);
}

#[test]
fn eight_at_once_answer_as_one_at_a_time_with_a_quantized_cache() {
    let Some(model) = model_with(|config| config.kv_cache_type = KvCacheType::Q8_0) else { return };
    check_eight_at_once(&model);
}

fn check_eight_at_once(model: &LlamaCppModel) {
    let prompts = prompts(model);
    let mut engine = engine(model);
    let specs = || prompts.iter().enumerate().map(|(id, prompt)| spec(id as u64, prompt.clone(), 24));
    let together = run(&mut engine, specs().collect());
    for alone in specs() {
        let id = alone.id.0;
        let answer = run(&mut engine, vec![alone]);
        assert_eq!(decode(model, &answer[&id].ids()), decode(model, &together[&id].ids()));
    }
}

#[test]
fn more_sequences_than_slots_take_turns() {
    let Some(model) = model_with(|config| config.max_batch_size = 2) else { return };
    let mut engine = engine(&model);
    let prompts = prompts(&model);
    for id in 0..7 {
        engine.submit(spec(id, prompts[id as usize].clone(), 6)).unwrap();
    }
    let mut answers = Answers::new();
    step(&mut engine, &mut answers);
    assert_eq!((engine.stats().running, engine.stats().waiting), (2, 5));
    finish(&mut engine, &mut answers);
    assert_eq!(answers.len(), 7);
    assert!(answers.values().all(|answer| answer.finish.is_some()));
    assert_eq!((engine.stats().running, engine.stats().waiting), (0, 0));
}

#[test]
fn a_long_prompt_is_evaluated_in_parts_beside_the_answers() {
    // How many tokens a pass has would depend on how long passes take.
    let change = |config: &mut llgtrt_engine_llamacpp::LlamaCppConfig| {
        config.prefill_chunk_tokens = Some(32);
    };
    let Some(model) = model_with(change) else { return };
    let long = encode(&model, &"The quick brown fox jumps over the lazy dog. ".repeat(30));
    let short = encode(&model, PROMPTS[0]);
    assert!(long.len() > 250);
    let expected = reference(&[long.clone(), short.clone()], 12);

    let mut engine = engine(&model);
    let mut answers = Answers::new();
    // The answer in the middle leaves its slot to the long prompt: the others' passes go over it.
    for (id, tokens) in [(1, 40), (3, 1), (4, 40)] {
        engine.submit(spec(id, short.clone(), tokens)).unwrap();
    }
    while answers.get(&3).is_none_or(|answer| answer.finish.is_none()) {
        step(&mut engine, &mut answers);
    }
    engine.submit(spec(2, long, 12)).unwrap();
    while !answers.contains_key(&2) {
        let lengths = |answers: &Answers| [1, 4].map(|id| answers[&id].tokens.len());
        let before = lengths(&answers);
        step(&mut engine, &mut answers);
        step(&mut engine, &mut answers);
        // They go along with each part of the prompt where what stands in for the other tokens costs little; else they have a pass
        // of their own after it.
        let longer = before.map(|length| length + if has_same_bits() { 2 } else { 1 });
        assert_eq!(lengths(&answers), longer);
    }
    assert!(answers[&1].tokens.len() > 250 / 32, "the prompt took many steps");
    finish(&mut engine, &mut answers);
    assert_eq!(answers[&2].ids(), expected[0]);
    for id in [1, 4] {
        assert_eq!(answers[&id].ids()[..12], expected[1]);
    }
}

#[test]
fn a_waiting_a_prefilling_and_a_decoding_sequence_can_be_cancelled() {
    let change = |config: &mut llgtrt_engine_llamacpp::LlamaCppConfig| {
        (config.max_batch_size, config.max_num_tokens) = (2, Some(32));
        config.prefill_chunk_tokens = Some(16);
    };
    let Some(model) = model_with(change) else { return };
    let long = encode(&model, &"One two three four five. ".repeat(40));
    let mut engine = engine(&model);
    let mut answers = Answers::new();
    engine.submit(spec(1, encode(&model, PROMPTS[0]), 100)).unwrap();
    step(&mut engine, &mut answers);
    engine.submit(spec(2, long, 100)).unwrap();
    engine.submit(spec(3, encode(&model, PROMPTS[1]), 5)).unwrap();
    engine.submit(spec(4, encode(&model, PROMPTS[2]), 5)).unwrap();
    step(&mut engine, &mut answers);
    assert_eq!(engine.stats().waiting, 2);

    for cancelled in [3, 2, 1] {
        engine.cancel(SequenceId(cancelled));
        engine.cancel(SequenceId(cancelled));
        let running = engine.stats().running;
        assert_eq!(
            running,
            u32::from(cancelled == 3) * 2 + u32::from(cancelled == 2),
            "its slot is free at once"
        );
        if cancelled == 2 {
            // The waiting one takes the slot in the very next step.
            step(&mut engine, &mut answers);
            assert_eq!(engine.stats().running, 2);
            engine.cancel(SequenceId(4));
        }
    }
    engine.cancel(SequenceId(99));
    finish(&mut engine, &mut answers);
    for id in 1..=4 {
        assert_eq!(answers[&id].finish, Some(Finish::Cancelled), "{id}");
    }
    let again = run(&mut engine, vec![spec(5, encode(&model, PROMPTS[0]), 8)]);
    assert_eq!(again[&5].ids(), reference(&[encode(&model, PROMPTS[0])], 8)[0]);
}

#[test]
fn stop_tokens_end_a_sequence_and_are_reported() {
    let Some(model) = model() else { return };
    let mut engine = engine(model);
    let prompt = encode(model, PROMPTS[5]);
    let free = run(&mut engine, vec![spec(1, prompt.clone(), 10)]).remove(&1).unwrap().ids();
    let stop = free[3];
    let first = free.iter().position(|&token| token == stop).unwrap();
    let mut stopping = spec(2, prompt.clone(), 10);
    stopping.stop_token_ids = [stop].into();
    let answer = run(&mut engine, vec![stopping.clone()]).remove(&2).unwrap();
    assert_eq!(answer.ids(), free[..=first]);
    assert_eq!(answer.finish, Some(Finish::Stop(StopCause::StopToken(stop))));
    stopping.sampling.min_tokens = 10;
    let answer = run(&mut engine, vec![stopping]).remove(&2).unwrap();
    assert_eq!((answer.tokens.len(), answer.finish.clone()), (10, Some(Finish::Length)));
    assert!(!answer.ids()[..9].contains(&stop));
}

#[test]
fn the_end_of_sequence_is_reported_unless_ignored() {
    let Some(model) = model() else { return };
    let mut engine = engine(model);
    let prompt: Arc<[TokenId]> =
        encode(model, "<|im_start|>user\nSay hi.<|im_end|>\n<|im_start|>assistant\n").into();
    let answer = run(&mut engine, vec![spec(1, Arc::clone(&prompt), 200)]).remove(&1).unwrap();
    assert_eq!(answer.finish, Some(Finish::Stop(StopCause::EndOfSequence)));
    assert!(model.tokenizer().vocabulary().is_eos(*answer.ids().last().unwrap()));
    let mut ignoring = spec(2, prompt, answer.tokens.len() as u32 + 5);
    ignoring.sampling.ignore_eos = true;
    let longer = run(&mut engine, vec![ignoring]).remove(&2).unwrap();
    assert_eq!(longer.finish, Some(Finish::Length));
}

#[test]
fn a_seed_gives_the_same_tokens_beside_others_and_another_gives_others() {
    let Some(model) = model() else { return };
    let mut engine = engine(model);
    let prompt = encode(model, PROMPTS[1]);
    let seeded = |id, seed| {
        let mut spec = spec(id, prompt.clone(), 20);
        spec.sampling = SamplingParams { temperature: 1.0, seed, ..SamplingParams::default() };
        spec
    };
    let answers = run(&mut engine, vec![seeded(1, 7), seeded(2, 7), seeded(3, 8)]);
    assert_eq!(answers[&1].ids(), answers[&2].ids());
    assert_ne!(answers[&1].ids(), answers[&3].ids());
}

#[test]
fn logprobs_of_answer_and_prompt_agree() {
    let Some(model) = model() else { return };
    let mut engine = engine(model);
    let prompt = encode(model, "The sun rises in the east and sets in the west. ".repeat(8).trim_end());
    let mut first = spec(1, prompt.clone(), 6);
    first.sampling.logprobs = Some(2);
    let answer = run(&mut engine, vec![first]).remove(&1).unwrap();

    let mut whole = prompt.clone();
    whole.extend(answer.ids());
    let mut second = spec(2, whole.clone(), 1);
    (second.prompt_logprobs, second.sampling.logprobs) = (true, Some(2));
    let echoed = run(&mut engine, vec![second]).remove(&2).unwrap();
    let of_prompt = echoed.prompt_logprobs.unwrap();
    assert_eq!((of_prompt.len(), &of_prompt[0]), (whole.len(), &None));
    assert_eq!(echoed.cached, Some(0), "every position has to be evaluated");
    for (token, echo) in answer.tokens.iter().zip(&of_prompt[prompt.len()..]) {
        let (ours, echo) = (token.logprobs.as_ref().unwrap(), echo.as_ref().unwrap());
        assert_eq!(ours.top.len(), 2);
        assert_eq!(ours.top[0].0, token.token, "greedy takes the most likely");
        // Batches of other sizes round otherwise.
        assert!((ours.logprob - echo.logprob).abs() < 0.2, "{} {}", ours.logprob, echo.logprob);
    }
}

#[test]
fn what_cannot_run_is_refused_and_the_rest_goes_on() {
    let Some(model) = model_with(|config| (config.max_batch_size, config.max_waiting) = (1, 2)) else {
        return;
    };
    let mut engine = engine(&model);
    let vocab_size = engine.capabilities().vocab_size;
    let kind =
        |engine: &mut llgtrt_engine_llamacpp::LlamaCppEngine, spec| engine.submit(spec).unwrap_err().kind;
    assert_eq!(kind(&mut engine, spec(1, [], 5)), ErrorKind::InvalidRequest);
    assert_eq!(kind(&mut engine, spec(1, [5], 0)), ErrorKind::InvalidRequest);
    assert_eq!(kind(&mut engine, spec(1, [vocab_size], 5)), ErrorKind::InvalidRequest);
    assert_eq!(kind(&mut engine, spec(1, vec![5; 510], 5)), ErrorKind::ContextLength);
    assert!(!engine.has_work());
    for id in 1..=3 {
        engine.submit(spec(id, [5, 6], 2)).unwrap();
    }
    assert_eq!(kind(&mut engine, spec(4, [5, 6], 2)), ErrorKind::Overloaded);
    let mut answers = Answers::new();
    finish(&mut engine, &mut answers);
    assert_eq!(answers.len(), 3);
    let full = run(&mut engine, vec![spec(9, vec![5; 500], 12)]);
    assert_eq!(full[&9].tokens.len(), 12);
}
