//! Objects: values by key, required keys, sets of keys, counts, and what has to occur somewhere.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;

use indexmap::IndexMap;
use serde_json::{Map, Value};

use crate::formula::{FALSE, FormulaId, Lit, Others, TRUE};
use crate::languages::LanguageId;
use crate::{Normalizer, SchemaError};

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
    pub(crate) somewhere: Vec<(Keys, FormulaId)>,
    /// The schema says something of keys that it does not name.
    pub(crate) open: bool,
    /// Keys that are left out where this is written: with one of them it may be more than one alternative of a
    /// `oneOf`. Otherwise the object counts as if it might have them.
    pub(crate) avoided: BTreeSet<Rc<str>>,
    /// Where one of the harder constraints was first asked for.
    pub(crate) path: Option<Rc<str>>,
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
            && self.somewhere == other.somewhere
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
            + self.somewhere.len()
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
        hash(&|h| (sum, &self.required, self.min, self.max, self.somewhere.len()).hash(h))
    }

    /// Whether no key outside of those named may occur, at first sight.
    fn is_closed(&self) -> bool {
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

impl Normalizer<'_> {
    pub(crate) fn object_shapes(&mut self, lit: &Lit, negated: bool, path: &Rc<str>) -> Vec<Object> {
        let any = Object { path: Some(Rc::clone(path)), ..Object::default() };
        let entry = |key: &Rc<str>, f: FormulaId, placed: bool, complement: bool| {
            IndexMap::from([(Rc::clone(key), Named { f, placed, complement })])
        };
        let named = |key: &Rc<str>, f: FormulaId, placed: bool| entry(key, f, placed, false);
        let required = |key: &Rc<str>| BTreeSet::from([Rc::clone(key)]);
        match (lit, negated) {
            (Lit::Key(key, f), false) => vec![Object { named: named(key, *f, true), path: None, ..any }],
            (Lit::Key(key, f), true) => {
                let wrong = self.forms.not(*f);
                if wrong == FALSE {
                    return Vec::new();
                }
                vec![Object { named: entry(key, wrong, false, true), required: required(key), ..any }]
            }
            (Lit::Required(key), false) => {
                vec![Object { named: named(key, TRUE, false), required: required(key), ..any }]
            }
            (Lit::Required(key), true) => vec![Object { named: named(key, FALSE, false), ..any }],
            (Lit::Keys(x, text, f), false) => vec![Object { keys: vec![(*x, text.clone(), *f)], ..any }],
            (Lit::Keys(x, text, f), true) => {
                let wrong = self.forms.not(*f);
                vec![Object { somewhere: vec![(Keys::Language(*x, text.clone()), wrong)], ..any }]
            }
            (Lit::Rest(others, f), false) => vec![Object { rest: vec![(others.clone(), *f)], ..any }],
            (Lit::Rest(others, f), true) => {
                let wrong = self.forms.not(*f);
                vec![Object { somewhere: vec![(Keys::Others(others.clone()), wrong)], ..any }]
            }
            (Lit::Names(f), false) => vec![Object { names: vec![*f], ..any }],
            (Lit::Names(f), true) => vec![Object { somewhere: vec![(Keys::NotNamed(*f), TRUE)], ..any }],
            (Lit::MinProps(n), false) => vec![Object { min: *n, ..any }],
            (Lit::MinProps(0), true) => Vec::new(),
            (Lit::MinProps(n), true) => vec![Object { max: Some(n - 1), ..any }],
            (Lit::MaxProps(n), false) => vec![Object { max: Some(*n), ..any }],
            (Lit::MaxProps(n), true) => {
                n.checked_add(1).map(|min| Object { min, ..any }).into_iter().collect()
            }
            (Lit::Open, false) => vec![Object { open: true, path: None, ..any }],
            (Lit::Open, true) => Vec::new(),
            _ => vec![any],
        }
    }

    pub(crate) fn meet_objects(&mut self, mut a: Object, b: &Object) -> Option<Object> {
        for (key, named) in &b.named {
            match a.named.get_mut(key) {
                Some(known) if known.placed || !named.placed => {
                    known.f = self.forms.and([known.f, named.f]);
                    known.complement &= named.complement;
                }
                Some(known) => {
                    // Only now it gets its place in the order.
                    let f = self.forms.and([known.f, named.f]);
                    a.named.shift_remove(key);
                    a.named.insert(Rc::clone(key), Named { f, placed: true, complement: false });
                }
                None => {
                    a.named.insert(Rc::clone(key), named.clone());
                }
            }
            if a.named.get(key).is_some_and(|named| named.f == FALSE)
                && (a.required.contains(key) || b.required.contains(key))
            {
                return None;
            }
        }
        for key in &b.required {
            a.required.insert(Rc::clone(key));
        }
        for entry in &b.keys {
            if !a.keys.contains(entry) {
                a.keys.push(entry.clone());
            }
        }
        for entry in &b.rest {
            if !a.rest.contains(entry) {
                a.rest.push(entry.clone());
            }
        }
        for &f in &b.names {
            if !a.names.contains(&f) {
                a.names.push(f);
            }
        }
        for entry in &b.somewhere {
            if !a.somewhere.contains(entry) {
                a.somewhere.push(entry.clone());
            }
        }
        a.min = a.min.max(b.min);
        a.max = match (a.max, b.max) {
            (Some(x), Some(y)) => Some(x.min(y)),
            (x, y) => x.or(y),
        };
        a.open |= b.open;
        a.avoided.extend(b.avoided.iter().cloned());
        a.path = a.path.take().or_else(|| b.path.clone());
        let impossible = a.max.is_some_and(|max| a.min > max || a.required.len() as u64 > max);
        (!impossible).then_some(a)
    }

    /// What the value at a key has to satisfy.
    pub(crate) fn value_at(&mut self, object: &Object, key: &str) -> Result<FormulaId, SchemaError> {
        let own = object.named.get(key).map_or(TRUE, |named| named.f);
        let mut parts = vec![own];
        for (x, _, f) in &object.keys {
            if self.langs.matches(*x, key) {
                parts.push(*f);
            }
        }
        for (others, f) in &object.rest {
            if self.is_other(others, key) {
                parts.push(*f);
            }
        }
        for &f in &object.names {
            if !self.eval(f, &Value::String(key.to_owned()))? {
                return Ok(FALSE);
            }
        }
        Ok(self.forms.and(parts))
    }

    pub(crate) fn in_keys(&mut self, keys: &Keys, key: &str) -> Result<bool, SchemaError> {
        Ok(match keys {
            Keys::Others(others) => self.is_other(others, key),
            Keys::Language(x, _) => self.langs.matches(*x, key),
            Keys::NotNamed(f) => !self.eval(*f, &Value::String(key.to_owned()))?,
        })
    }

    pub(crate) fn prune_object(&mut self, mut object: Object) -> Result<Option<Object>, SchemaError> {
        for key in object.required.clone() {
            let f = self.value_at(&object, &key)?;
            if self.is_empty(f)? {
                return Ok(None);
            }
        }
        let required = object.required.len() as u64;
        if object.min <= required {
            object.min = 0;
        }
        if object.is_closed() {
            let mut possible = 0;
            let names: Vec<Rc<str>> = object.named.keys().cloned().collect();
            for key in names {
                possible += u64::from(self.value_at(&object, &key)? != FALSE);
            }
            // Names of the closed set that nothing else mentions are all in `named` already.
            if object.min > possible {
                return Ok(None);
            }
            if object.max.is_some_and(|max| max >= possible) {
                object.max = None;
            }
        }
        if object.max == Some(required) && object.max.is_some() && !object.somewhere.is_empty() {
            // Nothing but the required keys can occur.
            let mut kept = Vec::new();
            for (keys, f) in std::mem::take(&mut object.somewhere) {
                let mut possible = false;
                for key in object.required.clone() {
                    if self.in_keys(&keys, &key)? {
                        let value = self.value_at(&object, &key)?;
                        let both = self.forms.and([value, f]);
                        possible |= !self.is_empty(both)?;
                    }
                }
                if !possible {
                    return Ok(None);
                }
                kept.push((keys, f));
            }
            object.somewhere = kept;
        }
        let mut kept = Vec::new();
        for (keys, f) in std::mem::take(&mut object.somewhere) {
            let mut sure = false;
            for key in object.required.clone() {
                if self.in_keys(&keys, &key)? {
                    let value = self.value_at(&object, &key)?;
                    let negated = self.forms.not(f);
                    let outside = self.forms.and([value, negated]);
                    sure = sure || self.is_empty(outside)?;
                }
            }
            if !sure {
                kept.push((keys, f));
            }
        }
        object.somewhere = kept;
        if !object.somewhere.is_empty() && object.is_closed() {
            // One of the named keys has to be it.
            for (keys, f) in object.somewhere.clone() {
                let mut possible = false;
                let names: Vec<Rc<str>> = object.named.keys().cloned().collect();
                for key in names {
                    if !possible && self.in_keys(&keys, &key)? {
                        let value = self.value_at(&object, &key)?;
                        let both = self.forms.and([value, f]);
                        possible = !self.is_empty(both)?;
                    }
                }
                if !possible {
                    return Ok(None);
                }
            }
        }
        Ok(Some(object))
    }

    pub(crate) fn fits_object(
        &mut self,
        object: &Object,
        members: &Map<String, Value>,
    ) -> Result<bool, SchemaError> {
        let n = members.len() as u64;
        if n < object.min || object.max.is_some_and(|max| n > max) {
            return Ok(false);
        }
        if object.required.iter().any(|key| !members.contains_key(&**key)) {
            return Ok(false);
        }
        for (key, value) in members {
            let f = self.value_at(object, key)?;
            if !self.eval(f, value)? {
                return Ok(false);
            }
        }
        for (keys, f) in &object.somewhere {
            let mut found = false;
            for (key, value) in members {
                found = found || (self.in_keys(keys, key)? && self.eval(*f, value)?);
            }
            if !found {
                return Ok(false);
            }
        }
        if object.avoided.iter().any(|key| members.contains_key(&**key)) {
            // It may be one of several alternatives: an instance is not to be offered, and not to be ruled out.
            return Err(self.too_large(TRUE));
        }
        Ok(true)
    }
}
