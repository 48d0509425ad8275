//! Why a schema is refused.

use crate::keyword;
use crate::path::{SchemaPath, push_key};

/// Why a schema is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaError {
    /// Path of the schema, such as `properties.a.items`; empty for the root.
    pub path: String,
    /// The keyword, empty if it is the schema as a whole.
    pub keyword: String,
    /// What kind of refusal it is.
    pub reason: Reason,
    /// Why.
    pub message: String,
    /// What to write instead: that of the reason, where there is none for the case at hand.
    pub hint: String,
    /// Steps and bytes that were spent until the refusal.
    pub spent: Spending,
}

/// The kinds of refusals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// It is not a JSON Schema: a keyword has a value of the wrong kind.
    Malformed,
    /// No value satisfies it.
    AllowsNothing,
    /// It is a JSON Schema, but no grammar can hold this part of it.
    Unsupported,
    /// No grammar can hold one of several ways not to satisfy a part of it; other ways may be enough.
    UnsupportedComplement,
    /// It takes more alternatives, or more nodes, than one grammar may have.
    TooLarge,
    /// Its rewriting takes more steps or more memory than the limits allow.
    BudgetSpent,
    /// An object has more optional properties, with no required one among them, than the engine can hold.
    TooWide,
    /// It is nested too deeply.
    TooDeep,
    /// A reference leads out of the document, to nothing, or to what depends on the way there.
    Unresolved,
    /// A reference leads back to itself without a value in between.
    Circular,
    /// The time ran out. The only reason that another run may not find again: see [`SchemaError::is_deterministic`].
    TimedOut,
}

impl Reason {
    /// What to write instead, where nothing better is known.
    pub fn hint(self) -> &'static str {
        match self {
            Reason::Malformed => "",
            Reason::AllowsNothing => "look for constraints that contradict each other",
            Reason::Unsupported | Reason::UnsupportedComplement => {
                "say what is allowed, as alternatives, instead of what is not"
            }
            Reason::TooLarge => {
                "give the alternatives a property with a `const` of its own in each, or use `anyOf`"
            }
            Reason::BudgetSpent | Reason::TimedOut => {
                "use fewer alternatives, shorter patterns and fewer optional properties"
            }
            Reason::TooWide => "use fewer optional properties, or require some of them",
            Reason::TooDeep => "use fewer levels",
            Reason::Unresolved => "copy the schema under `$defs` and refer to it as `#/$defs/NAME`",
            Reason::Circular => "refer to the schema only inside of properties or items",
        }
    }

    /// Whether the schema is fine as such, and only a grammar for this part of it is beyond the means or
    /// the limits, so that the part may be left open.
    pub fn is_beyond_grammar(self) -> bool {
        matches!(self, Reason::Unsupported | Reason::UnsupportedComplement | Reason::TooLarge)
    }
}

/// What a normalisation spent. The same for the same schema and limits, on any machine and under any load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Spending {
    /// Elementary steps of work.
    pub steps: u64,
    /// Bytes of memory that are held until the end.
    pub bytes: u64,
}

impl SchemaError {
    /// A schema that is malformed. An empty `hint` is replaced by that of the reason.
    pub(crate) fn new(
        path: &str,
        keyword: &str,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self {
            path: path.to_owned(),
            keyword: keyword.to_owned(),
            reason: Reason::Malformed,
            message: message.into(),
            hint: hint.into(),
            spent: Spending::default(),
        }
    }

    /// The same error for another reason.
    pub(crate) fn because(mut self, reason: Reason) -> Self {
        self.reason = reason;
        if self.hint.is_empty() {
            reason.hint().clone_into(&mut self.hint);
        }
        self
    }

    /// See [`Reason::is_beyond_grammar`].
    pub(crate) fn is_beyond(&self) -> bool {
        self.reason.is_beyond_grammar()
    }

    /// Whether every run on the same schema with the same limits ends with this error, on any machine and
    /// under any load. An error that is not deterministic says nothing about the schema: do not cache it.
    pub fn is_deterministic(&self) -> bool {
        self.reason != Reason::TimedOut
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

/// The error for what no grammar can hold.
pub(crate) fn refuse(path: Option<&SchemaPath>, keyword: &str, what: &str, hint: &str) -> SchemaError {
    let path = path.cloned().unwrap_or_else(SchemaPath::root);
    let (schema, own) = path.split_keyword();
    let (at, keyword) = if keyword::is_constraint(own) { (schema, own) } else { (path.clone(), keyword) };
    SchemaError::new(&at, keyword, format!("no grammar can hold this: {what}"), hint)
        .because(Reason::Unsupported)
}
