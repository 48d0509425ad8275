//! Grammars that could exhaust a stack, the memory or the CPU. Each is refused or compiled; a stack
//! overflow would end this test process.

use std::fmt::Write;

use crate::support::{Bench, Greedy, schema};
use llgtrt_core::{ErrorKind, GrammarSpec};
use serde_json::json;

#[track_caller]
fn refused(bench: &Bench, spec: &GrammarSpec, word: &str) {
    let error = bench.compiler.compile(spec).map(|_| ()).expect_err("must be refused");
    assert_eq!(error.kind, ErrorKind::Grammar);
    assert!(error.message.contains(word), "{}", error.message);
    assert!(error.message.len() < 1000, "an error must not repeat the grammar");
}

/// Compiled or refused, and the next grammar compiles.
fn survives(bench: &Bench, spec: &GrammarSpec) {
    if let Err(error) = bench.compiler.compile(spec) {
        assert_eq!(error.kind, ErrorKind::Grammar, "{}", error.message);
        assert!(error.message.len() < 1000);
    }
    bench.compile(&GrammarSpec::Regex("ok".to_owned()));
}

fn chain(levels: usize, link: impl Fn(usize) -> String) -> String {
    let mut text = String::from(r##"{"$ref":"#/$defs/d0","$defs":{"##);
    for level in 0..levels {
        write!(text, r#""d{level}":{},"#, link(level + 1)).unwrap();
    }
    write!(text, r#""d{levels}":{{"type":"null"}}}}}}"#).unwrap();
    text
}

#[test]
fn reference_chains() {
    let bench = Bench::bytes();
    for levels in [150, 600, 5000] {
        let plain = chain(levels, |next| format!(r##"{{"$ref":"#/$defs/d{next}"}}"##));
        refused(&bench, &schema(&plain), "nested too deeply");
        for keyword in ["allOf", "anyOf", "prefixItems"] {
            let text = chain(levels, |next| format!(r##"{{"{keyword}":[{{"$ref":"#/$defs/d{next}"}}]}}"##));
            refused(&bench, &schema(&text), "nested too deeply");
        }
    }
    let short = chain(60, |next| format!(r##"{{"$ref":"#/$defs/d{next}"}}"##));
    bench.compile(&schema(&short));
}

#[test]
fn definitions_that_a_depth_first_walk_finds_as_one_chain() {
    let bench = Bench::bytes();
    let unlucky = |count: usize| {
        let mut text = String::from(r#"{"anyOf":["#);
        for i in 0..count {
            write!(text, r##"{{"$ref":"#/$defs/d{i}"}},"##).unwrap();
        }
        text.push_str(r#"false],"$defs":{"#);
        for i in 0..count {
            let next = (i + 1) % count;
            write!(
                text,
                r##""d{i}":{{"type":"object","properties":{{"x":{{"$ref":"#/$defs/d{next}"}}}}}},"##
            )
            .unwrap();
        }
        text.push_str(r#""z":true}}"#);
        text
    };
    // The largest that is let through has to fit the stack of a compile thread.
    survives(&bench, &schema(&unlucky(1900)));
    refused(&bench, &schema(&unlucky(4000)), "add up");
}

#[test]
fn deep_json() {
    let bench = Bench::bytes();
    for levels in [101, 1000, 100_000] {
        let arrays = format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        refused(&bench, &schema(&arrays), "nested too deeply");
        let open = r#"{"items":"#.repeat(levels);
        refused(&bench, &schema(&open), "nested too deeply");
        let constant = format!(r#"{{"const":{arrays}}}"#);
        refused(&bench, &schema(&constant), "nested too deeply");
        refused(&bench, &GrammarSpec::Llguidance(r#"{"a":"#.repeat(levels + 10)), "nested too deeply");
    }
    let nested = format!("{}true{}", r#"{"type":"array","items":"#.repeat(90), "}".repeat(90));
    bench.compile(&schema(&nested));
}

#[test]
fn five_thousand_optional_properties() {
    let bench = Bench::bytes();
    let object = |count: usize| {
        let members: Vec<String> = (0..count).map(|i| format!(r#""p{i}":{{"type":"integer"}}"#)).collect();
        format!(r#"{{"type":"object","properties":{{{}}},"additionalProperties":false}}"#, members.join(","))
    };
    let grammar = bench.compile(&schema(&object(600)));
    bench.accepts(&grammar, r#"{"p3":1,"p599":2}"#).unwrap();
    // More than a row of the parser may have: said before any answer has begun.
    bench.compile(&schema(&object(2000)));
    refused(&bench, &schema(&object(2001)), "an object of many optional properties");
    refused(&bench, &schema(&object(5000)), "an object of many optional properties");
    refused(&bench, &schema(&object(5001)), "5000 properties");
    // However deep it lies.
    let below = |key: &str, schema: &str| format!(r#"{{"properties":{{"{key}":{schema}}}}}"#);
    let deep = |count: usize| below("a", &below("b", &format!(r#"{{"items":{}}}"#, object(count))));
    let grammar = bench.compile(&schema(&deep(1900)));
    bench.accepts(&grammar, r#"{"a":{"b":[{"p3":1,"p1899":2},{"p0":1}]}}"#).unwrap();
    refused(&bench, &schema(&deep(2200)), "too many ways to go on");
}

/// Objects that begin alike are read together.
#[test]
fn optional_properties_of_many_alternatives() {
    let bench = Bench::bytes();
    let choice = |objects: usize, first: &str| {
        let object = |i: usize| {
            let members: Vec<String> =
                (0..40).map(|j| format!(r#""o{i}p{j}":{{"type":"integer"}}"#)).collect();
            format!(
                r#"{{"properties":{{{}{}}},"additionalProperties":false{}}}"#,
                first.replace('@', &i.to_string()),
                members.join(","),
                if first.is_empty() { "" } else { r#","required":["type"]"# },
            )
        };
        let list: Vec<String> = (0..objects).map(object).collect();
        format!(r#"{{"properties":{{"a":{{"type":"object","anyOf":[{}]}}}}}}"#, list.join(","))
    };
    bench.compile(&schema(&choice(40, "")));
    refused(&bench, &schema(&choice(60, "")), "too many ways to go on");
    // They are told apart before their optional keys.
    let grammar = bench.compile(&schema(&choice(60, r#""type":{"const":"t@"},"#)));
    bench.accepts(&grammar, r#"{"a":{"type":"t59","o59p39":1}}"#).unwrap();
}

/// A list of names becomes that many properties.
#[test]
fn properties_that_are_written_are_counted() {
    let bench = Bench::bytes();
    let schema = |names: usize, objects: usize| {
        let names: Vec<String> = (0..names).map(|i| format!(r#""k{i}""#)).collect();
        let maps: Vec<String> = (2..objects + 2)
            .map(|i| {
                format!(
                    r##""m{i}":{{"type":"object","propertyNames":{{"$ref":"#/$defs/name"}},"additionalProperties":{{"type":"integer"}},"not":{{"required":["k1","k{i}"]}}}}"##
                )
            })
            .collect();
        let (names, maps) = (names.join(","), maps.join(","));
        self::schema(&format!(r#"{{"$defs":{{"name":{{"enum":[{names}]}}}},"properties":{{{maps}}}}}"#))
    };
    refused(&bench, &schema(6000, 1), "objects of more properties");
    refused(&bench, &schema(1800, 8), "objects of more properties");
    let grammar = bench.compile(&schema(800, 3));
    bench.accepts(&grammar, r#"{"m2":{"k5":1},"m4":{"k799":1}}"#).unwrap();
}

#[test]
fn large_regular_expressions() {
    let bench = Bench::bytes();
    for pattern in ["((a{1,1000}){1,1000}){1,1000}", "(((a|b|c){1,1000}x){1,1000}y){1,1000}", "a{1000000000}"]
    {
        survives(&bench, &GrammarSpec::Regex(pattern.to_owned()));
        survives(&bench, &schema(&format!(r#"{{"type":"string","pattern":"{pattern}"}}"#)));
        survives(&bench, &GrammarSpec::Lark(format!("start: /{pattern}/")));
    }
    refused(&bench, &GrammarSpec::Regex("a".repeat(8193)), "8192");
    for levels in [100, 1000, 4000] {
        let nested = format!("{}a{}", "(".repeat(levels), ")".repeat(levels));
        refused(&bench, &GrammarSpec::Regex(nested.clone()), "nested too deeply");
        refused(
            &bench,
            &schema(&format!(r#"{{"type":"string","pattern":"{nested}"}}"#)),
            "nested too deeply",
        );
        refused(&bench, &GrammarSpec::Lark(format!("start: /{nested}/")), "nested too deeply");
    }
}

#[test]
fn exponential_schemas() {
    let bench = Bench::bytes();
    let bomb = |keyword: &str| {
        chain(29, |next| {
            format!(r##"{{"{keyword}":[{{"$ref":"#/$defs/d{next}"}},{{"$ref":"#/$defs/d{next}"}}]}}"##)
        })
    };
    for keyword in ["allOf", "anyOf", "oneOf"] {
        survives(&bench, &schema(&bomb(keyword)));
    }
    let values: Vec<String> = (0..100_000).map(|i| format!("\"{i}\"")).collect();
    refused(&bench, &schema(&format!(r#"{{"enum":[{}]}}"#, values.join(","))), "10000");
    survives(&bench, &schema(&format!(r#"{{"enum":[{}]}}"#, values[..10_000].join(","))));
    let choices = |n: usize| GrammarSpec::Choice((0..n).map(|i| format!("no. {i}")).collect());
    refused(&bench, &choices(100_000), "10000");
    survives(&bench, &choices(10_000));
}

#[test]
fn intersections_that_are_hard_to_prove_empty() {
    let bench = Bench::bytes();
    // After an `a` nothing is left, because one character cannot be two; to see that, the lexer would visit
    // two to the power of `n` states. `b` keeps the whole from being empty.
    for n in [4, 12, 24, 40] {
        let [c, d] = ["c", "d"].map(|letter| format!("b|a(?s:.*){letter}(?s:.{{{n}}})"));
        survives(&bench, &GrammarSpec::Lark(format!("start: T\nT: /{c}/ & /{d}/")));
        survives(&bench, &GrammarSpec::Lark(format!("start: T\nT: /{c}/ & ~/(?s:.*)c(?s:.{{{n}}})/")));
        let schema =
            format!(r#"{{"type":"string","allOf":[{{"pattern":"^({c})$"}},{{"pattern":"^({d})$"}}]}}"#);
        survives(&bench, &GrammarSpec::JsonSchema(schema));
    }
}

#[test]
fn lark_chains_and_parentheses() {
    let bench = Bench::bytes();
    let chain = |count: usize| {
        let mut text = String::from("start: r0\n");
        for i in 0..count {
            writeln!(text, "r{i}: r{}", i + 1).unwrap();
        }
        writeln!(text, "r{count}: \"a\"").unwrap();
        text
    };
    survives(&bench, &GrammarSpec::Lark(chain(3990)));
    refused(&bench, &GrammarSpec::Lark(chain(5000)), "rules");
    for levels in [65, 1000, 100_000] {
        let nested = format!("start: {}\"a\"{}", "(".repeat(levels), ")".repeat(levels));
        refused(&bench, &GrammarSpec::Lark(nested), "nested too deeply");
    }
    survives(&bench, &GrammarSpec::Lark("start: \"a\"{1,1000000000}\n".to_owned()));
    survives(&bench, &GrammarSpec::Lark("start: a{3}\na: b{1000}\nb: c{1000}\nc: \"x\"{1000}\n".to_owned()));
}

#[test]
fn long_texts_are_refused_before_they_are_read() {
    let bench = Bench::bytes();
    let long = "x".repeat((1 << 20) + 1);
    for spec in [
        schema(&long),
        GrammarSpec::Lark(long.clone()),
        GrammarSpec::Llguidance(long.clone()),
        GrammarSpec::Choice(vec![long.clone()]),
    ] {
        refused(&bench, &spec, "1048576");
    }
}

#[test]
fn odd_texts_do_no_harm() {
    let bench = Bench::new(Greedy::new(&crate::support::WORDS, 0), llgtrt_grammar::GrammarConfig::default());
    let texts = [
        "",
        " ",
        "\0",
        "{",
        "}",
        "{}",
        "[]",
        "null",
        "\"\"",
        "start:",
        "start: /",
        "start: <",
        "%json",
        "%json {",
        "start: %json {\"not\": {}}",
        "start: %lark {",
        "start: <[0-99999999]>",
        "start: <|none|>",
        "start: @x",
        "日本: \"x\"",
        "start: \"\\ud800\"",
        "%llguidance {\"no_forcing\": 3}",
        "start: %regex {\"substring_words\": \"a b\"}",
        "start[max_tokens=0]: /a/",
        "start: /a/i /[^x]/s",
        "%import common.INT\nstart: INT",
        "start: ~\"a\"",
        "\u{feff}{}",
        "start: /\\p{L}+\u{2028}/",
    ];
    for text in texts {
        for spec in [
            schema(text),
            GrammarSpec::Regex(text.to_owned()),
            GrammarSpec::Lark(text.to_owned()),
            GrammarSpec::Llguidance(text.to_owned()),
            GrammarSpec::Choice(vec![text.to_owned()]),
        ] {
            survives(&bench, &spec);
        }
    }
}

/// Thirty expressions each of which may go on in two ways at every letter: a billion pairs for the first byte, which
/// llguidance makes at once, whatever fuel it has.
#[test]
fn intersections_with_too_many_ways_are_not_begun() {
    let bench = Bench::bytes();
    let patterns: Vec<String> = (0..30).map(|i| format!("[a-z].{{{i}}}[0-9]")).collect();
    let all: Vec<_> = patterns.iter().map(|pattern| json!({ "pattern": pattern })).collect();
    let chain = patterns.iter().fold(json!({}), |rest, pattern| json!({"pattern": pattern, "allOf": [rest]}));
    let search = |pattern: &String| format!("/(?s:.*){pattern}(?s:.*)/");
    let lark: Vec<String> = patterns.iter().map(search).collect();
    let grammars = [
        schema(&json!({ "allOf": all }).to_string()),
        schema(&chain.to_string()),
        schema(&json!({"type": "object", "additionalProperties": {"allOf": all}}).to_string()),
        GrammarSpec::Lark(format!("start: A\nA: {}", lark.join(" & "))),
        GrammarSpec::Lark(format!("start: \"x\" A\nA: /x{{20}}/ B\nB: {}", lark.join(" & "))),
    ];
    for grammar in &grammars {
        if let Err(error) = bench.compiler.compile(grammar) {
            assert!(!error.message.contains("within the limit"), "it was begun: {grammar:?}");
        }
    }
    let few = format!("start: A\nA: {} & {}", lark[1], lark[3]);
    bench.compile(&GrammarSpec::Lark(few));
}
