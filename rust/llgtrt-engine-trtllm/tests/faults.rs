//! What goes wrong in the executor ends what it has to and nothing else, and nothing stays behind.

mod common;

use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{EngineDir, Record, finish, note, poll_until, spec};
use llgtrt_conformance::silence_panics;
use llgtrt_conformance::support::AllowAll;
use llgtrt_core::{
    AdvanceBatch, Engine, ErrorKind, Finish, MaskBatch, MaskSlot, MaskSource, SequenceId, StepBatch,
};

/// '!' in a prompt is the token that the stand-in's switches are set to.
const MARK: u32 = b'!' as u32;

fn live_after(engine: &dyn Engine) -> (u32, u32) {
    (engine.stats().running, engine.stats().waiting)
}

#[test]
fn an_error_ends_its_own_request() {
    let dir = EngineDir::new(&format!("error_token={MARK}\nerror_at=3\n"));
    let alone = finish(&mut dir.free_engine_with(spec(2, "a neighbour", 12)), &[2]);
    let mut engine = dir.free_engine();
    engine.submit(spec(1, "this one!", 12)).unwrap();
    engine.submit(spec(2, "a neighbour", 12)).unwrap();
    let records = finish(&mut engine, &[1, 2]);
    assert_eq!(records[0].outputs.len(), 3);
    assert!(records[0].failure().message.contains("told to fail"), "{:?}", records[0].finish);
    assert_eq!(records[1].tokens(), alone[0].tokens());
    assert_eq!(records[1].finish, Some(Finish::Length));
    assert_eq!(live_after(&engine), (0, 0));
    assert!(!engine.has_work());
}

/// The executor answers with errors and goes on; only the device itself can say that it is lost.
#[test]
fn a_lost_device_ends_the_engine() {
    let dir = EngineDir::new("fatal_iteration=4\n");
    let mut engine = dir.free_engine_with(spec(1, "hello", 100));
    let error = end_of(&mut engine);
    assert!(
        error.kind == ErrorKind::EngineFailed && error.message.contains("illegal memory access"),
        "{error:?}"
    );
    assert_eq!(engine.submit(spec(2, "more", 5)).unwrap_err().kind, ErrorKind::EngineFailed);
    assert!(engine.has_work(), "a dead engine is polled, and says so");
    assert!(engine.poll(Duration::ZERO, &mut StepBatch::default()).is_err());
}

#[test]
fn a_device_lost_while_idle_is_noticed_by_the_next_request() {
    let dir = EngineDir::new("fatal_iteration=3\n");
    let mut engine = dir.free_engine_with(spec(1, "hello", 2));
    finish(&mut engine, &[1]);
    engine.submit(spec(2, "more", 5)).unwrap();
    assert_eq!(end_of(&mut engine).kind, ErrorKind::EngineFailed);
    assert_eq!(engine.submit(spec(3, "again", 5)).unwrap_err().kind, ErrorKind::EngineFailed);
}

#[test]
fn a_pass_that_fails_on_a_sound_device_is_not_the_end() {
    let dir = EngineDir::new("fail_iteration=3\n");
    let mut engine = dir.free_engine_with(spec(1, "hello", 50));
    engine.submit(spec(2, "a neighbour", 50)).unwrap();
    for record in finish(&mut engine, &[1, 2]) {
        assert_eq!(record.failure().kind, ErrorKind::Internal);
        assert!(record.failure().message.contains("told to fail"), "{:?}", record.finish);
    }
    assert!(!engine.has_work());
    engine.submit(spec(3, "again", 5)).unwrap();
    assert_eq!(finish(&mut engine, &[3])[0].outputs.len(), 5);
}

/// Polls until the engine says that it has ended.
fn end_of(engine: &mut dyn Engine) -> llgtrt_core::Error {
    let start = Instant::now();
    loop {
        assert!(start.elapsed() < Duration::from_secs(60));
        if let Err(error) = engine.poll(Duration::from_millis(20), &mut StepBatch::default()) {
            return error;
        }
    }
}

#[test]
fn an_unknown_finish_reason_is_survived() {
    let dir = EngineDir::new(&format!("odd_finish_token={MARK}\n"));
    let mut engine = dir.free_engine_with(spec(1, "this one!", 12));
    engine.submit(spec(2, "a neighbour", 5)).unwrap();
    let records = finish(&mut engine, &[1, 2]);
    assert_eq!((records[0].outputs.len(), &records[0].finish), (2, &Some(Finish::Length)));
    assert_eq!((records[1].outputs.len(), &records[1].finish), (5, &Some(Finish::Length)));
}

#[test]
fn a_request_that_timed_out_fails() {
    let dir = EngineDir::new(&format!("timeout_token={MARK}\n"));
    let records = finish(&mut dir.free_engine_with(spec(1, "late!", 12)), &[1]);
    assert_eq!(records[0].failure().kind, ErrorKind::Overloaded);
}

#[test]
fn a_refused_request_was_not_accepted() {
    let dir = EngineDir::new(&format!("refuse_token={MARK}\n"));
    let mut engine = dir.free_engine();
    let error = engine.submit(spec(1, "no!", 5)).unwrap_err();
    assert!(error.kind == ErrorKind::InvalidRequest && error.message.contains("told to refuse"), "{error:?}");
    assert!(!engine.has_work());
    engine.submit(spec(1, "yes", 5)).unwrap();
    assert_eq!(finish(&mut engine, &[1])[0].outputs.len(), 5);
}

#[test]
fn a_poll_of_an_engine_that_hangs_returns() {
    let dir = EngineDir::new("hang_iteration=3\n");
    let mut engine = dir.free_engine_with(spec(1, "hello", 50));
    let mut batch = StepBatch::default();
    engine.poll(Duration::from_millis(50), &mut batch).unwrap();
    batch.clear();
    // Nothing comes any more; a poll still ends.
    engine.poll(Duration::from_millis(50), &mut batch).unwrap();
    engine.cancel(SequenceId(1));
    batch.clear();
    engine.poll(Duration::from_millis(50), &mut batch).unwrap();
    let ends: Vec<_> = batch.iter().map(|(output, _)| output.finish.clone()).collect();
    assert_eq!(ends, [Some(Finish::Cancelled)]);
    // TensorRT-LLM's shutdown waits for the kernel that hangs; the server leaves the engine behind and exits.
    std::mem::forget(engine);
}

#[test]
fn a_cancellation_at_any_moment_ends_once() {
    let dir = EngineDir::new(&format!("echo_token={MARK}\nchunk_tokens=3\n"));
    let mut engine = dir.free_engine();
    for round in 0..60_u64 {
        let ids = [round * 3 + 1, round * 3 + 2, round * 3 + 3];
        let mut records = vec![Record::default(); 3];
        for id in ids {
            engine.submit(spec(id, "a prompt in pieces!", 6)).unwrap();
        }
        // From before the first chunk to after the last token.
        for _ in 0..round % 12 {
            let mut batch = StepBatch::default();
            engine.poll(Duration::from_millis(1), &mut batch).unwrap();
            note(&batch, &ids, &mut records);
        }
        let over = records[1].finish.is_some();
        engine.cancel(SequenceId(ids[1]));
        engine.cancel(SequenceId(ids[1]));
        poll_until(&mut engine, &ids, &mut records, |records| records.iter().all(|r| r.finish.is_some()));
        if !over {
            assert_eq!(records[1].finish, Some(Finish::Cancelled));
        }
        assert_eq!(records[0].outputs.len(), 6);
        assert_eq!(records[0].tokens(), records[2].tokens());
    }
    assert_eq!(live_after(&engine), (0, 0));
}

#[test]
fn an_exception_of_an_unknown_type_does_not_cross_the_interface() {
    let dir = EngineDir::new("odd_exception=1\nstep_us=300\n");
    let mut engine = dir.free_engine_with(spec(1, "hello", 20));
    engine.submit(spec(2, "a neighbour", 20)).unwrap();
    // cancelRequest throws an int; the sequence is over for us all the same.
    engine.cancel(SequenceId(1));
    let records = finish(&mut engine, &[1, 2]);
    assert_eq!(records[0].finish, Some(Finish::Cancelled));
    assert_eq!(records[1].outputs.len(), 20);
}

#[test]
fn an_engine_that_does_not_load_says_why() {
    let dir = EngineDir::new("broken=1\n");
    let Err(error) = dir.try_engine() else { panic!("it started") };
    assert!(
        error.kind == ErrorKind::Configuration && error.message.contains("told not to start"),
        "{error:?}"
    );
}

const TOLD_TO_PANIC: &str = "the mask source was told to panic";

/// Panics when the sequence has a number of tokens.
struct Panics {
    sequence: u64,
    at: usize,
    in_fill: bool,
}

impl Panics {
    fn check(&self, slots: &[MaskSlot<'_>]) {
        let due = |slot: &MaskSlot<'_>| slot.sequence.0 == self.sequence && slot.tokens.len() >= self.at;
        assert!(!slots.iter().any(due), "{TOLD_TO_PANIC}");
    }
}

impl MaskSource for Panics {
    fn advance(&self, slots: &[MaskSlot<'_>], fast_forward: bool, out: &mut AdvanceBatch) {
        if !self.in_fill {
            self.check(slots);
        }
        AllowAll.advance(slots, fast_forward, out);
    }

    fn fill(&self, slots: &[MaskSlot<'_>], batch: &mut MaskBatch) {
        if self.in_fill {
            self.check(slots);
        }
        AllowAll.fill(slots, batch);
    }
}

#[test]
fn a_panic_in_the_callback_ends_the_sequences_of_the_step() {
    silence_panics(TOLD_TO_PANIC);
    let dir = EngineDir::new("");
    for in_fill in [false, true] {
        let mut engine = dir.engine(Arc::new(Panics { sequence: 1, at: 2, in_fill }));
        let constrained = |id| llgtrt_core::SequenceSpec { constrained: true, ..spec(id, "hello", 8) };
        engine.submit(constrained(1)).unwrap();
        engine.submit(spec(2, "a plain neighbour", 8)).unwrap();
        let records = finish(&mut engine, &[1, 2]);
        assert_eq!(records[0].failure().kind, ErrorKind::Internal);
        assert_eq!(records[0].outputs.len(), 2, "what was sampled without a mask is not reported");
        assert_eq!(records[1].outputs.len(), 8);
        // The next is served.
        engine.submit(constrained(3)).unwrap();
        assert_eq!(finish(&mut engine, &[3])[0].outputs.len(), 8);
    }
}
