//! Numbers that the schema does not bound stay short; those that it bounds may be as long as it says.

use crate::support::{Bench, Greedy, WORDS, schema};
use llgtrt_core::{AdvanceState, SequenceId, TokenId};
use llgtrt_grammar::{CompiledGrammar, GrammarConfig};

/// Tokens of an answer.
const LONGEST: usize = 200;

/// Takes the token that `pick` wants most, and the first one that ends something if it wants none.
fn walk(bench: &Bench, grammar: &CompiledGrammar, wanted: &[&str]) -> String {
    let id = 77;
    bench.pool.register(SequenceId(id), grammar);
    let mut tokens: Vec<TokenId> = Vec::new();
    let wanted: Vec<TokenId> = wanted.iter().flat_map(|text| bench.encode(text)).collect();
    while tokens.len() < LONGEST {
        let (forced, state) = bench.advance(id, &tokens, true);
        tokens.extend(forced);
        if state == AdvanceState::Stop {
            break;
        }
        assert_eq!(state, AdvanceState::Sample);
        let allowed = bench.fill(id, &tokens).unwrap();
        let next = wanted.iter().find(|token| allowed.contains(token)).copied();
        tokens.push(
            next.unwrap_or_else(|| if allowed.contains(&bench.eos()) { bench.eos() } else { allowed[0] }),
        );
    }
    bench.pool.remove(SequenceId(id));
    // Blanks are no matter here.
    String::from_utf8(bench.decode(&tokens)).unwrap().replace(' ', "")
}

fn benches() -> [Bench; 2] {
    [Bench::with(GrammarConfig::default()), Bench::new(Greedy::new(&WORDS, 2), GrammarConfig::default())]
}

#[test]
fn numbers_that_nothing_bounds_end() {
    for bench in benches() {
        for (source, wanted, most) in [
            (r#"{"type":"integer"}"#, &["123", "9"][..], 19),
            (r#"{"type":"number"}"#, &["12", "9"], 19),
            (r#"{"type":"number","minimum":0,"maximum":1}"#, &["0.", ".", "9", "3"], 19),
            (r#"{"type":"integer","minimum":5}"#, &["9"], 19),
            (r#"{"type":"number"}"#, &["e", "9"], 22),
            (r#"{"type":["integer","null"]}"#, &["12"], 19),
            (r"{}", &["7"], 19),
        ] {
            let text = walk(&bench, &bench.compile(&schema(source)), wanted);
            assert!(text.len() <= most && text.len() > 3, "{text} of {source}");
            serde_json::from_str::<f64>(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
        }
        let object = r#"{"type":"object","properties":{"a":{"type":"number"},"b":{"type":"string"}},"required":["a","b"]}"#;
        let text = walk(&bench, &bench.compile(&schema(object)), &["1"]);
        // A string has as many digits as it likes.
        let rest = text.strip_prefix(r#"{"a":1111111111111111111,"b":""#);
        assert!(rest.is_some_and(|digits| digits.len() > 100), "{text}");
    }
}

#[test]
fn fractions_and_exponents_end() {
    for bench in benches() {
        let grammar = bench.compile(&schema(r#"{"type":"number","minimum":0,"exclusiveMaximum":1}"#));
        let text = walk(&bench, &grammar, &["0.", ".", "3"]);
        let digits = if text.starts_with("0.") { text.len() - 2 } else { 0 };
        assert_eq!(digits, 17, "{text}");
    }
}

#[test]
fn what_the_schema_asks_for_is_written_whole() {
    for bench in benches() {
        for source in [
            r#"{"const":123456789012345678901234567890}"#,
            r#"{"type":"integer","minimum":100000000000000000000000000000}"#,
        ] {
            let text = walk(&bench, &bench.compile(&schema(source)), &["1", "2"]);
            assert_eq!(text.len(), 30, "{text} of {source}");
        }
        let unsigned = r#"{"type":"integer","minimum":0,"maximum":18446744073709551615}"#;
        assert_eq!(walk(&bench, &bench.compile(&schema(unsigned)), &["1"]), "1".repeat(20));
    }
}

#[test]
fn the_letter_of_the_standard_has_no_such_bound() {
    let letter = Bench::words();
    let bench = Bench::with(GrammarConfig::default());
    let own = r#"{"type":"integer","x-guidance":{"standard":true}}"#;
    // The same grammar, and not the same masks.
    assert_eq!(walk(&bench, &bench.compile(&schema(r#"{"type":"integer"}"#)), &["9"]).len(), 19);
    for text in [
        walk(&letter, &letter.compile(&schema(r#"{"type":"integer"}"#)), &["9"]),
        walk(&bench, &bench.compile(&schema(own)), &["9"]),
    ] {
        assert_eq!(text.len(), LONGEST, "{text}");
    }
}
