//! What a request may constrain its answer to.

use serde::{Deserialize, Serialize};

/// A constraint on the generated text, as the request stated it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "kind", content = "value", rename_all = "snake_case")]
pub enum GrammarSpec {
    /// A JSON Schema as JSON text, properties in the order written.
    JsonSchema(String),
    /// Any JSON object.
    JsonObject,
    /// A regular expression that the whole answer matches.
    Regex(String),
    /// Exactly one of these strings.
    Choice(Vec<String>),
    /// A Lark grammar in llguidance's dialect.
    Lark(String),
    /// A serialised llguidance grammar (JSON text).
    Llguidance(String),
}

impl GrammarSpec {
    /// Stable lower-case name, used as a metric label.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::JsonSchema(_) => "json_schema",
            Self::JsonObject => "json_object",
            Self::Regex(_) => "regex",
            Self::Choice(_) => "choice",
            Self::Lark(_) => "lark",
            Self::Llguidance(_) => "llguidance",
        }
    }
}
