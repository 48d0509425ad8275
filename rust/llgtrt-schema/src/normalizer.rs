//! The state of one normalisation, shared by the stages.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::time::Instant;

use serde_json::Value;

use crate::expand;
use crate::formula::{FormulaId, Formulas, Type};
use crate::languages::Languages;
use crate::read::refs::{Index, Place};
use crate::{NormalizeLimits, Reason, RuleUse, SchemaError, path, residual, write};

/// A referenced schema.
#[derive(Debug)]
pub(crate) struct Def<'a> {
    pub(crate) place: Place<'a>,
    pub(crate) body: Option<FormulaId>,
}

/// The state of one normalisation.
#[derive(Debug)]
pub(crate) struct Normalizer<'a> {
    pub(crate) index: Index<'a>,
    pub(crate) forms: Formulas,
    pub(crate) langs: Languages,
    pub(crate) limits: NormalizeLimits,
    pub(crate) defs: Vec<Def<'a>>,
    pub(crate) def_ids: HashMap<(*const Value, Rc<str>), u32>,
    pub(crate) shapes: HashMap<(FormulaId, bool, Type), Rc<Vec<expand::Shape>>>,
    /// What was found out about the parts of the value that is evaluated, by where they are: while nothing else
    /// can be there.
    pub(crate) memo: Option<HashMap<(FormulaId, *const Value), bool>>,
    /// References being followed without a step into a value, one set per step.
    pub(crate) following: Vec<HashSet<(u32, bool)>>,
    pub(crate) empties: HashMap<FormulaId, bool>,
    pub(crate) testing: HashSet<FormulaId>,
    pub(crate) emitter: write::Emitter,
    /// Keys in the order in which the schema first mentions them.
    pub(crate) ranks: HashMap<Rc<str>, usize>,
    pub(crate) rules: Vec<RuleUse>,
    pub(crate) used: HashSet<(&'static str, Rc<str>)>,
    pub(crate) left: residual::Left,
    /// Automata are written.
    pub(crate) compose: bool,
    pub(crate) steps: u64,
    pub(crate) depth: usize,
    pub(crate) deadline: Instant,
}

impl<'a> Normalizer<'a> {
    pub(crate) fn new(index: Index<'a>, limits: &NormalizeLimits) -> Self {
        let deadline = Instant::now() + limits.max_time;
        Self {
            index,
            forms: Formulas::new(),
            langs: Languages::new(deadline),
            limits: limits.clone(),
            defs: Vec::new(),
            def_ids: HashMap::new(),
            shapes: HashMap::new(),
            memo: None,
            following: vec![HashSet::new()],
            empties: HashMap::new(),
            testing: HashSet::new(),
            emitter: write::Emitter::default(),
            ranks: HashMap::new(),
            rules: Vec::new(),
            used: HashSet::new(),
            left: residual::Left::default(),
            compose: false,
            steps: 0,
            depth: 0,
            deadline,
        }
    }

    /// Notes the first use of a rule at a path.
    pub(crate) fn rule(&mut self, rule: &'static str, path: &Rc<str>) {
        if self.used.insert((rule, Rc::clone(path))) {
            self.rules.push(RuleUse { rule, path: path.to_string() });
        }
    }

    /// Notes that the schema mentions a key.
    pub(crate) fn mention(&mut self, key: &str) {
        if !self.ranks.contains_key(key) {
            self.ranks.insert(key.into(), self.ranks.len());
        }
    }

    /// What was spent so far.
    pub(crate) fn spending(&self) -> crate::Spending {
        crate::Spending { steps: self.steps, bytes: 0 }
    }

    /// Counts a step of work on `f`.
    pub(crate) fn step(&mut self, f: FormulaId) -> Result<(), SchemaError> {
        self.steps += 1;
        let late = self.steps.is_multiple_of(64) && Instant::now() > self.deadline;
        if self.steps > self.limits.max_steps || late {
            return Err(self.too_large(f));
        }
        Ok(())
    }

    pub(crate) fn enter(&mut self) -> Result<(), SchemaError> {
        self.depth += 1;
        if self.depth > 40 * self.limits.max_depth {
            return Err(SchemaError::new(
                "",
                "",
                "the schema is nested too deeply, or a reference leads back to itself",
                "",
            )
            .because(Reason::TooDeep));
        }
        Ok(())
    }

    pub(crate) fn leave(&mut self) {
        self.depth -= 1;
    }

    pub(crate) fn too_large(&self, f: FormulaId) -> SchemaError {
        let place = self.forms.path_near(f).map_or("", |path| path);
        let (path, keyword) = path::split_keyword(place);
        SchemaError::new(path, keyword, "rewriting this takes more alternatives than the limit allows", "")
            .because(Reason::TooLarge)
    }
}
