//! All stages, one after the other: from a schema to a grammar in one of several ways.

use std::rc::Rc;

use serde_json::Value;

use crate::budget::Budget;
use crate::error::{Reason, SchemaError, Spending};
use crate::formula::TRUE;
use crate::limits::{NormalizeLimits, ResidualMode};
use crate::normalized::Normalized;
use crate::normalizer::Normalizer;
use crate::source::{Index, Place};
use crate::{fast, write};

/// Rewrites `schema` so that llguidance accepts it, with the same meaning.
///
/// # Errors
/// The schema is malformed, allows nothing, or needs more than the limits allow.
pub fn normalize(schema: &Value, limits: &NormalizeLimits) -> Result<Normalized, SchemaError> {
    let budget = Budget::new(limits);
    match fast::scan(schema, limits, &budget) {
        Some(normalized) => Ok(normalized),
        None => attempts(schema, limits, &budget),
    }
}

/// As [`normalize`], but through the formula even if the schema seems to need no rewriting. For
/// schemas that llguidance refuses in spite of that.
///
/// # Errors
/// As [`normalize`].
pub fn rewrite(schema: &Value, limits: &NormalizeLimits) -> Result<Normalized, SchemaError> {
    attempts(schema, limits, &Budget::new(limits))
}

/// As a schema; then with rules of a grammar, where they may be used; then with parts left open, where they
/// may be. All attempts share one budget.
fn attempts(
    schema: &Value,
    limits: &NormalizeLimits,
    budget: &Rc<Budget>,
) -> Result<Normalized, SchemaError> {
    let strict = NormalizeLimits { residual: ResidualMode::Refuse, ..limits.clone() };
    let may_verify = limits.residual == ResidualMode::Verify;
    budget.begin(1);
    let (mut result, Short { is_wide, is_narrowed }) = attempt(schema, &strict, Way::Schema, budget);
    let is_beyond = |result: &Result<_, SchemaError>| result.as_ref().is_err_and(SchemaError::is_beyond);
    if limits.compose && (is_wide || is_narrowed || is_beyond(&result)) {
        budget.begin(2);
        let (composed, short) = attempt(schema, &strict, Way::Grammar, budget);
        // Rules that take too much work say nothing of what can be done without them.
        let too_much = composed.as_ref().is_err_and(|error| error.reason == Reason::BudgetSpent);
        let holds_more = is_wide || !short.is_narrowed || result.is_err();
        if (composed.is_ok() && holds_more) || (result.is_err() && !too_much) {
            result = composed;
        }
    }
    if is_wide && is_beyond(&result) {
        budget.begin(1);
        result = attempt(schema, &strict, Way::Narrowed, budget).0;
    }
    if may_verify && is_beyond(&result) {
        budget.begin(1);
        let way = if is_wide { Way::Narrowed } else { Way::Schema };
        result = attempt(schema, limits, way, budget).0;
        // Rules may hold some of several constraints that a schema leaves open.
        let left = result.as_ref().map_or(0, |normalized| normalized.residual.len());
        if limits.compose && left > 1 {
            budget.begin(2);
            let (composed, short) = attempt(schema, limits, Way::Grammar, budget);
            if !short.is_narrowed && composed.as_ref().is_ok_and(|composed| composed.residual.len() < left) {
                result = composed;
            }
        }
    }
    match result {
        Ok(normalized) => Ok(Normalized { spent: budget.spending(), ..normalized }),
        Err(error) => Err(SchemaError { spent: budget.spending(), ..error }),
    }
}

/// What a schema is rewritten into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Schema,
    /// Rules of a grammar, where no schema says it.
    Grammar,
    /// A schema, of fewer numbers where none says the same.
    Narrowed,
}

/// What a way of rewriting did not hold, although its result is right as far as it goes.
#[derive(Debug, Clone, Copy)]
struct Short {
    /// Numbers.
    is_wide: bool,
    /// Alternatives that were left out.
    is_narrowed: bool,
}

/// Rewrites in one way. Also tells what only another way may hold.
fn attempt(
    schema: &Value,
    limits: &NormalizeLimits,
    way: Way,
    budget: &Rc<Budget>,
) -> (Result<Normalized, SchemaError>, Short) {
    let (index, root) = Index::new(schema, budget);
    let mut normalizer = Normalizer::new(index, limits, budget);
    normalizer.compose = way == Way::Grammar;
    normalizer.narrow = way == Way::Narrowed;
    let result = normalizer.run(&root, schema);
    let result = match budget.check() {
        // Whatever came out was computed from what is not there.
        Err(spent) => Err(match result {
            Err(error) if error.reason == Reason::BudgetSpent || error.reason == Reason::TimedOut => error,
            _ => normalizer.spent(TRUE, spent),
        }),
        Ok(()) => result,
    };
    let is_narrowed = normalizer.left_out.is_some();
    (result, Short { is_wide: normalizer.has_wide_numbers, is_narrowed })
}

impl<'a> Normalizer<'a> {
    /// All stages, one after the other.
    fn run(&mut self, root: &Place<'a>, schema: &Value) -> Result<Normalized, SchemaError> {
        let f = self.read(root)?;
        let document = self.write_root(f)?;
        let options = schema.get("x-guidance");
        let residual = self.residuals(f, schema)?;
        let lark = if self.compose {
            let lark = write::compose::lark(&document, options);
            Some(lark.ok_or_else(|| self.too_large(TRUE))?)
        } else {
            None
        };
        let mut written = document.to_json();
        if let (Some(options), Value::Object(object)) = (options, &mut written) {
            object.insert("x-guidance".to_owned(), options.clone());
        }
        let rules = std::mem::take(&mut self.rules);
        Ok(Normalized {
            schema: written,
            lark,
            rules,
            residual,
            is_direct: false,
            spent: Spending::default(),
        })
    }
}
