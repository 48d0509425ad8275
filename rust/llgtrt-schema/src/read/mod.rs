//! Reads schemas into formulas. References are read when they are needed.

mod object;
mod string;
mod unevaluated;

use std::rc::Rc;

use serde_json::{Map, Value};

use crate::error::{Reason, SchemaError};
use crate::formula::{DefId, FALSE, FormulaId, Lit, Num, Ratio, TRUE, Type};
use crate::keyword::{self, Role};
use crate::languages::formats;
use crate::limits::ResidualMode;
use crate::normalizer::{Def, Normalizer};
use crate::source::Place;

/// Parts of a schema: those that decide the order of properties, and the others.
#[derive(Default)]
pub(crate) struct Parts {
    pub(crate) first: Vec<FormulaId>,
    pub(crate) last: Vec<FormulaId>,
}

pub(crate) fn bad(place: &Place, keyword: &str, expected: &str) -> SchemaError {
    SchemaError::new(
        &place.path,
        keyword,
        format!("`{keyword}` must be {expected}"),
        format!("write {expected}"),
    )
}

/// A count: a whole number, also if it is written with a fraction of zero.
pub(crate) fn count(place: &Place, keyword: &str, value: &Value) -> Result<u64, SchemaError> {
    let whole = value.as_f64().filter(|n| n.fract() == 0.0 && (0.0..1e15).contains(n)).map(|n| n as u64);
    value.as_u64().or(whole).ok_or_else(|| bad(place, keyword, "a whole number of at least 0"))
}

impl<'a> Normalizer<'a> {
    /// Reads the schema at a place, whose identifier is not applied yet.
    pub(crate) fn read(&mut self, place: &Place<'a>) -> Result<FormulaId, SchemaError> {
        let object = match place.schema {
            Value::Bool(true) => return Ok(TRUE),
            Value::Bool(false) => return Ok(FALSE),
            Value::Object(object) => object,
            _ => {
                return Err(SchemaError::new(&place.path, "", "a schema must be an object or a boolean", ""));
            }
        };
        if object.is_empty() {
            return Ok(TRUE);
        }
        let key = place.key();
        if let Some(&known) = self.known.get(&key) {
            return Ok(known);
        }
        let _level = self.enter()?;
        let place = place.enter();
        self.spend(TRUE, 4 + (place.path.len() + place.base.len()) as u64 / 32)?;
        self.hold(TRUE, 100)?;
        let f = self.read_object(&place, object)?;
        self.forms.set_path(f, &place.path);
        self.known.insert(key, f);
        Ok(f)
    }

    fn read_object(
        &mut self,
        place: &Place<'a>,
        object: &'a Map<String, Value>,
    ) -> Result<FormulaId, SchemaError> {
        if place.dialect.ref_stands_alone() {
            if let Some(reference) = object.get("$ref") {
                return self.reference(place, "$ref", reference);
            }
        }
        let mut parts = Parts::default();
        if let Some(types) = object.get("type") {
            let mut f = self.read_types(place, types)?;
            // A document that names a draft of JSON Schema is none of OpenAPI's.
            if !place.dialect.named && object.get("nullable") == Some(&Value::Bool(true)) {
                self.rule("nullable", &place.path);
                let null = self.forms.types([Type::Null]);
                f = self.forms.or([f, null]);
            }
            parts.first.push(f);
        }
        for (keyword, value) in object {
            if place.dialect.knows(keyword) {
                let result = self.keyword(place, object, keyword, value, &mut parts);
                let types: &[Type] = match keyword.as_str() {
                    "pattern" => &[Type::String],
                    "patternProperties" | "additionalProperties" => &[Type::Object],
                    _ => &Type::ALL,
                };
                self.or_unknown(result, types, &mut parts)?;
            } else if keyword::find(keyword).is_some_and(|found| found.role != Role::Container) {
                self.rule("other-draft", &place.path);
            }
        }
        self.read_if(place, object, &mut parts)?;
        if object.contains_key("unevaluatedProperties") || object.contains_key("unevaluatedItems") {
            let result = self.read_unevaluated(place, object, &mut parts);
            self.or_unknown(result, &[Type::Array, Type::Object], &mut parts)?;
        }
        Ok(self.forms.and(parts.first.into_iter().chain(parts.last)))
    }

    /// A part that cannot be read as a formula is one that says nothing.
    fn or_unknown(
        &mut self,
        result: Result<(), SchemaError>,
        types: &[Type],
        parts: &mut Parts,
    ) -> Result<(), SchemaError> {
        match result {
            Err(error) if error.is_beyond() && self.limits.residual == ResidualMode::Verify => {
                let bits = types.iter().fold(0, |bits, t| bits | t.bit());
                let path = error.param();
                self.left.leave_unread(&path, error);
                parts.last.push(self.forms.lit(Lit::Unknown(bits, path.into())));
                Ok(())
            }
            result => result,
        }
    }

    fn keyword(
        &mut self,
        place: &Place<'a>,
        object: &'a Map<String, Value>,
        keyword: &'a str,
        value: &'a Value,
        parts: &mut Parts,
    ) -> Result<(), SchemaError> {
        match keyword {
            "$ref" | "$dynamicRef" | "$recursiveRef" => {
                let f = self.reference(place, keyword, value)?;
                parts.first.push(f);
            }
            "allOf" | "anyOf" | "oneOf" => {
                let list = self.read_list(place, keyword, value)?;
                let f = match keyword {
                    "allOf" => self.forms.and(list),
                    "anyOf" => self.forms.or(list),
                    _ => {
                        self.rule("one-of", &place.path);
                        self.forms.one(&list)
                    }
                };
                self.forms.set_path(f, &place.path.child(keyword));
                parts.first.push(f);
            }
            "not" => {
                self.rule("not", &place.path);
                let f = self.read(&place.child(value, keyword))?;
                let f = self.forms.not(f);
                self.forms.set_path(f, &place.path.child(keyword));
                parts.last.push(f);
            }
            "enum" => {
                let list = value.as_array().ok_or_else(|| bad(place, keyword, "an array"))?;
                let f = self.forms.values(list.clone());
                parts.first.push(f);
            }
            "const" => {
                let f = self.forms.values(vec![value.clone()]);
                parts.first.push(f);
            }
            "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" | "multipleOf"
                if applies(object, Type::Number) =>
            {
                if let Some(f) = self.read_number(place, object, keyword, value)? {
                    parts.last.push(f);
                }
            }
            "format" if is_integer(object) && value.as_str().and_then(formats::integer_range).is_some() => {
                let (least, most) = value.as_str().and_then(formats::integer_range).unwrap_or_default();
                self.rule("integer-format", &place.path);
                let least = self.forms.lit(Lit::Least(Num::Int(least.into()), false));
                let most = self.forms.lit(Lit::Most(Num::Int(most.into()), false));
                parts.last.extend([least, most]);
            }
            "minLength" | "maxLength" | "pattern" | "format" | "contentEncoding"
                if applies(object, Type::String) =>
            {
                if let Some(f) = self.read_string(place, object, keyword, value)? {
                    parts.last.push(f);
                }
            }
            "items" | "prefixItems" | "minItems" | "maxItems" | "contains" | "uniqueItems"
                if applies(object, Type::Array) =>
            {
                self.read_array(place, object, keyword, value, parts)?;
            }
            "additionalItems" if applies(object, Type::Array) && !object.contains_key("items") => {}
            _ if applies(object, Type::Object) => self.read_members(place, object, keyword, value, parts)?,
            _ => {}
        }
        Ok(())
    }

    pub(crate) fn read_list(
        &mut self,
        place: &Place<'a>,
        keyword: &str,
        value: &'a Value,
    ) -> Result<Vec<FormulaId>, SchemaError> {
        let list = value.as_array().ok_or_else(|| bad(place, keyword, "an array of schemas"))?;
        let outer = place.child(value, keyword);
        list.iter().enumerate().map(|(i, schema)| self.read(&outer.item(schema, i))).collect()
    }

    fn read_types(&mut self, place: &Place<'a>, value: &Value) -> Result<FormulaId, SchemaError> {
        let list = match value {
            Value::Array(list) => list.as_slice(),
            one => std::slice::from_ref(one),
        };
        let mut types = Vec::new();
        let (mut integer, mut number) = (false, false);
        for name in list {
            types.push(match name.as_str() {
                Some("null") => Type::Null,
                Some("boolean") => Type::Boolean,
                Some("integer") => {
                    integer = true;
                    Type::Number
                }
                Some("number") => {
                    number = true;
                    Type::Number
                }
                Some("string") => Type::String,
                Some("array") => Type::Array,
                Some("object") => Type::Object,
                _ => {
                    return Err(bad(
                        place,
                        "type",
                        "one of null, boolean, integer, number, string, array, object",
                    ));
                }
            });
        }
        let types = self.forms.types(types);
        if integer && !number {
            let whole = self.forms.lit(Lit::Integer);
            return Ok(self.forms.and([types, whole]));
        }
        Ok(types)
    }

    fn read_number(
        &mut self,
        place: &Place<'a>,
        object: &Map<String, Value>,
        keyword: &str,
        value: &Value,
    ) -> Result<Option<FormulaId>, SchemaError> {
        let strict = |name: &str| object.get(name) == Some(&Value::Bool(true));
        if value.is_boolean() && keyword.starts_with("exclusive") {
            return Ok(None);
        }
        let Value::Number(number) = value else {
            return Err(bad(place, keyword, "a number"));
        };
        let num = Num::new(number).ok_or_else(|| bad(place, keyword, "a number that fits a double"))?;
        let lit = match keyword {
            "minimum" => Lit::Least(num, strict("exclusiveMinimum")),
            "maximum" => Lit::Most(num, strict("exclusiveMaximum")),
            "exclusiveMinimum" => Lit::Least(num, true),
            "exclusiveMaximum" => Lit::Most(num, true),
            _ => Lit::Multiple(
                Ratio::new(number).ok_or_else(|| bad(place, keyword, "a number above 0 with few digits"))?,
            ),
        };
        let f = self.forms.lit(lit);
        self.forms.set_path(f, &place.path.child(keyword));
        Ok(Some(f))
    }

    fn read_if(
        &mut self,
        place: &Place<'a>,
        object: &'a Map<String, Value>,
        parts: &mut Parts,
    ) -> Result<(), SchemaError> {
        let Some(condition) = object.get("if").filter(|_| place.dialect.knows("if")) else { return Ok(()) };
        if !object.contains_key("then") && !object.contains_key("else") {
            return Ok(());
        }
        self.rule("if-then-else", &place.path);
        let condition = self.read(&place.child(condition, "if"))?;
        let branch = |this: &mut Self, name: &str| match object.get_key_value(name) {
            Some((name, schema)) => this.read(&place.child(schema, name)),
            None => Ok(TRUE),
        };
        let then = branch(self, "then")?;
        let other = branch(self, "else")?;
        let negated = self.forms.not(condition);
        let yes = self.forms.and([condition, then]);
        let no = self.forms.and([negated, other]);
        let f = self.forms.or([yes, no]);
        self.forms.set_path(f, &place.path.child("if"));
        parts.last.push(f);
        Ok(())
    }

    /// A reference, as the number of what it leads to.
    pub(crate) fn reference(
        &mut self,
        place: &Place<'a>,
        keyword: &str,
        value: &Value,
    ) -> Result<FormulaId, SchemaError> {
        let target = self.target(place, keyword, value)?;
        self.hold(TRUE, 150 + target.path.len() + target.base.len())?;
        match target.schema {
            Value::Bool(true) => return Ok(TRUE),
            Value::Bool(false) => return Ok(FALSE),
            _ => {}
        }
        let at = (std::ptr::from_ref(target.schema), Rc::clone(&target.base));
        let id = if let Some(&id) = self.def_ids.get(&at) {
            id
        } else {
            let id = DefId::new(self.defs.len());
            self.defs.push(Def { place: target, body: None });
            self.def_ids.insert(at, id);
            id
        };
        let f = self.forms.def(id);
        self.forms.set_path(f, &place.path.child(keyword));
        Ok(f)
    }

    pub(crate) fn target(
        &mut self,
        place: &Place<'a>,
        keyword: &str,
        value: &Value,
    ) -> Result<Place<'a>, SchemaError> {
        let reference = value.as_str().ok_or_else(|| bad(place, keyword, "a string"))?;
        self.spend(TRUE, 4 + (reference.len() + place.base.len()) as u64 / 8)?;
        let refuse = |why: &str| {
            let shown: String = reference.chars().take(100).collect();
            SchemaError::new(&place.path, keyword, format!("`{shown}`: {why}"), "")
                .because(Reason::Unresolved)
        };
        match keyword {
            "$dynamicRef" => {
                self.rule("dynamic-ref", &place.path);
                self.index.resolve_dynamic(place, reference).map_err(refuse)
            }
            "$recursiveRef" => {
                self.rule("dynamic-ref", &place.path);
                self.index.resolve_recursive(place).map_err(refuse)
            }
            _ => self.index.resolve(place, reference).map_err(refuse),
        }
    }

    /// The formula of a referenced schema.
    pub(crate) fn def_body(&mut self, id: DefId) -> Result<FormulaId, SchemaError> {
        let def = &self.defs[id.index()];
        if let Some(body) = def.body {
            return Ok(body);
        }
        let place = def.place.clone();
        let body = self.read(&place)?;
        self.defs[id.index()].body = Some(body);
        Ok(body)
    }
}

/// Whether all numbers that the schema's own `type` allows are whole.
pub(crate) fn is_integer(object: &Map<String, Value>) -> bool {
    let has = |wanted: &str| match object.get("type") {
        Some(Value::Array(names)) => names.iter().any(|name| name == wanted),
        Some(name) => name == wanted,
        None => false,
    };
    has("integer") && !has("number")
}

/// Whether the schema's own `type` allows values of this type; keywords of others mean nothing.
fn applies(object: &Map<String, Value>, t: Type) -> bool {
    let allowed = |name: &Value| match name.as_str() {
        Some("integer" | "number") => t == Type::Number,
        Some(name) => name == t.name(),
        None => true,
    };
    match object.get("type") {
        None => true,
        Some(Value::Array(names)) => names.iter().any(allowed),
        Some(name) => allowed(name),
    }
}
