//! Checks that run before llguidance sees a grammar.
//!
//! They bound everything that a recursion or a product of sizes depends on: nesting, references,
//! counts and lengths. Run on a compile thread; they must not recurse over the input themselves.

mod json;
mod lark;
mod regex;
mod schema;

use llgtrt_core::{Error, GrammarSpec};
use llguidance::api::{GrammarWithLexer, TopLevelGrammar};
use serde_json::{Map, Value};

pub(crate) use json::push_key;
pub(crate) use schema::{Clues, percent_decode};

use crate::config::GrammarConfig;
use crate::normalize::{self, NormalizeLimits, SchemaError};
use crate::text::grammar_error;

/// Grammars in one llguidance grammar list.
const MAX_GRAMMARS: usize = 128;

/// A grammar that passed the checks.
pub(crate) struct Admitted {
    /// What llguidance compiles.
    pub(crate) grammar: TopLevelGrammar,
    /// Where things are in a schema, for errors that llguidance reports without a place.
    pub(crate) clues: Clues,
    /// A schema that was not rewritten, because it did not seem to need it.
    pub(crate) plain: Option<Value>,
}

/// Refuses a text that is too long, before anything else looks at it (hashing included).
pub(crate) fn check_size(spec: &GrammarSpec, config: &GrammarConfig) -> Result<(), Error> {
    let bytes = match spec {
        GrammarSpec::JsonObject => 0,
        GrammarSpec::Choice(choices) => choices.iter().map(String::len).sum(),
        GrammarSpec::JsonSchema(text)
        | GrammarSpec::Regex(text)
        | GrammarSpec::Lark(text)
        | GrammarSpec::Llguidance(text) => text.len(),
    };
    let limit =
        if matches!(spec, GrammarSpec::Regex(_)) { config.max_regex_bytes } else { config.max_source_bytes };
    if bytes > limit {
        return Err(grammar_error(format!("the grammar has {bytes} bytes; the limit is {limit}")));
    }
    match spec {
        GrammarSpec::Choice(choices) => check_choices(choices, config),
        _ => Ok(()),
    }
}

/// Checks a grammar and turns it into what llguidance compiles.
pub(crate) fn admit(spec: &GrammarSpec, config: &GrammarConfig) -> Result<Admitted, Error> {
    check_size(spec, config)?;
    let mut clues = Clues::default();
    let mut plain = None;
    let grammar = match spec {
        GrammarSpec::JsonSchema(text) => {
            let schema = json::parse(text, config.max_depth, "the schema")?;
            let schema = with_server_options(schema, config, "")?;
            schema::check(&schema, config, "", &mut clues)?;
            let rewritten = rewrite(&schema, "")?;
            plain = Some(schema);
            TopLevelGrammar::from_json_schema(rewritten)
        }
        GrammarSpec::JsonObject => {
            let schema = serde_json::json!({"type": "object"});
            TopLevelGrammar::from_json_schema(admit_schema(schema, config, "", &mut clues)?)
        }
        GrammarSpec::Regex(pattern) => {
            regex::check(pattern, config.max_regex_bytes)?;
            TopLevelGrammar::from_regex(pattern)
        }
        GrammarSpec::Choice(choices) => TopLevelGrammar::from_lark(choice_to_lark(choices)),
        GrammarSpec::Lark(text) => TopLevelGrammar::from_lark(lark::prepare(text, config)?),
        GrammarSpec::Llguidance(text) => admit_llguidance(text, config, &mut clues)?,
    };
    Ok(Admitted { grammar, clues, plain })
}

impl Admitted {
    /// The grammar with its schema rewritten as a whole, for a schema that llguidance refused.
    pub(crate) fn rewritten(&self) -> Option<Result<TopLevelGrammar, Error>> {
        let schema = self.plain.as_ref()?;
        let rewritten = normalize::rewrite(schema, &NormalizeLimits::default());
        Some(
            rewritten
                .map(|normalized| TopLevelGrammar::from_json_schema(normalized.schema))
                .map_err(|error| schema_error(&error, "")),
        )
    }

    /// Text that only grammars with the same meaning share.
    pub(crate) fn text(&self) -> Option<String> {
        self.plain.as_ref()?;
        serde_json::to_string(&self.grammar).ok()
    }
}

/// The schema in llguidance's subset. A request that asks for approximations gets them where the
/// schema cannot be rewritten.
fn rewrite(schema: &Value, at: &str) -> Result<Value, Error> {
    let lenient = schema.pointer("/x-guidance/lenient").and_then(Value::as_bool).unwrap_or(false);
    match normalize::normalize(schema, &NormalizeLimits::default()) {
        Ok(normalized) => Ok(normalized.schema),
        Err(_) if lenient => Ok(schema.clone()),
        Err(error) => Err(schema_error(&error, at)),
    }
}

fn schema_error(error: &SchemaError, at: &str) -> Error {
    let param = json::join(at, &error.param());
    let message = if error.keyword.is_empty() || error.message.contains(&format!("`{}`", error.keyword)) {
        error.to_string()
    } else {
        format!("`{}`: {error}", error.keyword)
    };
    let result = grammar_error(message);
    if param.is_empty() { result } else { result.with_param(param) }
}

fn admit_schema(schema: Value, config: &GrammarConfig, at: &str, clues: &mut Clues) -> Result<Value, Error> {
    let mut schema = with_server_options(schema, config, at)?;
    schema::noops::remove(&mut schema);
    schema::check(&schema, config, at, clues)?;
    rewrite(&schema, at)
}

/// Puts the server's `x-guidance` defaults under those of the schema.
fn with_server_options(schema: Value, config: &GrammarConfig, at: &str) -> Result<Value, Error> {
    let mut object = match schema {
        Value::Object(object) => object,
        // Only an object can carry options; `{}` means the same as `true`.
        Value::Bool(true) => Map::new(),
        Value::Bool(false) => return Err(grammar_error("the schema is `false`: it allows nothing")),
        _ => return Err(grammar_error("a schema must be an object or a boolean")),
    };
    let own = match object.shift_remove("x-guidance") {
        None => Map::new(),
        Some(Value::Object(own)) => own,
        Some(_) => {
            return Err(
                grammar_error("`x-guidance` must be an object").with_param(json::join(at, "x-guidance"))
            );
        }
    };
    let mut options = Map::new();
    let mut set = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            options.insert(key.to_owned(), value);
        }
    };
    set("item_separator", config.item_separator.clone().map(Value::String));
    set("key_separator", config.key_separator.clone().map(Value::String));
    set("whitespace_flexible", Some(Value::Bool(config.whitespace_flexible)));
    // A pattern overrides `whitespace_flexible` in llguidance, so it is only set where whitespace is
    // allowed.
    let flexible =
        own.get("whitespace_flexible").and_then(Value::as_bool).unwrap_or(config.whitespace_flexible);
    set("whitespace_pattern", config.whitespace_pattern.clone().filter(|_| flexible).map(Value::String));
    options.extend(own);
    for key in ["whitespace_pattern", "item_separator", "key_separator"] {
        if let Some(Value::String(pattern)) = options.get(key) {
            regex::check(pattern, config.max_regex_bytes)
                .map_err(|e| e.with_param(json::join(at, &format!("x-guidance.{key}"))))?;
        }
    }
    let checked = serde_json::from_value::<llguidance::JsonCompileOptions>(Value::Object(options.clone()));
    if let Err(error) = checked {
        let message = format!("bad `x-guidance`: {}", crate::text::first_line(&error.to_string()));
        return Err(grammar_error(message).with_param(json::join(at, "x-guidance")));
    }
    object.insert("x-guidance".to_owned(), Value::Object(options));
    Ok(Value::Object(object))
}

fn check_choices(choices: &[String], config: &GrammarConfig) -> Result<(), Error> {
    if choices.is_empty() {
        return Err(grammar_error("a choice needs at least one string"));
    }
    if choices.len() > config.max_enum_values {
        return Err(grammar_error(format!(
            "a choice of {} strings; the limit is {}",
            choices.len(),
            config.max_enum_values
        )));
    }
    match choices.iter().position(String::is_empty) {
        Some(index) => {
            Err(grammar_error("an empty string cannot be a choice").with_param(format!("[{index}]")))
        }
        None => Ok(()),
    }
}

/// One terminal with all strings: they become a single automaton.
fn choice_to_lark(choices: &[String]) -> String {
    let mut lark = String::from("start: CHOICE\nCHOICE: ");
    for (index, choice) in choices.iter().enumerate() {
        if index > 0 {
            lark.push_str(" | ");
        }
        lark.push_str(&lark::quote(choice));
    }
    lark
}

/// A list of grammars as JSON (`{"grammars": [{"json_schema": ..., "lark_grammar": ...}]}`), or Lark.
fn admit_llguidance(text: &str, config: &GrammarConfig, clues: &mut Clues) -> Result<TopLevelGrammar, Error> {
    if !text.trim_start().starts_with('{') {
        return Ok(TopLevelGrammar::from_lark(lark::prepare(text, config)?));
    }
    let value = json::parse(text, config.max_depth.saturating_add(4), "the grammar")?;
    if value.get("max_tokens").is_some_and(|limit| !limit.is_null()) {
        return Err(
            grammar_error("set the request's token limit instead of the grammar's").with_param("max_tokens")
        );
    }
    let list = value.get("grammars").and_then(Value::as_array).filter(|list| !list.is_empty());
    let Some(list) = list else {
        return Err(grammar_error("`grammars` must be a list of at least one grammar").with_param("grammars"));
    };
    if list.len() > MAX_GRAMMARS {
        return Err(grammar_error(format!("{} grammars; the limit is {MAX_GRAMMARS}", list.len()))
            .with_param("grammars"));
    }
    let mut grammars = Vec::with_capacity(list.len());
    for (index, entry) in list.iter().enumerate() {
        let at = format!("grammars[{index}]");
        let parsed: GrammarWithLexer = serde_json::from_value(entry.clone()).map_err(|error| {
            grammar_error(format!("not a grammar: {}", crate::text::first_line(&error.to_string())))
                .with_param(at.clone())
        })?;
        let mut parsed = parsed;
        match (parsed.json_schema.take(), parsed.lark_grammar.take()) {
            (Some(schema), None) => {
                let at = format!("{at}.json_schema");
                parsed.json_schema = Some(
                    admit_schema(schema, config, &at, clues)
                        .map_err(|e| if e.param.is_none() { e.with_param(at) } else { e })?,
                );
            }
            (None, Some(lark)) => {
                let lark = lark::prepare(&lark, config);
                parsed.lark_grammar = Some(lark.map_err(|e| e.with_param(format!("{at}.lark_grammar")))?);
            }
            _ => {
                return Err(
                    grammar_error("a grammar has either `json_schema` or `lark_grammar`").with_param(at)
                );
            }
        }
        grammars.push(parsed);
    }
    Ok(TopLevelGrammar { grammars, max_tokens: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(schema: &str, config: &GrammarConfig) -> Value {
        let schema = with_server_options(serde_json::from_str(schema).unwrap(), config, "").unwrap();
        schema["x-guidance"].clone()
    }

    #[test]
    fn the_request_wins_over_the_server() {
        let config = GrammarConfig { item_separator: Some(", ".to_owned()), ..GrammarConfig::default() };
        let plain = options("{}", &config);
        assert_eq!(plain["item_separator"], ", ");
        assert_eq!(plain["whitespace_pattern"], crate::DEFAULT_WHITESPACE_PATTERN);
        let own = options(r#"{"x-guidance": {"item_separator": ";", "lenient": true}}"#, &config);
        assert_eq!(own["item_separator"], ";");
        assert_eq!(own["lenient"], true);
    }

    #[test]
    fn a_compact_request_gets_no_whitespace_pattern() {
        let config = GrammarConfig::default();
        let own = options(r#"{"x-guidance": {"whitespace_flexible": false}}"#, &config);
        assert!(own.get("whitespace_pattern").is_none());
    }

    #[test]
    fn bad_options_name_their_field() {
        let config = GrammarConfig::default();
        for (schema, param) in [
            (r#"{"x-guidance": 3}"#, "x-guidance"),
            (r#"{"x-guidance": {"typo": 3}}"#, "x-guidance"),
            (r#"{"x-guidance": {"whitespace_pattern": "((("}}"#, "x-guidance.whitespace_pattern"),
        ] {
            let error = with_server_options(serde_json::from_str(schema).unwrap(), &config, "").unwrap_err();
            assert_eq!(error.param.as_deref(), Some(param), "{schema}");
        }
    }

    #[test]
    fn choices_are_quoted() {
        let lark = choice_to_lark(&["a\"b".to_owned(), "\u{7f}\n".to_owned()]);
        assert_eq!(lark, "start: CHOICE\nCHOICE: \"a\\\"b\" | \"\\u007f\\n\"");
    }
}
