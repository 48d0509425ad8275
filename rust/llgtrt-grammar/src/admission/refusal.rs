//! Why a grammar is refused, in parts. Plain data; a request gets it as one [`Error`].

use llgtrt_core::Error;

use super::advice::advice;
use crate::text::grammar_error;
use llgtrt_schema::SchemaError;
use llgtrt_schema::path;

/// Why a grammar is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// What a request is told.
    pub(crate) error: Error,
    /// The keyword, empty if it is unknown or there is none.
    pub(crate) keyword: Box<str>,
    /// Why, without the hint.
    pub(crate) message: String,
    /// What to write instead, or empty.
    pub(crate) hint: Box<str>,
    /// Whether it depends on how fast the machine was, so that the next attempt may end otherwise.
    pub(crate) timed: bool,
}

impl Refusal {
    /// For a schema at the path `at` of the grammar.
    pub(crate) fn of_schema(refused: &SchemaError, at: &str) -> Self {
        let param = llgtrt_schema::path::join(at, &refused.param());
        let timed = !refused.is_deterministic();
        Self { timed, ..Self::new(param, &refused.keyword, &refused.message, refused.hint.clone()) }
    }

    fn new(param: String, keyword: &str, message: &str, hint: String) -> Self {
        let name = format!("`{keyword}`");
        let message = if keyword.is_empty() || message.contains(&name) {
            message.to_owned()
        } else {
            format!("{name}: {message}")
        };
        let error = if hint.is_empty() {
            grammar_error(message.clone())
        } else {
            grammar_error(format!("{message}; {hint}"))
        };
        let error = if param.is_empty() { error } else { error.with_param(param) };
        Self { error, keyword: keyword.into(), message, hint: hint.into(), timed: false }
    }

    /// With what to write instead.
    pub(crate) fn with_hint(message: &str, hint: &str) -> Self {
        Self::new(String::new(), "", message, hint.to_owned())
    }

    /// The same refusal, about `param` if it named nothing yet.
    pub(crate) fn or_param(mut self, param: String) -> Self {
        self.error.param.get_or_insert(param);
        self
    }
}

impl From<Error> for Refusal {
    /// Completes an error of the checks, or of llguidance, with the keyword that its path ends in and advice.
    fn from(error: Error) -> Self {
        let keyword = error.param.as_deref().map(path::keyword).unwrap_or_default();
        let hint = advice(&error.message);
        Self::new(error.param.unwrap_or_default(), &keyword, &error.message, hint)
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        refusal.error
    }
}
