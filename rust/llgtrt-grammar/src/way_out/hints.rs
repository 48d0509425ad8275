//! Texts that a way out may take beside what closes JSON: what completes the strings of a pattern, names of required
//! properties, and in other grammars whole terminals.
//!
//! Read from the grammar that is compiled; turned into tokens when the first way out is looked for.

use std::sync::{Arc, OnceLock};

use llgtrt_core::TokenId;
use llgtrt_schema::NormalizeLimits;
use llguidance::ParserFactory;
use llguidance::api::TopLevelGrammar;
use serde_json::Value;
use toktrie::TokenizerEnv;

use super::names::Names;
use super::parts::Parts;
use crate::TokenEnv;

/// Patterns and terminals that are read of one grammar, and their bytes together.
const MAX_SOURCES: usize = 64;
const MAX_SOURCE_BYTES: usize = 64 << 10;

/// Texts that are tried, each of at most so many bytes.
const MAX_TEXTS: usize = 300;
const MAX_TEXT_BYTES: usize = 400;

/// Steps for the automata of all patterns, about 50 ns each.
const MAX_STEPS: u64 = 1_500_000;

/// What may complete the strings and terminals of one grammar.
#[derive(Default)]
pub(crate) struct Hints {
    /// Patterns of JSON strings.
    patterns: Vec<String>,
    /// What completes strings of formats that no pattern takes the place of.
    ends: Vec<&'static str>,
    /// Names of required properties, with the quote and the colon behind them.
    names: Vec<String>,
    /// Regular expressions of terminals.
    terminals: Vec<String>,
    literals: Vec<String>,
    /// There is more than rules, literals and regular expressions: control tokens, or grammars of another kind.
    pub(super) has_more: bool,
    bytes: usize,
    pub(super) parts: Parts,
    runs: OnceLock<Runs>,
}

/// The same, in tokens.
#[derive(Debug)]
pub(super) struct Runs {
    /// Ends of JSON strings, with the quote behind them.
    pub(super) strings: Vec<Vec<TokenId>>,
    /// Names of required properties, with the quote and the colon behind them.
    pub(super) names: Vec<Vec<TokenId>>,
    /// Whole terminals, and what completes them.
    pub(super) lexemes: Vec<Vec<TokenId>>,
}

impl Hints {
    /// Of a grammar that is a JSON Schema, or came from one, no terminals are of use.
    pub(crate) fn of(grammar: &TopLevelGrammar, is_schema: bool) -> Self {
        let mut hints = Self::default();
        let mut names = Names::default();
        for part in &grammar.grammars {
            if let Some(schema) = &part.json_schema {
                hints.read_schema(schema);
                names.read(schema);
            }
            if let Some(lark) = &part.lark_grammar {
                hints.read_lark(lark, &mut names);
            }
        }
        hints.names = names.texts();
        hints.bytes += hints.names.iter().map(String::len).sum::<usize>();
        if is_schema {
            hints.terminals.clear();
            hints.literals.clear();
        } else {
            hints.parts.clear();
        }
        hints
    }

    /// With what compiles parts of the grammar, if there are any.
    pub(crate) fn with_factory(mut self, factory: &Arc<ParserFactory>) -> Self {
        self.parts.factory = Some(Arc::clone(factory));
        self
    }

    /// Memory, roughly.
    pub(crate) fn bytes(&self) -> usize {
        4 * self.bytes + self.parts.bytes()
    }

    /// Memory of what was built when it was first looked for, roughly.
    pub(crate) fn learned_bytes(&self) -> usize {
        let of = |runs: &[Vec<TokenId>]| runs.iter().map(|run| size_of_val(run) + size_of_val(&**run)).sum();
        let runs = self.runs.get().map_or(0, |runs| of(&runs.strings) + of(&runs.names) + of(&runs.lexemes));
        runs + self.parts.values.get().map_or(0, |values| of(values))
    }

    pub(super) fn runs(&self, env: &TokenEnv) -> &Runs {
        self.runs.get_or_init(|| {
            let limits = NormalizeLimits { max_steps: MAX_STEPS, ..NormalizeLimits::default() };
            let of = |patterns: &[String], whole: bool| {
                let patterns = patterns.iter().map(|pattern| (pattern.as_str(), whole));
                let mut texts = llgtrt_schema::completions(patterns, &limits);
                texts.retain(|text| text.len() <= MAX_TEXT_BYTES);
                texts.truncate(MAX_TEXTS);
                texts
            };
            let ends = self.ends.iter().map(|&text| text.to_owned());
            let strings = ends.chain(of(&self.patterns, false)).map(|text| Value::String(text).to_string());
            let lexemes = self.literals.iter().cloned().chain(of(&self.terminals, true));
            Runs {
                strings: strings.map(|text| env.tokenize_bytes(&text.as_bytes()[1..])).collect(),
                names: self.names.iter().map(|text| env.tokenize_bytes(text.as_bytes())).collect(),
                lexemes: lexemes.map(|text| env.tokenize_bytes(text.as_bytes())).collect(),
            }
        })
    }

    fn keep(&mut self, text: &str, list: impl FnOnce(&mut Self) -> &mut Vec<String>) {
        let kept = self.patterns.len() + self.terminals.len() + self.literals.len();
        let bytes = self.bytes + text.len();
        if kept < MAX_SOURCES && bytes <= MAX_SOURCE_BYTES && !text.is_empty() {
            let list = list(self);
            if !list.iter().any(|known| known == text) {
                list.push(text.to_owned());
                self.bytes = bytes;
            }
        }
    }

    /// Recurses as deep as the schema is nested, which admission bounds.
    fn read_schema(&mut self, schema: &Value) {
        match schema {
            Value::Array(items) => items.iter().for_each(|item| self.read_schema(item)),
            Value::Object(members) => {
                for (key, value) in members {
                    match (key.as_str(), value) {
                        ("pattern", Value::String(pattern)) => self.keep(pattern, |own| &mut own.patterns),
                        ("patternProperties", Value::Object(patterns)) => {
                            patterns.keys().for_each(|pattern| self.keep(pattern, |own| &mut own.patterns));
                            patterns.values().for_each(|schema| self.read_schema(schema));
                        }
                        ("format", Value::String(format)) => {
                            let known = llgtrt_schema::format_completions(format);
                            let new = known.iter().filter(|text| !self.ends.contains(text)).copied();
                            self.ends.append(&mut new.collect());
                        }
                        ("x-guidance", _) => {}
                        _ => self.read_schema(value),
                    }
                }
            }
            _ => {}
        }
    }

    fn read_lark(&mut self, text: &str, names: &mut Names) {
        let mut rest = text;
        while let Some(at) = rest.find(['"', '/', '#', '%', '<', '@']) {
            let (from, found) = (&rest[at..], rest.as_bytes()[at]);
            let length = match found {
                b'%' => {
                    let json = from.strip_prefix("%json").map(|json| {
                        let mut values = serde_json::Deserializer::from_str(json).into_iter::<Value>();
                        if let Some(Ok(schema)) = values.next() {
                            self.read_schema(&schema);
                            names.read(&schema);
                            self.parts.keep(&schema, &json[..values.byte_offset()]);
                        }
                        values.byte_offset()
                    });
                    self.has_more |= json.is_some() || from.starts_with("%regex");
                    json.map_or(1, |length| length + "%json".len())
                }
                b'<' | b'@' => {
                    self.has_more = true;
                    1
                }
                b'/' if from.starts_with("//") => from.find('\n').unwrap_or(from.len()),
                b'#' => from.find('\n').unwrap_or(from.len()),
                quote => {
                    let inside = quoted(&from[1..], quote);
                    if quote == b'/' {
                        self.keep(inside, |own| &mut own.terminals);
                    } else if let Ok(literal) = serde_json::from_str::<String>(&format!("\"{inside}\"")) {
                        self.keep(&literal, |own| &mut own.literals);
                    }
                    (inside.len() + 2).min(from.len())
                }
            };
            rest = &from[length..];
        }
    }
}

/// What stands before the closing quote.
fn quoted(text: &str, quote: u8) -> &str {
    let mut escaped = false;
    let end = text.bytes().position(|byte| {
        let ends = byte == quote && !escaped;
        escaped = byte == b'\\' && !escaped;
        ends
    });
    &text[..end.unwrap_or(text.len())]
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn patterns_and_terminals_are_found() {
        let schema =
            json!({"properties": {"a": {"pattern": "x$"}}, "patternProperties": {"^k": {"pattern": "y"}}});
        let hints = Hints::of(&TopLevelGrammar::from_json_schema(schema.clone()), true);
        assert_eq!(hints.patterns, ["x$", "^k", "y"]);
        let formats = json!([{"format": "uri"}, {"format": "iri"}, {"format": "nothing"}]);
        let hints = Hints::of(&TopLevelGrammar::from_json_schema(formats), true);
        assert_eq!(hints.ends, ["://a.co", "https://a.co"]);
        let lark = format!("start: A \"q\\\"\" /[a]\\/b/ // \"no\"\nA: \"é\" | %json {schema} \"z\"");
        let hints = Hints::of(&TopLevelGrammar::from_lark(lark), false);
        assert_eq!(hints.patterns, ["x$", "^k", "y"]);
        assert_eq!(hints.literals, ["q\"", "é", "z"]);
        assert_eq!(hints.terminals, [r"[a]\/b"]);
        assert!(hints.has_more);
        assert!(!Hints::of(&TopLevelGrammar::from_lark("start: /a/ \"<@\"".to_owned()), false).has_more);
        for lark in ["start: <|end|>", "start: @other", "start: A\nA: %regex {\"substring_words\": \"a b\"}"]
        {
            assert!(Hints::of(&TopLevelGrammar::from_lark(lark.to_owned()), false).has_more, "{lark}");
        }
    }

    #[test]
    fn sources_are_bounded() {
        let properties: Vec<Value> = (0..500).map(|i| json!({"pattern": format!("^{i}$")})).collect();
        let hints = Hints::of(&TopLevelGrammar::from_json_schema(json!({"anyOf": properties})), true);
        assert_eq!(hints.patterns.len(), MAX_SOURCES);
        let long = json!({"pattern": "a".repeat(MAX_SOURCE_BYTES + 1)});
        assert_eq!(Hints::of(&TopLevelGrammar::from_json_schema(long), true).bytes(), 0);
    }
}
