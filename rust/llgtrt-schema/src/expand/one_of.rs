//! Exactly one of several formulas: each without what others accept as well.
//!
//! What two branches have in common is looked for among their shapes, and in what stands beside the whole. A branch is cut
//! to what is outside of its rivals; where that takes too many shapes, it leaves out the keys that only they require, and
//! what overlaps all the same is left open.

use std::rc::Rc;

use crate::error::SchemaError;
use crate::formula::{FALSE, FormulaId, Lit, Node, TRUE, Type};
use crate::limits::ResidualMode;
use crate::normalizer::Normalizer;
use crate::shape::object::Object;
use crate::shape::{Shape, Shapes};

/// Keys of alternatives that overlap, all together. A grammar that may go on with each of them is slow at every token.
const MAX_KEYS: usize = 1024;

impl Normalizer<'_> {
    /// The parts, of which references to a schema with `oneOf` are replaced by the parts of that schema: what stands beside
    /// a reference tells its alternatives apart as well.
    pub(super) fn with_alternatives(
        &mut self,
        parts: &[(FormulaId, bool)],
    ) -> Result<Vec<(FormulaId, bool)>, SchemaError> {
        let mut out = Vec::with_capacity(parts.len());
        for &(part, negated) in parts {
            match if negated { None } else { self.alternatives_behind(part)? } {
                Some(list) => out.extend(list.iter().map(|&f| (f, false))),
                None => out.push((part, negated)),
            }
        }
        Ok(out)
    }

    /// The parts of the schema that a reference leads to, if one of them is a `oneOf`.
    fn alternatives_behind(&mut self, part: FormulaId) -> Result<Option<Rc<[FormulaId]>>, SchemaError> {
        let mut body = part;
        let mut passed = Vec::new();
        while let Node::Def(id) = *self.forms.node(body) {
            self.spend(part, 1 + passed.len() as u64)?;
            // It leads back to itself: whoever follows it says so.
            if passed.contains(&id) {
                return Ok(None);
            }
            passed.push(id);
            body = self.def_body(id)?;
        }
        if passed.is_empty() {
            return Ok(None);
        }
        let is_one = |f: FormulaId| matches!(self.forms.node(f), Node::One(_));
        Ok(match self.forms.node(body) {
            Node::One(_) => Some(Rc::new([body])),
            Node::And(list) if list.iter().any(|&f| is_one(f)) => Some(Rc::clone(list)),
            _ => None,
        })
    }

    /// What holds beside `part`, where all of the parts do.
    pub(super) fn beside(&mut self, part: FormulaId, parts: &[(FormulaId, bool)]) -> FormulaId {
        let mut others = Vec::new();
        for &(other, negated) in parts {
            // The type is known, and of several such lists each would expand the others.
            if other != part && !matches!(self.forms.node(other), Node::One(_) | Node::Lit(Lit::Types(_))) {
                others.push(if negated { self.forms.not(other) } else { other });
            }
        }
        self.forms.and(others)
    }

    /// Exactly one of the list, where `beside` holds as well. Alternatives often exclude each other only with
    /// that, such as by a key that the schema around them requires.
    pub(super) fn exactly_one(
        &mut self,
        f: FormulaId,
        list: &[FormulaId],
        beside: FormulaId,
        t: Type,
    ) -> Result<Shapes, SchemaError> {
        let mut options = Vec::new();
        for &g in list {
            options.push(self.shapes(g, false, t)?);
        }
        let mut each = Vec::new();
        for i in 0..list.len() {
            let rivals = self.rivals(f, i, list, &options, beside, t)?;
            if !rivals.contains(&i) {
                each.push((Rc::clone(&options[i]), rivals));
            }
        }
        let mut out = Vec::new();
        for (own, rivals) in &each {
            let others = rivals.iter().map(|&j| (list[j], &options[j]));
            match self.outside(f, own, others, t).and_then(|exact| self.add(f, &mut out, exact)) {
                Ok(()) => {}
                Err(error) if error.is_beyond() => {
                    return self.exactly_one_by_keys(f, &each, &options, &error);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(out)
    }

    /// Adds what may have a value.
    fn add(&mut self, f: FormulaId, out: &mut Shapes, shapes: Shapes) -> Result<(), SchemaError> {
        for shape in shapes {
            if let Some(shape) = self.prune(shape)? {
                out.push(shape);
            }
        }
        if out.len() > self.limits.max_alternatives { Err(self.too_large(f)) } else { Ok(()) }
    }

    /// Each of the alternatives without the keys that only others need: a part of exactly one of them that takes no
    /// more shapes than they have. What overlaps is left open, or `error`, where some other needs no such key. `error` as
    /// well where all together have too many keys.
    fn exactly_one_by_keys(
        &mut self,
        f: FormulaId,
        each: &[(Rc<Shapes>, Vec<usize>)],
        options: &[Rc<Shapes>],
        error: &SchemaError,
    ) -> Result<Shapes, SchemaError> {
        let objects = each.iter().flat_map(|(own, _)| own.iter()).filter_map(Shape::object);
        if objects.map(|object| object.named.len()).sum::<usize>() > MAX_KEYS {
            return Err(error.clone());
        }
        let mut out = Vec::new();
        for (own, rivals) in each {
            let mut exact = (**own).clone();
            for &j in rivals {
                if let Some(key) = self.key_of_other(&exact, &options[j]) {
                    for shape in &mut exact {
                        if let Shape::Object(object) = shape {
                            object.avoided.insert(Rc::clone(&key));
                        }
                    }
                } else if self.limits.residual == ResidualMode::Verify {
                    self.left.taint(f, error.clone());
                } else {
                    return Err(error.clone());
                }
            }
            self.add(f, &mut out, exact)?;
        }
        Ok(out)
    }

    /// The alternatives that may have a value in common with the one at `i`, where `beside` holds as well: `i` itself
    /// if it is there twice.
    fn rivals(
        &mut self,
        f: FormulaId,
        i: usize,
        list: &[FormulaId],
        options: &[Rc<Shapes>],
        beside: FormulaId,
        t: Type,
    ) -> Result<Vec<usize>, SchemaError> {
        let own = &options[i];
        let mut inside: Option<Shapes> = None;
        let mut rivals = Vec::new();
        self.spend(f, options.len() as u64)?;
        for (j, other) in options.iter().enumerate() {
            if i == j || own.is_empty() || other.is_empty() {
                continue;
            }
            if list[i] == list[j] {
                return Ok(vec![i]);
            }
            if !self.overlap(f, own, other)? {
                continue;
            }
            if beside != TRUE {
                if inside.is_none() {
                    inside = Some(self.inside(f, own, beside, t)?);
                }
                if let Some(inside) = &inside {
                    if !self.overlap(f, inside, other)? {
                        continue;
                    }
                }
            }
            self.rule_at("one-of-exclusive", f);
            rivals.push(j);
        }
        Ok(rivals)
    }

    /// Those of the shapes that `beside` allows; all where that takes too many alternatives.
    fn inside(
        &mut self,
        f: FormulaId,
        own: &Shapes,
        beside: FormulaId,
        t: Type,
    ) -> Result<Shapes, SchemaError> {
        let around = self.shapes(beside, false, t)?;
        match self.meet_lists(f, own.clone(), &around) {
            Err(error) if error.is_beyond() => Ok(own.clone()),
            result => result,
        }
    }

    /// What of the shapes satisfies none of the others.
    fn outside<'o>(
        &mut self,
        f: FormulaId,
        own: &Shapes,
        others: impl Iterator<Item = (FormulaId, &'o Rc<Shapes>)>,
        t: Type,
    ) -> Result<Shapes, SchemaError> {
        let mut exact = own.clone();
        for (other, shapes) in others {
            // What is left may have nothing in common with it any more.
            if self.overlap(f, &exact, shapes)? {
                let outside = self.shapes(other, true, t)?;
                exact = self.meet_lists(f, exact, &outside)?;
            }
        }
        Ok(exact)
    }

    /// A key that all of the others need and that the shapes, closed by default, do not know.
    fn key_of_other(&self, own: &Shapes, others: &Shapes) -> Option<Rc<str>> {
        fn objects(list: &Shapes) -> Option<Vec<&Object>> {
            list.iter().map(Shape::object).collect()
        }
        let (own, others) = (objects(own)?, objects(others)?);
        if !self.limits.closes() || !own.iter().all(|object| object.is_closed_by_default()) {
            return None;
        }
        let (first, rest) = others.split_first()?;
        let is_theirs = |key: &&Rc<str>| rest.iter().all(|object| object.required.contains(*key));
        let is_own =
            |key: &Rc<str>| own.iter().any(|object| object.named.get(key).is_some_and(|n| n.f != FALSE));
        first.required.iter().filter(is_theirs).find(|key| !is_own(key)).cloned()
    }
}
