//! Constrained generation with a scripted grammar: forced runs, their reports and their ends.

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;

use common::*;
use llgtrt_core::{
    AdvanceBatch, AdvanceState, Engine, Finish, MaskBatch, MaskSlot, MaskSource, MaskVerdict, SamplingParams,
    SequenceSpec, StopCause, TokenId,
};
use llgtrt_engine_llamacpp::{LlamaCppEngine, LlamaCppModel};

const LINE: &str = "{\"name\": \"Ada Lovelace\", \"born\": 1815, \"languages\": [\"English\", \"French\"]}";

fn constrained(id: u64, prompt: Vec<TokenId>, max_tokens: u32) -> SequenceSpec {
    SequenceSpec { constrained: true, ..spec(id, prompt, max_tokens) }
}

fn line(model: &LlamaCppModel, runs: &[(usize, usize)]) -> Line {
    Line { tokens: encode(model, LINE), runs: runs.iter().copied().collect(), ..Line::default() }
}

fn run_line(model: &LlamaCppModel, line: Line, spec: SequenceSpec) -> (Answer, Arc<Script>, u64) {
    let script = Script::new([(spec.id.0, line)]);
    let mut engine = LlamaCppEngine::new(model, Arc::<Script>::clone(&script)).unwrap();
    let id = spec.id.0;
    let answer = run(&mut engine, vec![spec]).remove(&id).unwrap();
    (answer, script, engine.stats().forward_passes)
}

const COMPLETE: Option<Finish> = Some(Finish::Stop(StopCause::GrammarComplete));

#[test]
fn forced_runs_give_what_masks_alone_give_in_fewer_passes() {
    let Some(model) = model() else { return };
    let prompt = encode(model, "Answer in JSON.\n");
    let length = encode(model, LINE).len();
    let (masked, _, slow) = run_line(model, line(model, &[]), constrained(1, prompt.clone(), 100));
    assert_eq!(decode(model, &masked.ids()), LINE);
    assert_eq!(masked.finish, COMPLETE);
    assert!(masked.tokens.iter().all(|token| !token.forced));

    let (forced, _, fast) =
        run_line(model, line(model, &[(0, 4), (6, 3), (9, 5)]), constrained(1, prompt, 100));
    assert_eq!(forced.ids(), masked.ids());
    assert_eq!(forced.finish, COMPLETE);
    let flags: Vec<bool> = forced.tokens.iter().map(|token| token.forced).collect();
    // After the run at 6 comes a sampled token: the next advance is at 10.
    let expected: Vec<bool> = (0..length).map(|i| i < 4 || (6..9).contains(&i)).collect();
    assert_eq!(flags, expected);
    assert_eq!(slow - fast, 4 + 3, "each forced token saves a pass");
}

#[test]
fn the_first_advance_comes_before_the_prompt_is_evaluated() {
    let Some(model) = model_with(|config| config.max_num_tokens = Some(16)) else { return };
    let prompt = encode(&model, &"Some words to fill the prompt. ".repeat(8));
    assert!(prompt.len() > 32);
    let script = Script::new([(1, line(&model, &[(0, 3)]))]);
    let mut engine = LlamaCppEngine::new(&model, Arc::<Script>::clone(&script)).unwrap();
    engine.submit(constrained(1, prompt, 50)).unwrap();
    let mut answers = Answers::new();
    step(&mut engine, &mut answers);
    assert_eq!(*script.calls.lock().unwrap(), [("advance", 1, 0)]);
    assert!(answers.is_empty(), "nothing is reported before the prompt has been evaluated");
    while answers.is_empty() {
        step(&mut engine, &mut answers);
    }
    assert_eq!(answers[&1].tokens.len(), 4, "three forced tokens and the first sampled one");
    assert_eq!(answers[&1].cached, Some(0));
    finish(&mut engine, &mut answers);
    assert_eq!(decode(&model, &answers[&1].ids()), LINE);
}

#[test]
fn a_grammar_may_force_everything() {
    let Some(model) = model() else { return };
    let (answer, script, passes) =
        run_line(model, line(model, &[(0, 1000)]), constrained(1, encode(model, "Go."), 100));
    assert_eq!(decode(model, &answer.ids()), LINE);
    assert_eq!((answer.finish.clone(), passes), (COMPLETE, 1));
    assert!(script.calls.lock().unwrap().iter().all(|call| call.0 == "advance"), "nothing is sampled");
}

#[test]
fn max_tokens_cuts_a_forced_run() {
    let Some(model) = model() else { return };
    let expected = encode(model, LINE);
    for max_tokens in 1..=8 {
        let spec = constrained(1, encode(model, "Go."), max_tokens);
        let (answer, ..) = run_line(model, line(model, &[(2, 4)]), spec);
        assert_eq!(answer.ids(), expected[..max_tokens as usize]);
        assert_eq!(answer.finish, Some(Finish::Length));
    }
}

#[test]
fn the_context_end_cuts_a_forced_run() {
    let Some(model) = model_with(|config| config.max_sequence_tokens = Some(40)) else { return };
    let (answer, ..) = run_line(&model, line(&model, &[(3, 50)]), constrained(1, vec![100; 30], 10));
    assert_eq!(answer.tokens.len(), 10);
    assert_eq!(answer.finish, Some(Finish::Length));
}

#[test]
fn a_forced_stop_token_ends_the_sequence() {
    let Some(model) = model() else { return };
    let mut spec = constrained(1, encode(model, "Go."), 100);
    let expected = encode(model, LINE);
    spec.stop_token_ids = [expected[3]].into();
    let (answer, ..) = run_line(model, line(model, &[(1, 20)]), spec);
    let end = expected.iter().position(|&token| token == expected[3]).unwrap();
    assert_eq!(answer.ids(), expected[..=end]);
    assert_eq!(answer.finish, Some(Finish::Stop(StopCause::StopToken(expected[3]))));
}

#[test]
fn forced_tokens_have_logprobs_when_asked_for() {
    let Some(model) = model() else { return };
    let prompt = encode(model, "Answer in JSON.\n");
    let spec = |id| {
        let mut spec = constrained(id, prompt.clone(), 100);
        spec.sampling.logprobs = Some(1);
        spec
    };
    let (masked, ..) = run_line(model, line(model, &[]), spec(1));
    let (forced, ..) = run_line(model, line(model, &[(0, 5), (7, 1000)]), spec(2));
    assert_eq!(forced.ids(), masked.ids());
    assert_eq!(forced.finish, COMPLETE);
    assert_eq!(forced.tokens.iter().filter(|token| !token.forced).count(), 2);
    for (forced, masked) in forced.tokens.iter().zip(&masked.tokens) {
        let difference =
            forced.logprobs.as_ref().unwrap().logprob - masked.logprobs.as_ref().unwrap().logprob;
        // Batches of other sizes round otherwise.
        assert!(difference.abs() < 0.3, "{difference}");
    }
}

#[test]
fn eight_ragged_scripts_and_free_neighbours_do_not_disturb_each_other() {
    let Some(model) = model() else { return };
    let prompt = |id: u64| encode(model, &format!("Question number {id}: "));
    let runs = |id: u64| -> BTreeMap<usize, usize> {
        (0..12).map(|i| (i * 2 + id as usize % 3, 1 + (i + id as usize) % 4)).collect()
    };
    let lines = (0..5).map(|id| (id, Line { runs: runs(id), ..line(model, &[]) }));
    let mut engine = LlamaCppEngine::new(model, Script::new(lines)).unwrap();
    let mut specs: Vec<_> = (0..5).map(|id| constrained(id, prompt(id), 100)).collect();
    specs.extend((5..8).map(|id| spec(id, prompt(id), 30)));
    let answers = run(&mut engine, specs);
    for id in 0..5 {
        assert_eq!(decode(model, &answers[&id].ids()), LINE);
        assert_eq!(answers[&id].finish, COMPLETE);
    }
    for id in 5..8 {
        let alone = run(&mut engine, vec![spec(id, prompt(id), 30)]);
        assert_eq!(decode(model, &alone[&id].ids()), decode(model, &answers[&id].ids()));
    }
}

#[test]
fn a_failing_grammar_ends_its_own_sequence_only() {
    let Some(model) = model() else { return };
    let lines = [
        (1, Line { fail_at: Some(3), ..line(model, &[]) }),
        (2, Line { fail_at: Some(0), ..line(model, &[]) }),
        (3, line(model, &[(1, 4)])),
    ];
    let mut engine = LlamaCppEngine::new(model, Script::new(lines)).unwrap();
    let specs = (1..=3).map(|id| constrained(id, encode(model, "Go."), 100)).collect();
    let answers = run(&mut engine, specs);
    assert!(matches!(answers[&1].finish, Some(Finish::Failed(_))));
    assert_eq!(answers[&1].tokens.len(), 3);
    assert!(matches!(answers[&2].finish, Some(Finish::Failed(_))));
    assert_eq!(decode(model, &answers[&3].ids()), LINE);
}

#[test]
fn sampling_goes_on_after_a_forced_start() {
    let Some(model) = model() else { return };
    let line = Line { open_end: true, ..line(model, &[(0, 1000)]) };
    let (answer, ..) = run_line(model, line, constrained(1, encode(model, "Answer in JSON.\n"), 60));
    let forced = answer.tokens.iter().take_while(|token| token.forced).count();
    assert_eq!(decode(model, &answer.ids()[..forced]), LINE);
    assert!(answer.tokens.len() > forced);
}

#[test]
fn a_constrained_sequence_can_be_cancelled_between_its_runs() {
    let Some(model) = model() else { return };
    let lines = [(1, line(model, &[(0, 4), (5, 4)])), (2, line(model, &[(0, 4), (5, 4)]))];
    let mut engine = LlamaCppEngine::new(model, Script::new(lines)).unwrap();
    let mut answers = Answers::new();
    for id in 1..=2 {
        engine.submit(constrained(id, encode(model, "Go."), 100)).unwrap();
    }
    step(&mut engine, &mut answers);
    assert!(!answers[&1].tokens.is_empty());
    engine.cancel(llgtrt_core::SequenceId(1));
    finish(&mut engine, &mut answers);
    assert_eq!(answers[&1].finish, Some(Finish::Cancelled));
    assert_eq!(decode(model, &answers[&2].ids()), LINE);
}

/// Allows a few tokens, others at each step and to each sequence.
struct Few;

impl MaskSource for Few {
    fn advance(&self, slots: &[MaskSlot<'_>], _fast_forward: bool, out: &mut AdvanceBatch) {
        for _ in slots {
            out.push(&[], AdvanceState::Sample);
        }
    }

    fn fill(&self, slots: &[MaskSlot<'_>], batch: &mut MaskBatch) {
        for (slot, (row, verdict)) in slots.iter().zip(batch.rows_mut()) {
            row.fill(0);
            *verdict = MaskVerdict::Mask;
            let first = (slot.tokens.len() + 31 * slot.sequence.0 as usize) % 97 + 10;
            for token in (first..49_000).step_by(1201) {
                row[token / 32] |= 1 << (token % 32);
            }
        }
    }
}

#[test]
fn logits_that_a_mask_forbids_are_not_missed() {
    let Some(model) = model() else { return };
    let prompt = encode(model, "The old lighthouse keeper wrote down");
    let drawn = |temperature| SequenceSpec {
        sampling: SamplingParams { temperature, seed: 5, ..SamplingParams::default() },
        ..constrained(1, prompt.clone(), 40)
    };
    for temperature in [0.0, 1.0] {
        let mut engine = LlamaCppEngine::new(model, Arc::new(Few)).unwrap();
        // Alone, only what the mask allows is computed; where log-probabilities are asked for, all of it.
        let alone = run(&mut engine, vec![drawn(temperature)]).remove(&1).unwrap();
        let mut counted = drawn(temperature);
        counted.sampling.logprobs = Some(2);
        let counted = run(&mut engine, vec![counted]).remove(&1).unwrap();
        assert_eq!(alone.ids().len(), 40);
        assert_eq!(alone.ids(), counted.ids());
    }
}

#[test]
fn logits_that_masks_forbid_are_not_missed_beside_others() {
    let Some(model) = model() else { return };
    // Answers of several lengths, by turns under a mask, under a mask with log-probabilities, and free.
    let specs: Vec<SequenceSpec> = (1..=8)
        .map(|id| {
            let prompt = encode(model, &format!("Page {id} of the lighthouse keeper's diary says"));
            let sampling = SamplingParams {
                temperature: (id % 2) as f32,
                seed: id,
                logprobs: (id % 4 == 3).then_some(2),
                ..SamplingParams::default()
            };
            let kind = if id % 4 == 0 { spec } else { constrained };
            SequenceSpec { sampling, ..kind(id, prompt, 20 + 3 * id as u32) }
        })
        .collect();
    let mut engine = LlamaCppEngine::new(model, Arc::new(Few)).unwrap();
    let together = run(&mut engine, specs.clone());
    for spec in specs {
        let id = spec.id.0;
        let alone = run(&mut engine, vec![spec]).remove(&id).unwrap();
        assert_eq!(alone.ids(), together[&id].ids(), "{id}");
        assert_eq!(alone.tokens.len(), 20 + 3 * id as usize);
    }
}
