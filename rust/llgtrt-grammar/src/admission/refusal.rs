//! Why a grammar is refused, in parts. Plain data; a request gets it as one [`Error`].

use llgtrt_core::Error;

use super::json;
use crate::normalize::SchemaError;
use crate::text::grammar_error;

/// Why a grammar is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// What a request is told.
    pub(crate) error: Error,
    /// The keyword, empty if it is unknown or there is none.
    pub(crate) keyword: String,
    /// Why, without the hint.
    pub(crate) message: String,
    /// What to write instead, or empty.
    pub(crate) hint: String,
}

impl Refusal {
    /// For a schema at the path `at` of the grammar.
    pub(crate) fn of_schema(refused: &SchemaError, at: &str) -> Self {
        let name = format!("`{}`", refused.keyword);
        let message = if refused.keyword.is_empty() || refused.message.contains(&name) {
            refused.message.clone()
        } else {
            format!("{name}: {}", refused.message)
        };
        let error = if refused.hint.is_empty() {
            grammar_error(message.clone())
        } else {
            grammar_error(format!("{message}; {}", refused.hint))
        };
        let param = json::join(at, &refused.param());
        Self {
            error: if param.is_empty() { error } else { error.with_param(param) },
            keyword: refused.keyword.clone(),
            message,
            hint: refused.hint.clone(),
        }
    }

    /// The same refusal, about `param` if it named nothing yet.
    pub(crate) fn or_param(mut self, param: String) -> Self {
        self.error.param.get_or_insert(param);
        self
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        let message = error.message.clone();
        Self { error, keyword: String::new(), message, hint: String::new() }
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        refusal.error
    }
}
