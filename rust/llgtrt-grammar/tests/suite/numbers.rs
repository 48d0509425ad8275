//! Numbers: bounds of any size, exclusive ones, multiples and their complements, against exact computation.

use std::fmt::Write;

use crate::support::{Bench, schema};
use crate::values::bench;
use llgtrt_schema::{NormalizeLimits, Reason, normalize};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use serde_json::{Value, json};

/// What the grammar takes of the texts.
fn taken(bench: &Bench, source: &str, texts: &[&str]) -> Vec<bool> {
    let grammar = bench.compile(&schema(source));
    texts.iter().map(|text| bench.takes(&grammar, text)).collect()
}

#[track_caller]
fn check(source: &str, good: &[&str], bad: &[&str]) {
    for (texts, expected) in [(good, true), (bad, false)] {
        for (text, taken) in texts.iter().zip(taken(bench(), source, texts)) {
            assert_eq!(taken, expected, "{text} of {source}");
        }
    }
}

#[test]
fn bounds_of_whole_numbers_are_exact_at_any_size() {
    check(
        r#"{"type":"integer","minimum":-9223372036854775808,"maximum":9223372036854775807}"#,
        &["-9223372036854775808", "9223372036854775807", "0", "-1", "1000000000000000000"],
        &["-9223372036854775809", "9223372036854775808", "10000000000000000000", "1.5"],
    );
    check(
        r#"{"type":"integer","minimum":0,"maximum":18446744073709551615}"#,
        &["0", "18446744073709551615", "9999999999999999999"],
        &["-1", "18446744073709551616", "20000000000000000000"],
    );
    check(
        r#"{"type":"integer","minimum":0,"maximum":9223372036854776000}"#,
        &["9223372036854776000"],
        &["9223372036854776001", "12345678901234567890"],
    );
    check(
        r#"{"type":"integer","minimum":-9223372036854775808}"#,
        &["-9223372036854775808", "123456789012345678901234567890"],
        &["-9223372036854775809"],
    );
    check(
        r#"{"type":"integer","exclusiveMinimum":9007199254740993,"exclusiveMaximum":9007199254740996}"#,
        &["9007199254740994", "9007199254740995"],
        &["9007199254740993", "9007199254740996"],
    );
    check(
        r#"{"type":"integer","minimum":1000000000000000001}"#,
        &["1000000000000000001", "99999999999999999999"],
        &["1000000000000000000", "999999999999999999"],
    );
    check(r#"{"const":9007199254740993}"#, &["9007199254740993"], &["9007199254740992"]);
    check(
        r#"{"enum":[18446744073709551615,1]}"#,
        &["18446744073709551615", "1"],
        &["18446744073709551616", "18446744073709552000"],
    );
}

#[test]
fn large_bounds_hold_inside_of_objects_and_lists() {
    let source = r##"{"type":"object","properties":{"id":{"$ref":"#/$defs/id"},"list":{"type":"array","items":{"anyOf":[{"$ref":"#/$defs/id"},{"type":"null"}]}},"more":{"type":"object","additionalProperties":{"$ref":"#/$defs/id"}}},
        "required":["id"],"additionalProperties":false,"$defs":{"id":{"type":"integer","minimum":-9223372036854775808,"maximum":9223372036854775807}}}"##;
    check(
        source,
        &[r#"{"id":-9223372036854775808}"#, r#"{"id":1,"list":[null,9223372036854775807],"more":{"x":5}}"#],
        &[
            r#"{"id":9223372036854775808}"#,
            r#"{"id":1,"list":[null,9223372036854775808]}"#,
            r#"{"id":1,"more":{"x":-9223372036854775809}}"#,
            r#"{"list":[]}"#,
        ],
    );
}

#[test]
fn limits_of_float_types_are_no_bounds() {
    for limit in ["3.4028234663852886e38", "1.7976931348623157e308", "3.402823466e+38"] {
        let source = format!(r#"{{"type":"number","minimum":-{limit},"maximum":{limit}}}"#);
        check(&source, &["0", "-0.5", "1.25", "123456789012345678", "-99999999.75"], &["1e999"]);
    }
    // A bound of the author's beside it stays.
    check(
        r#"{"type":"number","minimum":0,"maximum":3.4028234663852886e38}"#,
        &["0", "0.5", "7"],
        &["-1", "-0.5"],
    );
}

#[test]
fn exclusive_bounds_that_no_double_holds() {
    check(
        r#"{"type":"integer","exclusiveMaximum":9007199254740995}"#,
        &["9007199254740994", "9007199254740993", "0"],
        &["9007199254740995", "9007199254740996"],
    );
    check(
        r#"{"type":"integer","exclusiveMinimum":-9007199254740993}"#,
        &["-9007199254740992", "0"],
        &["-9007199254740993", "-9007199254740994"],
    );
}

#[test]
fn exclusive_bounds_in_one_unit() {
    check(
        r#"{"type":"number","exclusiveMinimum":0,"maximum":0.5}"#,
        &["0.1", "0.5", "0.001"],
        &["0", "0.0", "0.51"],
    );
    check(
        r#"{"type":"number","exclusiveMinimum":1,"exclusiveMaximum":1.5}"#,
        &["1.1", "1.49"],
        &["1", "1.0", "1.5"],
    );
    check(
        r#"{"type":"number","minimum":-0.1,"exclusiveMaximum":0}"#,
        &["-0.1", "-0.05"],
        &["-0", "0", "-0.0", "-0.11"],
    );
    check(
        r#"{"type":"number","minimum":-1,"maximum":1,"not":{"enum":[0,0.001]}}"#,
        &["0.0005", "1", "-1"],
        &["0", "0.001", "-0"],
    );
}

#[test]
fn bounds_of_more_digits_than_the_number() {
    check(
        r#"{"type":"number","minimum":0,"maximum":0.53}"#,
        &["0.5", "0.53", "0.50", "0.4"],
        &["0.54", "0.6"],
    );
    check(
        r#"{"type":"number","minimum":-2.125,"maximum":0}"#,
        &["-2.1", "-2.12", "-2.125", "-2"],
        &["-2.13", "-2.2"],
    );
}

#[test]
fn multiples_beside_bounds() {
    check(
        r#"{"type":"number","exclusiveMinimum":0,"multipleOf":0.25}"#,
        &["0.25", "0.5", "0.75", "1", "2.5"],
        &["0", "0.3", "-1"],
    );
    check(
        r#"{"type":"number","minimum":-10,"multipleOf":0.25}"#,
        &["-0.5", "-10", "-9.75", "0"],
        &["-10.25", "0.1"],
    );
    check(
        r#"{"type":"number","exclusiveMaximum":0.99,"multipleOf":0.1}"#,
        &["0.9", "0.1", "-0.5", "0"],
        &["1", "0.95"],
    );
    check(
        r#"{"type":"number","minimum":1.1,"maximum":1.2,"multipleOf":0.1}"#,
        &["1.1", "1.2"],
        &["1.3", "1"],
    );
    check(
        r#"{"type":"number","minimum":0,"maximum":0.53,"multipleOf":0.01}"#,
        &["0.5", "0.53", "0.07", "0"],
        &["0.54", "0.535"],
    );
    check(
        r#"{"type":"number","exclusiveMaximum":0.2,"multipleOf":0.01}"#,
        &["0.1", "0.19", "0", "-0.2", "-0.21", "-3"],
        &["0.2", "0.195", "0.21", "1"],
    );
    // Bounds that no double holds.
    check(
        r#"{"type":"number","exclusiveMaximum":-9007199254740993,"multipleOf":0.01}"#,
        &["-9007199254741000", "-9007199254742000"],
        &["-9007199254740993", "-9007199254740992", "-9007199254740991", "0"],
    );
    check(
        r#"{"type":"number","minimum":9007199254740993,"multipleOf":0.01}"#,
        &["9007199254741000", "9007199254742000"],
        &["9007199254740992", "9007199254740991", "0"],
    );
    check(r#"{"type":"number","multipleOf":0.25}"#, &["0.5", "0.25", "3"], &["0.1"]);
}

#[test]
fn fractions_and_whole_numbers_are_complements() {
    check(
        r#"{"type":"number","not":{"type":"integer","minimum":1}}"#,
        &["0", "0.5", "1.5", "255.5", "-3"],
        &["1", "2", "1.0"],
    );
    check(
        r#"{"type":"number","minimum":0,"maximum":2,"not":{"type":"integer"}}"#,
        &["0.5", "1.25"],
        &["0", "1", "2", "2.5"],
    );
}

/// Bounds, steps and values around them: whole ones, with one or two digits, and of very many.
fn number() -> impl Strategy<Value = Value> {
    prop_oneof![
        4 => (-13_i64..13).prop_map(Value::from),
        4 => (-30_i64..30).prop_map(|n| json!(n as f64 / 10.0)),
        3 => (-200_i64..200).prop_map(|n| json!(n as f64 / 100.0)),
        1 => prop::sample::select(vec![
            json!(9_007_199_254_740_993_i64), json!(i64::MIN), json!(i64::MAX), json!(u64::MAX), json!(-9_007_199_254_740_993_i64),
            json!(1_000_000_000_000_000_i64), json!(0.001),
        ]),
    ]
}

fn bounds() -> impl Strategy<Value = Value> {
    let bound = || prop::option::weighted(0.35, number());
    let steps = vec![
        json!(0.01),
        json!(0.1),
        json!(0.25),
        json!(0.5),
        json!(1),
        json!(2),
        json!(3),
        json!(0.2),
        json!(1.5),
        json!(5),
    ];
    let step = prop::option::weighted(0.3, prop::sample::select(steps));
    (any::<bool>(), bound(), bound(), bound(), bound(), step).prop_map(
        |(integer, min, max, above, below, step)| {
            let mut value = json!({ "type": if integer { "integer" } else { "number" } });
            for (name, bound) in [
                ("minimum", min),
                ("maximum", max),
                ("exclusiveMinimum", above),
                ("exclusiveMaximum", below),
                ("multipleOf", step),
            ] {
                if let Some(bound) = bound {
                    value[name] = bound;
                }
            }
            value
        },
    )
}

/// Texts on and around everything that the schema mentions.
fn samples(value: &Value) -> Vec<String> {
    let mut list: Vec<String> = (-13..=13).map(|n: i32| n.to_string()).collect();
    for n in -30..=30 {
        let mut text = String::new();
        let _ = write!(text, "{}", f64::from(n) / 20.0);
        list.push(text);
    }
    for bound in value.as_object().into_iter().flatten().filter_map(|(_, bound)| bound.as_number()) {
        if bound.as_f64().is_some_and(|n| n.fract() != 0.0) || !bound.is_f64() {
            list.push(bound.to_string());
        }
        if let Some(n) = bound.as_i64() {
            list.extend([n.checked_add(1), n.checked_sub(1)].into_iter().flatten().map(|n| n.to_string()));
        } else if let Some(n) = bound.as_f64().filter(|n| n.fract() != 0.0) {
            let hundredths = (n * 100.0).round() as i64;
            list.extend([hundredths + 1, hundredths - 1].map(|n| (n as f64 / 100.0).to_string()));
        }
    }
    list.sort();
    list.dedup();
    list
}

/// A number of at most three digits behind its point, in thousandths.
fn thousandths(text: &str) -> i128 {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    assert!(fraction.len() <= 3 && !text.contains(['e', 'E']), "{text}");
    format!("{whole}{fraction:0<3}").parse().unwrap()
}

/// Whether a number satisfies bounds and a step, by exact computation: validators divide doubles.
fn satisfies(schema: &Value, text: &str) -> bool {
    let number = thousandths(text);
    let bound = |name: &str| schema.get(name).map(|bound| thousandths(&bound.to_string()));
    (schema["type"] == "number" || number % 1000 == 0)
        && bound("minimum").is_none_or(|bound| number >= bound)
        && bound("maximum").is_none_or(|bound| number <= bound)
        && bound("exclusiveMinimum").is_none_or(|bound| number > bound)
        && bound("exclusiveMaximum").is_none_or(|bound| number < bound)
        && bound("multipleOf").is_none_or(|step| number % step == 0)
        && schema.get("not").is_none_or(|not| !satisfies(not, text))
}

/// As many schemas as `LLGTRT_NUMBERS` says.
#[test]
fn random_bounds_and_steps_are_exact() {
    let cases = std::env::var("LLGTRT_NUMBERS").ok().and_then(|text| text.parse().ok()).unwrap_or(400);
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let input = (bounds(), prop::option::weighted(0.2, bounds()));
    runner
        .run(&input, |(mut value, without)| {
            if let Some(without) = without {
                value["not"] = without;
            }
            let source = value.to_string();
            let texts = samples(&value);
            let valid: Vec<bool> = texts.iter().map(|text| satisfies(&value, text)).collect();
            let limits = NormalizeLimits { compose: true, standard: true, ..NormalizeLimits::default() };
            let normalized = match normalize(&value, &limits) {
                Ok(normalized) => normalized,
                Err(error) if error.reason == Reason::AllowsNothing => {
                    for (text, valid) in texts.iter().zip(valid) {
                        prop_assert!(!valid, "{source} allows {text}");
                    }
                    return Ok(());
                }
                Err(error) => return Err(TestCaseError::fail(format!("{source}: {error:?}"))),
            };
            let grammar = match bench().compiler.compile(&schema(&source)) {
                Ok(grammar) => grammar,
                // Found by llguidance, where the schema is simple enough to be handed on as it is.
                Err(error) if error.message.starts_with("the schema allows nothing") => {
                    for (text, valid) in texts.iter().zip(valid) {
                        prop_assert!(!valid, "{source} allows {text}");
                    }
                    return Ok(());
                }
                Err(error) => return Err(TestCaseError::fail(format!("{source}: {error:?}"))),
            };
            prop_assert!(!normalized.rules.iter().any(|used| used.rule == "narrowed"), "{source}");
            prop_assert!(!grammar.is_verified(), "{source}");
            for (text, valid) in texts.iter().zip(valid) {
                let taken = bench().takes(&grammar, text);
                prop_assert!(taken == valid, "{}: {} of {}", taken, text, source);
            }
            Ok(())
        })
        .unwrap();
}
