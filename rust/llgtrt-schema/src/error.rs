//! Why a schema is refused.

use crate::path::push_key;

/// Why a schema is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaError {
    /// Path of the schema, such as `properties.a.items`; empty for the root.
    pub path: String,
    /// The keyword, empty if it is the schema as a whole.
    pub keyword: String,
    /// Why.
    pub message: String,
    /// What to write instead.
    pub hint: String,
    /// It comes from a complement, of which other parts may be enough.
    pub(crate) negated: bool,
    /// The schema is fine, but a grammar for it is beyond the means or the limits.
    pub(crate) beyond: bool,
}

impl SchemaError {
    pub(crate) fn new(
        path: &str,
        keyword: &str,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self {
            path: path.to_owned(),
            keyword: keyword.to_owned(),
            message: message.into(),
            hint: hint.into(),
            negated: false,
            beyond: false,
        }
    }

    pub(crate) fn beyond(mut self) -> Self {
        self.beyond = true;
        self
    }

    /// Path of the keyword itself.
    pub fn param(&self) -> String {
        let mut path = self.path.clone();
        if !self.keyword.is_empty() {
            push_key(&mut path, &self.keyword);
        }
        path
    }
}

impl std::fmt::Display for SchemaError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)?;
        if !self.hint.is_empty() {
            write!(f, "; {}", self.hint)?;
        }
        Ok(())
    }
}

impl std::error::Error for SchemaError {}
