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
        Some(uri) if uri.contains("draft-06") => jsonschema::Draft::Draft6,
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
fn alternatives_that_are_all_the_same() {
    check(r#"{"type":"string","pattern":"^B$|^B$"}"#, &["\"B\""], &["\"\"", "\"BB\"", "\"aB\""]);
    check(r#"{"type":"string","pattern":"^(?:ab?$|ab?$)"}"#, &["\"a\"", "\"ab\""], &["\"b\"", "\"abb\""]);
    check(
        r#"{"type":"object","patternProperties":{"^$|^$":{"type":"integer"}},"additionalProperties":false}"#,
        &[r#"{"":1}"#, "{}"],
        &[r#"{"":"x"}"#, r#"{"a":1}"#],
    );
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

#[test]
fn formats_of_pydantic_and_zod() {
    let uuid = |version: char| format!("\"c0a8012e-7b5d-{version}f3a-9c1e-0242ac130002\"");
    for version in ['1', '3', '4', '5', '6', '7', '8'] {
        let source = format!(r#"{{"type":"string","format":"uuid{version}"}}"#);
        let other = if version == '4' { '1' } else { '4' };
        check_grammar(&source, &[&uuid(version)], &[&uuid(other), "\"x\""]);
    }
    for (name, good, bad) in [
        (
            "ipv4network",
            &["10.0.0.0/8", "1.2.3.4", "1.2.3.0/24", "0.0.0.0/0"][..],
            &["1.2.3.4/24", "1.2.3.256", "10.0.0.1/8"][..],
        ),
        ("ipv6network", &["2001:db8::/32", "::1", "::/0", "::1/128"], &["::1/64", "1::/129"]),
        ("ipvanyaddress", &["1.2.3.4", "::1"], &["1.2.3", "x"]),
        ("ipvanyinterface", &["1.2.3.4/24", "::1/64", "::1"], &["1.2.3.4/33"]),
        ("base64", &["", "aGk=", "aGVsbG8h"], &["aGk", "a", "aGl="]),
        ("base64url", &["-_-_", "aGk="], &["aGk", "+/+/"]),
        ("cuid", &["cjld2cjxh0000qzrmn831i7rn"], &["xjld2cjxh0000qzrmn831i7rn", "c1"]),
        ("cuid2", &["tz4a98xxat96iws9zmbrgj3a"], &["1z", "A"]),
        (
            "ulid",
            &["01ARZ3NDEKTSV4RRFFQ69G5FAV"],
            &["81ARZ3NDEKTSV4RRFFQ69G5FAV", "01ARZ3NDEKTSV4RRFFQ69G5FAU"],
        ),
        ("nanoid", &["V1StGXR8_Z5jdHi6B-myT"], &["V1StGXR8_Z5jdHi6B-my", "!1StGXR8_Z5jdHi6B-myT"]),
        ("xid", &["9m4e2mr0ui3e8a215n4g"], &["9m4e2mr0ui3e8a215n4z"]),
        (
            "ksuid",
            &["0ujtsYcgvSTl8PAuAdqWYSMnLOv"],
            &["0ujtsYcgvSTl8PAuAdqWYSMnLO", "zujtsYcgvSTl8PAuAdqWYSMnLOv"],
        ),
        ("e164", &["+14155552671"], &["14155552671", "+0123456789"]),
        ("emoji", &["😀", "🚀🎉"], &["x", ""]),
        ("date-time-local", &["2024-02-29T12:00:00"], &["2024-02-29T12:00:00Z", "2023-02-29T12:00:00"]),
    ] {
        let source = format!(r#"{{"type":"string","format":"{name}"}}"#);
        let quote = |list: &[&str]| list.iter().map(|text| format!("\"{text}\"")).collect::<Vec<_>>();
        let (good, bad) = (quote(good), quote(bad));
        check_grammar(
            &source,
            &good.iter().map(String::as_str).collect::<Vec<_>>(),
            &bad.iter().map(String::as_str).collect::<Vec<_>>(),
        );
    }
    check_grammar(r#"{"type":"string","contentEncoding":"base64"}"#, &["\"aGk=\""], &["\"aGk\""]);
    for open in ["binary", "password", "path", "json-string", "multi-host-uri"] {
        let source = format!(r#"{{"type":"string","format":"{open}"}}"#);
        check(&source, &["\"anything at all\"", "\"\""], &["1"]);
    }
}

#[test]
fn dates_and_times_are_what_programs_read() {
    for (name, good, bad) in [
        ("date", "2024-02-29", "0000-01-01"),
        ("date", "0001-01-01", "2023-02-29"),
        ("date-time", "2024-12-31T23:59:59.123456Z", "2024-12-31T23:59:60Z"),
        ("date-time", "1999-01-01T00:00:00+05:30", "0000-01-01T00:00:00Z"),
        ("time", "23:59:59Z", "23:59:60Z"),
        ("duration", "P1DT12H", "P99999999999999999999D"),
    ] {
        let source = format!(r#"{{"type":"string","format":"{name}"}}"#);
        check_grammar(&source, &[&format!("\"{good}\"")], &[&format!("\"{bad}\"")]);
    }
    // What is excluded, or listed, is judged by the standard.
    check(
        r#"{"type":"string","maxLength":10,"not":{"format":"date"}}"#,
        &["\"\"", "\"2023-02-29\""],
        &["\"2024-02-29\"", "\"0000-01-01\""],
    );
    check(
        r#"{"enum":["0000-01-01","2023-02-29"],"format":"date"}"#,
        &["\"0000-01-01\""],
        &["\"2023-02-29\""],
    );
}

#[test]
fn a_pattern_says_what_a_format_means() {
    check_grammar(
        r#"{"type":"string","format":"time","pattern":"^[0-9]{2}:[0-9]{2}$"}"#,
        &["\"12:30\""],
        &["\"12:30:00Z\""],
    );
    check_grammar(
        r#"{"type":"string","format":"cuid","pattern":"^[cC][^\\s-]{8,}$"}"#,
        &["\"Cabcdefgh\""],
        &["\"Cabc\""],
    );
    check(
        r#"{"type":"string","format":"date","pattern":"^2024-"}"#,
        &["\"2024-01-31\""],
        &["\"2024-01-32\"", "\"2023-01-31\""],
    );
}

#[test]
fn formats_of_the_standard() {
    check(
        r#"{"type":"string","format":"ipv6"}"#,
        &["\"::ffff:1.2.3.4\"", "\"1::\""],
        &["\"::1.2.3.256\"", "\"1.2.3.4\""],
    );
    check(
        r#"{"type":"string","format":"uri-reference"}"#,
        &["\"http://[::1]/x\""],
        &["\"http://[::g]/x\"", "\"http://[::o]\""],
    );
    check(
        r#"{"type":"string","format":"regex"}"#,
        &[r#""^a{3,16}$""#, r#""\\bx\\b""#, r#""[\\-a]""#, r#""\\x41""#],
        &[r#""a{2,1}""#, r#""(""#, r#""[a""#],
    );
    // What ECMA-262 reads and Python does not.
    check_grammar(r#"{"type":"string","format":"regex"}"#, &[], &[r#""\\p{L}""#]);
    check(r#"{"type":"string","format":"iri"}"#, &["\"http://a/😀\""], &["\"http://a/ \""]);
}

#[test]
fn formats_of_whole_numbers_are_ranges() {
    for (name, good, bad) in [
        ("int8", &["-128", "127"][..], &["-129", "128"][..]),
        ("int32", &["-2147483648", "2147483647"], &["-2147483649", "2147483648"]),
        ("uint64", &["0", "9223372036854775807"], &["-1", "18446744073709551616"]),
        (
            "int64",
            &["-9000000000000000000", "9223372036854775807"],
            &["9223372036854775808", "-9223372036854775809"],
        ),
    ] {
        check_grammar(&format!(r#"{{"type":"integer","format":"{name}"}}"#), good, bad);
        check_grammar(&format!(r#"{{"type":["integer","null"],"format":"{name}"}}"#), &["null"], bad);
    }
    check_grammar(
        r#"{"type":"integer","format":"uint32","minimum":5}"#,
        &["5", "4294967295"],
        &["4", "4294967296"],
    );
    // A format of one type says nothing of another.
    check(r#"{"type":"string","format":"int32"}"#, &["\"x\""], &["1"]);
}

#[test]
fn nullable_of_open_api() {
    let source = r#"{"type":"object","properties":{"a":{"type":"string","minLength":1,"nullable":true}},"required":["a"],"additionalProperties":false}"#;
    check_grammar(source, &[r#"{"a":null}"#, r#"{"a":"x"}"#], &[r#"{"a":""}"#, r#"{"a":1}"#]);
    check_grammar(r#"{"type":"string","nullable":false}"#, &["\"x\""], &["null"]);
    check_grammar(r#"{"enum":["a"],"type":"string","nullable":true}"#, &["\"a\""], &["null"]);
    check(
        r#"{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"string","nullable":true}"#,
        &["\"x\""],
        &["null"],
    );
}

fn named(number: &str, rest: &str) -> String {
    format!(r#"{{"$schema":"http://json-schema.org/draft-{number}/schema#",{rest}}}"#)
}

#[test]
fn keywords_newer_than_the_draft_say_nothing() {
    check(&named("04", r#""const":3"#), &["3", "4", "\"x\""], &[]);
    check(&named("04", r#""type":"array","items":{"const":3}"#), &["[3]", "[4]"], &["3"]);
    check(&named("04", r#""oneOf":[{"type":"integer"},{"const":"x"}]"#), &["\"y\"", "true"], &["1"]);
    check(
        &named("04", r#""type":"array","contains":{"type":"null"},"maxItems":1"#),
        &["[]", "[1]"],
        &["[1,2]"],
    );
    check(&named("06", r#""if":{"type":"integer"},"then":{"minimum":3}"#), &["1", "5", "\"x\""], &[]);
    check(
        &named(
            "07",
            r#""type":"object","properties":{"a":{"type":"null"},"b":{"type":"null"}},"additionalProperties":false,"dependentRequired":{"a":["b"]}"#,
        ),
        &[r#"{"a":null,"b":null}"#, "{}", r#"{"a":null}"#],
        &[r#"{"a":1}"#],
    );
    check(&named("07", r#""type":"array","prefixItems":[{"type":"string"}],"maxItems":2"#), &["[1]"], &["1"]);
    // `items` of draft 7 means all of them.
    check(
        &named(
            "07",
            r#""type":"array","prefixItems":[{"type":"string"}],"items":{"type":"integer"},"maxItems":2"#,
        ),
        &["[1,2]"],
        &[r#"["x",1]"#],
    );
    check(
        &named("07", r#""type":"array","contains":{"const":1},"minContains":0,"maxItems":2"#),
        &["[1]", "[2,1]"],
        &["[]", "[2]"],
    );
    // Without a name all of them count.
    check_grammar(r#"{"exclusiveMinimum":3,"type":"integer"}"#, &["4"], &["3"]);
    check_grammar(r#"{"type":"array","prefixItems":[{"const":1}],"maxItems":2}"#, &["[1,2]"], &["[2]"]);
}

/// What stands beside `$ref` counts, whatever a part without a name of its own says of its draft.
#[test]
fn a_part_without_an_identifier_is_of_the_draft_of_the_whole() {
    check(
        r##"{"$ref":"#/definitions/a","definitions":{"a":{"$schema":"http://json-schema.org/draft-04/schema#","$ref":"#/definitions/b","type":"integer"},"b":{}}}"##,
        &["1"],
        &["null"],
    );
}

#[test]
fn formats_that_a_draft_does_not_have_are_offered_and_not_asked_for() {
    let uuid = "\"6ba7b810-9dad-11d1-80b4-00c04fd430c8\"";
    for number in ["04", "06", "07"] {
        // Nothing is wrong about another text, but none is offered.
        check_grammar(&named(number, r#""type":"string","format":"uuid""#), &[uuid], &["\"x\""]);
        check(
            &named(number, r#""anyOf":[{"type":"null"},{"type":"string","not":{"format":"uuid"}}]"#),
            &["null"],
            &["\"x\"", uuid],
        );
        let one = r#""type":"string","oneOf":[{"format":"uuid"},{"enum":["x"]}]"#;
        check(&named(number, one), &[uuid], &["\"x\""]);
    }
}

#[test]
fn meta_schemas_are_at_hand() {
    for (uri, good, bad) in [
        ("http://json-schema.org/draft-07/schema#/definitions/nonNegativeInteger", "3", "-1"),
        ("http://json-schema.org/draft-04/schema#/definitions/simpleTypes", "\"array\"", "\"any\""),
        ("https://json-schema.org/draft/2020-12/schema#/properties/$recursiveAnchor", "\"meta\"", "3"),
    ] {
        check_grammar(&format!(r#"{{"$ref":"{uri}"}}"#), &[good], &[bad]);
    }
    let error = bench().compiler.compile(&schema(r#"{"$ref":"https://example.com/x.json"}"#)).unwrap_err();
    assert!(error.message.contains("https://example.com/x.json"), "{}", error.message);
    assert_eq!(error.param.as_deref(), Some("$ref"));
}
