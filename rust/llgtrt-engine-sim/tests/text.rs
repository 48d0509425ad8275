//! What the sim engine says: scripts, random words, and answers under a mask that come to an end.

use std::sync::Arc;
use std::time::Duration;

use llgtrt_conformance::support::{AllowAll, Bytes};
use llgtrt_core::{
    AdvanceBatch, AdvanceState, EncodeOptions, Engine, Finish, MaskBatch, MaskSlot, MaskSource, MaskVerdict,
    SamplingParams, SequenceId, SequenceSpec, StepBatch, StopCause, TokenId,
};
use llgtrt_engine_sim::{SimConfig, SimEngine};

fn spec(seed: u64) -> SequenceSpec {
    SequenceSpec {
        id: SequenceId(seed),
        prompt: Arc::from([TokenId::from(b'?')]),
        max_tokens: 3000,
        sampling: SamplingParams { seed, ..SamplingParams::default() },
        stop_token_ids: Arc::from([]),
        constrained: false,
        prompt_logprobs: false,
        options: None,
        processor: None,
        phase: llgtrt_core::Phase::Whole,
    }
}

/// The text and the end of one sequence.
fn say(json: &str, masks: Arc<dyn MaskSource>, spec: SequenceSpec) -> (String, Finish) {
    let config: SimConfig = serde_json::from_str(json).expect("a valid configuration");
    let mut engine = SimEngine::new(config, Bytes::shared(), masks).expect("a valid configuration");
    engine.submit(spec).expect("accepted");
    let (mut bytes, mut batch) = (Vec::new(), StepBatch::default());
    loop {
        batch.clear();
        engine.poll(Duration::from_millis(100), &mut batch).expect("alive");
        for (output, tokens) in batch.iter() {
            bytes.extend(
                tokens.iter().filter(|token| token.token != Bytes::EOS).map(|token| token.token as u8),
            );
            if let Some(finish) = &output.finish {
                return (String::from_utf8(bytes).expect("readable text"), finish.clone());
            }
        }
    }
}

const EOS: Finish = Finish::Stop(StopCause::EndOfSequence);

#[test]
fn a_script_ends_or_starts_again() {
    let script = r#"{"text": "script", "script": "Hello, world. ", "script_end": "END"}"#;
    let (text, finish) = say(&script.replace("END", "eos"), Arc::new(AllowAll), spec(1));
    assert_eq!((&text[..], finish), ("Hello, world. ", EOS));
    let short = SequenceSpec { max_tokens: 20, ..spec(1) };
    let (text, finish) = say(&script.replace("END", "repeat"), Arc::new(AllowAll), short);
    assert_eq!((&text[..], finish), ("Hello, world. Hello,", Finish::Length));
}

#[test]
fn random_words_end_within_the_configured_length() {
    let config = r#"{"min_answer_tokens": 20, "max_answer_tokens": 30}"#;
    let mut lengths: Vec<_> = (0..40)
        .map(|seed| {
            let (text, finish) = say(config, Arc::new(AllowAll), spec(seed));
            assert_eq!(finish, EOS);
            assert!(text.bytes().all(|byte| byte == b' ' || byte.is_ascii_lowercase()), "{text:?}");
            text.len()
        })
        .collect();
    lengths.sort_unstable();
    assert!(lengths[0] >= 20 && lengths[39] <= 30, "{lengths:?}");
    lengths.dedup();
    assert!(lengths.len() > 5, "{lengths:?}");
}

#[test]
fn ignore_eos_reaches_max_tokens() {
    let mut endless = SequenceSpec { max_tokens: 500, ..spec(1) };
    endless.sampling.ignore_eos = true;
    let (text, finish) = say("{}", Arc::new(AllowAll), endless);
    assert_eq!((text.len(), finish), (500, Finish::Length));
}

#[test]
fn the_configured_seed_changes_the_text() {
    let (first, second) =
        (say("{}", Arc::new(AllowAll), spec(1)).0, say(r#"{"seed": 1}"#, Arc::new(AllowAll), spec(1)).0);
    assert_ne!(first, second);
}

/// Any JSON value without blanks and escapes, over bytes: the hardest grammar to come to an end in.
#[derive(Debug)]
struct AnyJson;

#[derive(Clone, Copy, PartialEq)]
enum State {
    Value,
    FirstItem,
    FirstKey,
    Key,
    Colon,
    Text { key: bool },
    Number,
    After,
}

impl AnyJson {
    /// State and open containers after a text that the masks allowed.
    fn read(tokens: &[TokenId]) -> (State, Vec<u8>) {
        let (mut state, mut open) = (State::Value, Vec::new());
        for &token in tokens {
            let byte = token as u8;
            if state == State::Number && !byte.is_ascii_digit() {
                state = State::After;
            }
            state = match (state, byte) {
                (State::Text { key: true }, b'"') => State::Colon,
                (State::Text { .. }, b'"') => State::After,
                (State::Text { .. }, _) => state,
                (State::Key | State::FirstKey, b'"') => State::Text { key: true },
                (State::Colon, _) => State::Value,
                (_, b'"') => State::Text { key: false },
                (_, b'{') => {
                    open.push(b'}');
                    State::FirstKey
                }
                (_, b'[') => {
                    open.push(b']');
                    State::FirstItem
                }
                (_, b'}' | b']') => {
                    open.pop();
                    State::After
                }
                (_, b',') => {
                    if open.last() == Some(&b'}') {
                        State::Key
                    } else {
                        State::Value
                    }
                }
                _ => State::Number,
            };
        }
        (state, open)
    }

    fn allowed(tokens: &[TokenId]) -> Vec<TokenId> {
        let (state, open) = Self::read(tokens);
        let close = open.last().map(|bracket| vec![b',', *bracket]);
        let value: Vec<u8> = b"\"{[123456789".to_vec();
        let bytes = match state {
            State::Value => value,
            State::FirstItem => [value, vec![b']']].concat(),
            State::FirstKey => b"\"}".to_vec(),
            State::Key => b"\"".to_vec(),
            State::Colon => b":".to_vec(),
            State::Text { .. } => (b' '..=b'~').filter(|byte| *byte != b'\\').collect(),
            State::Number => [b"0123456789".to_vec(), close.clone().unwrap_or_default()].concat(),
            State::After => close.clone().unwrap_or_default(),
        };
        let mut tokens: Vec<_> = bytes.into_iter().map(TokenId::from).collect();
        if open.is_empty() && matches!(state, State::Number | State::After) {
            tokens.push(Bytes::EOS);
        }
        tokens
    }
}

impl MaskSource for AnyJson {
    fn advance(&self, slots: &[MaskSlot<'_>], _fast_forward: bool, out: &mut AdvanceBatch) {
        for _ in slots {
            out.push(&[], AdvanceState::Sample);
        }
    }

    fn fill(&self, slots: &[MaskSlot<'_>], batch: &mut MaskBatch) {
        for (slot, (row, verdict)) in slots.iter().zip(batch.rows_mut()) {
            row.fill(0);
            for token in Self::allowed(slot.tokens) {
                row[token as usize / 32] |= 1 << (token % 32);
            }
            *verdict = MaskVerdict::Mask;
        }
    }
}

fn constrained(seed: u64) -> SequenceSpec {
    SequenceSpec { constrained: true, ..spec(seed) }
}

#[test]
fn random_json_is_valid_and_ends() {
    let mut longest = 0;
    for seed in 0..300 {
        let (text, finish) = say("{}", Arc::new(AnyJson), constrained(seed));
        assert_eq!(finish, EOS, "{text}");
        serde_json::from_str::<serde_json::Value>(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
        longest = longest.max(text.len());
    }
    // 128 tokens is the longest target; what is open then has to be closed.
    assert!(longest < 600, "{longest}");
    assert!(longest > 20, "{longest}");
}

#[test]
fn a_script_is_followed_as_far_as_the_mask_allows() {
    let config = r#"{"text": "script", "script": "{\"name\":\"x\",\"n\":[1,22]}"}"#;
    let (text, finish) = say(config, Arc::new(AnyJson), constrained(1));
    assert_eq!((&text[..], finish), (r#"{"name":"x","n":[1,22]}"#, EOS));
    let prose = r#"{"text": "script", "script": "not JSON"}"#;
    let (text, finish) = say(prose, Arc::new(AnyJson), constrained(1));
    assert_eq!(finish, EOS);
    serde_json::from_str::<serde_json::Value>(&text).expect("valid JSON");
}

#[test]
fn a_bias_competes_under_a_mask() {
    let mut biased = constrained(1);
    biased.sampling.logit_bias = vec![(TokenId::from(b'7'), 100.0), (TokenId::from(b'x'), 100.0)];
    biased.max_tokens = 5;
    assert_eq!(say("{}", Arc::new(AnyJson), biased).0, "77777");
    let mut banned = constrained(1);
    banned.sampling.logit_bias = b"{[\"12345678".iter().map(|byte| (TokenId::from(*byte), -100.0)).collect();
    assert!(say("{}", Arc::new(AnyJson), banned).0.starts_with('9'));
}

#[test]
fn tokens_do_not_depend_on_neighbours_or_time() {
    let options = EncodeOptions { add_special: false, parse_special: false };
    let prompt = |seed: u64| Bytes::shared().encode(&format!("prompt {seed}"), options).expect("plain text");
    let run = |json: &str, seeds: &[u64]| {
        let config: SimConfig = serde_json::from_str(json).expect("a valid configuration");
        let mut engine = SimEngine::new(config, Bytes::shared(), Arc::new(AllowAll)).expect("valid");
        for &seed in seeds {
            engine.submit(SequenceSpec { prompt: prompt(seed).into(), ..spec(seed) }).expect("accepted");
        }
        let (mut answer, mut batch) = (Vec::new(), StepBatch::default());
        while engine.has_work() {
            batch.clear();
            engine.poll(Duration::from_millis(100), &mut batch).expect("alive");
            for (_, tokens) in batch.iter().filter(|(output, _)| output.id == SequenceId(5)) {
                answer.extend(tokens.iter().map(|token| token.token));
            }
        }
        answer
    };
    let alone = run("{}", &[5]);
    assert_eq!(alone, run("{}", &[1, 2, 3, 4, 5, 6, 7]));
    assert_eq!(
        alone,
        run(r#"{"max_batch_size": 2, "prefill_chunk_tokens": 3, "step_us": 50}"#, &[9, 8, 5, 6])
    );
}
