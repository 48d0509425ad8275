//! Regular expressions: length, nesting and syntax.

use regex_syntax::ast;

use crate::refusal::{Refusal, hint};
use crate::text::first_line;

/// Nesting of groups and repetitions. llguidance recurses over them.
const NEST_LIMIT: u32 = 64;

/// Checks the syntax of `pattern` and what a recursion over it depends on.
///
/// Parses to the syntax tree only: the translation to byte ranges can be large, and llguidance
/// makes it under its own fuel limit.
pub(super) fn check(pattern: &str, max_bytes: usize) -> Result<(), Refusal> {
    check_size(pattern, max_bytes)?;
    parser().parse(pattern).map(drop).map_err(|error| refusal(&error))
}

/// Checks only what a recursion over `pattern` depends on. Whoever reads it next says what else is wrong.
pub(super) fn check_bounds(pattern: &str, max_bytes: usize) -> Result<(), Refusal> {
    check_size(pattern, max_bytes)?;
    match parser().parse(pattern) {
        Err(error) if matches!(error.kind(), ast::ErrorKind::NestLimitExceeded(_)) => Err(refusal(&error)),
        _ => Ok(()),
    }
}

/// Checks the length of `pattern`.
pub(super) fn check_size(pattern: &str, max_bytes: usize) -> Result<(), Refusal> {
    if pattern.len() > max_bytes {
        let message = format!("the regular expression has {} bytes; the limit is {max_bytes}", pattern.len());
        return Err(Refusal::new(message, hint::SMALLER));
    }
    Ok(())
}

fn parser() -> ast::parse::Parser {
    ast::parse::ParserBuilder::new().nest_limit(NEST_LIMIT).build()
}

fn refusal(error: &ast::Error) -> Refusal {
    let at = error.span().start.offset;
    match error.kind() {
        ast::ErrorKind::UnsupportedLookAround => Refusal::new(
            format!("look-around is not supported in regular expressions (at byte {at})"),
            "write what the text may be, as alternatives, instead of what must not follow",
        ),
        ast::ErrorKind::UnsupportedBackreference => Refusal::new(
            format!("back-references are not supported in regular expressions (at byte {at})"),
            "write the possible repetitions as alternatives",
        ),
        ast::ErrorKind::NestLimitExceeded(limit) => Refusal::new(
            format!("the regular expression is nested too deeply; the limit is {limit} levels"),
            hint::FEWER_LEVELS,
        ),
        kind => {
            let message = format!("bad regular expression: {} (at byte {at})", first_line(&kind.to_string()));
            Refusal::new(message, hint::ESCAPE)
        }
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
