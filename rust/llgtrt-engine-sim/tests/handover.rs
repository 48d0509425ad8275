//! Sequences that one engine begins and another goes on with.

use std::sync::Arc;
use std::time::Duration;

use llgtrt_conformance::support::{AllowAll, Bytes};
use llgtrt_core::{
    Engine, Finish, Handover, Phase, SamplingParams, SequenceId, SequenceSpec, StepBatch, TokenId,
};
use llgtrt_engine_sim::{SimConfig, SimEngine};

fn engine(json: &str) -> SimEngine {
    let config: SimConfig = serde_json::from_str(json).expect("a valid configuration");
    SimEngine::new(config, Bytes::shared(), Arc::new(AllowAll)).expect("a valid configuration")
}

fn spec(max_tokens: u32, phase: Phase) -> SequenceSpec {
    SequenceSpec {
        id: SequenceId(1),
        prompt: (0..40).collect(),
        max_tokens,
        sampling: SamplingParams { seed: 5, ..SamplingParams::default() },
        stop_token_ids: Arc::from([]),
        constrained: false,
        prompt_logprobs: false,
        options: None,
        processor: None,
        phase,
    }
}

/// Runs one sequence; its tokens and its end.
fn run(engine: &mut SimEngine, spec: SequenceSpec) -> (Vec<TokenId>, Finish) {
    engine.submit(spec).expect("accepted");
    let (mut answer, mut end, mut batch) = (Vec::new(), None, StepBatch::default());
    while engine.has_work() {
        batch.clear();
        engine.poll(Duration::from_millis(100), &mut batch).expect("alive");
        for (output, tokens) in batch.iter() {
            assert!(tokens.iter().all(|token| !token.forced));
            answer.extend(tokens.iter().map(|token| token.token));
            end = end.or(output.finish.clone());
        }
    }
    (answer, end.expect("it ended"))
}

fn handed_over(engine: &mut SimEngine, max_tokens: u32) -> Arc<Handover> {
    let (tokens, end) = run(engine, spec(max_tokens, Phase::Context));
    let Finish::HandedOver(handover) = end else { panic!("{end:?}") };
    assert_eq!(handover.first_tokens, tokens);
    handover
}

#[test]
fn the_second_engine_goes_on_where_the_first_ended() {
    for max_tokens in [1, 2, 30] {
        let (mut context, mut generation) = (engine(r#"{"prefill_chunk_tokens": 7}"#), engine("{}"));
        let whole = run(&mut engine("{}"), spec(max_tokens, Phase::Whole));
        let handover = handed_over(&mut context, max_tokens);
        assert_eq!(run(&mut generation, spec(max_tokens, Phase::Generation(handover))), whole);
    }
}

#[test]
fn a_state_of_another_sequence_or_engine_is_refused() {
    let mut context = engine("{}");
    let handover = handed_over(&mut context, 30);
    let refused = |engine: &mut SimEngine, handover: Handover| {
        let spec = spec(30, Phase::Generation(Arc::new(handover)));
        engine.submit(spec).expect_err("refused").param.expect("a field")
    };
    let state = "disaggregated_params.encoded_opaque_state";
    let other_tokens = Handover { first_tokens: vec![1], ..(*handover).clone() };
    assert_eq!(refused(&mut context, other_tokens), state);
    let nothing = Handover { state: Arc::from([]), ..(*handover).clone() };
    assert_eq!(refused(&mut context, nothing), state);
    assert_eq!(refused(&mut engine(r#"{"seed": 4}"#), (*handover).clone()), state);
    let unknown = Handover { first_tokens: vec![1 << 20], ..(*handover).clone() };
    assert_eq!(refused(&mut context, unknown), "disaggregated_params.first_gen_tokens");
}
