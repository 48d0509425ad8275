//! What a grammar leaves open so far, and how the values that judge it are reached.

use std::collections::{HashMap, HashSet};

use indexmap::IndexSet;

use crate::budget::Budget;
use crate::error::{Reason, SchemaError};
use crate::formula::FormulaId;

/// Places of one residual that are listed.
const MAX_PLACES: usize = 64;

/// Steps from the root to a place.
const MAX_STEPS: usize = 64;

/// A step from a value into one that it contains.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Segment {
    /// The value at this key.
    Key(String),
    /// The values at any keys.
    AnyKey,
    /// Any items.
    AnyIndex,
}

/// What is left open so far, and how formulas are reached.
#[derive(Debug, Default)]
pub(crate) struct Left {
    /// Formulas being written, outermost first.
    owners: Vec<FormulaId>,
    pub(crate) edges: HashMap<FormulaId, IndexSet<(FormulaId, Segment)>>,
    pub(crate) notes: Vec<(FormulaId, SchemaError)>,
    /// The notes by formula, path and keyword.
    noted: HashSet<(FormulaId, String, String)>,
    /// Formulas, not written themselves, of which more is accepted than they say.
    pub(crate) tainted: HashMap<FormulaId, SchemaError>,
    /// Parts that could not be read, by path.
    pub(crate) unread: HashMap<String, SchemaError>,
}

impl Left {
    pub(crate) fn enter(&mut self, f: FormulaId) {
        self.owners.push(f);
    }

    pub(crate) fn leave(&mut self) {
        self.owners.pop();
    }

    pub(crate) fn owner(&self) -> Option<FormulaId> {
        self.owners.last().copied()
    }

    /// The formula being written has values that `f` judges.
    pub(crate) fn edge(&mut self, f: FormulaId, segment: Segment) {
        if let Some(&owner) = self.owners.last() {
            self.edges.entry(owner).or_default().insert((f, segment));
        }
    }

    pub(crate) fn note(&mut self, f: FormulaId, error: &SchemaError) {
        if self.noted.insert((f, error.path.clone(), error.keyword.clone())) {
            self.notes.push((f, error.clone()));
        }
    }

    pub(crate) fn taint(&mut self, f: FormulaId, error: SchemaError) {
        self.tainted.entry(f).or_insert(error);
    }

    /// A part that could not be read.
    pub(crate) fn leave_unread(&mut self, path: &str, error: SchemaError) {
        self.unread.entry(path.to_owned()).or_insert(error);
    }

    /// Why a part could not be read.
    pub(crate) fn unknown(&self, path: &str) -> SchemaError {
        self.unread.get(path).cloned().unwrap_or_else(|| {
            SchemaError::new(path, "", "this part of the schema cannot be told", "")
                .because(Reason::Unsupported)
        })
    }

    /// All ways from `root` to `target`; `None` if there are too many, or if they recur.
    pub(crate) fn places(
        &self,
        sources: &HashMap<FormulaId, Vec<FormulaId>>,
        root: FormulaId,
        target: FormulaId,
        budget: &Budget,
    ) -> Option<Vec<Vec<Segment>>> {
        let mut reaching = HashSet::from([target]);
        let mut open = vec![target];
        while let Some(f) = open.pop() {
            let list = sources.get(&f).map_or(&[][..], Vec::as_slice);
            budget.spend(1 + list.len() as u64).ok()?;
            open.extend(list.iter().copied().filter(|&source| reaching.insert(source)));
        }
        let mut places = Vec::new();
        let mut open: Vec<(Vec<FormulaId>, Vec<Segment>)> = vec![(vec![root], Vec::new())];
        while let Some((way, steps)) = open.pop() {
            let at = *way.last()?;
            if at == target {
                places.push(steps.clone());
            }
            budget.spend(1 + way.len() as u64).ok()?;
            for (next, segment) in self.edges.get(&at).into_iter().flatten() {
                if !reaching.contains(next) {
                    continue;
                }
                if way.contains(next) || steps.len() >= MAX_STEPS || places.len() + open.len() >= MAX_PLACES {
                    return None;
                }
                let (mut way, mut steps) = (way.clone(), steps.clone());
                way.push(*next);
                steps.push(segment.clone());
                open.push((way, steps));
            }
        }
        places.sort_unstable_by_key(|steps| format!("{steps:?}"));
        (!places.is_empty()).then_some(places)
    }
}
