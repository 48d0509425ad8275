//! Error messages for clients: one short line that never repeats the grammar.

use llgtrt_core::{Error, ErrorKind};

/// Longest message, in characters.
const MAX_CHARS: usize = 300;

/// An [`ErrorKind::Grammar`] error.
pub(crate) fn grammar_error(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Grammar, message)
}

/// A row of the parser is wider than the limit.
pub(crate) const TOO_MANY_WAYS: &str =
    "too many ways to go on at one place, such as optional properties of an object and of its alternatives";

/// The first line of llguidance's message, without back traces and dumps of the grammar.
pub(crate) fn first_line(message: &str) -> String {
    let message = message.trim();
    if message.starts_with("panic: ") {
        // The text of a panic is about llguidance's insides; the log has it.
        tracing::warn!(reason = message, "llguidance panicked");
        return "the grammar cannot be handled (internal error of the grammar engine)".to_owned();
    }
    if message.contains("Current row has") {
        // llguidance speaks of its rows, and of recursion.
        return TOO_MANY_WAYS.to_owned();
    }
    truncate(message.lines().next().unwrap_or("unknown error"), MAX_CHARS)
}

/// At most `max` characters of `text`.
pub(crate) fn truncate(text: &str, max: usize) -> String {
    match text.char_indices().nth(max) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_one_short_line() {
        assert_eq!(first_line("bad rule\n<non-verbose/>"), "bad rule");
        assert_eq!(first_line(&"é".repeat(1000)).chars().count(), MAX_CHARS + 3);
        assert!(!first_line("panic: index 3\n<backtrace>\n0x7f\n</backtrace>").contains("index"));
    }
}
