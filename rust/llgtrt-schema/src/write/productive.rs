//! Takes out of a written schema what has no finite value: recursion without a way out, and what needs
//! it. What stays has a way to the end from everywhere, as far as the tree shows it.

use std::collections::HashSet;

use crate::budget::Budget;
use crate::formula::FormulaId;
use crate::tree::{ArrayTree, Automaton, Document, ObjectTree, Row, Tree};

impl Document {
    /// Leaves only what is part of some finite value. The root is [`Tree::Never`] if there is none.
    pub(crate) fn prune(&mut self, budget: &Budget) {
        let nodes: usize = self.definitions.iter().map(|(_, tree)| tree.nodes()).sum();
        let productive = self.productive(|| budget.spend(nodes as u64).is_ok());
        self.definitions.retain(|(f, _)| productive.contains(f));
        for (_, tree) in &mut self.definitions {
            tree.prune(&productive);
        }
        self.root.prune(&productive);
    }

    /// The definitions that have a finite value, as far as `go_on` allows rounds over all of them.
    fn productive(&self, go_on: impl Fn() -> bool) -> HashSet<FormulaId> {
        let mut known = HashSet::new();
        // Each round adds the definitions whose values need only those found before.
        loop {
            let before = known.len();
            for (f, tree) in &self.definitions {
                if !known.contains(f) && tree.has_value(&known) {
                    known.insert(*f);
                }
            }
            if known.len() == before || !go_on() {
                return known;
            }
        }
    }

    /// Whether everything in it has a finite value: what [`Document::prune`] leaves.
    #[cfg(test)]
    pub(crate) fn is_productive(&self) -> bool {
        let productive = self.productive(|| true);
        let mut open: Vec<&Tree> = self.definitions.iter().map(|(_, tree)| tree).collect();
        if self.definitions.len() != productive.len() {
            return false;
        }
        open.push(&self.root);
        while let Some(tree) = open.pop() {
            if *tree != Tree::Never && !tree.has_value(&productive) {
                return false;
            }
            tree.children(|child| open.push(child));
        }
        true
    }
}

impl Tree {
    /// Whether there is a finite value, if exactly these definitions have one.
    fn has_value(&self, known: &HashSet<FormulaId>) -> bool {
        match self {
            Tree::Any => true,
            Tree::Never => false,
            Tree::Reference(f) => known.contains(f),
            Tree::AnyOf(list) => list.iter().any(|tree| tree.has_value(known)),
            Tree::Types(types) => !types.is_empty(),
            Tree::Values(values) => !values.is_empty(),
            Tree::Scalar(_) => true,
            Tree::Digits(_, all) => !all.is_empty(),
            Tree::Array(array) => array.has_value(known),
            Tree::Object(object) => object.has_value(known),
            Tree::Automaton(automaton) => automaton.live(|tree| tree.has_value(known)).first() == Some(&true),
        }
    }

    fn prune(&mut self, known: &HashSet<FormulaId>) {
        if !self.has_value(known) {
            *self = Tree::Never;
        }
        match self {
            Tree::AnyOf(list) => {
                for tree in list.iter_mut() {
                    tree.prune(known);
                }
                list.retain(|tree| *tree != Tree::Never);
                if list.len() == 1 {
                    *self = list.swap_remove(0);
                }
            }
            Tree::Array(array) => array.prune(known),
            Tree::Object(object) => object.prune(known),
            Tree::Automaton(automaton) => automaton.prune(known),
            Tree::Any
            | Tree::Never
            | Tree::Reference(_)
            | Tree::Types(_)
            | Tree::Values(_)
            | Tree::Scalar(_)
            | Tree::Digits(..) => {}
        }
    }
}

impl ArrayTree {
    fn has_value(&self, known: &HashSet<FormulaId>) -> bool {
        let least = usize::try_from(self.min).unwrap_or(usize::MAX);
        self.max.is_none_or(|max| self.min <= max)
            && self.prefix.iter().take(least).all(|item| item.has_value(known))
            && (least <= self.prefix.len() || self.rest.has_value(known))
    }

    fn prune(&mut self, known: &HashSet<FormulaId>) {
        for item in &mut self.prefix {
            item.prune(known);
        }
        self.rest.prune(known);
        // No item follows one that cannot be written.
        if let Some(end) = self.prefix.iter().position(|item| *item == Tree::Never) {
            self.prefix.truncate(end);
            self.rest = Tree::Never;
        }
    }
}

impl ObjectTree {
    fn has_value(&self, known: &HashSet<FormulaId>) -> bool {
        let required = self.properties.iter().filter(|property| property.required);
        if !required.clone().all(|property| property.value.has_value(known)) {
            return false;
        }
        let least = required.count() as u64;
        if self.max.is_some_and(|max| max < least.max(self.min)) {
            return false;
        }
        if self.min <= least {
            return true;
        }
        let named = self.properties.iter().filter(|property| property.value.has_value(known)).count() as u64;
        named >= self.min
            || self.others.has_value(known)
            || self.patterns.iter().any(|(_, value)| value.has_value(known))
    }

    fn prune(&mut self, known: &HashSet<FormulaId>) {
        for property in &mut self.properties {
            property.value.prune(known);
        }
        for (_, value) in &mut self.patterns {
            value.prune(known);
        }
        self.others.prune(known);
        // Keys that no value can have are only named to keep them out of the others.
        if !self.is_open() {
            self.properties.retain(|property| property.value != Tree::Never);
            self.patterns.clear();
        }
    }
}

impl Automaton {
    /// Whether the value can be completed from each row.
    fn live(&self, has_value: impl Fn(&Tree) -> bool) -> Vec<bool> {
        let mut live: Vec<bool> = self.rows.iter().map(|row| row.end).collect();
        loop {
            let mut changed = false;
            for (at, row) in self.rows.iter().enumerate().rev() {
                let goes_on = |row: &Row| {
                    row.skip.is_some_and(|to| live[to])
                        || row.edges.iter().any(|edge| live[edge.to] && has_value(&edge.value))
                };
                if !live[at] && goes_on(row) {
                    live[at] = true;
                    changed = true;
                }
            }
            if !changed {
                return live;
            }
        }
    }

    /// Takes out edges without a value and rows without a way to the end; false if none is left.
    pub(crate) fn trim(&mut self) -> bool {
        let values = |tree: &Tree| *tree != Tree::Never;
        let live = self.live(values);
        self.keep(&live, values);
        live.first() == Some(&true)
    }

    fn prune(&mut self, known: &HashSet<FormulaId>) {
        let live = self.live(|tree| tree.has_value(known));
        for edge in self.rows.iter_mut().flat_map(|row| &mut row.edges) {
            edge.value.prune(known);
        }
        self.keep(&live, |tree| *tree != Tree::Never);
        if let Some(tree) = &mut self.equivalent {
            tree.prune(known);
        }
    }

    fn keep(&mut self, live: &[bool], has_value: impl Fn(&Tree) -> bool) {
        for row in &mut self.rows {
            row.skip = row.skip.filter(|&to| live[to]);
            row.edges.retain(|edge| live[edge.to] && has_value(&edge.value));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::budget::Budget;
    use crate::error::Reason;
    use crate::limits::NormalizeLimits;
    use crate::normalizer::Normalizer;
    use crate::source::Index;
    use crate::tree::{Document, Tree};

    fn written(schema: &Value, compose: bool) -> Document {
        let limits = NormalizeLimits::default();
        let budget = Budget::new(&limits);
        let (index, root) = Index::new(schema, &budget);
        let mut normalizer = Normalizer::new(index, &limits, &budget);
        normalizer.compose = compose;
        let f = normalizer.read(&root).unwrap();
        normalizer.write_root(f).unwrap()
    }

    /// A definition whose values never end.
    fn endless() -> Value {
        json!({"type": "object", "properties": {"next": {"$ref": "#/$defs/endless"}}, "required": ["next"]})
    }

    #[test]
    fn what_never_ends_is_not_written() {
        let to_endless = json!({"$ref": "#/$defs/endless"});
        for (schema, expected) in [
            (
                json!({"type": "object", "properties": {"a": {"type": "integer"}, "b": to_endless}}),
                json!({"type": "object", "properties": {"a": {"type": "integer"}},
                    "additionalProperties": false}),
            ),
            (
                json!({"type": "object", "properties": {"b": to_endless}, "additionalProperties": true}),
                json!({"type": "object", "properties": {"b": false}}),
            ),
            (
                json!({"type": "object", "additionalProperties": to_endless}),
                json!({"type": "object", "additionalProperties": false}),
            ),
            (
                json!({"type": "array", "prefixItems": [{"type": "null"}, to_endless]}),
                json!({"type": "array", "prefixItems": [{"type": "null"}], "items": false}),
            ),
            (json!({"anyOf": [to_endless, {"type": "null"}]}), json!({"type": "null"})),
        ] {
            let mut source = schema.clone();
            source["$defs"] = json!({"endless": endless()});
            let document = written(&source, false);
            assert!(document.is_productive(), "{schema}");
            assert_eq!(document.to_json(), expected, "{schema}");
        }
    }

    #[test]
    fn an_automaton_loses_what_never_ends() {
        let schema = json!({
            "type": "array",
            "contains": {"anyOf": [{"const": 1}, {"$ref": "#/$defs/endless"}]},
            "items": {"anyOf": [{"type": "integer"}, {"$ref": "#/$defs/endless"}]},
            "$defs": {"endless": endless()},
        });
        let document = written(&schema, true);
        assert!(document.is_productive());
        assert!(matches!(document.root, Tree::Automaton(_)), "{document:?}");
    }

    #[test]
    fn a_schema_of_nothing_finite_is_refused() {
        let schema = json!({"$ref": "#/$defs/endless", "$defs": {"endless": endless()}});
        let error = crate::normalize(&schema, &NormalizeLimits::default()).unwrap_err();
        assert_eq!(error.reason, Reason::AllowsNothing);
    }
}
