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
mod completions;
mod error;
mod evaluate;
mod expand;
mod explain;
mod fast;
mod formula;
mod languages;
mod limits;
mod normalized;
mod normalizer;
mod read;
mod reference;
mod residual;
mod rules;
mod shape;
mod source;
mod stages;
mod tree;
mod write;

pub mod keyword;
pub mod path;
pub mod width;

pub use self::completions::{completions, format_completions};
pub use self::error::{Reason, SchemaError, Spending};
pub use self::evaluate::{Evaluation, can_evaluate, evaluate};
pub use self::explain::explain;
pub use self::limits::{NormalizeLimits, ResidualMode};
pub use self::normalized::Normalized;
pub use self::normalizer::Segment;
pub use self::reference::reference;
pub use self::residual::Residual;
pub use self::rules::{RULES, Rule, RuleUse};
pub use self::source::is_draft_4;
pub use self::stages::{normalize, rewrite};
