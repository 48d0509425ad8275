//! How many ways an intersection of regular expressions may go on at one byte.
//!
//! Who searches an intersection by derivatives pairs every way of one expression with every way of the others: of thirty
//! expressions that may each go on in two ways, a billion for a single byte. The width says so before anything is
//! built. It is worked out in one pass over the expressions, from the first and the following positions of each.

use std::collections::HashMap;
use std::hash::Hash;
use std::rc::Rc;

/// Intersections of up to this width are searched: a step is then at most so many times as dear as the one before.
pub const MOST_WIDTH: u64 = 64;

/// For each byte, a number; it stops at the largest.
type PerByte = [u8; 256];

/// What an expression is made of.
#[derive(Debug, Clone)]
pub enum Shape<Id> {
    /// No text, or only the empty one.
    Nothing,
    /// One character: the bytes that it may begin with.
    Bytes(Box<[bool; 256]>),
    /// One behind the other.
    Concat(Id, Id),
    /// Any of them.
    Or(Vec<Id>),
    /// All of them.
    And(Vec<Id>),
    /// Everything else. It has one way on at each byte.
    Not(Id),
    /// Several times.
    Repeat {
        /// What is repeated.
        inner: Id,
        /// Whether the number of times is given.
        exact: bool,
    },
}

/// Expressions that refer to each other, without cycles.
pub trait Expressions {
    /// Names one.
    type Id: Copy + Eq + Hash;

    /// What it is made of.
    fn shape(&self, id: Self::Id) -> Shape<Self::Id>;

    /// Whether it matches the empty text.
    fn nullable(&self, id: Self::Id) -> bool;
}

/// What is known of an expression that something follows.
struct Ways {
    /// At its beginning.
    first: PerByte,
    /// The most at any later place from which what follows cannot begin.
    inside: PerByte,
    /// The most at any place where it may be over, beside those of what follows; `None` if there is no such place.
    at_end: Option<PerByte>,
}

impl Ways {
    fn none() -> Self {
        Self { first: [0; 256], inside: [0; 256], at_end: None }
    }

    /// The most at any place, with nothing behind.
    fn most(&self) -> PerByte {
        let inside = max(&self.first, &self.inside);
        self.at_end.map_or(inside, |at_end| max(&inside, &at_end))
    }
}

fn max(a: &PerByte, b: &PerByte) -> PerByte {
    std::array::from_fn(|byte| a[byte].max(b[byte]))
}

fn sum(a: &PerByte, b: &PerByte) -> PerByte {
    std::array::from_fn(|byte| a[byte].saturating_add(b[byte]))
}

fn either(a: Option<&PerByte>, b: Option<&PerByte>) -> Option<PerByte> {
    match (a, b) {
        (Some(a), Some(b)) => Some(max(a, b)),
        (a, b) => a.or(b).copied(),
    }
}

/// The width of the intersection of `parts`: at most so many ways are paired at one byte, at its beginning or later.
/// `None` if there are more than `most_expressions` to look at.
pub fn width<E: Expressions>(expressions: &E, parts: &[E::Id], most_expressions: usize) -> Option<u64> {
    let mut known = HashMap::new();
    let mut open: Vec<(E::Id, bool)> = parts.iter().map(|&part| (part, false)).collect();
    while let Some((id, is_ready)) = open.pop() {
        if known.contains_key(&id) {
            continue;
        }
        let shape = expressions.shape(id);
        if is_ready {
            let ways = ways(expressions, &shape, &known);
            known.insert(id, Rc::new(ways));
            continue;
        }
        if known.len() + open.len() > most_expressions {
            return None;
        }
        open.push((id, true));
        open.extend(children(&shape).into_iter().map(|child| (child, false)));
    }
    let most: Vec<PerByte> = parts.iter().map(|part| known[part].most()).collect();
    // Bytes inside of words are not looked at: there is one way on.
    (0..256).map(|byte| product(most.iter().map(|most| most[byte].max(1)))).max()
}

fn product(ways: impl Iterator<Item = u8>) -> u64 {
    ways.fold(1, |all, ways| all.saturating_mul(u64::from(ways)))
}

fn children<Id: Copy>(shape: &Shape<Id>) -> Vec<Id> {
    match shape {
        Shape::Nothing | Shape::Bytes(_) | Shape::Not(_) => Vec::new(),
        Shape::Concat(a, b) => vec![*a, *b],
        Shape::Or(list) | Shape::And(list) => list.clone(),
        Shape::Repeat { inner, .. } => vec![*inner],
    }
}

fn ways<E: Expressions>(expressions: &E, shape: &Shape<E::Id>, known: &HashMap<E::Id, Rc<Ways>>) -> Ways {
    match shape {
        Shape::Nothing => Ways::none(),
        Shape::Bytes(bytes) => Ways { first: bytes.map(u8::from), inside: [0; 256], at_end: Some([0; 256]) },
        Shape::Concat(a, b) => {
            let (head, tail) = (&known[a], &known[b]);
            let first = if expressions.nullable(*a) { sum(&head.first, &tail.first) } else { head.first };
            let over = head.at_end.map(|at_end| sum(&at_end, &tail.first));
            let inside = max(&head.inside, &tail.inside);
            match over {
                Some(over) if expressions.nullable(*b) => {
                    Ways { first, inside, at_end: either(Some(&over), tail.at_end.as_ref()) }
                }
                Some(over) => Ways { first, inside: max(&inside, &over), at_end: tail.at_end },
                None => Ways { first, inside, at_end: tail.at_end },
            }
        }
        Shape::Or(list) => list.iter().fold(Ways::none(), |all, id| {
            let one = &known[id];
            Ways {
                first: sum(&all.first, &one.first),
                inside: max(&all.inside, &one.inside),
                at_end: either(all.at_end.as_ref(), one.at_end.as_ref()),
            }
        }),
        Shape::And(list) => {
            let of = |ways: &dyn Fn(&Ways) -> PerByte| -> PerByte {
                let all: Vec<PerByte> = list.iter().map(|id| ways(&known[id])).collect();
                std::array::from_fn(|byte| {
                    u8::try_from(product(all.iter().map(|ways| ways[byte]))).unwrap_or(u8::MAX)
                })
            };
            let later = of(&Ways::most);
            Ways { first: of(&|ways| ways.first), inside: later, at_end: Some(later) }
        }
        Shape::Not(_) => Ways { first: [1; 256], inside: [1; 256], at_end: Some([1; 256]) },
        Shape::Repeat { inner, exact } => {
            let one = &known[inner];
            let again = one.at_end.map(|at_end| sum(&at_end, &one.first));
            if *exact && !expressions.nullable(*inner) {
                // Another time, or what follows, but not both.
                let inside = again.map_or(one.inside, |again| max(&one.inside, &again));
                Ways { first: one.first, inside, at_end: one.at_end }
            } else {
                Ways { first: one.first, inside: one.inside, at_end: again }
            }
        }
    }
}
