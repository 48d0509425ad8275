//! Where references lead: identifiers, anchors and JSON pointers inside one document.
//!
//! Nothing is fetched. A reference that leads out of the document is an error of the caller.

use std::collections::{HashMap, HashSet};
use std::fmt::Write;
use std::rc::Rc;

use serde_json::Value;

use super::dialect::Dialect;
use super::meta;
use crate::budget::Budget;
use crate::keyword::{self, Keyword};
use crate::path::{SchemaPath, percent_decode, pointer_tokens, push_key};

/// What a schema means depends on where it is: its address, the identifier and the dialect around it.
pub(crate) type PlaceKey = (*const Value, Rc<str>, Dialect);

/// A place in the document: a schema, the identifier that references in it are relative to, the
/// dialect, and the path.
#[derive(Debug, Clone)]
pub(crate) struct Place<'a> {
    pub(crate) schema: &'a Value,
    pub(crate) base: Rc<str>,
    pub(crate) dialect: Dialect,
    pub(crate) path: SchemaPath,
}

/// All identified schemas of a document.
#[derive(Debug, Default)]
pub(crate) struct Index<'a> {
    /// By absolute identifier without fragment.
    resources: HashMap<Rc<str>, Place<'a>>,
    /// By identifier and anchor.
    anchors: HashMap<(Rc<str>, &'a str), Place<'a>>,
    /// By name of the dynamic anchor.
    dynamic: HashMap<&'a str, Vec<Place<'a>>>,
    recursive: Vec<Place<'a>>,
    /// Identifiers whose meta-schemas have been looked for.
    meta: HashSet<String>,
}

/// A schema to look at, without its path.
struct Found<'a> {
    way: usize,
    is_schema: bool,
    place: Place<'a>,
}

/// The last step to a schema.
enum Way<'a> {
    Root,
    Key(&'a str),
    Index(usize),
}

/// Steps to schemas with the number of the step before: most paths are never asked for.
struct Walk<'a> {
    ways: Vec<(usize, Way<'a>)>,
}

impl Walk<'_> {
    fn path(&self, mut way: usize) -> SchemaPath {
        let mut steps = Vec::new();
        while let (before, step @ (Way::Key(_) | Way::Index(_))) = &self.ways[way] {
            steps.push(step);
            way = *before;
        }
        let mut path = String::new();
        for step in steps.into_iter().rev() {
            match step {
                Way::Key(key) => push_key(&mut path, key),
                Way::Index(index) => _ = write!(path, "[{index}]"),
                Way::Root => {}
            }
        }
        path.into()
    }
}

/// Whether a reference may name the schema.
fn has_name(schema: &Value) -> bool {
    let names = ["$id", "id", "$anchor", "$dynamicAnchor", "$recursiveAnchor"];
    schema.as_object().is_some_and(|object| names.iter().any(|name| object.contains_key(*name)))
}

/// The identifier of a document that has none.
const ROOT: &str = "json-schema:///";

impl<'a> Index<'a> {
    /// Finds everything that a reference may name.
    pub(crate) fn new(root: &'a Value, budget: &Budget) -> (Self, Place<'a>) {
        let mut index = Self::default();
        let dialect = Dialect::of(root, Dialect::DEFAULT);
        let start = Place { schema: root, base: ROOT.into(), dialect, path: SchemaPath::root() };
        index.resources.insert(ROOT.into(), start.clone());
        let first = start.enter();
        index.resources.insert(ROOT.into(), first.clone());
        let mut walk = Walk { ways: vec![(0, Way::Root)] };
        let mut open = vec![Found { way: 0, is_schema: true, place: start.clone() }];
        while let Some(Found { way, is_schema, place }) = open.pop() {
            budget.charge(1);
            let mut place = if is_schema { place.enter() } else { place };
            if is_schema && has_name(place.schema) {
                place.path = walk.path(way);
                budget.charge_bytes(200 + place.path.len() + place.base.len());
                budget.charge((place.path.len() + place.base.len()) as u64 / 32);
                index.note(&place);
            }
            if is_schema {
                for schema in index.missing(&place) {
                    open.push(Found { way: 0, is_schema: true, place: Place { schema, ..start.clone() } });
                }
            }
            if budget.is_spent() {
                break;
            }
            let mut push = |schema: &'a Value, key: Way<'a>, is_schema: bool| {
                walk.ways.push((way, key));
                let place = Place { schema, ..place.clone() };
                open.push(Found { way: walk.ways.len() - 1, is_schema, place });
            };
            match place.schema {
                Value::Object(object) => {
                    for (key, value) in object {
                        let keyword = if is_schema { keyword::find(key) } else { None };
                        // Only where schemas are: an identifier in anything else is data.
                        if is_schema && !keyword.is_some_and(Keyword::holds_schemas) {
                            continue;
                        }
                        // Inside `properties` and the like, keys are names.
                        let names = keyword.is_some_and(Keyword::has_names);
                        if value.is_object() || value.is_array() {
                            push(value, Way::Key(key), value.is_object() && !names);
                        }
                    }
                }
                Value::Array(list) => {
                    for (i, value) in list.iter().enumerate() {
                        if value.is_object() || value.is_array() {
                            push(value, Way::Index(i), value.is_object());
                        }
                    }
                }
                _ => {}
            }
        }
        (index, first)
    }

    /// The meta-schemas that the schema here is the first one to refer to.
    fn missing(&mut self, place: &Place<'a>) -> Vec<&'static Value> {
        let reference = place.schema.get("$ref").and_then(Value::as_str).unwrap_or("");
        let uri = reference.split('#').next().unwrap_or("");
        if self.resources.contains_key(uri) || !self.meta.insert(uri.to_owned()) {
            return Vec::new();
        }
        meta::documents(uri)
    }

    fn note(&mut self, place: &Place<'a>) {
        let Some(object) = place.schema.as_object() else { return };
        if place.dialect.ref_stands_alone() && object.contains_key("$ref") {
            return;
        }
        if let Some(id) = place.dialect.id(place.schema) {
            if let Some(anchor) = id.strip_prefix('#') {
                self.anchors.insert((Rc::clone(&place.base), anchor), place.clone());
            } else {
                self.resources.entry(Rc::clone(&place.base)).or_insert_with(|| place.clone());
            }
        }
        for key in ["$anchor", "$dynamicAnchor"] {
            if let Some(anchor) = object.get(key).and_then(Value::as_str) {
                self.anchors.insert((Rc::clone(&place.base), anchor), place.clone());
                if key == "$dynamicAnchor" && !meta::is_part(&place.base) {
                    self.dynamic.entry(anchor).or_default().push(place.clone());
                }
            }
        }
        if object.get("$recursiveAnchor") == Some(&Value::Bool(true)) && !meta::is_part(&place.base) {
            self.recursive.push(place.clone());
        }
    }

    /// What `reference` in `from` leads to.
    ///
    /// # Errors
    /// Why there is nothing: it is elsewhere, or not in the schema.
    pub(crate) fn resolve(&self, from: &Place<'a>, reference: &str) -> Result<Place<'a>, &'static str> {
        let is_remote = reference.split(['#', '?']).next().is_some_and(has_scheme);
        let missing =
            if is_remote { "outside of the schema, and nothing is fetched" } else { "not in the schema" };
        self.find(from, reference).ok_or(missing)
    }

    fn find(&self, from: &Place<'a>, reference: &str) -> Option<Place<'a>> {
        let (uri, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        let base: Rc<str> = if uri.is_empty() { Rc::clone(&from.base) } else { join(&from.base, uri).into() };
        let resource = self.resources.get(&base).or_else(|| {
            // A root that names itself differently from how it is referred to.
            let trimmed: Rc<str> = base.trim_end_matches('#').into();
            self.resources.get(&trimmed)
        })?;
        if fragment.is_empty() {
            return Some(resource.clone());
        }
        let fragment = percent_decode(fragment)?;
        let Some(pointer) = fragment.strip_prefix('/') else {
            return self.anchors.get(&(base, fragment.as_str())).cloned();
        };
        let mut place = resource.clone();
        for token in pointer_tokens(pointer) {
            place = match place.schema {
                Value::Object(object) => {
                    let (key, value) = object.get_key_value(&token)?;
                    place.child(value, key)
                }
                Value::Array(list) => {
                    let at: usize = token.parse().ok()?;
                    place.item(list.get(at)?, at)
                }
                _ => return None,
            };
            // Identifiers on the way change what references inside are relative to.
            place = place.enter();
        }
        Some(place)
    }

    /// What a dynamic reference leads to, if that does not depend on how it is reached.
    pub(crate) fn resolve_dynamic(
        &self,
        from: &Place<'a>,
        reference: &str,
    ) -> Result<Place<'a>, &'static str> {
        let plain = self.resolve(from, reference)?;
        let anchor = reference.split_once('#').map_or("", |(_, fragment)| fragment);
        let is_dynamic = plain.schema.get("$dynamicAnchor").and_then(Value::as_str) == Some(anchor);
        match self.dynamic.get(anchor) {
            Some(places) if is_dynamic && places.len() > 1 => {
                Err("what it means depends on how it is reached")
            }
            // The only one, perhaps of the whole that this is a part of.
            Some(places) if is_dynamic => Ok(places[0].clone()),
            _ => Ok(plain),
        }
    }

    pub(crate) fn resolve_recursive(&self, from: &Place<'a>) -> Result<Place<'a>, &'static str> {
        let plain = self.resolve(from, "#")?;
        let is_recursive = plain.schema.get("$recursiveAnchor") == Some(&Value::Bool(true));
        match self.recursive.as_slice() {
            [one] if is_recursive => Ok(one.clone()),
            [] | [_] => Ok(plain),
            _ if is_recursive => Err("what it means depends on how it is reached"),
            _ => Ok(plain),
        }
    }
}

impl<'a> Place<'a> {
    /// What tells apart what the schema means here from what it means elsewhere.
    pub(crate) fn key(&self) -> PlaceKey {
        (std::ptr::from_ref(self.schema), Rc::clone(&self.base), self.dialect)
    }

    /// The same place with the dialect and the identifier that the schema itself declares.
    pub(crate) fn enter(&self) -> Self {
        let dialect = Dialect::inside(self.schema, self.dialect);
        let base = match dialect.id(self.schema) {
            Some(id) if !id.starts_with('#') => {
                let id = id.split('#').next().unwrap_or("");
                join(&self.base, id).into()
            }
            _ => Rc::clone(&self.base),
        };
        Self { schema: self.schema, base, dialect, path: self.path.clone() }
    }

    pub(crate) fn child(&self, schema: &'a Value, key: &str) -> Self {
        Self { schema, base: Rc::clone(&self.base), dialect: self.dialect, path: self.path.child(key) }
    }

    pub(crate) fn item(&self, schema: &'a Value, index: usize) -> Self {
        Self { schema, base: Rc::clone(&self.base), dialect: self.dialect, path: self.path.item(index) }
    }
}

/// Whether a URI reference is absolute (RFC 3986, section 3.1).
fn has_scheme(text: &str) -> bool {
    text.split_once(':').is_some_and(|(scheme, _)| {
        scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b))
    })
}

/// Resolves a reference without fragment against a base (RFC 3986, section 5.2).
fn join(base: &str, reference: &str) -> String {
    if has_scheme(reference) {
        return reference.to_owned();
    }
    let base = base.split('#').next().unwrap_or("");
    let base = base.split('?').next().unwrap_or("");
    let (scheme, rest) =
        if has_scheme(base) { base.split_once(':').unwrap_or(("", base)) } else { ("", base) };
    let scheme = if scheme.is_empty() { String::new() } else { format!("{scheme}:") };
    if reference.starts_with("//") {
        return format!("{scheme}{reference}");
    }
    let (authority, path) = match rest.strip_prefix("//") {
        Some(tail) => {
            let end = tail.find('/').unwrap_or(tail.len());
            (format!("//{}", &tail[..end]), &tail[end..])
        }
        None => (String::new(), rest),
    };
    let merged = if reference.starts_with('/') {
        reference.to_owned()
    } else {
        let folder = path.rfind('/').map_or("", |at| &path[..=at]);
        let slash = if folder.is_empty() && !authority.is_empty() { "/" } else { "" };
        format!("{folder}{slash}{reference}")
    };
    let mut segments: Vec<&str> = Vec::new();
    let parts: Vec<&str> = merged.split('/').collect();
    for (index, part) in parts.iter().enumerate() {
        let last = index + 1 == parts.len();
        match *part {
            "." | ".." => {
                if *part == ".." && segments.len() > 1 {
                    segments.pop();
                }
                if last {
                    segments.push("");
                }
            }
            part => segments.push(part),
        }
    }
    format!("{scheme}{authority}{}", segments.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn references_join() {
        for (base, reference, expected) in [
            ("http://a/b/c", "d", "http://a/b/d"),
            ("http://a/b/c", "/d", "http://a/d"),
            ("http://a/b/c", "../d", "http://a/d"),
            ("http://a", "d", "http://a/d"),
            ("json-schema:///", "x.json", "json-schema:///x.json"),
            ("http://a/b", "urn:x:y", "urn:x:y"),
        ] {
            assert_eq!(join(base, reference), expected);
        }
    }

    #[test]
    fn pointers_anchors_and_embedded_schemas() {
        let root = json!({
            "$id": "http://x/root.json",
            "$defs": {
                "a/b": {"$anchor": "here", "type": "string"},
                "inner": {"$id": "inner.json", "$defs": {"z": {"const": 1}}}
            }
        });
        let budget = Budget::new(&crate::NormalizeLimits::default());
        let (index, start) = Index::new(&root, &budget);
        let find = |reference: &str| index.resolve(&start, reference).map(|place| place.schema.clone());
        assert_eq!(find("#/$defs/a~1b").unwrap()["type"], "string");
        assert_eq!(find("#here").unwrap()["type"], "string");
        assert_eq!(find("inner.json#/$defs/z").unwrap()["const"], 1);
        assert_eq!(find("http://x/root.json").unwrap(), root);
        assert!(find("http://y/z").is_err() && find("#/nope").is_err());
    }
}
