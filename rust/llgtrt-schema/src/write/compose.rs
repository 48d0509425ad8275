//! Turns a written schema with automata ([`rows`](super::rows)) into a grammar in llguidance's dialect of
//! Lark. Whatever contains no automaton that is needed stays a schema, under `%json`.
//!
//! Pure functions. The grammar allows the same text as a schema does: keys in order, the separators and
//! the whitespace of `x-guidance`.

use std::collections::{HashMap, HashSet};
use std::fmt::Write;
use std::rc::Rc;

use serde_json::{Map, Value, json};

use crate::formula::FormulaId;
use crate::shape::numerals::{Digits, terminal};
use crate::tree::{Automaton, Container, Document, Key, Tree, name};

/// Longest grammar, in bytes.
const MAX_BYTES: usize = 1 << 20;

/// A JSON string that only writes as an escape what has to be one.
const STRING: &str = r#"/"([^"\\\x00-\x1F\x7F]|\\[nrbtf\\"])*"/"#;

/// The grammar; `None` if it gets too long.
pub(crate) fn lark(document: &Document, options: Option<&Value>) -> Option<String> {
    let mut writer = Writer {
        document,
        special: special_definitions(document),
        options: options.cloned().unwrap_or_else(|| json!({})),
        out: String::new(),
        leaves: HashMap::new(),
        keys: HashMap::new(),
        count: 0,
    };
    let start = writer.node(&document.root)?;
    let option = |name: &str| writer.options.get(name).and_then(Value::as_str).map(str::to_owned);
    let flexible = writer.options.get("whitespace_flexible").and_then(Value::as_bool).unwrap_or(true);
    let blank = option("whitespace_pattern").or(flexible.then(|| r"[\x20\x0A\x0D\x09]+".to_owned()));
    let mut text = "%llguidance {\"ignore_once\": true}\n".to_owned();
    if let Some(blank) = blank {
        let _ = writeln!(text, "%ignore {}", regex(&blank));
    }
    let _ = writeln!(text, "start: {start}\nSTRING: {STRING}");
    let _ = writeln!(text, "COMMA: {}", option("item_separator").map_or("\",\"".to_owned(), |r| regex(&r)));
    let _ = writeln!(text, "COLON: {}", option("key_separator").map_or("\":\"".to_owned(), |r| regex(&r)));
    for (f, tree) in &document.definitions {
        if writer.special.contains(f) {
            let body = writer.node(tree)?;
            let _ = writeln!(writer.out, "d_{}: {body}", name(*f));
        }
    }
    text.push_str(&writer.out);
    (text.len() <= MAX_BYTES).then_some(text)
}

/// The definitions that need rules: those with an automaton of their own, and those that refer to one.
fn special_definitions(document: &Document) -> HashSet<FormulaId> {
    let mut special = HashSet::new();
    loop {
        let before = special.len();
        for (f, tree) in &document.definitions {
            if !special.contains(f) && is_special(tree, &special) {
                special.insert(*f);
            }
        }
        if special.len() == before {
            return special;
        }
    }
}

fn is_special(tree: &Tree, special: &HashSet<FormulaId>) -> bool {
    match tree {
        Tree::Reference(f) => special.contains(f),
        Tree::Digits(..) => true,
        Tree::Automaton(automaton) if automaton.equivalent.is_none() => true,
        tree => {
            let mut found = false;
            tree.children(|child| found = found || is_special(child, special));
            found
        }
    }
}

struct Writer<'a> {
    document: &'a Document,
    special: HashSet<FormulaId>,
    options: Value,
    out: String,
    /// Rules of schemas without automata, by their text.
    leaves: HashMap<String, String>,
    /// Terminals of keys.
    keys: HashMap<Key, String>,
    count: usize,
}

impl Writer<'_> {
    fn name(&mut self, prefix: &str) -> String {
        self.count += 1;
        format!("{prefix}{}", self.count)
    }

    /// The name of a rule for the schema.
    fn node(&mut self, tree: &Tree) -> Option<String> {
        if self.out.len() > MAX_BYTES {
            return None;
        }
        match tree {
            tree if !is_special(tree, &self.special) => self.leaf(tree.to_json(), tree),
            Tree::Reference(f) => Some(format!("d_{}", name(*f))),
            Tree::AnyOf(list) => {
                let names: Option<Vec<String>> = list.iter().map(|option| self.node(option)).collect();
                let rule = self.name("a");
                let _ = writeln!(self.out, "{rule}: {}", names?.join(" | "));
                Some(rule)
            }
            Tree::Automaton(automaton) => self.automaton(automaton),
            Tree::Digits(_, all) => Some(self.number(all)),
            // Every array and object has an automaton where something inside needs one.
            _ => None,
        }
    }

    fn automaton(&mut self, automaton: &Automaton) -> Option<String> {
        let object = automaton.container == Container::Object;
        let rule = self.name("v");
        let (open, close) = if object { ('{', '}') } else { ('[', ']') };
        let _ = writeln!(self.out, "{rule}: \"{open}\" {rule}_0f \"{close}\"");
        for (at, row) in automaton.rows.iter().enumerate() {
            let mut edges = Vec::new();
            for edge in &row.edges {
                let value = self.node(&edge.value)?;
                let key = if object { format!("{} COLON ", self.key(&edge.key)?) } else { String::new() };
                edges.push(format!("{key}{value} {rule}_{}", edge.to));
            }
            // Before the first item there is no comma.
            for (mark, comma) in [("", "COMMA "), ("f", "")] {
                let mut options: Vec<String> = edges.iter().map(|edge| format!("{comma}{edge}")).collect();
                if let Some(to) = row.skip {
                    options.push(format!("{rule}_{to}{mark}"));
                }
                if row.end {
                    options.push("\"\"".to_owned());
                }
                // A row without a way on is one that nothing leads to.
                if !options.is_empty() {
                    let _ = writeln!(self.out, "{rule}_{at}{mark}: {}", options.join(" | "));
                }
            }
        }
        Some(rule)
    }

    /// The name of a terminal for numbers of whose digits all of this holds.
    fn number(&mut self, digits: &[Digits]) -> String {
        let text = terminal(digits);
        if let Some(name) = self.leaves.get(&text) {
            return name.clone();
        }
        let name = self.name("N");
        let _ = writeln!(self.out, "{name}: {text}");
        self.leaves.insert(text, name.clone());
        name
    }

    /// A rule for a schema whose references are those of the tree.
    fn leaf(&mut self, schema: Value, tree: &Tree) -> Option<String> {
        let mut members = match schema {
            Value::Object(members) => members,
            Value::Bool(true) => Map::new(),
            _ => return None,
        };
        let needed = self.needed(tree);
        if !needed.is_empty() {
            members.insert("$defs".to_owned(), Value::Object(needed));
        }
        members.insert("x-guidance".to_owned(), self.options.clone());
        let text = Value::Object(members).to_string();
        if let Some(rule) = self.leaves.get(&text) {
            return Some(rule.clone());
        }
        let rule = self.name("j");
        let _ = writeln!(self.out, "{rule}: %json {text}");
        self.leaves.insert(text, rule.clone());
        Some(rule)
    }

    /// The definitions that a schema refers to, and those that they refer to.
    fn needed(&self, tree: &Tree) -> Map<String, Value> {
        let mut found = Map::new();
        let mut open = vec![tree];
        while let Some(tree) = open.pop() {
            if let Tree::Reference(f) = tree {
                if let (Some(definition), false) =
                    (self.document.definition(*f), found.contains_key(&name(*f)))
                {
                    found.insert(name(*f), definition.to_json());
                    open.push(definition);
                }
            }
            tree.children(|child| open.push(child));
        }
        found
    }

    /// The name of a rule or terminal for a key, or its text.
    fn key(&mut self, key: &Key) -> Option<String> {
        let quoted = |name: &Rc<str>| literal(&Value::from(&**name).to_string());
        if let Some(rule) = self.keys.get(key) {
            return Some(rule.clone());
        }
        let rule = match key {
            Key::None => return None,
            Key::Name(name) => return Some(quoted(name)),
            Key::Pattern(pattern) => {
                self.leaf(json!({ "type": "string", "pattern": pattern }), &Tree::Any)?
            }
            Key::Except(names) if names.is_empty() => "STRING".to_owned(),
            Key::Except(names) => {
                let names: Vec<String> = names.iter().map(quoted).collect();
                let rule = self.name("KEY");
                let _ = writeln!(self.out, "{rule}: STRING & ~({})", names.join(" | "));
                rule
            }
        };
        self.keys.insert(key.clone(), rule.clone());
        Some(rule)
    }
}

/// A Lark string literal.
fn literal(text: &str) -> String {
    Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}

/// A Lark regular expression.
fn regex(text: &str) -> String {
    format!("/{}/", text.replace('/', "\\/"))
}
