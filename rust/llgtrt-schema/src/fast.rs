//! Schemas that llguidance reads by itself: only leaves are looked at, and rewritten in place.
//!
//! The scan errs on the side of the formula: what it does not know well goes there.

mod recursion;

use std::rc::Rc;

use serde_json::{Map, Value};

use crate::budget::Budget;
use crate::formula::Num;
use crate::languages::formats::Format;
use crate::languages::{self, formats};
use crate::limits::NormalizeLimits;
use crate::normalized::Normalized;
use crate::path::push_key;
use crate::read::is_integer;
use crate::rules::RuleUse;
use crate::shape::number::Number;
use crate::source::Dialect;

/// Keywords that need the formula.
const HARD: &[&str] = &[
    "oneOf",
    "not",
    "if",
    "then",
    "else",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "contains",
    "minContains",
    "maxContains",
    "propertyNames",
    "unevaluatedItems",
    "unevaluatedProperties",
    "$dynamicRef",
    "$dynamicAnchor",
    "$recursiveRef",
    "$recursiveAnchor",
    "maxProperties",
];

/// Deepest nesting that is scanned.
const MAX_DEPTH: usize = 200;

struct Scan {
    budget: Rc<Budget>,
    rules: Vec<RuleUse>,
    path: String,
    depth: usize,
    dialect: Dialect,
    /// Whether objects that name properties and say nothing of others are closed.
    closes: bool,
    /// Whether numbers are kept short.
    bounds_digits: bool,
    max_ways: usize,
    /// There is a reference.
    refers: bool,
    objects: Objects,
    strings: Strings,
}

/// What the scan found of strings.
#[derive(Default)]
struct Strings {
    /// How many have a pattern or a format.
    patterns: usize,
    /// Several schemas may judge one string.
    merge: bool,
}

/// What the scan found of objects.
#[derive(Default)]
struct Objects {
    /// Some object was closed.
    closed: bool,
    /// Some object has patterns of keys.
    patterns: bool,
    /// Several schemas may judge one object.
    merges: bool,
}

/// The schema with its leaves rewritten, if that is all it needs.
pub(crate) fn scan(schema: &Value, limits: &NormalizeLimits, budget: &Rc<Budget>) -> Option<Normalized> {
    let mut copy = schema.clone();
    let dialect = Dialect::of(schema, Dialect::DEFAULT);
    let mut scan = Scan {
        budget: Rc::clone(budget),
        rules: Vec::new(),
        path: String::new(),
        depth: 0,
        dialect,
        closes: limits.closes(),
        bounds_digits: limits.bounds_digits(),
        max_ways: limits.max_ways,
        refers: false,
        objects: Objects::default(),
        strings: Strings::default(),
    };
    let fine = scan.schema(&mut copy)
        // What is merged is closed only afterwards.
        && !(scan.objects.merges && (scan.objects.closed || scan.objects.patterns))
        // How dear it is to intersect them, the formula knows.
        && !(scan.strings.merge && scan.strings.patterns > 1)
        && (!scan.refers || recursion::ends(&copy, budget));
    fine.then(|| Normalized {
        schema: copy,
        lark: None,
        rules: scan.rules,
        residual: Vec::new(),
        is_direct: true,
        spent: budget.spending(),
    })
}

impl Scan {
    fn rule(&mut self, rule: &'static str) {
        self.budget.charge_bytes(self.path.len() + 50);
        self.rules.push(RuleUse { rule, path: self.path.clone() });
    }

    fn child(&mut self, key: &str, schema: &mut Value) -> bool {
        let length = self.path.len();
        push_key(&mut self.path, key);
        let fine = self.schema(schema);
        self.path.truncate(length);
        fine
    }

    fn children(&mut self, key: &str, members: &mut Map<String, Value>) -> bool {
        let length = self.path.len();
        push_key(&mut self.path, key);
        let fine = members.iter_mut().all(|(key, schema)| self.child(key, schema));
        self.path.truncate(length);
        fine
    }

    fn list(&mut self, key: &str, list: &mut [Value]) -> bool {
        let length = self.path.len();
        push_key(&mut self.path, key);
        let fine = list.iter_mut().enumerate().all(|(i, schema)| {
            let length = self.path.len();
            self.path.push_str(&format!("[{i}]"));
            let fine = self.schema(schema);
            self.path.truncate(length);
            fine
        });
        self.path.truncate(length);
        fine
    }

    fn schema(&mut self, schema: &mut Value) -> bool {
        let object = match schema {
            Value::Bool(_) => return true,
            Value::Object(object) => object,
            _ => return false,
        };
        // What is left undone here is refused by the formula, for the same reason.
        let is_spent = self.budget.spend(1 + object.len() as u64).is_err();
        if is_spent || self.depth >= MAX_DEPTH || !self.combination(object) {
            return false;
        }
        self.depth += 1;
        let mut removed = Vec::new();
        let mut fine = true;
        for (key, value) in object.iter_mut() {
            fine = fine && self.keyword(key, value, &mut removed);
        }
        self.depth -= 1;
        if self.bounds_digits && names_numbers(object) {
            self.rule("digits");
        }
        for key in removed {
            object.shift_remove(key);
        }
        fine && self.format(object)
            && self.encoding(object)
            && self.integer_format(object)
            && self.close(object)
    }

    /// Closes an object that names properties and says nothing of others; false if that is not for this
    /// schema alone to say.
    fn close(&mut self, object: &mut Map<String, Value>) -> bool {
        let has = |key: &&str| has(object, key);
        let applicators = ["allOf", "anyOf", "$ref"].iter().filter(|key| has(key)).count();
        let members =
            ["properties", "required", "additionalProperties", "patternProperties"].iter().any(&has);
        let parts = object.get("allOf").and_then(Value::as_array).map_or(0, Vec::len);
        self.refers |= has(&"$ref");
        let is_text = has(&"pattern") || has(&"format");
        self.strings.patterns += usize::from(is_text);
        self.strings.merge |= applicators > 1 || parts > 1 || (applicators > 0 && is_text);
        self.objects.patterns |= has(&"patternProperties");
        self.objects.merges |= applicators > 1 || parts > 1 || (applicators > 0 && members);
        let Some(Value::Object(properties)) = object.get("properties") else { return true };
        // An optional one is up to four ways. How many there are, what is written out tells.
        if properties.len() > self.max_ways / 4 {
            return false;
        }
        let speaks_of_others = has(&"additionalProperties") || has(&"patternProperties");
        if !self.closes || properties.is_empty() || speaks_of_others {
            return true;
        }
        let required = object.get("required").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let named = |key: &Value| key.as_str().is_some_and(|key| properties.contains_key(key));
        if applicators > 0
            || !required.iter().all(named)
            || properties.values().any(|schema| schema == &Value::Bool(false))
        {
            return false;
        }
        self.rule("closed");
        self.objects.closed = true;
        object.insert("additionalProperties".to_owned(), Value::Bool(false));
        true
    }

    /// Keywords that llguidance reads together, and whether it gets that right.
    fn combination(&self, object: &Map<String, Value>) -> bool {
        let has = |key: &str| has(object, key);
        let applies = ["allOf", "anyOf", "enum", "const", "$ref"].iter().any(|key| has(key));
        if HARD.iter().any(|key| has(key)) || (has("$schema") && self.depth > 0) {
            return false;
        }
        if has("$ref")
            && self.dialect.ref_stands_alone()
            && object.keys().any(|key| is_constraint(key) || key == "$id")
        {
            return false;
        }
        // llguidance has its own idea of what is newer than the draft.
        if self.dialect.named && object.keys().any(|key| is_constraint(key) && !self.dialect.knows(key)) {
            return false;
        }
        let tuple = has("additionalItems") || object.get("items").is_some_and(Value::is_array);
        if tuple && (applies || has("prefixItems")) {
            return false;
        }
        if has("prefixItems") && applies {
            return false;
        }
        if has("patternProperties") {
            let one = object["patternProperties"].as_object().is_some_and(|members| members.len() == 1);
            // Keys that have a name may be all that a pattern matches; llguidance would wait for others.
            if !one || applies || has("properties") || has("required") {
                return false;
            }
        }
        if object.get("nullable") == Some(&Value::Bool(true)) {
            return false;
        }
        let strict = |key: &str| object.get(key).is_some_and(Value::is_boolean);
        if (strict("exclusiveMinimum") || strict("exclusiveMaximum")) && applies {
            return false;
        }
        let bounds = ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"];
        if !bounds.iter().any(|key| has(key)) {
            return true;
        }
        let is_alone = !(has("multipleOf") && applies);
        is_alone && Number::of_keywords(object).is_some_and(|number| number.is_native())
    }

    fn keyword(&mut self, key: &str, value: &mut Value, removed: &mut Vec<&'static str>) -> bool {
        match (key, value) {
            ("properties" | "$defs" | "definitions", Value::Object(members)) => self.children(key, members),
            ("patternProperties", Value::Object(members)) => {
                let mut renamed = Map::new();
                for (source, schema) in std::mem::take(members) {
                    let text = match languages::translate(&source, &self.budget) {
                        Ok(None) => source,
                        Ok(Some(text)) => {
                            self.rule("pattern-dialect");
                            text
                        }
                        Err(_) => return false,
                    };
                    renamed.insert(text, schema);
                }
                *members = renamed;
                self.children(key, members)
            }
            ("allOf" | "anyOf" | "prefixItems" | "items", Value::Array(list)) => {
                !list.is_empty() && self.list(key, list)
            }
            ("items" | "additionalProperties" | "additionalItems", schema) => self.child(key, schema),
            ("pattern", Value::String(source)) => match languages::translate(source, &self.budget) {
                Ok(None) => true,
                Ok(Some(text)) => {
                    self.rule("pattern-dialect");
                    *source = text;
                    true
                }
                Err(_) => false,
            },
            ("uniqueItems", Value::Bool(false)) => {
                self.rule("trivial");
                removed.push("uniqueItems");
                true
            }
            ("minProperties", Value::Number(number)) if number.as_u64() == Some(0) => {
                self.rule("trivial");
                removed.push("minProperties");
                true
            }
            ("uniqueItems" | "minProperties", _) => false,
            ("minLength" | "maxLength" | "minItems" | "maxItems", Value::Number(number)) => {
                number.as_u64().is_some_and(|n| n < 1 << 31)
            }
            // `combination` has looked at them.
            (
                "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" | "multipleOf",
                Value::Number(_),
            )
            | ("exclusiveMinimum" | "exclusiveMaximum", Value::Bool(_)) => true,
            ("enum", Value::Array(list)) => !list.is_empty() && list.iter().all(exact),
            ("const", value) => exact(value),
            ("$ref", Value::String(reference)) => reference == "#" || reference.starts_with("#/"),
            ("required", Value::Array(list)) => list.iter().all(Value::is_string),
            ("type", Value::String(_) | Value::Array(_)) => true,
            ("format", Value::String(_)) => true,
            (
                "properties" | "patternProperties" | "allOf" | "anyOf" | "prefixItems" | "pattern"
                | "minLength" | "maxLength" | "minItems" | "maxItems" | "minimum" | "maximum"
                | "exclusiveMinimum" | "exclusiveMaximum" | "multipleOf" | "enum" | "$ref" | "required"
                | "type" | "format",
                _,
            ) => false,
            _ => true,
        }
    }

    fn format(&mut self, object: &mut Map<String, Value>) -> bool {
        let Some(Value::String(name)) = object.get("format") else { return true };
        match formats::lookup(name) {
            // What they have in common is not known here.
            Some(format) if format.since.is_some() && object.contains_key("pattern") => false,
            Some(format) if format.native => true,
            Some(_) if object.contains_key("pattern") => {
                self.rule("format-beside-pattern");
                object.shift_remove("format");
                true
            }
            Some(format) => {
                if let Some(max) = format.max_length {
                    if object.contains_key("maxLength") {
                        return false;
                    }
                    object.insert("maxLength".to_owned(), Value::from(max));
                }
                self.rule(if format.common.is_some() { "common-format" } else { "format-pattern" });
                let Some(text) = text_of(format, &self.budget) else { return false };
                object.shift_remove("format");
                object.insert("pattern".to_owned(), Value::String(text));
                true
            }
            None => {
                if formats::integer_range(name).is_none() || !is_integer(object) {
                    self.rule("unknown-format");
                    object.shift_remove("format");
                }
                true
            }
        }
    }

    fn encoding(&mut self, object: &mut Map<String, Value>) -> bool {
        let format = object.get("contentEncoding").and_then(Value::as_str).and_then(formats::encoding);
        let Some(format) = format.filter(|_| !object.contains_key("pattern")) else { return true };
        if ["format", "anyOf", "allOf", "$ref"].iter().any(|key| object.contains_key(*key)) {
            return false;
        }
        let Some(text) = text_of(format, &self.budget) else { return false };
        self.rule("content-encoding");
        object.insert("pattern".to_owned(), Value::String(text));
        true
    }

    /// Bounds in place of a format of whole numbers.
    fn integer_format(&mut self, object: &mut Map<String, Value>) -> bool {
        let range = object.get("format").and_then(Value::as_str).and_then(formats::integer_range);
        let Some((least, most)) = range else { return true };
        let others =
            ["exclusiveMinimum", "exclusiveMaximum", "multipleOf", "enum", "const", "allOf", "anyOf", "$ref"];
        if others.iter().any(|key| object.contains_key(*key)) {
            return false;
        }
        self.rule("integer-format");
        object.shift_remove("format");
        for (name, limit) in [("minimum", least), ("maximum", most)] {
            let own = object.get(name).and_then(Value::as_number).and_then(Num::new);
            let limit = Num::Int(limit.into());
            if own.is_none_or(|own| if name == "minimum" { own < limit } else { own > limit }) {
                object.insert(name.to_owned(), limit.to_value());
            }
        }
        Number::of_keywords(object).is_some_and(|number| number.is_native())
    }
}

/// The pattern of a format in llguidance's dialect.
fn text_of(format: Format, budget: &Budget) -> Option<String> {
    let pattern = format.common.unwrap_or(format.pattern);
    let text = languages::translate(pattern, budget).ok()?;
    Some(text.unwrap_or_else(|| pattern.to_owned()))
}

/// Whether llguidance, which computes with doubles, writes the value as it is.
fn exact(value: &Value) -> bool {
    Num::all_doubles(value) && !has_negative_zero(value)
}

/// Of -0 the grammar would hold this spelling alone.
fn has_negative_zero(value: &Value) -> bool {
    match value {
        Value::Number(number) => number.as_f64().is_some_and(|n| n == 0.0 && n.is_sign_negative()),
        Value::Array(list) => list.iter().any(has_negative_zero),
        Value::Object(members) => members.values().any(has_negative_zero),
        _ => false,
    }
}

/// Whether an object is about numbers whose digits have no end of their own.
fn names_numbers(object: &Map<String, Value>) -> bool {
    let has = |names: [&str; 2]| names.iter().any(|name| has(object, name));
    let bounded = || has(["minimum", "exclusiveMinimum"]) && has(["maximum", "exclusiveMaximum"]);
    let is_endless = |name: &Value| match name.as_str() {
        Some("number") => true,
        Some("integer") => !bounded(),
        _ => false,
    };
    let named = match object.get("type") {
        Some(Value::Array(names)) => names.iter().any(is_endless),
        Some(name) => is_endless(name),
        None => false,
    };
    named && !has(["enum", "const"])
}

/// Whether the schema has the keyword. Schemas have few keys, which are compared faster than hashed.
fn has(object: &Map<String, Value>, keyword: &str) -> bool {
    object.keys().any(|key| key == keyword)
}

fn is_constraint(key: &str) -> bool {
    crate::keyword::is_constraint(key) && key != "$ref"
}
