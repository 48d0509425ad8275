//! Formats: what masks offer of each, a validator that asserts formats takes.

use llgtrt_core::{SequenceId, TokenId};
use llgtrt_grammar::CompiledGrammar;
use serde_json::{Value, json};

use crate::fuzz::random::Random;
use crate::support::{Bench, schema};

/// The formats that the validator knows.
const JUDGED: [&str; 19] = [
    "date-time",
    "date",
    "time",
    "duration",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "uuid",
    "uri",
    "uri-reference",
    "iri",
    "iri-reference",
    "uri-template",
    "json-pointer",
    "relative-json-pointer",
    "idn-email",
    "idn-hostname",
    "regex",
];

/// Tokens after which a string ends where it may.
const LONG: usize = 300;

/// Tokens after which a string is given up.
const LONGEST: usize = 1500;

/// A random string, byte by byte; `None` if it did not end. Some end early, some run into every bound there is.
fn draw(bench: &Bench, grammar: &CompiledGrammar, random: &mut Random) -> Option<String> {
    let id = SequenceId(3);
    bench.pool.register(id, grammar);
    let often = *random.pick(&[0, 2, 30]);
    let mut tokens: Vec<TokenId> = Vec::new();
    let quote = TokenId::from(b'"');
    let mut escaped = false;
    let ended = loop {
        bench.advance(3, &tokens, false);
        let allowed = bench.fill(3, &tokens).unwrap();
        let ends = !tokens.is_empty() && !escaped && allowed.contains(&quote);
        if ends && (allowed.len() == 1 || tokens.len() > LONG || random.chance(often)) {
            tokens.push(quote);
            break true;
        }
        let inside = !tokens.is_empty() && !escaped;
        let open: Vec<TokenId> = allowed.into_iter().filter(|&token| !inside || token != quote).collect();
        let token = *random.pick(&open);
        escaped = inside && token == TokenId::from(b'\\');
        tokens.push(token);
        if tokens.len() > LONGEST {
            break false;
        }
    };
    bench.pool.remove(id);
    ended.then(|| String::from_utf8(bench.decode(&tokens)).unwrap())
}

#[test]
fn random_strings_of_each_format_satisfy_a_validator() {
    let bench = Bench::bytes();
    let mut random = Random::new(11, 0);
    let mut wrong = Vec::new();
    for format in JUDGED {
        let value = json!({"type": "string", "format": format});
        let validator = jsonschema::options().should_validate_formats(true).build(&value).unwrap();
        let grammar = bench.compile(&schema(&value.to_string()));
        let mut judged = 0;
        for _ in 0..12 {
            let Some(text) = draw(&bench, &grammar, &mut random) else { continue };
            let instance: Value = serde_json::from_str(&text).unwrap();
            judged += 1;
            if !validator.is_valid(&instance) {
                wrong.push(format!("{format}: {text}"));
            }
        }
        assert!(judged >= 8, "{format}: {judged} of 12 strings ended");
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn addresses_are_as_long_as_their_standard_lets_them_be() {
    let bench = Bench::bytes();
    let takes = |format: &str, text: &str| {
        let value = json!({"type": "string", "format": format});
        bench.takes(&bench.compile(&schema(&value.to_string())), &json!(text).to_string())
    };
    let label = |length: usize| "b".repeat(length);
    for (format, text, expected) in [
        ("email", format!("{}@c", label(64)), true),
        ("email", format!("{}@c", label(65)), false),
        ("email", format!("{}.{}@c", label(32), label(31)), true),
        ("email", format!("{}.{}@c", label(33), label(32)), false),
        ("email", format!("a@{}.c", label(63)), true),
        ("email", format!("a@{}.c", label(64)), false),
        ("email", format!("a@{}{}", format!("{}.", label(63)).repeat(2), label(63)), true),
        ("email", format!("a@{}{}", format!("{}.", label(63)).repeat(3), label(62)), false),
        ("email", "a@mail.dept-of-things.university.ac.uk".to_owned(), true),
        ("email", "a@in--valid.example".to_owned(), false),
        ("email", "a..b@c".to_owned(), false),
        ("email", "first.last+tag@mail.example.com".to_owned(), true),
        ("email", "a@[127.0.0.1]".to_owned(), true),
        ("idn-email", "jörg@bücher.example".to_owned(), true),
        ("idn-email", "a..ö@c".to_owned(), false),
        ("idn-email", format!("{}@c", "ö".repeat(22)), false),
        ("idn-hostname", "bücher.example".to_owned(), true),
        ("hostname", format!("{}{}", format!("{}.", label(63)).repeat(3), label(61)), true),
        ("hostname", format!("{}{}", format!("{}.", label(63)).repeat(3), label(62)), false),
    ] {
        assert_eq!(takes(format, &text), expected, "{format}: {text}");
    }
}

#[test]
fn a_format_is_held_beside_other_constraints() {
    let bench = Bench::refusing();
    for (value, valid, invalid) in [
        (json!({"format": "email", "minLength": 8}), "ab@cd.example", "a@b.c"),
        (json!({"format": "email", "pattern": "@example\\.org$"}), "a@example.org", "a@example.com"),
        (json!({"format": "email", "not": {"pattern": "^root@"}}), "user@a.b", "root@a.b"),
        (json!({"anyOf": [{"format": "email"}, {"format": "ipv4"}]}), "10.0.0.1", "10.0.0"),
        (json!({"format": "email", "allOf": [{"maxLength": 9}]}), "a@b.c", "abcdef@b.c"),
    ] {
        let mut value = value;
        value["type"] = json!("string");
        let grammar = bench.compile(&schema(&value.to_string()));
        for (text, expected) in [(valid, true), (invalid, false)] {
            assert_eq!(bench.takes(&grammar, &json!(text).to_string()), expected, "{text} of {value}");
        }
    }
}

#[test]
fn look_ahead_that_is_too_long_as_a_whole_is_held_part_by_part() {
    let bench = Bench::bytes();
    let hostname = r"^(?=.{1,253}\.?$)[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?(?:\.[a-zA-Z0-9](?:[-0-9a-zA-Z]{0,61}[0-9a-zA-Z])?)*\.?$";
    let value = json!({"type": "string", "pattern": hostname});
    let grammar = bench.compile(&schema(&value.to_string()));
    assert!(!grammar.is_verified());
    let label = |length: usize| "b".repeat(length);
    for (text, expected) in [
        ("example.com".to_owned(), true),
        ("example.com.".to_owned(), true),
        (format!("{}{}.", format!("{}.", label(63)).repeat(3), label(61)), true),
        (format!("{}{}", format!("{}.", label(63)).repeat(3), label(62)), false),
        (format!("{}.c", label(64)), false),
        (String::new(), false),
        ("a..b".to_owned(), false),
    ] {
        assert_eq!(bench.takes(&grammar, &json!(text).to_string()), expected, "{text}");
    }
}
