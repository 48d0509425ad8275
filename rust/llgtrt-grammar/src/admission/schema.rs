//! JSON Schemas: values of the wrong type with their path, counts, and depth through `$ref`.
//!
//! The walk is breadth first and follows references, so definitions that nothing refers to are not
//! looked at. Every schema is visited once; cycles are fine.

mod keywords;
mod paths;

use std::collections::{HashMap, HashSet, VecDeque};

use llgtrt_schema::keyword::{self, Keyword};
use llgtrt_schema::path::resolve_fragment;
use serde_json::{Map, Value};

use self::paths::{PathSegment, Paths};
use super::json::MAX_JSON_DEPTH;
use super::regex;
use crate::config::GrammarConfig;
use crate::refusal::{Refusal, hint};
use crate::text::truncate;

/// Deepest recursion that llguidance can reach over a schema in any order of its references:
/// every referenced definition once, each as deep as it is. 64 MB survive about 7000.
const MAX_RECURSION: usize = 4000;

/// References by anchor or identifier. They are not followed here, so each could hide a
/// definition as deep as the text may be.
const MAX_UNRESOLVED_REFS: usize = 30;

/// `patternProperties` of one object: llguidance compares them pairwise.
const MAX_PATTERN_PROPERTIES: usize = 100;

/// What the walk found that the compilation needs.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// Every `pattern` with its path, for errors that llguidance reports without a place.
    pub(crate) patterns: Vec<(String, String)>,
    /// Whether there is more than words, lengths and bounds: regular expressions that may have to be intersected.
    pub(crate) has_expressions: bool,
}

/// A schema found by the walk.
struct Node<'a> {
    schema: &'a Value,
    /// The root of the document that `#/...` refers to.
    base: &'a Value,
    path: usize,
    depth: usize,
}

struct Walk<'a> {
    root: &'a Value,
    config: &'a GrammarConfig,
    /// Path of the schema inside the grammar source.
    at: &'a str,
    paths: Paths<'a>,
    /// Schemas in the queue or done, by address.
    seen: HashSet<*const Value>,
    queue: VecDeque<Node<'a>>,
    ref_targets: HashMap<*const Value, &'a Value>,
    unresolved_refs: usize,
    properties: usize,
    enum_values: usize,
    findings: &'a mut Findings,
}

/// Checks a schema. Paths in errors and findings start with `at`.
pub(super) fn check(
    root: &Value,
    config: &GrammarConfig,
    at: &str,
    findings: &mut Findings,
) -> Result<(), Refusal> {
    let mut walk = Walk {
        root,
        config,
        at,
        paths: Paths::new(),
        seen: HashSet::new(),
        queue: VecDeque::new(),
        ref_targets: HashMap::new(),
        unresolved_refs: 0,
        properties: 0,
        enum_values: 0,
        findings,
    };
    walk.push(Node { schema: root, base: root, path: Paths::ROOT, depth: 1 });
    while let Some(node) = walk.queue.pop_front() {
        walk.visit(&node)?;
    }
    walk.check_recursion()
}

impl<'a> Walk<'a> {
    fn push(&mut self, node: Node<'a>) {
        if self.seen.insert(std::ptr::from_ref(node.schema)) {
            self.queue.push_back(node);
        }
    }

    fn refusal(&self, path: usize, keyword: &'a str, message: impl Into<String>, hint: &str) -> Refusal {
        Refusal::new(message, hint).at(self.path(path, keyword))
    }

    fn path(&self, path: usize, keyword: &str) -> String {
        let mut text = self.paths.text(path);
        if !keyword.is_empty() {
            llgtrt_schema::path::push_key(&mut text, keyword);
        }
        llgtrt_schema::path::join(self.at, &text)
    }

    fn visit(&mut self, node: &Node<'a>) -> Result<(), Refusal> {
        if node.depth > self.config.max_depth {
            let limit = self.config.max_depth;
            let message =
                format!("the schema is nested too deeply (`$ref` included); the limit is {limit} levels");
            return Err(self.refusal(node.path, "", message, hint::FEWER_LEVELS));
        }
        let object = match node.schema {
            Value::Bool(_) => return Ok(()),
            Value::Object(object) => object,
            _ => {
                let message = "a schema must be an object or a boolean";
                return Err(self.refusal(node.path, "", message, "write an object or a boolean"));
            }
        };
        let identified = object.get("$id").or_else(|| object.get("id")).is_some_and(Value::is_string);
        let base = if identified { node.schema } else { node.base };
        for (keyword, value) in object {
            self.keyword(node, base, object, keyword, value)?;
        }
        Ok(())
    }

    fn keyword(
        &mut self,
        node: &Node<'a>,
        base: &'a Value,
        object: &'a Map<String, Value>,
        keyword: &'a str,
        value: &'a Value,
    ) -> Result<(), Refusal> {
        let known = keyword::find(keyword);
        if known.is_some_and(|known| !known.applies_to(object.get("type"))) {
            return Ok(());
        }
        if let Some(expected) = keywords::wrong_type(keyword, value) {
            let message = format!("`{keyword}` must be {expected}");
            return Err(self.refusal(node.path, keyword, message, &format!("write {expected}")));
        }
        self.findings.has_expressions |= keywords::has_expressions(keyword);
        match keyword {
            "type" => self.check_type(node, value)?,
            "pattern" => self.check_pattern(node, keyword, value)?,
            "enum" | "const" => self.count_values(node, keyword, value)?,
            "properties" => self.count_properties(node, value)?,
            "patternProperties" => self.check_pattern_properties(node, value)?,
            "$ref" | "$dynamicRef" => self.follow(node, base, value)?,
            _ => {}
        }
        self.push_children(node, base, keyword, known, value);
        Ok(())
    }

    fn push_children(
        &mut self,
        node: &Node<'a>,
        base: &'a Value,
        keyword: &'a str,
        known: Option<&'static Keyword>,
        value: &'a Value,
    ) {
        let depth = node.depth + 1;
        for (segment, schema) in keywords::children(known, value) {
            let mut path = self.paths.push(node.path, PathSegment::Key(keyword));
            if let Some(segment) = segment {
                path = self.paths.push(path, segment);
            }
            self.push(Node { schema, base, path, depth });
        }
    }

    fn check_type(&self, node: &Node<'a>, value: &'a Value) -> Result<(), Refusal> {
        let names = match value {
            Value::Array(names) => names.as_slice(),
            name => std::slice::from_ref(name),
        };
        for name in names {
            if !name.as_str().is_some_and(keywords::is_type) {
                let shown = truncate(&name.to_string(), 40);
                let names = keywords::TYPES.join(", ");
                let message = format!("`type` must be one of {names}, not {shown}");
                return Err(self.refusal(node.path, "type", message, &format!("write one of {names}")));
            }
        }
        Ok(())
    }

    fn check_pattern(&mut self, node: &Node<'a>, keyword: &'a str, value: &'a Value) -> Result<(), Refusal> {
        let Some(pattern) = value.as_str() else { return Ok(()) };
        self.check_regex(node.path, keyword, pattern)?;
        let path = self.path(node.path, keyword);
        self.findings.patterns.push((path, pattern.to_owned()));
        Ok(())
    }

    /// Only the length: the syntax is checked when the schema is rewritten.
    fn check_regex(&self, path: usize, keyword: &'a str, pattern: &str) -> Result<(), Refusal> {
        regex::check_size(pattern, self.config.max_regex_bytes)
            .map_err(|refusal| refusal.at(self.path(path, keyword)))
    }

    fn check_pattern_properties(&mut self, node: &Node<'a>, value: &'a Value) -> Result<(), Refusal> {
        let Some(patterns) = value.as_object() else { return Ok(()) };
        if patterns.len() > MAX_PATTERN_PROPERTIES {
            let message = format!("{} patterns; the limit is {MAX_PATTERN_PROPERTIES}", patterns.len());
            return Err(self.refusal(node.path, "patternProperties", message, "write fewer patterns"));
        }
        for pattern in patterns.keys() {
            self.check_regex(node.path, "patternProperties", pattern)?;
        }
        self.count_properties(node, value)
    }

    fn count_properties(&mut self, node: &Node<'a>, value: &'a Value) -> Result<(), Refusal> {
        self.properties += value.as_object().map_or(0, Map::len);
        let limit = self.config.max_properties;
        if self.properties > limit {
            let message = format!("the schema has more than {limit} properties");
            return Err(self.refusal(node.path, "properties", message, hint::SMALLER));
        }
        Ok(())
    }

    fn count_values(&mut self, node: &Node<'a>, keyword: &'a str, value: &'a Value) -> Result<(), Refusal> {
        let mut open = vec![value];
        while let Some(value) = open.pop() {
            match value {
                Value::Array(items) => open.extend(items),
                Value::Object(members) => open.extend(members.values()),
                _ => {}
            }
            self.enum_values += 1;
        }
        let limit = self.config.max_enum_values;
        // The list of an `enum` itself was counted as a value as well.
        if self.enum_values > limit.saturating_add(1) {
            let message = format!("the schema has more than {limit} `enum` and `const` values");
            return Err(self.refusal(node.path, keyword, message, hint::SMALLER));
        }
        Ok(())
    }

    fn follow(&mut self, node: &Node<'a>, base: &'a Value, value: &'a Value) -> Result<(), Refusal> {
        let Some(reference) = value.as_str() else { return Ok(()) };
        // `#/...` means the nearest schema with an identifier. Which schemas have one depends on the
        // draft, so a pointer is followed from both roots where they differ.
        let mut found = false;
        let roots = if std::ptr::eq(base, self.root) { vec![base] } else { vec![base, self.root] };
        for root in roots {
            let target = reference.strip_prefix('#').and_then(|fragment| resolve_fragment(root, fragment));
            if let Some((target, steps)) = target {
                found = true;
                let mut path = Paths::ROOT;
                for step in steps {
                    path = self.paths.push(path, step.into());
                }
                self.ref_targets.insert(std::ptr::from_ref(target), target);
                self.push(Node { schema: target, base: root, path, depth: node.depth + 1 });
            }
        }
        if found {
            return Ok(());
        }
        if reference.starts_with("#/") && std::ptr::eq(base, self.root) {
            let message = format!("`{}` is not in the schema", truncate(reference, 100));
            let hint = "define it under `$defs` and refer to it as `#/$defs/NAME`";
            return Err(self.refusal(node.path, "$ref", message, hint));
        }
        self.unresolved_refs += 1;
        self.findings.has_expressions = true;
        if self.unresolved_refs > MAX_UNRESOLVED_REFS {
            let message = format!("more than {MAX_UNRESOLVED_REFS} references by anchor or identifier");
            return Err(self.refusal(node.path, "$ref", message, "use `#/$defs/NAME`"));
        }
        Ok(())
    }

    /// Bounds the recursion over references in any order.
    fn check_recursion(&self) -> Result<(), Refusal> {
        let hidden = self.unresolved_refs * self.config.max_depth;
        // Most schemas refer to so few that their heights need not be known.
        if hidden + (1 + self.ref_targets.len()) * MAX_JSON_DEPTH <= MAX_RECURSION {
            return Ok(());
        }
        let deepest: usize = std::iter::once(self.root)
            .chain(self.ref_targets.values().copied())
            .map(keywords::height)
            .take_while(|&height| height > 0)
            .scan(hidden, |sum, height| {
                *sum += height;
                Some(*sum)
            })
            .take_while(|&sum| sum <= 2 * MAX_RECURSION)
            .last()
            .unwrap_or(hidden);
        if deepest > MAX_RECURSION {
            let message = format!("the schema's definitions add up to more than {MAX_RECURSION} levels");
            return Err(Refusal::new(message, hint::FEWER_LEVELS));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
