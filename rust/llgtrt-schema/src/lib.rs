//! Rewrites a JSON Schema into an equivalent one that llguidance can hold.
//!
//! A schema is read as a boolean formula over primitive constraints ([`formula`]), the formula is
//! brought into alternatives of shapes, type by type ([`expand`]), and these are written as a tree
//! without `not`, `oneOf`, `if` and the like ([`write`]), which becomes a schema or rules of a grammar.
//! A schema that needs none of this only has its leaves checked ([`fast`]). Everything is bounded: what
//! does not fit is refused with its path, or with [`ResidualMode::Verify`] left open and named
//! ([`residual`]). [`explain`](crate::explain()) shows all stages of a schema; the README walks through one.
//!
//! Pure functions; they recurse within [`NormalizeLimits::max_depth`] and need a big stack.

#![allow(
    clippy::similar_names,
    clippy::match_same_arms,
    clippy::format_push_string,
    reason = "the algebra names sets by letters, and its tables keep one line per case"
)]

mod budget;
mod error;
mod evaluate;
mod expand;
mod explain;
mod fast;
mod formula;
mod languages;
mod normalizer;
mod read;
mod reference;
mod residual;
mod rules;
mod write;

pub mod keyword;
pub mod path;
pub mod width;

use std::rc::Rc;
use std::time::Duration;

use serde_json::Value;

pub use self::error::{Reason, SchemaError, Spending};
pub use self::evaluate::{Evaluation, can_evaluate, evaluate};
pub use self::explain::explain;
pub use self::read::is_draft_4;
pub use self::reference::reference;
pub use self::residual::{Residual, Segment};
pub use self::rules::{RULES, Rule};

use self::budget::Budget;
use self::normalizer::Normalizer;
use self::read::refs::{Index, Place};

/// What to do with a constraint that no grammar can hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResidualMode {
    /// Refuse the schema.
    Refuse,
    /// Leave it out of the grammar and name it in [`Normalized::residual`]. A schema that is not refused
    /// otherwise gives the same grammar in both modes, and no residual.
    Verify,
}

/// Bounds of a normalisation.
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "switches that do not depend on each other")]
pub struct NormalizeLimits {
    /// Nodes of the schema that is written.
    pub max_nodes: usize,
    /// Alternatives of one schema.
    pub max_alternatives: usize,
    /// Elementary steps, about 50 ns each.
    pub max_steps: u64,
    /// Bytes that may be held until the end. The peak of what is allocated is at most about twice that.
    pub max_bytes: u64,
    /// Wall time, as a last resort: what it ends is [`Reason::TimedOut`], which says nothing about the schema.
    /// All other limits give the same answer on any machine.
    pub max_time: Duration,
    /// Levels of recursion over schemas, references included.
    pub max_depth: usize,
    /// What to do with a constraint that no grammar can hold.
    pub residual: ResidualMode,
    /// May give rules of a grammar ([`Normalized::lark`]) where no schema says it.
    pub compose: bool,
    /// Keeps to the letter of the standard: an object that names `properties` and says nothing of others
    /// takes any others, and numbers have any number of digits. Without, the rules `closed` and `digits` apply.
    pub standard: bool,
    /// The rule `closed` applies, whatever `standard` says.
    pub strict: bool,
    /// The engine is to intersect several patterns of one string, and patterns with lengths, as it goes. Without,
    /// they become one pattern each, where that is short enough.
    pub intersects: bool,
}

impl NormalizeLimits {
    /// Whether objects that name properties and say nothing of others take no others.
    pub(crate) fn closes(&self) -> bool {
        self.strict || !self.standard
    }

    /// Whether numbers are kept short where the schema does not bound them, by whoever generates.
    pub(crate) fn bounds_digits(&self) -> bool {
        !self.standard
    }
}

impl Default for NormalizeLimits {
    fn default() -> Self {
        Self {
            max_nodes: 60_000,
            max_alternatives: 400,
            max_steps: 12_000_000,
            max_bytes: 96 << 20,
            max_time: Duration::from_secs(60),
            max_depth: 2000,
            residual: ResidualMode::Refuse,
            compose: false,
            standard: false,
            strict: false,
            intersects: true,
        }
    }
}

/// Short texts that complete strings: wherever a string that one of the patterns allows may have got, one of them
/// leads to its end. For each pattern a whole string, then the others, shortest first; nothing for a pattern that cannot be read, or whose automaton
/// is beyond the limits. `whole` tells that a pattern speaks of the whole string, as if between `^` and `$`.
pub fn completions<'a>(
    patterns: impl IntoIterator<Item = (&'a str, bool)>,
    limits: &NormalizeLimits,
) -> Vec<String> {
    let mut languages = languages::Languages::new(&Budget::new(limits));
    let mut texts = Vec::new();
    for (pattern, whole) in patterns {
        let anchored = if whole { format!("^(?:{pattern})$") } else { pattern.to_owned() };
        let known = languages::formats::ends_of_pattern(&anchored);
        if !known.is_empty() {
            texts.extend(known.iter().map(|&text| text.to_owned()));
        } else if let Ok(pattern) = languages.pattern(&anchored) {
            texts.extend(languages.completions(pattern.language));
        }
    }
    texts
}

/// The same for a `format` that no pattern takes the place of. Empty for most.
pub fn format_completions(name: &str) -> &'static [&'static str] {
    languages::formats::ends(name)
}

/// A rule that was used, and where first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleUse {
    /// Name of the rule in [`RULES`].
    pub rule: &'static str,
    /// Path of the schema it was used on.
    pub path: String,
}

/// A schema in llguidance's subset.
#[derive(Debug, Clone)]
pub struct Normalized {
    /// Accepts the same values as the source, except for what `residual` names. With `lark`, the part of
    /// it that a schema can say.
    pub schema: Value,
    /// A grammar of the same values in llguidance's dialect of Lark, to be compiled instead of the schema.
    /// Only where [`NormalizeLimits::compose`] allows it and no schema says it.
    pub lark: Option<String>,
    /// The rules that were used.
    pub rules: Vec<RuleUse>,
    /// What has to be checked after the fact.
    pub residual: Vec<Residual>,
    /// Only leaves were looked at: [`rewrite`] may hold what an engine refuses of it.
    pub is_direct: bool,
    /// Steps and bytes that it took.
    pub spent: Spending,
}

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
            _ => normalizer.spent(formula::TRUE, spent),
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
            Some(lark.ok_or_else(|| self.too_large(formula::TRUE))?)
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
