//! Lark grammars: the number of rules, nesting, and the schemas and expressions inside.
//!
//! llguidance's own parser checks the syntax. Here only what its recursion depends on is bounded,
//! by scanning the text; a scan that errs, errs on the side of counting too much.

mod joined;

use serde_json::Value;

pub(crate) use self::joined::Pairs;
pub(super) use self::joined::joined;

use super::{Notes, regex, schema};
use crate::config::GrammarConfig;
use crate::refusal::{Refusal, hint};

/// Rules and terminals. A chain of them is the deepest recursion of the rule compiler; 64 MB
/// survive about 20 000.
const MAX_RULES: usize = 4000;

/// Nested parentheses and brackets; llguidance's own limit is 30.
const MAX_NESTING: usize = 64;

/// A Lark string literal for `text`.
pub(super) fn quote(text: &str) -> String {
    // JSON's escapes are Lark's, but Lark wants U+007F escaped as well.
    Value::String(text.to_owned()).to_string().replace('\u{7f}', "\\u007f")
}

/// Checks a grammar text and rewrites the schemas inside.
pub(super) fn prepare(text: &str, config: &GrammarConfig, notes: &mut Notes) -> Result<String, Refusal> {
    if text.trim().is_empty() {
        return Err(Refusal::new("the grammar is empty", "write at least one rule named `start`"));
    }
    let scan = Scan::of(text);
    if scan.rules > MAX_RULES {
        let message = format!("{} rules; the limit is {MAX_RULES}", scan.rules);
        return Err(Refusal::new(message, "write a smaller grammar"));
    }
    if scan.nesting > MAX_NESTING {
        let message = format!("the grammar is nested too deeply; the limit is {MAX_NESTING} levels");
        return Err(Refusal::new(message, hint::FEWER_LEVELS));
    }
    for expression in &scan.regexes {
        // Syntax errors are llguidance's to report: it knows the line.
        regex::check_bounds(expression, config.max_regex_bytes)?;
    }
    prepare_schemas(text, config, notes)
}

/// Checks and rewrites the schema after every `%json`.
fn prepare_schemas(text: &str, config: &GrammarConfig, notes: &mut Notes) -> Result<String, Refusal> {
    let mut out = String::with_capacity(text.len());
    let mut done = 0;
    for (index, (at, marker)) in text.match_indices("%json").enumerate() {
        let start = at + marker.len();
        if start < done {
            continue;
        }
        let mut values = serde_json::Deserializer::from_str(&text[start..]).into_iter::<Value>();
        // What is not JSON is either in a comment or a string, or an error that llguidance reports.
        if let Some(Ok(value)) = values.next() {
            // The paths in them would lead into the wrong text.
            let mut findings = schema::Findings::default();
            let rewritten = schema::check(&value, config, "", &mut findings)
                .and_then(|()| super::rewrite(&value, "", notes))
                .map_err(|refusal| {
                    let path = refusal.error.param.as_ref();
                    let path = path.map(|path| format!(" at `{path}`")).unwrap_or_default();
                    refusal.after(&format!("`%json` number {}{path}: ", index + 1))
                })?;
            if rewritten != value {
                out.push_str(&text[done..start]);
                out.push(' ');
                out.push_str(&rewritten.to_string());
                done = start + values.byte_offset();
            }
        }
    }
    out.push_str(&text[done..]);
    Ok(out)
}

/// What a scan of the text found.
#[derive(Debug, Default)]
struct Scan<'a> {
    rules: usize,
    nesting: usize,
    regexes: Vec<&'a str>,
}

impl<'a> Scan<'a> {
    fn of(text: &'a str) -> Self {
        let mut scan = Self::default();
        let bytes = text.as_bytes();
        let (mut at, mut depth) = (0, 0_usize);
        while at < bytes.len() {
            match bytes[at] {
                b'"' => at = skip_quoted(bytes, at, b'"'),
                b'/' if bytes.get(at + 1) == Some(&b'/') => at = skip_line(bytes, at),
                b'#' => at = skip_line(bytes, at),
                b'/' => {
                    let end = skip_quoted(bytes, at, b'/');
                    // Both ends are at ASCII slashes, or at the end of the text.
                    scan.regexes.push(text.get(at + 1..end).unwrap_or_default());
                    at = end;
                }
                b'(' | b'[' | b'{' => {
                    depth += 1;
                    scan.nesting = scan.nesting.max(depth);
                }
                b')' | b']' | b'}' => depth = depth.saturating_sub(1),
                _ => {}
            }
            at += 1;
        }
        scan.rules = text.lines().filter(|line| is_definition(line)).count();
        scan
    }
}

/// Whether a line looks like `name: ...`, with modifiers and attributes before the colon. Lark
/// ends a definition at the end of its line, so no line holds two.
fn is_definition(line: &str) -> bool {
    let line = line.trim_start();
    let name = line.trim_start_matches(['!', '?', '_']);
    name.starts_with(|c: char| c.is_ascii_alphabetic()) && line.contains(':')
}

/// Index of the closing quote, or the last byte.
fn skip_quoted(bytes: &[u8], start: usize, quote: u8) -> usize {
    let mut at = start + 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 1,
            byte if byte == quote => return at,
            _ => {}
        }
        at += 1;
    }
    bytes.len()
}

/// Index of the last byte before the line's end.
fn skip_line(bytes: &[u8], start: usize) -> usize {
    bytes[start..].iter().position(|&b| b == b'\n').map_or(bytes.len(), |n| start + n)
}

#[cfg(test)]
mod tests {
    use super::*;
    use llgtrt_schema::ResidualMode;

    fn prepared(text: &str) -> Result<String, llgtrt_core::Error> {
        let config = GrammarConfig::default();
        Ok(prepare(text, &config, &mut Notes::new(ResidualMode::Refuse, &config))?)
    }

    fn check_text(text: &str) -> Result<(), llgtrt_core::Error> {
        prepared(text).map(drop)
    }

    #[test]
    fn ordinary_grammars_pass() {
        check_text("start: a \"b: (((\" /[:]x\\/y/\n// c: d\na: \"x\" | (\"y\" a)\n").unwrap();
        let scan = Scan::of("start: a \"b: (((\" /[:]x\\/y/\n// c: d\na: \"x\" | (\"y\" a)\n");
        assert_eq!((scan.rules, scan.nesting), (2, 1));
        assert_eq!(scan.regexes, vec!["[:]x\\/y"]);
    }

    #[test]
    fn rules_and_nesting_are_bounded() {
        let chain: Vec<String> = (0..5000).map(|i| format!("r{i}: r{}", i + 1)).collect();
        assert!(check_text(&chain.join("\n")).unwrap_err().message.contains("5000 rules"));
        let deep = format!("start: {}\"a\"{}", "(".repeat(100_000), ")".repeat(100_000));
        assert!(check_text(&deep).unwrap_err().message.contains("nested too deeply"));
        let regex = format!("start: /{}a{}/", "(".repeat(3000), ")".repeat(3000));
        assert!(check_text(&regex).unwrap_err().message.contains("nested too deeply"));
        assert!(check_text("  \n").is_err());
    }

    #[test]
    fn embedded_schemas_are_checked() {
        let error =
            check_text("start: a\na: %json {\"properties\": {\"x\": {\"type\": \"no\"}}}").unwrap_err();
        assert!(error.message.contains("`%json` number 1 at `properties.x.type`"), "{}", error.message);
        let chain: Vec<String> =
            (0..600).map(|i| format!("\"d{i}\": {{\"$ref\": \"#/$defs/d{}\"}}", i + 1)).collect();
        let text = format!(
            "start: %json {{\"$ref\": \"#/$defs/d0\", \"$defs\": {{{}, \"d600\": {{}}}}}}",
            chain.join(",")
        );
        assert!(check_text(&text).unwrap_err().message.contains("nested too deeply"));
    }

    #[test]
    fn embedded_schemas_are_rewritten() {
        let text = "start: a b\na: %json {\"type\": \"string\", \"format\": \"color\"}\nb: %json {\"type\": \"null\"}\n";
        assert_eq!(
            prepared(text).unwrap(),
            "start: a b\na: %json {\"type\":\"string\"}\nb: %json {\"type\": \"null\"}\n"
        );
    }

    #[test]
    fn unfinished_literals_do_not_panic() {
        for text in ["start: \"", "start: /", "start: \"\\", "start: /\\", "é/é\\"] {
            let _ = check_text(text);
        }
    }
}
