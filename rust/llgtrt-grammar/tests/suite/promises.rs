//! A grammar that was admitted does not fail while generating, and what has a value is not refused as empty.

use crate::fuzz::random::Random;
use crate::fuzz::walk::{End, walk};
use crate::support::{Bench, Greedy, WORDS, schema};
use llgtrt_grammar::{GrammarConfig, GrammarLimits};
use serde_json::{Value, json};

#[test]
fn masks_beyond_the_limits_become_narrower_and_never_an_error() {
    // Few enough that some masks in mid-answer take more.
    let limits = GrammarLimits { step_lexer_fuel: 30_000, ..GrammarLimits::default() };
    let config = GrammarConfig { limits, standard: true, ..GrammarConfig::default() };
    let bench = Bench::new(Greedy::new(&WORDS, 2), config);
    let mut complete = 0;
    for value in [
        json!({"type": "string", "pattern": r"^(?:\S+\s+){0,49}\S+$", "maxLength": 1000}),
        json!({"type": "string", "pattern": r"^(?:\S+\s+){0,19}\S+$", "minLength": 5, "maxLength": 300}),
        json!({"type": "object", "patternProperties": {"^[a-z]{1,255}$": {"type": "integer"}},
               "additionalProperties": false, "minProperties": 1}),
    ] {
        let Ok(grammar) = bench.compiler.compile(&schema(&value.to_string())) else { continue };
        let validator = jsonschema::validator_for(&value).unwrap();
        for seed in 0..6 {
            match walk(&bench, &grammar, &mut Random::new(seed, 1)) {
                End::Complete(text) => {
                    let instance: Value = serde_json::from_str(&text).unwrap();
                    assert!(validator.is_valid(&instance), "{text} of {value}");
                    complete += 1;
                }
                End::CutOff => {}
                End::Failed { text, message } => panic!("{message} after {text} of {value}"),
            }
        }
    }
    assert!(complete >= 6, "{complete} answers");
}

#[test]
fn a_list_that_may_be_empty_is_not_said_to_allow_nothing() {
    let bench = Bench::words();
    let source = json!({"prefixItems": [{"$ref": "#"}], "not": {"contains": {"items": {"maxLength": 1}}, "maxContains": 1}, "maxItems": 2});
    let grammar = bench.compile(&schema(&source.to_string()));
    assert!(bench.takes(&grammar, "[]"));
}

/// Behind `a?a?a?` any of those that follow may come next: a byte costs as much as there are pairs of them.
#[test]
fn a_long_row_of_options_is_refused_and_a_short_one_never_fails() {
    let bench = Bench::new(Greedy::new(&WORDS, 2), GrammarConfig::default());
    for part in ["a?", "(?:a?|b?)", "(?:a?b?|c)", "(?:a|b{2})?"] {
        let grammar = |times: usize| {
            let value = json!({"type": "string", "pattern": format!("^(?:{})$", part.repeat(times))});
            bench.compiler.compile(&schema(&value.to_string()))
        };
        let refused = grammar(600).err().unwrap_or_else(|| panic!("{part} 600 times"));
        assert!(refused.message.contains("too complex"), "{}", refused.message);
        for times in [30, 60] {
            let grammar = grammar(times).unwrap_or_else(|error| panic!("{part} {times} times: {error}"));
            for seed in 0..6 {
                if let End::Failed { text, message } = walk(&bench, &grammar, &mut Random::new(seed, 1)) {
                    panic!("{message} after {text} of {part} {times} times");
                }
            }
        }
    }
}
