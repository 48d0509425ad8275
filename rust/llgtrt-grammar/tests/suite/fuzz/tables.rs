//! What schemas and instances are made of: keys, words, patterns and formats, with strings on both sides.

use serde_json::{Value, json};

use super::random::Random;

pub const KEYS: [&str; 6] = ["a", "b", "c", "ab", "é", "x y"];

pub const WORDS: [&str; 18] = [
    "", "a", "b", "c", "ab", "ba", "abc", "aa", "é", "日本", "A", "1", "a b", "ab1", "\n", "aaaa", "-",
    "true",
];

pub const PATTERNS: [&str; 24] = [
    "^a",
    "b$",
    "^(ab|ba)$",
    "a.*b",
    "^[^a]*$",
    "^(?!ab)",
    "^(?=.*b)a",
    "^$|aa",
    "",
    "^[a-c]{1,3}$",
    "\\d",
    "^\\w+$",
    "^.$",
    "^\\S+\\s\\S+$",
    "[é日]",
    "^(a|b)*c?$",
    "^(?!.*aa)[a-c]*$",
    "^[A-Za-z0-9_-]*$",
    "a|^b",
    "^\\D*$",
    "(?:ab)+",
    "^a{2,}$",
    "^[\\s\\S]{2}$",
    "x y|^c$",
];

/// Formats, with strings that have them and strings that do not.
pub const FORMATS: [(&str, &[&str]); 14] = [
    ("date", &["2024-02-29", "2023-02-29", "2024-1-1", "1999-12-31"]),
    ("time", &["10:00:00Z", "25:00:00Z", "10:00:00+01:00", "10:00:00"]),
    ("date-time", &["2024-02-29T10:00:00Z", "2024-02-30T10:00:00Z", "2024-01-01T10:00:00.5-05:00", "x"]),
    ("duration", &["P1D", "PT5M", "P", "P1Y2M3DT4H5M6S", "1D"]),
    ("uuid", &["123e4567-e89b-12d3-a456-426614174000", "123e4567e89b12d3a456426614174000", "x"]),
    ("ipv4", &["1.2.3.4", "256.1.1.1", "1.2.3", "01.2.3.4"]),
    ("ipv6", &["::1", "1:2:3:4:5:6:7:8", "1::2::3", "fe80::1"]),
    ("email", &["a@b.cd", "a", "@b", "a.b@c.de"]),
    ("hostname", &["a.b", "-a", "example.com", "a_b"]),
    ("uri", &["http://a.b/c", "a b", "urn:x:y", "/c"]),
    ("json-pointer", &["", "/a/b", "a", "/~2"]),
    ("regex", &["^a$", "(", "[a-c]+"]),
    ("colour", &["red", ""]),
    ("uri-reference", &["/c", "a b", "#x"]),
];

pub fn scalar(random: &mut Random) -> Value {
    match random.below(6) {
        0 => Value::Null,
        1 => Value::from(random.chance(50)),
        2 => Value::from(random.below(12) as i64 - 3),
        3 => number(random),
        _ => Value::from(random.word(&WORDS)),
    }
}

/// A number at which something may change: small, halves, round, large.
pub fn number(random: &mut Random) -> Value {
    match random.below(8) {
        0..=2 => Value::from(random.below(14) as i64 - 4),
        3 => {
            random.pick(&[json!(0.5), json!(1.5), json!(-0.5), json!(2.5), json!(0.25), json!(-1.75)]).clone()
        }
        4 => random.pick(&[json!(1.0), json!(2.0), json!(-0.0), json!(0.0)]).clone(),
        5 => random.pick(&[json!(10), json!(99), json!(100), json!(255), json!(1000), json!(-100)]).clone(),
        6 => random.pick(&[json!(0.1), json!(0.01), json!(0.3), json!(99.99), json!(100.5)]).clone(),
        _ => random
            .pick(&[
                json!(2_147_483_647),
                json!(-2_147_483_648_i64),
                json!(4_294_967_296_u64),
                json!(999_999_999_999_i64),
            ])
            .clone(),
    }
}

/// A value of a few levels.
pub fn value(random: &mut Random, depth: usize) -> Value {
    if depth == 0 || random.chance(50) {
        return scalar(random);
    }
    let count = random.below(4);
    if random.chance(40) {
        return (0..count).map(|_| value(random, depth - 1)).collect();
    }
    let members = (0..count).map(|_| (random.word(&KEYS).to_owned(), value(random, depth - 1)));
    Value::Object(members.collect())
}
