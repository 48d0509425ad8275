//! Arrays: items by position, counts, and what has to occur somewhere.

use crate::formula::{FormulaId, TRUE};
use crate::path::SchemaPath;

/// Some item at position `from` or later satisfies `f`: at least `min` of them, at most `max`.
#[derive(Debug, Clone)]
pub(crate) struct ContainsCount {
    pub(crate) from: usize,
    pub(crate) f: FormulaId,
    pub(crate) min: u64,
    pub(crate) max: Option<u64>,
    /// It comes from `items` that are not satisfied.
    pub(crate) negated: bool,
    /// Where it is asked for. Beside another keyword of the same list, this is another place.
    pub(crate) path: SchemaPath,
}

impl PartialEq for ContainsCount {
    /// Whoever asks for it: it is the same constraint.
    fn eq(&self, other: &Self) -> bool {
        let key = |some: &Self| (some.from, some.f, some.min, some.max, some.negated);
        key(self) == key(other)
    }
}

/// A conjunction of constraints on arrays.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Array {
    pub(crate) prefix: Vec<FormulaId>,
    pub(crate) rest: FormulaId,
    pub(crate) min: u64,
    pub(crate) max: Option<u64>,
    pub(crate) exists: Vec<ContainsCount>,
    pub(crate) unique: bool,
    pub(crate) repeated: bool,
    /// Where `uniqueItems` was first asked for.
    pub(crate) unique_path: Option<SchemaPath>,
}

impl Default for Array {
    fn default() -> Self {
        Self {
            prefix: Vec::new(),
            rest: TRUE,
            min: 0,
            max: None,
            exists: Vec::new(),
            unique: false,
            repeated: false,
            unique_path: None,
        }
    }
}

impl Array {
    pub(crate) fn at(&self, index: usize) -> FormulaId {
        self.prefix.get(index).copied().unwrap_or(self.rest)
    }

    pub(crate) fn is_any(&self) -> bool {
        *self == Self::default()
    }

    /// Where the first of what no schema says was asked for.
    pub(crate) fn path(&self) -> Option<&SchemaPath> {
        self.exists.first().map(|some| &some.path).or(self.unique_path.as_ref())
    }
}
