//! The keywords of JSON Schema that constrain values or hold schemas: one table for all who ask.
//!
//! Everything else is an annotation, or names things (`$id`, `$anchor`, `$schema`).

use serde_json::Value;

use self::Draft::{D4, D6, D7, D2019, D2020};
use self::Holds::{Data, NamedSchemas, NamedSchemasOrKeys, Schema, SchemaOrSchemas, Schemas};
use self::Role::{Constraint, Container, PartOf};

/// A draft.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Draft {
    /// Draft 4, and what is taken of draft 3.
    D4,
    /// Draft 6.
    D6,
    /// Draft 7.
    D7,
    /// Draft 2019-09.
    D2019,
    /// Draft 2020-12.
    D2020,
}

/// What the value of a keyword is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holds {
    /// A schema.
    Schema,
    /// A list of schemas.
    Schemas,
    /// A schema, or a list of them.
    SchemaOrSchemas,
    /// An object of schemas: its keys are names or patterns.
    NamedSchemas,
    /// An object of schemas and of lists of keys.
    NamedSchemasOrKeys,
    /// No schema.
    Data,
}

/// What a keyword does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// It says what values are valid.
    Constraint,
    /// It says more about another keyword, and nothing without it.
    PartOf(&'static str),
    /// It keeps schemas for references.
    Container,
}

/// A keyword.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keyword {
    /// Its name.
    pub name: &'static str,
    /// The first draft that has it.
    pub since: Draft,
    /// The last draft that has it.
    pub until: Draft,
    /// Names of the types whose values it judges; empty if it judges all. Integers are numbers.
    pub types: &'static [&'static str],
    /// What its value is.
    pub holds: Holds,
    /// What it does.
    pub role: Role,
}

const fn row(
    name: &'static str,
    (since, until): (Draft, Draft),
    types: &'static [&'static str],
    holds: Holds,
    role: Role,
) -> Keyword {
    Keyword { name, since, until, types, holds, role }
}

const ALL: &[&str] = &[];
const ARRAY: &[&str] = &["array"];
const NUMBER: &[&str] = &["number"];
const OBJECT: &[&str] = &["object"];
const STRING: &[&str] = &["string"];

/// All keywords, sorted by name.
pub const KEYWORDS: &[Keyword] = &[
    row("$defs", (D2019, D2020), ALL, NamedSchemas, Container),
    row("$dynamicRef", (D2020, D2020), ALL, Data, Constraint),
    row("$recursiveRef", (D2019, D2019), ALL, Data, Constraint),
    row("$ref", (D4, D2020), ALL, Data, Constraint),
    row("additionalItems", (D4, D2019), ARRAY, Schema, PartOf("items")),
    row("additionalProperties", (D4, D2020), OBJECT, Schema, Constraint),
    row("allOf", (D4, D2020), ALL, Schemas, Constraint),
    row("anyOf", (D4, D2020), ALL, Schemas, Constraint),
    // OpenAPI keeps schemas under `components.schemas`.
    row("components", (D4, D2020), ALL, Schema, Container),
    row("const", (D6, D2020), ALL, Data, Constraint),
    row("contains", (D6, D2020), ARRAY, Schema, Constraint),
    row("contentEncoding", (D6, D2020), STRING, Data, Constraint),
    row("definitions", (D4, D2020), ALL, NamedSchemas, Container),
    row("dependencies", (D4, D2020), OBJECT, NamedSchemasOrKeys, Constraint),
    row("dependentRequired", (D2019, D2020), OBJECT, Data, Constraint),
    row("dependentSchemas", (D2019, D2020), OBJECT, NamedSchemas, Constraint),
    row("else", (D7, D2020), ALL, Schema, PartOf("if")),
    row("enum", (D4, D2020), ALL, Data, Constraint),
    row("exclusiveMaximum", (D4, D2020), NUMBER, Data, Constraint),
    row("exclusiveMinimum", (D4, D2020), NUMBER, Data, Constraint),
    row("format", (D4, D2020), STRING, Data, Constraint),
    row("if", (D7, D2020), ALL, Schema, Constraint),
    row("items", (D4, D2020), ARRAY, SchemaOrSchemas, Constraint),
    row("maxContains", (D2019, D2020), ARRAY, Data, PartOf("contains")),
    row("maxItems", (D4, D2020), ARRAY, Data, Constraint),
    row("maxLength", (D4, D2020), STRING, Data, Constraint),
    row("maxProperties", (D4, D2020), OBJECT, Data, Constraint),
    row("maximum", (D4, D2020), NUMBER, Data, Constraint),
    row("minContains", (D2019, D2020), ARRAY, Data, PartOf("contains")),
    row("minItems", (D4, D2020), ARRAY, Data, Constraint),
    row("minLength", (D4, D2020), STRING, Data, Constraint),
    row("minProperties", (D4, D2020), OBJECT, Data, Constraint),
    row("minimum", (D4, D2020), NUMBER, Data, Constraint),
    row("multipleOf", (D4, D2020), NUMBER, Data, Constraint),
    row("not", (D4, D2020), ALL, Schema, Constraint),
    // OpenAPI's.
    row("nullable", (D4, D2020), ALL, Data, Constraint),
    row("oneOf", (D4, D2020), ALL, Schemas, Constraint),
    row("pattern", (D4, D2020), STRING, Data, Constraint),
    row("patternProperties", (D4, D2020), OBJECT, NamedSchemas, Constraint),
    row("prefixItems", (D2020, D2020), ARRAY, Schemas, Constraint),
    row("properties", (D4, D2020), OBJECT, NamedSchemas, Constraint),
    row("propertyNames", (D6, D2020), OBJECT, Schema, Constraint),
    row("required", (D4, D2020), OBJECT, Data, Constraint),
    row("schemas", (D4, D2020), ALL, Schema, Container),
    row("then", (D7, D2020), ALL, Schema, PartOf("if")),
    row("type", (D4, D2020), ALL, Data, Constraint),
    row("unevaluatedItems", (D2019, D2020), ARRAY, Schema, Constraint),
    row("unevaluatedProperties", (D2019, D2020), OBJECT, Schema, Constraint),
    row("uniqueItems", (D4, D2020), ARRAY, Data, Constraint),
];

/// The keyword of this name.
pub fn find(name: &str) -> Option<&'static Keyword> {
    KEYWORDS.binary_search_by(|keyword| keyword.name.cmp(name)).ok().map(|at| &KEYWORDS[at])
}

/// Whether it is the name of a keyword that says what values are valid.
pub(crate) fn is_constraint(name: &str) -> bool {
    find(name).is_some_and(|keyword| keyword.role == Constraint)
}

impl Keyword {
    /// Whether the draft has it.
    pub fn is_in(&self, draft: Draft) -> bool {
        (self.since..=self.until).contains(&draft)
    }

    /// Whether its members are named schemas: a key of it is no keyword.
    pub fn has_names(&self) -> bool {
        matches!(self.holds, NamedSchemas | NamedSchemasOrKeys)
    }

    /// Whether it holds schemas of any kind.
    pub fn holds_schemas(&self) -> bool {
        self.holds != Data
    }

    /// Whether it can matter beside this `type`: real schemas have keywords of other types, which
    /// validators ignore.
    pub fn applies_to(&self, types: Option<&Value>) -> bool {
        let allowed = |name: &Value| match name.as_str() {
            Some("integer") => self.types.contains(&"number"),
            Some(name) => self.types.contains(&name),
            None => false,
        };
        self.types.is_empty()
            || match types {
                None => true,
                Some(Value::Array(names)) => names.iter().any(allowed),
                Some(name) => allowed(name),
            }
    }

    /// The schemas that its value holds, each with the step from the value to it, if there is one.
    pub fn schemas<'a>(
        &self,
        value: &'a Value,
    ) -> Box<dyn Iterator<Item = (Option<Inside<'a>>, &'a Value)> + 'a> {
        let has_keys = self.holds == NamedSchemasOrKeys;
        match (self.holds, value) {
            (NamedSchemas | NamedSchemasOrKeys, Value::Object(members)) => Box::new(
                members
                    .iter()
                    .filter(move |(_, schema)| !(has_keys && schema.is_array()))
                    .map(|(key, schema)| (Some(Inside::Key(key)), schema)),
            ),
            (Schemas | SchemaOrSchemas, Value::Array(list)) => {
                Box::new(list.iter().enumerate().map(|(at, schema)| (Some(Inside::Index(at)), schema)))
            }
            (Schema | SchemaOrSchemas, schema) => Box::new(std::iter::once((None, schema))),
            _ => Box::new(std::iter::empty()),
        }
    }
}

/// The step from the value of a keyword to a schema in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inside<'a> {
    /// To a member.
    Key(&'a str),
    /// To an item.
    Index(usize),
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_table_is_sorted() {
        assert!(KEYWORDS.windows(2).all(|pair| pair[0].name < pair[1].name));
        for keyword in KEYWORDS {
            assert_eq!(find(keyword.name), Some(keyword));
            assert!(keyword.since <= keyword.until);
            if let PartOf(other) = keyword.role {
                assert_eq!(find(other).map(|other| other.role), Some(Constraint), "{}", keyword.name);
            }
        }
        assert_eq!(find("title"), None);
    }

    #[test]
    fn schemas_are_found_in_values_of_every_kind() {
        let count = |name: &str, value: &Value| find(name).unwrap().schemas(value).count();
        assert_eq!(count("items", &json!([{}, {}])), 2);
        assert_eq!(count("items", &json!({})), 1);
        assert_eq!(count("dependencies", &json!({"a": ["b"], "c": {}})), 1);
        assert_eq!(count("required", &json!(["a"])), 0);
        assert_eq!(count("allOf", &json!({"not": "a list"})), 0);
        let named = json!({"x": {}});
        let inside: Vec<_> = find("properties").unwrap().schemas(&named).map(|(step, _)| step).collect();
        assert_eq!(inside, [Some(Inside::Key("x"))]);
    }

    #[test]
    fn keywords_of_other_types_do_not_apply() {
        let applies = |name: &str, types: &Value| find(name).unwrap().applies_to(Some(types));
        assert!(applies("minimum", &json!("integer")) && applies("minimum", &json!(["null", "number"])));
        assert!(!applies("minimum", &json!("string")) && !applies("contains", &json!(["object"])));
        assert!(applies("enum", &json!("string")) && find("pattern").unwrap().applies_to(None));
    }
}
