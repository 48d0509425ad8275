//! Arrays: what primitive constraints ask of them, merged and pruned.

use serde_json::Value;

use crate::error::SchemaError;
use crate::formula::{FALSE, FormulaId, Lit, TRUE};
use crate::normalizer::Normalizer;
use crate::path::SchemaPath;
use crate::shape::array::{Array, ContainsCount};

impl Normalizer<'_> {
    pub(crate) fn array_shapes(&mut self, lit: &Lit, negated: bool, path: &SchemaPath) -> Vec<Array> {
        let any = Array::default();
        let some = |from: usize, f: FormulaId, min: u64, max: Option<u64>| Array {
            exists: vec![ContainsCount { from, f, min, max, negated, path: path.clone() }],
            ..Array::default()
        };
        match (lit, negated) {
            (Lit::Items { prefix, rest }, false) => {
                vec![Array { prefix: prefix.to_vec(), rest: *rest, ..any }]
            }
            (Lit::Items { prefix, rest }, true) => {
                // Some item is wrong: one of the tuple, or one behind it.
                let mut out = Vec::new();
                for (i, &f) in prefix.iter().enumerate() {
                    let mut wrong = vec![TRUE; i];
                    wrong.push(self.forms.not(f));
                    if wrong[i] != FALSE {
                        out.push(Array { prefix: wrong, min: i as u64 + 1, ..Array::default() });
                    }
                }
                let wrong = self.forms.not(*rest);
                if wrong == TRUE {
                    out.push(Array { min: prefix.len() as u64 + 1, ..any });
                } else if wrong != FALSE {
                    out.push(some(prefix.len(), wrong, 1, None));
                }
                out
            }
            (Lit::MinItems(n), false) => vec![Array { min: *n, ..any }],
            (Lit::MinItems(0), true) => Vec::new(),
            (Lit::MinItems(n), true) => vec![Array { max: Some(n - 1), ..any }],
            (Lit::MaxItems(n), false) => vec![Array { max: Some(*n), ..any }],
            (Lit::MaxItems(n), true) => {
                n.checked_add(1).map(|min| Array { min, ..any }).into_iter().collect()
            }
            (Lit::Contains(f, min, max), false) => {
                if max.is_some_and(|max| max < *min) {
                    return Vec::new();
                }
                if *max == Some(0) {
                    let rest = self.forms.not(*f);
                    return vec![Array { rest, ..any }];
                }
                vec![some(0, *f, *min, *max)]
            }
            (Lit::Contains(f, min, max), true) => {
                let mut out = Vec::new();
                match min {
                    0 => {}
                    1 => out.push(Array { rest: self.forms.not(*f), ..Array::default() }),
                    min => out.push(some(0, *f, 0, Some(min - 1))),
                }
                if let Some(more) = max.and_then(|max| max.checked_add(1)) {
                    out.push(some(0, *f, more, None));
                }
                out
            }
            (Lit::Unique, false) => vec![Array { unique: true, unique_path: Some(path.clone()), ..any }],
            (Lit::Unique, true) => {
                vec![Array { repeated: true, min: 2, unique_path: Some(path.clone()), ..any }]
            }
            _ => vec![any],
        }
    }

    pub(crate) fn meet_arrays(&mut self, mut a: Array, b: &Array) -> Option<Array> {
        let length = a.prefix.len().max(b.prefix.len());
        if length > 0 || b.rest != TRUE {
            let prefix = (0..length).map(|i| self.forms.and([a.at(i), b.at(i)])).collect();
            a.rest = self.forms.and([a.rest, b.rest]);
            a.prefix = prefix;
        }
        a.min = a.min.max(b.min);
        a.max = match (a.max, b.max) {
            (Some(x), Some(y)) => Some(x.min(y)),
            (x, y) => x.or(y),
        };
        for some in &b.exists {
            if !a.exists.contains(some) {
                a.exists.push(some.clone());
            }
        }
        a.unique |= b.unique;
        a.repeated |= b.repeated;
        a.unique_path = a.unique_path.take().or_else(|| b.unique_path.clone());
        let impossible = a.max.is_some_and(|max| a.min > max) || (a.unique && a.repeated);
        (!impossible).then_some(a)
    }

    pub(crate) fn prune_array(&mut self, mut a: Array) -> Result<Option<Array>, SchemaError> {
        // Cut the tuple at the first item that nothing satisfies.
        let mut end = a.prefix.len();
        for i in 0..a.prefix.len() {
            if ((i as u64) < a.min || a.max.is_none()) && self.is_empty(a.prefix[i])? {
                end = i;
                break;
            }
        }
        if end < a.prefix.len() {
            a.prefix.truncate(end);
            a.rest = FALSE;
        }
        if a.rest != TRUE && self.is_empty(a.rest)? {
            a.rest = FALSE;
            let length = a.prefix.len() as u64;
            a.max = Some(a.max.map_or(length, |max| max.min(length)));
        }
        if a.max.is_some_and(|max| a.min > max) {
            return Ok(None);
        }
        let mut kept = Vec::new();
        for some in std::mem::take(&mut a.exists) {
            match self.decide(&mut a, some)? {
                Decided::Never => return Ok(None),
                Decided::Always => {}
                Decided::Open(some) => kept.push(some),
            }
        }
        a.exists = kept;
        if a.max.is_some_and(|max| a.min > max) {
            return Ok(None);
        }
        if a.max.is_some_and(|max| max <= 1) {
            a.unique = false;
            if a.repeated {
                return Ok(None);
            }
        }
        Ok(Some(a))
    }

    /// Decides what it can: items that always or never satisfy the formula.
    fn decide(&mut self, a: &mut Array, some: ContainsCount) -> Result<Decided, SchemaError> {
        let negated = self.forms.not(some.f);
        let (mut never, mut always) = (true, true);
        let mut positions: Vec<FormulaId> = (some.from..a.prefix.len()).map(|i| a.at(i)).collect();
        if a.rest != FALSE {
            positions.push(a.rest);
        }
        for f in positions {
            let inside = self.forms.and([f, some.f]);
            let outside = self.forms.and([f, negated]);
            never &= self.is_empty(inside)?;
            always &= self.is_empty(outside)?;
        }
        if never {
            return Ok(if some.min > 0 { Decided::Never } else { Decided::Always });
        }
        if always {
            a.min = a.min.max(if some.min > 0 { some.min + some.from as u64 } else { 0 });
            if let Some(max) = some.max {
                let max = max + some.from as u64;
                a.max = Some(a.max.map_or(max, |known| known.min(max)));
            }
            return Ok(Decided::Always);
        }
        Ok(if some.min == 0 && some.max.is_none() { Decided::Always } else { Decided::Open(some) })
    }

    pub(crate) fn fits_array(&mut self, a: &Array, items: &[Value]) -> Result<bool, SchemaError> {
        let n = items.len() as u64;
        if n < a.min || a.max.is_some_and(|max| n > max) {
            return Ok(false);
        }
        for (i, item) in items.iter().enumerate() {
            if !self.eval(a.at(i), item)? {
                return Ok(false);
            }
        }
        for some in &a.exists {
            let mut count = 0;
            for item in items.iter().skip(some.from) {
                count += u64::from(self.eval(some.f, item)?);
            }
            if count < some.min || some.max.is_some_and(|max| count > max) {
                return Ok(false);
            }
        }
        let mut texts: Vec<String> = items.iter().map(crate::formula::canonical).collect();
        texts.sort_unstable();
        let repeated = texts.windows(2).any(|pair| pair[0] == pair[1]);
        Ok(if repeated { !a.unique } else { !a.repeated })
    }
}

enum Decided {
    Always,
    Never,
    Open(ContainsCount),
}
