//! Makes a case smaller as long as the two still judge it differently.

use serde_json::{Value, json};

use super::trial::{Case, compile, takes, validator};
use crate::support::Bench;

/// Cases tried in all.
const MAX_TRIES: usize = 600;

/// A smaller case that is wrong in the same way: accepted and invalid if `accepted`, rejected and valid otherwise.
pub fn shrink(bench: &Bench, case: &Case, accepted: bool) -> Case {
    let mut best = case.clone();
    let mut tries = 0;
    'again: loop {
        let schemas = smaller(&best.schema).into_iter().map(|schema| Case { schema, ..best.clone() });
        let instances = smaller(&best.instance).into_iter().map(|instance| Case { instance, ..best.clone() });
        for next in schemas.chain(instances) {
            tries += 1;
            if tries > MAX_TRIES {
                return best;
            }
            if wrong(bench, &next, accepted) {
                best = next;
                continue 'again;
            }
        }
        return best;
    }
}

/// Whether the two judge it differently.
pub fn wrong(bench: &Bench, case: &Case, accepted: bool) -> bool {
    let Some(validator) = validator(&case.schema) else { return false };
    if validator.is_valid(&case.instance) == accepted {
        return false;
    }
    let Ok(grammar) = compile(bench, &case.schema, case.mode) else { return false };
    takes(&grammar, &case.schema, &case.instance).0 == accepted
}

/// The value with one part left out or made trivial.
fn smaller(value: &Value) -> Vec<Value> {
    let mut out = Vec::new();
    match value {
        Value::Object(members) => {
            for (key, member) in members {
                let mut without = members.clone();
                without.shift_remove(key);
                out.push(Value::Object(without));
                for part in smaller(member) {
                    let mut with = members.clone();
                    with.insert(key.clone(), part);
                    out.push(Value::Object(with));
                }
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                let mut without = items.clone();
                without.remove(index);
                out.push(Value::Array(without));
                for part in smaller(item) {
                    let mut with = items.clone();
                    with[index] = part;
                    out.push(Value::Array(with));
                }
            }
        }
        _ => return out,
    }
    out.push(json!({}));
    out.retain(|other| other != value);
    out
}
