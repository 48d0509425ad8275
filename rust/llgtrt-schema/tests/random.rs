//! Schemas that nobody would write: parts of the hostile ones put together at random, and values of the wrong kind. The
//! normaliser answers within its budget of steps and bytes, its live memory stays below the ceiling, and it does not
//! panic.
//!
//! `LLGTRT_RANDOM=100000 cargo test --release -p llgtrt-schema --test random` tries as many.

mod corpus;
mod counting;

use llgtrt_schema::{NormalizeLimits, Reason, ResidualMode, normalize, rewrite};
use serde_json::{Value, json};

/// Choices out of a seed, by the mixer of `SplitMix64`.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % bound as u64) as usize
    }
}

/// A part of the value; long lists are cut, so that many parts fit together.
fn part(value: &Value, random: &mut Random) -> Value {
    let children: Vec<&Value> = match value {
        Value::Array(items) => items.iter().collect(),
        Value::Object(members) => members.values().collect(),
        _ => return value.clone(),
    };
    if children.is_empty() || random.below(3) == 0 {
        return cut(value, 6);
    }
    part(children[random.below(children.len())], random)
}

fn cut(value: &Value, most: usize) -> Value {
    match value {
        Value::Array(items) => items.iter().take(most).map(|item| cut(item, most)).collect(),
        Value::Object(members) => {
            members.iter().take(most).map(|(key, value)| (key.clone(), cut(value, most))).collect()
        }
        other => other.clone(),
    }
}

/// Puts another value somewhere into this one.
fn graft(value: &mut Value, other: Value, random: &mut Random) {
    let count = value.as_array().map_or(0, Vec::len) + value.as_object().map_or(0, serde_json::Map::len);
    if count == 0 || random.below(4) == 0 {
        *value = other;
        return;
    }
    let at = random.below(count);
    let child = match value {
        Value::Array(items) => items.get_mut(at),
        Value::Object(members) => members.values_mut().nth(at),
        _ => None,
    };
    if let Some(child) = child {
        graft(child, other, random);
    }
}

fn nodes(value: &Value) -> usize {
    match value {
        Value::Array(list) => 1 + list.iter().map(nodes).sum::<usize>(),
        Value::Object(members) => 1 + members.values().map(nodes).sum::<usize>(),
        _ => 1,
    }
}

fn judge(schema: &Value, residual: ResidualMode) {
    let limits =
        NormalizeLimits { residual, compose: true, max_steps: 300_000, ..NormalizeLimits::default() };
    for normalize in [normalize, rewrite] {
        let (answer, live) = counting::measured(|| normalize(schema, &limits));
        assert!(live <= counting::MAX_LIVE, "{live} bytes live: {schema}");
        let spent = match answer {
            Ok(normalized) => {
                assert!(nodes(&normalized.schema) <= 2 * limits.max_nodes + nodes(schema), "{schema}");
                normalized.spent
            }
            Err(error) => {
                assert_ne!(error.reason, Reason::TimedOut, "{schema}");
                error.spent
            }
        };
        assert!(spent.steps <= limits.max_steps && spent.bytes <= limits.max_bytes, "{spent:?}: {schema}");
    }
}

#[test]
fn any_json_is_answered_within_the_budget() {
    let cases = std::env::var("LLGTRT_RANDOM").ok().and_then(|text| text.parse().ok()).unwrap_or(60);
    counting::on_big_stack(|| {
        let corpus = corpus::hostile();
        let odd =
            [json!(null), json!(-1), json!(1e300), json!("("), json!([]), json!({"$ref": "#"}), json!(false)];
        let mut random = Random(7);
        for _ in 0..cases {
            let mut schema = part(&corpus[random.below(corpus.len())].1, &mut random);
            for _ in 0..=random.below(4) {
                let other = match random.below(4) {
                    0 => odd[random.below(odd.len())].clone(),
                    _ => part(&corpus[random.below(corpus.len())].1, &mut random),
                };
                graft(&mut schema, other, &mut random);
            }
            judge(&schema, ResidualMode::Refuse);
            judge(&schema, ResidualMode::Verify);
        }
    });
}
