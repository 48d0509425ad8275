//! What is written: schemas in the grammar engine's terms as a typed tree, which becomes JSON, or rules of
//! a grammar, only at the end.
//!
//! A schema of the user is data here ([`Tree::Values`]) and is never searched for keywords.

use std::rc::Rc;

use serde_json::{Map, Value, json};

use crate::formula::{FormulaId, Type};
use crate::shape::numerals::Digits;

/// A written schema.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Tree {
    /// Every value.
    Any,
    /// No value.
    Never,
    /// The definition of a formula.
    Reference(FormulaId),
    AnyOf(Vec<Tree>),
    /// All values of these types.
    Types(Vec<Type>),
    /// The listed values.
    Values(Vec<Value>),
    /// Numbers or strings: a schema without schemas inside of it.
    Scalar(Map<String, Value>),
    /// Numbers, whole ones if the flag is set, of whose digits all of this holds. Only a grammar can say it.
    Digits(bool, Vec<Digits>),
    Array(Box<ArrayTree>),
    Object(Box<ObjectTree>),
    Automaton(Box<Automaton>),
}

/// Arrays: a tuple, the items behind it, and counts.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ArrayTree {
    pub(crate) prefix: Vec<Tree>,
    pub(crate) rest: Tree,
    pub(crate) min: u64,
    pub(crate) max: Option<u64>,
}

/// Objects: keys in order, disjoint patterns of further keys, all other keys, and counts.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ObjectTree {
    pub(crate) properties: Vec<Property>,
    pub(crate) patterns: Vec<(String, Tree)>,
    pub(crate) others: Tree,
    pub(crate) min: u64,
    pub(crate) max: Option<u64>,
}

impl ObjectTree {
    /// Items of llguidance's parser that a run of its optional properties puts into one row, at least. Each adds two
    /// behind a required property, three before the first one, and four where none is required: a comma may have to
    /// precede it or not.
    fn ways(&self) -> usize {
        let properties = || self.properties.iter().filter(|property| property.value != Tree::Never);
        let (mut most, mut run) = (0, 0);
        let mut each = if properties().any(|property| property.required) { 3 } else { 4 };
        for property in properties() {
            if property.required {
                (run, each) = (0, 2);
            } else {
                most = most.max(1 + each * run);
                run += 1;
            }
        }
        most
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Property {
    pub(crate) key: Rc<str>,
    pub(crate) value: Tree,
    pub(crate) required: bool,
}

/// What an automaton reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Container {
    Array,
    Object,
}

/// An array or an object as a finite automaton over its items or members. The first row is the start.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Automaton {
    pub(crate) container: Container,
    pub(crate) rows: Vec<Row>,
    /// A schema of the same values, where there is one: then the automaton only serves where something
    /// inside of it is not a schema.
    pub(crate) equivalent: Option<Tree>,
}

/// A state of an automaton.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Row {
    /// The value may end here.
    pub(crate) end: bool,
    /// Another row that is reached without reading anything.
    pub(crate) skip: Option<usize>,
    pub(crate) edges: Vec<Edge>,
}

/// Reads one item or member.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Edge {
    pub(crate) key: Key,
    pub(crate) value: Tree,
    /// The row it leads to.
    pub(crate) to: usize,
}

/// The key of a member.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Key {
    /// An item of an array has none.
    None,
    Name(Rc<str>),
    /// Any key but these.
    Except(Vec<Rc<str>>),
    /// Keys that match a regular expression of the grammar engine.
    Pattern(String),
}

/// A written schema with its definitions.
#[derive(Debug)]
pub(crate) struct Document {
    pub(crate) root: Tree,
    pub(crate) definitions: Vec<(FormulaId, Tree)>,
}

impl Tree {
    /// Numbers or strings, as their shape writes them: listed values are told apart.
    pub(crate) fn scalar(written: Value) -> Tree {
        match written {
            Value::Object(mut members) => match members.shift_remove("enum") {
                Some(Value::Array(values)) => Tree::Values(values),
                _ => Tree::Scalar(members),
            },
            other => Tree::Values(vec![other]),
        }
    }

    /// Calls `visit` with each schema directly inside of this one.
    pub(crate) fn children<'t>(&'t self, mut visit: impl FnMut(&'t Tree)) {
        match self {
            Tree::AnyOf(list) => list.iter().for_each(visit),
            Tree::Array(array) => {
                array.prefix.iter().for_each(&mut visit);
                visit(&array.rest);
            }
            Tree::Object(object) => {
                object.properties.iter().for_each(|property| visit(&property.value));
                object.patterns.iter().for_each(|(_, value)| visit(value));
                visit(&object.others);
            }
            Tree::Automaton(automaton) => {
                let edges = automaton.rows.iter().flat_map(|row| &row.edges);
                edges.for_each(|edge| visit(&edge.value));
                automaton.equivalent.iter().for_each(visit);
            }
            Tree::Any
            | Tree::Never
            | Tree::Reference(_)
            | Tree::Types(_)
            | Tree::Values(_)
            | Tree::Scalar(_)
            | Tree::Digits(..) => {}
        }
    }

    /// As [`Tree::children`], to change them.
    pub(crate) fn children_mut<'t>(&'t mut self, mut visit: impl FnMut(&'t mut Tree)) {
        match self {
            Tree::AnyOf(list) => list.iter_mut().for_each(visit),
            Tree::Array(array) => {
                array.prefix.iter_mut().for_each(&mut visit);
                visit(&mut array.rest);
            }
            Tree::Object(object) => {
                object.properties.iter_mut().for_each(|property| visit(&mut property.value));
                object.patterns.iter_mut().for_each(|(_, value)| visit(value));
                visit(&mut object.others);
            }
            Tree::Automaton(automaton) => {
                let edges = automaton.rows.iter_mut().flat_map(|row| &mut row.edges);
                edges.for_each(|edge| visit(&mut edge.value));
                automaton.equivalent.iter_mut().for_each(visit);
            }
            Tree::Any
            | Tree::Never
            | Tree::Reference(_)
            | Tree::Types(_)
            | Tree::Values(_)
            | Tree::Scalar(_)
            | Tree::Digits(..) => {}
        }
    }

    /// Whether some reference inside is one that `wanted` holds for.
    pub(crate) fn refers(&self, wanted: &impl Fn(FormulaId) -> bool) -> bool {
        let mut found = matches!(self, Tree::Reference(f) if wanted(*f));
        self.children(|child| found = found || child.refers(wanted));
        found
    }

    /// Nodes of the JSON.
    pub(crate) fn nodes(&self) -> usize {
        match self {
            Tree::Any | Tree::Never => 1,
            Tree::Reference(_) => 2,
            Tree::AnyOf(list) => 2 + list.iter().map(Tree::nodes).sum::<usize>(),
            Tree::Digits(_, all) => 2 + all.len(),
            Tree::Types(types) => 2 + if types.len() > 1 { types.len() } else { 0 },
            Tree::Values(values) => {
                1 + usize::from(values.len() != 1) + values.iter().map(value_nodes).sum::<usize>()
            }
            Tree::Scalar(members) => 1 + members.values().map(value_nodes).sum::<usize>(),
            Tree::Array(array) => {
                let prefix: usize = array.prefix.iter().map(Tree::nodes).sum();
                4 + usize::from(prefix > 0) + prefix + array.rest.nodes()
            }
            Tree::Object(object) => {
                let properties: usize = object
                    .properties
                    .iter()
                    .map(|property| property.value.nodes() + usize::from(property.required))
                    .sum();
                let patterns: usize = object.patterns.iter().map(|(_, value)| value.nodes()).sum();
                4 + properties + patterns + object.others.nodes()
            }
            Tree::Automaton(automaton) => {
                let mut all = 2;
                for row in &automaton.rows {
                    all += 2 + row.edges.iter().map(|edge| 3 + edge.value.nodes()).sum::<usize>();
                }
                all + automaton.equivalent.as_ref().map_or(0, Tree::nodes)
            }
        }
    }

    /// The squares of how many properties each object in the tree has, all together.
    pub(crate) fn property_squares(&self) -> u64 {
        let mut all = match self {
            Tree::Object(object) => (object.properties.len() as u64).pow(2),
            _ => 0,
        };
        self.children(|child| all += child.property_squares());
        all
    }

    /// The most ways to go on at one place that the properties of an object in the tree make.
    pub(crate) fn ways(&self) -> usize {
        let mut most = match self {
            Tree::Object(object) => object.ways(),
            _ => 0,
        };
        self.children(|child| most = most.max(child.ways()));
        most
    }

    /// The schema, as far as one says it: an automaton without an equivalent is any value of its type.
    pub(crate) fn to_json(&self) -> Value {
        match self {
            Tree::Any => Value::Bool(true),
            Tree::Never => Value::Bool(false),
            Tree::Reference(f) => json!({ "$ref": format!("#/$defs/{}", name(*f)) }),
            Tree::AnyOf(list) => json!({ "anyOf": list.iter().map(Tree::to_json).collect::<Vec<_>>() }),
            Tree::Types(types) => match &types[..] {
                [one] => json!({ "type": one.name() }),
                list => json!({ "type": list.iter().map(|t| t.name()).collect::<Vec<_>>() }),
            },
            Tree::Values(values) => match &values[..] {
                [one] => json!({ "const": one }),
                list => json!({ "enum": list }),
            },
            Tree::Scalar(members) => Value::Object(members.clone()),
            Tree::Digits(true, _) => json!({ "type": "integer" }),
            Tree::Digits(false, _) => json!({ "type": "number" }),
            Tree::Array(array) => array.to_json(),
            Tree::Object(object) => object.to_json(),
            Tree::Automaton(automaton) => match (&automaton.equivalent, automaton.container) {
                (Some(tree), _) => tree.to_json(),
                (None, Container::Array) => json!({ "type": "array" }),
                (None, Container::Object) => json!({ "type": "object" }),
            },
        }
    }
}

impl ArrayTree {
    fn to_json(&self) -> Value {
        let mut out = Map::new();
        out.insert("type".to_owned(), json!("array"));
        if !self.prefix.is_empty() {
            let list: Vec<Value> = self.prefix.iter().map(Tree::to_json).collect();
            out.insert("prefixItems".to_owned(), Value::Array(list));
        }
        if self.rest != Tree::Any {
            out.insert("items".to_owned(), self.rest.to_json());
        }
        if self.min > 0 {
            out.insert("minItems".to_owned(), json!(self.min));
        }
        if let Some(max) = self.max {
            out.insert("maxItems".to_owned(), json!(max));
        }
        Value::Object(out)
    }
}

impl ObjectTree {
    /// Whether keys without a name may occur.
    pub(crate) fn is_open(&self) -> bool {
        self.others != Tree::Never || self.patterns.iter().any(|(_, value)| *value != Tree::Never)
    }

    fn to_json(&self) -> Value {
        let mut out = Map::new();
        out.insert("type".to_owned(), json!("object"));
        let mut properties = Map::new();
        let mut required = Vec::new();
        for property in &self.properties {
            properties.insert(property.key.to_string(), property.value.to_json());
            if property.required {
                required.push(Value::from(&*property.key));
            }
        }
        if !properties.is_empty() {
            out.insert("properties".to_owned(), Value::Object(properties));
        }
        if !self.patterns.is_empty() {
            let patterns = self.patterns.iter().map(|(text, value)| (text.clone(), value.to_json()));
            out.insert("patternProperties".to_owned(), Value::Object(patterns.collect()));
        }
        if self.others != Tree::Any {
            out.insert("additionalProperties".to_owned(), self.others.to_json());
        }
        if !required.is_empty() {
            out.insert("required".to_owned(), Value::Array(required));
        }
        if self.min > 0 {
            out.insert("minProperties".to_owned(), json!(self.min));
        }
        if let Some(max) = self.max {
            out.insert("maxProperties".to_owned(), json!(max));
        }
        Value::Object(out)
    }
}

impl Document {
    pub(crate) fn definition(&self, f: FormulaId) -> Option<&Tree> {
        self.definitions.iter().find(|(g, _)| *g == f).map(|(_, tree)| tree)
    }

    /// The schema with its definitions under `$defs`. Always an object.
    pub(crate) fn to_json(&self) -> Value {
        let mut root = match self.root.to_json() {
            Value::Object(members) => members,
            Value::Bool(false) => Map::from_iter([("enum".to_owned(), Value::Array(Vec::new()))]),
            _ => Map::new(),
        };
        if !self.definitions.is_empty() {
            let list = self.definitions.iter().map(|(f, tree)| (name(*f), tree.to_json()));
            root.insert("$defs".to_owned(), Value::Object(list.collect()));
        }
        Value::Object(root)
    }
}

/// The name of a definition.
pub(crate) fn name(f: FormulaId) -> String {
    format!("s{}", f.index())
}

fn value_nodes(value: &Value) -> usize {
    match value {
        Value::Array(list) => 1 + list.iter().map(value_nodes).sum::<usize>(),
        Value::Object(members) => 1 + members.values().map(value_nodes).sum::<usize>(),
        _ => 1,
    }
}
