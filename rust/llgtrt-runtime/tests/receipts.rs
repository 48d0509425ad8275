//! Receipts of constrained answers, and what is known of a request at its end, over the sim engine.

mod support;

use llgtrt_core::{Enforcement, GrammarSpec, Receipt, StopStrings};
use llgtrt_runtime::{AtLimit, ChoiceFinish, GenerateRequest, OutputFormat, Payload, Runtime, Usage};
use proptest::prelude::*;
use serde_json::Value;
use support::{collect, read_all, request, schema, sim, start, submit};

const PERSON: &str = r#"{"type":"object","properties":{"name":{"type":"string","maxLength":8},
    "tags":{"type":"array","items":{"enum":["a","b","c","d","e","f","g","h"]},"uniqueItems":true,"minItems":2}},
    "required":["name","tags"]}"#;

fn constrained(grammar: GrammarSpec) -> GenerateRequest {
    let mut request = request("a person", OutputFormat::Final);
    request.grammar = Some(grammar);
    request.max_tokens = Some(400);
    request
}

/// Texts, receipts and usage of a request.
fn receipts(runtime: &Runtime, request: GenerateRequest) -> (Vec<String>, Vec<Receipt>, Usage) {
    let handle = submit(runtime, request);
    let (texts, last) = collect(read_all(runtime, &handle));
    assert_eq!(last.error, None);
    let receipts = last.choices.iter().map(|choice| *choice.receipt.clone().expect("a receipt")).collect();
    (texts, receipts, last.usage.expect("usage"))
}

#[test]
fn a_receipt_says_what_held_the_answer() {
    let runtime = start(sim("{}"), 8);
    let (_, receipts, _) = receipts(&runtime, constrained(schema(PERSON)));
    let receipt = &receipts[0];
    assert_eq!((receipt.kind.as_str(), receipt.enforced_by), ("json_schema", Enforcement::GrammarAndCheck));
    assert_eq!(
        (&receipt.rules[..], &receipt.residual[..]),
        (&["closed"][..], &["properties.tags.uniqueItems".to_owned()][..])
    );
    assert!(receipt.complete && !receipt.closed_at_limit && !receipt.grammar_cached);
    assert!(receipt.compile_ms > 0.0 && receipt.mask_ms > 0.0);
    assert_eq!((receipt.stop_strings, receipt.removed_mass), (None, None));
    let json = serde_json::to_value(receipt).expect("JSON");
    assert!(json.get("stop_strings").is_none() && json.get("removed_mass").is_none());
    assert_eq!(json["enforced_by"], "grammar_and_check");
}

#[test]
fn the_same_grammar_is_cached_the_next_time() {
    let runtime = start(sim("{}"), 8);
    let regex = || constrained(GrammarSpec::Regex("[a-c]{3}".to_owned()));
    let (_, first, _) = receipts(&runtime, regex());
    let (_, second, _) = receipts(&runtime, regex());
    assert_eq!((first[0].grammar_cached, second[0].grammar_cached), (false, true));
    assert!((first[0].compile_ms - second[0].compile_ms).abs() < f64::EPSILON);
    assert_eq!(first[0].enforced_by, Enforcement::Grammar);
}

#[test]
fn free_answers_and_those_that_want_none_have_no_receipt() {
    let runtime = start(sim("{}"), 8);
    let mut unwanted = constrained(schema(PERSON));
    unwanted.receipt = None;
    for request in [request("free", OutputFormat::Final), unwanted] {
        let handle = submit(&runtime, request);
        let (_, last) = collect(read_all(&runtime, &handle));
        assert!(last.choices[0].finish.is_some() && last.choices[0].receipt.is_none());
    }
}

#[test]
fn cut_and_closed_answers_say_so() {
    let runtime = start(sim("{}"), 8);
    let limited = |at_limit| {
        let mut request = constrained(GrammarSpec::Regex("a{100}b".to_owned()));
        request.grammar = Some(schema(r#"{"type":"array","items":{"enum":["x","y"]},"minItems":3}"#));
        (request.max_tokens, request.at_limit) = (Some(18), at_limit);
        request
    };
    for seed in 0..20 {
        let with = |at_limit| GenerateRequest { seed: Some(seed), ..limited(at_limit) };
        let (texts, closed, _) = receipts(&runtime, with(AtLimit::Close));
        assert!(closed[0].complete && serde_json::from_str::<Value>(&texts[0]).is_ok(), "{texts:?}");
        let (texts, cut, _) = receipts(&runtime, with(AtLimit::Cut));
        assert!(!cut[0].closed_at_limit);
        assert_eq!(cut[0].complete, serde_json::from_str::<Value>(&texts[0]).is_ok(), "{texts:?}");
        if !cut[0].complete {
            assert!(closed[0].closed_at_limit, "the same answer was completed at its limit");
        }
    }
}

#[test]
fn stop_strings_count_what_they_leave_and_say_what_they_may_end() {
    let runtime = start(sim("{}"), 8);
    let mut stopped = constrained(GrammarSpec::Regex("(one,)+".to_owned()));
    stopped.stop = vec![",o".to_owned()];
    let (_, receipts_of, usage) = receipts(&runtime, stopped);
    assert_eq!(receipts_of[0].stop_strings, Some(StopStrings::WhereComplete));
    assert!(receipts_of[0].complete);
    assert_eq!(receipts_of[0].sampled_tokens + receipts_of[0].forced_tokens, usage.completion_tokens);
    assert!(usage.forced_tokens <= usage.completion_tokens, "{usage:?}");
    let mut verified = constrained(schema(PERSON));
    verified.stop = vec!["}".to_owned()];
    let (_, receipts_of, _) = receipts(&runtime, verified);
    assert_eq!(receipts_of[0].stop_strings, Some(StopStrings::Never));
}

#[test]
fn the_removed_mass_comes_with_logprobs_or_when_asked_for() {
    let runtime = start(sim("{}"), 8);
    let run = |removed_mass, logprobs| {
        let mut request = constrained(schema(PERSON));
        (request.return_removed_mass, request.sampling.logprobs) = (removed_mass, logprobs);
        receipts(&runtime, request).1[0].removed_mass
    };
    assert_eq!(run(false, None), None);
    let alone = run(true, None).expect("asked for");
    assert!(0.0 < alone.mean && alone.mean <= alone.max && alone.max <= 1.0, "{alone:?}");
    assert_eq!(run(false, Some(0)), Some(alone), "forced tokens are not in it");
}

#[test]
fn the_last_frame_of_each_choice_carries_its_receipt() {
    let runtime = start(sim("{}"), 8);
    let mut streamed = constrained(schema(PERSON));
    (streamed.output, streamed.n) = (OutputFormat::ChatSse, 3);
    let handle = submit(&runtime, streamed);
    let mut found = Vec::new();
    for payload in read_all(&runtime, &handle) {
        let Payload::Sse(bytes) = payload else { panic!("expected frames") };
        for frame in String::from_utf8(bytes).expect("UTF-8").split_terminator("\n\n") {
            let Ok(chunk) = serde_json::from_str::<Value>(&frame["data: ".len()..]) else { continue };
            let choice = &chunk["choices"][0];
            assert_eq!(choice.get("constraint").is_some(), choice["finish_reason"].is_string(), "{choice}");
            found.extend(choice.get("constraint").cloned());
        }
    }
    assert_eq!(found.len(), 3);
    let counted: u64 = found
        .iter()
        .map(|one| one["sampled_tokens"].as_u64().unwrap() + one["forced_tokens"].as_u64().unwrap())
        .sum();
    let summary = handle.summary();
    assert_eq!(counted, summary.usage.completion_tokens);
    assert_eq!(summary.finish_reasons.len(), 3);
}

#[test]
fn the_moments_of_a_request_are_in_order() {
    let runtime = start(sim("{}"), 8);
    let handle = submit(&runtime, constrained(schema(PERSON)));
    read_all(&runtime, &handle);
    let times = handle.summary().times;
    let (asked, compiled) = times.compile.expect("a grammar");
    let moments = [
        times.submitted,
        asked,
        compiled,
        times.started.unwrap(),
        times.first_token.unwrap(),
        times.ended.unwrap(),
    ];
    assert!(moments.is_sorted(), "{times:?}");
    let free = submit(&runtime, request("free", OutputFormat::Final));
    read_all(&runtime, &free);
    assert_eq!(free.summary().times.compile, None);
}

#[test]
fn a_request_that_fails_or_is_cancelled_has_an_end() {
    let runtime = start(sim(r#"{"step_us":1000}"#), 8);
    let bad = submit(&runtime, constrained(schema(r#"{"type":"stsring"}"#)));
    read_all(&runtime, &bad);
    let summary = bad.summary();
    assert!(summary.times.ended.is_some() && summary.times.started.is_none());
    let long = submit(&runtime, request("long", OutputFormat::Deltas));
    assert_eq!(long.summary().times.ended, None);
    long.cancel();
    assert!(long.summary().times.ended.is_some() && long.summary().finish_reasons.is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn sampled_and_forced_tokens_are_the_completion(
        seed: u64, n in 1_u32..4, limit in 40_u32..200, logprobs in proptest::option::of(0_u32..2),
        stop in proptest::option::of("[a-h\"},]{1,2}"), close: bool,
    ) {
        let at_limit = if close { AtLimit::Close } else { AtLimit::Cut };
        let runtime = start(sim("{}"), 8);
        let mut request = constrained(schema(PERSON));
        (request.seed, request.n, request.max_tokens) = (Some(seed), n, Some(limit));
        (request.sampling.logprobs, request.at_limit) = (logprobs, at_limit);
        request.stop = stop.into_iter().collect();
        let handle = submit(&runtime, request);
        let (_, last) = collect(read_all(&runtime, &handle));
        if last.error.is_some() {
            return Ok(());
        }
        let usage = last.usage.expect("usage");
        let mut forced = 0;
        let mut all = 0;
        for choice in &last.choices {
            let receipt = choice.receipt.as_ref().expect("a receipt");
            prop_assert_eq!(choice.token_count, receipt.sampled_tokens + receipt.forced_tokens);
            prop_assert!(receipt.complete || choice.finish == Some(ChoiceFinish::Length));
            prop_assert!(!receipt.closed_at_limit || (receipt.complete && close));
            forced += receipt.forced_tokens;
            all += choice.token_count;
        }
        prop_assert_eq!((forced, all), (usage.forced_tokens, usage.completion_tokens));
    }
}
