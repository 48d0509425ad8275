//! Guesses at next tokens: they save forward passes and change nothing that is said.

mod common;

use std::sync::Arc;

use common::*;
use llgtrt_core::{Engine, EngineStats, SamplingParams, SequenceSpec, StopCause, TokenId};
use llgtrt_core::{AdvanceBatch, AdvanceState, Finish, MaskBatch, MaskSlot, MaskSource};
use llgtrt_engine_llamacpp::{LlamaCppEngine, LlamaCppModel};

const RECORD: &str = "Name: Ada Lovelace. Born: 10 December 1815, London. Died: 27 November 1852, Marylebone. Known for: \
    the first published algorithm for the Analytical Engine of Charles Babbage.";

fn models() -> Option<(LlamaCppModel, LlamaCppModel)> {
    let with = |speculation| model_with(|config| config.speculation = speculation);
    Some((with(true)?, with(false)?))
}

fn quoting(model: &LlamaCppModel, id: u64) -> SequenceSpec {
    let prompt = format!(
        "<|im_start|>user\nRepeat this {id} times, word for word: {RECORD}<|im_end|>\n<|im_start|>assistant\n{RECORD}\n"
    );
    let seeded = SamplingParams { seed: id, temperature: 0.9, ..SamplingParams::default() };
    let sampling = if id % 2 == 0 { greedy() } else { seeded };
    SequenceSpec { sampling, ..spec(id, encode(model, &prompt), 120) }
}

fn answers(model: &LlamaCppModel, masks: Arc<dyn MaskSource>, specs: &[SequenceSpec]) -> (Answers, EngineStats) {
    let mut engine = LlamaCppEngine::new(model, masks).unwrap();
    let answers = run(&mut engine, specs.to_vec());
    (answers, engine.stats())
}

#[test]
fn one_answer_at_a_time_stays_the_same_in_fewer_passes() {
    let Some((on, off)) = models() else { return };
    let mut accepted = 0;
    for id in 1..=8 {
        let specs = [quoting(&on, id)];
        let none: Arc<dyn MaskSource> = Arc::new(Script::default());
        let (quick, with) = answers(&on, Arc::clone(&none), &specs);
        let (plain, without) = answers(&off, none, &specs);
        eprintln!("{id} {} {} {} {}", quick[&id] == plain[&id], with.draft_tokens, with.accepted_draft_tokens, without.forward_passes);
        assert_eq!(quick[&id].ids(), plain[&id].ids(), "{id}");
        assert_eq!(quick[&id].finish, plain[&id].finish);
        assert_eq!(without.draft_tokens, 0);
        assert!(with.accepted_draft_tokens <= with.draft_tokens);
        assert_eq!(without.forward_passes - with.forward_passes, with.accepted_draft_tokens, "each saves a pass");
        accepted += with.accepted_draft_tokens;
    }
    assert!(accepted > 100, "{accepted}");
}
