//! Regular expressions: length, nesting and syntax.

use llgtrt_core::Error;
use regex_syntax::ast;

use crate::text::{first_line, grammar_error};

/// Nesting of groups and repetitions. llguidance recurses over them.
const NEST_LIMIT: u32 = 64;

/// Checks the syntax of `pattern` and what a recursion over it depends on.
///
/// Parses to the syntax tree only: the translation to byte ranges can be large, and llguidance
/// makes it under its own fuel limit.
pub(super) fn check(pattern: &str, max_bytes: usize) -> Result<(), Error> {
    if pattern.len() > max_bytes {
        return Err(grammar_error(format!(
            "the regular expression has {} bytes; the limit is {max_bytes}",
            pattern.len()
        )));
    }
    let parsed = ast::parse::ParserBuilder::new().nest_limit(NEST_LIMIT).build().parse(pattern);
    match parsed {
        Ok(_) => Ok(()),
        Err(error) => Err(grammar_error(message(&error))),
    }
}

fn message(error: &ast::Error) -> String {
    let at = error.span().start.offset;
    match error.kind() {
        ast::ErrorKind::UnsupportedLookAround => {
            format!("look-around is not supported in regular expressions (at byte {at})")
        }
        ast::ErrorKind::UnsupportedBackreference => {
            format!("back-references are not supported in regular expressions (at byte {at})")
        }
        ast::ErrorKind::NestLimitExceeded(limit) => {
            format!("the regular expression is nested too deeply; the limit is {limit} levels")
        }
        kind => format!("bad regular expression: {} (at byte {at})", first_line(&kind.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_patterns_pass() {
        for pattern in ["", "a|b", r"\d{3}-\w+", r"^[a-z\/]+$", "a**", r"\p{L}+", "(?i)x", "((((a))))"] {
            check(pattern, 100).unwrap();
        }
    }

    #[test]
    fn bad_patterns_say_why() {
        for (pattern, word) in [
            ("(((", "unclosed group"),
            ("(?=a)", "look-around"),
            (r"(a)\1", "back-reference"),
            ("[", "unclosed character class"),
            ("{{...}}", "repetition"),
            ("a{2,1}", "repetition"),
        ] {
            let error = check(pattern, 100).unwrap_err();
            assert!(error.message.contains(word), "{pattern}: {}", error.message);
        }
    }

    #[test]
    fn length_and_nesting_are_bounded() {
        assert!(check(&"a".repeat(101), 100).is_err());
        let deep = format!("{}a{}", "(".repeat(4000), ")".repeat(4000));
        assert!(check(&deep, 8192).unwrap_err().message.contains("nested too deeply"));
    }
}
