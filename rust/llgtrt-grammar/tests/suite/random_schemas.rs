//! Random schemas, random walks under their masks: whatever is generated is JSON that the schema allows.

use crate::support::{Bench, schema};
use llgtrt_core::{AdvanceState, SequenceId, TokenId};
use proptest::prelude::*;
use serde_json::{Value, json};

pub(crate) fn arbitrary_schema() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!({"type": "null"})),
        Just(json!({"type": "boolean"})),
        (-20_i64..20, 0_i64..30)
            .prop_map(|(low, more)| { json!({"type": "integer", "minimum": low, "maximum": low + more}) }),
        Just(json!({"type": "number", "minimum": 0, "maximum": 1})),
        (0_usize..3, 0_usize..4)
            .prop_map(|(low, more)| { json!({"type": "string", "minLength": low, "maxLength": low + more}) }),
        Just(json!({"type": "string", "pattern": "^[a-c]{1,3}$"})),
        Just(json!({"enum": ["x", "日本", 3, null, [1, true]]})),
        Just(json!({"const": {"k": ["é", -1.5]}})),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            (inner.clone(), 0_usize..3).prop_map(|(items, more)| {
                json!({"type": "array", "items": items, "minItems": 1, "maxItems": 1 + more})
            }),
            (prop::collection::vec((inner.clone(), any::<bool>()), 0..4)).prop_map(|members| {
                let names = ["a", "name", "日", "q\"t"];
                let required: Vec<&str> = members
                    .iter()
                    .zip(names)
                    .filter(|((_, required), _)| *required)
                    .map(|(_, name)| name)
                    .collect();
                let properties: serde_json::Map<String, Value> = members
                    .iter()
                    .zip(names)
                    .map(|((schema, _), name)| (name.to_owned(), schema.clone()))
                    .collect();
                json!({"type": "object", "properties": properties, "required": required,
                    "additionalProperties": false})
            }),
            prop::collection::vec(inner, 1..3).prop_map(|options| json!({"anyOf": options})),
        ]
    })
}

/// Walks at random, but towards the end once the text is long.
pub(crate) fn walk(bench: &Bench, choices: &[u16], fast_forward: bool) -> Vec<TokenId> {
    try_walk(bench, choices, fast_forward).expect("an end within 4000 tokens")
}

/// As [`walk`]; `None` if there was no end within 4000 tokens.
pub(crate) fn try_walk(bench: &Bench, choices: &[u16], fast_forward: bool) -> Option<Vec<TokenId>> {
    let mut tokens = Vec::new();
    for step in 0..4000 {
        let (forced, state) = bench.advance(1, &tokens, fast_forward);
        tokens.extend_from_slice(&forced);
        match state {
            AdvanceState::Stop | AdvanceState::Limit => return Some(tokens),
            AdvanceState::Retract { .. } => panic!("nothing is verified"),
            AdvanceState::Failed(error) => panic!("{error:?} after {:?}", bench.decode(&tokens)),
            AdvanceState::Sample => {}
        }
        let allowed = bench.fill(1, &tokens).unwrap();
        let closing = [b'"', b']', b'}'].map(TokenId::from);
        let end = allowed.iter().find(|token| closing.contains(token));
        if allowed.contains(&bench.eos()) {
            return Some(tokens);
        }
        let pick = usize::from(choices[step % choices.len()]);
        tokens.push(match end {
            // A bracket inside of a string ends nothing.
            Some(&end) if step > 60 && (end == 0x22 || !allowed.contains(&0x61)) => end,
            _ => allowed[pick % allowed.len()],
        });
    }
    None
}

#[test]
fn random_walks_end_in_valid_json() {
    let bench = Bench::words();
    let mut runner = proptest::test_runner::TestRunner::new_with_rng(
        ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() },
        proptest::test_runner::TestRng::deterministic_rng(proptest::test_runner::RngAlgorithm::ChaCha),
    );
    let input = (arbitrary_schema(), prop::collection::vec(any::<u16>(), 8..64), any::<bool>());
    runner
        .run(&input, |(value, choices, fast_forward)| {
            let grammar = bench.compile(&schema(&value.to_string()));
            bench.pool.register(SequenceId(1), &grammar);
            let tokens = walk(&bench, &choices, fast_forward);
            let text = String::from_utf8(bench.decode(&tokens)).expect("masks keep UTF-8 whole");
            let instance: Value =
                serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text:?} for {value}"));
            let validator = jsonschema::draft202012::new(&value).unwrap();
            prop_assert!(validator.is_valid(&instance), "{instance} for {value}");
            Ok(())
        })
        .unwrap();
}
