//! Terminals joined with the text behind them, for grammars whose answers could not end otherwise.
//!
//! llguidance's lexer takes the longest terminal, byte by byte, and goes back over no more than one byte. Where a
//! terminal may go on with the first byte of the text that is to follow it (`/[^”]+/ "”"`, whose quotes and letters
//! begin with the same byte), that text never comes. As one terminal, both are one automaton.

use std::fmt::Write;

/// Joins at most so many pairs.
const MAX_JOINED: usize = 200;

/// Which pairs are joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pairs {
    /// Those whose text begins with a character of several bytes, unless something is ignored between terminals.
    Risky,
    All,
}

/// The grammar with each terminal or regular expression of a rule and the string literal right behind it as one
/// terminal; `None` if there are no such pairs. Between the two, no ignored text may stand any more.
pub(in crate::admission) fn joined(text: &str, pairs: Pairs) -> Option<String> {
    if pairs == Pairs::Risky && text.contains("%ignore") {
        return None;
    }
    let mut out = String::with_capacity(text.len());
    let mut definitions = String::new();
    let mut count = 0;
    for line in logical_lines(text) {
        let head = line.trim_start();
        // Terminals are one automaton already; directives have a syntax of their own.
        if head.starts_with(|c: char| c.is_ascii_uppercase() || c == '%') {
            out.push_str(line);
            continue;
        }
        let mut at = 0;
        let mut done = 0;
        let mut before: Option<(usize, usize)> = None;
        while let Some(atom) = next_atom(line, at) {
            let blank = |range: std::ops::Range<usize>| line[range].bytes().all(|b| b == b' ' || b == b'\t');
            if let (Some((start, end)), Kind::Literal) = (before, atom.kind)
                && blank(end..atom.start)
                && !is_repeated(&line[atom.end..])
                && (pairs == Pairs::All || !line.as_bytes()[atom.start + 1].is_ascii())
                && count < MAX_JOINED
            {
                count += 1;
                let name = format!("JOINED_{count}");
                out.push_str(&line[done..start]);
                out.push_str(&name);
                let _ =
                    writeln!(definitions, "{name}: {} {}", &line[start..end], &line[atom.start..atom.end]);
                done = atom.end;
            }
            let joins = matches!(atom.kind, Kind::Terminal) && !is_repeated(&line[atom.end..]);
            before = joins.then_some((atom.start, atom.end));
            at = atom.end;
        }
        out.push_str(&line[done..]);
    }
    (count > 0 && !text.contains("JOINED_")).then(|| format!("{}\n{definitions}", out.trim_end()))
}

/// Lines, as `split_inclusive` gives them; one that ends inside of a JSON value goes on.
fn logical_lines(text: &str) -> Vec<&str> {
    let mut lines = Vec::new();
    let mut start = 0;
    let mut end = 0;
    for line in text.split_inclusive('\n') {
        end += line.len();
        let open = text[start..end].find("%json").is_some_and(|at| {
            let mut values = serde_json::Deserializer::from_str(&text[start + at + 5..end])
                .into_iter::<serde_json::Value>();
            matches!(values.next(), Some(Err(error)) if error.is_eof())
        });
        if !open {
            lines.push(&text[start..end]);
            start = end;
        }
    }
    lines.extend((start < end).then(|| &text[start..end]));
    lines
}

/// Whether what was just read is repeated, is one end of a range, or has attributes.
fn is_repeated(rest: &str) -> bool {
    rest.trim_start_matches([' ', '\t']).starts_with(['?', '*', '+', '~', '.', '[', ':'])
}

#[derive(Clone, Copy)]
enum Kind {
    /// The name of a terminal, or a regular expression.
    Terminal,
    Literal,
    /// Anything else.
    Other,
}

struct Atom {
    kind: Kind,
    start: usize,
    end: usize,
}

/// The next thing of a line that is no blank; `None` at its end, or where a comment or a JSON value begins.
fn next_atom(line: &str, from: usize) -> Option<Atom> {
    let bytes = line.as_bytes();
    let start = from + line[from..].find(|c: char| !matches!(c, ' ' | '\t'))?;
    let rest = &line[start..];
    let word = |rest: &str| rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
    let flags = |end: usize| end + line[end..].bytes().take_while(u8::is_ascii_lowercase).count();
    if rest.starts_with(['#', '\n', '\r']) || rest.starts_with("//") || rest.starts_with("%json") {
        return None;
    }
    Some(match bytes[start] {
        b'"' => Atom { kind: Kind::Literal, start, end: flags(after_quoted(bytes, start)) },
        b'/' => Atom { kind: Kind::Terminal, start, end: flags(after_quoted(bytes, start)) },
        b'A'..=b'Z' => Atom { kind: Kind::Terminal, start, end: start + word(rest) },
        b'a'..=b'z' | b'_' => Atom { kind: Kind::Other, start, end: start + word(rest) },
        _ => Atom { kind: Kind::Other, start, end: start + rest.chars().next().map_or(1, char::len_utf8) },
    })
}

fn after_quoted(bytes: &[u8], start: usize) -> usize {
    (super::skip_quoted(bytes, start, bytes[start]) + 1).min(bytes.len())
}

#[cfg(test)]
mod tests {
    use super::{Pairs, joined};

    #[test]
    fn terminals_and_the_text_behind_them_become_one() {
        assert_eq!(
            joined("start: \"“\" TEXT \"”\" (/[а-я]+/ \"Я\" | A B)\nTEXT: /[^“”]+/ \"x\"\n", Pairs::Risky)
                .unwrap(),
            "start: \"“\" JOINED_1 (JOINED_2 | A B)\nTEXT: /[^“”]+/ \"x\"\nJOINED_1: TEXT \"”\"\nJOINED_2: /[а-я]+/ \"Я\"\n"
        );
    }

    #[test]
    fn what_is_repeated_or_stands_apart_is_left_alone() {
        for text in [
            "start: TEXT+ \"a\"",
            "start: TEXT \"a\"*",
            "start: TEXT \"a\"..\"b\"",
            "start: TEXT | \"a\"",
            "start: (TEXT) \"a\"",
            "start: rule \"a\"",
            "start: TEXT // \"a\"",
            "start: %json {\"const\":\n \"A\"}",
            "%ignore TEXT \"a\"",
            "start: TEXT\n \"a\"",
            "JOINED_1: \"b\"\nstart: TEXT \"a\"",
            "",
            "é\"",
        ] {
            assert_eq!(joined(text, Pairs::All), None, "{text}");
        }
    }

    #[test]
    fn what_cannot_go_wrong_is_joined_if_asked_for() {
        for text in ["start: TEXT \"a\"", "start: TEXT \"é\"\n%ignore / /"] {
            assert_eq!(joined(text, Pairs::Risky), None);
            assert!(joined(text, Pairs::All).is_some());
        }
    }
}
