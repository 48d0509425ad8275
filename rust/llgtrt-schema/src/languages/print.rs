//! Writing a parsed pattern in the dialect that llguidance reads (the regex crates').

use super::ecma::Ast;
use super::search;

/// Whether ECMA-262 and llguidance read a pattern alike: nothing but characters, classes of them,
/// simple escapes, groups and repetitions.
fn is_common(source: &str) -> bool {
    let mut chars = source.chars().peekable();
    let mut in_class = false;
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                // A class escape next to a hyphen is read differently.
                Some('d' | 'w' | 'D' | 'W') if in_class && chars.peek() == Some(&'-') => return false,
                Some('d' | 'w' | 'D' | 'W' | 'n' | 'r' | 't') => {}
                Some(c) if c.is_ascii_punctuation() && c != '<' && c != '>' => {}
                _ => return false,
            },
            '.' if !in_class => return false,
            '[' if in_class => return false,
            '[' => {
                if matches!(chars.peek(), Some('^')) {
                    chars.next();
                }
                if matches!(chars.peek(), Some(']' | '-')) {
                    return false;
                }
                in_class = true;
            }
            // Set operations of the regex crates.
            '&' | '~' | '-' if in_class && chars.peek() == Some(&c) => return false,
            ']' if in_class => in_class = false,
            ']' => return false,
            '{' if !in_class => {
                let ahead: String = chars.clone().take_while(|&c| c != '}').collect();
                if ahead.is_empty() || !ahead.starts_with(|c: char| c.is_ascii_digit()) {
                    return false;
                }
            }
            '(' if !in_class && chars.peek() == Some(&'?') => {
                chars.next();
                if chars.peek() != Some(&':') {
                    return false;
                }
            }
            _ => {}
        }
    }
    !in_class
}

/// The pattern itself if both dialects read it alike and it is as short as it may be, otherwise the tree written out.
pub(super) fn rewrite(source: &str, ast: &Ast) -> String {
    if let Some(once) = without_repeats(ast) {
        return text(search::shortened(&once).as_ref().unwrap_or(&once));
    }
    if let Some(short) = search::shortened(ast) {
        return text(&short);
    }
    if is_common(source) && !has_misquoted(ast) {
        return source.to_owned();
    }
    text(ast)
}

/// The same tree where alternatives that are all the same are one, if they are and hold anchors: the regex crate takes
/// their anchors out of them, and llguidance looks for anchors at the ends of each.
fn without_repeats(ast: &Ast) -> Option<Ast> {
    match ast {
        Ast::Alt(list) if list.windows(2).all(|pair| pair[0] == pair[1]) && ast.asserts() => {
            let one = list.first()?;
            Some(without_repeats(one).unwrap_or_else(|| one.clone()))
        }
        Ast::Alt(list) => parts_without_repeats(list).map(Ast::Alt),
        Ast::Concat(list) => parts_without_repeats(list).map(Ast::Concat),
        _ => None,
    }
}

fn parts_without_repeats(list: &[Ast]) -> Option<Vec<Ast>> {
    let parts: Vec<Option<Ast>> = list.iter().map(without_repeats).collect();
    let is_changed = parts.iter().any(Option::is_some);
    let parts = parts.into_iter().zip(list).map(|(part, own)| part.unwrap_or_else(|| own.clone()));
    is_changed.then(|| parts.collect())
}

/// The tree written out.
pub(super) fn text(ast: &Ast) -> String {
    let mut out = String::new();
    write(ast, &mut out, Level::Top);
    out
}

fn has_misquoted(ast: &Ast) -> bool {
    match ast {
        Ast::Class(set) => set.is_misquoted(),
        Ast::Concat(list) | Ast::Alt(list) => list.iter().any(has_misquoted),
        Ast::Repeat(inner, _, _) | Ast::Look { inner, .. } => has_misquoted(inner),
        Ast::Empty | Ast::Start | Ast::End | Ast::Boundary { .. } => false,
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Level {
    Top,
    Sequence,
    Repeat,
}

fn write(ast: &Ast, out: &mut String, level: Level) {
    let group = match ast {
        Ast::Alt(_) => level != Level::Top,
        Ast::Concat(_) | Ast::Repeat(..) | Ast::Empty | Ast::Start | Ast::End => level == Level::Repeat,
        Ast::Class(_) | Ast::Boundary { .. } | Ast::Look { .. } => false,
    };
    if group {
        out.push_str("(?:");
    }
    match ast {
        // Look-ahead and word boundaries are not written: the caller checks.
        Ast::Empty | Ast::Boundary { .. } | Ast::Look { .. } => {}
        Ast::Class(set) => set.write(out),
        Ast::Concat(list) => list.iter().for_each(|x| write(x, out, Level::Sequence)),
        Ast::Alt(list) => {
            for (index, x) in list.iter().enumerate() {
                if index > 0 {
                    out.push('|');
                }
                write(x, out, Level::Sequence);
            }
        }
        Ast::Repeat(inner, min, max) => {
            write(inner, out, Level::Repeat);
            match (min, max) {
                (0, None) => out.push('*'),
                (1, None) => out.push('+'),
                (0, Some(1)) => out.push('?'),
                (min, None) => out.push_str(&format!("{{{min},}}")),
                (min, Some(max)) => out.push_str(&format!("{{{min},{max}}}")),
            }
        }
        Ast::Start => out.push('^'),
        Ast::End => out.push('$'),
    }
    if group {
        out.push(')');
    }
}
