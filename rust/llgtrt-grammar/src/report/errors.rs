//! Finding more than the first error: what is wrong is taken out, and the rest is looked at again.

use llgtrt_core::GrammarSpec;
use serde_json::Value;

use super::{Problem, place};
use crate::refusal::Refusal;
use llgtrt_schema::path::{self, Step};

/// Most errors of one report.
pub(super) const MAX_ERRORS: usize = 20;

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        let some = |text: Box<str>| (!text.is_empty()).then(|| text.into_string());
        Self {
            path: refusal.error.param.unwrap_or_default(),
            keyword: some(refusal.keyword),
            message: refusal.message,
            hint: some(refusal.hint),
        }
    }
}

impl Problem {
    /// The same problem under the report's names of places.
    pub(super) fn under(mut self, places: &[(String, String)]) -> Self {
        self.path = place(places, &self.path);
        self
    }
}

/// The grammar with what was found so far taken out.
pub(super) struct Repair {
    spec: GrammarSpec,
    /// The schema, where the grammar is one.
    schema: Option<Value>,
    removed: Vec<Vec<Step>>,
}

impl Repair {
    pub(super) fn new(spec: &GrammarSpec) -> Self {
        let schema = match spec {
            GrammarSpec::JsonSchema(text) => serde_json::from_str(text).ok(),
            _ => None,
        };
        Self { spec: spec.clone(), schema, removed: Vec::new() }
    }

    /// The grammar that is left.
    pub(super) fn spec(&self) -> &GrammarSpec {
        &self.spec
    }

    /// Whether a problem is the source's own, and not perhaps a consequence of what was taken out.
    pub(super) fn is_own(&self, problem: &Problem) -> bool {
        if self.removed.is_empty() {
            return true;
        }
        let (Some(schema), Some(steps)) = (&self.schema, path::steps(&problem.path)) else { return true };
        // A contradiction of the whole, or of what holds something that was taken out.
        if steps.is_empty() || self.removed.iter().any(|removed| removed.starts_with(&steps)) {
            return false;
        }
        // What was taken out of a definition is missing wherever that is referred to.
        let in_definition =
            |step: &Step| matches!(step, Step::Key(key) if key == "$defs" || key == "definitions");
        !self.removed.iter().flatten().any(in_definition)
            || path::find(schema, &steps).is_none_or(|value| !has_reference(value))
    }

    /// Takes out what a problem is about; false if that is not possible.
    pub(super) fn take_out(&mut self, problem: &Problem) -> bool {
        let Some(mut steps) = path::steps(&problem.path).filter(|steps| !steps.is_empty()) else {
            return false;
        };
        if let (GrammarSpec::Choice(choices), [Step::Index(index)]) = (&mut self.spec, steps.as_slice()) {
            let Some(choice) = choices.get_mut(*index).filter(|choice| choice.is_empty()) else {
                return false;
            };
            choice.push('x');
            return true;
        }
        let Some(schema) = &mut self.schema else { return false };
        if self.removed.contains(&steps) {
            return false;
        }
        self.removed.push(steps.clone());
        if path::keyword(&problem.path).is_empty() {
            let Some(found) = path::find_mut(schema, &steps) else { return false };
            *found = Value::Bool(true);
        } else {
            let Some(Step::Key(key)) = steps.pop() else { return false };
            let found = path::find_mut(schema, &steps).and_then(Value::as_object_mut);
            if found.and_then(|object| object.shift_remove(&key)).is_none() {
                return false;
            }
        }
        self.spec = GrammarSpec::JsonSchema(schema.to_string());
        true
    }
}

fn has_reference(value: &Value) -> bool {
    let mut open = vec![value];
    while let Some(value) = open.pop() {
        match value {
            Value::Object(members) => {
                if members.keys().any(|key| key.ends_with("$ref") || key.ends_with("Ref")) {
                    return true;
                }
                open.extend(members.values());
            }
            Value::Array(items) => open.extend(items),
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn problem(path: &str) -> Problem {
        Problem { path: path.to_owned(), keyword: None, message: String::new(), hint: None }
    }

    fn repair(schema: &Value) -> Repair {
        Repair::new(&GrammarSpec::JsonSchema(schema.to_string()))
    }

    #[test]
    fn keywords_are_removed_and_schemas_are_opened() {
        let mut repair = repair(&json!({"properties": {"a": {"not": {}, "x": 1}, "b": 3}, "anyOf": [3, {}]}));
        assert!(repair.take_out(&problem("properties.a.not")));
        assert!(repair.take_out(&problem("properties.b")));
        assert!(repair.take_out(&problem("anyOf[0]")));
        let left = json!({"properties": {"a": {"x": 1}, "b": true}, "anyOf": [true, {}]});
        assert_eq!(repair.schema, Some(left));
        for impossible in ["", "properties.c.not", "properties.a.not", "anyOf[9]", "a..b"] {
            assert!(!repair.take_out(&problem(impossible)), "{impossible}");
        }
    }

    #[test]
    fn consequences_are_not_reported() {
        let mut repair = repair(&json!({
            "$defs": {"d": {"pattern": "("}},
            "properties": {"a": {"oneOf": [{"pattern": "("}]}, "b": {"oneOf": [{"$ref": "#/$defs/d"}]}, "c": {"not": {}}}
        }));
        assert!(repair.is_own(&problem("")));
        assert!(repair.take_out(&problem("properties.a.oneOf[0].pattern")));
        assert!(!repair.is_own(&problem("")));
        assert!(!repair.is_own(&problem("properties.a.oneOf")));
        assert!(repair.is_own(&problem("properties.b.oneOf")));
        assert!(repair.take_out(&problem("$defs.d.pattern")));
        assert!(!repair.is_own(&problem("properties.b.oneOf")));
        assert!(repair.is_own(&problem("properties.c.not")));
    }
}
