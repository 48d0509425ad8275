//! `residual: verify`: whatever is sampled, an answer that ends satisfies the schema, and what was certain stays.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::support::{Bench, Greedy, WORDS, schema};
use llgtrt_core::{AdvanceBatch, AdvanceState, ErrorKind, MaskSlot, MaskSource, SequenceId, TokenId};
use llgtrt_grammar::{CompiledGrammar, GrammarConfig};
use llgtrt_schema::{NormalizeLimits, ResidualMode, normalize};
use serde_json::{Value, json};

/// Tokens of an answer; longer ones count as cut off.
const LONGEST: usize = 400;

/// How a generation ended.
#[derive(Debug, PartialEq)]
enum End {
    Complete(String),
    Failed(String),
    CutOff,
}

struct Run {
    end: End,
    /// Tokens taken back.
    retracted: usize,
    /// Steps at which something was held back.
    held: usize,
}

fn verified(mut schema: Value) -> Value {
    schema["x-guidance"] = json!({"residual": "verify", "whitespace_flexible": false});
    schema
}

/// Samples as an engine does. `pick` chooses among the allowed tokens.
fn run(
    bench: &Bench,
    grammar: &CompiledGrammar,
    fast_forward: bool,
    mut pick: impl FnMut(&[TokenId], &[TokenId]) -> TokenId,
) -> Run {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let id = NEXT.fetch_add(1, Ordering::Relaxed);
    bench.pool.register(SequenceId(id), grammar);
    let (mut tokens, mut certain): (Vec<TokenId>, Vec<TokenId>) = (Vec::new(), Vec::new());
    let (mut retracted, mut held) = (0, 0);
    let text = |tokens: &[TokenId]| String::from_utf8_lossy(&bench.decode(tokens)).into_owned();
    let end = loop {
        let mut out = AdvanceBatch::default();
        let slot = MaskSlot { sequence: SequenceId(id), tokens: &tokens };
        bench.pool.advance(&[slot], fast_forward, &mut out);
        let (forced, state) = out.get(0);
        let bound = out.certain(0).expect("a verified sequence knows what is certain");
        let state = state.clone();
        if let AdvanceState::Retract { keep } = state {
            assert!(keep < tokens.len() && forced.is_empty());
            retracted += tokens.len() - keep;
            tokens.truncate(keep);
        } else {
            tokens.extend_from_slice(forced);
        }
        assert!(tokens.starts_with(&certain), "{} was certain: {}", text(&certain), text(&tokens));
        if !matches!(state, AdvanceState::Failed(_)) {
            assert!(bound >= certain.len() && bound <= tokens.len());
            certain = tokens[..bound].to_vec();
            held += usize::from(bound < tokens.len());
        }
        match state {
            AdvanceState::Stop | AdvanceState::Limit => {
                assert_eq!(certain.len(), tokens.len(), "an answer that ended is certain");
                break End::Complete(text(&tokens));
            }
            AdvanceState::Failed(error) => {
                assert_eq!(error.kind, ErrorKind::Constraint, "{error:?}");
                break End::Failed(error.message);
            }
            AdvanceState::Sample | AdvanceState::Retract { .. } => {}
        }
        if tokens.len() > LONGEST {
            break End::CutOff;
        }
        let allowed = bench.fill(id, &tokens).unwrap();
        tokens.push(pick(&tokens, &allowed));
    };
    bench.pool.remove(SequenceId(id));
    Run { end, retracted, held }
}

fn schemas() -> Vec<Value> {
    let letters = json!({"type": "string", "pattern": "^[a-c]{1,2}$"});
    let unique =
        json!({"type": "array", "items": letters, "uniqueItems": true, "maxItems": 60, "minItems": 2});
    vec![
        json!({"type": "object", "properties": {"tags": unique, "end": {"const": 1}},
               "required": ["tags", "end"], "additionalProperties": false}),
        json!({"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 30}, "uniqueItems": true,
               "minItems": 3, "maxItems": 50}),
        json!({"type": "array", "uniqueItems": true, "minItems": 2, "maxItems": 45, "items": {
               "type": "object", "properties": {"x": {"enum": [1, 1.0, 2, 3]}, "y": {"type": "boolean"}},
               "required": ["x", "y"], "additionalProperties": false}}),
        json!({"anyOf": [unique, {"type": "null"}]}),
        json!({"type": "object", "properties": {"a": {"anyOf": [unique, {"type": "boolean"}]},
               "b": {"$ref": "#/$defs/u"}}, "required": ["a", "b"], "additionalProperties": false,
               "$defs": {"u": unique}}),
        json!({"type": "array", "items": unique, "minItems": 1, "maxItems": 3}),
        json!({"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 9}, "maxItems": 40,
               "contains": {"multipleOf": 3}, "minContains": 2, "maxContains": 4, "uniqueItems": true}),
    ]
}

fn bench() -> Bench {
    Bench::new(Greedy::new(&WORDS, 2), GrammarConfig { standard: true, ..GrammarConfig::default() })
}

#[test]
fn an_answer_that_ends_satisfies_the_schema() {
    let bench = bench();
    let mut state = 7_u64;
    let mut random = |bound: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % bound
    };
    let (mut complete, mut retracted, mut held) = (0, 0, 0);
    for schema_value in schemas() {
        let validator = jsonschema::validator_for(&schema_value).unwrap();
        let grammar = bench.compile(&schema(&verified(schema_value.clone()).to_string()));
        assert!(grammar.is_verified(), "{schema_value}");
        let mut ended = 0;
        for round in 0..40 {
            let run = run(&bench, &grammar, round % 2 == 0, |_, allowed| allowed[random(allowed.len())]);
            retracted += run.retracted;
            held += run.held;
            if let End::Complete(text) = &run.end {
                let value: Value = serde_json::from_str(text).unwrap_or_else(|e| panic!("{text}: {e}"));
                assert!(validator.is_valid(&value), "{schema_value}: {text}");
                ended += 1;
            }
        }
        assert!(ended >= 10, "{schema_value}: {ended} of 40 answers ended");
        complete += ended;
    }
    assert!(complete > 200 && retracted > 100 && held > 100, "{complete} {retracted} {held}");
}

#[test]
fn text_before_an_open_place_is_certain_at_once_and_after_it_again() {
    let bench = bench();
    let spec = schema(&verified(schemas()[0].clone()).to_string());
    let grammar = bench.compile(&spec);
    let script = bench.encode(r#"{"tags":["a","b"],"end":1}"#);
    bench.pool.register(SequenceId(9), &grammar);
    let mut bounds = Vec::new();
    for count in 0..=script.len() {
        let mut out = AdvanceBatch::default();
        bench.pool.advance(
            &[MaskSlot { sequence: SequenceId(9), tokens: &script[..count] }],
            false,
            &mut out,
        );
        bounds.push(String::from_utf8(bench.decode(&script[..out.certain(0).unwrap()])).unwrap());
    }
    bounds.dedup();
    assert!(bounds.contains(&r#"{"tags":"#.to_owned()), "{bounds:?}");
    assert!(
        bounds.iter().all(|text| text.len() <= 8 || text.starts_with(r#"{"tags":["a","b"]"#)),
        "{bounds:?}"
    );
    assert_eq!(bounds.last().unwrap(), r#"{"tags":["a","b"],"end":1}"#);
    bench.pool.remove(SequenceId(9));
}

#[test]
fn a_schema_without_an_answer_fails_and_says_so() {
    let bench = bench();
    // Fifty different items of twelve.
    let impossible = json!({"type": "object", "properties": {"a": {"type": "array", "uniqueItems": true,
        "items": {"type": "string", "pattern": "^[a-c]{1,2}$"}, "minItems": 50, "maxItems": 60}},
        "required": ["a"], "additionalProperties": false});
    let grammar = bench.compile(&schema(&verified(impossible).to_string()));
    let end = run(&bench, &grammar, true, |_, allowed| allowed[0]).end;
    assert!(
        matches!(&end, End::Failed(message) if message.contains("attempts") || message.contains("no answer")),
        "{end:?}"
    );
}

#[test]
fn the_default_is_to_verify_and_a_schema_may_refuse() {
    let bench = bench();
    let unique = json!({"type": "array", "uniqueItems": true, "items": {"type": "string"}});
    assert!(bench.compile(&schema(&unique.to_string())).is_verified());
    let mut refusing = unique.clone();
    refusing["x-guidance"] = json!({"residual": "refuse"});
    let error = bench.compiler.compile(&schema(&refusing.to_string())).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Grammar);
    for (mode, param) in [(json!("maybe"), "x-guidance.residual"), (json!(true), "x-guidance.residual")] {
        let mut bad = unique.clone();
        bad["x-guidance"] = json!({"residual": mode});
        let error = bench.compiler.compile(&schema(&bad.to_string())).unwrap_err();
        assert_eq!(error.param.as_deref(), Some(param));
    }
    assert!(!bench.compile(&schema(r#"{"type":"integer"}"#)).is_verified());
    let config = GrammarConfig { residual: llgtrt_grammar::Residual::Refuse, ..GrammarConfig::default() };
    let strict = Bench::new(Greedy::new(&WORDS, 2), config);
    assert!(strict.compiler.compile(&schema(&unique.to_string())).is_err());
    strict.compiler.compile(&schema(&verified(unique.clone()).to_string())).unwrap();
    let engine_without = self::bench();
    engine_without.compiler.never_verify();
    assert!(engine_without.compiler.compile(&schema(&unique.to_string())).is_err());
}

#[test]
fn patterns_of_names_that_no_grammar_holds_are_checked() {
    let bench = bench();
    for names in [r"(?<=a)b", r"^(.)\1$", r"^(?:(?=a)a)+$"] {
        let value = json!({"type": "object", "propertyNames": {"pattern": names.replace("\\\\", "\\")},
            "additionalProperties": {"type": "integer"}, "minProperties": 1});
        let Ok(grammar) = bench.compiler.compile(&schema(&value.to_string())) else { continue };
        assert!(grammar.is_verified(), "{value}");
        let run = run(&bench, &grammar, true, |tokens, allowed| {
            // Writes {"x":1} if nobody is against it.
            let wanted = bench.encode(r#"{"x":1}"#);
            wanted.get(tokens.len()).copied().filter(|token| allowed.contains(token)).unwrap_or(allowed[0])
        });
        assert_ne!(run.end, End::Complete(r#"{"x":1}"#.to_owned()), "{value}");
    }
}

/// A check that costs nearly all that one may cost.
fn costly() -> (Value, String) {
    let items: Vec<Value> =
        (0..200).map(|i| json!({"not": {"type": "integer", "const": 1000 + i}})).collect();
    let value = json!({"type": "object", "properties": {
        "a": {"type": "array", "items": {"type": "integer", "allOf": items}, "maxItems": 3000,
              "contains": {"not": {"multipleOf": 7}}, "uniqueItems": true}},
        "required": ["a"], "additionalProperties": false});
    let list: Vec<String> = (0..900).map(|i| i.to_string()).collect();
    (value, format!(r#"{{"a":[{}]}}"#, list.join(",")))
}

#[test]
fn many_costly_checks_have_one_bound_together_and_all_get_their_turn() {
    const ANSWERS: u64 = 12;
    let bench = bench();
    let (value, text) = costly();
    let grammar = bench.compile(&schema(&verified(value).to_string()));
    assert!(grammar.is_verified());
    let tokens = bench.encode(&text);
    let ids: Vec<SequenceId> = (500..500 + ANSWERS).map(SequenceId).collect();
    for id in &ids {
        bench.pool.register(*id, &grammar);
    }
    let mut lengths = vec![tokens.len(); ids.len()];
    let (mut rounds, mut put_off) = (0, 0);
    let mut ended = vec![false; ids.len()];
    while ended.contains(&false) {
        rounds += 1;
        assert!(rounds < 100, "{ended:?}");
        let live: Vec<usize> = (0..ids.len()).filter(|&i| !ended[i]).collect();
        let slots: Vec<MaskSlot<'_>> =
            live.iter().map(|&i| MaskSlot { sequence: ids[i], tokens: &tokens[..lengths[i]] }).collect();
        let mut out = AdvanceBatch::default();
        bench.pool.advance(&slots, false, &mut out);
        for (answer, &i) in live.iter().enumerate() {
            match out.get(answer).1 {
                AdvanceState::Stop => ended[i] = true,
                AdvanceState::Retract { keep } => {
                    assert!(*keep < lengths[i]);
                    lengths[i] = tokens.len();
                    put_off += 1;
                }
                state => panic!("{state:?}"),
            }
        }
    }
    assert!(put_off > 0 && rounds > 1, "{put_off} in {rounds} rounds");
    for id in &ids {
        bench.pool.remove(*id);
    }
}

#[test]
fn several_constraints_of_one_list_are_all_checked() {
    let bench = bench();
    for (value, wrong) in [
        (json!({"uniqueItems": true, "contains": {"type": "object"}}), "[]"),
        (json!({"allOf": [{"uniqueItems": true}, {"contains": {"type": "null"}}], "type": "array"}), "[1]"),
        (json!({"contains": {"type": "null"}, "uniqueItems": true}), "[null,null]"),
    ] {
        let grammar = bench.compile(&schema(&verified(value.clone()).to_string()));
        let keywords: Vec<String> = {
            let limits = NormalizeLimits { residual: ResidualMode::Verify, ..NormalizeLimits::default() };
            normalize(&value, &limits).unwrap().residual.into_iter().map(|left| left.keyword).collect()
        };
        assert_eq!(keywords.iter().filter(|keyword| *keyword == "contains").count(), 1, "{keywords:?}");
        assert_eq!(keywords.iter().filter(|keyword| *keyword == "uniqueItems").count(), 1, "{keywords:?}");
        let tokens = bench.encode(wrong);
        let ended = run(&bench, &grammar, false, |at, allowed| {
            tokens.get(at.len()).copied().filter(|token| allowed.contains(token)).unwrap_or(allowed[0])
        });
        assert_ne!(ended.end, End::Complete(wrong.to_owned()), "{value}");
    }
}
