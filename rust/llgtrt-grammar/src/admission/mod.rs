//! Checks that run before llguidance sees a grammar.
//!
//! They bound everything that a recursion or a product of sizes depends on: nesting, references,
//! counts and lengths. Run on a compile thread; they must not recurse over the input themselves.

mod json;
mod lark;
mod regex;
mod schema;

use llgtrt_core::GrammarSpec;
use llguidance::api::{GrammarWithLexer, TopLevelGrammar};
use serde_json::{Map, Value};

pub(crate) use lark::Pairs;
pub(crate) use schema::Findings;

use crate::config::GrammarConfig;
use crate::refusal::{Refusal, hint};
use crate::verify::Plan;
use llgtrt_schema::{NormalizeLimits, Residual, ResidualMode, RuleUse};

/// Grammars in one llguidance grammar list: as many tools as OpenAI allows, an answer, and what joins them.
const MAX_GRAMMARS: usize = 130;

/// Letters after a backslash in JSON strings. Without `u`: llguidance would take `"\u0061"` for a key that
/// `properties` and `patternProperties` say nothing about, although it is `"a"`.
const ESCAPES: &str = r#"nrbtf\""#;

/// Whether a string or pattern of the schema has a control character that only `\\u` can write.
fn names_control_characters(schema: &Map<String, Value>) -> bool {
    let names = |text: &str| {
        let bytes = text.as_bytes();
        let raw = bytes.iter().any(|byte| *byte < b' ' && !b"\x08\x09\x0a\x0c\x0d".contains(byte));
        raw || bytes.windows(2).any(|pair| pair[0] == b'\\' && b"xuc0v".contains(&pair[1]))
    };
    let mut open: Vec<&Value> = Vec::new();
    let mut next = Some(schema);
    loop {
        if let Some(members) = next.take() {
            if members.keys().any(|key| names(key)) {
                return true;
            }
            open.extend(members.values());
        }
        match open.pop() {
            None => return false,
            Some(Value::String(text)) if names(text) => return true,
            Some(Value::Array(items)) => open.extend(items),
            Some(Value::Object(members)) => next = Some(members),
            Some(_) => {}
        }
    }
}

/// A grammar that passed the checks.
pub(crate) struct Admitted {
    /// What llguidance compiles.
    pub(crate) grammar: TopLevelGrammar,
    /// What was learned on the way.
    pub(crate) notes: Notes,
    /// A schema that was not rewritten, because it did not seem to need it.
    pub(crate) plain: Option<Value>,
    /// Whether it is a schema as a whole, so that answers are JSON.
    pub(crate) is_schema: bool,
    /// Whether a client wrote its rules and terminals: answers may fail to end though each rule of it can.
    pub(crate) is_lark: bool,
}

/// What was learned about the schemas of a grammar.
#[derive(Debug)]
pub(crate) struct Notes {
    /// What the schemas hold.
    pub(crate) findings: Findings,
    /// The normaliser's rules that were used.
    pub(crate) rules: Vec<RuleUse>,
    /// What the grammar does not hold.
    pub(crate) residual: Vec<Residual>,
    /// Whether numbers are kept short where the schema does not bound them. Only of answers that are JSON as a
    /// whole.
    pub(crate) most_digits: Option<usize>,
    /// The grammar to compile instead of the schema, where no schema says it.
    lark: Option<String>,
    /// The schema is as it was given but for its leaves.
    is_direct: bool,
    limits: NormalizeLimits,
}

impl Notes {
    fn new(residual: ResidualMode, config: &GrammarConfig) -> Self {
        Self {
            findings: Findings::default(),
            rules: Vec::new(),
            residual: Vec::new(),
            most_digits: None,
            lark: None,
            is_direct: false,
            limits: NormalizeLimits {
                residual,
                standard: config.standard,
                max_ways: config.limits.max_items_in_row,
                ..NormalizeLimits::default()
            },
        }
    }

    /// Keeps what a normalisation of the schema at `at` reports, and gives the schema.
    fn keep(&mut self, normalized: llgtrt_schema::Normalized, at: &str) -> Value {
        let under = |path: &str| llgtrt_schema::path::join(at, path);
        self.rules.extend(
            normalized.rules.into_iter().map(|used| RuleUse { path: under(&used.path), rule: used.rule }),
        );
        self.residual
            .extend(normalized.residual.into_iter().map(|left| Residual { path: under(&left.path), ..left }));
        self.lark = normalized.lark;
        self.is_direct = normalized.is_direct;
        normalized.schema
    }

    /// What llguidance compiles for a schema that was rewritten.
    fn grammar(&mut self, rewritten: Value) -> TopLevelGrammar {
        match self.lark.take() {
            Some(lark) => TopLevelGrammar::from_lark(lark),
            None => TopLevelGrammar::from_json_schema(rewritten),
        }
    }
}

/// Refuses a text that is too long, before anything else looks at it (hashing included).
pub(crate) fn check_size(spec: &GrammarSpec, config: &GrammarConfig) -> Result<(), Refusal> {
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
        let message = format!("the grammar has {bytes} bytes; the limit is {limit}");
        return Err(Refusal::new(message, hint::SMALLER));
    }
    match spec {
        GrammarSpec::Choice(choices) => check_choices(choices, config),
        _ => Ok(()),
    }
}

/// Checks a grammar and turns it into what llguidance compiles.
pub(crate) fn admit(
    spec: &GrammarSpec,
    config: &GrammarConfig,
    residual: ResidualMode,
) -> Result<Admitted, Refusal> {
    check_size(spec, config)?;
    let mut notes = Notes::new(residual, config);
    let mut plain = None;
    let grammar = match spec {
        GrammarSpec::JsonSchema(text) => {
            let mut schema = json::parse(text, config.max_depth, "the schema")?;
            let own = OwnOptions::take(&mut schema, "")?;
            own.apply(&mut notes.limits);
            let schema = with_server_options(schema, config, "")?;
            schema::check(&schema, config, "", &mut notes.findings)?;
            // Only a schema that is the whole grammar can become another kind of grammar.
            notes.limits.compose = true;
            let rewritten = rewrite(&schema, "", &mut notes)?;
            notes.most_digits = most_digits(notes.limits.standard, &schema, text);
            plain = Some(schema);
            notes.grammar(rewritten)
        }
        GrammarSpec::JsonObject => {
            let schema = serde_json::json!({"type": "object"});
            notes.most_digits = most_digits(config.standard, &schema, "");
            TopLevelGrammar::from_json_schema(admit_schema(schema, config, "", &mut notes)?)
        }
        GrammarSpec::Regex(pattern) => {
            regex::check(pattern, config.max_regex_bytes)?;
            TopLevelGrammar::from_regex(pattern)
        }
        GrammarSpec::Choice(choices) => TopLevelGrammar::from_lark(choice_to_lark(choices)),
        GrammarSpec::Lark(text) => TopLevelGrammar::from_lark(lark::prepare(text, config, &mut notes)?),
        GrammarSpec::Llguidance(text) => admit_llguidance(text, config, &mut notes)?,
    };
    let is_schema = matches!(spec, GrammarSpec::JsonSchema(_) | GrammarSpec::JsonObject);
    let is_lark = match spec {
        GrammarSpec::Lark(_) => true,
        GrammarSpec::Llguidance(_) => {
            grammar.grammars.len() == 1 && grammar.grammars[0].lark_grammar.is_some()
        }
        _ => false,
    };
    Ok(Admitted { grammar, notes, plain, is_schema, is_lark })
}

impl Admitted {
    /// Whether the schema may be held if it is rewritten as a whole.
    pub(crate) fn is_direct(&self) -> bool {
        self.notes.is_direct
    }

    /// Whether the patterns and lengths of strings are left to llguidance to intersect.
    pub(crate) fn intersects(&self) -> bool {
        self.notes.limits.intersects
    }

    /// Rewrites the schema as a whole, for one that llguidance refused; false if there is none. `intersects` tells
    /// whether llguidance is to intersect the patterns and lengths of strings.
    pub(crate) fn rewrite(&mut self, intersects: bool) -> Result<bool, Refusal> {
        let Some(schema) = &self.plain else { return Ok(false) };
        self.notes.limits.intersects = intersects;
        let normalized = llgtrt_schema::rewrite(schema, &self.notes.limits)
            .map_err(|error| Refusal::of_schema(&error, ""))?;
        self.notes.rules.clear();
        self.notes.residual.clear();
        let rewritten = self.notes.keep(normalized, "");
        self.grammar = self.notes.grammar(rewritten);
        Ok(true)
    }

    /// The grammar for llguidance to consume. A schema that stayed as it was is not copied for that: [`Self::restore`]
    /// makes it again.
    pub(crate) fn take_grammar(&mut self) -> TopLevelGrammar {
        if self.is_direct() && self.plain.is_some() {
            let none = TopLevelGrammar { grammars: Vec::new(), max_tokens: None };
            std::mem::replace(&mut self.grammar, none)
        } else {
            self.grammar.clone()
        }
    }

    /// Makes a grammar again that was taken.
    pub(crate) fn restore(&mut self) -> Result<(), Refusal> {
        if let (Some(schema), true) = (&self.plain, self.grammar.grammars.is_empty()) {
            let normalized = llgtrt_schema::normalize(schema, &self.notes.limits)
                .map_err(|error| Refusal::of_schema(&error, ""))?;
            self.grammar = TopLevelGrammar::from_json_schema(normalized.schema);
        }
        Ok(())
    }

    /// Joins terminals with the text behind them ([`lark::joined`]); false if there is nothing to join.
    pub(crate) fn join(&mut self, pairs: Pairs) -> bool {
        let text = self.grammar.grammars.first().and_then(|grammar| grammar.lark_grammar.as_deref());
        let Some(text) = text.and_then(|text| lark::joined(text, pairs)) else { return false };
        self.grammar = TopLevelGrammar::from_lark(text);
        true
    }

    /// The check of what the grammar leaves open, if it leaves anything.
    pub(crate) fn verification(&self, max_attempts: usize) -> Result<Option<Plan>, Refusal> {
        match &self.plain {
            Some(schema) if !self.notes.residual.is_empty() => {
                Ok(Some(Plan::new(schema, &self.notes.residual, max_attempts)?))
            }
            _ => Ok(None),
        }
    }

    /// Whether llguidance may have to intersect regular expressions that a client wrote.
    pub(crate) fn has_expressions(&self) -> bool {
        !self.is_schema || self.notes.findings.has_expressions
    }

    /// Text that only grammars with the same meaning share.
    pub(crate) fn text(&self) -> Option<String> {
        // What a grammar leaves open does not show in it, nor what it would if it were rewritten.
        if !self.notes.residual.is_empty() {
            return None;
        }
        self.plain.as_ref()?;
        let text = serde_json::to_string(&self.grammar).ok()?;
        // Masks differ as well.
        Some(match self.notes.most_digits {
            Some(most) => format!("{text} digits {most}"),
            None => text,
        })
    }
}

/// Whether texts of the schema are JSON, with its own separators.
fn is_json(schema: &Value) -> bool {
    let options = schema.get("x-guidance");
    ["item_separator", "key_separator"].iter().all(|name| options.is_none_or(|own| own.get(name).is_none()))
}

/// Digits that a number has before its point, unless the schema names a longer one.
const MAX_WHOLE_DIGITS: usize = 19;

/// How many digits masks let a number have before its point: as many as usual, or as the longest number that the
/// text of the schema names; `None` where that is not bounded.
fn most_digits(standard: bool, schema: &Value, text: &str) -> Option<usize> {
    let runs = text.as_bytes().split(|byte| !byte.is_ascii_digit()).map(<[u8]>::len);
    (!standard && is_json(schema)).then(|| runs.fold(MAX_WHOLE_DIGITS, usize::max))
}

/// The schema in llguidance's subset. A request that asks for approximations gets them where the
/// schema cannot be rewritten.
fn rewrite(schema: &Value, at: &str, notes: &mut Notes) -> Result<Value, Refusal> {
    let lenient = schema.pointer("/x-guidance/lenient").and_then(Value::as_bool).unwrap_or(false);
    match llgtrt_schema::normalize(schema, &notes.limits) {
        Ok(normalized) => Ok(notes.keep(normalized, at)),
        Err(_) if lenient => Ok(schema.clone()),
        Err(error) => Err(Refusal::of_schema(&error, at)),
    }
}

fn admit_schema(
    mut schema: Value,
    config: &GrammarConfig,
    at: &str,
    notes: &mut Notes,
) -> Result<Value, Refusal> {
    let own = OwnOptions::take(&mut schema, at)?;
    if own.residual == Some(ResidualMode::Verify) {
        let message = "`residual: verify` needs the schema to be the whole grammar";
        return Err(
            Refusal::new(message, "take it out").at(llgtrt_schema::path::join(at, "x-guidance.residual"))
        );
    }
    let schema = with_server_options(schema, config, at)?;
    schema::check(&schema, config, at, &mut notes.findings)?;
    let limits = notes.limits.clone();
    own.apply(&mut notes.limits);
    let rewritten = rewrite(&schema, at, notes);
    notes.limits = limits;
    rewritten
}

/// What the schema itself says of its rewriting, in `x-guidance`.
#[derive(Default)]
struct OwnOptions {
    /// What to do with constraints that no grammar can hold.
    residual: Option<ResidualMode>,
    /// The letter of the standard.
    standard: Option<bool>,
    /// Objects are closed even so.
    strict: bool,
}

impl OwnOptions {
    /// Takes them out: llguidance does not know them.
    fn take(schema: &mut Value, at: &str) -> Result<Self, Refusal> {
        let Some(options) = schema.get_mut("x-guidance").and_then(Value::as_object_mut) else {
            return Ok(Self::default());
        };
        let bad = |name: &str, expected: &str| {
            Refusal::new(format!("`{name}` is {expected}"), "")
                .at(llgtrt_schema::path::join(at, &format!("x-guidance.{name}")))
        };
        let residual = match options.shift_remove("residual") {
            None => None,
            Some(mode) => Some(match mode.as_str() {
                Some("refuse") => ResidualMode::Refuse,
                Some("verify") => ResidualMode::Verify,
                _ => return Err(bad("residual", "\"refuse\" or \"verify\"")),
            }),
        };
        let mut flag = |name: &str| match options.shift_remove(name) {
            None => Ok(None),
            Some(Value::Bool(value)) => Ok(Some(value)),
            Some(_) => Err(bad(name, "true or false")),
        };
        Ok(Self { residual, standard: flag("standard")?, strict: flag("strict")?.unwrap_or(false) })
    }

    fn apply(&self, limits: &mut NormalizeLimits) {
        limits.residual = self.residual.unwrap_or(limits.residual);
        limits.standard = self.standard.unwrap_or(limits.standard);
        limits.strict = self.strict;
    }
}

/// Puts the server's `x-guidance` defaults under those of the schema.
fn with_server_options(schema: Value, config: &GrammarConfig, at: &str) -> Result<Value, Refusal> {
    let mut object = match schema {
        Value::Object(object) => object,
        // Only an object can carry options; `{}` means the same as `true`.
        Value::Bool(true) => Map::new(),
        Value::Bool(false) => {
            return Err(Refusal::new("the schema is `false`: it allows nothing", "say what is allowed"));
        }
        _ => {
            let message = "a schema must be an object or a boolean";
            return Err(Refusal::new(message, "write an object or a boolean"));
        }
    };
    let own = match object.shift_remove("x-guidance") {
        None => Map::new(),
        Some(Value::Object(own)) => own,
        Some(_) => {
            return Err(Refusal::new("`x-guidance` must be an object", "write an object")
                .at(llgtrt_schema::path::join(at, "x-guidance")));
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
    set("json_allowed_escapes", (!names_control_characters(&object)).then(|| Value::from(ESCAPES)));
    set("whitespace_flexible", Some(Value::Bool(config.whitespace_flexible)));
    // A pattern overrides `whitespace_flexible` in llguidance, so it is only set where whitespace is
    // allowed.
    let flexible =
        own.get("whitespace_flexible").and_then(Value::as_bool).unwrap_or(config.whitespace_flexible);
    set("whitespace_pattern", config.whitespace_pattern.clone().filter(|_| flexible).map(Value::String));
    // Those of the server were checked when it started.
    if !own.is_empty() {
        options.extend(own);
        check_options(&options, config, at)?;
    }
    object.insert("x-guidance".to_owned(), Value::Object(options));
    Ok(Value::Object(object))
}

/// Checks what the configuration says of the separators of JSON.
pub(crate) fn check_defaults(config: &GrammarConfig) -> Result<(), Refusal> {
    let schema = with_server_options(Value::Object(Map::new()), config, "")?;
    schema["x-guidance"].as_object().map_or(Ok(()), |options| check_options(options, config, ""))
}

fn check_options(options: &Map<String, Value>, config: &GrammarConfig, at: &str) -> Result<(), Refusal> {
    for key in ["whitespace_pattern", "item_separator", "key_separator"] {
        if let Some(Value::String(pattern)) = options.get(key) {
            regex::check(pattern, config.max_regex_bytes)
                .map_err(|e| e.at(llgtrt_schema::path::join(at, &format!("x-guidance.{key}"))))?;
        }
    }
    let checked = serde_json::from_value::<llguidance::JsonCompileOptions>(Value::Object(options.clone()));
    checked.map(drop).map_err(|error| {
        let message = format!("bad `x-guidance`: {}", crate::text::first_line(&error.to_string()));
        Refusal::new(message, "").at(llgtrt_schema::path::join(at, "x-guidance"))
    })
}

fn check_choices(choices: &[String], config: &GrammarConfig) -> Result<(), Refusal> {
    if choices.is_empty() {
        return Err(Refusal::new("a choice needs at least one string", "list the texts to choose from"));
    }
    if choices.len() > config.max_enum_values {
        let limit = config.max_enum_values;
        let message = format!("a choice of {} strings; the limit is {limit}", choices.len());
        return Err(Refusal::new(message, hint::SMALLER));
    }
    match choices.iter().position(String::is_empty) {
        Some(index) => {
            Err(Refusal::new("an empty string cannot be a choice", "leave it out").at(format!("[{index}]")))
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
fn admit_llguidance(
    text: &str,
    config: &GrammarConfig,
    notes: &mut Notes,
) -> Result<TopLevelGrammar, Refusal> {
    if !text.trim_start().starts_with('{') {
        return Ok(TopLevelGrammar::from_lark(lark::prepare(text, config, notes)?));
    }
    let value = json::parse(text, config.max_depth.saturating_add(4), "the grammar")?;
    if value.get("max_tokens").is_some_and(|limit| !limit.is_null()) {
        let message = "a grammar has no token limit of its own";
        return Err(Refusal::new(message, "set the request's").at("max_tokens"));
    }
    let list = value.get("grammars").and_then(Value::as_array).filter(|list| !list.is_empty());
    let Some(list) = list else {
        let message = "`grammars` must be a list of at least one grammar";
        return Err(Refusal::new(message, "write a list of at least one grammar").at("grammars"));
    };
    if list.len() > MAX_GRAMMARS {
        let message = format!("{} grammars; the limit is {MAX_GRAMMARS}", list.len());
        return Err(Refusal::new(message, hint::SMALLER).at("grammars"));
    }
    let mut grammars = Vec::with_capacity(list.len());
    for (index, entry) in list.iter().enumerate() {
        let at = format!("grammars[{index}]");
        let parsed: GrammarWithLexer = serde_json::from_value(entry.clone()).map_err(|error| {
            let message = format!("not a grammar: {}", crate::text::first_line(&error.to_string()));
            Refusal::new(message, "").at(&at)
        })?;
        let mut parsed = parsed;
        match (parsed.json_schema.take(), parsed.lark_grammar.take()) {
            (Some(schema), None) => {
                let at = format!("{at}.json_schema");
                let schema = admit_schema(schema, config, &at, notes);
                parsed.json_schema = Some(schema.map_err(|refusal| refusal.or_at(at))?);
            }
            (None, Some(lark)) => {
                let lark = lark::prepare(&lark, config, notes);
                parsed.lark_grammar =
                    Some(lark.map_err(|refusal| refusal.or_at(format!("{at}.lark_grammar")))?);
            }
            _ => {
                let message = "a grammar has either `json_schema` or `lark_grammar`";
                return Err(Refusal::new(message, "write one of them").at(at));
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
    fn bad_options_of_the_server_are_found_before_any_request() {
        assert!(check_defaults(&GrammarConfig::default()).is_ok());
        let bad = GrammarConfig { key_separator: Some("(((".to_owned()), ..GrammarConfig::default() };
        let error = check_defaults(&bad).unwrap_err();
        assert_eq!(error.error.param.as_deref(), Some("x-guidance.key_separator"));
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
            assert_eq!(error.error.param.as_deref(), Some(param), "{schema}");
        }
    }

    #[test]
    fn choices_are_quoted() {
        let lark = choice_to_lark(&["a\"b".to_owned(), "\u{7f}\n".to_owned()]);
        assert_eq!(lark, "start: CHOICE\nCHOICE: \"a\\\"b\" | \"\\u007f\\n\"");
    }
}
