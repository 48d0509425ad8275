//! Arrays: items by position, counts, and what has to occur somewhere.

use std::rc::Rc;

use serde_json::{Map, Value, json};

use super::dnf::Shape;
use super::formula::{F, FALSE, Lit, Node, TRUE, Type};
use super::{Normalizer, SchemaError};

/// Positions at which an item may be required to occur.
const MAX_POSITIONS: u64 = 24;

/// Lists that are written out for unique items.
const MAX_LISTS: usize = 400;

/// Items of a tuple that bounds are expanded to.
const MAX_TUPLE: usize = 200;

/// Some item at position `from` or later satisfies `f`: at least `min` of them, at most `max`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Somewhere {
    from: usize,
    f: F,
    min: u64,
    max: Option<u64>,
    /// It comes from `items` that are not satisfied.
    negated: bool,
}

/// A conjunction of constraints on arrays.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Array {
    prefix: Vec<F>,
    rest: F,
    min: u64,
    max: Option<u64>,
    somewhere: Vec<Somewhere>,
    unique: bool,
    repeated: bool,
    /// Where `uniqueItems` or `contains` was first asked for.
    path: Option<Rc<str>>,
}

impl Default for Array {
    fn default() -> Self {
        Self {
            prefix: Vec::new(),
            rest: TRUE,
            min: 0,
            max: None,
            somewhere: Vec::new(),
            unique: false,
            repeated: false,
            path: None,
        }
    }
}

impl Array {
    fn at(&self, index: usize) -> F {
        self.prefix.get(index).copied().unwrap_or(self.rest)
    }

    pub(crate) fn is_any(&self) -> bool {
        *self == Self::default()
    }
}

impl Normalizer<'_> {
    pub(super) fn array_shapes(&mut self, lit: &Lit, negated: bool, path: &Rc<str>) -> Vec<Array> {
        let any = Array::default();
        let some = |from: usize, f: F, min: u64, max: Option<u64>| Array {
            somewhere: vec![Somewhere { from, f, min, max, negated }],
            path: Some(Rc::clone(path)),
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
            (Lit::MaxItems(n), true) => vec![Array { min: n + 1, ..any }],
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
                if let Some(max) = max {
                    out.push(some(0, *f, max + 1, None));
                }
                out
            }
            (Lit::Unique, false) => vec![Array { unique: true, path: Some(Rc::clone(path)), ..any }],
            (Lit::Unique, true) => {
                vec![Array { repeated: true, min: 2, path: Some(Rc::clone(path)), ..any }]
            }
            _ => vec![any],
        }
    }

    pub(super) fn meet_arrays(&mut self, mut a: Array, b: &Array) -> Option<Array> {
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
        for some in &b.somewhere {
            if !a.somewhere.contains(some) {
                a.somewhere.push(some.clone());
            }
        }
        a.unique |= b.unique;
        a.repeated |= b.repeated;
        a.path = a.path.take().or_else(|| b.path.clone());
        let impossible = a.max.is_some_and(|max| a.min > max) || (a.unique && a.repeated);
        (!impossible).then_some(a)
    }

    pub(super) fn prune_array(&mut self, mut a: Array) -> Result<Option<Array>, SchemaError> {
        // Cut the tuple at the first item that nothing satisfies.
        let mut end = a.prefix.len();
        for i in 0..a.prefix.len() {
            if (i as u64) < a.min || a.max.is_none() {
                if self.is_empty(a.prefix[i])? {
                    end = i;
                    break;
                }
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
        for some in std::mem::take(&mut a.somewhere) {
            match self.settle(&mut a, some)? {
                Settled::Never => return Ok(None),
                Settled::Always => {}
                Settled::Open(some) => kept.push(some),
            }
        }
        a.somewhere = kept;
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
    fn settle(&mut self, a: &mut Array, some: Somewhere) -> Result<Settled, SchemaError> {
        let negated = self.forms.not(some.f);
        let (mut never, mut always) = (true, true);
        let mut positions: Vec<F> = (some.from..a.prefix.len()).map(|i| a.at(i)).collect();
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
            return Ok(if some.min > 0 { Settled::Never } else { Settled::Always });
        }
        if always {
            a.min = a.min.max(if some.min > 0 { some.min + some.from as u64 } else { 0 });
            if let Some(max) = some.max {
                let max = max + some.from as u64;
                a.max = Some(a.max.map_or(max, |known| known.min(max)));
            }
            return Ok(Settled::Always);
        }
        Ok(if some.min == 0 && some.max.is_none() { Settled::Always } else { Settled::Open(some) })
    }

    pub(super) fn fits_array(&mut self, a: &Array, items: &[Value]) -> Result<bool, SchemaError> {
        let n = items.len() as u64;
        if n < a.min || a.max.is_some_and(|max| n > max) {
            return Ok(false);
        }
        for (i, item) in items.iter().enumerate() {
            if !self.eval(a.at(i), item)? {
                return Ok(false);
            }
        }
        for some in &a.somewhere {
            let mut count = 0;
            for item in items.iter().skip(some.from) {
                count += u64::from(self.eval(some.f, item)?);
            }
            if count < some.min || some.max.is_some_and(|max| count > max) {
                return Ok(false);
            }
        }
        let mut texts: Vec<String> = items.iter().map(super::eval::canonical).collect();
        texts.sort_unstable();
        let repeated = texts.windows(2).any(|pair| pair[0] == pair[1]);
        Ok(!(a.unique && repeated) && !(a.repeated && !repeated))
    }

    /// Writes an array as a list of alternatives.
    pub(super) fn write_array(&mut self, a: &Array) -> Result<Vec<Value>, SchemaError> {
        let mut open = vec![a.clone()];
        let mut done = Vec::new();
        while let Some(mut a) = open.pop() {
            self.step(TRUE)?;
            if let Some(some) = a.somewhere.pop() {
                match self.place(&a, &some)? {
                    Some(options) => {
                        // In order: the first position first.
                        for option in options.into_iter().rev() {
                            open.extend(self.prune_array(option)?);
                        }
                    }
                    None => {
                        let path = self.residue(
                            a.path.as_ref(),
                            "contains",
                            "an item that must occur somewhere in a list without a small `maxItems`",
                            "give the list a `maxItems` of at most 24, or make `items` say what all items are",
                        )
                        .map_err(|mut error| {
                            error.negated = some.negated;
                            error
                        })?;
                        a.path = Some(path);
                        open.push(a);
                    }
                }
            } else {
                done.push(a);
            }
            if open.len() + done.len() > self.limits.max_alternatives {
                let path = a_path(&done, &open);
                return Err(self.refuse(
                    &path,
                    "contains",
                    "needs too many alternatives",
                    "lower `maxItems`",
                ));
            }
        }
        let mut out = Vec::new();
        for a in done {
            self.write_plain(a, &mut out)?;
        }
        Ok(out)
    }

    /// The array with one open `contains` resolved by position; `None` if there are too many.
    fn place(&mut self, a: &Array, some: &Somewhere) -> Result<Option<Vec<Array>>, SchemaError> {
        let Some(max) = a.max.filter(|&max| max <= MAX_POSITIONS) else { return Ok(None) };
        let last = max as usize;
        if some.min == 1 && some.max.is_none() {
            let mut options = Vec::new();
            for i in some.from..last {
                let mut option = a.clone();
                extend(&mut option, i + 1);
                option.prefix[i] = self.forms.and([option.prefix[i], some.f]);
                option.min = option.min.max(i as u64 + 1);
                options.push(option);
            }
            return Ok(Some(options));
        }
        // Every item satisfies it or not.
        if last > 10 {
            return Ok(None);
        }
        let negated = self.forms.not(some.f);
        let mut options = Vec::new();
        for length in (a.min as usize)..=last {
            for bits in 0_u32..1 << length.saturating_sub(some.from) {
                let count = u64::from(bits.count_ones());
                if count < some.min || some.max.is_some_and(|max| count > max) {
                    continue;
                }
                let mut option = a.clone();
                extend(&mut option, length);
                for i in some.from..length {
                    let f = if bits >> (i - some.from) & 1 == 1 { some.f } else { negated };
                    option.prefix[i] = self.forms.and([option.prefix[i], f]);
                }
                (option.min, option.max) = (length as u64, Some(length as u64));
                options.push(option);
                if options.len() > self.limits.max_alternatives {
                    return Ok(None);
                }
            }
        }
        Ok(Some(options))
    }

    fn write_plain(&mut self, mut a: Array, out: &mut Vec<Value>) -> Result<(), SchemaError> {
        if a.unique && !a.max.is_some_and(|max| max <= 1) {
            if let Some(lists) = self.unique_lists(&a)? {
                self.rule_path("unique-items", a.path.as_ref());
                out.extend(lists);
                return Ok(());
            }
            self.residue(
                a.path.as_ref(),
                "uniqueItems",
                "items without repetition, unless there are very few possible ones",
                "leave `uniqueItems` out, or use an `enum` of at most 5 values or a `maxItems` of 1",
            )?;
            a.unique = false;
        }
        if a.repeated {
            self.residue(a.path.as_ref(), "not", "a list with a repetition", "leave it out").map_err(
                |mut error| {
                    error.negated = true;
                    error
                },
            )?;
        }
        let mut object = Map::new();
        object.insert("type".to_owned(), json!("array"));
        let used = a.max.map_or(a.prefix.len(), |max| a.prefix.len().min(max as usize));
        a.prefix.truncate(used);
        if !a.prefix.is_empty() {
            let list: Result<Vec<Value>, SchemaError> = a.prefix.iter().map(|&f| self.emit(f)).collect();
            object.insert("prefixItems".to_owned(), Value::Array(list?));
        }
        let closed = a.max.is_some_and(|max| max as usize <= a.prefix.len());
        if closed || a.rest == FALSE {
            object.insert("items".to_owned(), json!(false));
        } else if a.rest != TRUE {
            let rest = self.emit(a.rest)?;
            object.insert("items".to_owned(), rest);
        }
        if a.min > 0 {
            object.insert("minItems".to_owned(), json!(a.min));
        }
        if let Some(max) = a.max {
            object.insert("maxItems".to_owned(), json!(max));
        }
        out.push(Value::Object(object));
        Ok(())
    }

    /// All lists without repetition, if the items are few known values.
    fn unique_lists(&mut self, a: &Array) -> Result<Option<Vec<Value>>, SchemaError> {
        let length = a.max.map_or(usize::MAX, |max| max as usize);
        // A tuple of items that cannot be equal is unique by itself.
        if a.rest == FALSE || length <= a.prefix.len() {
            let n = length.min(a.prefix.len());
            let mut disjoint = n <= 12;
            for i in 0..n {
                for j in 0..i {
                    let both = self.forms.and([a.prefix[i], a.prefix[j]]);
                    disjoint = disjoint && self.is_empty(both)?;
                }
            }
            if disjoint {
                let mut plain = a.clone();
                plain.unique = false;
                let mut out = Vec::new();
                self.write_plain(plain, &mut out)?;
                return Ok(Some(out));
            }
        }
        let mut values = Vec::new();
        for f in a.prefix.iter().chain(Some(&a.rest)) {
            let Some(list) = self.finite(*f)? else { return Ok(None) };
            for value in list {
                if !values.contains(&value) {
                    values.push(value);
                }
            }
        }
        let n = values.len();
        let longest = length.min(n);
        let mut count = 1_usize;
        let mut lists = 0_usize;
        for k in 0..=longest {
            if k > 0 {
                count = count.saturating_mul(n - k + 1);
            }
            lists = lists.saturating_add(count);
        }
        if lists > MAX_LISTS {
            return Ok(None);
        }
        let mut found = Vec::new();
        let mut open: Vec<Vec<usize>> = vec![Vec::new()];
        while let Some(list) = open.pop() {
            let items: Vec<Value> = list.iter().map(|&i| values[i].clone()).collect();
            let plain = Array { unique: false, ..a.clone() };
            if self.fits_array(&plain, &items)? {
                found.push(Value::Array(items));
            }
            if list.len() < longest {
                for next in (0..n).filter(|i| !list.contains(i)) {
                    let mut longer = list.clone();
                    longer.push(next);
                    open.push(longer);
                }
            }
        }
        Ok((!found.is_empty()).then(|| vec![json!({ "enum": found })]))
    }

    /// The values of a formula, if they are few and known.
    pub(super) fn finite(&mut self, f: F) -> Result<Option<Vec<Value>>, SchemaError> {
        if f == FALSE {
            return Ok(Some(Vec::new()));
        }
        if matches!(self.forms.node(f), Node::True) {
            return Ok(None);
        }
        let mut values = Vec::new();
        for t in Type::ALL {
            for shape in self.shapes(f, false, t)?.iter() {
                match shape {
                    Shape::Null => values.push(Value::Null),
                    Shape::Boolean { yes, no } => {
                        values
                            .extend([(*yes, true), (*no, false)].iter().filter(|x| x.0).map(|x| json!(x.1)));
                    }
                    Shape::Text(text) => match text.words() {
                        Some(words) => values.extend(words.iter().map(|word| Value::from(&**word))),
                        None => return Ok(None),
                    },
                    Shape::Fixed(list) => values.extend(list.iter().cloned()),
                    Shape::Number(number) => match number.write() {
                        Ok(Value::Object(object)) if object.contains_key("enum") => {
                            values.extend(object["enum"].as_array().into_iter().flatten().cloned());
                        }
                        _ => return Ok(None),
                    },
                    Shape::Array(_) | Shape::Object(_) => return Ok(None),
                }
                if values.len() > 8 {
                    return Ok(None);
                }
            }
        }
        Ok(Some(values))
    }
}

enum Settled {
    Always,
    Never,
    Open(Somewhere),
}

/// Writes out the tuple to at least `length` items.
fn extend(a: &mut Array, length: usize) {
    while a.prefix.len() < length.min(MAX_TUPLE) {
        a.prefix.push(a.rest);
    }
}

fn a_path(done: &[Array], open: &[Array]) -> Option<Rc<str>> {
    done.iter().chain(open).find_map(|a| a.path.clone())
}
