//! The drafts of JSON Schema and where they differ.

use serde_json::Value;

use crate::keyword;
use crate::keyword::Draft;
use crate::languages::formats::Format;

/// Whether the schema names a draft in which 1.0 is no integer.
pub fn is_draft_4(schema: &Value) -> bool {
    let dialect = Dialect::of(schema, Dialect::DEFAULT);
    dialect.named && dialect.draft == Draft::D4
}

/// The draft of a schema, and whether `$schema` named it. Without a name all keywords of all drafts
/// count, as far as they do not contradict each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Dialect {
    pub(crate) draft: Draft,
    pub(crate) named: bool,
}

impl Dialect {
    pub(crate) const DEFAULT: Dialect = Dialect { draft: Draft::D2020, named: false };

    /// The dialect that `$schema` of a document names; that of its surroundings otherwise.
    pub(crate) fn of(schema: &Value, outer: Dialect) -> Dialect {
        let Some(uri) = schema.get("$schema").and_then(Value::as_str) else { return outer };
        let name = uri.trim_end_matches('#').trim_end_matches('/');
        let name = name.strip_prefix("https://").or_else(|| name.strip_prefix("http://")).unwrap_or(name);
        let draft = match name {
            "json-schema.org/draft-04/schema" | "json-schema.org/draft-03/schema" => Draft::D4,
            "json-schema.org/draft-06/schema" => Draft::D6,
            "json-schema.org/draft-07/schema" => Draft::D7,
            "json-schema.org/draft/2019-09/schema" => Draft::D2019,
            "json-schema.org/draft/2020-12/schema" => Draft::D2020,
            _ => return outer,
        };
        Dialect { draft, named: true }
    }

    /// The dialect of a schema inside another one: `$schema` counts where a schema has an identifier of its own.
    pub(crate) fn inside(schema: &Value, outer: Dialect) -> Dialect {
        let has_name = ["$id", "id"].iter().any(|key| schema.get(key).is_some_and(Value::is_string));
        if has_name { Self::of(schema, outer) } else { outer }
    }

    /// Whether keywords beside `$ref` are ignored.
    pub(crate) fn ref_stands_alone(self) -> bool {
        self.named && self.draft <= Draft::D7
    }

    /// The keyword of a schema's identifier.
    pub(crate) fn id(self, schema: &Value) -> Option<&str> {
        let object = schema.as_object()?;
        if self.ref_stands_alone() && object.contains_key("$ref") {
            return None;
        }
        let new = if self.draft >= Draft::D6 || !self.named { object.get("$id") } else { None };
        let old = if self.draft == Draft::D4 || !self.named { object.get("id") } else { None };
        new.and_then(Value::as_str).or_else(|| old.and_then(Value::as_str))
    }

    /// Whether the keyword counts: without a name of a draft always, otherwise if the draft has it.
    pub(crate) fn knows(self, keyword: &str) -> bool {
        !self.named || keyword::find(keyword).is_none_or(|keyword| keyword.is_in(self.draft))
    }

    /// Whether a format says what is valid. One that the draft does not have is an annotation in it.
    pub(crate) fn asserts(self, format: Format) -> bool {
        format.since.is_some_and(|since| !self.named || since <= self.draft)
    }

    /// Whether `contentEncoding` says what is valid: it does in drafts 6 and 7, and is an annotation later.
    pub(crate) fn asserts_encoding(self) -> bool {
        self.named && (Draft::D6..=Draft::D7).contains(&self.draft)
    }
}
