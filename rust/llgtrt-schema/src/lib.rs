//! Rewrites a JSON Schema into an equivalent one that llguidance can hold.
//!
//! A schema is read as a boolean formula over primitive constraints ([`formula`]), the formula is
//! brought into alternatives of shapes, type by type ([`dnf`]), and these are written as a schema
//! without `not`, `oneOf`, `if` and the like ([`emit`]). A schema that needs none of this only has its
//! leaves checked ([`fast`]). Everything is bounded: what does not fit is refused with its path, or with
//! [`ResidualMode::Verify`] left open and named ([`residual`]).
//!
//! Pure functions; they recurse within [`NormalizeLimits::max_depth`] and need a big stack.

#![allow(
    clippy::similar_names,
    clippy::match_same_arms,
    clippy::format_push_string,
    reason = "the algebra names sets by letters, and its tables keep one line per case"
)]

mod error;
mod expand;
mod fast;
mod formula;
mod languages;
mod normalizer;
mod read;
mod reference;
mod residual;
mod rules;
mod write;

pub mod path;

use std::time::Duration;

use serde_json::Value;

pub use self::error::{Reason, SchemaError, Spending};
pub use self::read::is_draft_4;
pub use self::reference::reference;
pub use self::residual::{Residual, Segment};
pub use self::rules::{RULES, Rule};

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
pub struct NormalizeLimits {
    /// Nodes of the schema that is written.
    pub max_nodes: usize,
    /// Alternatives of one schema.
    pub max_alternatives: usize,
    /// Elementary steps, about a microsecond each.
    pub max_steps: u64,
    /// Wall time.
    pub max_time: Duration,
    /// Nesting of schemas, references included.
    pub max_depth: usize,
    /// What to do with a constraint that no grammar can hold.
    pub residual: ResidualMode,
    /// May give rules of a grammar ([`Normalized::lark`]) where no schema says it.
    pub compose: bool,
}

impl Default for NormalizeLimits {
    fn default() -> Self {
        Self {
            max_nodes: 60_000,
            max_alternatives: 400,
            max_steps: 2_000_000,
            max_time: Duration::from_secs(2),
            max_depth: 300,
            residual: ResidualMode::Refuse,
            compose: false,
        }
    }
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
}

/// Rewrites `schema` so that llguidance accepts it, with the same meaning.
///
/// # Errors
/// The schema is malformed, allows nothing, or needs more than the limits allow.
pub fn normalize(schema: &Value, limits: &NormalizeLimits) -> Result<Normalized, SchemaError> {
    match fast::scan(schema) {
        Some(normalized) => Ok(normalized),
        None => rewrite(schema, limits),
    }
}

/// As [`normalize`], but through the formula even if the schema seems to need no rewriting. For
/// schemas that llguidance refuses in spite of that.
///
/// # Errors
/// As [`normalize`].
pub fn rewrite(schema: &Value, limits: &NormalizeLimits) -> Result<Normalized, SchemaError> {
    let strict = NormalizeLimits { residual: ResidualMode::Refuse, ..limits.clone() };
    let is_beyond = |result: &Result<_, SchemaError>| result.as_ref().is_err_and(SchemaError::is_beyond);
    let (mut result, is_wide) = attempt(schema, &strict, Way::Schema);
    if limits.compose && (is_wide || is_beyond(&result)) {
        let (composed, _) = attempt(schema, &strict, Way::Grammar);
        if composed.is_ok() || result.is_err() {
            result = composed;
        }
    }
    if is_wide && is_beyond(&result) {
        result = attempt(schema, &strict, Way::Narrowed).0;
    }
    if limits.residual == ResidualMode::Verify && is_beyond(&result) {
        let way = if is_wide { Way::Narrowed } else { Way::Schema };
        result = attempt(schema, limits, way).0;
    }
    result
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

/// Rewrites in one way. Also tells whether there are numbers that only another way holds.
fn attempt(schema: &Value, limits: &NormalizeLimits, way: Way) -> (Result<Normalized, SchemaError>, bool) {
    let (index, root) = Index::new(schema);
    let mut normalizer = Normalizer::new(index, limits);
    normalizer.compose = way == Way::Grammar;
    normalizer.narrow = way == Way::Narrowed;
    let result = run(&mut normalizer, &root, schema);
    (result, normalizer.has_wide_numbers)
}

fn run<'a>(
    normalizer: &mut Normalizer<'a>,
    root: &Place<'a>,
    schema: &'a Value,
) -> Result<Normalized, SchemaError> {
    let f = normalizer.read(root)?;
    let document = normalizer.write_root(f)?;
    let options = schema.get("x-guidance");
    let residual = normalizer.residuals(f, schema);
    let lark = if normalizer.compose {
        Some(write::compose::lark(&document, options).ok_or_else(|| too_long(normalizer))?)
    } else {
        None
    };
    let mut written = document.to_json();
    if let (Some(options), Value::Object(object)) = (options, &mut written) {
        object.insert("x-guidance".to_owned(), options.clone());
    }
    Ok(Normalized { schema: written, lark, rules: std::mem::take(&mut normalizer.rules), residual })
}

fn too_long(normalizer: &Normalizer) -> SchemaError {
    normalizer.too_large(formula::TRUE)
}
