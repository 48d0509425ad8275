//! Passes planned for a GPU: slots go along in other numbers, and copies are made by the device. On a CPU whose kernels give a
//! token the same logits in any batch no answer may differ by it.

mod common;

use std::sync::Arc;

use common::*;
use llgtrt_core::{Engine, SamplingParams, SequenceSpec};
use llgtrt_engine_llamacpp::{LlamaCppEngine, LlamaCppModel, Speculation};

const START: &str =
    "The lighthouse keeper wrote down every ship that passed, its flag, its course and the hour. ";
const LINE: &str = "{\"name\": \"Ada Lovelace\", \"born\": 1815, \"languages\": [\"English\", \"French\"]}";

/// Sequences with common and with other beginnings, answers of many lengths, some constrained with forced runs.
fn specs(model: &LlamaCppModel) -> (Vec<SequenceSpec>, Arc<Script>) {
    let mut lines = Vec::new();
    let mut specs = Vec::new();
    for id in 0..24_u64 {
        let start = match id % 3 {
            0 => START.repeat(3),
            1 => format!("{id}. {}", START.repeat(2)),
            _ => String::new(),
        };
        let notes = "and a map of winter ".repeat(id as usize % 7);
        let prompt = encode(model, &format!("{start}Report {id} is about bees {notes}and says"));
        let mut spec = spec(id, prompt, 3 + (id as u32 * 7) % 23);
        if id % 2 == 0 {
            spec.sampling = SamplingParams { temperature: 0.9, seed: id, ..SamplingParams::default() };
        }
        if id % 4 == 1 {
            (spec.constrained, spec.max_tokens) = (true, 100);
            let tokens = encode(model, LINE);
            let runs = [(1, 2), (5, 4), (12, 8)].into();
            lines.push((id, Line { tokens, runs, ..Line::default() }));
        }
        specs.push(spec);
    }
    (specs, Script::new(lines))
}

#[test]
fn answers_are_the_same_as_in_passes_planned_for_a_cpu() {
    let same_bits = has_same_bits();
    // Prompts have to wait for their turn in passes of so few tokens.
    let Some(model) = model_with(|config| config.max_num_tokens = Some(48)) else { return };
    let (specs, script) = specs(&model);
    let engine = || LlamaCppEngine::new(&model, Arc::<Script>::clone(&script)).unwrap();
    let mut planned = engine().planned_for_gpu();
    let expected = run(&mut engine(), specs.clone());
    // The second time with what the slots hold of the first.
    for _ in 0..2 {
        let answers = run(&mut planned, specs.clone());
        for (id, answer) in &answers {
            assert_eq!(answer.finish, expected[id].finish);
            assert!(!same_bits || answer.ids() == expected[id].ids(), "answer {id} differs");
        }
    }
    assert!(planned.stats().prefix_cache_hits > 0);
}

#[test]
fn guesses_fill_passes_and_change_no_answer() {
    let load = |speculation| model_with(|config| config.speculation = speculation);
    let (Some(guessing), Some(plain)) = (load(Speculation::On), load(Speculation::Off)) else { return };
    // Answers that repeat their prompts: one at a time, then three beside each other, one with forced runs.
    let specs = |together: u64| -> (Vec<SequenceSpec>, Arc<Script>) {
        let specs = (0..together).map(|id| {
            let prompt = encode(&plain, &format!("{}{LINE} {LINE} {LINE} Report {id}:", START.repeat(3)));
            let mut spec = spec(id, prompt, 60 + id as u32);
            spec.constrained = id == 2;
            spec
        });
        let line = Line { tokens: encode(&plain, LINE), runs: [(5, 4), (12, 8)].into(), ..Line::default() };
        (specs.collect(), Script::new([(2, line)]))
    };
    for together in [1, 3] {
        let (specs, script) = specs(together);
        let engine = |model| LlamaCppEngine::new(model, Arc::<Script>::clone(&script)).unwrap();
        let expected = run(&mut engine(&plain), specs.clone());
        let mut planned = engine(&guessing).planned_for_gpu();
        let answers = run(&mut planned, specs);
        for (id, answer) in &answers {
            assert_eq!(answer.finish, expected[id].finish);
            assert!(!has_same_bits() || answer.ids() == expected[id].ids(), "answer {id} differs");
        }
        let tokens: usize = answers.values().map(|answer| answer.tokens.len()).sum();
        let stats = planned.stats();
        assert!(stats.accepted_draft_tokens as usize * 3 > tokens, "{stats:?}");
        assert!(stats.forward_passes < 45, "an answer has 60 tokens: {stats:?}");
    }
}
