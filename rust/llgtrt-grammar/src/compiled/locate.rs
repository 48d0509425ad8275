//! Where in a schema an error of llguidance belongs, which names no place itself.

use llgtrt_core::Error;
use llguidance::ParserFactory;

use crate::admission::Clues;
use crate::lexer_guard::create_parser;
use crate::text::{first_line, grammar_error};

/// Patterns tried one by one to find the one that llguidance refused.
const MAX_PROBES: usize = 200;

/// Turns llguidance's message into an error, with a path where the clues allow one.
pub(super) fn locate(factory: &ParserFactory, clues: &Clues, message: &str) -> Error {
    let has = |word: &str| message.contains(word);
    let place = if has("oneOf") {
        clues.one_of.clone()
    } else if has("patternProperty") {
        clues.pattern_properties.clone()
    } else if has("min/maxProperties") {
        clues.property_count.clone()
    } else if clues.unresolved_ref.is_some()
        && (has("esource") || has("eference") || has("nchor") || has("://"))
    {
        clues.unresolved_ref.clone()
    } else {
        refused_pattern(factory, clues).or_else(|| named_pattern(clues, message))
    };
    let error = if has("Unable to determine if regex is empty") {
        grammar_error("the patterns and lengths of a string are too complex together")
    } else {
        grammar_error(first_line(message))
    };
    match place {
        Some(path) => error.with_param(path),
        None => error,
    }
}

/// The first pattern that llguidance's message repeats.
fn named_pattern(clues: &Clues, message: &str) -> Option<String> {
    let named = |pattern: &str| pattern.len() > 1 && message.contains(pattern);
    clues.patterns.iter().find(|(_, pattern)| named(pattern)).map(|(path, _)| path.clone())
}

/// The first pattern that llguidance refuses by itself.
fn refused_pattern(factory: &ParserFactory, clues: &Clues) -> Option<String> {
    clues
        .patterns
        .iter()
        .take(MAX_PROBES)
        .find(|(_, pattern)| {
            let schema = serde_json::json!({"type": "string", "pattern": pattern});
            create_parser(factory, llguidance::api::TopLevelGrammar::from_json_schema(schema)).is_err()
        })
        .map(|(path, _)| path.clone())
}
