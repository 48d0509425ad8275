//! Regular languages as hash-consed expressions with complement and intersection, and their
//! derivatives. One arena per normalisation; nothing is shared between threads.

use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use super::chars::Chars;
use crate::budget::Budget;
use crate::width::{Expressions, Shape};

/// An expression in the arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct LanguageId(u32);

impl LanguageId {
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Node {
    /// No string.
    Nothing,
    /// The empty string.
    Empty,
    Class(Rc<Chars>),
    Concat(LanguageId, LanguageId),
    Or(Rc<[LanguageId]>),
    And(Rc<[LanguageId]>),
    Not(LanguageId),
    Repeat(LanguageId, u32, Option<u32>),
}

pub(crate) const NOTHING: LanguageId = LanguageId(0);
pub(crate) const EMPTY: LanguageId = LanguageId(1);
pub(crate) const ANY_CHAR: LanguageId = LanguageId(2);
/// Every string.
pub(crate) const ALL: LanguageId = LanguageId(3);

/// Nodes of the arena up to which questions are answered; derivatives of large expressions fill it.
const MAX_NODES: usize = 200_000;

/// Steps of looking at the ways on at each byte.
const SHAPE_STEPS: usize = 16;

/// The arena. It grows in [`Exprs::intern`] only, which charges the budget; once that is spent, it does not
/// grow any more, and what it answers means nothing.
#[derive(Debug)]
pub(crate) struct Exprs {
    budget: Rc<Budget>,
    /// Steps that were spent on questions, and when the present one was asked.
    searched: Cell<u64>,
    asked: Cell<Option<u64>>,
    nodes: Vec<Node>,
    nullable: Vec<bool>,
    ids: HashMap<Node, LanguageId>,
    derivatives: HashMap<(LanguageId, u32), LanguageId>,
}

impl Expressions for Exprs {
    type Id = LanguageId;

    /// Charges the budget with what it takes to look at the shape.
    fn shape(&self, x: LanguageId) -> Shape<LanguageId> {
        self.charge(SHAPE_STEPS);
        match &self.nodes[x.index()] {
            Node::Nothing | Node::Empty => Shape::Nothing,
            Node::Class(set) => Shape::Bytes(Box::new(set.first_bytes())),
            Node::Concat(a, b) => Shape::Concat(*a, *b),
            Node::Or(list) => Shape::Or(list.to_vec()),
            Node::And(list) => Shape::And(list.to_vec()),
            Node::Not(x) => Shape::Not(*x),
            Node::Repeat(inner, min, max) => Shape::Repeat { inner: *inner, exact: Some(*min) == *max },
        }
    }

    fn nullable(&self, x: LanguageId) -> bool {
        Exprs::nullable(self, x)
    }
}

impl Exprs {
    pub(crate) fn new(budget: &Rc<Budget>) -> Self {
        let mut exprs = Self {
            budget: Rc::clone(budget),
            searched: Cell::new(0),
            asked: Cell::new(None),
            nodes: Vec::new(),
            nullable: Vec::new(),
            ids: HashMap::new(),
            derivatives: HashMap::new(),
        };
        exprs.intern(Node::Nothing);
        exprs.intern(Node::Empty);
        exprs.intern(Node::Class(Rc::new(Chars::any())));
        exprs.intern(Node::Repeat(ANY_CHAR, 0, None));
        exprs
    }

    /// Answers a question that may stay open, such as whether a language is empty. All of them together
    /// get a part of the budget: a schema that asks hard ones is not refused for it.
    pub(crate) fn search<T>(&mut self, question: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        if self.is_spent() {
            return None;
        }
        self.asked.set(Some(self.budget.steps()));
        let answer = question(self);
        self.searched.set(self.spent_on_questions());
        self.asked.set(None);
        answer
    }

    fn spent_on_questions(&self) -> u64 {
        self.searched.get() + self.asked.get().map_or(0, |from| self.budget.steps() - from)
    }

    /// Counts steps of a search, which gives up if there are no more.
    pub(crate) fn look(&self, steps: usize) -> Option<()> {
        self.budget.charge(steps as u64);
        (!self.is_spent()).then_some(())
    }

    /// Counts steps of work that has to be done.
    pub(crate) fn charge(&self, steps: usize) {
        self.budget.charge(steps as u64);
    }

    /// Whether questions are not answered any more.
    fn is_spent(&self) -> bool {
        self.nodes.len() > MAX_NODES
            || self.spent_on_questions() > self.budget.max_search_steps()
            || self.budget.is_spent()
    }

    /// Whether nothing is worked out any more.
    pub(crate) fn is_over(&self) -> bool {
        self.budget.is_spent()
    }

    /// Counts bytes that are kept beside the arena.
    pub(crate) fn hold(&self, bytes: usize) {
        self.budget.charge_bytes(bytes);
    }

    fn intern(&mut self, node: Node) -> LanguageId {
        let size = match &node {
            Node::Or(list) | Node::And(list) => 4 * list.len(),
            Node::Class(set) => 8 * set.ranges().len(),
            _ => 0,
        };
        self.charge(1 + size / 16);
        if let Some(&id) = self.ids.get(&node) {
            return id;
        }
        if self.nodes.len() > ALL.index() {
            self.budget.charge_bytes(160 + size);
            if self.budget.is_spent() {
                return NOTHING;
            }
        }
        let nullable = match &node {
            Node::Nothing | Node::Class(_) => false,
            Node::Empty => true,
            Node::Concat(a, b) => self.nullable(*a) && self.nullable(*b),
            Node::Or(list) => list.iter().any(|&x| self.nullable(x)),
            Node::And(list) => list.iter().all(|&x| self.nullable(x)),
            Node::Not(x) => !self.nullable(*x),
            Node::Repeat(x, min, _) => *min == 0 || self.nullable(*x),
        };
        let id = LanguageId(self.nodes.len() as u32);
        self.nodes.push(node.clone());
        self.nullable.push(nullable);
        self.ids.insert(node, id);
        id
    }

    pub(crate) fn nullable(&self, x: LanguageId) -> bool {
        self.nullable[x.index()]
    }

    pub(crate) fn class(&mut self, set: Chars) -> LanguageId {
        if set.is_empty() { NOTHING } else { self.intern(Node::Class(Rc::new(set))) }
    }

    pub(crate) fn literal(&mut self, text: &str) -> LanguageId {
        let mut tail = EMPTY;
        for c in text.chars().rev() {
            let head = self.class(Chars::one(c));
            tail = self.concat(head, tail);
        }
        tail
    }

    pub(crate) fn concat(&mut self, a: LanguageId, b: LanguageId) -> LanguageId {
        match (a, b) {
            (NOTHING, _) | (_, NOTHING) => return NOTHING,
            (EMPTY, x) | (x, EMPTY) => return x,
            (ALL, ALL) => return ALL,
            _ => {}
        }
        if a == ALL {
            if let Node::Concat(ALL, _) = self.nodes[b.index()] {
                return b;
            }
        }
        // Concatenations lean to the right: their first part is none.
        let mut heads = Vec::new();
        let mut rest = a;
        while let Node::Concat(head, tail) = self.nodes[rest.index()] {
            heads.push(head);
            rest = tail;
        }
        let mut whole = if heads.is_empty() { self.intern(Node::Concat(a, b)) } else { self.concat(rest, b) };
        for head in heads.into_iter().rev() {
            whole = self.concat(head, whole);
        }
        whole
    }

    pub(crate) fn or(&mut self, list: impl IntoIterator<Item = LanguageId>) -> LanguageId {
        let mut flat = Vec::new();
        let mut class: Option<Chars> = None;
        let mut ranges = 0;
        for x in list {
            match &self.nodes[x.index()] {
                Node::Or(inner) => flat.extend(inner.iter().copied()),
                Node::Nothing => {}
                _ => flat.push(x),
            }
        }
        flat.retain(|&x| match &self.nodes[x.index()] {
            Node::Class(set) => {
                ranges += set.ranges().len() + class.as_ref().map_or(0, |class| class.ranges().len());
                class = Some(class.as_ref().map_or_else(|| (**set).clone(), |c| c.union(set)));
                false
            }
            _ => true,
        });
        if let Some(set) = class {
            flat.push(self.class(set));
        }
        self.charge(ranges / 2 + flat.len() / 2);
        flat.sort_unstable();
        flat.dedup();
        if flat.contains(&ALL) || self.has_complements(&flat) {
            return ALL;
        }
        match flat.len() {
            0 => NOTHING,
            1 => flat[0],
            _ => self.intern(Node::Or(flat.into())),
        }
    }

    pub(crate) fn and(&mut self, list: impl IntoIterator<Item = LanguageId>) -> LanguageId {
        let mut flat = Vec::new();
        for x in list {
            match &self.nodes[x.index()] {
                Node::And(inner) => flat.extend(inner.iter().copied()),
                _ if x == ALL => {}
                _ => flat.push(x),
            }
        }
        self.charge(flat.len() / 2);
        flat.sort_unstable();
        flat.dedup();
        if flat.contains(&NOTHING) || self.has_complements(&flat) {
            return NOTHING;
        }
        if flat.contains(&EMPTY) {
            return if flat.iter().all(|&x| self.nullable(x)) { EMPTY } else { NOTHING };
        }
        match flat.len() {
            0 => ALL,
            1 => flat[0],
            _ => self.intern(Node::And(flat.into())),
        }
    }

    /// The parts of an intersection.
    pub(crate) fn conjuncts(&self, x: LanguageId) -> Option<Vec<LanguageId>> {
        match &self.nodes[x.index()] {
            Node::And(list) => Some(list.to_vec()),
            _ => None,
        }
    }

    fn has_complements(&self, list: &[LanguageId]) -> bool {
        list.iter().any(|&x| matches!(self.nodes[x.index()], Node::Not(y) if list.binary_search(&y).is_ok()))
    }

    pub(crate) fn not(&mut self, x: LanguageId) -> LanguageId {
        match self.nodes[x.index()] {
            Node::Nothing => ALL,
            Node::Not(inner) => inner,
            _ if x == ALL => NOTHING,
            _ => self.intern(Node::Not(x)),
        }
    }

    pub(crate) fn repeat(&mut self, x: LanguageId, min: u32, max: Option<u32>) -> LanguageId {
        let min = if self.nullable(x) { 0 } else { min };
        match (x, min, max) {
            (_, 0, Some(0)) => return EMPTY,
            (_, 1, Some(1)) => return x,
            (NOTHING, 0, _) | (EMPTY, _, _) => return EMPTY,
            (NOTHING, _, _) => return NOTHING,
            _ => {}
        }
        if let (Node::Repeat(_, 0, None), None) = (&self.nodes[x.index()], max) {
            return x;
        }
        self.intern(Node::Repeat(x, min, max))
    }

    /// What may follow the character `c`.
    pub(crate) fn derivative(&mut self, x: LanguageId, c: u32) -> LanguageId {
        if let Some(&known) = self.derivatives.get(&(x, c)) {
            return known;
        }
        self.charge(1);
        if self.is_over() {
            return NOTHING;
        }
        let result = match self.nodes[x.index()].clone() {
            Node::Nothing | Node::Empty => NOTHING,
            Node::Class(set) => {
                if set.contains(c) {
                    EMPTY
                } else {
                    NOTHING
                }
            }
            Node::Concat(..) => return self.derivative_of_concat(x, c),
            Node::Or(list) => {
                let parts: Vec<LanguageId> = list.iter().map(|&x| self.derivative(x, c)).collect();
                self.or(parts)
            }
            Node::And(list) => {
                let parts: Vec<LanguageId> = list.iter().map(|&x| self.derivative(x, c)).collect();
                self.and(parts)
            }
            Node::Not(inner) => {
                let inner = self.derivative(inner, c);
                self.not(inner)
            }
            Node::Repeat(inner, min, max) => {
                let head = self.derivative(inner, c);
                let rest = self.repeat(inner, min.saturating_sub(1), max.map(|max| max - 1));
                self.concat(head, rest)
            }
        };
        self.note_derivative(x, c, result);
        result
    }

    fn note_derivative(&mut self, x: LanguageId, c: u32, result: LanguageId) {
        self.budget.charge_bytes(40);
        self.derivatives.insert((x, c), result);
    }

    /// As [`Exprs::derivative`], without recursion over a long row of parts that may be empty.
    fn derivative_of_concat(&mut self, x: LanguageId, c: u32) -> LanguageId {
        let mut row = Vec::new();
        let mut at = x;
        let mut result = loop {
            let Node::Concat(a, b) = self.nodes[at.index()] else { break self.derivative(at, c) };
            if at != x {
                if let Some(&known) = self.derivatives.get(&(at, c)) {
                    break known;
                }
            }
            row.push((at, a, b));
            if !self.nullable(a) {
                break NOTHING;
            }
            at = b;
        };
        for (at, a, b) in row.into_iter().rev() {
            let head = self.derivative(a, c);
            let first = self.concat(head, b);
            result = self.or([first, result]);
            self.note_derivative(at, c, result);
        }
        result
    }

    /// The sets that decide which derivative a character leads to.
    pub(crate) fn heads(&self, x: LanguageId) -> Vec<Rc<Chars>> {
        let mut out = Vec::new();
        let mut seen = HashSet::from([x]);
        let mut open = vec![x];
        while let Some(x) = open.pop() {
            self.charge(1);
            // The last one first, so that they come in order.
            let mut push = |x: LanguageId| {
                if seen.insert(x) {
                    open.push(x);
                }
            };
            match &self.nodes[x.index()] {
                Node::Nothing | Node::Empty => {}
                Node::Class(set) => out.push(Rc::clone(set)),
                Node::Concat(a, b) => {
                    if self.nullable(*a) {
                        push(*b);
                    }
                    push(*a);
                }
                Node::Or(list) | Node::And(list) => list.iter().rev().for_each(|&x| push(x)),
                Node::Not(inner) | Node::Repeat(inner, _, _) => push(*inner),
            }
        }
        out
    }

    /// Whether the whole `text` is in the language. Only right while the budget is not spent.
    pub(crate) fn matches(&mut self, x: LanguageId, text: &str) -> bool {
        let mut x = x;
        for c in text.chars() {
            self.charge(1);
            x = self.derivative(x, c as u32);
            if x == NOTHING || x == ALL || self.is_over() {
                break;
            }
        }
        self.nullable(x)
    }
}

/// Splits all characters into the classes that no set of `heads` can tell apart.
pub(crate) fn classes(heads: &[Rc<Chars>]) -> Vec<Chars> {
    let mut cuts: Vec<u32> = vec![0, 0xE000];
    for set in heads {
        for &(from, to) in set.ranges() {
            cuts.push(from);
            cuts.push(to + 1);
        }
    }
    cuts.sort_unstable();
    cuts.dedup();
    let mut groups: HashMap<Vec<bool>, Vec<(u32, u32)>> = HashMap::new();
    let mut order = Vec::new();
    for (index, &from) in cuts.iter().enumerate() {
        let to = cuts.get(index + 1).map_or(0x10_FFFF, |&next| next - 1);
        if from > to || (0xD800..=0xDFFF).contains(&from) || from > 0x10_FFFF {
            continue;
        }
        let signature: Vec<bool> = heads.iter().map(|set| set.contains(from)).collect();
        groups
            .entry(signature)
            .or_insert_with_key(|key| {
                order.push(key.clone());
                Vec::new()
            })
            .push((from, to));
    }
    order.iter().filter_map(|key| groups.remove(key)).map(Chars::new).filter(|set| !set.is_empty()).collect()
}
