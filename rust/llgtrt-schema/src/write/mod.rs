//! Writes formulas as schemas in llguidance's subset: unions of plain types, every larger schema once
//! under `$defs`.

mod array;
pub(crate) mod compose;
mod inhabited;
mod object;
pub(crate) mod rows;

use std::collections::HashMap;
use std::rc::Rc;

use serde_json::{Map, Value, json};

use crate::expand::Shape;
use crate::formula::{FALSE, FormulaId, TRUE, Type};
use crate::residual::Segment;
use crate::{Normalizer, Reason, ResidualMode, SchemaError};

/// Schemas up to this many nodes are repeated where they are used.
const INLINE_NODES: usize = 6;

/// What is written so far.
#[derive(Debug, Default)]
pub(crate) struct Emitter {
    state: HashMap<FormulaId, State>,
    defs: Vec<(FormulaId, Value)>,
    /// Formulas in the order in which they were started.
    log: Vec<FormulaId>,
    nodes: usize,
}

/// A state of the emitter to go back to.
#[derive(Debug, Clone, Copy)]
struct Mark {
    defs: usize,
    log: usize,
}

#[derive(Debug, Clone)]
enum State {
    /// Being written further up.
    Open,
    Inline(Value),
    Def,
}

fn name(f: FormulaId) -> String {
    format!("s{}", f.index())
}

fn reference(f: FormulaId) -> Value {
    json!({ "$ref": format!("#/$defs/{}", name(f)) })
}

fn nodes(value: &Value) -> usize {
    match value {
        Value::Array(list) => 1 + list.iter().map(nodes).sum::<usize>(),
        Value::Object(members) => 1 + members.values().map(nodes).sum::<usize>(),
        _ => 1,
    }
}

impl Normalizer<'_> {
    /// The whole schema.
    pub(crate) fn emit_root(&mut self, f: FormulaId) -> Result<Value, SchemaError> {
        let mut body = match f {
            TRUE => json!({}),
            FALSE => return Err(nothing()),
            f => {
                self.emitter.state.insert(f, State::Open);
                self.write(f)?
            }
        };
        if body == Value::Bool(false) {
            return Err(nothing());
        }
        if body == Value::Bool(true) {
            body = json!({});
        }
        let mut defs = Map::new();
        let list = std::mem::take(&mut self.emitter.defs);
        for (g, value) in list {
            defs.insert(name(g), value);
        }
        let text = body.to_string();
        let recursive = format!("\"#/$defs/{}\"", name(f));
        let mentioned =
            text.contains(&recursive) || defs.values().any(|v| v.to_string().contains(&recursive));
        if mentioned {
            defs.insert(name(f), body);
            body = reference(f);
        }
        if let (Value::Object(object), false) = (&mut body, defs.is_empty()) {
            object.insert("$defs".to_owned(), Value::Object(defs));
        }
        if !crate::write::inhabited::inhabited(&body) {
            return Err(nothing());
        }
        Ok(body)
    }

    /// A schema inside another one, whose value it reaches by `segment`: written in place if small,
    /// otherwise by reference.
    pub(crate) fn emit(&mut self, f: FormulaId, segment: Segment) -> Result<Value, SchemaError> {
        self.left.edge(f, segment);
        match f {
            TRUE => return Ok(Value::Bool(true)),
            FALSE => return Ok(Value::Bool(false)),
            _ => {}
        }
        match self.emitter.state.get(&f) {
            Some(State::Open | State::Def) => return Ok(reference(f)),
            Some(State::Inline(value)) => return Ok(value.clone()),
            None => {}
        }
        self.emitter.state.insert(f, State::Open);
        self.emitter.log.push(f);
        self.enter()?;
        let value = self.write(f);
        self.leave();
        let value = value?;
        if nodes(&value) <= INLINE_NODES && !value.to_string().contains("$ref") {
            self.emitter.state.insert(f, State::Inline(value.clone()));
            return Ok(value);
        }
        self.emitter.state.insert(f, State::Def);
        self.emitter.defs.push((f, value));
        Ok(reference(f))
    }

    fn write(&mut self, f: FormulaId) -> Result<Value, SchemaError> {
        self.left.enter(f);
        let written = self.write_types(f);
        self.left.leave();
        self.recollect(f)?;
        match written {
            Err(error) if error.is_beyond() && self.limits.residual == ResidualMode::Verify => {
                self.left.note(f, &error);
                Ok(Value::Bool(true))
            }
            written => written,
        }
    }

    fn write_types(&mut self, f: FormulaId) -> Result<Value, SchemaError> {
        let mut plain = Vec::new();
        let mut options: Vec<Value> = Vec::new();
        let mut points: Vec<Value> = Vec::new();
        for t in Type::ALL {
            let shapes = self.shapes(f, false, t)?;
            let shapes = self.absorb(&shapes)?;
            if shapes.iter().any(is_any) {
                plain.push(t);
                continue;
            }
            let from = (options.len(), points.len(), plain.len());
            let mut left_out = None;
            for shape in &shapes {
                let mark = Mark { defs: self.emitter.defs.len(), log: self.emitter.log.len() };
                match self.write_shape(f, shape, &mut points) {
                    Ok(list) => options.extend(list),
                    // Bounds and steps hold all the same.
                    Err(error)
                        if self.limits.residual == ResidualMode::Verify
                            && with_multiples(shape).is_some() =>
                    {
                        self.go_back(mark);
                        self.left.note(f, &error);
                        let relaxed = with_multiples(shape).unwrap_or(Shape::any(t));
                        options.extend(self.write_shape(f, &relaxed, &mut points)?);
                    }
                    // One way not to satisfy something; others may be enough.
                    Err(error) if error.reason == Reason::UnsupportedComplement => {
                        self.go_back(mark);
                        left_out.get_or_insert(error);
                    }
                    Err(error) if error.is_beyond() && self.limits.residual == ResidualMode::Verify => {
                        self.go_back(mark);
                        self.left.note(f, &error);
                        options.push(json!({ "type": t.name() }));
                    }
                    Err(error) => return Err(error),
                }
                if matches!(shape, Shape::Null) {
                    plain.push(t);
                }
            }
            if let Some(error) = left_out {
                if from != (options.len(), points.len(), plain.len()) {
                    let path: Rc<str> = error.param().into();
                    self.rule("narrowed", &path);
                } else if self.limits.residual == ResidualMode::Verify {
                    self.left.note(f, &error);
                    plain.push(t);
                } else {
                    return Err(error);
                }
            }
        }
        let mut merged: Vec<Value> = Vec::new();
        match plain.len() {
            0 => {}
            6 => return Ok(Value::Bool(true)),
            1 => merged.push(json!({ "type": plain[0].name() })),
            _ => merged.push(json!({ "type": plain.iter().map(|t| t.name()).collect::<Vec<_>>() })),
        }
        for option in options {
            // All listed values in one list.
            match option.get("enum").and_then(Value::as_array) {
                Some(list) => points.extend(list.iter().cloned()),
                None if !merged.contains(&option) => merged.push(option),
                None => {}
            }
        }
        let mut distinct: Vec<Value> = Vec::new();
        let mut seen = std::collections::HashSet::new();
        for point in points {
            if seen.insert(crate::formula::canonical(&point)) {
                distinct.push(point);
            }
        }
        match distinct.len() {
            0 => {}
            1 => merged.push(json!({ "const": distinct[0] })),
            _ => merged.push(json!({ "enum": distinct })),
        }
        let value = match merged.len() {
            0 => Value::Bool(false),
            1 => merged.swap_remove(0),
            _ => json!({ "anyOf": merged }),
        };
        self.emitter.nodes += nodes(&value);
        if self.emitter.nodes > self.limits.max_nodes {
            return Err(self.too_large(f));
        }
        Ok(value)
    }

    fn write_shape(
        &mut self,
        f: FormulaId,
        shape: &Shape,
        points: &mut Vec<Value>,
    ) -> Result<Vec<Value>, SchemaError> {
        let written = match shape {
            Shape::Null => return Ok(Vec::new()),
            Shape::Boolean { yes, .. } => {
                points.push(Value::Bool(*yes));
                return Ok(Vec::new());
            }
            Shape::Fixed(values) => {
                points.extend(values.iter().cloned());
                return Ok(Vec::new());
            }
            Shape::Array(array) => return self.write_array(array),
            Shape::Object(object) => return self.write_object(object),
            Shape::Number(number) => {
                number.write().map_err(|why| (why, "number", "use ranges and `multipleOf`"))
            }
            Shape::Text(text) => text
                .write(&mut self.langs)
                .map_err(|why| (why, "string", "write a pattern that says what is allowed")),
        };
        match written {
            Ok(value) => Ok(vec![value]),
            Err(((keyword, why), name, hint)) => {
                let path = self.forms.path(f).cloned();
                self.residual(path.as_ref(), (keyword, keyword == "not"), why, hint)?;
                Ok(vec![json!({ "type": name })])
            }
        }
    }

    /// Forgets what was written since, and what was begun.
    fn go_back(&mut self, mark: Mark) {
        self.emitter.defs.truncate(mark.defs);
        for f in self.emitter.log.drain(mark.log..) {
            self.emitter.state.remove(&f);
        }
    }

    /// Drops shapes that are part of another one.
    fn absorb(&mut self, shapes: &Rc<Vec<Shape>>) -> Result<Vec<Shape>, SchemaError> {
        let mut kept: Vec<Shape> = (**shapes).clone();
        if kept.len() > 64 || kept.len() < 2 || matches!(kept[0], Shape::Fixed(_) | Shape::Boolean { .. }) {
            return Ok(kept);
        }
        let mut at = 0;
        while at < kept.len() {
            let mut part = false;
            for other in 0..kept.len() {
                if other != at {
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
        path: Option<&Rc<str>>,
        (keyword, negated): (&str, bool),
        what: &str,
        hint: &str,
    ) -> Result<Rc<str>, SchemaError> {
        let path: Rc<str> = path.cloned().unwrap_or_else(|| "".into());
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

    pub(crate) fn rule_path(&mut self, rule: &'static str, path: Option<&Rc<str>>) {
        let path = path.cloned().unwrap_or_else(|| "".into());
        self.rule(rule, &path);
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

/// The error for what no grammar can hold.
pub(crate) fn refuse(path: Option<&Rc<str>>, keyword: &str, what: &str, hint: &str) -> SchemaError {
    let path = path.map_or("", |path| path);
    let (at, own) = crate::path::split_keyword(path);
    let is_keyword = crate::rules::is_keyword(own);
    let (at, own) = if is_keyword { (at, own) } else { (path, keyword) };
    SchemaError::new(at, own, format!("no grammar can hold this: {what}"), hint).because(Reason::Unsupported)
}

/// A shape of numbers without the steps that it excludes, if it excludes any.
fn with_multiples(shape: &Shape) -> Option<Shape> {
    match shape {
        Shape::Number(number) => number.with_multiples().map(Shape::Number),
        _ => None,
    }
}
