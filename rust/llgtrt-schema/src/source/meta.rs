//! The meta-schemas of the drafts, which a document may refer to although nothing is fetched.

use referencing::meta;
use serde_json::Value;

/// The documents that a reference to this identifier needs: itself first, then those that it consists of.
pub(super) fn documents(uri: &str) -> Vec<&'static Value> {
    let name = uri.strip_prefix("https://").or_else(|| uri.strip_prefix("http://")).unwrap_or(uri);
    match name.trim_end_matches('#') {
        "json-schema.org/draft-04/schema" => vec![&**meta::DRAFT4],
        "json-schema.org/draft-06/schema" => vec![&**meta::DRAFT6],
        "json-schema.org/draft-07/schema" => vec![&**meta::DRAFT7],
        "json-schema.org/draft/2019-09/schema" => vec![
            &**meta::DRAFT201909,
            &**meta::DRAFT201909_CORE,
            &**meta::DRAFT201909_APPLICATOR,
            &**meta::DRAFT201909_VALIDATION,
            &**meta::DRAFT201909_META_DATA,
            &**meta::DRAFT201909_FORMAT,
            &**meta::DRAFT201909_CONTENT,
        ],
        "json-schema.org/draft/2020-12/schema" => vec![
            &**meta::DRAFT202012,
            &**meta::DRAFT202012_CORE,
            &**meta::DRAFT202012_APPLICATOR,
            &**meta::DRAFT202012_UNEVALUATED,
            &**meta::DRAFT202012_VALIDATION,
            &**meta::DRAFT202012_META_DATA,
            &**meta::DRAFT202012_FORMAT_ANNOTATION,
            &**meta::DRAFT202012_CONTENT,
        ],
        _ => Vec::new(),
    }
}

/// Whether the identifier is that of a part, whose dynamic references lead to the whole.
pub(super) fn is_part(base: &str) -> bool {
    base.strip_prefix("https://json-schema.org/draft/").is_some_and(|rest| rest.contains("/meta/"))
}
