//! What the keywords of a schema evaluate, for `unevaluatedProperties` and `unevaluatedItems` beside them.

use std::rc::Rc;

use indexmap::IndexSet;

use crate::formula::FormulaId;
use crate::languages::LanguageId;

/// What is evaluated where a condition holds.
#[derive(Debug, Clone, Default)]
pub(crate) struct Seen {
    pub(crate) names: IndexSet<Rc<str>>,
    pub(crate) languages: IndexSet<LanguageId>,
    pub(crate) all_keys: bool,
    pub(crate) prefix: usize,
    pub(crate) all_items: bool,
}

/// What is evaluated, and when.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) condition: FormulaId,
    pub(crate) seen: Seen,
}

/// What a schema evaluates, by cases.
pub(crate) type Cases = Rc<[Case]>;

impl Seen {
    pub(crate) fn add(&mut self, other: &Seen) {
        self.names.extend(other.names.iter().cloned());
        self.languages.extend(&other.languages);
        self.all_keys |= other.all_keys;
        self.prefix = self.prefix.max(other.prefix);
        self.all_items |= other.all_items;
    }

    pub(crate) fn len(&self) -> usize {
        self.names.len() + self.languages.len()
    }
}
