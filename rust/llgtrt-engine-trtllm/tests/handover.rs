//! Sequences that one executor begins and another goes on with.

mod common;

use std::sync::Arc;

use common::{EngineDir, Record, engine_of, finish, spec};
use llgtrt_core::{
    AdvanceBatch, AdvanceState, Engine, ErrorKind, Finish, Handover, MaskBatch, MaskSlot, MaskSource, Phase,
    RequestOptions, SamplingParams, SequenceSpec, StopCause,
};
use llgtrt_engine_trtllm::{TransceiverBackend, TrtllmEngine};

/// An engine with a cache transceiver.
fn dividing(dir: &EngineDir) -> TrtllmEngine {
    let mut setup = dir.setup();
    setup.config.cache_transceiver_backend = Some(TransceiverBackend::Nixl);
    setup.config.cache_transceiver_max_tokens_in_buffer = Some(512);
    setup.config.kv_transfer_timeout_ms = Some(60_000);
    let engine = engine_of(&setup);
    assert!(engine.capabilities().handover);
    engine
}

fn run(engine: &mut TrtllmEngine, spec: SequenceSpec) -> Record {
    let id = spec.id.0;
    engine.submit(spec).unwrap();
    finish(engine, &[id]).remove(0)
}

fn handed_over(record: &Record) -> Arc<Handover> {
    let Some(Finish::HandedOver(handover)) = &record.finish else { panic!("{:?}", record.finish) };
    assert_eq!(handover.first_tokens, record.tokens());
    Arc::clone(handover)
}

#[test]
fn two_executors_say_what_one_says() {
    let dir = EngineDir::new("chunk_tokens=5\n");
    let (mut whole, mut context, mut generation) = (dividing(&dir), dividing(&dir), dividing(&dir));
    let sampled = SamplingParams { seed: 9, ignore_eos: true, min_tokens: 3, ..SamplingParams::default() };
    let asked = [
        spec(1, "a prompt of more than sixteen tokens", 12),
        spec(2, "one token is all of it", 1),
        SequenceSpec { sampling: sampled, ..spec(3, "sampled", 7) },
        SequenceSpec { stop_token_ids: (0..90).collect(), ..spec(4, "with stop tokens", 50) },
    ];
    for asked in asked {
        let expected = run(&mut whole, asked.clone());
        let first = run(&mut context, SequenceSpec { phase: Phase::Context, ..asked.clone() });
        if let Some(Finish::Stop(_)) = first.finish {
            assert_eq!((first.tokens(), first.finish), (expected.tokens(), expected.finish));
            continue;
        }
        let handover = handed_over(&first);
        assert_eq!(handover.first_tokens.len(), 1);
        let second = run(&mut generation, SequenceSpec { phase: Phase::Generation(handover), ..asked });
        assert_eq!((second.tokens(), &second.finish), (expected.tokens(), &expected.finish));
    }
    for engine in [&mut whole, &mut context, &mut generation] {
        assert!(!engine.has_work());
    }
}

/// Allows the bytes of a text, one after the other, and nothing behind it.
struct Spelled(&'static [u8]);

impl MaskSource for Spelled {
    fn advance(&self, slots: &[MaskSlot<'_>], _fast_forward: bool, out: &mut AdvanceBatch) {
        for slot in slots {
            let said: Vec<_> = self.0.iter().map(|&byte| u32::from(byte)).collect();
            assert!(said.starts_with(slot.tokens), "{:?}", slot.tokens);
            let over = slot.tokens.len() == said.len();
            out.push(&[], if over { AdvanceState::Stop } else { AdvanceState::Sample });
        }
    }

    fn fill(&self, slots: &[MaskSlot<'_>], batch: &mut MaskBatch) {
        for ((words, _), slot) in batch.rows_mut().zip(slots) {
            let token = u32::from(self.0[slot.tokens.len()]);
            words.fill(0);
            words[token as usize / 32] = 1 << (token % 32);
        }
    }
}

#[test]
fn the_first_token_is_sampled_under_the_mask_and_the_matcher_goes_on_behind_it() {
    let dir = EngineDir::new("");
    let masks = |text| {
        let mut setup = dir.setup();
        setup.config.cache_transceiver_backend = Some(TransceiverBackend::Default);
        let tokenizer = llgtrt_conformance::support::Bytes::shared();
        TrtllmEngine::new(&setup, tokenizer, Arc::new(Spelled(text))).unwrap()
    };
    let asked = SequenceSpec { constrained: true, ..spec(1, "hello", 20) };
    let first = run(&mut masks(b"grammar"), SequenceSpec { phase: Phase::Context, ..asked.clone() });
    let handover = handed_over(&first);
    assert_eq!(handover.first_tokens, [u32::from(b'g')]);
    let phase = Phase::Generation(handover);
    let second = run(&mut masks(b"grammar"), SequenceSpec { phase, ..asked.clone() });
    assert_eq!(second.tokens(), b"grammar".map(u32::from));
    assert_eq!(second.finish, Some(Finish::Stop(StopCause::GrammarComplete)));
    // Complete with its first token: there is nothing to go on with.
    let short = run(&mut masks(b"g"), SequenceSpec { phase: Phase::Context, ..asked });
    assert_eq!(short.finish, Some(Finish::Stop(StopCause::GrammarComplete)));
}

#[test]
fn what_is_not_handed_over_is_named() {
    let dir = EngineDir::new("");
    let mut engine = dividing(&dir);
    let context = |id| SequenceSpec { phase: Phase::Context, ..spec(id, "hello", 4) };
    let handover = handed_over(&run(&mut engine, context(1)));
    let generation = |handover: Handover| SequenceSpec {
        phase: Phase::Generation(Arc::new(handover)),
        ..spec(2, "hello", 4)
    };
    let refused = |engine: &mut TrtllmEngine, spec| engine.submit(spec).unwrap_err().param.unwrap();
    let with_beams = RequestOptions { beam_width: Some(2), ..RequestOptions::default() };
    let with_beams = SequenceSpec { options: Some(Arc::new(with_beams)), ..context(2) };
    assert_eq!(refused(&mut engine, with_beams), "beam_width");
    let sampling = SamplingParams { logprobs: Some(0), ..SamplingParams::default() };
    assert_eq!(refused(&mut engine, SequenceSpec { sampling, ..context(2) }), "logprobs");
    let without_tokens = Handover { first_tokens: Vec::new(), ..(*handover).clone() };
    assert_eq!(refused(&mut engine, generation(without_tokens)), "disaggregated_params.first_gen_tokens");
    let unknown = Handover { draft_tokens: vec![257], ..(*handover).clone() };
    assert_eq!(refused(&mut engine, generation(unknown)), "disaggregated_params.draft_tokens");
    // Of another sequence.
    let mut other = generation((*handover).clone());
    other.prompt = Arc::from([1, 2, 3]);
    assert_eq!(run(&mut engine, other).failure().kind, ErrorKind::Internal);
    // Without a transceiver nothing is divided.
    let mut single = dir.free_engine();
    assert!(!single.capabilities().handover);
    assert_eq!(refused(&mut single, context(3)), "disaggregated_params");
}

#[test]
fn a_phase_that_is_cancelled_leaves_nothing() {
    let dir = EngineDir::new("step_us=500\nchunk_tokens=1\n");
    let (mut context, mut generation) = (dividing(&dir), dividing(&dir));
    let asked = spec(1, "a prompt of more than sixteen tokens", 400);
    context.submit(SequenceSpec { phase: Phase::Context, ..asked.clone() }).unwrap();
    context.cancel(asked.id);
    assert_eq!(finish(&mut context, &[1])[0].finish, Some(Finish::Cancelled));
    let handover = handed_over(&run(&mut context, SequenceSpec { phase: Phase::Context, ..asked.clone() }));
    let phase = Phase::Generation(handover);
    generation.submit(SequenceSpec { phase, ..asked.clone() }).unwrap();
    generation.cancel(asked.id);
    assert_eq!(finish(&mut generation, &[1])[0].finish, Some(Finish::Cancelled));
    assert!(!context.has_work() && !generation.has_work());
}
