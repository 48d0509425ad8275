//! Every kind of grammar: what it accepts, what it refuses, and how refusals are reported.

use crate::support::{Bench, schema};
use llgtrt_core::{ErrorKind, GrammarSpec};

#[track_caller]
fn check(bench: &Bench, spec: &GrammarSpec, good: &[&str], bad: &[&str]) {
    let grammar = bench.compile(spec);
    assert_eq!(grammar.kind(), spec.kind());
    for text in good {
        if let Err(why) = bench.accepts(&grammar, text) {
            panic!("{spec:?} refused {text:?}: {why}");
        }
    }
    for text in bad {
        assert!(bench.accepts(&grammar, text).is_err(), "{spec:?} accepted {text:?}");
    }
}

fn all_kinds(bench: &Bench) {
    let person = r#"{"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer","minimum":0}},
        "required":["name","age"],"additionalProperties":false}"#;
    check(
        bench,
        &schema(person),
        &[
            r#"{"name":"John","age":12}"#,
            "{ \"name\": \"日本 é\\n\", \"age\": 0 }",
            r#"{ "name" : "" , "age" : 123 }"#,
        ],
        &[
            r#"{"name":"John"}"#,
            r#"{"age":12,"name":"John"}"#,
            r#"{"name":"John","age":-1}"#,
            r#"{"name":"John","age":12}}"#,
            r#"{"name":"John","age":12,"x":1}"#,
            "{\n\n\n\n\"name\":\"John\",\"age\":1}",
        ],
    );
    check(bench, &GrammarSpec::JsonObject, &[r#"{"a":[1,{"b":null}]}"#, "{}"], &["[1]", "3", "{"]);
    check(bench, &schema("true"), &["3", "[]", r#""x""#], &["x"]);
    check(bench, &GrammarSpec::Regex("[a-c]+/\\d{2}".to_owned()), &["abc/12"], &["abc/1", "abc/123", "abd"]);
    let choices = ["yes", "no", "no way", "quo\"te", "日本\n", "back\\slash \u{7f}"];
    check(
        bench,
        &GrammarSpec::Choice(choices.iter().map(|&s| s.to_owned()).collect()),
        &choices,
        &["ye", "yess", "no ", ""],
    );
    check(
        bench,
        &GrammarSpec::Lark("start: item (\", \" item)*\nitem: /[a-z]+/ | \"(\" start \")\"\n".to_owned()),
        &["aaa", "a, (b, c)", "((a))"],
        &["", "a,b", "(a"],
    );
    check(
        bench,
        &GrammarSpec::Llguidance(
            r#"{"grammars":[{"name":"main","lark_grammar":"start: \"x=\" @value"},
                {"name":"value","json_schema":{"type":"integer"}}]}"#
                .to_owned(),
        ),
        &["x=12", "x=-5"],
        &["x=a", "12"],
    );
    check(bench, &GrammarSpec::Llguidance("start: \"lark\"".to_owned()), &["lark"], &["larks"]);
}

#[test]
fn every_kind_over_single_bytes() {
    all_kinds(&Bench::bytes());
}

#[test]
fn every_kind_over_longer_tokens() {
    all_kinds(&Bench::words());
}

#[test]
fn keywords_that_mean_nothing_are_no_reason_to_refuse() {
    let bench = Bench::bytes();
    let map = r#"{"type":"object","propertyNames":{"type":"string"},
        "additionalProperties":{"type":"array","items":{"type":"integer"},"uniqueItems":false}}"#;
    check(&bench, &schema(map), &[r#"{"a":[1,1]}"#, "{}"], &[r#"{"a":1}"#]);
}

#[test]
fn whitespace_is_bounded() {
    let bench = Bench::bytes();
    let spec = schema(r#"{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]}"#);
    let blanks = |n: usize| format!("{{{}\"a\":1}}", " ".repeat(n));
    check(&bench, &spec, &[&blanks(0), &blanks(1), "{ \"a\" : 1 }"], &[&blanks(2), "{\n\"a\":1}"]);
}

#[test]
fn the_end_of_json_is_the_end() {
    let bench = Bench::bytes();
    let grammar = bench.compile(&GrammarSpec::JsonObject);
    bench.pool.register(llgtrt_core::SequenceId(1), &grammar);
    let (forced, state) = bench.advance(1, &bench.encode("{}"), true);
    assert!(forced.is_empty());
    assert_eq!(state, llgtrt_core::AdvanceState::Stop);
    assert_eq!(bench.fill(1, &bench.encode("{}")), Err(llgtrt_core::MaskVerdict::Stop));
}

#[test]
fn refusals_name_the_place() {
    let bench = Bench::refusing();
    let lark = |text: &str| GrammarSpec::Lark(text.to_owned());
    let list = |text: &str| GrammarSpec::Llguidance(text.to_owned());
    let cases = [
        (schema("{"), None, "not JSON"),
        (schema("null"), None, "object or a boolean"),
        (schema("\"\""), None, "object or a boolean"),
        (schema("[]"), None, "object or a boolean"),
        (schema("false"), None, "nothing"),
        (schema(r#"{"type":"stsring"}"#), Some("type"), "stsring"),
        (
            schema(r#"{"properties":{"a":{"uniqueItems":true}}}"#),
            Some("properties.a.uniqueItems"),
            "`uniqueItems`",
        ),
        (schema(r#"{"properties":{"a":{"pattern":"(?<=a)"}}}"#), Some("properties.a.pattern"), "look-behind"),
        (schema(r#"{"properties":{"a":{"pattern":"a\\bc"}}}"#), Some("properties.a.pattern"), ""),
        (schema(r#"{"properties":{"a":{"pattern":"{{...}}"}}}"#), Some("properties.a.pattern"), ""),
        (schema(r#"{"properties":{"a":{"pattern":"a**"}}}"#), Some("properties.a.pattern"), ""),
        (schema(r#"{"anyOf":[{"$ref":"http://x.test/y"}]}"#), Some("anyOf[0].$ref"), ""),
        (schema(r#"{"items":{"uniqueItems":true}}"#), Some("items.uniqueItems"), "leave"),
        (
            schema(r#"{"properties":{"a":{"type":"object","properties":{"x":{}},"minProperties":2}}}"#),
            Some("properties.a.minProperties"),
            "",
        ),
        (schema(r#"{"type":"object","properties":{"a":false},"required":["a"]}"#), None, "allows nothing"),
        (schema(r#"{"type":"string","minLength":3,"maxLength":2}"#), None, "allows nothing"),
        (
            schema(r#"{"type":"array","items":{"type":"boolean"},"uniqueItems":true,"minItems":3}"#),
            None,
            "allows nothing",
        ),
        (
            schema(
                r#"{"properties":{"a":{"type":"array","items":{"enum":[1,2,3,4,5,6,7]},"uniqueItems":true,"minItems":8}},
                    "required":["a"],"type":"object"}"#,
            ),
            None,
            "allows nothing",
        ),
        (schema(r#"{"x-guidance":{"nonsense":1}}"#), Some("x-guidance"), "nonsense"),
        (GrammarSpec::Regex("(((".to_owned()), None, "unclosed group"),
        (GrammarSpec::Regex("(?=a)".to_owned()), None, "look-around"),
        (GrammarSpec::Regex("(a)\\1".to_owned()), None, "back-reference"),
        (GrammarSpec::Regex(String::new()), None, ""),
        (GrammarSpec::Regex("(a?){0}".to_owned()), None, "empty text"),
        (GrammarSpec::Choice(vec![]), None, "at least one"),
        (GrammarSpec::Choice(vec!["a".to_owned(), String::new()]), Some("[1]"), "empty string"),
        (lark(""), None, "empty"),
        (lark("start: missing"), None, "missing"),
        (lark("start: \"a"), None, ""),
        (lark("start: start"), None, ""),
        (list("{\"grammars\":[]}"), Some("grammars"), ""),
        (list("{\"grammars\":[{}]}"), Some("grammars[0]"), "either"),
        (
            list("{\"grammars\":[{\"json_schema\":{\"not\":{}}}]}"),
            Some("grammars[0].json_schema"),
            "allows nothing",
        ),
        (list("{\"max_tokens\":3,\"grammars\":[{\"json_schema\":{}}]}"), Some("max_tokens"), ""),
        (
            list(
                r#"{"grammars":[{"lark_grammar":"start: @b @c"},{"name":"b","lark_grammar":"start: /a/"},
                    {"name":"c","lark_grammar":"start: /(/"}]}"#,
            ),
            Some("grammars[2].lark_grammar"),
            "regex",
        ),
    ];
    for (spec, param, word) in cases {
        let error = bench.compiler.compile(&spec).map(|_| ()).expect_err(&format!("{spec:?}"));
        assert_eq!(error.kind, ErrorKind::Grammar, "{spec:?}");
        assert_eq!(error.param.as_deref(), param, "{spec:?}: {}", error.message);
        assert!(error.message.contains(word), "{spec:?}: {}", error.message);
        assert!(error.message.chars().count() <= 310 && !error.message.contains('\n'), "{}", error.message);
    }
    // The next good one is not affected.
    bench.compile(&GrammarSpec::JsonObject);
}

#[test]
fn formats_named_as_supported_are() {
    let bench = Bench::bytes();
    for format in
        ["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri"]
    {
        bench.compile(&schema(&format!(r#"{{"type":"string","format":"{format}"}}"#)));
    }
}

#[test]
fn a_terminal_may_stand_before_text_that_begins_with_the_same_byte() {
    let bench = Bench::words();
    let lark = |text: &str| GrammarSpec::Lark(text.to_owned());
    for (spec, good, bad) in [
        (lark("start: \"“\" TEXT \"”\"\nTEXT: /[^“”]+/"), "“a – ‘b’”", "“a“”"),
        (lark("start: /[ぁ-ん]+/ \"。\""), "ねこ。", "。"),
        (lark("start: (/[а-я]+/ \"Я\")+ \"!\""), "абвЯяЯ!", "абв!"),
        (
            lark("start: item (\", \" item)*\nitem: \"„\" WORD \"“\" // quoted\nWORD: /[^„“]*/"),
            "„“, „…“",
            "„…",
        ),
        (lark("start: /[a-z]+/ \"ab!\""), "xyab!", "ab!"),
    ] {
        check(&bench, &spec, &[good], &[bad]);
    }
}

#[test]
fn a_grammar_under_which_no_answer_ends_is_refused() {
    let bench = Bench::words();
    for text in [
        "start: open TEXT close\nopen: \"“\"\nclose: \"”\"\nTEXT: /[^“”]+/",
        "start: /[a-z]+/ rest\nrest: \"ab\" | \"cd\"",
    ] {
        let error = bench.compiler.compile(&GrammarSpec::Lark(text.to_owned())).map(|_| ()).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Grammar);
        assert!(
            error.message.contains("ends") && error.message.contains("as one terminal"),
            "{}",
            error.message
        );
    }
}
