//! `unevaluatedProperties` and `unevaluatedItems`: what the other keywords evaluate, for every
//! combination of their branches.

use std::rc::Rc;

use serde_json::{Map, Value};

use crate::error::{Reason, SchemaError};
use crate::formula::{Lit, Others, TRUE};
use crate::normalizer::{Case, Cases, Normalizer, Seen};
use crate::read::Parts;
use crate::source::Place;

/// Combinations of branches.
const MAX_CASES: usize = 64;

/// No condition, and nothing is evaluated.
fn plain() -> Vec<Case> {
    vec![Case { condition: TRUE, seen: Seen::default() }]
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
        let cases = self.cases(place, object, true)?;
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
                        names: case.seen.names.iter().cloned().collect(),
                        languages: case.seen.languages.iter().copied().collect(),
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
                self.forms.set_path(part, &place.path.child(keyword));
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
    ) -> Result<Vec<Case>, SchemaError> {
        let _level = self.enter()?;
        let mut cases = vec![Case { condition: TRUE, seen: self.own(place, object, top)? }];
        for (name, value) in object {
            let sub: Vec<Cases> = match (name.as_str(), value) {
                ("allOf", Value::Array(list)) => {
                    let outer = place.child(value, name);
                    let mut all = Vec::new();
                    for (i, schema) in list.iter().enumerate() {
                        all.push(self.sub_cases(&outer.item(schema, i))?);
                    }
                    all
                }
                ("anyOf", Value::Array(list)) => {
                    let outer = place.child(value, name);
                    let mut all = Vec::new();
                    for (i, schema) in list.iter().enumerate() {
                        all.push(self.optional(&outer.item(schema, i))?);
                    }
                    all
                }
                ("oneOf", Value::Array(list)) => {
                    // Exactly one holds, so its cases are all there is.
                    let outer = place.child(value, name);
                    let mut either = Vec::new();
                    for (i, schema) in list.iter().enumerate() {
                        let cases = self.optional(&outer.item(schema, i))?;
                        either.extend(cases.iter().skip(1).cloned());
                        if either.len() > MAX_CASES {
                            return Err(too_many(place));
                        }
                    }
                    vec![either.into()]
                }
                ("$ref" | "$dynamicRef" | "$recursiveRef", reference) => {
                    let target = self.target(place, name, reference)?;
                    vec![self.sub_cases(&target)?]
                }
                ("dependentSchemas", Value::Object(members)) => {
                    let outer = place.child(value, name);
                    let mut all = Vec::new();
                    for (key, schema) in members {
                        let present = self.has(key);
                        let absent = self.forms.not(present);
                        let mut list = vec![Case { condition: absent, seen: Seen::default() }];
                        for case in self.sub_cases(&outer.child(schema, key))?.iter() {
                            let condition = self.forms.and([present, case.condition]);
                            list.push(Case { condition, seen: case.seen.clone() });
                        }
                        all.push(list.into());
                    }
                    all
                }
                ("if", schema) => {
                    let mut list = Vec::new();
                    let holds = self.optional(&place.child(schema, name))?;
                    for (branch, cases) in [("then", &holds[1..]), ("else", &holds[..1])] {
                        let more = match object.get_key_value(branch) {
                            Some((name, schema)) => self.sub_cases(&place.child(schema, name))?,
                            None => plain().into(),
                        };
                        list.extend(self.cross(place, cases, &more)?);
                    }
                    vec![list.into()]
                }
                _ => continue,
            };
            for list in sub {
                cases = self.cross(place, &cases, &list)?;
            }
        }
        Ok(cases)
    }

    /// Both at once, in all combinations.
    fn cross(&mut self, place: &Place<'a>, a: &[Case], b: &[Case]) -> Result<Vec<Case>, SchemaError> {
        if a.len() * b.len() > MAX_CASES {
            return Err(too_many(place));
        }
        let mut out = Vec::new();
        for x in a {
            for y in b {
                self.spend(TRUE, (x.seen.len() + y.seen.len()) as u64)?;
                let mut seen = x.seen.clone();
                seen.add(&y.seen);
                out.push(Case { condition: self.forms.and([x.condition, y.condition]), seen });
            }
        }
        Ok(out)
    }

    /// The cases of a schema inside, found out once.
    fn sub_cases(&mut self, place: &Place<'a>) -> Result<Cases, SchemaError> {
        let place = place.enter();
        let Value::Object(object) = place.schema else { return Ok(plain().into()) };
        let key = place.key();
        match self.evaluated.get(&key) {
            Some(Some(known)) => return Ok(Rc::clone(known)),
            Some(None) => {
                let what = "the schemas beside it refer to each other in a circle";
                return Err(refuse(&place, "unevaluatedProperties", what));
            }
            None => {}
        }
        self.evaluated.insert(key.clone(), None);
        let cases = self.cases(&place, object, false);
        self.evaluated.remove(&key);
        let cases: Cases = cases?.into();
        self.hold(TRUE, 200 + cases.iter().map(|case| 100 + 48 * case.seen.len()).sum::<usize>())?;
        self.evaluated.insert(key, Some(Rc::clone(&cases)));
        Ok(cases)
    }

    /// The cases of a branch that may hold or not: first, that it does not.
    fn optional(&mut self, place: &Place<'a>) -> Result<Cases, SchemaError> {
        let f = self.read(place)?;
        let mut list = vec![Case { condition: self.forms.not(f), seen: Seen::default() }];
        for case in self.sub_cases(place)?.iter() {
            self.spend(TRUE, case.seen.len() as u64)?;
            let condition = self.forms.and([f, case.condition]);
            list.push(Case { condition, seen: case.seen.clone() });
        }
        Ok(list.into())
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
            names: others.names.iter().cloned().collect(),
            languages: others.languages.iter().copied().collect(),
            all_keys: has("additionalProperties") || (!top && has("unevaluatedProperties")),
            prefix: if place.dialect.knows("prefixItems") { tuple("prefixItems") } else { 0 }
                .max(tuple("items")),
            all_items: plain_items || has("additionalItems") || (!top && has("unevaluatedItems")),
        })
    }
}

fn too_many(place: &Place) -> SchemaError {
    refuse(place, "unevaluatedProperties", "too many combinations of branches")
}

fn refuse(place: &Place, keyword: &str, why: &str) -> SchemaError {
    let hint = "use `additionalProperties` or `items` in each branch";
    SchemaError::new(&place.path, keyword, why, hint).because(Reason::Unsupported)
}
