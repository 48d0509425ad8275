//! What is written so far of a schema.

use std::collections::HashMap;

use crate::formula::FormulaId;
use crate::languages::LanguageId;
use crate::tree::Tree;

/// What is written so far.
#[derive(Debug, Default)]
pub(crate) struct Emitter {
    pub(crate) state: HashMap<FormulaId, State>,
    pub(crate) definitions: Vec<(FormulaId, Tree)>,
    /// Formulas in the order in which they were started.
    pub(crate) log: Vec<FormulaId>,
    pub(crate) nodes: usize,
    /// See [`NormalizeLimits::max_property_squares`](crate::NormalizeLimits::max_property_squares).
    pub(crate) property_squares: u64,
    /// The languages of the patterns of keys that are written.
    pub(crate) keys: HashMap<String, LanguageId>,
}

/// A state of the emitter to go back to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mark {
    pub(crate) definitions: usize,
    pub(crate) log: usize,
}

#[derive(Debug, Clone)]
pub(crate) enum State {
    /// Being written further up.
    Open,
    Inline(Tree),
    Definition,
}
