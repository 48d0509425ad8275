//! Writes arrays as alternatives that llguidance can hold: a tuple, one schema for the rest, and counts.

use serde_json::{Value, json};

use crate::error::{SchemaError, refuse};
use crate::formula::{FALSE, FormulaId, Node, TRUE, Type};
use crate::normalizer::{Normalizer, Segment};
use crate::path::SchemaPath;
use crate::shape::Shape;
use crate::shape::array::{Array, ContainsCount};
use crate::tree::{ArrayTree, Tree};

/// Positions at which an item may be required to occur.
const MAX_POSITIONS: u64 = 24;

/// Lists that are written out for unique items.
const MAX_LISTS: usize = 400;

/// Items of a tuple that bounds are expanded to.
const MAX_TUPLE: usize = 200;

impl Normalizer<'_> {
    /// Writes an array as a list of alternatives.
    pub(crate) fn write_array(&mut self, a: &Array) -> Result<Vec<Tree>, SchemaError> {
        let mut open = vec![a.clone()];
        let mut done = Vec::new();
        let mut composed = Vec::new();
        while let Some(mut a) = open.pop() {
            self.step(TRUE)?;
            if let Some(some) = a.exists.pop() {
                if let Some(options) = self.place(&a, &some) {
                    // In order: the first position first.
                    for option in options.into_iter().rev() {
                        open.extend(self.prune_array(option)?);
                    }
                } else if self.compose {
                    a.exists.push(some);
                    composed.push(a);
                } else {
                    self.residual(
                        Some(&some.path),
                        ("contains", some.negated),
                        "an item that must occur somewhere in a list without a small `maxItems`",
                        "give the list a `maxItems` of at most 24, or make `items` say what all items are",
                    )?;
                    open.push(a);
                }
            } else {
                done.push(a);
            }
            if open.len() + done.len() > self.limits.max_alternatives {
                let path = a_path(&done, &open);
                return Err(refuse(
                    path.as_ref(),
                    "contains",
                    "needs too many alternatives",
                    "lower `maxItems`",
                ));
            }
        }
        let mut out = Vec::new();
        for mut a in composed {
            self.no_repetition(&mut a)?;
            self.rule_path("composed", a.path());
            out.extend(self.array_rows(&a, None)?);
        }
        for a in done {
            self.write_plain(a, &mut out)?;
        }
        Ok(out)
    }

    /// The array with one open `contains` resolved by position; `None` if there are too many.
    fn place(&mut self, a: &Array, some: &ContainsCount) -> Option<Vec<Array>> {
        let max = a.max.filter(|&max| max <= MAX_POSITIONS)?;
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
            return Some(options);
        }
        // Every item satisfies it or not.
        if last > 10 {
            return None;
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
                    return None;
                }
            }
        }
        Some(options)
    }

    fn write_plain(&mut self, mut a: Array, out: &mut Vec<Tree>) -> Result<(), SchemaError> {
        if a.unique && a.max.is_none_or(|max| max > 1) {
            if let Some(lists) = self.unique_lists(&a)? {
                self.rule_path("unique-items", a.unique_path.as_ref());
                out.extend(lists);
                return Ok(());
            }
        }
        self.no_repetition(&mut a)?;
        let automaton = self.compose.then(|| a.clone());
        let used = a.max.map_or(a.prefix.len(), |max| a.prefix.len().min(max as usize));
        a.prefix.truncate(used);
        let prefix: Result<Vec<Tree>, SchemaError> =
            a.prefix.iter().map(|&f| self.emit(f, Segment::AnyIndex)).collect();
        let closed = a.max.is_some_and(|max| max as usize <= a.prefix.len());
        let rest = if closed { Tree::Never } else { self.emit(a.rest, Segment::AnyIndex)? };
        let tree = Tree::Array(Box::new(ArrayTree { prefix: prefix?, rest, min: a.min, max: a.max }));
        let both = match automaton {
            Some(a) => self.array_rows(&a, Some(tree.clone())).ok().flatten(),
            None => None,
        };
        out.push(both.unwrap_or(tree));
        Ok(())
    }

    /// Leaves open, or refuses, whether items repeat.
    fn no_repetition(&mut self, a: &mut Array) -> Result<(), SchemaError> {
        if a.unique && a.max.is_none_or(|max| max > 1) {
            self.residual(
                a.unique_path.as_ref(),
                ("uniqueItems", false),
                "items without repetition, unless there are very few possible ones",
                "leave `uniqueItems` out, or use an `enum` of at most 5 values or a `maxItems` of 1",
            )?;
            a.unique = false;
        }
        if a.repeated {
            self.residual(a.unique_path.as_ref(), ("not", true), "a list with a repetition", "leave it out")?;
        }
        Ok(())
    }

    /// All lists without repetition, if the items are few known values.
    fn unique_lists(&mut self, a: &Array) -> Result<Option<Vec<Tree>>, SchemaError> {
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
        if a.min > n as u64 {
            return Ok(Some(Vec::new()));
        }
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
        Ok(Some(if found.is_empty() { Vec::new() } else { vec![Tree::Values(found)] }))
    }

    /// The values of a formula, if they are few and known.
    pub(crate) fn finite(&mut self, f: FormulaId) -> Result<Option<Vec<Value>>, SchemaError> {
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
                    Shape::Number(number) => match number.values() {
                        Some(list) => values.extend(list),
                        None => return Ok(None),
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

/// Writes out the tuple to at least `length` items.
fn extend(a: &mut Array, length: usize) {
    while a.prefix.len() < length.min(MAX_TUPLE) {
        a.prefix.push(a.rest);
    }
}

fn a_path(done: &[Array], open: &[Array]) -> Option<SchemaPath> {
    done.iter().chain(open).find_map(|a| a.path().cloned())
}
