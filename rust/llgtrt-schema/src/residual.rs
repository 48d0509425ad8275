//! What the grammar of a schema leaves open, and where in an instance that can show.
//!
//! With [`ResidualMode::Verify`](crate::ResidualMode::Verify) the grammar holds a superset of the schema:
//! what it cannot hold counts as satisfied, also under `not` or in one branch of `oneOf`. Whether an
//! instance is valid is then for a validator of the whole schema to say; an instance that the grammar
//! rejects is invalid all the same. Each [`Residual`] tells which keyword was left open, and the places
//! of the values on which it depends: text before the first of them is as certain as it is without it.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use crate::budget::weight;
use crate::error::SchemaError;
use crate::formula::{FormulaId, Lit, Node};
use crate::normalizer::{Normalizer, Segment};
use crate::path::Step;

/// A constraint that the grammar does not hold.
#[derive(Debug, Clone, PartialEq)]
pub struct Residual {
    /// Path of the schema that has the keyword, such as `properties.a.items`; empty for the root.
    pub path: String,
    /// The keyword; empty if it is the schema as a whole.
    pub keyword: String,
    /// The schema at the path, as it was given.
    pub schema: Value,
    /// Why the grammar does not hold it.
    pub message: String,
    /// Where the values are that it judges, from the root of an instance; `None` means anywhere. It
    /// depends on nothing but the values at these places and what they contain.
    pub places: Option<Vec<Vec<Segment>>>,
}

impl Normalizer<'_> {
    /// Notes what was left open in the parts of a formula that judge the same value.
    pub(crate) fn recollect(&mut self, f: FormulaId) -> Result<(), SchemaError> {
        if self.left.tainted.is_empty() && self.left.unread.is_empty() {
            return Ok(());
        }
        let mut seen = HashSet::new();
        let mut open = vec![f];
        while let Some(g) = open.pop() {
            if !seen.insert(g) {
                continue;
            }
            if let Some(error) = self.left.tainted.get(&g).cloned() {
                self.left.note(f, &error);
            }
            match self.forms.node(g).clone() {
                Node::Not(inner) => open.push(inner),
                Node::And(list) | Node::Or(list) | Node::One(list) => open.extend(list.iter()),
                Node::Def(number) => open.push(self.def_body(number)?),
                Node::Lit(Lit::Unknown(_, path)) => {
                    let error = self.left.unknown(&path);
                    self.left.note(f, &error);
                }
                // Keys have no place of their own: what is not told of them is not told of the object.
                Node::Lit(Lit::Names(names)) => open.push(names),
                Node::True | Node::False | Node::Lit(_) => {}
            }
        }
        Ok(())
    }

    /// Everything that was left open, for a grammar of `root`.
    pub(crate) fn residuals(
        &mut self,
        root: FormulaId,
        schema: &Value,
    ) -> Result<Vec<Residual>, SchemaError> {
        let notes = std::mem::take(&mut self.left.notes);
        let mut sources: HashMap<FormulaId, Vec<FormulaId>> = HashMap::new();
        for (&f, edges) in if notes.is_empty() { None } else { Some(&self.left.edges) }.into_iter().flatten()
        {
            self.spend(f, 1 + edges.len() as u64)?;
            for (to, _) in edges {
                sources.entry(*to).or_default().push(f);
            }
        }
        let mut known: HashMap<(String, String), usize> = HashMap::new();
        let mut list: Vec<Residual> = Vec::new();
        for (f, error) in notes {
            let places = self.left.places(&sources, root, f, &self.budget);
            self.spend(f, 1)?;
            let at = *known.entry((error.path.clone(), error.keyword.clone())).or_insert(list.len());
            if let Some(known) = list.get_mut(at) {
                let both = known.places.take().zip(places);
                known.places = both.map(|(mut all, more)| {
                    all.extend(more.into_iter().filter(|place| !all.contains(place)).collect::<Vec<_>>());
                    all
                });
            } else {
                let schema = at_path(schema, &error.path).unwrap_or(&Value::Null);
                // A schema inside of another one that is named as well is copied twice.
                self.hold(f, 96 * weight(schema) as usize + 400 + 2 * error.path.len())?;
                list.push(Residual {
                    schema: schema.clone(),
                    path: error.path,
                    keyword: error.keyword,
                    message: error.message,
                    places,
                });
            }
        }
        Ok(list)
    }
}

/// What the path of an error leads to; where the path has a key that was cut, the first that fits.
fn at_path<'a>(root: &'a Value, path: &str) -> Option<&'a Value> {
    crate::path::steps(path)?.iter().try_fold(root, |value, step| match step {
        Step::Key(key) => value.get(key).or_else(|| {
            let start = key.strip_suffix("...")?;
            let members = value.as_object()?;
            members.iter().find(|(key, _)| key.starts_with(start)).map(|(_, value)| value)
        }),
        Step::Index(index) => value.get(*index),
    })
}
