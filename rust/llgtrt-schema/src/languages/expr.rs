//! Regular languages as hash-consed expressions with complement and intersection, and their
//! derivatives. One arena per normalisation; nothing is shared between threads.

use std::collections::HashMap;
use std::rc::Rc;
use std::time::Instant;

use super::chars::Chars;

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

/// Nodes of the arena; derivatives of large expressions fill it.
const MAX_NODES: usize = 400_000;

/// The arena.
#[derive(Debug)]
pub(crate) struct Exprs {
    deadline: Instant,
    nodes: Vec<Node>,
    nullable: Vec<bool>,
    ids: HashMap<Node, LanguageId>,
    derivatives: HashMap<(LanguageId, u32), LanguageId>,
}

impl Exprs {
    pub(crate) fn new(deadline: Instant) -> Self {
        let mut exprs = Self {
            deadline,
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

    /// Whether there is no room or no time for more: a search gives up then.
    pub(crate) fn is_spent(&self) -> bool {
        self.nodes.len() > MAX_NODES || Instant::now() > self.deadline
    }

    fn intern(&mut self, node: Node) -> LanguageId {
        if let Some(&id) = self.ids.get(&node) {
            return id;
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
        if let Node::Concat(head, tail) = self.nodes[a.index()] {
            let rest = self.concat(tail, b);
            return self.concat(head, rest);
        }
        self.intern(Node::Concat(a, b))
    }

    pub(crate) fn or(&mut self, list: impl IntoIterator<Item = LanguageId>) -> LanguageId {
        let mut flat = Vec::new();
        let mut class: Option<Chars> = None;
        for x in list {
            match &self.nodes[x.index()] {
                Node::Or(inner) => flat.extend(inner.iter().copied()),
                Node::Nothing => {}
                _ => flat.push(x),
            }
        }
        flat.retain(|&x| match &self.nodes[x.index()] {
            Node::Class(set) => {
                class = Some(class.as_ref().map_or_else(|| (**set).clone(), |c| c.union(set)));
                false
            }
            _ => true,
        });
        if let Some(set) = class {
            flat.push(self.class(set));
        }
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
        let result = match self.nodes[x.index()].clone() {
            Node::Nothing | Node::Empty => NOTHING,
            Node::Class(set) => {
                if set.contains(c) {
                    EMPTY
                } else {
                    NOTHING
                }
            }
            Node::Concat(a, b) => {
                let head = self.derivative(a, c);
                let first = self.concat(head, b);
                if self.nullable(a) {
                    let second = self.derivative(b, c);
                    self.or([first, second])
                } else {
                    first
                }
            }
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
        self.derivatives.insert((x, c), result);
        result
    }

    /// The sets that decide which derivative a character leads to.
    pub(crate) fn heads(&self, x: LanguageId, out: &mut Vec<Rc<Chars>>) {
        match &self.nodes[x.index()] {
            Node::Nothing | Node::Empty => {}
            Node::Class(set) => {
                if !out.contains(set) {
                    out.push(Rc::clone(set));
                }
            }
            Node::Concat(a, b) => {
                self.heads(*a, out);
                if self.nullable(*a) {
                    self.heads(*b, out);
                }
            }
            Node::Or(list) | Node::And(list) => list.iter().for_each(|&x| self.heads(x, out)),
            Node::Not(inner) | Node::Repeat(inner, _, _) => self.heads(*inner, out),
        }
    }

    /// Whether the whole `text` is in the language.
    pub(crate) fn matches(&mut self, x: LanguageId, text: &str) -> bool {
        let mut x = x;
        for c in text.chars() {
            x = self.derivative(x, c as u32);
            if x == NOTHING || x == ALL {
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
