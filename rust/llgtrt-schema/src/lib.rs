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

pub mod path;

use std::time::Duration;

use serde_json::Value;

pub use self::error::{Reason, SchemaError, Spending};
pub use self::evaluate::{Evaluation, can_evaluate, evaluate};
pub use self::explain::explain;
pub use self::read::is_draft_4;
pub use self::reference::reference;
pub use self::residual::{Residual, Segment};
pub use self::rules::{RULES, Rule};

use self::normalizer::Normalizer;
use self::read::refs::Index;

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
    /// Keeps to the letter of the standard: an object that names `properties` and says nothing of others
    /// takes any others. Without, the rule `closed` applies.
    pub standard: bool,
    /// The rule `closed` applies, whatever `standard` says.
    pub strict: bool,
}

impl NormalizeLimits {
    /// Whether objects that name properties and say nothing of others take no others.
    pub(crate) fn closes(&self) -> bool {
        self.strict || !self.standard
    }
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
            standard: false,
            strict: false,
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
    match fast::scan(schema, limits) {
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
    let mut result = attempt(schema, &strict, false);
    if limits.compose && result.as_ref().is_err_and(SchemaError::is_beyond) {
        result = attempt(schema, &strict, true);
    }
    match result {
        Err(error) if error.is_beyond() && limits.residual == ResidualMode::Verify => {
            attempt(schema, limits, false)
        }
        result => result,
    }
}

fn attempt(schema: &Value, limits: &NormalizeLimits, compose: bool) -> Result<Normalized, SchemaError> {
    let (index, root) = Index::new(schema);
    let mut normalizer = Normalizer::new(index, limits);
    normalizer.compose = compose;
    let f = normalizer.read(&root)?;
    let document = normalizer.write_root(f)?;
    let options = schema.get("x-guidance");
    let residual = normalizer.residuals(f, schema);
    let lark = if compose {
        Some(write::compose::lark(&document, options).ok_or_else(|| too_long(&normalizer))?)
    } else {
        None
    };
    let mut written = document.to_json();
    if let (Some(options), Value::Object(object)) = (options, &mut written) {
        object.insert("x-guidance".to_owned(), options.clone());
    }
    Ok(Normalized { schema: written, lark, rules: normalizer.rules, residual })
}

fn too_long(normalizer: &Normalizer) -> SchemaError {
    normalizer.too_large(formula::TRUE)
}
