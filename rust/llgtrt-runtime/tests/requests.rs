//! Requests through the whole core, over the sim engine.

mod support;

use std::sync::Arc;

use llgtrt_core::{ErrorKind, GrammarSpec, RequestOptions, TokenId};
use llgtrt_runtime::{AtLimit, ChoiceFinish, Health, LogprobsForm, OutputFormat, Payload, Prompt};
use support::{
    collect, error_of, metric, read_all, request, schema, sim, start, submit, text, wait_readable, wait_until,
};

const PERSON: &str = r#"{"type":"object","properties":{"name":{"type":"string","maxLength":8},
    "age":{"type":"integer","minimum":0,"maximum":150}},"required":["name","age"],"additionalProperties":false}"#;

#[test]
fn every_output_format_carries_the_same_text() {
    let runtime = start(sim("{}"), 8);
    let run = |output| {
        let mut request = request("hello", output);
        request.include_usage = true;
        let handle = submit(&runtime, request);
        read_all(&runtime, &handle)
    };
    let (whole, last) = collect(run(OutputFormat::Final));
    let usage = last.usage.expect("usage");
    assert!(usage.completion_tokens > 0 && usage.prompt_tokens > 0);
    assert!(!whole[0].is_empty());
    let (pieces, _) = collect(run(OutputFormat::Deltas));
    assert_eq!(pieces, whole);

    let mut text = String::new();
    let mut frames = Vec::new();
    for payload in run(OutputFormat::ChatSse) {
        let Payload::Sse(bytes) = payload else { panic!("expected frames") };
        frames.extend(String::from_utf8(bytes).expect("UTF-8").split_terminator("\n\n").map(str::to_owned));
    }
    assert_eq!(frames.pop().as_deref(), Some("data: [DONE]"));
    let mut finishes = 0;
    for frame in &frames {
        let chunk: serde_json::Value = serde_json::from_str(&frame["data: ".len()..]).expect("JSON");
        if let Some(choice) = chunk["choices"].get(0) {
            text.push_str(choice["delta"]["content"].as_str().unwrap_or_default());
            finishes += usize::from(!choice["finish_reason"].is_null());
        } else {
            assert_eq!(chunk["usage"]["completion_tokens"], usage.completion_tokens);
        }
    }
    assert_eq!((text.as_str(), finishes), (whole[0].as_str(), 1));
}

#[test]
fn constrained_answers_parse_and_count_forced_tokens() {
    let runtime = start(sim("{}"), 64);
    for seed in 0..20 {
        let mut request = request("a person", OutputFormat::Final);
        request.grammar = Some(schema(PERSON));
        request.max_tokens = Some(400);
        request.seed = Some(seed);
        let handle = submit(&runtime, request);
        let (texts, last) = collect(read_all(&runtime, &handle));
        assert_eq!(last.error, None);
        if last.choices[0].finish == Some(ChoiceFinish::Stop) {
            let value: serde_json::Value = serde_json::from_str(&texts[0]).expect(&texts[0]);
            assert!(value["age"].is_u64() && value["name"].is_string(), "{value}");
        }
        assert!(last.usage.expect("usage").forced_tokens > 0);
    }
    assert!(metric(&runtime, "llgtrt_forced_tokens_total") > 0.0);
}

#[test]
fn constrained_answers_are_complete_at_every_limit() {
    // A model that would go on for longer than any of the limits.
    let script =
        serde_json::json!({"text": "script", "script": format!(r#"{{"name":"{}"#, "no ".repeat(100))});
    let runtime = start(sim(&script.to_string()), 64);
    let mut request = request("a person", OutputFormat::Final);
    request.grammar = Some(schema(&PERSON.replace(r#""maxLength":8"#, r#""maxLength":300"#)));
    request.n = 2;
    let mut shortest = None;
    for limit in 1..80 {
        request.max_tokens = Some(limit);
        let handle = submit(&runtime, request.clone());
        let payloads = read_all(&runtime, &handle);
        let (texts, last) = collect(payloads);
        if let Some(error) = last.error {
            assert_eq!((error.param.as_deref(), shortest), (Some("max_tokens"), None));
            continue;
        }
        shortest.get_or_insert(limit);
        assert!(last.usage.expect("usage").completion_tokens <= 2 * u64::from(limit));
        for (text, choice) in texts.iter().zip(&last.choices) {
            assert_eq!(choice.finish, Some(ChoiceFinish::Length));
            let value: serde_json::Value = serde_json::from_str(text).expect(text);
            assert!(value["age"].is_u64() && value["name"].is_string(), "{value}");
        }
    }
    assert!(shortest.is_some_and(|limit| limit < 24), "{shortest:?}");
}

#[test]
fn a_limit_that_no_answer_fits_is_refused_or_cuts() {
    let runtime = start(sim("{}"), 64);
    let mut short = request("a person", OutputFormat::Final);
    short.grammar = Some(schema(PERSON));
    short.max_tokens = Some(3);
    let error = error_of(&runtime, short.clone());
    assert_eq!((error.kind, error.param.as_deref()), (ErrorKind::InvalidRequest, Some("max_tokens")));
    short.at_limit = AtLimit::Cut;
    let handle = submit(&runtime, short);
    let (texts, last) = collect(read_all(&runtime, &handle));
    assert_eq!(last.choices[0].finish, Some(ChoiceFinish::Length));
    assert!(serde_json::from_str::<serde_json::Value>(&texts[0]).is_err());
}

#[test]
fn a_stop_string_inside_a_constrained_answer_is_text() {
    let runtime = start(sim("{}"), 8);
    let choice = r#"{"a": "x</code>y"}"#;
    let mut inside = request("pick", OutputFormat::Final);
    inside.grammar = Some(GrammarSpec::Choice(vec![choice.to_owned()]));
    inside.stop = vec!["</code>".to_owned()];
    let handle = submit(&runtime, inside);
    let (texts, last) = collect(read_all(&runtime, &handle));
    assert_eq!((texts[0].as_str(), &last.choices[0].finish), (choice, &Some(ChoiceFinish::Stop)));
    let mut allowed = request("pick", OutputFormat::Final);
    allowed.grammar = Some(GrammarSpec::Regex("(one,)+".to_owned()));
    allowed.stop = vec!["one,one".to_owned(), ",o".to_owned()];
    allowed.max_tokens = Some(64);
    let handle = submit(&runtime, allowed);
    let (texts, _) = collect(read_all(&runtime, &handle));
    assert!(texts[0].ends_with("one,"), "it ends where the expression may end: {}", texts[0]);
}

#[test]
fn a_bad_grammar_fails_its_request_only() {
    let runtime = start(sim("{}"), 64);
    let good = || {
        let handle = submit(&runtime, request("same", OutputFormat::Final));
        collect(read_all(&runtime, &handle)).0
    };
    let before = good();
    let mut bad = request("same", OutputFormat::Final);
    bad.grammar = Some(schema(r#"{"type":"stsring"}"#));
    bad.grammar_param = Some("guided_json".to_owned());
    let error = error_of(&runtime, bad);
    assert_eq!(error.kind, ErrorKind::Grammar);
    assert!(error.param.as_deref().is_some_and(|param| param.starts_with("guided_json")), "{error:?}");
    assert_eq!(good(), before);
}

#[test]
fn choices_differ_and_repeat_with_the_seed() {
    let runtime = start(sim("{}"), 64);
    let run = |n, seed| {
        let mut request = request("several", OutputFormat::Final);
        request.n = n;
        request.seed = seed;
        let handle = submit(&runtime, request);
        collect(read_all(&runtime, &handle)).0
    };
    let four = run(4, Some(3));
    assert_eq!(four.len(), 4);
    assert_ne!(four[0], four[1]);
    assert_eq!(run(1, Some(4))[0], four[1], "choice i of seed s is choice 0 of seed s + i");
    assert_ne!(run(1, None), run(1, None));
}

#[test]
fn a_stop_string_ends_the_choice_and_the_sequence() {
    let script =
        r#"{"text":"script","script":"one two three four five six seven eight nine ten","step_us":200}"#;
    let runtime = start(sim(script), 8);
    let mut stopped = request("count", OutputFormat::Deltas);
    stopped.stop = vec!["four".to_owned()];
    stopped.max_tokens = Some(1000);
    let handle = submit(&runtime, stopped);
    let (texts, last) = collect(read_all(&runtime, &handle));
    assert_eq!(texts[0], "one two three ");
    assert_eq!(last.choices[0].finish, Some(ChoiceFinish::StopString("four".to_owned())));
    wait_until("the slot is free", || metric(&runtime, "llgtrt_num_requests_running") == 0.0);
}

#[test]
fn a_dropped_handle_frees_its_place() {
    let runtime = start(sim(r#"{"step_us":1000,"max_batch_size":1}"#), 1);
    let mut long = request("long", OutputFormat::Deltas);
    long.max_tokens = Some(2000);
    long.sampling.ignore_eos = true;
    let first = submit(&runtime, long.clone());
    let second = submit(&runtime, long.clone());
    let refused = runtime.reserve(1).expect_err("full");
    assert_eq!(refused.kind, ErrorKind::Overloaded);
    assert!(metric(&runtime, "llgtrt_requests_rejected_total") >= 1.0);
    drop(second);
    drop(first);
    wait_until("both places are back", || runtime.reserve(2).is_ok());
    assert_eq!(runtime.active_requests(), 0);
}

#[test]
fn a_slow_reader_gets_merged_chunks() {
    let runtime = start(sim("{}"), 8);
    let mut streamed = request("slow", OutputFormat::ChatSse);
    streamed.sampling.ignore_eos = true;
    streamed.max_tokens = Some(200);
    let handle = submit(&runtime, streamed);
    wait_until("the engine is done", || metric(&runtime, "llgtrt_generation_tokens_total") >= 200.0);
    wait_until("nothing runs", || metric(&runtime, "llgtrt_num_requests_running") == 0.0);
    let payloads = read_all(&runtime, &handle);
    let frames: usize = payloads
        .iter()
        .map(|payload| match payload {
            Payload::Sse(bytes) => String::from_utf8_lossy(bytes).matches("data: {").count(),
            other => panic!("expected frames, not {other:?}"),
        })
        .sum();
    assert!(frames <= 2, "{frames} frames for one late reader");
}

#[test]
fn prompts_are_checked_against_the_context() {
    let runtime = start(sim(r#"{"max_sequence_tokens":32}"#), 8);
    let error = |prompt: Prompt, max_tokens| {
        let mut request = request("", OutputFormat::Final);
        request.prompts = vec![prompt];
        request.max_tokens = max_tokens;
        request.add_special = false;
        error_of(&runtime, request)
    };
    assert_eq!(error(text("x".repeat(40)), None).kind, ErrorKind::ContextLength);
    assert_eq!(error(text("x".repeat(4_000_000)), None).kind, ErrorKind::ContextLength);
    assert_eq!(error(text("x".repeat(20)), Some(20)).kind, ErrorKind::ContextLength);
    assert_eq!(error(text(""), None).kind, ErrorKind::InvalidRequest);
    assert_eq!(error(Prompt::Tokens(vec![9_999_999]), None).kind, ErrorKind::InvalidRequest);
}

#[test]
fn of_a_longer_prompt_only_the_end_is_used() {
    let runtime = start(sim(r#"{"max_sequence_tokens":32}"#), 8);
    let used = |prompt: Prompt, most| {
        let mut request = request("", OutputFormat::Final);
        request.prompts = vec![prompt];
        request.most_prompt_tokens = Some(most);
        (request.max_tokens, request.echo) = (Some(0), true);
        let handle = submit(&runtime, request);
        let (mut texts, last) = collect(read_all(&runtime, &handle));
        (texts.remove(0), last.usage.expect("usage").prompt_tokens)
    };
    let long = format!("{}→ the end", "x".repeat(4_000_000));
    assert_eq!(used(text(long.clone()), 8), (" the end".to_owned(), 8));
    assert_eq!(used(text(long.clone()), 12), ("x→ the end".to_owned(), 12));
    // Half of a character is no character.
    assert_eq!(used(text(long), 9), ("\u{fffd} the end".to_owned(), 9));
    assert_eq!(used(Prompt::Tokens(b"the end".map(TokenId::from).to_vec()), 3), ("end".to_owned(), 3));
    // What is short enough is as it was, with the token that begins a text.
    assert_eq!(used(text("a"), 2), ("a".to_owned(), 2));
    assert_eq!(used(text("ab"), 2), ("ab".to_owned(), 2));
}

#[test]
fn a_failed_sequence_leaves_its_neighbours_alone() {
    let faulty = r#"{"faults":[{"kind":"nan_row","at_step":3,"prompt_contains":"poison"}]}"#;
    let runtime = start(sim(faulty), 64);
    let alone = {
        let handle = submit(&runtime, request("healthy", OutputFormat::Final));
        collect(read_all(&runtime, &handle)).0
    };
    let neighbours: Vec<_> =
        (0..7).map(|_| submit(&runtime, request("healthy", OutputFormat::Final))).collect();
    let poisoned = error_of(&runtime, request("poison", OutputFormat::Final));
    assert_eq!(poisoned.kind, ErrorKind::NotFinite);
    for handle in &neighbours {
        assert_eq!(collect(read_all(&runtime, handle)).0, alone);
    }
}

#[test]
fn the_engines_death_reaches_every_reader() {
    let runtime = start(sim(r#"{"step_us":500,"faults":[{"kind":"fail_engine","at_step":20}]}"#), 64);
    let mut long = request("x", OutputFormat::Deltas);
    long.sampling.ignore_eos = true;
    long.max_tokens = Some(1000);
    let handles: Vec<_> = (0..3).map(|_| submit(&runtime, long.clone())).collect();
    for handle in &handles {
        let (texts, last) = collect(read_all(&runtime, handle));
        assert!(!texts[0].is_empty(), "text before the failure is delivered");
        assert_eq!(last.error.expect("error").kind, ErrorKind::EngineFailed);
    }
    assert!(matches!(runtime.health(), Health::Failed(_)));
    assert_eq!(runtime.reserve(1).expect_err("dead").kind, ErrorKind::EngineFailed);
}

#[test]
fn a_hanging_engine_is_reported_and_left_behind() {
    let runtime = start(sim(r#"{"faults":[{"kind":"hang","at_step":2}]}"#), 64);
    let mut long = request("x", OutputFormat::Final);
    long.sampling.ignore_eos = true;
    let handle = submit(&runtime, long);
    wait_until("the watchdog notices", || runtime.health() == Health::Stalled);
    runtime.shutdown();
    let (_, last) = collect(read_all(&runtime, &handle));
    assert_eq!(last.error.expect("error").kind, ErrorKind::ShuttingDown);
}

#[test]
fn draining_finishes_what_runs() {
    let runtime = start(sim(r#"{"step_us":300}"#), 64);
    let mut running = request("x", OutputFormat::Final);
    running.sampling.ignore_eos = true;
    let handle = submit(&runtime, running);
    runtime.begin_drain();
    assert_eq!(runtime.reserve(1).expect_err("draining").kind, ErrorKind::ShuttingDown);
    let (_, last) = collect(read_all(&runtime, &handle));
    assert_eq!(last.choices[0].finish, Some(ChoiceFinish::Length));
    assert_eq!(runtime.active_requests(), 0);
}

#[test]
fn one_wake_up_serves_every_waiting_reader() {
    let runtime = start(sim(r#"{"step_us":20000}"#), 64);
    let handles: Vec<_> = (0..16)
        .map(|index| {
            let mut streamed = request("x", OutputFormat::ChatSse);
            streamed.seed = Some(index);
            streamed.sampling.ignore_eos = true;
            submit(&runtime, streamed)
        })
        .collect();
    let mut most = 0;
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    for _ in 0..6 {
        for handle in &handles {
            let _ = handle.take();
        }
        wait_readable(&runtime, deadline);
        most = most.max(runtime.drain().len());
    }
    assert!(most >= 8, "a step's output came in drains of at most {most}");
}

#[test]
fn options_that_the_engine_lacks_are_refused() {
    let runtime = start(sim("{}"), 8);
    let refused = |request| {
        let error = error_of(&runtime, request);
        assert_eq!(error.kind, ErrorKind::InvalidRequest);
        assert!(error.message.contains("the sim engine"), "{}", error.message);
        error.param
    };
    let mut with_salt = request("hello", OutputFormat::Final);
    with_salt.options = Some(Arc::new(RequestOptions { cache_salt: Some(1), ..RequestOptions::default() }));
    assert_eq!(refused(with_salt).as_deref(), Some("cache_salt"));
    let mut with_words = request("hello", OutputFormat::Final);
    with_words.bad_words = vec!["no".to_owned()];
    assert_eq!(refused(with_words).as_deref(), Some("bad_words"));
}

#[test]
fn more_tokens_than_fit_are_refused_in_openais_words_or_taken_as_a_wish() {
    let runtime = start(sim(r#"{"max_sequence_tokens": 100}"#), 8);
    let asking = |clamp| {
        let mut request = request("hello", OutputFormat::Final);
        (request.max_tokens, request.clamp_max_tokens) = (Some(1000), clamp);
        request.sampling.ignore_eos = true;
        request
    };
    let error = error_of(&runtime, asking(false));
    assert_eq!(error.kind, ErrorKind::ContextLength);
    let words = "This model's maximum context length is 100 tokens. However, you requested 10";
    assert!(error.message.starts_with(words), "{}", error.message);
    let handle = submit(&runtime, asking(true));
    let usage = collect(read_all(&runtime, &handle)).1.usage.expect("usage");
    assert_eq!(usage.prompt_tokens + usage.completion_tokens, 100);
    // A prompt that leaves no room is an error in both.
    let mut long = asking(true);
    long.prompts = vec![Prompt::Tokens(vec![65; 100])];
    assert_eq!(error_of(&runtime, long).kind, ErrorKind::ContextLength);
}

#[test]
fn no_tokens_at_all_give_the_prompt_and_its_logprobs() {
    let runtime = start(sim("{}"), 8);
    let mut request = request("hello", OutputFormat::Final);
    (request.max_tokens, request.echo, request.echo_logprobs) = (Some(0), true, true);
    request.sampling.logprobs = Some(0);
    request.logprobs_form = LogprobsForm::Completion;
    let handle = submit(&runtime, request);
    let (texts, last) = collect(read_all(&runtime, &handle));
    assert_eq!(texts, ["hello"]);
    let usage = last.usage.expect("usage");
    assert_eq!(usage.completion_tokens, 0);
    assert!(usage.prompt_tokens >= 5);
    let choice = &last.choices[0];
    assert_eq!((choice.finish.clone(), choice.token_count), (Some(ChoiceFinish::Length), 0));
    let logprobs: serde_json::Value =
        serde_json::from_str(choice.logprobs.as_deref().expect("log-probabilities")).expect("JSON");
    assert_eq!(logprobs["tokens"].as_array().expect("tokens").len() as u64, usage.prompt_tokens);
}

#[test]
fn an_echoed_answer_has_an_entry_for_its_end_as_well() {
    let runtime = start(sim(r#"{"text": "script", "script": "ab"}"#), 8);
    for (echo, entries_beside_text) in [(true, 1), (false, 0)] {
        let mut request = request("hello", OutputFormat::Final);
        (request.echo, request.echo_logprobs) = (echo, echo);
        request.logprobs_form = LogprobsForm::Completion;
        request.sampling.logprobs = Some(1);
        let handle = submit(&runtime, request);
        let (texts, last) = collect(read_all(&runtime, &handle));
        assert_eq!(texts, [if echo { "helloab" } else { "ab" }]);
        let usage = last.usage.expect("usage");
        assert_eq!(usage.completion_tokens, 3, "two letters and the end");
        let logprobs = last.choices[0].logprobs.as_deref().expect("log-probabilities");
        let logprobs: serde_json::Value = serde_json::from_str(logprobs).expect("JSON");
        let prompt = if echo { usage.prompt_tokens as usize } else { 0 };
        for column in ["tokens", "token_logprobs", "top_logprobs", "text_offset"] {
            let column = logprobs[column].as_array().expect("a column");
            assert_eq!(column.len(), prompt + 2 + entries_beside_text);
        }
    }
}

#[test]
fn the_times_of_queue_and_prefill_are_measured() {
    let runtime = start(sim("{}"), 8);
    let handle = submit(&runtime, request("hello", OutputFormat::Final));
    read_all(&runtime, &handle);
    for name in ["llgtrt_request_queue_time_seconds_count", "llgtrt_request_prefill_time_seconds_count"] {
        assert!((metric(&runtime, name) - 1.0).abs() < f64::EPSILON, "{name}");
    }
}
