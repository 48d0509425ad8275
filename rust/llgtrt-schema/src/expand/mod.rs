//! Formulas as alternatives: for one type, a list of shapes whose union is the formula.
//!
//! A shape is a conjunction of constraints on values of one type, merged. Shapes that no value can
//! have are dropped where that can be proven; what is not proven stays, which is always correct.

mod array;
mod object;
mod one_of;
mod shapes;

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use serde_json::Value;

use crate::budget::weight;
use crate::error::{Reason, SchemaError};
use crate::formula::{FormulaId, Lit, Node, TRUE, Type};
use crate::limits::ResidualMode;
use crate::normalizer::Normalizer;
use crate::path::SchemaPath;
use crate::shape::{Shape, Shapes};

/// Depth of values up to which emptiness is looked for.
const EMPTY_DEPTH: usize = 40;

/// Entries of all shapes of a list together. What is written of more would have too many nodes.
const MAX_LIST_WEIGHT: u64 = 200_000;

impl Normalizer<'_> {
    /// The values of type `t` that satisfy `f`, or that do not if `negated`.
    pub(crate) fn shapes(&mut self, f: FormulaId, negated: bool, t: Type) -> Result<Rc<Shapes>, SchemaError> {
        if let Some(known) = self.shapes.get(&(f, negated, t)) {
            return Ok(Rc::clone(known));
        }
        self.step(f)?;
        let level = self.enter()?;
        let result = self.expand(f, negated, t);
        drop(level);
        let list = self.checked(f, result, t)?;
        self.hold(f, 150 + list.iter().map(Shape::bytes).sum::<usize>())?;
        let list = Rc::new(list);
        self.shapes.insert((f, negated, t), Rc::clone(&list));
        Ok(list)
    }

    /// The shapes of `f` without those that are twice; all of type `t` if they are left open.
    fn checked(
        &mut self,
        f: FormulaId,
        result: Result<Shapes, SchemaError>,
        t: Type,
    ) -> Result<Shapes, SchemaError> {
        let result = result.and_then(|mut list| {
            self.dedup(f, &mut list)?;
            if list.len() > self.limits.max_alternatives { Err(self.too_large(f)) } else { Ok(list) }
        });
        match result {
            // Everything holds more than what cannot be told, whether it is negated or not.
            Err(error) if error.is_beyond() && self.limits.residual == ResidualMode::Verify => {
                self.left.taint(f, error);
                Ok(vec![Shape::any(t)])
            }
            result => result,
        }
    }

    fn expand(&mut self, f: FormulaId, negated: bool, t: Type) -> Result<Shapes, SchemaError> {
        match self.forms.node(f).clone() {
            Node::True => Ok(if negated { Vec::new() } else { vec![Shape::any(t)] }),
            Node::False => Ok(if negated { vec![Shape::any(t)] } else { Vec::new() }),
            Node::Not(inner) => Ok((*self.shapes(inner, !negated, t)?).clone()),
            Node::And(list) if !negated => {
                if let Some(values) = self.listed(&list, t)? {
                    return Ok(shapes::value_shapes(&values, t));
                }
                let parts: Vec<(FormulaId, bool)> = list.iter().map(|&g| (g, false)).collect();
                self.product(f, &parts, t)
            }
            Node::Or(list) if negated => {
                let parts: Vec<(FormulaId, bool)> = list.iter().map(|&g| (g, true)).collect();
                self.product(f, &parts, t)
            }
            Node::And(list) | Node::Or(list) => {
                let mut out = Vec::new();
                let mut size = 0;
                for &g in list.iter() {
                    let shapes = self.shapes(g, negated, t)?;
                    size += self.room(f, size, &shapes)?;
                    out.extend(shapes.iter().cloned());
                    if out.len() > 4 * self.limits.max_alternatives {
                        return Err(self.too_large(f));
                    }
                }
                Ok(out)
            }
            Node::One(list) if negated => {
                let none: Vec<FormulaId> = list.iter().map(|&g| self.forms.not(g)).collect();
                let mut options = vec![self.forms.and(none)];
                for (i, &a) in list.iter().enumerate() {
                    self.spend(f, (list.len() - i) as u64)?;
                    for &b in &list[i + 1..] {
                        options.push(self.forms.and([a, b]));
                    }
                }
                let any = self.forms.or(options);
                Ok((*self.shapes(any, false, t)?).clone())
            }
            Node::One(list) => self.exactly_one(f, &list, TRUE, t),
            Node::Def(number) => {
                let entry = (number, negated);
                if !self.following.last_mut().is_some_and(|set| set.insert(entry)) {
                    let path = self.forms.path(f).cloned().unwrap_or_else(SchemaPath::root);
                    let (path, keyword) = path.split_keyword();
                    return Err(SchemaError::new(
                        &path,
                        keyword,
                        "the reference leads back to itself without a value in between",
                        "",
                    )
                    .because(Reason::Circular));
                }
                let result = self.def_body(number).and_then(|body| self.shapes(body, negated, t));
                if let Some(set) = self.following.last_mut() {
                    set.remove(&entry);
                }
                Ok((*result?).clone())
            }
            Node::Lit(lit) => self.lit_shapes(f, &lit, negated, t),
        }
    }

    /// If one of the formulas lists values: those of type `t` that satisfy all.
    fn listed(&mut self, list: &[FormulaId], t: Type) -> Result<Option<Vec<Value>>, SchemaError> {
        let found = list.iter().find_map(|&f| match self.forms.node(f) {
            Node::Lit(Lit::Values(values)) => Some((f, Rc::clone(&values.list))),
            _ => None,
        });
        let Some((own, values)) = found else { return Ok(None) };
        self.rule_at("enum-filter", own);
        let mut kept = Vec::new();
        for value in values.iter().filter(|value| Type::of(value) == t) {
            let mut all = true;
            for &f in list.iter().filter(|&&f| f != own) {
                match self.eval(f, value) {
                    Ok(true) => {}
                    Ok(false) => {
                        all = false;
                        break;
                    }
                    // Kept, as long as it is not known to be wrong.
                    Err(error) if error.is_beyond() && self.limits.residual == ResidualMode::Verify => {
                        self.left.taint(f, error);
                    }
                    Err(error) => return Err(error),
                }
            }
            if all {
                kept.push(value.clone());
            }
        }
        Ok(Some(kept))
    }

    pub(crate) fn rule_at(&mut self, rule: &'static str, f: FormulaId) {
        let path = self.forms.path(f).cloned().unwrap_or_else(SchemaPath::root);
        self.rule(rule, &path);
    }

    /// Everything that satisfies all of the parts.
    pub(crate) fn product(
        &mut self,
        whole: FormulaId,
        parts: &[(FormulaId, bool)],
        t: Type,
    ) -> Result<Shapes, SchemaError> {
        let mut all = vec![Shape::any(t)];
        let parts = &*self.with_alternatives(parts)?;
        for &(part, negated) in parts {
            let options = match self.forms.node(part).clone() {
                Node::One(list) if !negated && !self.shapes.contains_key(&(part, false, t)) => {
                    let beside = self.beside(part, parts);
                    let result = self.exactly_one(part, &list, beside, t);
                    Rc::new(self.checked(part, result, t)?)
                }
                _ => self.shapes(part, negated, t)?,
            };
            // A single option only fails where values are listed.
            let may_fail = options.len() != 1 || matches!(options[0], Shape::Fixed(_));
            let before = (may_fail && self.limits.residual == ResidualMode::Verify).then(|| all.clone());
            all = match (self.meet_lists(whole, all, &options), before) {
                // This part is left open, and the others are not.
                (Err(error), Some(before)) if error.is_beyond() => {
                    self.left.taint(whole, error);
                    before
                }
                (result, _) => result?,
            };
            if all.is_empty() {
                return Ok(all);
            }
        }
        let mut kept = Vec::with_capacity(all.len());
        for shape in all {
            if let Some(shape) = self.prune(shape)? {
                kept.push(shape);
            }
        }
        Ok(kept)
    }

    fn meet_lists(
        &mut self,
        whole: FormulaId,
        all: Shapes,
        options: &[Shape],
    ) -> Result<Shapes, SchemaError> {
        if let [option] = options {
            let mut met = Vec::with_capacity(all.len());
            let mut size = 0;
            for shape in all {
                self.step(whole)?;
                if let Some(both) = self.meet(shape, option)? {
                    size += self.room(whole, size, std::slice::from_ref(&both))?;
                    met.push(both);
                }
            }
            return Ok(met);
        }
        let mut met = Vec::new();
        let mut size = 0;
        for shape in all {
            let from = met.len();
            for option in options {
                self.spend(whole, 1 + shape.weight() / 4)?;
                let Some(both) = self.meet(shape.clone(), option)? else { continue };
                let Some(both) = self.prune(both)? else { continue };
                size += self.room(whole, size, std::slice::from_ref(&both))?;
                if both == shape && !self.loses_keys(&shape, options) {
                    // The option asks for nothing new: the others add nothing.
                    met.truncate(from);
                    met.push(both);
                    break;
                }
                met.push(both);
            }
            self.dedup(whole, &mut met)?;
            if met.len() > self.limits.max_alternatives {
                return Err(self.too_large(whole));
            }
        }
        Ok(met)
    }

    /// Whether some option has keys that the shape, closed by default, would not take.
    fn loses_keys(&self, shape: &Shape, options: &[Shape]) -> bool {
        let Shape::Object(object) = shape else { return false };
        let more = |option: &Shape| match option {
            Shape::Object(other) => {
                other.named.keys().any(|key| !object.named.contains_key(key)) || other.open
            }
            _ => false,
        };
        self.limits.closes() && object.is_closed_by_default() && options.iter().any(more)
    }

    /// Whether the lists may have a value in common.
    fn overlap(&mut self, whole: FormulaId, a: &[Shape], b: &[Shape]) -> Result<bool, SchemaError> {
        for x in a {
            for y in b {
                self.spend(whole, 1 + x.weight() / 4)?;
                if let Some(both) = self.meet(x.clone(), y)? {
                    if self.prune(both)?.is_some() {
                        return Ok(true);
                    }
                }
            }
        }
        Ok(false)
    }

    /// Both at once; `None` if that is impossible at first sight.
    pub(crate) fn meet(&mut self, a: Shape, b: &Shape) -> Result<Option<Shape>, SchemaError> {
        self.spend(TRUE, b.weight() / 4)?;
        Ok(match (a, b) {
            (Shape::Null, Shape::Null) => Some(Shape::Null),
            (Shape::Boolean { yes, no }, Shape::Boolean { yes: y, no: n }) => {
                let (yes, no) = (yes && *y, no && *n);
                (yes || no).then_some(Shape::Boolean { yes, no })
            }
            (Shape::Number(a), Shape::Number(b)) => a.meet(b).map(Shape::Number),
            (Shape::Text(a), Shape::Text(b)) => a.meet(b, &mut self.langs).map(Shape::Text),
            (Shape::Array(a), Shape::Array(b)) => self.meet_arrays(*a, b).map(|a| Shape::Array(Box::new(a))),
            (Shape::Object(a), Shape::Object(b)) => {
                self.meet_objects(*a, b).map(|o| Shape::Object(Box::new(o)))
            }
            (Shape::Fixed(values), other) => self.filter(&values, other)?,
            (shape, Shape::Fixed(values)) => self.filter(values, &shape)?,
            _ => None,
        })
    }

    fn filter(&mut self, values: &[Value], shape: &Shape) -> Result<Option<Shape>, SchemaError> {
        let mut kept = Vec::new();
        let mut others = HashSet::new();
        if let Shape::Fixed(values) = shape {
            self.spend(TRUE, values.iter().map(weight).sum())?;
            others.extend(values.iter().map(crate::formula::canonical));
        }
        for value in values {
            self.spend(TRUE, weight(value))?;
            let fits = match (shape, value) {
                (Shape::Array(array), Value::Array(items)) => self.fits_array(array, items)?,
                (Shape::Object(object), Value::Object(members)) => self.fits_object(object, members)?,
                (Shape::Fixed(_), value) => others.contains(&crate::formula::canonical(value)),
                _ => false,
            };
            if fits {
                kept.push(value.clone());
            }
        }
        Ok((!kept.is_empty()).then(|| Shape::Fixed(Rc::new(kept))))
    }

    /// Drops a shape that no value can have, as far as that is seen.
    pub(crate) fn prune(&mut self, shape: Shape) -> Result<Option<Shape>, SchemaError> {
        Ok(match shape {
            Shape::Number(number) => (!number.is_empty()).then_some(Shape::Number(number)),
            Shape::Text(text) => text.prune(&mut self.langs).map(Shape::Text),
            Shape::Array(array) => self.prune_array(*array)?.map(|a| Shape::Array(Box::new(a))),
            Shape::Object(object) => self.prune_object(*object)?.map(|o| Shape::Object(Box::new(o))),
            other => Some(other),
        })
    }

    /// The size of shapes that are added to a list of size `size`, if there is room for them.
    fn room(&self, whole: FormulaId, size: u64, shapes: &[Shape]) -> Result<u64, SchemaError> {
        let more = shapes.iter().map(Shape::weight).sum();
        if size + more > MAX_LIST_WEIGHT { Err(self.too_large(whole)) } else { Ok(more) }
    }

    /// Drops what is in the list already.
    fn dedup(&self, whole: FormulaId, list: &mut Shapes) -> Result<(), SchemaError> {
        if list.len() < 2 {
            return Ok(());
        }
        let mut kept: HashMap<u64, Vec<usize>> = HashMap::new();
        let mut out = Shapes::with_capacity(list.len());
        for shape in list.drain(..) {
            let same = kept.entry(shape.fingerprint()).or_default();
            self.spend(whole, (1 + same.len() as u64) * (1 + shape.weight() / 2))?;
            if !same.iter().any(|&at| out[at] == shape) {
                same.push(out.len());
                out.push(shape);
            }
        }
        *list = out;
        Ok(())
    }

    /// Whether no value satisfies the formula, as far as that is seen.
    pub(crate) fn is_empty(&mut self, f: FormulaId) -> Result<bool, SchemaError> {
        match self.forms.node(f) {
            Node::True | Node::Lit(Lit::Types(_) | Lit::Values(_)) => return Ok(false),
            Node::False => return Ok(true),
            _ => {}
        }
        if let Some(&known) = self.empties.get(&f) {
            return Ok(known);
        }
        if self.following.len() > EMPTY_DEPTH || !self.testing.insert(f) {
            return Ok(false);
        }
        self.following.push(HashSet::new());
        let mut empty = Ok(true);
        for t in Type::ALL {
            match self.shapes(f, false, t) {
                Ok(list) if list.is_empty() => {}
                Ok(_) => {
                    empty = Ok(false);
                    break;
                }
                Err(error) => {
                    empty = Err(error);
                    break;
                }
            }
        }
        self.following.pop();
        self.testing.remove(&f);
        let empty = empty?;
        self.empties.insert(f, empty);
        Ok(empty)
    }
}
