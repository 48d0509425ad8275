//! Objects: what primitive constraints ask of them, merged and pruned.

use std::collections::BTreeSet;
use std::rc::Rc;

use indexmap::IndexMap;
use serde_json::{Map, Value};

use crate::error::SchemaError;
use crate::formula::{FALSE, FormulaId, Lit, TRUE};
use crate::normalizer::Normalizer;
use crate::path::SchemaPath;
use crate::shape::object::{Keys, Named, Object};

impl Normalizer<'_> {
    pub(crate) fn object_shapes(&mut self, lit: &Lit, negated: bool, path: &SchemaPath) -> Vec<Object> {
        let any = Object { path: Some(path.clone()), ..Object::default() };
        let entry = |key: &Rc<str>, f: FormulaId, placed: bool, complement: bool| {
            IndexMap::from([(Rc::clone(key), Named { f, placed, complement })])
        };
        let named = |key: &Rc<str>, f: FormulaId, placed: bool| entry(key, f, placed, false);
        let required = |key: &Rc<str>| BTreeSet::from([Rc::clone(key)]);
        let counted = |min: u64, max: Option<u64>| {
            let count_path = Some(path.clone());
            Object { min, max, count_path, path: Some(path.clone()), ..Object::default() }
        };
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
                vec![Object { exists: vec![(Keys::Language(*x, text.clone()), wrong)], ..any }]
            }
            (Lit::Rest(others, f), false) => vec![Object { rest: vec![(others.clone(), *f)], ..any }],
            (Lit::Rest(others, f), true) => {
                let wrong = self.forms.not(*f);
                vec![Object { exists: vec![(Keys::Others(others.clone()), wrong)], ..any }]
            }
            (Lit::Names(f), false) => vec![Object { names: vec![*f], ..any }],
            (Lit::Names(f), true) => vec![Object { exists: vec![(Keys::NotNamed(*f), TRUE)], ..any }],
            (Lit::MinProps(n), false) => vec![counted(*n, None)],
            (Lit::MinProps(0), true) => Vec::new(),
            (Lit::MinProps(n), true) => vec![counted(0, Some(n - 1))],
            (Lit::MaxProps(n), false) => vec![counted(0, Some(*n))],
            (Lit::MaxProps(n), true) => n.checked_add(1).map(|min| counted(min, None)).into_iter().collect(),
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
        for entry in &b.exists {
            if !a.exists.contains(entry) {
                a.exists.push(entry.clone());
            }
        }
        a.min = a.min.max(b.min);
        a.max = match (a.max, b.max) {
            (Some(x), Some(y)) => Some(x.min(y)),
            (x, y) => x.or(y),
        };
        a.open |= b.open;
        a.avoided.extend(b.avoided.iter().cloned());
        a.count_path = a.count_path.take().or_else(|| b.count_path.clone());
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
        if object.max == Some(required) && object.max.is_some() && !object.exists.is_empty() {
            // Nothing but the required keys can occur.
            let mut kept = Vec::new();
            for (keys, f) in std::mem::take(&mut object.exists) {
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
            object.exists = kept;
        }
        let mut kept = Vec::new();
        for (keys, f) in std::mem::take(&mut object.exists) {
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
        object.exists = kept;
        if !object.exists.is_empty() && object.is_closed() {
            // One of the named keys has to be it.
            for (keys, f) in object.exists.clone() {
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
        for (keys, f) in &object.exists {
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
