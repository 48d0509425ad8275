//! Failures happen where the configuration says, and nowhere else.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use llgtrt_conformance::support::{AllowAll, Bytes};
use llgtrt_core::{
    EncodeOptions, Engine, ErrorKind, Finish, SamplingParams, SequenceId, SequenceSpec, StepBatch, TokenId,
};
use llgtrt_engine_sim::{SimConfig, SimEngine};

const POLL: Duration = Duration::from_millis(100);

fn engine(json: &str) -> SimEngine {
    let config: SimConfig = serde_json::from_str(json).expect("a valid configuration");
    SimEngine::new(config, Bytes::shared(), Arc::new(AllowAll)).expect("a valid configuration")
}

fn spec(id: u64, prompt: &str) -> SequenceSpec {
    let options = EncodeOptions { add_special: false, parse_special: false };
    SequenceSpec {
        id: SequenceId(id),
        prompt: Bytes::shared().encode(prompt, options).expect("plain text").into(),
        max_tokens: 10,
        sampling: SamplingParams { seed: id, ignore_eos: true, ..SamplingParams::default() },
        stop_token_ids: Arc::from([]),
        constrained: false,
        prompt_logprobs: false,
        options: None,
        processor: None,
        phase: llgtrt_core::Phase::Whole,
    }
}

type Answers = BTreeMap<u64, (Vec<TokenId>, Option<Finish>)>;

fn run(engine: &mut SimEngine, specs: impl IntoIterator<Item = SequenceSpec>) -> Answers {
    let mut answers = Answers::new();
    for spec in specs {
        answers.insert(spec.id.0, (Vec::new(), None));
        engine.submit(spec).expect("accepted");
    }
    let mut batch = StepBatch::default();
    while engine.has_work() {
        batch.clear();
        engine.poll(POLL, &mut batch).expect("alive");
        for (output, tokens) in batch.iter() {
            let answer = answers.get_mut(&output.id.0).expect("submitted");
            assert_eq!(answer.1, None, "nothing follows a finish");
            answer.0.extend(tokens.iter().map(|token| token.token));
            answer.1.clone_from(&output.finish);
        }
    }
    answers
}

fn eight() -> impl Iterator<Item = SequenceSpec> {
    (1..=8).map(|id| spec(id, if id == 3 { "please fail" } else { "please go on" }))
}

fn failure(finish: Option<&Finish>) -> Option<ErrorKind> {
    match finish {
        Some(Finish::Failed(error)) => Some(error.kind),
        _ => None,
    }
}

#[test]
fn one_sequence_fails_and_the_others_are_unchanged() {
    let sound = run(&mut engine("{}"), eight());
    for (kind, expected) in [("fail_sequence", ErrorKind::Internal), ("nan_row", ErrorKind::NotFinite)] {
        let faults =
            format!(r#"{{"faults": [{{"kind": "{kind}", "at_step": 4, "prompt_contains": "fail"}}]}}"#);
        let mut answers = run(&mut engine(&faults), eight());
        let (tokens, finish) = answers.remove(&3).expect("submitted");
        assert_eq!((tokens.len(), failure(finish.as_ref())), (4, Some(expected)));
        assert_eq!(tokens, sound[&3].0[..4]);
        for (id, answer) in answers {
            assert_eq!(answer, sound[&id]);
        }
    }
}

#[test]
fn every_nth_sequence_fails() {
    let mut engine = engine(r#"{"faults": [{"kind": "nan_row", "every": 4}]}"#);
    for _ in 0..2 {
        let failed: Vec<_> = run(&mut engine, eight())
            .into_iter()
            .filter(|(_, (_, finish))| failure(finish.as_ref()).is_some())
            .map(|(id, _)| id)
            .collect();
        assert_eq!(failed, [4, 8]);
    }
}

#[test]
fn a_fault_without_a_filter_concerns_every_sequence() {
    let answers = run(&mut engine(r#"{"faults": [{"kind": "fail_sequence", "at_step": 2}]}"#), eight());
    assert!(answers.values().all(|(tokens, finish)| tokens.len() == 2 && failure(finish.as_ref()).is_some()));
}

#[test]
fn a_dead_engine_stays_dead() {
    let mut engine = engine(r#"{"faults": [{"kind": "fail_engine", "at_step": 3}]}"#);
    engine.submit(spec(1, "hello")).expect("accepted");
    let mut batch = StepBatch::default();
    for _ in 0..2 {
        engine.poll(POLL, &mut batch).expect("alive before the third pass");
    }
    for _ in 0..2 {
        let error = engine.poll(POLL, &mut batch).expect_err("dead from the third pass on");
        assert_eq!(error.kind, ErrorKind::EngineFailed);
    }
    assert_eq!(engine.submit(spec(2, "hello")).expect_err("dead").kind, ErrorKind::EngineFailed);
}

#[test]
fn a_panic_is_a_panic() {
    llgtrt_conformance::silence_panics("the sim engine was told to panic");
    let mut engine = engine(r#"{"faults": [{"kind": "panic", "at_step": 1, "prompt_contains": "boom"}]}"#);
    run(&mut engine, [spec(1, "quiet")]);
    engine.submit(spec(2, "boom")).expect("accepted");
    let mut batch = StepBatch::default();
    engine.poll(POLL, &mut batch).expect("the first token comes");
    assert!(catch_unwind(AssertUnwindSafe(|| engine.poll(POLL, &mut batch))).is_err());
}

#[test]
fn a_hung_engine_does_not_come_back() {
    let (sender, polls) = channel();
    std::thread::spawn(move || {
        let mut engine = engine(r#"{"faults": [{"kind": "hang", "at_step": 3}]}"#);
        engine.submit(spec(1, "hello")).expect("accepted");
        let mut batch = StepBatch::default();
        while sender.send(()).is_ok() {
            engine.poll(POLL, &mut batch).expect("alive");
        }
    });
    for _ in 0..3 {
        polls.recv().expect("polls before the third pass return");
    }
    assert_eq!(polls.recv_timeout(Duration::from_millis(300)), Err(RecvTimeoutError::Timeout));
}

/// The child half of the next test: does nothing unless it is asked to.
#[test]
fn abort_child() {
    if std::env::var_os("LLGTRT_SIM_ABORT").is_some() {
        run(&mut engine(r#"{"faults": [{"kind": "abort", "at_step": 2}]}"#), [spec(1, "hello")]);
    }
}

#[test]
fn an_abort_ends_the_process() {
    let test = std::env::current_exe().expect("a test has a path");
    let child = |ask: bool| {
        let mut command = std::process::Command::new(&test);
        command.args(["--exact", "abort_child"]);
        if ask {
            command.env("LLGTRT_SIM_ABORT", "1");
        }
        command.output().expect("the test runs itself").status
    };
    assert!(child(false).success());
    let status = child(true);
    assert!(!status.success());
    // A failed test exits with a code; an aborted process has none.
    #[cfg(unix)]
    assert_eq!(status.code(), None);
}

#[test]
fn unusable_configurations_are_refused() {
    for json in [
        r#"{"max_batch_size": 0}"#,
        r#"{"text": "script"}"#,
        r#"{"min_answer_tokens": 9, "max_answer_tokens": 8}"#,
        r#"{"faults": [{"kind": "nan_row", "every": 0}]}"#,
    ] {
        let config: SimConfig = serde_json::from_str(json).expect("well formed");
        let error = SimEngine::new(config, Bytes::shared(), Arc::new(AllowAll)).err().expect(json);
        assert_eq!(error.kind, ErrorKind::Configuration, "{json}");
    }
    for json in [r#"{"step": 1}"#, r#"{"faults": [{"kind": "explode"}]}"#] {
        assert!(serde_json::from_str::<SimConfig>(json).is_err(), "{json}");
    }
}

#[test]
fn a_full_queue_refuses() {
    let mut engine = engine(r#"{"max_batch_size": 1, "max_waiting": 2}"#);
    for id in 1..=3 {
        engine.submit(spec(id, "hello")).expect("there is room");
    }
    assert_eq!(engine.submit(spec(4, "hello")).expect_err("full").kind, ErrorKind::Overloaded);
    engine.cancel(SequenceId(2));
    engine.submit(spec(5, "hello")).expect("there is room again");
}

#[test]
fn bad_sequences_are_refused() {
    let mut engine = engine(r#"{"max_sequence_tokens": 20}"#);
    let kind = |engine: &mut SimEngine, change: &dyn Fn(&mut SequenceSpec)| {
        let mut spec = spec(1, "hello");
        change(&mut spec);
        engine.submit(spec).expect_err("refused").kind
    };
    assert_eq!(kind(&mut engine, &|spec| spec.prompt = Arc::from([])), ErrorKind::InvalidRequest);
    assert_eq!(kind(&mut engine, &|spec| spec.prompt = Arc::from([9999])), ErrorKind::InvalidRequest);
    assert_eq!(kind(&mut engine, &|spec| spec.max_tokens = 0), ErrorKind::InvalidRequest);
    assert_eq!(kind(&mut engine, &|spec| spec.max_tokens = 16), ErrorKind::ContextLength);
    assert!(!engine.has_work());
}
