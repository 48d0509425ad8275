//! What comes out. Plain data.

use serde_json::Value;

use crate::error::Spending;
use crate::residual::Residual;
use crate::rules::RuleUse;

/// A schema in llguidance's subset.
#[derive(Debug, Clone)]
pub struct Normalized {
    /// Accepts the same values as the source, except for what `residual` names. With `lark`, the part of
    /// it that a schema can say.
    pub schema: Value,
    /// A grammar of the same values in llguidance's dialect of Lark, to be compiled instead of the schema.
    /// Only where [`NormalizeLimits::compose`](crate::NormalizeLimits::compose) allows it and no schema says it.
    pub lark: Option<String>,
    /// The rules that were used.
    pub rules: Vec<RuleUse>,
    /// What has to be checked after the fact.
    pub residual: Vec<Residual>,
    /// Only leaves were looked at: [`rewrite`](crate::rewrite()) may hold what an engine refuses of it.
    pub is_direct: bool,
    /// Steps and bytes that it took.
    pub spent: Spending,
}
