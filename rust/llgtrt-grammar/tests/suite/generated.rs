//! Schemas that generators of programming languages write, one per line in `data/generated.jsonl`: pydantic
//! 2.14, zod 4, `TypeBox` 0.34, and by their documentation schemars, .NET's and Go's libraries.
//!
//! All are taken, all answers end within their limit, and each is valid for a validator that asserts formats. That
//! pydantic reads them, a test in Python shows.

use crate::fuzz::random::Random;
use crate::fuzz::walk::{End, walk_within};
use crate::support::{Bench, Greedy, WORDS, schema};
use llgtrt_grammar::GrammarConfig;
use serde_json::{Value, json};

const CORPUS: &str = include_str!("../data/generated.jsonl");

/// Tokens that an answer may have.
const MOST: usize = 400;

/// Answers of each schema.
const ANSWERS: u64 = 4;

/// Whether an answer is valid.
type Judge = fn(&str) -> bool;

/// Schemas whose answers the validator cannot judge: why, and what does.
const EXCEPTIONS: &[(&str, &str, Judge)] =
    &[("pydantic int_multiple", "the validator divides whole numbers beyond 64 bits as doubles", |text| {
        text.parse::<u128>().is_ok_and(|number| number % 5 == 0)
    })];

fn corpus() -> impl Iterator<Item = (String, Value)> {
    CORPUS.lines().map(|line| {
        let mut row: Value = serde_json::from_str(line).unwrap();
        let text = |key: &str| row[key].as_str().unwrap().to_owned();
        (format!("{} {}", text("from"), text("name")), row["schema"].take())
    })
}

/// The schema as the validator reads it: `nullable` is `OpenAPI`'s, lists of `items` are of drafts before 2020-12.
fn for_validator(schema: &Value) -> Value {
    match schema {
        Value::Array(list) => list.iter().map(for_validator).collect(),
        Value::Object(members) => {
            let plain: serde_json::Map<String, Value> = members
                .iter()
                .filter(|(key, _)| *key != "nullable")
                .map(|(key, value)| {
                    let is_tuple = key == "items" && value.is_array();
                    (if is_tuple { "prefixItems".to_owned() } else { key.clone() }, for_validator(value))
                })
                .collect();
            match members.get("nullable") {
                Some(Value::Bool(true)) => json!({ "anyOf": [plain, { "type": "null" }] }),
                _ => Value::Object(plain),
            }
        }
        other => other.clone(),
    }
}

#[test]
fn all_are_taken_and_all_answers_end_and_are_valid() {
    // As requests get it: objects closed, numbers of bounded length.
    let bench = Bench::new(Greedy::new(&WORDS, 2), GrammarConfig::default());
    let (mut wrong, mut verified, mut count) = (Vec::new(), 0, 0);
    for (number, (name, value)) in corpus().enumerate() {
        count += 1;
        let validator = jsonschema::options().should_validate_formats(true).build(&for_validator(&value));
        let (Ok(validator), Ok(grammar)) = (validator, bench.compiler.compile(&schema(&value.to_string())))
        else {
            wrong.push(format!("{name} is refused"));
            continue;
        };
        let own = EXCEPTIONS.iter().find(|(known, ..)| *known == name).map(|(.., judge)| judge);
        verified += usize::from(grammar.is_verified());
        for answer in 0..ANSWERS {
            let mut random = Random::new(answer, number as u64);
            match walk_within(&bench, &grammar, &mut random, MOST) {
                End::Complete(text) if own.is_some_and(|judge| judge(&text)) => {}
                End::Complete(text) => match serde_json::from_str(&text) {
                    Ok(instance) if validator.is_valid(&instance) => {}
                    Ok(_) => wrong.push(format!("{name}: invalid: {text}")),
                    Err(error) => wrong.push(format!("{name}: {error}: {text}")),
                },
                other => wrong.push(format!("{name}: {other:?}")),
            }
        }
    }
    assert!(count > 250, "{count}");
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(verified < 12, "{verified} are only verified");
}

#[test]
fn exceptions_are_schemas_of_the_corpus() {
    for (name, ..) in EXCEPTIONS {
        assert!(corpus().any(|(known, _)| known == *name), "{name}");
    }
}
