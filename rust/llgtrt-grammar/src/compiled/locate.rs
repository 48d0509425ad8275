//! Where in a schema or in a list of grammars an error of llguidance belongs, which names no place itself.

use llguidance::ParserFactory;
use llguidance::api::TopLevelGrammar;

use crate::admission::Admitted;
use crate::lexer_guard::create_parser;
use crate::refusal::{Refusal, hint};
use crate::text::first_line;

/// Patterns tried one by one to find the one that llguidance refused.
const MAX_PROBES: usize = 200;

/// Turns llguidance's error into a refusal, with the path of the pattern or of the part of a list that it refuses by
/// itself, if there is one.
pub(super) fn locate(factory: &ParserFactory, admitted: &Admitted, error: &anyhow::Error) -> Refusal {
    let message = first_line(&error.to_string());
    let place = refused_pattern(factory, &admitted.notes.findings.patterns)
        .or_else(|| refused_part(factory, &admitted.grammar));
    match place {
        Some(path) => Refusal::new(message, hint::SIMPLER).at(path),
        None if admitted.is_lark => Refusal::new(
            message,
            "begin at the rule `start`, and define every rule and terminal that is used",
        ),
        // Its message would repeat the expressions that it made of the schema.
        None if admitted.is_schema => {
            tracing::debug!(message, "llguidance refuses a schema");
            Refusal::new("the schema's strings, keys and numbers are too complex together", hint::SIMPLER)
        }
        None => Refusal::new(message, hint::SIMPLER),
    }
}

/// The path of the first pattern that llguidance refuses by itself.
fn refused_pattern(factory: &ParserFactory, patterns: &[(String, String)]) -> Option<String> {
    let is_refused = |pattern: &str| {
        let schema = serde_json::json!({"type": "string", "pattern": pattern});
        create_parser(factory, TopLevelGrammar::from_json_schema(schema), true).is_err()
    };
    let tried = patterns.iter().take(MAX_PROBES);
    tried.filter(|(_, pattern)| is_refused(pattern)).map(|(path, _)| path.clone()).next()
}

/// The first grammar of several that llguidance refuses by itself. Those that refer to others cannot be tried.
fn refused_part(factory: &ParserFactory, grammar: &TopLevelGrammar) -> Option<String> {
    if grammar.grammars.len() < 2 {
        return None;
    }
    let is_refused =
        |text: &str| create_parser(factory, TopLevelGrammar::from_lark(text.to_owned()), true).is_err();
    let parts = grammar.grammars.iter().enumerate();
    let texts = parts.filter_map(|(index, part)| Some((index, part.lark_grammar.as_deref()?)));
    let mut tried = texts.filter(|(_, text)| !text.contains('@')).take(MAX_PROBES);
    tried.find(|(_, text)| is_refused(text)).map(|(index, _)| format!("grammars[{index}].lark_grammar"))
}
