//! Long prompts, which are evaluated apart from the passes of others, a part of a layer at a time.

mod common;

use common::*;
use llgtrt_core::{Engine, SamplingParams, SequenceId, SequenceSpec, TokenId};
use llgtrt_engine_llamacpp::{LlamaCppConfig, LlamaCppEngine, LlamaCppModel};
use std::sync::OnceLock;

const TEXTS: [&str; 3] =
    ["The river runs to the sea. ", "One two three four five six. ", "Bread is made of flour and salt. "];

fn room(config: &mut LlamaCppConfig) {
    (config.max_sequence_tokens, config.max_batch_size) = (Some(2048), 6);
}

fn long_model() -> Option<&'static LlamaCppModel> {
    static MODEL: OnceLock<Option<LlamaCppModel>> = OnceLock::new();
    MODEL.get_or_init(|| model_with(room)).as_ref().filter(|_| has_same_bits())
}

/// An engine whose prompts share passes with answers, some tokens at a time.
fn in_chunks() -> Option<LlamaCppModel> {
    model_with(|config| {
        room(config);
        config.prefill_chunk_tokens = Some(48);
    })
}

fn prompt(model: &LlamaCppModel, number: usize, tokens: usize) -> Vec<TokenId> {
    let mut prompt = encode(model, &format!("Text {number}. {}", TEXTS[number % 3].repeat(tokens / 4)));
    prompt.truncate(tokens);
    assert_eq!(prompt.len(), tokens);
    prompt
}

/// What each of them says when it is alone and evaluated in chunks.
fn expected(prompts: &[Vec<TokenId>], count: u32) -> Vec<Vec<TokenId>> {
    let model = in_chunks().expect("the other model was there");
    let alone =
        |prompt: &Vec<TokenId>| run(&mut engine(&model), vec![endless(1, prompt.clone(), count)])[&1].ids();
    prompts.iter().map(alone).collect()
}

/// A sequence of which the model does not say where it ends.
fn endless(id: u64, prompt: Vec<TokenId>, tokens: u32) -> SequenceSpec {
    let spec = spec(id, prompt, tokens);
    SequenceSpec { sampling: SamplingParams { ignore_eos: true, ..spec.sampling }, ..spec }
}

/// Polls until a sequence has so many tokens.
fn until(engine: &mut LlamaCppEngine, answers: &mut Answers, id: u64, tokens: usize) {
    let mut polls = 0;
    while answers.get(&id).is_none_or(|answer| answer.tokens.len() < tokens) {
        step(engine, answers);
        polls += 1;
        assert!(polls < 20_000, "{id} makes no progress");
    }
}

/// One poll. Answers how many tokens of prompts were evaluated in it.
fn poll(engine: &mut LlamaCppEngine, answers: &mut Answers) -> usize {
    step(engine, answers).passes().iter().map(|pass| pass.prefill_tokens as usize).sum()
}

#[test]
fn answers_go_on_between_the_parts_of_a_pass_over_a_long_prompt() {
    let Some(model) = long_model() else { return };
    let mut engine = engine(model);
    let mut answers = Answers::new();
    engine.submit(endless(1, encode(model, "Once upon a time"), 2000)).unwrap();
    until(&mut engine, &mut answers, 1, 8);
    engine.submit(endless(2, prompt(model, 0, 1200), 1)).unwrap();
    let (mut polls, mut passes, mut most) = (0, 0, 0);
    let before = answers[&1].tokens.len();
    while !answers.contains_key(&2) {
        let evaluated = poll(&mut engine, &mut answers);
        (polls, passes, most) = (polls + 1, passes + usize::from(evaluated > 0), most.max(evaluated));
    }
    assert_eq!(answers[&1].tokens.len() - before, polls, "a token in each");
    assert!(polls >= 4 * passes && most >= 16, "{polls} polls, {passes} passes over at most {most} tokens");
}

#[test]
fn answers_are_the_same_as_of_prompts_that_are_evaluated_in_chunks() {
    let Some(model) = long_model() else { return };
    let lengths = [1300, 40, 700, 300, 17, 512];
    let prompts: Vec<_> =
        lengths.iter().enumerate().map(|(number, &tokens)| prompt(model, number, tokens)).collect();
    let expected = expected(&prompts, 40);
    let mut engine = engine(model);
    let mut answers = Answers::new();
    let submit = |engine: &mut LlamaCppEngine, number: usize| {
        engine.submit(endless(number as u64, prompts[number].clone(), 40)).unwrap();
    };
    submit(&mut engine, 1);
    until(&mut engine, &mut answers, 1, 2);
    for number in [0, 2, 3] {
        submit(&mut engine, number);
    }
    step(&mut engine, &mut answers);
    submit(&mut engine, 4);
    submit(&mut engine, 5);
    finish(&mut engine, &mut answers);
    for (number, expected) in expected.iter().enumerate() {
        assert_eq!(&answers[&(number as u64)].ids(), expected, "{number}");
    }
}

#[test]
fn short_prompts_do_not_wait_for_the_end_of_a_long_one() {
    let Some(model) = long_model() else { return };
    let mut engine = engine(model);
    let mut answers = Answers::new();
    engine.submit(endless(1, encode(model, "Once upon a time"), 2000)).unwrap();
    until(&mut engine, &mut answers, 1, 2);
    engine.submit(endless(2, prompt(model, 0, 1900), 1)).unwrap();
    step(&mut engine, &mut answers);
    engine.submit(endless(3, prompt(model, 1, 300), 1)).unwrap();
    engine.submit(endless(4, prompt(model, 2, 200), 1)).unwrap();
    until(&mut engine, &mut answers, 3, 1);
    until(&mut engine, &mut answers, 4, 1);
    assert!(!answers.contains_key(&2));
    until(&mut engine, &mut answers, 2, 1);
}

#[test]
fn a_prompt_that_is_cancelled_in_the_middle_of_a_pass_leaves_its_slot_as_it_was() {
    let Some(model) = long_model() else { return };
    let (long, short) = (prompt(model, 0, 1500), prompt(model, 1, 30));
    let mut other = long[..1400].to_vec();
    other.extend(&short);
    // A pass that nobody stopped would end before the neighbour's answer.
    let expected = expected(&[short.clone(), other.clone()], 150);
    let mut engine = engine(model);
    let mut answers = Answers::new();
    let mut id = 10;
    for (least, polls, waits) in [(0, 2, true), (1, 1, false), (1, 3, true), (300, 8, true), (300, 21, false)]
    {
        engine.submit(endless(id, short.clone(), 150)).unwrap();
        until(&mut engine, &mut answers, id, 1);
        engine.submit(endless(id + 1, long.clone(), 24)).unwrap();
        let mut evaluated = 0;
        while evaluated < least {
            evaluated += poll(&mut engine, &mut answers);
        }
        for _ in 0..polls {
            step(&mut engine, &mut answers);
        }
        engine.cancel(SequenceId(id + 1));
        if waits {
            finish(&mut engine, &mut answers);
        }
        // It goes on with what was evaluated of the other one.
        engine.submit(endless(id + 2, other.clone(), 150)).unwrap();
        finish(&mut engine, &mut answers);
        assert_eq!(answers[&id].ids(), expected[0], "{polls} polls after {evaluated} tokens");
        assert_eq!(answers[&(id + 2)].ids(), expected[1], "{polls} polls after {evaluated} tokens");
        id += 3;
        engine = LlamaCppEngine::new(model, std::sync::Arc::new(Script::default())).unwrap();
    }
}

#[test]
fn what_is_evaluated_of_a_prompt_is_copied_while_a_pass_over_the_rest_is_begun() {
    let Some(model) = long_model() else { return };
    let (long, short) = (prompt(model, 0, 1600), prompt(model, 1, 30));
    let mut engine = engine(model);
    let mut answers = Answers::new();
    engine.submit(endless(1, short.clone(), 24)).unwrap();
    until(&mut engine, &mut answers, 1, 1);
    engine.submit(endless(2, long.clone(), 24)).unwrap();
    let mut evaluated = 0;
    while evaluated < 100 {
        evaluated += poll(&mut engine, &mut answers);
    }
    // The next pass is begun, and the cells of the one before are all there is.
    poll(&mut engine, &mut answers);
    let mut other = long[..evaluated + 20].to_vec();
    other.extend(&short);
    engine.submit(endless(3, other.clone(), 24)).unwrap();
    until(&mut engine, &mut answers, 3, 1);
    assert_eq!(answers[&3].cached, Some(evaluated as u32));
    finish(&mut engine, &mut answers);
    for (id, expected) in (1..).zip(&expected(&[short, long, other], 24)) {
        assert_eq!(&answers[&id].ids(), expected, "{id}");
    }
}

#[test]
fn an_engine_can_go_while_a_pass_is_begun() {
    let Some(model) = long_model() else { return };
    let mut engine = engine(model);
    let mut answers = Answers::new();
    engine.submit(endless(1, encode(model, "Once upon a time"), 100)).unwrap();
    until(&mut engine, &mut answers, 1, 3);
    engine.submit(endless(2, prompt(model, 0, 1200), 1)).unwrap();
    step(&mut engine, &mut answers);
    drop(engine);
    let again = run(&mut common::engine(model), vec![endless(1, encode(model, "Once upon a time"), 3)]);
    assert_eq!(again[&1].ids(), answers[&1].ids()[..3]);
}
