//! Answers whose beginning was generated elsewhere: they go on as they would have gone on there.

use std::collections::BTreeSet;

use llgtrt_core::{
    AdvanceBatch, AdvanceState, ErrorKind, GrammarSpec, MaskSlot, MaskSource, SequenceId, TokenId,
};
use llgtrt_grammar::{CompiledGrammar, TokenLimit};
use serde_json::{Value, json};

use crate::support::{Bench, schema};

/// An answer, and after how many of its tokens all of them were certain to stay.
struct Answer {
    tokens: Vec<TokenId>,
    certain: BTreeSet<usize>,
    complete: bool,
}

/// Generates behind `before`. Which token is taken depends on what is allowed and on the place in the answer alone.
fn go_on(
    bench: &Bench,
    grammar: &CompiledGrammar,
    limit: Option<TokenLimit>,
    fast_forward: bool,
    seed: usize,
    before: &[TokenId],
    is_part: bool,
) -> Answer {
    let id = SequenceId(3);
    bench.pool.register_behind(id, grammar, limit, before, is_part).expect("they begin an answer");
    let mut new: Vec<TokenId> = Vec::new();
    let mut answer = Answer { tokens: Vec::new(), certain: BTreeSet::new(), complete: false };
    for _ in 0..3000 {
        let mut out = AdvanceBatch::default();
        bench.pool.advance(&[MaskSlot { sequence: id, tokens: &new }], fast_forward, &mut out);
        let (forced, state) = out.get(0);
        match state {
            AdvanceState::Retract { keep } => new.truncate(*keep),
            AdvanceState::Failed(error) => panic!("{error:?}"),
            _ => new.extend_from_slice(forced),
        }
        answer.certain.insert(before.len() + out.certain(0).unwrap_or(new.len()));
        if matches!(state, AdvanceState::Stop | AdvanceState::Limit) {
            answer.complete = true;
            break;
        }
        let most = limit.map_or(usize::MAX, |limit| limit.tokens);
        assert!(before.len() + new.len() < most, "cut by its limit");
        let allowed = bench.fill(id.0, &new).expect("a mask");
        let token = allowed[(seed + 7 * (before.len() + new.len())) % allowed.len()];
        if token == bench.eos() {
            answer.complete = true;
            break;
        }
        new.push(token);
    }
    bench.pool.remove(id);
    answer.tokens = [before, &new].concat();
    answer
}

fn grammars() -> Vec<GrammarSpec> {
    let person = json!({"type": "object", "properties": {"name": {"type": "string", "maxLength": 9},
        "age": {"type": "integer", "minimum": 0, "maximum": 150}, "tags": {"type": "array", "maxItems": 3,
        "items": {"enum": ["red", "green", "日本"]}}}, "required": ["name", "age", "tags"],
        "additionalProperties": false});
    vec![
        schema(&person.to_string()),
        schema(r#"{"type":"number"}"#),
        GrammarSpec::Regex("(ab|c[0-9]{2,5}){1,9}é?".to_owned()),
        GrammarSpec::Choice(vec!["the value".to_owned(), "the name of it".to_owned()]),
        GrammarSpec::Lark("start: \"a\" b \"c\"\nb: \"(\" b \")\" | /[x-z]{1,4}/".to_owned()),
    ]
}

#[test]
fn an_answer_goes_on_behind_any_of_its_tokens() {
    for bench in [Bench::bytes(), Bench::words()] {
        for spec in grammars() {
            let grammar = bench.compile(&spec);
            for (seed, fast_forward) in [(1, true), (5, false), (11, true)] {
                let whole = go_on(&bench, &grammar, None, fast_forward, seed, &[], false);
                assert!(!whole.tokens.is_empty());
                // The numbers of a long answer repeat themselves; a hundred places say enough.
                for cut in 1..=whole.tokens.len().min(100) {
                    let again =
                        go_on(&bench, &grammar, None, fast_forward, seed, &whole.tokens[..cut], false);
                    assert_eq!(again.tokens, whole.tokens, "{spec:?} behind {cut}");
                }
            }
        }
    }
}

#[test]
fn its_limit_counts_the_tokens_before() {
    let value = json!({"type": "object", "properties": {"name": {"type": "string"}, "tags": {"type": "array",
        "items": {"type": "string"}}}, "required": ["name", "tags"], "additionalProperties": false});
    let validator = jsonschema::draft202012::new(&value).unwrap();
    for bench in [Bench::bytes(), Bench::words()] {
        let grammar = bench.compile(&schema(&value.to_string()));
        let limit = Some(TokenLimit { tokens: 60, retract: true, turn: 0 });
        for seed in 0..4 {
            let whole = go_on(&bench, &grammar, limit, true, seed, &[], false);
            // A whole answer that goes on, and one of the short parts that an answer is made of.
            for (cut, is_part) in (1..whole.tokens.len()).flat_map(|cut| [(cut, false), (cut, true)]) {
                let again = go_on(&bench, &grammar, limit, true, seed, &whole.tokens[..cut], is_part);
                assert!(again.tokens.len() <= 60 && again.complete);
                let text = String::from_utf8(bench.decode(&again.tokens)).expect("whole characters");
                let instance: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
                assert!(validator.is_valid(&instance), "{instance}");
            }
        }
    }
}

#[test]
fn a_check_beside_the_grammar_knows_what_came_before() {
    let value = json!({"type": "array", "minItems": 3, "maxItems": 5, "uniqueItems": true, "items": {"enum": [1, 2, 3, 4, 5, 6]},
        "x-guidance": {"residual": "verify", "whitespace_flexible": false}});
    let validator = jsonschema::draft202012::new(&value).unwrap();
    let bench = Bench::words();
    let grammar = bench.compile(&schema(&value.to_string()));
    assert!(grammar.is_verified());
    for seed in 0..6 {
        let whole = go_on(&bench, &grammar, None, true, seed, &[], false);
        for &cut in &whole.certain {
            let again = go_on(&bench, &grammar, None, true, seed, &whole.tokens[..cut], false);
            let text = String::from_utf8(bench.decode(&again.tokens)).expect("whole characters");
            let instance: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
            assert!(again.complete && validator.is_valid(&instance), "{instance} behind {cut}");
        }
    }
    // Two that are equal are refused before anything is generated.
    let error = bench.pool.register_behind(SequenceId(9), &grammar, None, &bench.encode("[1,1,"), false);
    assert_eq!(error.unwrap_err().kind, ErrorKind::Grammar);
}

#[test]
fn what_begins_no_answer_is_refused() {
    let choice = GrammarSpec::Choice(vec!["true".to_owned()]);
    for (bench, text) in [(Bench::words(), "fa"), (Bench::bytes(), "trx")] {
        let grammar = bench.compile(&choice);
        for is_part in [false, true] {
            let begin = |text| {
                bench.pool.register_behind(SequenceId(1), &grammar, None, &bench.encode(text), is_part)
            };
            assert_eq!(begin(text).unwrap_err().kind, ErrorKind::Grammar);
            assert!(bench.pool.is_empty());
            // A complete answer has nothing behind it.
            begin("true").unwrap();
            assert_eq!(bench.advance(1, &[], true), (vec![], AdvanceState::Stop));
            bench.pool.remove(SequenceId(1));
        }
    }
}
