//! Numbers, strings, formats and dialects: values at the edges, by an independent validator and by the
//! grammar.

use std::sync::OnceLock;

use crate::support::{Bench, schema};
use serde_json::Value;

pub(crate) fn bench() -> &'static Bench {
    static BENCH: OnceLock<Bench> = OnceLock::new();
    BENCH.get_or_init(Bench::bytes)
}

/// Checks what the grammar takes; the validator has to be of the same opinion.
#[track_caller]
fn check(source: &str, good: &[&str], bad: &[&str]) {
    let value: Value = serde_json::from_str(source).unwrap();
    let validator =
        jsonschema::options().should_validate_formats(true).with_draft(draft(&value)).build(&value).unwrap();
    for (texts, expected) in [(good, true), (bad, false)] {
        for text in texts {
            let instance: Value = serde_json::from_str(text).unwrap();
            assert_eq!(validator.is_valid(&instance), expected, "the validator on {text} of {source}");
        }
    }
    check_grammar(source, good, bad);
}

/// As [`check`], where the validator knows better or less than the rules say.
#[track_caller]
fn check_grammar(source: &str, good: &[&str], bad: &[&str]) {
    let grammar = bench().compile(&schema(source));
    for text in good {
        assert!(bench().takes(&grammar, text), "{text} of {source}");
    }
    for text in bad {
        assert!(!bench().takes(&grammar, text), "not {text} of {source}");
    }
}

fn draft(value: &Value) -> jsonschema::Draft {
    match value.get("$schema").and_then(Value::as_str) {
        Some(uri) if uri.contains("draft-04") => jsonschema::Draft::Draft4,
        Some(uri) if uri.contains("draft-07") => jsonschema::Draft::Draft7,
        _ => jsonschema::Draft::Draft202012,
    }
}

#[test]
fn ignored_case_in_patterns() {
    check(
        r#"{"type":"string","pattern":"(?i)^[a-z]+$"}"#,
        &["\"abc\"", "\"ABC\"", "\"aZ\""],
        &["\"-\"", "\"a-\"", "\"1\""],
    );
    check(r#"{"type":"string","pattern":"(?i)^ß$"}"#, &["\"ß\""], &["\"S\"", "\"s\""]);
    check_grammar(r#"{"type":"string","pattern":"(?i)^\\u0041$"}"#, &["\"a\"", "\"A\""], &["\"b\""]);
    check(r#"{"type":"string","pattern":"^(?i:a)b$"}"#, &["\"Ab\""], &["\"AB\""]);
}

#[test]
fn word_boundaries() {
    check(
        r#"{"type":"string","pattern":"^\\bfoo\\b","maxLength":6}"#,
        &["\"foo\"", "\"foo b\""],
        &["\"foox\"", "\" foo\""],
    );
    check(
        r#"{"type":"object","patternProperties":{"\\bid\\b":{"type":"integer"}},"additionalProperties":false}"#,
        &[r#"{"id":1}"#, r#"{"the-id":1}"#],
        &[r#"{"id":"x"}"#, r#"{"ids":1}"#],
    );
}

#[test]
fn counts_end_where_64_bits_do() {
    for (keyword, empty) in [("maxItems", "[]"), ("maxLength", "\"\""), ("maxProperties", "{}")] {
        let names = [("maxItems", "array"), ("maxLength", "string"), ("maxProperties", "object")];
        let name = names.iter().find(|(known, _)| *known == keyword).unwrap().1;
        let source = format!(
            r#"{{"anyOf":[{{"type":"null"}},{{"type":"{name}","not":{{"{keyword}":18446744073709551615}}}}]}}"#
        );
        check_grammar(&source, &["null"], &[empty]);
    }
    let source = r#"{"anyOf":[{"type":"null"},{"type":"array","not":{"contains":{"const":1},"minContains":0,"maxContains":18446744073709551615}}]}"#;
    check_grammar(source, &["null"], &["[]", "[1]"]);
}
