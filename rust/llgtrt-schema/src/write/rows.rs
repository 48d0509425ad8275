//! Writes arrays and objects as automata over their items and members, for what JSON Schema in
//! llguidance's subset cannot say: an item that occurs somewhere in a list of any length, a key without
//! a name that has to be there. [`compose`](super::compose) turns them into rules of a grammar.
//!
//! Beside a plain schema of the same values an automaton only serves where something inside of it needs
//! one ([`Automaton::equivalent`]).

use std::collections::HashMap;
use std::rc::Rc;

use crate::error::{SchemaError, refuse};
use crate::formula::{FALSE, FormulaId};
use crate::normalizer::{Normalizer, Segment};
use crate::path::SchemaPath;
use crate::shape::array::{Array, ContainsCount};
use crate::tree::{Automaton, Container, Edge, Key, Row, Tree};

/// Rows of one automaton.
const MAX_ROWS: usize = 600;

/// Constraints of one value that need an automaton.
const MAX_OBLIGATIONS: usize = 4;

/// An automaton before its values are written.
#[derive(Default)]
struct Draft {
    rows: Vec<DraftRow>,
}

#[derive(Default)]
struct DraftRow {
    end: bool,
    skip: Option<usize>,
    edges: Vec<DraftEdge>,
}

struct DraftEdge {
    key: Key,
    value: FormulaId,
    to: usize,
}

impl Draft {
    fn add(&mut self, end: bool) -> usize {
        self.rows.push(DraftRow { end, ..DraftRow::default() });
        self.rows.len() - 1
    }
}

/// What an automaton of unnamed keys knows of them.
#[derive(Debug)]
pub(crate) struct Class {
    pub(crate) key: Key,
    pub(crate) f: FormulaId,
    /// The obligations whose set of keys it belongs to.
    pub(crate) inside: u32,
}

/// A key with a name of its own.
#[derive(Debug, Clone)]
pub(crate) struct NamedKey {
    pub(crate) key: Rc<str>,
    /// What its value has to satisfy; nothing does if it may not be there.
    pub(crate) value: FormulaId,
    pub(crate) required: bool,
}

impl NamedKey {
    pub(crate) fn is_optional(&self) -> bool {
        !self.required && self.value != FALSE
    }
}

/// Members of an object: named keys in order, then any number of unnamed ones.
pub(crate) struct Members<'a> {
    pub(crate) named: &'a [NamedKey],
    pub(crate) classes: &'a [Class],
    /// What the values of some unnamed keys have to satisfy.
    pub(crate) obligations: &'a [FormulaId],
    /// All keys: at least, at most.
    pub(crate) count: (u64, Option<u64>),
}

impl Normalizer<'_> {
    /// An array, with all of what has to occur somewhere; `None` if no array fits.
    pub(crate) fn array_rows(
        &mut self,
        a: &Array,
        equivalent: Option<Tree>,
    ) -> Result<Option<Tree>, SchemaError> {
        let path = a.path().cloned();
        let too_many =
            || refuse(path.as_ref(), "contains", "needs too many alternatives", "lower `maxItems`");
        let from = a.exists.iter().map(|some| some.from).max().unwrap_or(0);
        // Positions from here on are alike.
        let last = (a.prefix.len() as u64).max(a.min).max(a.max.unwrap_or(0)).max(from as u64);
        if a.exists.len() > MAX_OBLIGATIONS || last > MAX_ROWS as u64 {
            return Err(too_many());
        }
        let mut rows = Draft::default();
        let mut known: HashMap<(u64, Vec<u64>), usize> = HashMap::new();
        let start = (0, vec![0; a.exists.len()]);
        let enough = |counts: &[u64]| a.exists.iter().zip(counts).all(|(some, n)| *n >= some.min);
        known.insert(start.clone(), rows.add(a.min == 0 && enough(&start.1)));
        let mut open = vec![start];
        while let Some(state) = open.pop() {
            let row = known[&state];
            let (at, counts) = state;
            if a.max.is_some_and(|max| at >= max) {
                continue;
            }
            let base = a.at(at as usize);
            for (f, counts) in self.counted_items(a, base, at, &counts) {
                self.step(f)?;
                if self.is_empty(f)? {
                    continue;
                }
                let next = ((at + 1).min(last), counts);
                let to = *known.entry(next).or_insert_with_key(|next| {
                    open.push(next.clone());
                    rows.add(next.0 >= a.min && enough(&next.1))
                });
                rows.rows[row].edges.push(DraftEdge { key: Key::None, value: f, to });
                if rows.rows.len() > MAX_ROWS {
                    return Err(too_many());
                }
            }
        }
        self.write_rows(rows, Container::Array, equivalent)
    }

    /// What an item may be, and what is counted after it.
    fn counted_items(
        &mut self,
        a: &Array,
        base: FormulaId,
        at: u64,
        counts: &[u64],
    ) -> Vec<(FormulaId, Vec<u64>)> {
        let mut options = vec![(base, counts.to_vec())];
        for (j, some) in a.exists.iter().enumerate() {
            let ContainsCount { from, f, min, max, .. } = *some;
            let done = max.is_none() && counts[j] >= min;
            if at < from as u64 || done {
                continue;
            }
            let mut both = Vec::new();
            for (g, counts) in options {
                let inside = self.forms.and([g, f]);
                if max.is_none_or(|max| counts[j] < max) && inside != FALSE {
                    let mut more = counts.clone();
                    more[j] += 1;
                    both.push((inside, more));
                }
                // With a limit every item that satisfies it counts; without, it need not.
                let outside = if max.is_some() {
                    let not = self.forms.not(f);
                    self.forms.and([g, not])
                } else {
                    g
                };
                if outside != FALSE && !(max.is_none() && inside == g) {
                    both.push((outside, counts));
                }
            }
            options = both;
        }
        options
    }

    /// An object as an automaton; `None` if no object fits.
    pub(crate) fn object_rows(
        &mut self,
        members: &Members,
        path: Option<&SchemaPath>,
        equivalent: Option<Tree>,
    ) -> Result<Option<Tree>, SchemaError> {
        let too_many =
            || refuse(path, "minProperties", "needs too many alternatives", "name the keys in `required`");
        let (min, max) = members.count;
        let most = min.max(max.unwrap_or(0));
        if members.obligations.len() > MAX_OBLIGATIONS || most > MAX_ROWS as u64 {
            return Err(too_many());
        }
        let all = (1_u32 << members.obligations.len()) - 1;
        let mut rows = Draft::default();
        let mut known: HashMap<(usize, u32, u64), usize> = HashMap::new();
        let ends = |(at, obligations, n): (usize, u32, u64)| {
            at == members.named.len() && obligations == all && n >= min
        };
        let mut open = vec![(0, 0, 0)];
        known.insert((0, 0, 0), rows.add(ends((0, 0, 0))));
        while let Some(state) = open.pop() {
            let (at, obligations, n) = state;
            let row = known[&state];
            let full = max.is_some_and(|max| n >= max);
            let more = (n + 1).min(most);
            let mut reach = |rows: &mut Draft, next: (usize, u32, u64)| {
                *known.entry(next).or_insert_with(|| {
                    open.push(next);
                    rows.add(ends(next))
                })
            };
            if let Some(NamedKey { key, value: f, required }) = members.named.get(at) {
                if *f != FALSE && !full {
                    let to = reach(&mut rows, (at + 1, obligations, more));
                    rows.rows[row].edges.push(DraftEdge { key: Key::Name(Rc::clone(key)), value: *f, to });
                }
                if !required {
                    rows.rows[row].skip = Some(reach(&mut rows, (at + 1, obligations, n)));
                }
            } else if !full {
                for class in members.classes.iter().filter(|class| class.f != FALSE) {
                    // Where an obligation is met, a key that was written twice must not undo it.
                    for met in 0..=all {
                        if met & !class.inside != 0 || met & obligations != 0 {
                            continue;
                        }
                        let held = (obligations & class.inside) | met;
                        let mut parts = vec![class.f];
                        parts.extend(
                            (0..members.obligations.len())
                                .filter(|j| held >> j & 1 == 1)
                                .map(|j| members.obligations[j]),
                        );
                        let f = self.forms.and(parts);
                        self.step(f)?;
                        if f == FALSE || self.is_empty(f)? {
                            continue;
                        }
                        let to = reach(&mut rows, (at, obligations | met, more));
                        rows.rows[row].edges.push(DraftEdge { key: class.key.clone(), value: f, to });
                    }
                }
            }
            if rows.rows.len() > MAX_ROWS {
                return Err(too_many());
            }
        }
        self.write_rows(rows, Container::Object, equivalent)
    }

    fn write_rows(
        &mut self,
        draft: Draft,
        container: Container,
        equivalent: Option<Tree>,
    ) -> Result<Option<Tree>, SchemaError> {
        let mut rows = Vec::with_capacity(draft.rows.len());
        for DraftRow { end, skip, edges } in draft.rows {
            let mut row = Row { end, skip, edges: Vec::with_capacity(edges.len()) };
            for DraftEdge { key, value, to } in edges {
                let segment = match &key {
                    Key::Name(name) => Segment::Key(name.to_string()),
                    Key::None => Segment::AnyIndex,
                    Key::Except(_) | Key::Pattern(_) => Segment::AnyKey,
                };
                row.edges.push(Edge { key, value: self.emit(value, segment)?, to });
            }
            rows.push(row);
        }
        let mut automaton = Automaton { container, rows, equivalent };
        Ok(automaton.trim().then(|| Tree::Automaton(Box::new(automaton))))
    }
}
