//! `unevaluatedProperties` and `unevaluatedItems`: what the other keywords evaluate, for every
//! combination of their branches.

use std::rc::Rc;

use serde_json::{Map, Value};

use crate::formula::{FormulaId, Lit, Others, TRUE};
use crate::languages::LanguageId;
use crate::read::Parts;
use crate::read::refs::Place;
use crate::{Normalizer, Reason, SchemaError};

/// Combinations of branches.
const MAX_CASES: usize = 64;

/// What is evaluated where a condition holds.
#[derive(Debug, Clone, Default)]
struct Seen {
    names: Vec<Rc<str>>,
    languages: Vec<LanguageId>,
    all_keys: bool,
    prefix: usize,
    all_items: bool,
}

#[derive(Debug, Clone)]
struct Case {
    condition: FormulaId,
    seen: Seen,
}

impl Seen {
    fn add(&mut self, other: &Seen) {
        for name in &other.names {
            if !self.names.contains(name) {
                self.names.push(Rc::clone(name));
            }
        }
        for &x in &other.languages {
            if !self.languages.contains(&x) {
                self.languages.push(x);
            }
        }
        self.all_keys |= other.all_keys;
        self.prefix = self.prefix.max(other.prefix);
        self.all_items |= other.all_items;
    }
}

impl<'a> Normalizer<'a> {
    pub(crate) fn read_unevaluated(
        &mut self,
        place: &Place<'a>,
        object: &'a Map<String, Value>,
        parts: &mut Parts,
    ) -> Result<(), SchemaError> {
        if !place.dialect.knows("unevaluatedProperties") {
            return Ok(());
        }
        self.rule("unevaluated", &place.path);
        let cases = self.cases(place, object, true, 0)?;
        for keyword in ["unevaluatedProperties", "unevaluatedItems"] {
            let Some((keyword, schema)) = object.get_key_value(keyword) else { continue };
            if keyword == "unevaluatedItems" && object.contains_key("contains") {
                return Err(refuse(place, keyword, "`contains` beside it evaluates items by their value"));
            }
            let f = self.read(&place.child(schema, keyword))?;
            if f == TRUE {
                continue;
            }
            for case in &cases {
                let rest = if keyword == "unevaluatedProperties" {
                    if case.seen.all_keys {
                        continue;
                    }
                    let others = Others {
                        names: case.seen.names.clone().into(),
                        languages: case.seen.languages.clone().into(),
                    };
                    self.forms.lit(Lit::Rest(others, f))
                } else {
                    if case.seen.all_items {
                        continue;
                    }
                    self.forms.lit(Lit::Items { prefix: vec![TRUE; case.seen.prefix].into(), rest: f })
                };
                let unless = self.forms.not(case.condition);
                let part = self.forms.or([unless, rest]);
                let mut path = place.path.to_string();
                crate::path::push_key(&mut path, keyword);
                self.forms.set_path(part, &path);
                parts.last.push(part);
            }
        }
        Ok(())
    }

    /// What a schema evaluates, by cases that together hold for every value it accepts.
    fn cases(
        &mut self,
        place: &Place<'a>,
        object: &'a Map<String, Value>,
        top: bool,
        depth: usize,
    ) -> Result<Vec<Case>, SchemaError> {
        let keyword = "unevaluatedProperties";
        if depth > 30 {
            return Err(refuse(place, keyword, "the schemas beside it refer to each other in a circle"));
        }
        let mut cases = vec![Case { condition: TRUE, seen: self.own(place, object, top)? }];
        for (name, value) in object {
            let sub: Vec<Vec<Case>> = match (name.as_str(), value) {
                ("allOf", Value::Array(list)) => {
                    let outer = place.child(value, name);
                    let mut all = Vec::new();
                    for (i, schema) in list.iter().enumerate() {
                        all.push(self.sub_cases(&outer.item(schema, i), depth)?);
                    }
                    all
                }
                ("anyOf", Value::Array(list)) => {
                    let outer = place.child(value, name);
                    let mut all = Vec::new();
                    for (i, schema) in list.iter().enumerate() {
                        all.push(self.optional(&outer.item(schema, i), depth)?);
                    }
                    all
                }
                ("oneOf", Value::Array(list)) => {
                    // Exactly one holds, so its cases are all there is.
                    let outer = place.child(value, name);
                    let mut either = Vec::new();
                    for (i, schema) in list.iter().enumerate() {
                        let cases = self.optional(&outer.item(schema, i), depth)?;
                        either.extend(cases.into_iter().skip(1));
                    }
                    vec![either]
                }
                ("$ref" | "$dynamicRef" | "$recursiveRef", reference) => {
                    let target = self.target(place, name, reference)?;
                    vec![self.sub_cases(&target, depth)?]
                }
                ("dependentSchemas", Value::Object(members)) => {
                    let outer = place.child(value, name);
                    let mut all = Vec::new();
                    for (key, schema) in members {
                        let present = self.has(key);
                        let absent = self.forms.not(present);
                        let mut list = vec![Case { condition: absent, seen: Seen::default() }];
                        for case in self.sub_cases(&outer.child(schema, key), depth)? {
                            let condition = self.forms.and([present, case.condition]);
                            list.push(Case { condition, seen: case.seen });
                        }
                        all.push(list);
                    }
                    all
                }
                ("if", schema) => {
                    let mut list = Vec::new();
                    let holds = self.optional(&place.child(schema, name), depth)?;
                    for (branch, cases) in [("then", &holds[1..]), ("else", &holds[..1])] {
                        let more = match object.get_key_value(branch) {
                            Some((name, schema)) => self.sub_cases(&place.child(schema, name), depth)?,
                            None => vec![Case { condition: TRUE, seen: Seen::default() }],
                        };
                        list.extend(self.cross(cases, &more));
                    }
                    vec![list]
                }
                _ => continue,
            };
            for list in sub {
                cases = self.cross(&cases, &list);
                if cases.len() > MAX_CASES {
                    return Err(refuse(place, keyword, "too many combinations of branches"));
                }
            }
        }
        Ok(cases)
    }

    fn cross(&mut self, a: &[Case], b: &[Case]) -> Vec<Case> {
        let mut out = Vec::new();
        for x in a {
            for y in b {
                let mut seen = x.seen.clone();
                seen.add(&y.seen);
                out.push(Case { condition: self.forms.and([x.condition, y.condition]), seen });
            }
        }
        out
    }

    fn sub_cases(&mut self, place: &Place<'a>, depth: usize) -> Result<Vec<Case>, SchemaError> {
        let place = place.enter();
        match place.schema {
            Value::Object(object) => self.cases(&place, object, false, depth + 1),
            _ => Ok(vec![Case { condition: TRUE, seen: Seen::default() }]),
        }
    }

    /// The cases of a branch that may hold or not: first, that it does not.
    fn optional(&mut self, place: &Place<'a>, depth: usize) -> Result<Vec<Case>, SchemaError> {
        let f = self.read(place)?;
        let mut list = vec![Case { condition: self.forms.not(f), seen: Seen::default() }];
        for case in self.sub_cases(place, depth)? {
            let condition = self.forms.and([f, case.condition]);
            list.push(Case { condition, seen: case.seen });
        }
        Ok(list)
    }

    /// What the keywords of the schema itself evaluate, branches left out.
    fn own(
        &mut self,
        place: &Place<'a>,
        object: &'a Map<String, Value>,
        top: bool,
    ) -> Result<Seen, SchemaError> {
        let others = self.others(place, object)?;
        let has = |key: &str| object.contains_key(key);
        let tuple = |key: &str| object.get(key).and_then(Value::as_array).map_or(0, Vec::len);
        let plain_items = object.get("items").is_some_and(|items| !items.is_array());
        if has("contains") && !top {
            let keyword = "unevaluatedItems";
            return Err(refuse(place, keyword, "`contains` evaluates items by their value"));
        }
        Ok(Seen {
            names: others.names.to_vec(),
            languages: others.languages.to_vec(),
            all_keys: has("additionalProperties") || (!top && has("unevaluatedProperties")),
            prefix: tuple("prefixItems").max(tuple("items")),
            all_items: plain_items || has("additionalItems") || (!top && has("unevaluatedItems")),
        })
    }
}

fn refuse(place: &Place, keyword: &str, why: &str) -> SchemaError {
    let hint = "use `additionalProperties` or `items` in each branch";
    SchemaError::new(&place.path, keyword, why, hint).because(Reason::Unsupported)
}
