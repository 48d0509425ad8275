//! Schemas as boolean formulas over primitive constraints, hash-consed in one arena.
//!
//! Every primitive but a set of types holds for all values of the types it says nothing about, as
//! in JSON Schema. Subschemas of arrays and objects are formulas themselves, so recursion shows as
//! [`Node::Def`], which is read when it is needed.

mod canonical;
mod num;

pub(crate) use self::canonical::canonical;
pub(crate) use self::num::{Num, Ratio};

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use serde_json::Value;

use crate::budget::{Budget, weight};
use crate::languages::LanguageId;
use crate::path::SchemaPath;

/// Lists up to this length are searched from front to back.
const SHORT: usize = 16;

/// A formula in the arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct FormulaId(u32);

/// A schema that references lead to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct DefId(u32);

impl DefId {
    pub(crate) fn new(index: usize) -> Self {
        Self(index as u32)
    }

    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

impl FormulaId {
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

pub(crate) const TRUE: FormulaId = FormulaId(0);
pub(crate) const FALSE: FormulaId = FormulaId(1);

/// The types that values are told apart by. `integer` is a constraint on numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Type {
    Null,
    Boolean,
    Number,
    String,
    Array,
    Object,
}

impl Type {
    pub(crate) const ALL: [Type; 6] =
        [Type::Null, Type::Boolean, Type::Number, Type::String, Type::Array, Type::Object];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Type::Null => "null",
            Type::Boolean => "boolean",
            Type::Number => "number",
            Type::String => "string",
            Type::Array => "array",
            Type::Object => "object",
        }
    }

    pub(crate) fn of(value: &Value) -> Type {
        match value {
            Value::Null => Type::Null,
            Value::Bool(_) => Type::Boolean,
            Value::Number(_) => Type::Number,
            Value::String(_) => Type::String,
            Value::Array(_) => Type::Array,
            Value::Object(_) => Type::Object,
        }
    }

    pub(crate) fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// JSON values that compare as JSON Schema compares them. Made by [`Formulas::values`].
#[derive(Debug, Clone)]
pub(crate) struct Values {
    /// Canonical texts, one after the other: object keys sorted, numbers by value.
    key: Rc<str>,
    /// Where each text is in `key`, sorted by the texts.
    texts: Rc<[(u32, u32)]>,
    pub(crate) list: Rc<Vec<Value>>,
}

impl Values {
    fn new(mut list: Vec<Value>) -> Self {
        list.iter_mut().for_each(drop_sign_of_zero);
        let mut key = String::new();
        let mut texts = Vec::with_capacity(list.len());
        for value in &list {
            let from = key.len() as u32;
            key.push_str(&canonical(value));
            texts.push((from, key.len() as u32));
            key.push('\n');
        }
        let text = |&(from, to): &(u32, u32)| &key[from as usize..to as usize];
        texts.sort_by(|a, b| text(a).cmp(text(b)));
        Self { texts: texts.into(), key: key.into(), list: Rc::new(list) }
    }

    /// Whether one of them has this canonical text.
    pub(crate) fn contains(&self, text: &str) -> bool {
        let known = |&(from, to): &(u32, u32)| &self.key[from as usize..to as usize];
        self.texts.binary_search_by(|range| known(range).cmp(text)).is_ok()
    }
}

/// -0 is 0, and not every reader of JSON writes the sign back.
fn drop_sign_of_zero(value: &mut Value) {
    match value {
        Value::Number(number) if number.as_f64() == Some(0.0) => *value = Value::from(0),
        Value::Array(list) => list.iter_mut().for_each(drop_sign_of_zero),
        Value::Object(members) => members.values_mut().for_each(drop_sign_of_zero),
        _ => {}
    }
}

impl PartialEq for Values {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl Eq for Values {}

impl std::hash::Hash for Values {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.key.hash(state);
    }
}

/// A set of keys: all keys that are neither listed nor in one of the languages.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Others {
    pub(crate) names: Rc<[Rc<str>]>,
    pub(crate) languages: Rc<[LanguageId]>,
}

/// A primitive constraint.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Lit {
    /// The value has one of these types ([`Type::bit`]).
    Types(u8),
    Values(Values),
    Integer,
    /// At least, or above if the flag is set.
    Least(Num, bool),
    /// At most, or below if the flag is set.
    Most(Num, bool),
    Multiple(Ratio),
    MinLength(u64),
    MaxLength(u64),
    /// The string is in the language. The text writes it, where one is known.
    Match(LanguageId, Option<Rc<str>>),
    /// Holds for everything: strings of the language are meant, but the draft does not ask for them. They are
    /// offered alone where that leaves any; what is excluded, or listed, does not depend on it.
    Offer(LanguageId, Option<Rc<str>>),
    Items {
        prefix: Rc<[FormulaId]>,
        rest: FormulaId,
    },
    MinItems(u64),
    MaxItems(u64),
    /// At least this many items satisfy the formula, and at most that many.
    Contains(FormulaId, u64, Option<u64>),
    Unique,
    /// The value at this key, if present.
    Key(Rc<str>, FormulaId),
    /// The values at all keys of the language.
    Keys(LanguageId, Option<Rc<str>>, FormulaId),
    /// The values at all other keys.
    Rest(Others, FormulaId),
    /// All keys, as strings.
    Names(FormulaId),
    Required(Rc<str>),
    MinProps(u64),
    MaxProps(u64),
    /// Holds for everything: the schema says something of keys that it does not name, so that its objects
    /// are not closed by default.
    Open,
    /// Something about values of these types that cannot be told. The text is its path.
    Unknown(u8, Rc<str>),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Node {
    True,
    False,
    Lit(Lit),
    Not(FormulaId),
    And(Rc<[FormulaId]>),
    Or(Rc<[FormulaId]>),
    /// Exactly one of them.
    One(Rc<[FormulaId]>),
    /// A referenced schema, by its number.
    Def(DefId),
}

/// The arena. It grows in [`Formulas::intern`] only, which charges the budget; once that is spent, it does not
/// grow any more, and what it answers means nothing.
#[derive(Debug)]
pub(crate) struct Formulas {
    budget: Rc<Budget>,
    nodes: Vec<Node>,
    ids: HashMap<Node, FormulaId>,
    /// The source path that a formula was first made for.
    paths: HashMap<FormulaId, SchemaPath>,
}

impl Formulas {
    pub(crate) fn new(budget: &Rc<Budget>) -> Self {
        let mut formulas =
            Self { budget: Rc::clone(budget), nodes: Vec::new(), ids: HashMap::new(), paths: HashMap::new() };
        formulas.intern(Node::True);
        formulas.intern(Node::False);
        formulas
    }

    pub(crate) fn node(&self, f: FormulaId) -> &Node {
        &self.nodes[f.index()]
    }

    pub(crate) fn set_path(&mut self, f: FormulaId, path: &SchemaPath) {
        if f > FALSE && !self.budget.is_spent() {
            self.paths.entry(f).or_insert_with(|| {
                self.budget.charge_bytes(path.len() + 60);
                path.clone()
            });
        }
    }

    pub(crate) fn path(&self, f: FormulaId) -> Option<&SchemaPath> {
        self.paths.get(&f)
    }

    /// The path of the formula, or of one of its parts.
    pub(crate) fn path_near(&self, f: FormulaId) -> Option<&SchemaPath> {
        let mut open = std::collections::VecDeque::from([f]);
        for _ in 0..200 {
            let f = open.pop_front()?;
            if let Some(path) = self.paths.get(&f).filter(|path| !path.is_empty()) {
                return Some(path);
            }
            match self.node(f) {
                Node::Not(inner) => open.push_back(*inner),
                Node::And(list) | Node::Or(list) | Node::One(list) => open.extend(list.iter()),
                _ => {}
            }
        }
        None
    }

    fn intern(&mut self, node: Node) -> FormulaId {
        let size = node.size();
        self.budget.charge(1 + size as u64 / 32);
        if let Some(&id) = self.ids.get(&node) {
            return id;
        }
        if self.nodes.len() > FALSE.index() {
            self.budget.charge_bytes(240 + size);
            if self.budget.is_spent() {
                return FALSE;
            }
        }
        let id = FormulaId(self.nodes.len() as u32);
        self.nodes.push(node.clone());
        self.ids.insert(node, id);
        id
    }

    /// One of the values.
    pub(crate) fn values(&mut self, list: Vec<Value>) -> FormulaId {
        let nodes = list.iter().map(weight).sum::<u64>();
        self.budget.charge(nodes);
        self.budget.charge_bytes(96 * nodes as usize);
        if self.budget.is_spent() {
            return FALSE;
        }
        self.lit(Lit::Values(Values::new(list)))
    }

    pub(crate) fn lit(&mut self, lit: Lit) -> FormulaId {
        match &lit {
            Lit::Types(0b11_1111) | Lit::MinLength(0) | Lit::MinItems(0) | Lit::MinProps(0) => TRUE,
            Lit::Contains(_, 0, None) | Lit::Key(_, TRUE) | Lit::Keys(_, _, TRUE) | Lit::Rest(_, TRUE) => {
                TRUE
            }
            Lit::Names(TRUE) => TRUE,
            Lit::Types(0) => FALSE,
            Lit::Values(values) if values.list.is_empty() => FALSE,
            Lit::Items { prefix, rest: TRUE } if prefix.iter().all(|&f| f == TRUE) => TRUE,
            _ => self.intern(Node::Lit(lit)),
        }
    }

    pub(crate) fn types(&mut self, types: impl IntoIterator<Item = Type>) -> FormulaId {
        let bits = types.into_iter().fold(0, |bits, t| bits | t.bit());
        self.lit(Lit::Types(bits))
    }

    pub(crate) fn def(&mut self, id: DefId) -> FormulaId {
        self.intern(Node::Def(id))
    }

    pub(crate) fn not(&mut self, f: FormulaId) -> FormulaId {
        match self.node(f) {
            Node::True => FALSE,
            Node::False => TRUE,
            Node::Not(inner) => *inner,
            Node::Lit(Lit::Types(bits)) => {
                let rest = 0b11_1111 & !bits;
                self.lit(Lit::Types(rest))
            }
            _ => self.intern(Node::Not(f)),
        }
    }

    /// All of them. The order stays: it decides the order of properties.
    pub(crate) fn and(&mut self, list: impl IntoIterator<Item = FormulaId>) -> FormulaId {
        let mut flat = Distinct::default();
        for f in list {
            match self.node(f) {
                Node::True => {}
                Node::False => return FALSE,
                Node::And(inner) => flat.extend(inner),
                _ => flat.push(f),
            }
        }
        if self.has_complements(&flat) {
            return FALSE;
        }
        match flat.list.len() {
            0 => TRUE,
            1 => flat.list[0],
            _ => self.intern(Node::And(flat.list.into())),
        }
    }

    pub(crate) fn or(&mut self, list: impl IntoIterator<Item = FormulaId>) -> FormulaId {
        let mut flat = Distinct::default();
        for f in list {
            match self.node(f) {
                Node::False => {}
                Node::True => return TRUE,
                Node::Or(inner) => flat.extend(inner),
                _ => flat.push(f),
            }
        }
        if self.has_complements(&flat) {
            return TRUE;
        }
        match flat.list.len() {
            0 => FALSE,
            1 => flat.list[0],
            _ => self.intern(Node::Or(flat.list.into())),
        }
    }

    pub(crate) fn one(&mut self, list: &[FormulaId]) -> FormulaId {
        let list: Vec<FormulaId> = list.iter().copied().filter(|&f| f != FALSE).collect();
        match list.len() {
            0 => FALSE,
            1 => list[0],
            _ => self.intern(Node::One(list.into())),
        }
    }

    fn has_complements(&self, list: &Distinct) -> bool {
        self.budget.charge(list.list.len() as u64 / 4);
        list.list.iter().any(|&f| matches!(self.node(f), Node::Not(g) if list.contains(*g)))
    }
}

/// Formulas in the order in which they first came.
#[derive(Default)]
struct Distinct {
    list: Vec<FormulaId>,
    /// The same, once the list is long.
    set: HashSet<FormulaId>,
}

impl Distinct {
    fn contains(&self, f: FormulaId) -> bool {
        if self.set.is_empty() { self.list.contains(&f) } else { self.set.contains(&f) }
    }

    fn push(&mut self, f: FormulaId) {
        if self.contains(f) {
            return;
        }
        self.list.push(f);
        if self.list.len() == SHORT {
            self.set.extend(self.list.iter().copied());
        } else if self.list.len() > SHORT {
            self.set.insert(f);
        }
    }

    fn extend(&mut self, list: &[FormulaId]) {
        for &f in list {
            self.push(f);
        }
    }
}

impl Node {
    /// Bytes that the node holds beside itself.
    fn size(&self) -> usize {
        match self {
            Node::And(list) | Node::Or(list) | Node::One(list) => 4 * list.len(),
            Node::Lit(Lit::Items { prefix, .. }) => 4 * prefix.len(),
            Node::Lit(Lit::Values(values)) => 8 * values.texts.len() + values.key.len(),
            Node::Lit(Lit::Rest(others, _)) => 16 * others.names.len() + 4 * others.languages.len(),
            Node::Lit(Lit::Key(key, _) | Lit::Required(key) | Lit::Unknown(_, key)) => key.len(),
            Node::Lit(
                Lit::Match(_, Some(text)) | Lit::Offer(_, Some(text)) | Lit::Keys(_, Some(text), _),
            ) => text.len(),
            _ => 0,
        }
    }
}

impl Formulas {
    /// A property in its place, even if its value may be anything.
    pub(crate) fn property(&mut self, key: &str, f: FormulaId) -> FormulaId {
        self.intern(Node::Lit(Lit::Key(key.into(), f)))
    }
}
