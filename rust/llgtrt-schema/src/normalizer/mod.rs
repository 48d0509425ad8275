//! The state of one normalisation, shared by the stages. It knows what they keep, and none of them.

mod emitter;
mod evaluated;
mod left;

pub(crate) use self::emitter::{Emitter, Mark, State};
pub(crate) use self::evaluated::{Case, Cases, Seen};
pub(crate) use self::left::Left;
pub use self::left::Segment;

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use serde_json::Value;

use crate::budget::{Budget, Level, Spent};
use crate::error::{Reason, SchemaError};
use crate::formula::{DefId, FormulaId, Formulas, TRUE, Type};
use crate::languages::Languages;
use crate::limits::NormalizeLimits;
use crate::path::SchemaPath;
use crate::rules::RuleUse;
use crate::shape::Shape;
use crate::source::{Index, Place, PlaceKey};

/// A referenced schema.
#[derive(Debug)]
pub(crate) struct Def<'a> {
    pub(crate) place: Place<'a>,
    pub(crate) body: Option<FormulaId>,
}

/// The state of one normalisation.
#[derive(Debug)]
pub(crate) struct Normalizer<'a> {
    pub(crate) budget: Rc<Budget>,
    pub(crate) index: Index<'a>,
    pub(crate) forms: Formulas,
    pub(crate) langs: Languages,
    pub(crate) limits: NormalizeLimits,
    pub(crate) defs: Vec<Def<'a>>,
    pub(crate) def_ids: HashMap<(*const Value, Rc<str>), DefId>,
    /// Schemas that were read.
    pub(crate) known: HashMap<PlaceKey, FormulaId>,
    /// What schemas evaluate; `None` while that is found out.
    pub(crate) evaluated: HashMap<PlaceKey, Option<Cases>>,
    pub(crate) shapes: HashMap<(FormulaId, bool, Type), Rc<Vec<Shape>>>,
    /// What was found out about the parts of the value that is evaluated, by where they are: while nothing else
    /// can be there.
    pub(crate) memo: Option<HashMap<(FormulaId, *const Value), bool>>,
    /// References being followed without a step into a value, one set per step.
    pub(crate) following: Vec<HashSet<(DefId, bool)>>,
    pub(crate) empties: HashMap<FormulaId, bool>,
    pub(crate) testing: HashSet<FormulaId>,
    pub(crate) emitter: Emitter,
    /// Keys in the order in which the schema first mentions them.
    pub(crate) ranks: HashMap<Rc<str>, usize>,
    pub(crate) rules: Vec<RuleUse>,
    pub(crate) used: HashSet<(&'static str, SchemaPath)>,
    pub(crate) left: Left,
    /// Automata are written.
    pub(crate) compose: bool,
    /// Numbers that no schema holds become the nearest range inside.
    pub(crate) narrow: bool,
    /// There are numbers that no schema holds.
    pub(crate) has_wide_numbers: bool,
    /// Why the first of the alternatives was left out that others may do without.
    pub(crate) left_out: Option<SchemaError>,
}

impl<'a> Normalizer<'a> {
    pub(crate) fn new(index: Index<'a>, limits: &NormalizeLimits, budget: &Rc<Budget>) -> Self {
        Self {
            budget: Rc::clone(budget),
            index,
            forms: Formulas::new(budget),
            langs: Languages::new(budget),
            limits: limits.clone(),
            defs: Vec::new(),
            def_ids: HashMap::new(),
            known: HashMap::new(),
            evaluated: HashMap::new(),
            shapes: HashMap::new(),
            memo: None,
            following: vec![HashSet::new()],
            empties: HashMap::new(),
            testing: HashSet::new(),
            emitter: Emitter::default(),
            ranks: HashMap::new(),
            rules: Vec::new(),
            used: HashSet::new(),
            left: Left::default(),
            compose: false,
            narrow: false,
            has_wide_numbers: false,
            left_out: None,
        }
    }

    /// Notes the first use of a rule at a path.
    pub(crate) fn rule(&mut self, rule: &'static str, path: &SchemaPath) {
        if self.used.insert((rule, path.clone())) {
            self.budget.charge_bytes(2 * path.len() + 100);
            self.rules.push(RuleUse { rule, path: path.to_string() });
        }
    }

    /// As [`Normalizer::rule`], at the root where there is no path.
    pub(crate) fn rule_path(&mut self, rule: &'static str, path: Option<&SchemaPath>) {
        let path = path.cloned().unwrap_or_else(SchemaPath::root);
        self.rule(rule, &path);
    }

    /// Notes that the schema mentions a key.
    pub(crate) fn mention(&mut self, key: &str) {
        if !self.ranks.contains_key(key) {
            self.budget.charge_bytes(key.len() + 50);
            self.ranks.insert(key.into(), self.ranks.len());
        }
    }

    /// Counts a step of work on `f`.
    pub(crate) fn step(&self, f: FormulaId) -> Result<(), SchemaError> {
        self.spend(f, 1)
    }

    /// Counts steps of work on `f`.
    pub(crate) fn spend(&self, f: FormulaId, steps: u64) -> Result<(), SchemaError> {
        self.budget.spend(steps).map_err(|spent| self.spent(f, spent))
    }

    /// Counts bytes that are kept for `f`.
    pub(crate) fn hold(&self, f: FormulaId, bytes: usize) -> Result<(), SchemaError> {
        self.budget.hold(bytes).map_err(|spent| self.spent(f, spent))
    }

    /// Enters a level of recursion, which lasts as long as what is returned.
    pub(crate) fn enter(&self) -> Result<Level, SchemaError> {
        self.budget.enter().map_err(|spent| self.spent(TRUE, spent))
    }

    /// The error for a budget that is spent by work on `f`.
    pub(crate) fn spent(&self, f: FormulaId, spent: Spent) -> SchemaError {
        let near = self.near(f);
        let (path, keyword) = near.split_keyword();
        let (reason, message) = match spent {
            Spent::Steps => {
                (Reason::BudgetSpent, "rewriting the schema takes more steps than the limit allows")
            }
            Spent::Bytes => {
                (Reason::BudgetSpent, "rewriting the schema takes more memory than the limit allows")
            }
            Spent::Properties => (
                Reason::BudgetSpent,
                "the schema, rewritten, has objects of more properties than the limit allows",
            ),
            Spent::Ways => (
                Reason::TooWide,
                "too many ways to go on at one place: the schema has an object of many optional properties",
            ),
            Spent::Depth => {
                (Reason::TooDeep, "the schema is nested too deeply, or a reference leads back to itself")
            }
            Spent::Time => (Reason::TimedOut, "the schema was not rewritten within the time limit"),
        };
        SchemaError::new(&path, keyword, message, "").because(reason)
    }

    pub(crate) fn too_large(&self, f: FormulaId) -> SchemaError {
        let near = self.near(f);
        let (path, keyword) = near.split_keyword();
        let message = "rewriting this takes more alternatives than the limit allows";
        SchemaError::new(&path, keyword, message, "").because(Reason::TooLarge)
    }

    fn near(&self, f: FormulaId) -> SchemaPath {
        self.forms.path_near(f).cloned().unwrap_or_else(SchemaPath::root)
    }
}
