//! What is to be checked of the answers under one schema: compiled once, with the grammar.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde_json::{Value, json};

use super::judge::{Allowance, Judge, READ_STEPS, Ruling};
use super::size::value_nodes;
use crate::refusal::Refusal;
use llgtrt_schema::path::push_key;
use llgtrt_schema::{Residual, Segment};

/// Steps to make the judges of single values, and what these may take, in bytes. What more of them would judge, the
/// judge of the whole does.
const OWN_STEPS: u64 = 4 * READ_STEPS;
const MAX_OWN_BYTES: usize = 16 << 20;

/// References followed at one place.
const MAX_REFERENCES: usize = 64;

/// Memory of a way to a value and of what is done there, in bytes.
const PLACE_BYTES: usize = 128;

/// The checks of one schema. Immutable and shared by its sequences.
#[derive(Debug)]
pub(crate) struct Plan {
    /// Ways from the root to the values that are checked by themselves, or that make an answer uncertain.
    pub(super) places: Vec<Vec<Segment>>,
    /// What is done at each place.
    pub(super) checks: Vec<Check>,
    /// The whole schema; `None` if only its parts can be judged, and that is enough.
    pub(super) whole: Option<Judge>,
    /// Ways that an answer may give up.
    pub(super) max_attempts: usize,
    /// Memory of the judges.
    bytes: usize,
}

/// What is done with a value at a place.
#[derive(Debug)]
pub(super) enum Check {
    /// Its items are to differ, and are judged as they come. Nothing else is left open.
    Unique,
    /// It is judged when it has ended, by its own schema.
    Value(Arc<Judge>),
    /// Nothing, but from here on only the end of the answer can tell. With `unique`, equal items are avoided
    /// all the same: another branch of the schema may allow them, but few answers need them, and an answer
    /// found wrong at its end seldom finds the way back to them.
    Wait { unique: bool },
}

/// Keywords under which a constraint may count as its opposite, or not at all.
const UNCERTAIN: [&str; 4] = ["not", "if", "contains", "else"];

impl Plan {
    /// The checks for what a grammar of `schema` leaves open.
    ///
    /// # Errors
    /// What is left open cannot be judged in a bounded time, or the texts of the grammar are not JSON.
    pub(crate) fn new(schema: &Value, residual: &[Residual], max_attempts: usize) -> Result<Self, Refusal> {
        for option in ["item_separator", "key_separator"] {
            if schema.pointer("/x-guidance").and_then(|options| options.get(option)).is_some() {
                let message = format!("`residual: verify` needs JSON; `{option}` changes what it is made of");
                return Err(Refusal::new(message, "take it out").at(format!("x-guidance.{option}")));
            }
        }
        let mut whole_steps = 2 * READ_STEPS;
        let mut plan = Self {
            places: Vec::new(),
            checks: Vec::new(),
            whole: Judge::new(schema, &mut whole_steps),
            max_attempts,
            bytes: 0,
        };
        let mut own = OwnJudges { known: HashMap::new(), bytes: 0, steps: OWN_STEPS };
        for left in residual {
            let ways = left.places.clone().unwrap_or_else(|| vec![Vec::new()]);
            // A value can be judged by itself where nothing else can excuse it.
            let alone =
                left.places.is_some() && ways.iter().all(|way| always_applies(schema, way, &left.path));
            let unique = left.keyword == "uniqueItems";
            let asserted = !left.path.split(['.', '[']).any(|step| UNCERTAIN.contains(&step));
            for way in ways {
                let own = if alone && !unique { own.of_place(schema, &way) } else { None };
                plan.places.push(way);
                plan.checks.push(match own {
                    _ if alone && unique => Check::Unique,
                    Some(own) => Check::Value(own),
                    None if plan.whole.is_none() => return Err(unjudged(left)),
                    None => Check::Wait { unique: unique && asserted },
                });
            }
        }
        plan.bytes = own.bytes + plan.whole.as_ref().map_or(0, Judge::bytes);
        Ok(plan)
    }

    /// Memory, roughly.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes + self.places.len() * PLACE_BYTES
    }

    /// Whether a value satisfies the whole schema; `None` if that takes too much to say.
    pub(crate) fn judge(&self, value: &Value) -> Option<bool> {
        match self.whole.as_ref()?.judge_value(value, &mut Allowance::check()) {
            Ruling::Valid => Some(true),
            Ruling::Invalid => Some(false),
            Ruling::PutOff | Ruling::TooCostly => None,
        }
    }
}

/// For a schema that leaves open what cannot be checked either.
fn unjudged(left: &Residual) -> Refusal {
    let message = format!(
        "`{}` is beyond a grammar here, and so is checking answers within a bounded time: {}",
        left.keyword, left.message
    );
    let mut path = left.path.clone();
    if !left.keyword.is_empty() {
        push_key(&mut path, &left.keyword);
    }
    Refusal::new(message, "write a smaller schema, or leave the keyword out").at(path)
}

/// The judges of single values, one for all places of which the same is asked.
struct OwnJudges {
    known: HashMap<blake3::Hash, Option<Arc<Judge>>>,
    bytes: usize,
    /// What is left of them.
    steps: u64,
}

impl OwnJudges {
    /// Judges the values at the end of the way by everything that applies to them whatever they are: what is left open
    /// there may be what several schemas ask for together. `None` if these schemas refer to more than definitions,
    /// which mean the same wherever they are read, or if there is no room for more judges.
    fn of_place(&mut self, root: &Value, way: &[Segment]) -> Option<Arc<Judge>> {
        let schemas: Vec<&Value> = at_place(root, way).into_iter().map(|(_, schema)| schema).collect();
        let part = match schemas[..] {
            [] => return None,
            [schema] => schema.clone(),
            _ => json!({ "allOf": schemas }),
        };
        let mut hasher = blake3::Hasher::new();
        hasher.update(&[u8::from(way.is_empty())]);
        hasher.update(part.to_string().as_bytes());
        let key = hasher.finalize();
        if let Some(known) = self.known.get(&key) {
            return known.clone();
        }
        let judge = self.make(root, way, part).map(Arc::new);
        self.bytes += judge.as_ref().map_or(0, |judge| judge.bytes());
        self.known.insert(key, judge.clone());
        judge
    }

    fn make(&mut self, root: &Value, way: &[Segment], part: Value) -> Option<Judge> {
        if self.steps == 0 || self.bytes > MAX_OWN_BYTES {
            return None;
        }
        let part = if way.is_empty() { part } else { with_definitions(root, part) };
        self.steps = self.steps.saturating_sub(value_nodes(&part).0);
        let is_whole = way.is_empty() || refers_to_definitions_only(&part);
        is_whole.then(|| Judge::new(&part, &mut self.steps)).flatten()
    }
}

/// A part of a schema with what it may refer to.
fn with_definitions(root: &Value, mut part: Value) -> Value {
    if let (Value::Object(root), Value::Object(part)) = (root, &mut part) {
        for key in ["$schema", "$defs", "definitions"] {
            if let Some(value) = root.get(key) {
                part.entry(key).or_insert_with(|| value.clone());
            }
        }
    }
    part
}

fn refers_to_definitions_only(schema: &Value) -> bool {
    match schema {
        Value::Object(members) => members.iter().all(|(key, value)| match (key.as_str(), value) {
            ("$ref", Value::String(target)) => {
                target.starts_with("#/$defs/") || target.starts_with("#/definitions/")
            }
            ("$dynamicRef" | "$recursiveRef", _) => false,
            (_, value) => refers_to_definitions_only(value),
        }),
        Value::Array(items) => items.iter().all(refers_to_definitions_only),
        _ => true,
    }
}

/// Whether the schema at `path` applies to the values at the end of the way, whatever they are: it is reached
/// by `properties`, `items`, `allOf` and references alone.
fn always_applies(root: &Value, way: &[Segment], path: &str) -> bool {
    closure(root, at_place(root, way)).iter().any(|(known, _)| known == path)
}

/// The schemas that apply to the values at the end of the way, whatever they are, with their paths; without those
/// that they apply themselves.
fn at_place<'a>(root: &'a Value, way: &[Segment]) -> Vec<(String, &'a Value)> {
    let mut here = vec![(String::new(), root)];
    for segment in way {
        let mut next = Vec::new();
        for (path, schema) in closure(root, here) {
            let child = match segment {
                Segment::Key(key) => {
                    schema.get("properties").and_then(|properties| properties.get(key)).map(|child| {
                        let mut path = under(&path, "properties");
                        push_key(&mut path, key);
                        (path, child)
                    })
                }
                Segment::AnyIndex if schema.get("prefixItems").is_none() => schema
                    .get("items")
                    .filter(|items| items.is_object())
                    .map(|items| (under(&path, "items"), items)),
                _ => None,
            };
            next.extend(child);
        }
        here = next;
    }
    here
}

/// Schemas and all that apply with them.
fn closure<'a>(root: &'a Value, start: Vec<(String, &'a Value)>) -> Vec<(String, &'a Value)> {
    let mut all: Vec<(String, &Value)> = Vec::new();
    let mut seen = HashSet::new();
    let mut open = start;
    while let Some((path, schema)) = open.pop() {
        if all.len() >= MAX_REFERENCES || !seen.insert(path.clone()) {
            continue;
        }
        if let Some(parts) = schema.get("allOf").and_then(Value::as_array) {
            let at = under(&path, "allOf");
            open.extend(parts.iter().enumerate().map(|(i, part)| (format!("{at}[{i}]"), part)));
        }
        let target = schema.get("$ref").and_then(Value::as_str).and_then(|target| target.strip_prefix('#'));
        if let Some(pointer) = target
            && let Some(target) = root.pointer(pointer)
        {
            let mut path = String::new();
            for step in pointer.split('/').skip(1) {
                push_key(&mut path, &step.replace("~1", "/").replace("~0", "~"));
            }
            open.push((path, target));
        }
        all.push((path, schema));
    }
    all
}

fn under(path: &str, keyword: &str) -> String {
    let mut path = path.to_owned();
    push_key(&mut path, keyword);
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(path: &str, schema: Value, places: Option<Vec<Vec<Segment>>>) -> Residual {
        Residual {
            path: path.to_owned(),
            keyword: "uniqueItems".to_owned(),
            schema,
            message: String::new(),
            places,
        }
    }

    fn judged_alone(schema: &Value, path: &str, way: &[Segment]) -> bool {
        let part = json!({"type": "array", "uniqueItems": true});
        let plan = Plan::new(schema, &[left(path, part, Some(vec![way.to_vec()]))], 9).unwrap();
        matches!(plan.checks[0], Check::Unique)
    }

    #[test]
    fn what_always_applies_is_judged_alone() {
        let key = |key: &str| Segment::Key(key.to_owned());
        let unique = json!({"type": "array", "uniqueItems": true});
        let schema = json!({
            "properties": {"a": unique, "b": {"items": {"allOf": [{}, unique]}}, "c": {"$ref": "#/$defs/u"},
                           "d": {"anyOf": [unique, {"type": "null"}]}},
            "$defs": {"u": unique},
        });
        assert!(judged_alone(&schema, "properties.a", &[key("a")]));
        assert!(judged_alone(&schema, "properties.b.items.allOf[1]", &[key("b"), Segment::AnyIndex]));
        assert!(judged_alone(&schema, "$defs.u", &[key("c")]));
        assert!(!judged_alone(&schema, "properties.d.anyOf[0]", &[key("d")]));
        let plan = Plan::new(&schema, &[left("properties.a", unique, None)], 9).unwrap();
        assert!(matches!(plan.checks[..], [Check::Wait { .. }]) && plan.places == [[]]);
    }

    #[test]
    fn what_several_schemas_ask_of_a_value_is_judged_together() {
        let schema = json!({"properties": {"a": {"allOf": [{"minProperties": 1}, {"propertyNames": {"pattern": "(.)\\1"}}]}}});
        let mut open = left("properties.a.allOf[0]", schema["properties"]["a"]["allOf"][0].clone(), None);
        open.keyword = "minProperties".to_owned();
        open.places = Some(vec![vec![Segment::Key("a".to_owned())]]);
        let plan = Plan::new(&schema, &[open], 9).unwrap();
        let [Check::Value(judge)] = &plan.checks[..] else { panic!("{:?}", plan.checks) };
        let judged = |value: &Value| judge.judge_value(value, &mut Allowance::check());
        assert!(matches!(judged(&json!({"aa": 1})), Ruling::Valid));
        assert!(matches!(judged(&json!({"ab": 1})), Ruling::Invalid));
    }

    #[test]
    fn what_is_asked_of_many_places_has_one_judge_and_others_are_bounded() {
        let places = |pattern: &dyn Fn(usize) -> String, most: usize| {
            let mut properties = serde_json::Map::new();
            for i in 0..most {
                properties.insert(format!("k{i}"), json!({"pattern": pattern(i)}));
            }
            let schema = json!({"properties": properties});
            let open: Vec<_> = properties
                .iter()
                .map(|(key, part)| {
                    let way = vec![Segment::Key(key.clone())];
                    let path = format!("properties.{key}");
                    Residual { keyword: "pattern".to_owned(), ..left(&path, part.clone(), Some(vec![way])) }
                })
                .collect();
            let plan = Plan::new(&schema, &open, 9).unwrap();
            let own = plan.checks.iter().filter(|check| matches!(check, Check::Value(_))).count();
            (own, plan.bytes())
        };
        let (own, bytes) = places(&|_| r"^(.)\1$".to_owned(), 1600);
        assert!(own == 1600 && bytes < 20 << 20, "{own} {bytes}");
        let (own, bytes) = places(&|i| format!(r"^(.)\1{}$", "x".repeat(i + 1)), 1600);
        assert!((200..1600).contains(&own) && bytes < 48 << 20, "{own} {bytes}");
    }

    #[test]
    fn a_part_that_refers_to_the_whole_is_judged_with_it() {
        let part = json!({"contains": {"$ref": "#"}});
        let schema = json!({"properties": {"a": part}, "required": ["a"]});
        let mut open = left("properties.a", part, Some(vec![vec![Segment::Key("a".to_owned())]]));
        open.keyword = "contains".to_owned();
        let plan = Plan::new(&schema, &[open], 9).unwrap();
        assert!(matches!(plan.checks[..], [Check::Wait { unique: false }]), "{:?}", plan.checks);
        assert_eq!(plan.judge(&json!({"a": [{}]})), Some(false));
    }

    #[test]
    fn formats_count() {
        let schema = json!({"type": "object", "additionalProperties": {"type": "string", "format": "email"}});
        let plan = Plan::new(&schema, &[left("", schema.clone(), None)], 9).unwrap();
        assert_eq!(plan.judge(&json!({"a": "x@example.com"})), Some(true));
        assert_eq!(plan.judge(&json!({"a": "x"})), Some(false));
    }

    #[test]
    fn what_nobody_can_judge_in_a_bounded_time_is_refused() {
        let schema = json!({"type": "array", "items": {"anyOf": [{"type": "string", "pattern": "(.)\\1"}, {"$ref": "#"}]}});
        let mut open = left("items.anyOf[0]", schema["items"]["anyOf"][0].clone(), None);
        open.keyword = "pattern".to_owned();
        let error = Plan::new(&schema, &[open], 9).unwrap_err();
        assert_eq!(error.error.param.as_deref(), Some("items.anyOf[0].pattern"));
    }

    #[test]
    fn texts_that_are_not_json_are_refused() {
        let schema = json!({"x-guidance": {"item_separator": ";"}});
        let error = Plan::new(&schema, &[], 9).unwrap_err();
        assert_eq!(error.error.param.as_deref(), Some("x-guidance.item_separator"));
    }
}
