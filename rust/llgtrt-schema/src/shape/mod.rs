//! Shapes: conjunctions of constraints on values of one type, as data. A normal form is a list of them for each
//! type; [`expand`](crate::expand) makes it.

pub(crate) mod array;
mod decimal;
mod multiples;
pub(crate) mod number;
pub(crate) mod numerals;
pub(crate) mod object;
pub(crate) mod string;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;

use serde_json::Value;

use crate::budget::weight;
use crate::formula::Type;
use crate::shape::array::Array;
use crate::shape::number::Number;
use crate::shape::object::Object;
use crate::shape::string::Text;

/// A conjunction of constraints on values of one type.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Shape {
    Null,
    Boolean {
        yes: bool,
        no: bool,
    },
    Number(Number),
    Text(Text),
    Array(Box<Array>),
    Object(Box<Object>),
    /// Arrays or objects, listed.
    Fixed(Rc<Vec<Value>>),
}

impl Shape {
    pub(crate) fn any(t: Type) -> Shape {
        match t {
            Type::Null => Shape::Null,
            Type::Boolean => Shape::Boolean { yes: true, no: true },
            Type::Number => Shape::Number(Number::default()),
            Type::String => Shape::Text(Text::default()),
            Type::Array => Shape::Array(Box::default()),
            Type::Object => Shape::Object(Box::default()),
        }
    }

    pub(crate) fn object(&self) -> Option<&Object> {
        if let Shape::Object(object) = self { Some(object) } else { None }
    }

    /// Number of its entries: what it takes to copy it.
    pub(crate) fn weight(&self) -> u64 {
        match self {
            Shape::Null | Shape::Boolean { .. } | Shape::Number(_) => 1,
            Shape::Text(text) => 1 + text.len() as u64,
            Shape::Array(array) => 4 + (array.prefix.len() / 8 + array.exists.len()) as u64,
            Shape::Object(object) => 4 + object.len() as u64,
            // Shared.
            Shape::Fixed(_) => 1,
        }
    }

    /// Bytes that it holds, roughly.
    pub(crate) fn bytes(&self) -> usize {
        let fixed = match self {
            Shape::Fixed(values) => 96 * values.iter().map(weight).sum::<u64>() as usize,
            _ => 0,
        };
        200 + 72 * self.weight() as usize + fixed
    }

    /// The same for shapes that are equal.
    pub(crate) fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        std::mem::discriminant(self).hash(&mut hasher);
        match self {
            Shape::Object(object) => object.fingerprint().hash(&mut hasher),
            Shape::Array(array) => (&array.prefix, array.rest, array.min, array.max).hash(&mut hasher),
            Shape::Text(text) => text.fingerprint().hash(&mut hasher),
            _ => {}
        }
        hasher.finish()
    }
}

pub(crate) type Shapes = Vec<Shape>;
