//! Objects in which a pattern matches a key that has a name, and values recur.
//!
//! llguidance intersects the schema of such a key with that of the pattern, and cannot where one of the two leads
//! back to itself. What is written for the key says all of it, so the pattern is written without the key.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use crate::error::SchemaError;
use crate::formula::{FormulaId, TRUE};
use crate::languages::MAX_PATTERN;
use crate::normalizer::Normalizer;
use crate::tree::{Document, ObjectTree, Tree};

impl Document {
    /// The definitions that lead back to themselves, or to one that does.
    fn endless(&self) -> HashSet<FormulaId> {
        let mut users: HashMap<FormulaId, Vec<FormulaId>> = HashMap::new();
        let mut uses: HashMap<FormulaId, usize> = HashMap::new();
        for (f, tree) in &self.definitions {
            let used = references(tree);
            uses.insert(*f, used.len());
            for g in used {
                users.entry(g).or_default().push(*f);
            }
        }
        let mut ends: Vec<FormulaId> =
            self.definitions.iter().map(|(f, _)| *f).filter(|f| uses[f] == 0).collect();
        while let Some(end) = ends.pop() {
            uses.remove(&end);
            for user in users.remove(&end).into_iter().flatten() {
                if let Some(left) = uses.get_mut(&user) {
                    *left -= 1;
                    if *left == 0 {
                        ends.push(user);
                    }
                }
            }
        }
        uses.into_keys().collect()
    }
}

fn references(tree: &Tree) -> HashSet<FormulaId> {
    let mut found = HashSet::new();
    let mut open = vec![tree];
    while let Some(tree) = open.pop() {
        if let Tree::Reference(f) = tree {
            found.insert(*f);
        }
        tree.children(|child| open.push(child));
    }
    found
}

impl Normalizer<'_> {
    /// Takes named keys out of patterns where llguidance could not intersect the values.
    pub(super) fn part_endless(&mut self, document: &mut Document) -> Result<(), SchemaError> {
        if self.emitter.keys.is_empty() {
            return Ok(());
        }
        let nodes: usize = document.definitions.iter().map(|(_, tree)| tree.nodes()).sum();
        self.spend(TRUE, 2 * nodes as u64)?;
        let endless = document.endless();
        if endless.is_empty() {
            return Ok(());
        }
        for (_, tree) in &mut document.definitions {
            self.part_tree(tree, &endless)?;
        }
        self.part_tree(&mut document.root, &endless)
    }

    fn part_tree(&mut self, tree: &mut Tree, endless: &HashSet<FormulaId>) -> Result<(), SchemaError> {
        self.step(TRUE)?;
        if let Tree::Object(object) = tree {
            self.part_object(object, endless)?;
        }
        let mut children = Vec::new();
        tree.children_mut(|child| children.push(child));
        children.into_iter().try_for_each(|child| self.part_tree(child, endless))
    }

    fn part_object(
        &mut self,
        object: &mut ObjectTree,
        endless: &HashSet<FormulaId>,
    ) -> Result<(), SchemaError> {
        let recurs = |tree: &Tree| tree.refers(&|f| endless.contains(&f));
        let is_alone = object.patterns.len() == 1 && object.others == Tree::Never;
        for at in 0..object.patterns.len() {
            let (text, value) = &object.patterns[at];
            let Some(&language) = self.emitter.keys.get(text) else { continue };
            let always = recurs(value);
            let mut names: Vec<Rc<str>> = Vec::new();
            for property in &object.properties {
                self.spend(TRUE, 1 + property.key.len() as u64)?;
                if (always || recurs(&property.value)) && self.langs.matches(language, &property.key) {
                    names.push(Rc::clone(&property.key));
                }
            }
            if names.is_empty() {
                continue;
            }
            let words: Vec<_> = names.iter().map(|name| self.langs.literal(name)).collect();
            let words = self.langs.or(words);
            let missing = self.langs.or([language, words]);
            let missing = self.langs.not(missing);
            if is_alone && self.langs.is_empty(missing) == Some(true) {
                // The pattern takes every key that has no name.
                object.others = object.patterns.remove(at).1;
                break;
            }
            let words = self.langs.not(words);
            let rest = self.langs.and([language, words]);
            if let Some(text) = self.langs.print(rest, MAX_PATTERN) {
                object.patterns[at].0 = text;
            }
        }
        Ok(())
    }
}
