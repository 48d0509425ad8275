//! Writes formulas as schemas in llguidance's subset: unions of plain types, every larger schema once
//! under `$defs`.

mod array;
pub(crate) mod compose;
mod endless;
mod object;
mod productive;
mod regions;
mod rows;

use std::collections::HashSet;

use serde_json::Value;

use crate::budget::Spent;
use crate::error::{Reason, SchemaError, refuse};
use crate::formula::{FALSE, FormulaId, Num, TRUE, Type};
use crate::limits::ResidualMode;
use crate::normalizer::{Mark, Normalizer, Segment, State};
use crate::path::SchemaPath;
use crate::shape::Shape;
use crate::shape::number::Number;
use crate::shape::numerals::{Cannot, Means};
use crate::tree::{Document, Tree};

/// Schemas up to this many nodes are repeated where they are used.
const INLINE_NODES: usize = 6;

/// The alternatives of one schema, while they are collected.
#[derive(Debug, Default)]
struct Alternatives {
    /// Types of which every value is allowed.
    types: Vec<Type>,
    trees: Vec<Tree>,
    values: Vec<Value>,
}

impl Alternatives {
    fn len(&self) -> usize {
        self.types.len() + self.trees.len() + self.values.len()
    }

    fn extend(&mut self, list: Vec<Tree>) {
        for tree in list {
            match tree {
                // All listed values in one list.
                Tree::Values(values) => self.values.extend(values),
                tree if self.trees.contains(&tree) => {}
                tree => self.trees.push(tree),
            }
        }
    }

    fn tree(self) -> Tree {
        let Self { types, trees, values } = self;
        if types.len() == Type::ALL.len() {
            return Tree::Any;
        }
        let mut merged = Vec::new();
        if !types.is_empty() {
            merged.push(Tree::Types(types));
        }
        merged.extend(trees);
        let mut seen = HashSet::new();
        let distinct: Vec<Value> =
            values.into_iter().filter(|value| seen.insert(crate::formula::canonical(value))).collect();
        if !distinct.is_empty() {
            merged.push(Tree::Values(distinct));
        }
        match merged.len() {
            0 => Tree::Never,
            1 => merged.swap_remove(0),
            _ => Tree::AnyOf(merged),
        }
    }
}

impl Normalizer<'_> {
    /// The whole schema. Everything in it has a finite value.
    pub(crate) fn write_root(&mut self, f: FormulaId) -> Result<Document, SchemaError> {
        let mut root = match f {
            TRUE => Tree::Any,
            FALSE => return Err(nothing()),
            f => {
                self.emitter.state.insert(f, State::Open);
                self.write(f)?
            }
        };
        let mut definitions = std::mem::take(&mut self.emitter.definitions);
        let to_root = |tree: &Tree| tree.refers(&|g| g == f);
        if to_root(&root) || definitions.iter().any(|(_, tree)| to_root(tree)) {
            definitions.push((f, root));
            root = Tree::Reference(f);
        }
        let mut document = Document { root, definitions };
        document.prune(&self.budget);
        self.part_endless(&mut document)?;
        if document.root == Tree::Never {
            // What was left out may be all that there is.
            return Err(self.left_out.clone().unwrap_or_else(nothing));
        }
        Ok(document)
    }

    /// A schema inside another one, whose value it reaches by `segment`: written in place if small,
    /// otherwise by reference.
    pub(crate) fn emit(&mut self, f: FormulaId, segment: Segment) -> Result<Tree, SchemaError> {
        self.left.edge(f, segment);
        match f {
            TRUE => return Ok(Tree::Any),
            FALSE => return Ok(Tree::Never),
            _ => {}
        }
        match self.emitter.state.get(&f) {
            Some(State::Open | State::Definition) => return Ok(Tree::Reference(f)),
            Some(State::Inline(tree)) => return Ok(tree.clone()),
            None => {}
        }
        self.emitter.state.insert(f, State::Open);
        self.emitter.log.push(f);
        let level = self.enter()?;
        let tree = self.write(f)?;
        drop(level);
        if tree.nodes() <= INLINE_NODES && !tree.refers(&|_| true) {
            self.emitter.state.insert(f, State::Inline(tree.clone()));
            return Ok(tree);
        }
        self.emitter.state.insert(f, State::Definition);
        self.emitter.definitions.push((f, tree));
        Ok(Tree::Reference(f))
    }

    fn write(&mut self, f: FormulaId) -> Result<Tree, SchemaError> {
        self.left.enter(f);
        let written = self.write_types(f);
        self.left.leave();
        self.recollect(f)?;
        match written {
            Err(error) if error.is_beyond() && self.limits.residual == ResidualMode::Verify => {
                self.left.note(f, &error);
                Ok(Tree::Any)
            }
            written => written,
        }
    }

    fn write_types(&mut self, f: FormulaId) -> Result<Tree, SchemaError> {
        let mut all = Alternatives::default();
        for t in Type::ALL {
            let shapes = self.shapes(f, false, t)?;
            let shapes = self.avoid(f, &shapes)?;
            let shapes = self.absorb(shapes)?;
            let shapes = if self.limits.closes() { self.close(f, shapes)? } else { shapes };
            if shapes.iter().any(is_any) {
                all.types.push(t);
                continue;
            }
            let before = all.len();
            let mut left_out = None;
            for shape in &shapes {
                if let Some(error) = self.write_alternative(f, t, shape, &mut all)? {
                    left_out.get_or_insert(error);
                }
            }
            let Some(error) = left_out else { continue };
            if all.len() != before {
                let path: SchemaPath = error.param().into();
                self.rule("narrowed", &path);
                self.left_out.get_or_insert(error);
            } else if self.limits.residual == ResidualMode::Verify {
                self.left.note(f, &error);
                all.types.push(t);
            } else {
                return Err(error);
            }
        }
        let tree = all.tree();
        let nodes = tree.nodes();
        self.spend(f, nodes as u64)?;
        self.hold(f, 160 * nodes)?;
        self.emitter.nodes += nodes;
        self.emitter.property_squares += tree.property_squares();
        if self.emitter.nodes > self.limits.max_nodes {
            return Err(self.too_large(f));
        }
        if self.emitter.property_squares > self.limits.max_property_squares {
            return Err(self.spent(f, Spent::Properties));
        }
        if tree.ways() > self.limits.max_ways {
            return Err(self.spent(f, Spent::Ways));
        }
        Ok(tree)
    }

    /// Writes one shape of several. Gives the reason if it is left out although others may be enough.
    fn write_alternative(
        &mut self,
        f: FormulaId,
        t: Type,
        shape: &Shape,
        all: &mut Alternatives,
    ) -> Result<Option<SchemaError>, SchemaError> {
        let verify = self.limits.residual == ResidualMode::Verify;
        let mark = Mark { definitions: self.emitter.definitions.len(), log: self.emitter.log.len() };
        match self.write_shape(f, shape) {
            Ok(list) => all.extend(list),
            // Bounds and steps hold all the same.
            Err(error) if verify && with_multiples(shape).is_some() => {
                self.go_back(mark);
                self.left.note(f, &error);
                let relaxed = with_multiples(shape).unwrap_or(Shape::any(t));
                let list = self.write_shape(f, &relaxed)?;
                all.extend(list);
            }
            // One way not to satisfy something; others may be enough.
            Err(error) if error.reason == Reason::UnsupportedComplement => {
                self.go_back(mark);
                return Ok(Some(error));
            }
            Err(error) if error.is_beyond() && verify => {
                self.go_back(mark);
                self.left.note(f, &error);
                all.extend(vec![Tree::Types(vec![t])]);
            }
            Err(error) => return Err(error),
        }
        Ok(None)
    }

    fn write_shape(&mut self, f: FormulaId, shape: &Shape) -> Result<Vec<Tree>, SchemaError> {
        let written = match shape {
            Shape::Null => return Ok(vec![Tree::Types(vec![Type::Null])]),
            Shape::Boolean { yes, .. } => return Ok(vec![Tree::Values(vec![Value::Bool(*yes)])]),
            Shape::Fixed(values) if !values.iter().all(Num::all_doubles) => Err((
                ("const", "numbers of so many digits inside of a value are not exact"),
                Type::of(&values[0]),
                "write their digits as a string",
            )),
            Shape::Fixed(values) => return Ok(vec![Tree::Values((**values).clone())]),
            Shape::Array(array) => return self.write_array(array),
            Shape::Object(object) => return self.write_object(object),
            Shape::Number(number) => match self.write_number(f, number) {
                Ok(list) => return Ok(list),
                Err(cannot) => {
                    Err(((cannot.keyword, cannot.why), Type::Number, "use ranges and `multipleOf`"))
                }
            },
            Shape::Text(text) => text
                .write(&mut self.langs, self.limits.intersects)
                .map_err(|why| (why, Type::String, "write a pattern that says what is allowed")),
        };
        match written {
            Ok(value) => Ok(vec![Tree::scalar(value)]),
            Err(((keyword, why), t, hint)) => {
                let path = self.forms.path(f).cloned();
                self.residual(path.as_ref(), (keyword, keyword == "not"), why, hint)?;
                Ok(vec![match shape {
                    Shape::Text(text) => {
                        Tree::scalar(text.write_part(&mut self.langs, self.limits.intersects))
                    }
                    _ => Tree::Types(vec![t]),
                }])
            }
        }
    }

    fn write_number(&mut self, f: FormulaId, number: &Number) -> Result<Vec<Tree>, Cannot> {
        let means = match (self.compose, self.narrow) {
            (true, _) => Means::Grammar,
            (_, true) => Means::Narrowed,
            _ => Means::Schema,
        };
        let written = number.write(means).inspect_err(|cannot| self.has_wide_numbers |= cannot.is_wide)?;
        if let Some(rule) = written.rule {
            self.rule_path(rule, self.forms.path_near(f).cloned().as_ref());
        }
        if self.limits.bounds_digits()
            && !number.is_bounded_whole()
            && written.options.iter().any(|option| option.get("enum").is_none())
        {
            let near = self.forms.path_near(f).cloned().unwrap_or_else(SchemaPath::root);
            let (schema, own) = near.split_keyword();
            let path = if crate::keyword::is_constraint(own) { schema } else { near };
            self.rule("digits", &path);
        }
        let mut list: Vec<Tree> = written.options.into_iter().map(Tree::scalar).collect();
        if !written.digits.is_empty() {
            list.push(Tree::Digits(number.is_whole(), written.digits));
        }
        Ok(list)
    }

    /// Forgets what was written since, and what was begun.
    fn go_back(&mut self, mark: Mark) {
        self.emitter.definitions.truncate(mark.definitions);
        for f in self.emitter.log.drain(mark.log..) {
            self.emitter.state.remove(&f);
        }
    }

    /// Objects that name properties and say nothing of others take no others.
    fn close(&mut self, f: FormulaId, shapes: Vec<Shape>) -> Result<Vec<Shape>, SchemaError> {
        let mut out = Vec::with_capacity(shapes.len());
        // Ways to satisfy the schema that only exist because its objects are open.
        let mut contrived = Vec::new();
        for shape in shapes {
            match shape {
                Shape::Object(object) if object.is_closed_by_default() => {
                    let path = object.path.clone().or_else(|| self.forms.path(f).cloned());
                    self.rule_path("closed", path.as_ref());
                    match self.prune_object(object.closed())? {
                        Some(closed) if closed.needs_complement() => {
                            contrived.push(Shape::Object(Box::new(closed)));
                        }
                        Some(closed) => out.push(Shape::Object(Box::new(closed))),
                        None => contrived.push(Shape::Object(object)),
                    }
                }
                shape => out.push(shape),
            }
        }
        Ok(if out.is_empty() { contrived } else { out })
    }

    /// The shapes without the keys that they avoid.
    fn avoid(&mut self, f: FormulaId, shapes: &[Shape]) -> Result<Vec<Shape>, SchemaError> {
        let mut out = Vec::with_capacity(shapes.len());
        for shape in shapes {
            match shape {
                Shape::Object(object) if !object.avoided.is_empty() => match object.without_avoided() {
                    Some(without) => {
                        if object.may_have_avoided() {
                            self.rule_path("narrowed", self.forms.path(f).cloned().as_ref());
                        }
                        out.push(Shape::Object(Box::new(without)));
                    }
                    None if self.limits.residual == ResidualMode::Verify => {
                        let error = self.too_large(f);
                        self.left.note(f, &error);
                        out.push(shape.clone());
                    }
                    None => return Err(self.too_large(f)),
                },
                shape => out.push(shape.clone()),
            }
        }
        Ok(out)
    }

    fn absorbing_loses_keys(&self, larger: &Shape, part: &Shape) -> bool {
        match (larger, part) {
            (Shape::Object(larger), Shape::Object(part)) => {
                self.limits.closes() && larger.would_lose_keys_of(part)
            }
            _ => false,
        }
    }

    /// Drops shapes that are part of another one.
    fn absorb(&mut self, mut kept: Vec<Shape>) -> Result<Vec<Shape>, SchemaError> {
        if kept.len() > 64 || kept.len() < 2 || matches!(kept[0], Shape::Fixed(_) | Shape::Boolean { .. }) {
            return Ok(kept);
        }
        let mut at = 0;
        while at < kept.len() {
            let mut part = false;
            for other in 0..kept.len() {
                if other != at && !self.absorbing_loses_keys(&kept[other], &kept[at]) {
                    let both = self.meet(kept[at].clone(), &kept[other])?;
                    let both = match both {
                        Some(both) => self.prune(both)?,
                        None => None,
                    };
                    part = both.as_ref() == Some(&kept[at]);
                    if part {
                        break;
                    }
                }
            }
            if part {
                kept.remove(at);
            } else {
                at += 1;
            }
        }
        Ok(kept)
    }

    /// Notes what the grammar cannot hold, or refuses it. Returns the path. The keyword comes with
    /// whether it is one way of several not to satisfy something: then it is refused, as the other ways
    /// may be enough.
    pub(crate) fn residual(
        &mut self,
        path: Option<&SchemaPath>,
        (keyword, negated): (&str, bool),
        what: &str,
        hint: &str,
    ) -> Result<SchemaPath, SchemaError> {
        let path = path.cloned().unwrap_or_else(SchemaPath::root);
        let mut error = refuse(Some(&path), keyword, what, hint);
        if negated {
            error.reason = Reason::UnsupportedComplement;
        }
        match self.left.owner() {
            Some(f) if self.limits.residual == ResidualMode::Verify && !negated => {
                self.left.note(f, &error);
                Ok(path)
            }
            _ => Err(error),
        }
    }
}

fn is_any(shape: &Shape) -> bool {
    match shape {
        Shape::Null => true,
        Shape::Boolean { yes, no } => *yes && *no,
        Shape::Number(number) => number.is_any(),
        Shape::Text(text) => text.is_any(),
        Shape::Array(array) => array.is_any(),
        // The order of properties is kept even if they may be anything.
        Shape::Object(object) => object.is_any() && object.named.is_empty(),
        Shape::Fixed(_) => false,
    }
}

fn nothing() -> SchemaError {
    SchemaError::new("", "", "the schema allows nothing: no value satisfies it", "")
        .because(Reason::AllowsNothing)
}

/// A shape of numbers without the steps that it excludes, if it excludes any.
fn with_multiples(shape: &Shape) -> Option<Shape> {
    match shape {
        Shape::Number(number) => number.with_multiples().map(Shape::Number),
        _ => None,
    }
}
