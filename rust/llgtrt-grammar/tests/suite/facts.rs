//! What a compiled grammar and its sequences tell for the receipts of answers.

use llgtrt_core::{AdvanceState, GrammarSpec, SequenceId};
use llgtrt_grammar::{GrammarConfig, Tally, TokenLimit};
use serde_json::{Value, json};

use crate::support::Bench;

fn schema(schema: &Value) -> GrammarSpec {
    crate::support::schema(&schema.to_string())
}

fn bench() -> Bench {
    Bench::with(GrammarConfig::default())
}

#[test]
fn rules_that_narrow_are_named_once_and_others_are_not() {
    let bench = bench();
    let grammar = bench.compile(&schema(&json!({
        "type": "object",
        "properties": {
            "a": {"type": "object", "properties": {"b": {"type": "string", "format": "date"}}},
            "c": {"oneOf": [{"type": "integer", "format": "int32"}, {"type": "null"}]},
        },
    })));
    let mut rules = grammar.facts().narrowing.clone();
    rules.sort_unstable();
    assert_eq!(rules, ["closed", "common-format", "integer-format"]);
    assert!(grammar.facts().residual.is_empty());
    assert!(!grammar.facts().compile_time.is_zero());
}

#[test]
fn facts_belong_to_the_text_also_where_two_texts_share_a_grammar() {
    let bench = bench();
    let open = json!({"type": "object", "properties": {"a": {"type": "string"}}});
    let mut closed = open.clone();
    closed["additionalProperties"] = json!(false);
    let narrowed = bench.compile(&schema(&open));
    let exact = bench.compile(&schema(&closed));
    assert_eq!(narrowed.facts().narrowing, ["closed"]);
    assert_eq!(exact.facts().narrowing, [""; 0]);
}

#[test]
fn a_grammar_is_cached_from_the_second_request_on() {
    let bench = bench();
    let spec = schema(&json!({"type": "integer"}));
    assert!(!bench.compile(&spec).is_cached());
    let again = bench.compile(&spec);
    assert!(again.is_cached());
    assert_eq!(bench.compile(&spec).facts(), again.facts());
}

#[test]
fn what_the_grammar_leaves_open_has_its_path() {
    let bench = bench();
    let tags = json!({"type": "array", "items": {"type": "string"}, "uniqueItems": true});
    let grammar = bench.compile(&schema(&json!({"type": "object", "properties": {"tags": tags}})));
    assert_eq!(grammar.facts().residual, ["properties.tags.uniqueItems"]);
    assert!(grammar.is_verified());
}

#[test]
fn a_sequence_is_tallied_without_waiting_for_its_masks() {
    let bench = bench();
    let tags = json!({"type": "array", "items": {"type": "string"}, "uniqueItems": true});
    let grammar = bench.compile(&schema(&tags));
    let id = SequenceId(3);
    bench.pool.register(id, &grammar);
    assert_eq!(bench.pool.tally(id), Tally::default());
    let mut tokens = bench.encode(r#"["a","a""#);
    let (_, state) = bench.advance(3, &tokens, false);
    let AdvanceState::Retract { keep } = state else { panic!("equal items: {state:?}") };
    assert_eq!(bench.pool.tally(id).retracted, (tokens.len() - keep) as u64);
    assert!(!bench.pool.tally(id).mask_time.is_zero(), "a mask was needed to go on");
    tokens.truncate(keep);
    let before = bench.pool.tally(id).mask_time;
    tokens.extend(bench.encode("b"));
    bench.advance(3, &tokens, false);
    bench.fill(3, &tokens).unwrap();
    assert!(bench.pool.tally(id).mask_time > before);
    bench.pool.remove(id);
    assert_eq!(bench.pool.tally(id), Tally::default());
}

#[test]
fn an_answer_that_was_completed_at_its_limit_says_so() {
    let bench = bench();
    let grammar = bench.compile(&schema(&json!({"type": "string"})));
    let id = SequenceId(4);
    bench.pool.register_within(id, &grammar, TokenLimit { tokens: 6, retract: true, turn: 0 });
    let mut tokens = bench.encode("\"abc");
    assert!(!bench.pool.tally(id).closed);
    while tokens.len() < 6 {
        let (forced, state) = bench.advance(4, &tokens, true);
        tokens.extend(forced);
        match state {
            AdvanceState::Limit => break,
            AdvanceState::Sample => tokens.extend(bench.encode("d")),
            other => panic!("{other:?}"),
        }
    }
    assert!(bench.pool.tally(id).closed);
    // One token is kept to spare.
    assert_eq!(bench.decode(&tokens), b"\"abc\"");
}
