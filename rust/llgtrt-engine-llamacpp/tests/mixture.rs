//! Mixtures of experts.

mod common;
#[path = "common/mixture.rs"]
mod mixture;
#[path = "common/patch.rs"]
mod patch;
#[path = "common/tensors.rs"]
mod tensors;

use std::sync::OnceLock;

use common::*;
use llgtrt_core::{Engine, SamplingParams, SequenceSpec};
use llgtrt_engine_llamacpp::{LlamaCppConfig, LlamaCppModel, Speculation};
use patch::TempFile;

const RECORD: &str = "Name: Ada Lovelace. Born: 10 December 1815, London. Died: 27 November 1852, Marylebone. Known for: \
    the first published algorithm for the Analytical Engine of Charles Babbage.";
const TEXT: &str =
    "The lighthouse keeper wrote down every ship that passed, its flag, its course and the hour.";

fn load() -> Option<&'static LlamaCppModel> {
    static MODEL: OnceLock<Option<LlamaCppModel>> = OnceLock::new();
    let load = || {
        let file = TempFile::new("mixture", &mixture::mixture(&std::fs::read(model_path()?).unwrap()));
        // The system keeps a mapped file as long as it is mapped.
        let config = LlamaCppConfig { speculation: Speculation::Auto, ..config(file.path().to_owned()) };
        Some(LlamaCppModel::load(&config).unwrap())
    };
    MODEL.get_or_init(load).as_ref()
}

#[test]
fn experts_that_are_all_the_same_say_what_one_of_them_says() {
    let (Some(mixture), Some(demo)) = (load(), model()) else { return };
    let logprobs = |model| {
        let sampling = SamplingParams { logprobs: Some(1), ..greedy() };
        let spec = SequenceSpec { prompt_logprobs: true, sampling, ..spec(1, encode(model, TEXT), 1) };
        let answer = run(&mut engine(model), vec![spec]).remove(&1).unwrap();
        let of_prompt = answer.prompt_logprobs.unwrap().into_iter().flatten();
        of_prompt.map(|token| token.logprob).collect::<Vec<f32>>()
    };
    let (found, right) = (logprobs(mixture), logprobs(demo));
    assert_eq!(found.len(), right.len());
    assert!(found.len() > 15);
    // What is rounded differs, and activations are rounded to a few bits.
    let off = found.iter().zip(&right).map(|(found, right)| (found - right).abs()).sum::<f32>()
        / found.len() as f32;
    assert!(off < 0.2, "{found:?}, not {right:?}");
}

#[test]
fn it_guesses() {
    let Some(model) = load().filter(|_| has_same_bits()) else { return };
    let asked =
        format!("<|im_start|>user\nRepeat this: {RECORD}<|im_end|>\n<|im_start|>assistant\n{RECORD}\n");
    let mut engine = engine(model);
    run(&mut engine, vec![spec(1, encode(model, &asked), 60)]);
    assert!(engine.stats().draft_tokens > 0, "{:?}", engine.stats());
}

#[test]
fn an_answer_is_the_same_in_any_company() {
    let Some(model) = load().filter(|_| has_same_bits()) else { return };
    let specs: Vec<SequenceSpec> = (1..=7)
        .map(|id| {
            // Prompts of many lengths, which share passes with answers.
            let prompt =
                TEXT.repeat(1 + id as usize % 4) + &format!(" Report {id}: {}", &TEXT[..id as usize * 9]);
            let mut spec = spec(id, encode(model, &prompt), 30);
            if id % 3 == 0 {
                spec.sampling = SamplingParams { temperature: 0.8, seed: id, ..SamplingParams::default() };
            }
            spec
        })
        .collect();
    let answers = run(&mut engine(model), specs.clone());
    for spec in specs {
        let id = spec.id.0;
        let alone = run(&mut engine(model), vec![spec]);
        assert_eq!(answers[&id].ids(), alone[&id].ids(), "answer {id}");
    }
}
