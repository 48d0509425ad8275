//! Why a grammar is refused, in parts. Plain data; a request gets it as one [`Error`].

use llgtrt_core::Error;

use crate::text::grammar_error;
use llgtrt_schema::path;
use llgtrt_schema::{Reason, SchemaError};

/// What to do about refusals of several causes.
pub(crate) mod hint {
    /// A limit of the server on the size of grammars.
    pub(crate) const SMALLER: &str = "write a smaller grammar, or ask the operator to raise the limit";
    /// A limit on nesting.
    pub(crate) const FEWER_LEVELS: &str = "use fewer levels";
    /// llguidance's limits.
    pub(crate) const SIMPLER: &str = "use shorter patterns, and bounds on how often something repeats";
    /// llguidance's limit on what may follow at one place.
    pub(crate) const FEWER_WAYS: &str =
        "use fewer optional properties, or ask the operator to raise `max_items_in_row`";
    /// A regular expression that cannot be read.
    pub(crate) const ESCAPE: &str = "correct it; special characters are escaped with a backslash";
    /// No answer but the empty one.
    pub(crate) const NOT_EMPTY: &str = "allow at least one character";
}

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
    /// About the grammar as a whole. An empty `hint` says nothing.
    pub(crate) fn new(message: impl Into<String>, hint: impl Into<Box<str>>) -> Self {
        Self::about("", "", message.into(), hint.into())
    }

    /// The same refusal, of what is at `param`.
    pub(crate) fn at(self, param: impl AsRef<str>) -> Self {
        let keyword = path::keyword(param.as_ref());
        Self { timed: self.timed, ..Self::about(param.as_ref(), &keyword, self.message, self.hint) }
    }

    /// The same refusal, at `param` if it named nothing yet.
    pub(crate) fn or_at(mut self, param: String) -> Self {
        self.error.param.get_or_insert(param);
        self
    }

    /// The same refusal, with words before it that say where it is.
    pub(crate) fn after(self, place: &str) -> Self {
        let message = format!("{place}{}", self.message);
        Self { keyword: self.keyword, timed: self.timed, ..Self::about("", "", message, self.hint) }
    }

    /// For a schema at the path `at` of the grammar.
    pub(crate) fn of_schema(refused: &SchemaError, at: &str) -> Self {
        let param = llgtrt_schema::path::join(at, &refused.param());
        let timed = !refused.is_deterministic();
        let hint = if refused.reason == Reason::TooWide { hint::FEWER_WAYS } else { &refused.hint };
        let about = Self::about(&param, &refused.keyword, refused.message.clone(), hint.into());
        Self { timed, ..about }
    }

    fn about(param: &str, keyword: &str, message: String, hint: Box<str>) -> Self {
        let name = format!("`{keyword}`");
        let named = keyword.is_empty() || message.contains(&name);
        let message = if named { message } else { format!("{name}: {message}") };
        let whole = if hint.is_empty() { message.clone() } else { format!("{message}; {hint}") };
        let error = grammar_error(whole);
        let error = if param.is_empty() { error } else { error.with_param(param) };
        Self { error, keyword: keyword.into(), message, hint, timed: false }
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        refusal.error
    }
}
