//! Instances held against a schema as it is read, without a grammar.
//!
//! The same reading and the same languages as in a grammar, so both mean the same by a schema. Values are
//! evaluated with a memory: no part of the schema is looked at twice for one value, however many ways lead there.

mod formula;

use std::rc::Rc;

use serde_json::Value;

use crate::budget::Budget;
use crate::error::{SchemaError, Spending};
use crate::formula::{DefId, TRUE};
use crate::limits::{NormalizeLimits, ResidualMode};
use crate::normalizer::Normalizer;
use crate::source::Index;

/// What an evaluation found, and what it took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Evaluation {
    /// Whether the value satisfies the schema.
    pub accepted: bool,
    /// Steps and bytes.
    pub spent: Spending,
}

/// Whether a value satisfies the schema. Numbers are compared, and formats asserted, as in its grammar; the order
/// of keys does not matter.
///
/// Recurses on schema and value within [`NormalizeLimits::max_depth`]: needs a big stack.
///
/// # Errors
/// The schema is malformed, or reading it and evaluating the value take more than the limits
/// ([`Reason::BudgetSpent`](crate::Reason::BudgetSpent)), or a part of it cannot be told
/// ([`Reason::Unsupported`](crate::Reason::Unsupported)).
pub fn evaluate(schema: &Value, value: &Value, limits: &NormalizeLimits) -> Result<Evaluation, SchemaError> {
    let limits = as_it_stands(limits);
    let budget = Budget::new(&limits);
    let (index, root) = Index::new(schema, &budget);
    let mut normalizer = Normalizer::new(index, &limits, &budget);
    let f = normalizer.read(&root)?;
    normalizer.memo = Some(std::collections::HashMap::new());
    let accepted = normalizer.eval(f, value)?;
    // What was told after the budget ran out was told of something else.
    budget.check().map_err(|spent| normalizer.spent(f, spent))?;
    Ok(Evaluation { accepted, spent: budget.spending() })
}

/// Whether [`evaluate`] can tell of every part of the schema, definitions included, and has steps left for values; and
/// what it took to say so.
///
/// # Errors
/// It cannot, and why; or reading the schema takes more than the limits.
pub fn can_evaluate(schema: &Value, limits: &NormalizeLimits) -> (Result<(), SchemaError>, Spending) {
    let limits = as_it_stands(limits);
    let budget = Budget::new(&limits);
    (read_whole(schema, &limits, &budget), budget.spending())
}

fn read_whole(schema: &Value, limits: &NormalizeLimits, budget: &Rc<Budget>) -> Result<(), SchemaError> {
    let (index, root) = Index::new(schema, budget);
    let mut normalizer = Normalizer::new(index, limits, budget);
    normalizer.read(&root)?;
    let mut read = 0;
    while read < normalizer.defs.len() {
        normalizer.def_body(DefId::new(read))?;
        read += 1;
    }
    budget.check().map_err(|spent| normalizer.spent(TRUE, spent))
}

/// The schema to the letter: what a grammar leaves out beyond it is none of its own.
fn as_it_stands(limits: &NormalizeLimits) -> NormalizeLimits {
    NormalizeLimits { residual: ResidualMode::Refuse, standard: true, strict: false, ..limits.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Reason;
    use serde_json::json;

    fn accepts(schema: &Value, value: &Value) -> Result<bool, Reason> {
        let (schema, value) = (schema.clone(), value.clone());
        evaluate(&schema, &value, &NormalizeLimits::default())
            .map(|found| found.accepted)
            .map_err(|error| error.reason)
    }

    #[test]
    fn values_are_told_apart() {
        let person = json!({"type": "object", "required": ["name"], "additionalProperties": false,
            "properties": {"name": {"type": "string", "format": "email"}, "tags": {"uniqueItems": true}}});
        assert_eq!(accepts(&person, &json!({"tags": [1, 2], "name": "a@example.com"})), Ok(true));
        assert_eq!(accepts(&person, &json!({"name": "a@example.com", "tags": [1, 1.0]})), Ok(false));
        assert_eq!(accepts(&person, &json!({"name": "a"})), Ok(false));
        assert_eq!(accepts(&person, &json!({"name": "a@example.com", "x": 1})), Ok(false));
        let tree =
            json!({"$ref": "#/$defs/t", "$defs": {"t": {"items": {"$ref": "#/$defs/t"}, "maxItems": 1}}});
        assert_eq!(accepts(&tree, &json!([[[]]])), Ok(true));
        assert_eq!(accepts(&tree, &json!([[[1, 2]]])), Ok(false));
    }

    #[test]
    fn no_part_is_looked_at_twice_for_one_value() {
        // Every level asks about the next in two ways that do not look alike.
        let mut defs = serde_json::Map::new();
        for level in 0..60 {
            let next = json!({"$ref": format!("#/$defs/d{}", level + 1)});
            let both =
                json!({"oneOf": [{"allOf": [next, {"minimum": 5}]}, {"allOf": [next, {"maximum": 4}]}]});
            defs.insert(format!("d{level}"), both);
        }
        defs.insert("d60".to_owned(), json!({"type": "integer"}));
        let schema = json!({"$ref": "#/$defs/d0", "$defs": defs});
        assert_eq!(accepts(&schema, &json!(5)), Ok(true));
        assert_eq!(accepts(&schema, &json!("5")), Ok(false));
    }

    #[test]
    fn names_are_evaluated_one_by_one() {
        let schema = json!({"propertyNames": {"anyOf": [{"enum": ["abc", "abd"]}, {"enum": ["x"]}]}});
        assert_eq!(accepts(&schema, &json!({"abc": 1, "abd": 2, "x": 3})), Ok(true));
        assert_eq!(accepts(&schema, &json!({"abc": 1, "abd": 2, "y": 3})), Ok(false));
        assert_eq!(accepts(&schema, &json!({"abc": 1, "abe": 2, "x": 3})), Ok(false));
    }

    #[test]
    fn the_budget_holds() {
        let limits = NormalizeLimits { max_steps: 2000, ..NormalizeLimits::default() };
        let long = Value::Array(vec![json!(1); 5000]);
        let error = evaluate(&json!({"items": {"type": "integer"}}), &long, &limits).unwrap_err();
        assert_eq!(error.reason, Reason::BudgetSpent);
        let unknown = json!({"$defs": {"a": {"pattern": "(.)\\1"}}, "items": {"$ref": "#/$defs/a"}});
        assert!(can_evaluate(&unknown, &NormalizeLimits::default()).0.is_err());
        let (can, spent) = can_evaluate(&json!({"items": {"type": "integer"}}), &limits);
        assert!(can.is_ok() && (1..2000).contains(&spent.steps), "{spent:?}");
    }
}
