//! Reads the keywords of arrays and objects.

use std::rc::Rc;

use serde_json::{Map, Value};

use crate::error::SchemaError;
use crate::formula::{FormulaId, Lit, Others, TRUE, Type};
use crate::normalizer::Normalizer;
use crate::read::{Parts, bad, count};
use crate::source::Place;

/// Keywords that say something of keys that are not named.
const SPEAKS_OF_OTHERS: [&str; 4] =
    ["patternProperties", "additionalProperties", "propertyNames", "unevaluatedProperties"];

impl<'a> Normalizer<'a> {
    pub(crate) fn read_array(
        &mut self,
        place: &Place<'a>,
        object: &'a Map<String, Value>,
        keyword: &'a str,
        value: &'a Value,
        parts: &mut Parts,
    ) -> Result<(), SchemaError> {
        let path = place.path.child(keyword);
        let f = match keyword {
            "minItems" => self.forms.lit(Lit::MinItems(count(place, keyword, value)?)),
            "maxItems" => self.forms.lit(Lit::MaxItems(count(place, keyword, value)?)),
            "uniqueItems" => match value {
                Value::Bool(true) => self.forms.lit(Lit::Unique),
                Value::Bool(false) => {
                    self.rule("trivial", &place.path);
                    return Ok(());
                }
                _ => return Err(bad(place, keyword, "true or false")),
            },
            "contains" => {
                let f = self.read(&place.child(value, keyword))?;
                let bound = |name: &str| match object.get(name) {
                    Some(value) if place.dialect.knows(name) => count(place, name, value).map(Some),
                    _ => Ok(None),
                };
                let min = bound("minContains")?.unwrap_or(1);
                let max = bound("maxContains")?;
                self.rule("contains", &place.path);
                self.forms.lit(Lit::Contains(f, min, max))
            }
            "items" if value.is_array() => {
                let prefix = self.read_list(place, keyword, value)?;
                let rest = match object.get_key_value("additionalItems") {
                    Some((name, schema)) => self.read(&place.child(schema, name))?,
                    None => TRUE,
                };
                self.forms.lit(Lit::Items { prefix: prefix.into(), rest })
            }
            // Read with `items`, or here if there are no such.
            "prefixItems" if object.get("items").is_some_and(|items| !items.is_array()) => return Ok(()),
            "prefixItems" => {
                let prefix = self.read_list(place, keyword, value)?;
                self.forms.lit(Lit::Items { prefix: prefix.into(), rest: TRUE })
            }
            _ => {
                let prefix = match object.get_key_value("prefixItems") {
                    Some((name, list)) if place.dialect.knows(name) => self.read_list(place, name, list)?,
                    _ => Vec::new(),
                };
                let rest = self.read(&place.child(value, keyword))?;
                self.forms.lit(Lit::Items { prefix: prefix.into(), rest })
            }
        };
        self.forms.set_path(f, &path);
        parts.last.push(f);
        Ok(())
    }

    pub(crate) fn read_members(
        &mut self,
        place: &Place<'a>,
        object: &'a Map<String, Value>,
        keyword: &'a str,
        value: &'a Value,
        parts: &mut Parts,
    ) -> Result<(), SchemaError> {
        if self.limits.closes() && SPEAKS_OF_OTHERS.contains(&keyword) {
            let open = self.forms.lit(Lit::Open);
            parts.last.push(open);
        }
        match keyword {
            "properties" => {
                let members = value.as_object().ok_or_else(|| bad(place, keyword, "an object"))?;
                let outer = place.child(value, keyword);
                for (key, schema) in members {
                    self.mention(key);
                    let f = self.read(&outer.child(schema, key))?;
                    // A property that may be anything still has its place in the order.
                    let f = self.forms.property(key, f);
                    parts.first.push(f);
                }
            }
            "patternProperties" => {
                let members = value.as_object().ok_or_else(|| bad(place, keyword, "an object"))?;
                let outer = place.child(value, keyword);
                for (source, schema) in members {
                    let pattern = self.pattern(place, keyword, source)?;
                    let f = self.read(&outer.child(schema, source))?;
                    let f = self.forms.lit(Lit::Keys(pattern.language, pattern.text.map(Into::into), f));
                    self.forms.set_path(f, &outer.path);
                    parts.first.push(f);
                }
            }
            "additionalProperties" => {
                let others = self.others(place, object)?;
                let f = self.read(&place.child(value, keyword))?;
                let f = self.forms.lit(Lit::Rest(others, f));
                self.set_keyword_path(f, place, keyword);
                parts.first.push(f);
            }
            "required" => {
                // Draft 3 had a boolean in the property itself.
                if value.is_boolean() {
                    return Err(bad(place, keyword, "an array of strings"));
                }
                for key in names(place, keyword, value)? {
                    self.mention(key);
                    let f = self.forms.lit(Lit::Required(key.into()));
                    parts.last.push(f);
                }
            }
            "minProperties" | "maxProperties" => {
                let n = count(place, keyword, value)?;
                let f = self.forms.lit(if keyword == "minProperties" {
                    Lit::MinProps(n)
                } else {
                    Lit::MaxProps(n)
                });
                self.set_keyword_path(f, place, keyword);
                parts.last.push(f);
            }
            "propertyNames" => {
                self.rule("property-names", &place.path);
                let f = self.read(&place.child(value, keyword))?;
                let f = self.forms.lit(Lit::Names(f));
                self.set_keyword_path(f, place, keyword);
                parts.last.push(f);
            }
            "dependencies" | "dependentRequired" | "dependentSchemas" => {
                let members = value.as_object().ok_or_else(|| bad(place, keyword, "an object"))?;
                self.rule("dependencies", &place.path);
                let outer = place.child(value, keyword);
                for (key, dependent) in members {
                    self.mention(key);
                    let needs = if dependent.is_array() || keyword == "dependentRequired" {
                        let keys = names(place, keyword, dependent)?;
                        for key in &keys {
                            self.mention(key);
                        }
                        let list: Vec<FormulaId> =
                            keys.into_iter().map(|key| self.forms.lit(Lit::Required(key.into()))).collect();
                        self.forms.and(list)
                    } else {
                        self.read(&outer.child(dependent, key))?
                    };
                    let present = self.has(key);
                    let absent = self.forms.not(present);
                    let f = self.forms.or([absent, needs]);
                    self.set_keyword_path(f, place, keyword);
                    parts.last.push(f);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Objects that have the key.
    pub(crate) fn has(&mut self, key: &str) -> FormulaId {
        let object = self.forms.types([Type::Object]);
        let required = self.forms.lit(Lit::Required(key.into()));
        self.forms.and([object, required])
    }

    fn set_keyword_path(&mut self, f: FormulaId, place: &Place<'a>, keyword: &str) {
        self.forms.set_path(f, &place.path.child(keyword));
    }

    /// The keys that `additionalProperties` is about.
    pub(crate) fn others(
        &mut self,
        place: &Place<'a>,
        object: &'a Map<String, Value>,
    ) -> Result<Others, SchemaError> {
        let names: Vec<Rc<str>> = object
            .get("properties")
            .and_then(Value::as_object)
            .into_iter()
            .flat_map(|members| members.keys().map(|key| key.as_str().into()))
            .collect();
        let mut languages = Vec::new();
        for source in
            object.get("patternProperties").and_then(Value::as_object).into_iter().flat_map(Map::keys)
        {
            languages.push(self.pattern(place, "patternProperties", source)?.language);
        }
        Ok(Others { names: names.into(), languages: languages.into() })
    }
}

fn names<'v>(place: &Place, keyword: &str, value: &'v Value) -> Result<Vec<&'v str>, SchemaError> {
    let list = value.as_array().map(|list| list.iter().map(Value::as_str).collect::<Option<Vec<_>>>());
    list.flatten().ok_or_else(|| bad(place, keyword, "an array of strings"))
}
