//! One schema through the stages, as text for people: the formula that it is read as, its normal form by
//! type, what is written, and the grammar.

use std::collections::HashSet;
use std::fmt::Write;

use serde_json::Value;

use crate::budget::Budget;
use crate::error::SchemaError;
use crate::formula::{FALSE, FormulaId, Lit, Node, TRUE, Type};
use crate::limits::{NormalizeLimits, ResidualMode};
use crate::normalizer::Normalizer;
use crate::shape::Shape;
use crate::shape::numerals::{Means, terminal};
use crate::source::Index;
use crate::stages::normalize;
use crate::tree::{Document, name};

/// Formulas that are shown.
const MAX_FORMULAS: usize = 500;

/// The stages that a schema goes through, in Markdown: headings, and lines of text. `#5` is a formula, and
/// `s5` the definition that is written for it.
///
/// # Errors
/// As [`normalize`].
pub fn explain(schema: &Value, limits: &NormalizeLimits) -> Result<String, SchemaError> {
    let found = normalize(schema, limits)?;
    let mut limits = limits.clone();
    if found.residual.is_empty() {
        limits.residual = ResidualMode::Refuse;
    }
    let budget = Budget::new(&limits);
    let (index, root) = Index::new(schema, &budget);
    let mut normalizer = Normalizer::new(index, &limits, &budget);
    normalizer.compose = found.lark.is_some();
    normalizer.narrow = found.rules.iter().any(|used| used.rule == "narrowed");
    let f = normalizer.read(&root)?;
    let document = normalizer.write_root(f)?;
    let mut out = String::new();
    let _ = writeln!(out, "## Formula\n\n{}", normalizer.show_formulas(f)?);
    let _ = writeln!(out, "## Normal form\n\n{}", normalizer.show_normal_form(f)?);
    let _ = writeln!(out, "## Written\n\n{}", show_document(&document));
    match &found.lark {
        Some(lark) => _ = writeln!(out, "## Grammar\n\n{lark}"),
        None => _ = writeln!(out, "## Grammar\n\n{}", found.schema),
    }
    if !found.rules.is_empty() {
        out.push_str("\n## Rules\n\n");
        for used in &found.rules {
            let _ = writeln!(out, "- {} at {}", used.rule, place(&used.path));
        }
    }
    if !found.residual.is_empty() {
        out.push_str("\n## Left open\n\n");
        for left in &found.residual {
            let _ = writeln!(out, "- `{}` at {}: {}", left.keyword, place(&left.path), left.message);
        }
    }
    Ok(out)
}

fn place(path: &str) -> String {
    if path.is_empty() { "the root".to_owned() } else { format!("`{path}`") }
}

fn show_document(document: &Document) -> String {
    let mut out = format!("root: {}\n", document.root.to_json());
    for (f, tree) in &document.definitions {
        let _ = writeln!(out, "{}: {}", name(*f), tree.to_json());
    }
    out
}

/// A formula in another one.
fn part(f: FormulaId) -> String {
    match f {
        TRUE => "anything".to_owned(),
        FALSE => "nothing".to_owned(),
        f => format!("#{}", f.index()),
    }
}

fn parts(list: &[FormulaId]) -> String {
    list.iter().map(|&f| part(f)).collect::<Vec<_>>().join(", ")
}

fn pattern(text: Option<&str>) -> String {
    text.map_or_else(|| "a pattern with look-ahead".to_owned(), |text| format!("/{text}/"))
}

fn show_literal(lit: &Lit) -> String {
    let quoted = |key: &str| Value::from(key).to_string();
    match lit {
        Lit::Types(bits) => {
            let names = Type::ALL.iter().filter(|t| bits & t.bit() != 0).map(|t| t.name());
            format!("of type {}", names.collect::<Vec<_>>().join(" or "))
        }
        Lit::Values(values) => {
            let list: Vec<String> = values.list.iter().map(Value::to_string).collect();
            format!("one of {}", list.join(", "))
        }
        Lit::Integer => "numbers are whole".to_owned(),
        Lit::Least(num, strict) => {
            format!("numbers {} {}", if *strict { ">" } else { ">=" }, num.to_value())
        }
        Lit::Most(num, strict) => format!("numbers {} {}", if *strict { "<" } else { "<=" }, num.to_value()),
        Lit::Multiple(step) => {
            let step = step.to_value().map_or_else(|| "a long fraction".to_owned(), |step| step.to_string());
            format!("numbers are multiples of {step}")
        }
        Lit::MinLength(n) => format!("strings of at least {n} characters"),
        Lit::MaxLength(n) => format!("strings of at most {n} characters"),
        Lit::Match(_, text) => format!("strings match {}", pattern(text.as_deref())),
        Lit::Offer(_, text) => format!("strings are meant to match {}", pattern(text.as_deref())),
        Lit::Items { prefix, rest } => {
            format!("items are [{}], then {}", parts(prefix), part(*rest))
        }
        Lit::MinItems(n) => format!("at least {n} items"),
        Lit::MaxItems(n) => format!("at most {n} items"),
        Lit::Contains(f, min, max) => {
            let most = max.map_or(String::new(), |max| format!(", at most {max}"));
            format!("at least {min} items{most} are {}", part(*f))
        }
        Lit::Unique => "items do not repeat".to_owned(),
        Lit::Key(key, f) => format!("the value at {} is {}", quoted(key), part(*f)),
        Lit::Keys(_, text, f) => {
            format!("values at keys that match {} are {}", pattern(text.as_deref()), part(*f))
        }
        Lit::Rest(others, f) => {
            let names: Vec<String> = others.names.iter().map(|key| quoted(key)).collect();
            let patterns = if others.languages.is_empty() { "" } else { " and those that match a pattern" };
            format!("values at keys but [{}]{patterns} are {}", names.join(", "), part(*f))
        }
        Lit::Names(f) => format!("keys are {}", part(*f)),
        Lit::Required(key) => format!("the key {} is there", quoted(key)),
        Lit::MinProps(n) => format!("at least {n} keys"),
        Lit::MaxProps(n) => format!("at most {n} keys"),
        Lit::Open => "something is said of keys without a name".to_owned(),
        Lit::Unknown(_, path) => format!("what {path} says, which no formula holds"),
    }
}

impl Normalizer<'_> {
    /// The formula and those it is made of, one a line.
    fn show_formulas(&mut self, root: FormulaId) -> Result<String, SchemaError> {
        let mut out = String::new();
        let mut seen = HashSet::from([TRUE, FALSE]);
        let mut open = vec![root];
        while let Some(f) = open.pop() {
            if !seen.insert(f) || seen.len() > MAX_FORMULAS {
                continue;
            }
            let mut inner = Vec::new();
            let text = match self.forms.node(f).clone() {
                Node::True | Node::False => continue,
                Node::Not(g) => {
                    inner.push(g);
                    format!("not {}", part(g))
                }
                Node::And(list) => {
                    inner.extend(list.iter());
                    format!("all of {}", parts(&list))
                }
                Node::Or(list) => {
                    inner.extend(list.iter());
                    format!("any of {}", parts(&list))
                }
                Node::One(list) => {
                    inner.extend(list.iter());
                    format!("exactly one of {}", parts(&list))
                }
                Node::Def(number) => {
                    let body = self.def_body(number)?;
                    inner.push(body);
                    format!("a reference to {}", part(body))
                }
                Node::Lit(lit) => {
                    match &lit {
                        Lit::Items { prefix, rest } => {
                            inner.extend(prefix.iter());
                            inner.push(*rest);
                        }
                        Lit::Contains(g, ..)
                        | Lit::Key(_, g)
                        | Lit::Keys(_, _, g)
                        | Lit::Rest(_, g)
                        | Lit::Names(g) => inner.push(*g),
                        _ => {}
                    }
                    show_literal(&lit)
                }
            };
            let _ = writeln!(out, "{} = {text}", part(f));
            open.extend(inner.into_iter().rev());
        }
        Ok(out)
    }

    /// The shapes of everything that was written, type by type.
    fn show_normal_form(&mut self, root: FormulaId) -> Result<String, SchemaError> {
        let mut out = String::new();
        let mut seen = HashSet::from([TRUE, FALSE]);
        for f in std::iter::once(root).chain(self.emitter.log.clone()) {
            if !seen.insert(f) || seen.len() > MAX_FORMULAS {
                continue;
            }
            for t in Type::ALL {
                for shape in self.shapes(f, false, t)?.iter() {
                    let text = self.show_shape(shape);
                    let _ = writeln!(out, "{} {}: {text}", part(f), t.name());
                }
            }
        }
        Ok(out)
    }

    fn show_shape(&mut self, shape: &Shape) -> String {
        let written = |result: Result<Value, (&'static str, &'static str)>| {
            result.map_or_else(|(_, why)| why.to_owned(), |value| value.to_string())
        };
        match shape {
            Shape::Null => "null".to_owned(),
            Shape::Boolean { yes, no } => match (yes, no) {
                (true, true) => "true or false".to_owned(),
                (yes, _) => yes.to_string(),
            },
            Shape::Number(number) => match number.write(Means::Grammar) {
                Ok(found) => {
                    let mut ways: Vec<String> = found.options.iter().map(Value::to_string).collect();
                    if !found.digits.is_empty() {
                        ways.push(terminal(&found.digits));
                    }
                    ways.join(" or ")
                }
                Err(cannot) => cannot.why.to_owned(),
            },
            Shape::Text(text) => written(text.write(&mut self.langs, self.limits.intersects)),
            Shape::Fixed(values) => Value::from((**values).clone()).to_string(),
            Shape::Array(array) => {
                let mut text = format!("[{}], then {}", parts(&array.prefix), part(array.rest));
                let most = array.max.map_or_else(|| "any number".to_owned(), |max| max.to_string());
                let _ = write!(text, "; {} to {most} items", array.min);
                for some in &array.exists {
                    let _ = write!(text, "; {} of them or more are {}", some.min, part(some.f));
                }
                if array.unique {
                    text.push_str("; none repeats");
                }
                text
            }
            Shape::Object(object) => {
                let mut members: Vec<String> = object
                    .named
                    .iter()
                    .map(|(key, named)| {
                        let mark = if object.required.contains(key) { "" } else { "?" };
                        format!("{}{mark}: {}", Value::from(&**key), part(named.f))
                    })
                    .collect();
                let patterns = object
                    .keys
                    .iter()
                    .map(|(_, text, f)| format!("{}: {}", pattern(text.as_deref()), part(*f)));
                members.extend(patterns);
                members.extend(object.rest.iter().map(|(_, f)| format!("others: {}", part(*f))));
                members.extend(object.names.iter().map(|f| format!("all keys: {}", part(*f))));
                members.extend(object.exists.iter().map(|(_, f)| format!("some key: {}", part(*f))));
                format!("{{{}}}", members.join(", "))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::json;

    use super::explain;
    use crate::limits::NormalizeLimits;

    /// The README shows what `explain` says of its example.
    #[test]
    fn the_readme_is_true() {
        let schema = json!({
            "type": "object",
            "properties": {"kind": {"enum": ["box", "ball"]}, "size": {"type": "integer", "minimum": 1}},
            "required": ["kind"],
            "if": {"properties": {"kind": {"const": "box"}}},
            "then": {"required": ["size"]},
        });
        let text = explain(&schema, &NormalizeLimits::default()).unwrap().replace("\n## ", "\n### ");
        let text = text.strip_prefix("## ").unwrap_or(&text);
        let mut shown = format!("\n```json\n{schema}\n```\n");
        for stage in text.split("\n### ") {
            let (title, body) = stage.split_once("\n\n").unwrap_or((stage, ""));
            shown.push_str(&format!("\n### {title}\n\n```text\n{}\n```\n", body.trim_end()));
        }
        shown.push('\n');
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md");
        let page = std::fs::read_to_string(&path).unwrap();
        let (head, rest) = page.split_once("writes this -->\n").unwrap();
        let (found, tail) = rest.split_once("<!-- end -->").unwrap();
        if std::env::var_os("LLGTRT_UPDATE").is_some() {
            std::fs::write(&path, format!("{head}writes this -->\n{shown}<!-- end -->{tail}")).unwrap();
        } else {
            assert!(found == shown, "README.md is stale");
        }
    }

    #[test]
    fn every_stage_is_shown() {
        let schema = json!({
            "type": "object",
            "properties": {"size": {"type": "integer", "minimum": 1}, "next": {"$ref": "#"}},
            "required": ["size"],
        });
        let limits = NormalizeLimits::default();
        let text = explain(&schema, &limits).unwrap();
        for expected in [
            "= of type object",
            "numbers >= 1",
            "the value at \"next\" is #",
            "a reference to #",
            "object: {\"size\": #",
            "\"next\"?: #",
            "\"additionalProperties\":false",
            "- closed at the root",
        ] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
        let composed = json!({"type": "array", "contains": {"const": 1}});
        let text = explain(&composed, &NormalizeLimits { compose: true, ..limits }).unwrap();
        assert!(text.contains("1 of them or more are #") && text.contains("start: "), "{text}");
    }
}
