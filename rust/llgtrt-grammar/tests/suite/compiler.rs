//! The compiler: cache, slots, queue, deadline, callbacks.

use std::sync::mpsc;
use std::thread::yield_now;

use crate::support::{Bench, Greedy, schema};
use llgtrt_core::{ErrorKind, GrammarSpec};
use llgtrt_grammar::GrammarConfig;
use prometheus::Registry;
use prometheus::proto::MetricType;

fn metric(registry: &Registry, name: &str) -> f64 {
    let families = registry.gather();
    let family = families.iter().find(|family| family.name() == name).expect(name);
    let metric = &family.get_metric()[0];
    match family.get_field_type() {
        MetricType::HISTOGRAM => metric.get_histogram().get_sample_count() as f64,
        MetricType::GAUGE => metric.get_gauge().get_value(),
        _ => metric.get_counter().get_value(),
    }
}

/// No deadline on any machine, however loaded.
fn patient() -> GrammarConfig {
    GrammarConfig { compile_deadline_ms: 3_600_000, ..GrammarConfig::default() }
}

/// Takes some hundred milliseconds to compile.
fn slow(salt: usize) -> GrammarSpec {
    let members: Vec<String> = (0..2000).map(|i| format!(r#""p{salt}_{i}":{{"type":"integer"}}"#)).collect();
    schema(&format!(r#"{{"type":"object","properties":{{{}}}}}"#, members.join(",")))
}

#[test]
fn the_same_grammar_compiles_once() {
    let bench = Bench::new(Greedy::new(&[], 1), patient());
    let spec = slow(0);
    let (send, receive) = mpsc::channel();
    for _ in 0..8 {
        let send = send.clone();
        bench
            .compiler
            .compile_async(spec.clone(), Box::new(move |outcome| send.send(outcome).unwrap()))
            .unwrap();
    }
    for _ in 0..8 {
        receive.recv().unwrap().unwrap();
    }
    bench.compile(&spec);
    assert_eq!(metric(&bench.registry, "llgtrt_grammar_compile_seconds") as u32, 1);
    assert_eq!(metric(&bench.registry, "llgtrt_grammar_cache_misses_total") as u32, 1);
    assert_eq!(metric(&bench.registry, "llgtrt_grammar_cache_hits_total") as u32, 8);
}

#[test]
fn known_grammars_are_answered_at_once_on_the_calling_thread() {
    let bench = Bench::bytes();
    bench.compile(&GrammarSpec::JsonObject);
    let caller = std::thread::current().id();
    let (send, receive) = mpsc::channel();
    bench
        .compiler
        .compile_async(
            GrammarSpec::JsonObject,
            Box::new(move |outcome| send.send((std::thread::current().id(), outcome.is_ok())).unwrap()),
        )
        .unwrap();
    assert_eq!(receive.try_recv().unwrap(), (caller, true));
}

#[test]
fn refusals_are_remembered() {
    let bench = Bench::bytes();
    let spec = GrammarSpec::Lark("start: missing".to_owned());
    let first = bench.compiler.compile(&spec).unwrap_err();
    assert_eq!(bench.compiler.compile(&spec).unwrap_err(), first);
    assert_eq!(metric(&bench.registry, "llgtrt_grammar_compile_seconds") as u32, 1);
    assert_eq!(metric(&bench.registry, "llgtrt_grammar_errors_total") as u32, 1);
}

#[test]
fn refusals_push_out_no_grammar() {
    let config = GrammarConfig { cache_megabytes: 1, ..GrammarConfig::default() };
    let bench = Bench::new(Greedy::new(&[], 1), config);
    bench.compile(&GrammarSpec::JsonObject);
    let before = metric(&bench.registry, "llgtrt_grammar_cache_bytes");
    for number in 0..2000 {
        let refused = GrammarSpec::Llguidance(format!(r#"{{"grammars": [{number}]}}"#));
        assert!(bench.compiler.compile(&refused).is_err());
    }
    let grown = metric(&bench.registry, "llgtrt_grammar_cache_bytes") - before;
    assert!(grown.abs() < 0.5, "{grown}");
    bench.compile(&GrammarSpec::JsonObject);
    assert_eq!(metric(&bench.registry, "llgtrt_grammar_cache_hits_total") as u32, 1);
}

#[test]
fn the_cache_is_bounded_in_bytes() {
    let config = GrammarConfig { cache_megabytes: 2, ..GrammarConfig::default() };
    let bench = Bench::new(Greedy::new(&[], 1), config);
    let spec = |i: usize| {
        schema(&format!(r#"{{"type":"object","properties":{{"k{i}":{{}}}},"required":["k{i}"]}}"#))
    };
    for i in 0..40 {
        let grammar = bench.compile(&spec(i));
        // Grammars grow as they are used; that is counted as well.
        bench.accepts(&grammar, &format!(r#"{{"k{i}":[1,"x",{{"a":null}}]}}"#)).unwrap();
        assert!(metric(&bench.registry, "llgtrt_grammar_cache_bytes") <= f64::from(2 << 20));
    }
    bench.compile(&spec(39));
    assert_eq!(metric(&bench.registry, "llgtrt_grammar_cache_hits_total") as u32, 1);
    bench.compile(&spec(0));
    assert_eq!(metric(&bench.registry, "llgtrt_grammar_cache_misses_total") as u32, 41);
}

#[test]
fn texts_of_one_meaning_are_bounded_in_bytes() {
    let config = GrammarConfig { cache_megabytes: 1, ..GrammarConfig::default() };
    let bench = Bench::new(Greedy::new(&[], 1), config);
    let bytes_after = |i: usize| {
        bench.compile(&schema(&format!(r#"{{{}"type":"boolean"}}"#, " ".repeat(i))));
        metric(&bench.registry, "llgtrt_grammar_cache_bytes")
    };
    let first = bytes_after(0);
    let second = bytes_after(1);
    // They have one grammar, and each is kept as a text.
    assert!(second > first && second - first < first / 4.0, "{first} {second}");
    let all = f64::from(1_u32 << 20);
    let most = (all / (second - first)) as usize;
    let last = (2..most + 10).fold(second, |_, i| bytes_after(i));
    assert!((all * 0.9..=all).contains(&last), "{last}");
}

#[test]
fn a_late_grammar_is_an_error_that_says_so() {
    let config = GrammarConfig { compile_deadline_ms: 5, ..GrammarConfig::default() };
    let bench = Bench::new(Greedy::new(&[], 1), config);
    let error = bench.compiler.compile(&slow(1)).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Grammar);
    assert!(error.message.contains("5 ms"), "{}", error.message);
}

#[test]
fn a_full_queue_is_overload() {
    let config = GrammarConfig { compile_slots: 1, compile_queue_size: 1, ..patient() };
    let bench = Bench::new(Greedy::new(&[], 1), config);
    let (send, receive) = mpsc::channel();
    let submit = |spec: GrammarSpec| {
        let send = send.clone();
        bench.compiler.compile_async(spec, Box::new(move |outcome| send.send(outcome.is_ok()).unwrap()))
    };
    submit(slow(2)).unwrap();
    while bench.compiler.queue_len() > 0 {
        yield_now();
    }
    submit(GrammarSpec::JsonObject).unwrap();
    let error = submit(GrammarSpec::Regex("x".to_owned())).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Overloaded);
    // The same grammar as a queued one needs no place.
    submit(GrammarSpec::JsonObject).unwrap();
    for _ in 0..3 {
        assert!(receive.recv().unwrap());
    }
    submit(GrammarSpec::Regex("x".to_owned())).unwrap();
    assert!(receive.recv().unwrap());
}

#[test]
fn a_panic_in_a_callback_harms_nobody() {
    llgtrt_conformance::silence_panics("a test's callback");
    let config = GrammarConfig { compile_slots: 1, ..patient() };
    let bench = Bench::new(Greedy::new(&[], 1), config);
    bench.compiler.compile_async(slow(3), Box::new(|_| panic!("a test's callback"))).unwrap();
    let (send, receive) = mpsc::channel();
    bench
        .compiler
        .compile_async(slow(3), Box::new(move |outcome| send.send(outcome.is_ok()).unwrap()))
        .unwrap();
    assert!(receive.recv().unwrap());
    bench.compile(&GrammarSpec::JsonObject);
}

#[test]
fn closing_answers_everyone() {
    let config = GrammarConfig { compile_slots: 1, ..patient() };
    let bench = Bench::new(Greedy::new(&[], 1), config);
    let (send, receive) = mpsc::channel();
    for salt in 4..7 {
        let send = send.clone();
        bench
            .compiler
            .compile_async(slow(salt), Box::new(move |outcome| send.send(outcome).unwrap()))
            .unwrap();
    }
    drop(bench);
    for _ in 0..3 {
        assert_eq!(receive.recv().unwrap().unwrap_err().kind, ErrorKind::ShuttingDown);
    }
}
