//! Objects: values by key, required keys, sets of keys, counts, and what has to occur somewhere.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;

use indexmap::IndexMap;

use crate::formula::{FALSE, FormulaId, Others, TRUE};
use crate::languages::LanguageId;
use crate::path::SchemaPath;

/// The value at a key.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Named {
    pub(crate) f: FormulaId,
    /// Whether `properties` gave it a place in the order.
    pub(crate) placed: bool,
    /// Whether only a schema that is not satisfied speaks of it.
    pub(crate) complement: bool,
}

/// A set of keys.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Keys {
    Others(Others),
    Language(LanguageId, Option<Rc<str>>),
    /// Keys that, as strings, do not satisfy the formula.
    NotNamed(FormulaId),
}

/// A conjunction of constraints on objects.
#[derive(Debug, Clone, Default)]
pub(crate) struct Object {
    pub(crate) named: IndexMap<Rc<str>, Named>,
    pub(crate) required: BTreeSet<Rc<str>>,
    pub(crate) keys: Vec<(LanguageId, Option<Rc<str>>, FormulaId)>,
    pub(crate) rest: Vec<(Others, FormulaId)>,
    /// Every key satisfies these as a string.
    pub(crate) names: Vec<FormulaId>,
    pub(crate) min: u64,
    pub(crate) max: Option<u64>,
    /// Some key of the set has a value that satisfies the formula.
    pub(crate) exists: Vec<(Keys, FormulaId)>,
    /// The schema says something of keys that it does not name.
    pub(crate) open: bool,
    /// Keys that are left out where this is written: with one of them it may be more than one alternative of a
    /// `oneOf`. Otherwise the object counts as if it might have them.
    pub(crate) avoided: BTreeSet<Rc<str>>,
    /// Where keys are counted.
    pub(crate) count_path: Option<SchemaPath>,
    /// Where one of the harder constraints was first asked for.
    pub(crate) path: Option<SchemaPath>,
}

impl PartialEq for Object {
    fn eq(&self, other: &Self) -> bool {
        let same = self.named.len() == other.named.len()
            && self.named.iter().all(|(key, named)| other.named.get(key).is_some_and(|o| o.f == named.f));
        same && self.required == other.required
            && self.min == other.min
            && self.max == other.max
            && self.keys == other.keys
            && self.rest == other.rest
            && self.names == other.names
            && self.exists == other.exists
            && self.open == other.open
            && self.avoided == other.avoided
    }
}

impl Object {
    /// Number of entries.
    pub(crate) fn len(&self) -> usize {
        2 * self.named.len()
            + self.required.len()
            + self.keys.len()
            + self.rest.len()
            + self.names.len()
            + self.exists.len()
            + self.avoided.len()
    }

    /// The same for objects that are equal: the order of the keys does not count.
    pub(crate) fn fingerprint(&self) -> u64 {
        let hash = |entry: &dyn Fn(&mut DefaultHasher)| {
            let mut hasher = DefaultHasher::new();
            entry(&mut hasher);
            hasher.finish()
        };
        let named = self.named.iter().map(|(key, named)| hash(&|h| (key, named.f).hash(h)));
        let sum = named.fold(0_u64, u64::wrapping_add);
        hash(&|h| (sum, &self.required, self.min, self.max, self.exists.len()).hash(h))
    }

    /// Whether no key outside of those named may occur, at first sight.
    pub(crate) fn is_closed(&self) -> bool {
        self.rest.iter().any(|(others, f)| {
            *f == FALSE
                && others.languages.is_empty()
                && others.names.iter().all(|name| self.named.contains_key(name))
        })
    }

    /// Whether it takes no other keys by default: it names properties and says nothing of others.
    pub(crate) fn is_closed_by_default(&self) -> bool {
        let possible = || self.named.values().filter(|named| named.f != FALSE);
        !self.open
            && self.keys.is_empty()
            && self.rest.is_empty()
            && self.names.is_empty()
            && possible().any(|named| named.placed)
            && self.min <= possible().count() as u64
    }

    /// The same without other keys than those named.
    pub(crate) fn closed(&self) -> Self {
        let names: Vec<Rc<str>> = self.named.keys().cloned().collect();
        let mut closed = self.clone();
        closed.rest.push((Others { names: names.into(), languages: Rc::new([]) }, FALSE));
        closed
    }

    /// Whether it would take some of the keys to avoid, closed by default.
    pub(crate) fn may_have_avoided(&self) -> bool {
        let has = |key| self.named.get(key).is_some_and(|named: &Named| named.f != FALSE);
        !self.is_closed_by_default() || self.avoided.iter().any(has)
    }

    /// The same without the keys to avoid; `None` if one of them has to be there.
    pub(crate) fn without_avoided(&self) -> Option<Self> {
        if self.required.iter().any(|key| self.avoided.contains(key)) {
            return None;
        }
        let mut object = self.clone();
        for key in std::mem::take(&mut object.avoided) {
            let named = Named { f: FALSE, placed: false, complement: false };
            object.named.entry(key).or_insert_with(|| named.clone()).f = FALSE;
        }
        Some(object)
    }

    /// Whether a key has to be there only because another schema must not be satisfied.
    pub(crate) fn needs_complement(&self) -> bool {
        self.required.iter().any(|key| self.named.get(key).is_some_and(|named| named.complement))
    }

    /// Whether the other one may have keys that this one, closed by default, would not take.
    pub(crate) fn would_lose_keys_of(&self, other: &Object) -> bool {
        self.is_closed_by_default()
            && (!other.is_closed_by_default()
                || other.named.iter().any(|(key, named)| named.f != FALSE && !self.named.contains_key(key)))
    }

    pub(crate) fn is_any(&self) -> bool {
        self.named.values().all(|named| named.f == TRUE) && {
            let bare = Object { named: IndexMap::new(), open: false, ..self.clone() };
            bare == Object::default()
        }
    }
}
