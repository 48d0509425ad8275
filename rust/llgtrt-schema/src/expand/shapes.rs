//! The shapes of single constraints, and of lists of values.

use std::rc::Rc;

use serde_json::Value;

use crate::budget::weight;
use crate::error::SchemaError;
use crate::formula::{FALSE, FormulaId, Lit, Num, TRUE, Type};
use crate::normalizer::Normalizer;
use crate::path::SchemaPath;
use crate::shape::number::Number;
use crate::shape::string::Text;
use crate::shape::{Shape, Shapes};

impl Normalizer<'_> {
    pub(crate) fn lit_shapes(
        &mut self,
        f: FormulaId,
        lit: &Lit,
        negated: bool,
        t: Type,
    ) -> Result<Shapes, SchemaError> {
        let shapes = match (lit, t) {
            (Lit::Types(bits), t) => {
                if (bits & t.bit() != 0) == negated {
                    Vec::new()
                } else {
                    vec![Shape::any(t)]
                }
            }
            (Lit::Values(values), t) => {
                self.spend(f, values.list.iter().map(weight).sum())?;
                let list: Vec<Value> = values.list.iter().filter(|v| Type::of(v) == t).cloned().collect();
                if negated { self.other_shapes(&list, t)? } else { value_shapes(&list, t) }
            }
            (Lit::Integer | Lit::Least(..) | Lit::Most(..) | Lit::Multiple(_), Type::Number) => {
                Number::of(lit, negated).into_iter().map(Shape::Number).collect()
            }
            (Lit::MinLength(_) | Lit::MaxLength(_) | Lit::Match(..) | Lit::Offer(..), Type::String) => {
                Text::of(lit, negated, &mut self.langs).into_iter().map(Shape::Text).collect()
            }
            (
                Lit::Items { .. } | Lit::MinItems(_) | Lit::MaxItems(_) | Lit::Contains(..) | Lit::Unique,
                Type::Array,
            ) => {
                // One alternative for each item of a tuple that may be wrong.
                if let (Lit::Items { prefix, .. }, true) = (lit, negated) {
                    self.spend(f, prefix.len() as u64)?;
                    if prefix.len() > self.limits.max_alternatives {
                        return Err(self.too_large(f));
                    }
                }
                let path = self.forms.path(f).cloned().unwrap_or_else(SchemaPath::root);
                let list = self.array_shapes(lit, negated, &path);
                list.into_iter().map(|a| Shape::Array(Box::new(a))).collect()
            }
            (
                Lit::Key(..)
                | Lit::Keys(..)
                | Lit::Rest(..)
                | Lit::Names(_)
                | Lit::Required(_)
                | Lit::MinProps(_)
                | Lit::MaxProps(_)
                | Lit::Open,
                Type::Object,
            ) => {
                let path = self.forms.path(f).cloned().unwrap_or_else(SchemaPath::root);
                let list = self.object_shapes(lit, negated, &path);
                list.into_iter().map(|o| Shape::Object(Box::new(o))).collect()
            }
            (Lit::Unknown(bits, _), t) if bits & t.bit() != 0 => vec![Shape::any(t)],
            // The constraint says nothing about values of this type.
            _ if negated => Vec::new(),
            _ => vec![Shape::any(t)],
        };
        Ok(shapes)
    }

    /// All values of type `t` but the listed ones.
    fn other_shapes(&mut self, list: &[Value], t: Type) -> Result<Shapes, SchemaError> {
        if list.is_empty() {
            return Ok(vec![Shape::any(t)]);
        }
        Ok(match t {
            Type::Null => Vec::new(),
            Type::Boolean => {
                let (yes, no) = (!list.contains(&Value::Bool(true)), !list.contains(&Value::Bool(false)));
                if yes || no { vec![Shape::Boolean { yes, no }] } else { Vec::new() }
            }
            Type::Number => {
                let mut points: Vec<Num> =
                    list.iter().filter_map(|v| v.as_number().and_then(Num::new)).collect();
                points.sort_unstable();
                points.dedup();
                Number::between(&points).into_iter().map(Shape::Number).collect()
            }
            Type::String => {
                let words: Vec<_> =
                    list.iter().filter_map(Value::as_str).map(|word| self.langs.literal(word)).collect();
                let any = self.langs.or(words);
                vec![Shape::Text(Text::outside(any))]
            }
            Type::Array | Type::Object => {
                let parts: Vec<(FormulaId, bool)> =
                    list.iter().map(|value| (self.structure(value), true)).collect();
                self.product(TRUE, &parts, t)?
            }
        })
    }

    /// A formula that only this value satisfies, out of its parts.
    fn structure(&mut self, value: &Value) -> FormulaId {
        let one = |this: &mut Self, value: &Value| this.forms.values(vec![value.clone()]);
        match value {
            Value::Array(items) => {
                let prefix: Vec<FormulaId> = items.iter().map(|item| one(self, item)).collect();
                let n = items.len() as u64;
                let t = self.forms.types([Type::Array]);
                let items = self.forms.lit(Lit::Items { prefix: prefix.into(), rest: FALSE });
                let min = self.forms.lit(Lit::MinItems(n));
                self.forms.and([t, items, min])
            }
            Value::Object(members) => {
                let mut parts = vec![self.forms.types([Type::Object])];
                for (key, value) in members {
                    let f = one(self, value);
                    parts.push(self.forms.lit(Lit::Key(key.as_str().into(), f)));
                    parts.push(self.forms.lit(Lit::Required(key.as_str().into())));
                }
                let names: Vec<Rc<str>> = members.keys().map(|key| key.as_str().into()).collect();
                let others = crate::formula::Others { names: names.into(), languages: Rc::new([]) };
                parts.push(self.forms.lit(Lit::Rest(others, FALSE)));
                self.forms.and(parts)
            }
            other => one(self, other),
        }
    }
}

/// Exactly the listed values, all of type `t`.
pub(crate) fn value_shapes(list: &[Value], t: Type) -> Shapes {
    match t {
        _ if list.is_empty() => Vec::new(),
        Type::Null => vec![Shape::Null],
        Type::Boolean => vec![Shape::Boolean {
            yes: list.contains(&Value::Bool(true)),
            no: list.contains(&Value::Bool(false)),
        }],
        Type::Number => list
            .iter()
            .filter_map(|v| v.as_number().and_then(Num::new))
            .map(|n| Shape::Number(Number::point(n)))
            .collect(),
        Type::String => {
            let set = list.iter().filter_map(Value::as_str).map(Into::into).collect();
            vec![Shape::Text(Text::listed(set))]
        }
        Type::Array | Type::Object => vec![Shape::Fixed(Rc::new(list.to_vec()))],
    }
}
