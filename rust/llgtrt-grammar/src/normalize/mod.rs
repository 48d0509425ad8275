//! Rewrites a JSON Schema into an equivalent one that llguidance can hold.
//!
//! A schema is read as a boolean formula over primitive constraints ([`formula`]), the formula is
//! brought into alternatives of shapes, type by type ([`dnf`]), and these are written as a schema
//! without `not`, `oneOf`, `if` and the like ([`emit`]). A schema that needs none of this only has its
//! leaves checked ([`fast`]). Everything is bounded: what does not fit is refused with its path, or with
//! [`ResidueMode::Verify`] left open and named ([`residue`]).
//!
//! Pure functions; they recurse within [`NormalizeLimits::max_depth`] and need a big stack.

#![allow(
    clippy::similar_names,
    clippy::match_same_arms,
    clippy::format_push_string,
    reason = "the algebra names sets by letters, and its tables keep one line per case"
)]

mod array;
mod compose;
mod dialect;
mod dnf;
mod emit;
mod emit_array;
mod emit_object;
mod emit_rows;
mod eval;
mod fast;
mod formats;
mod formula;
mod inhabited;
mod lang;
mod num;
mod number;
mod object;
mod read;
mod read_object;
mod reference;
mod refs;
mod regions;
mod residue;
mod rules;
mod shapes;
mod string;
mod unevaluated;

use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::time::{Duration, Instant};

use serde_json::Value;

pub(crate) use self::dialect::is_draft_4;
pub use self::reference::reference;
pub use self::residue::{Residue, Segment};
pub use self::rules::{RULES, Rule};

use self::formula::{F, Formulas, Type};
use self::lang::Languages;
use self::refs::{Index, Place};

/// What to do with a constraint that no grammar can hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResidueMode {
    /// Refuse the schema.
    Refuse,
    /// Leave it out of the grammar and name it in [`Normalized::residue`]. A schema that is not refused
    /// otherwise gives the same grammar in both modes, and no residue.
    Verify,
}

/// Bounds of a normalisation.
#[derive(Debug, Clone)]
pub struct NormalizeLimits {
    /// Nodes of the schema that is written.
    pub max_nodes: usize,
    /// Alternatives of one schema.
    pub max_alternatives: usize,
    /// Elementary steps, about a microsecond each.
    pub max_steps: u64,
    /// Wall time.
    pub max_time: Duration,
    /// Nesting of schemas, references included.
    pub max_depth: usize,
    /// What to do with a constraint that no grammar can hold.
    pub residue: ResidueMode,
    /// May give rules of a grammar ([`Normalized::lark`]) where no schema says it.
    pub compose: bool,
}

impl Default for NormalizeLimits {
    fn default() -> Self {
        Self {
            max_nodes: 60_000,
            max_alternatives: 400,
            max_steps: 2_000_000,
            max_time: Duration::from_secs(2),
            max_depth: 300,
            residue: ResidueMode::Refuse,
            compose: false,
        }
    }
}

/// A rule that was used, and where first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleUse {
    /// Name of the rule in [`RULES`].
    pub rule: &'static str,
    /// Path of the schema it was used on.
    pub path: String,
}

/// A schema in llguidance's subset.
#[derive(Debug, Clone)]
pub struct Normalized {
    /// Accepts the same values as the source, except for what `residue` names. With `lark`, the part of
    /// it that a schema can say.
    pub schema: Value,
    /// A grammar of the same values in llguidance's dialect of Lark, to be compiled instead of the schema.
    /// Only where [`NormalizeLimits::compose`] allows it and no schema says it.
    pub lark: Option<String>,
    /// The rules that were used.
    pub rules: Vec<RuleUse>,
    /// What has to be checked after the fact.
    pub residue: Vec<Residue>,
}

/// Why a schema is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaError {
    /// Path of the schema, such as `properties.a.items`; empty for the root.
    pub path: String,
    /// The keyword, empty if it is the schema as a whole.
    pub keyword: String,
    /// Why.
    pub message: String,
    /// What to write instead.
    pub hint: String,
    /// It comes from a complement, of which other parts may be enough.
    negated: bool,
    /// The schema is fine, but a grammar for it is beyond the means or the limits.
    beyond: bool,
}

impl SchemaError {
    fn new(path: &str, keyword: &str, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            path: path.to_owned(),
            keyword: keyword.to_owned(),
            message: message.into(),
            hint: hint.into(),
            negated: false,
            beyond: false,
        }
    }

    fn beyond(mut self) -> Self {
        self.beyond = true;
        self
    }

    /// Path of the keyword itself.
    pub fn param(&self) -> String {
        let mut path = self.path.clone();
        if !self.keyword.is_empty() {
            push_key(&mut path, &self.keyword);
        }
        path
    }
}

impl std::fmt::Display for SchemaError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)?;
        if !self.hint.is_empty() {
            write!(f, "; {}", self.hint)?;
        }
        Ok(())
    }
}

impl std::error::Error for SchemaError {}

pub(crate) fn push_key(path: &mut String, key: &str) {
    crate::admission::push_key(path, key);
}

/// Rewrites `schema` so that llguidance accepts it, with the same meaning.
///
/// # Errors
/// The schema is malformed, allows nothing, or needs more than the limits allow.
pub fn normalize(schema: &Value, limits: &NormalizeLimits) -> Result<Normalized, SchemaError> {
    match fast::scan(schema) {
        Some(normalized) => Ok(normalized),
        None => rewrite(schema, limits),
    }
}

/// As [`normalize`], but through the formula even if the schema seems to need no rewriting. For
/// schemas that llguidance refuses in spite of that.
///
/// # Errors
/// As [`normalize`].
pub fn rewrite(schema: &Value, limits: &NormalizeLimits) -> Result<Normalized, SchemaError> {
    let strict = NormalizeLimits { residue: ResidueMode::Refuse, ..limits.clone() };
    let mut result = attempt(schema, &strict, false);
    if limits.compose && result.as_ref().is_err_and(|error| error.beyond) {
        result = attempt(schema, &strict, true);
    }
    match result {
        Err(error) if error.beyond && limits.residue == ResidueMode::Verify => attempt(schema, limits, false),
        result => result,
    }
}

fn attempt(schema: &Value, limits: &NormalizeLimits, compose: bool) -> Result<Normalized, SchemaError> {
    let (index, root) = Index::new(schema);
    let mut normalizer = Normalizer::new(index, limits);
    normalizer.compose = compose;
    let f = normalizer.read(&root)?;
    let mut written = normalizer.emit_root(f)?;
    if let (Some(options), Value::Object(object)) = (schema.get("x-guidance"), &mut written) {
        object.insert("x-guidance".to_owned(), options.clone());
    }
    let residue = normalizer.residues(f, schema);
    let mut lark = None;
    if compose {
        lark = Some(compose::lark(&written).ok_or_else(|| too_long(&normalizer))?);
        compose::strip(&mut written);
    }
    Ok(Normalized { schema: written, lark, rules: normalizer.rules, residue })
}

fn too_long(normalizer: &Normalizer) -> SchemaError {
    normalizer.too_large(formula::TRUE)
}

/// A referenced schema.
#[derive(Debug)]
struct Def<'a> {
    place: Place<'a>,
    body: Option<F>,
}

/// The state of one normalisation.
#[derive(Debug)]
pub(crate) struct Normalizer<'a> {
    index: Index<'a>,
    forms: Formulas,
    langs: Languages,
    limits: NormalizeLimits,
    defs: Vec<Def<'a>>,
    def_ids: HashMap<(*const Value, Rc<str>), u32>,
    shapes: HashMap<(F, bool, Type), Rc<Vec<dnf::Shape>>>,
    /// References being followed without a step into a value, one set per step.
    following: Vec<HashSet<(u32, bool)>>,
    empties: HashMap<F, bool>,
    testing: HashSet<F>,
    emitter: emit::Emitter,
    /// Keys in the order in which the schema first mentions them.
    ranks: HashMap<Rc<str>, usize>,
    rules: Vec<RuleUse>,
    used: HashSet<(&'static str, Rc<str>)>,
    left: residue::Left,
    /// Automata are written.
    compose: bool,
    steps: u64,
    depth: usize,
    deadline: Instant,
}

impl<'a> Normalizer<'a> {
    fn new(index: Index<'a>, limits: &NormalizeLimits) -> Self {
        let deadline = Instant::now() + limits.max_time;
        Self {
            index,
            forms: Formulas::new(),
            langs: Languages::new(deadline),
            limits: limits.clone(),
            defs: Vec::new(),
            def_ids: HashMap::new(),
            shapes: HashMap::new(),
            following: vec![HashSet::new()],
            empties: HashMap::new(),
            testing: HashSet::new(),
            emitter: emit::Emitter::default(),
            ranks: HashMap::new(),
            rules: Vec::new(),
            used: HashSet::new(),
            left: residue::Left::default(),
            compose: false,
            steps: 0,
            depth: 0,
            deadline,
        }
    }

    /// Notes the first use of a rule at a path.
    fn rule(&mut self, rule: &'static str, path: &Rc<str>) {
        if self.used.insert((rule, Rc::clone(path))) {
            self.rules.push(RuleUse { rule, path: path.to_string() });
        }
    }

    /// Notes that the schema mentions a key.
    fn mention(&mut self, key: &str) {
        if !self.ranks.contains_key(key) {
            self.ranks.insert(key.into(), self.ranks.len());
        }
    }

    /// Counts a step of work on `f`.
    fn step(&mut self, f: F) -> Result<(), SchemaError> {
        self.steps += 1;
        let late = self.steps.is_multiple_of(64) && Instant::now() > self.deadline;
        if self.steps > self.limits.max_steps || late {
            return Err(self.too_large(f));
        }
        Ok(())
    }

    fn enter(&mut self) -> Result<(), SchemaError> {
        self.depth += 1;
        if self.depth > 40 * self.limits.max_depth {
            return Err(SchemaError::new(
                "",
                "",
                "the schema is nested too deeply, or a reference leads back to itself",
                "use fewer levels",
            ));
        }
        Ok(())
    }

    fn leave(&mut self) {
        self.depth -= 1;
    }

    fn too_large(&self, f: F) -> SchemaError {
        let place = self.forms.path_near(f).map_or("", |path| path);
        let (path, keyword) = split_keyword(place);
        SchemaError::new(
            path,
            keyword,
            "rewriting this takes more alternatives than the limit allows",
            "give the alternatives a property with a `const` of its own in each, or use `anyOf`",
        )
        .beyond()
    }
}

/// Splits `a.b.oneOf` at its last keyword.
fn split_keyword(path: &str) -> (&str, &str) {
    match path.rsplit_once('.') {
        Some((head, tail)) if !tail.contains('[') => (head, tail),
        None if !path.contains('[') => ("", path),
        _ => (path, ""),
    }
}
