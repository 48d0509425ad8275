//! Whether a value satisfies a schema, within steps that are counted: the same on any machine.
//!
//! Most schemas are evaluated by `llgtrt-schema` itself, which shares the work of equal parts and spends from a
//! budget. What it cannot say (a back-reference in a `pattern`, very many combinations under `unevaluated*`)
//! goes to a validator, if the schema is so small with all its references written out that the work is bounded
//! by the sizes of schema and value. Else there is no judge. Runs where the tokens of a sequence are taken, on a
//! big stack.

use std::time::Duration;

use jsonschema::{PatternOptions, Validator};
use llgtrt_schema::NormalizeLimits;
use serde_json::Value;

use super::size::{Expanded, value_bytes, value_nodes};

/// Steps of one check, about 50 ns each.
const CHECK_STEPS: u64 = 2_000_000;

/// Steps of all checks that an engine waits for together.
const TURN_STEPS: u64 = 2 * CHECK_STEPS;

/// Steps of the checks within one search for the end of an answer.
const SEARCH_STEPS: u64 = CHECK_STEPS / 4;

/// Steps to read a schema, which every check does anew.
pub(super) const READ_STEPS: u64 = CHECK_STEPS / 2;

/// Steps to build a validator: for each value of its schema, for each pattern.
const BUILD_STEPS: u64 = 20;
const BUILD_PATTERN_STEPS: u64 = 1000;

/// Nodes of a schema for a validator, with all references written out.
const MAX_EXPANDED: u64 = 5000;

/// Steps of a validator's regular expression engine where a pattern looks around or back.
const BACKTRACK_LIMIT: usize = 10_000;

/// What one such pattern may cost on one string, in steps.
const PATTERN_STEPS: u64 = 20_000;

/// Memory of a validator, in bytes: alone, for each value of its schema, for each pattern that looks around or back.
const VALIDATOR_BYTES: usize = 4 << 10;
const NODE_BYTES: usize = 500;
const PATTERN_BYTES: usize = 10 << 10;

/// What is left of the steps that several checks share.
#[derive(Debug, Default)]
pub(crate) struct Allowance {
    left: u64,
}

impl Allowance {
    /// For all checks between two forward passes.
    pub(crate) fn turn() -> Self {
        Self { left: TURN_STEPS }
    }

    /// For one check, of which nobody takes a part: it has an answer, or never will.
    pub(crate) fn check() -> Self {
        Self { left: CHECK_STEPS }
    }

    /// Takes the steps for a search out of it.
    pub(crate) fn search(&mut self) -> Self {
        let left = SEARCH_STEPS.min(self.left);
        self.left -= left;
        Self { left }
    }

    /// Steps, of about 50 ns.
    pub(crate) fn left(&self) -> u64 {
        self.left
    }

    /// Adds what another one has left.
    pub(crate) fn add(&mut self, rest: &Self) {
        self.left += rest.left;
    }

    /// Takes the steps of one check out of it.
    pub(crate) fn reserve(&mut self) -> Self {
        let left = CHECK_STEPS.min(self.left);
        self.left -= left;
        Self { left }
    }
}

/// What a judge says of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ruling {
    Valid,
    Invalid,
    /// Not with what was left; with the steps of a whole check it may say.
    PutOff,
    /// Not with the steps of a whole check either.
    TooCostly,
}

/// A schema that values are held against. Immutable; shared by the sequences of a grammar.
#[derive(Debug)]
pub(super) enum Judge {
    Schema(Value),
    Validator { validator: Box<Validator>, size: Expanded },
}

impl Judge {
    /// The judge for a schema; `None` if there is none with a bound, or if it cannot be made with `steps`, of which
    /// what it took is taken.
    pub(super) fn new(schema: &Value, steps: &mut u64) -> Option<Self> {
        let (can, spent) = llgtrt_schema::can_evaluate(schema, &limits(READ_STEPS.min(*steps)));
        *steps = steps.saturating_sub(spent.steps);
        if can.is_ok() {
            return Some(Self::Schema(schema.clone()));
        }
        let size = Expanded::of(schema, MAX_EXPANDED)?;
        *steps = steps.checked_sub(size.nodes * BUILD_STEPS + size.patterns * BUILD_PATTERN_STEPS)?;
        let validator = jsonschema::options()
            .should_validate_formats(true)
            .with_pattern_options(PatternOptions::fancy_regex().backtrack_limit(BACKTRACK_LIMIT))
            .build(schema)
            .ok()?;
        Some(Self::Validator { validator: Box::new(validator), size })
    }

    /// Memory, roughly.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Schema(schema) => value_bytes(schema),
            Self::Validator { size, .. } => {
                VALIDATOR_BYTES + size.nodes as usize * NODE_BYTES + size.patterns as usize * PATTERN_BYTES
            }
        }
    }

    /// Whether the JSON text satisfies the schema. What is no JSON does not.
    pub(super) fn judge(&self, text: &[u8], allowance: &mut Allowance) -> Ruling {
        match serde_json::from_slice(text) {
            Ok(value) => self.judge_value(&value, allowance),
            Err(_) => Ruling::Invalid,
        }
    }

    pub(super) fn judge_value(&self, value: &Value, allowance: &mut Allowance) -> Ruling {
        let steps = CHECK_STEPS.min(allowance.left);
        let (accepted, spent) = match self {
            Self::Schema(schema) => match llgtrt_schema::evaluate(schema, value, &limits(steps)) {
                Ok(found) => (Some(found.accepted), found.spent.steps),
                Err(_) => (None, steps),
            },
            Self::Validator { validator, size } => {
                let cost = validation_steps(*size, value);
                ((cost <= steps).then(|| validator.is_valid(value)), cost.min(steps))
            }
        };
        allowance.left = allowance.left.saturating_sub(spent);
        match accepted {
            Some(true) => Ruling::Valid,
            Some(false) => Ruling::Invalid,
            None if steps < CHECK_STEPS => Ruling::PutOff,
            None => Ruling::TooCostly,
        }
    }
}

fn limits(steps: u64) -> NormalizeLimits {
    NormalizeLimits {
        max_steps: steps,

        // The steps are the bound, so that an answer does not depend on the load.
        max_time: Duration::from_secs(3600),
        ..NormalizeLimits::default()
    }
}

/// An upper bound of a validation: every part of the schema on every part of the value.
fn validation_steps(size: Expanded, value: &Value) -> u64 {
    let (nodes, strings, bytes) = value_nodes(value);
    let structure = size.nodes.saturating_mul(nodes + bytes / 64);
    // Lists of different items are compared item with item.
    let pairs = nodes.saturating_mul(nodes) / 16;
    structure.saturating_add(pairs).saturating_add(size.patterns * strings * PATTERN_STEPS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn whole(schema: &Value) -> Option<Judge> {
        Judge::new(schema, &mut 2_000_000)
    }

    fn judge(schema: &Value, text: &str) -> Ruling {
        whole(schema).unwrap().judge(text.as_bytes(), &mut Allowance::check())
    }

    /// Each level asks twice about the next.
    fn doubling(levels: usize, end: &Value) -> Value {
        let mut schema = json!({"$ref": "#/$defs/0", "type": ["array", "integer"]});
        for level in 0..levels {
            let next = json!({"$ref": format!("#/$defs/{}", level + 1)});
            schema["$defs"][level.to_string()] = json!({"oneOf": [next, {"allOf": [next, {"maximum": -1}]}]});
        }
        schema["$defs"][levels.to_string()] = end.clone();
        schema
    }

    #[test]
    fn values_are_judged() {
        let unique = json!({"uniqueItems": true});
        assert_eq!(judge(&unique, "[1, 2]"), Ruling::Valid);
        assert_eq!(judge(&unique, "[1, 1.0]"), Ruling::Invalid);
        assert_eq!(judge(&unique, "[1,"), Ruling::Invalid);
        let repeated = json!({"type": "string", "pattern": r"^(.)\1$"});
        assert!(matches!(whole(&repeated), Some(Judge::Validator { .. })));
        assert_eq!(judge(&repeated, "\"xx\""), Ruling::Valid);
        assert_eq!(judge(&repeated, "\"xy\""), Ruling::Invalid);
    }

    #[test]
    fn work_that_doubles_with_every_level_is_shared() {
        let schema = doubling(45, &json!({"uniqueItems": true, "minimum": 0}));
        assert_eq!(judge(&schema, "1"), Ruling::Valid);
        assert_eq!(judge(&schema, "-1"), Ruling::Invalid);
    }

    #[test]
    fn what_would_double_in_a_validator_has_no_judge() {
        assert!(whole(&doubling(45, &json!({"pattern": r"^(.)\1$"}))).is_none());
        assert!(whole(&doubling(4, &json!({"pattern": r"^(.)\1$"}))).is_some());
        let recursive = json!({"items": {"$ref": "#"}, "pattern": r"^(.)\1$"});
        assert!(whole(&recursive).is_none());
    }

    #[test]
    fn a_check_that_is_put_off_is_answered_when_it_has_all_its_steps() {
        let judge = whole(&json!({"items": {"type": "integer"}})).unwrap();
        let text = format!("[{}1]", "1,".repeat(1000));
        let mut little = Allowance { left: 500 };
        assert_eq!(judge.judge(text.as_bytes(), &mut little), Ruling::PutOff);
        assert_eq!(little.left, 0);
        let mut turn = Allowance::turn();
        assert_eq!(judge.judge(text.as_bytes(), &mut turn.reserve()), Ruling::Valid);
        assert_eq!(turn.left, TURN_STEPS - CHECK_STEPS);
        let validator = whole(&json!({"items": {"pattern": r"(.)\1"}})).unwrap();
        let text = format!("[{}\"\"]", "\"ab\",".repeat(1000));
        assert_eq!(validator.judge(text.as_bytes(), &mut Allowance::check()), Ruling::TooCostly);
    }
}
