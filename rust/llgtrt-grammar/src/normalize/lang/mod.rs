//! Regular languages of `pattern`, `format` and key sets: parsing, boolean algebra, and writing them
//! as regular expressions that llguidance reads.
//!
//! Pure; used by one normalisation on one thread.

mod chars;
mod dfa;
mod ecma;
mod expr;
mod print;

use std::collections::HashMap;

pub(crate) use self::ecma::Ast;
pub(crate) use self::expr::{ALL, ANY_CHAR, NOTHING, X};

use self::expr::{EMPTY, Exprs};

/// A parsed pattern: its language over whole strings, and how to write it.
#[derive(Debug, Clone)]
pub(crate) struct Pattern {
    /// All strings in which the pattern finds a match.
    pub(crate) language: X,
    /// The pattern in llguidance's dialect; `None` where only the automaton can tell (look-ahead).
    pub(crate) text: Option<String>,
}

/// Languages of one normalisation.
#[derive(Debug)]
pub(crate) struct Languages {
    exprs: Exprs,
    patterns: HashMap<String, Result<Pattern, String>>,
    empty: HashMap<X, Option<bool>>,
    printed: HashMap<X, Option<String>>,
}

impl Languages {
    pub(crate) fn new() -> Self {
        Self { exprs: Exprs::new(), patterns: HashMap::new(), empty: HashMap::new(), printed: HashMap::new() }
    }

    /// Parses a JSON Schema pattern.
    pub(crate) fn pattern(&mut self, source: &str) -> Result<Pattern, String> {
        if let Some(known) = self.patterns.get(source) {
            return known.clone();
        }
        let parsed = ecma::parse(source).and_then(|ast| {
            let language = self.search(&ast)?;
            let text = (!ast.looks_ahead()).then(|| print::rewrite(source, &ast));
            Ok(Pattern { language, text })
        });
        self.patterns.insert(source.to_owned(), parsed.clone());
        parsed
    }

    /// Strings in which `ast` finds a match anywhere.
    fn search(&mut self, ast: &Ast) -> Result<X, String> {
        let at_start = self.lang(ast, ALL, true)?;
        let inside = self.lang(ast, ALL, false)?;
        let later = if inside == NOTHING { NOTHING } else { self.exprs.concat(ALL, inside) };
        Ok(self.exprs.or([at_start, later]))
    }

    /// Texts that start with a match of `ast` followed by a text of `after`. `start` tells whether
    /// nothing precedes.
    fn lang(&mut self, ast: &Ast, after: X, start: bool) -> Result<X, String> {
        Ok(match ast {
            Ast::Empty => after,
            Ast::Class(set) => {
                let class = self.exprs.class(set.clone());
                self.exprs.concat(class, after)
            }
            Ast::Start => {
                if start {
                    after
                } else {
                    NOTHING
                }
            }
            Ast::End => self.exprs.and([EMPTY, after]),
            Ast::Look { negated, inner } => {
                let ahead = self.lang(inner, ALL, start)?;
                let ahead = if *negated { self.exprs.not(ahead) } else { ahead };
                self.exprs.and([ahead, after])
            }
            Ast::Alt(list) => {
                let parts: Result<Vec<X>, String> = list.iter().map(|x| self.lang(x, after, start)).collect();
                self.exprs.or(parts?)
            }
            Ast::Concat(list) => self.sequence(list, after, start)?,
            Ast::Repeat(inner, min, max) => {
                if !inner.asserts() {
                    let inner = self.lang(inner, EMPTY, start)?;
                    let repeated = self.exprs.repeat(inner, *min, *max);
                    return Ok(self.exprs.concat(repeated, after));
                }
                match (min, max) {
                    (0, Some(1)) => {
                        let once = self.lang(inner, after, start)?;
                        self.exprs.or([once, after])
                    }
                    (1, Some(1)) => self.lang(inner, after, start)?,
                    _ => return Err("anchors and look-ahead inside a repetition are not supported".to_owned()),
                }
            }
        })
    }

    fn sequence(&mut self, list: &[Ast], after: X, start: bool) -> Result<X, String> {
        let Some((head, tail)) = list.split_first() else { return Ok(after) };
        if !start || !tail.iter().any(has_start) {
            let rest = self.sequence(tail, after, false)?;
            return self.lang(head, rest, start);
        }
        // Whether the tail is at the start depends on what the head consumed.
        match width(head) {
            Width::None => {
                let rest = self.sequence(tail, after, true)?;
                self.lang(head, rest, true)
            }
            Width::Some => {
                let rest = self.sequence(tail, after, false)?;
                self.lang(head, rest, true)
            }
            Width::Either => Err("`^` after something that may be empty is not supported".to_owned()),
        }
    }

    pub(crate) fn literal(&mut self, text: &str) -> X {
        self.exprs.literal(text)
    }

    pub(crate) fn lengths(&mut self, min: u64, max: Option<u64>) -> X {
        let clip = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        self.exprs.repeat(ANY_CHAR, clip(min), max.map(clip))
    }

    pub(crate) fn or(&mut self, list: impl IntoIterator<Item = X>) -> X {
        self.exprs.or(list)
    }

    pub(crate) fn and(&mut self, list: impl IntoIterator<Item = X>) -> X {
        self.exprs.and(list)
    }

    pub(crate) fn not(&mut self, x: X) -> X {
        self.exprs.not(x)
    }

    pub(crate) fn matches(&mut self, x: X, text: &str) -> bool {
        self.exprs.matches(x, text)
    }

    /// Whether the language has no string; `None` if that would take too long to find out.
    pub(crate) fn is_empty(&mut self, x: X) -> Option<bool> {
        if let Some(&known) = self.empty.get(&x) {
            return known;
        }
        let result = dfa::is_empty(&mut self.exprs, x);
        self.empty.insert(x, result);
        result
    }

    /// The language as a regular expression, if it is small enough.
    pub(crate) fn print(&mut self, x: X, max_bytes: usize) -> Option<String> {
        if let Some(known) = self.printed.get(&x) {
            return known.clone();
        }
        let text = dfa::print(&mut self.exprs, x, max_bytes);
        self.printed.insert(x, text.clone());
        text
    }
}

enum Width {
    None,
    Some,
    Either,
}

fn width(ast: &Ast) -> Width {
    match ast {
        Ast::Empty | Ast::Start | Ast::End | Ast::Look { .. } => Width::None,
        Ast::Class(_) => Width::Some,
        Ast::Concat(list) => {
            if list.iter().any(|x| matches!(width(x), Width::Some)) {
                Width::Some
            } else if list.iter().all(|x| matches!(width(x), Width::None)) {
                Width::None
            } else {
                Width::Either
            }
        }
        Ast::Alt(list) => {
            if list.iter().all(|x| matches!(width(x), Width::Some)) {
                Width::Some
            } else if list.iter().all(|x| matches!(width(x), Width::None)) {
                Width::None
            } else {
                Width::Either
            }
        }
        Ast::Repeat(inner, min, _) => match width(inner) {
            Width::None => Width::None,
            Width::Some if *min > 0 => Width::Some,
            _ => Width::Either,
        },
    }
}

fn has_start(ast: &Ast) -> bool {
    match ast {
        Ast::Start => true,
        Ast::Concat(list) | Ast::Alt(list) => list.iter().any(has_start),
        Ast::Repeat(inner, _, _) | Ast::Look { inner, .. } => has_start(inner),
        Ast::Empty | Ast::Class(_) | Ast::End => false,
    }
}

/// Rewrites a pattern into llguidance's dialect; `None` if it already means the same there, an error
/// if it cannot be written directly (look-ahead).
pub(crate) fn translate(source: &str) -> Result<Option<String>, String> {
    let ast = ecma::parse(source)?;
    if ast.looks_ahead() {
        return Err("look-ahead".to_owned());
    }
    let text = print::rewrite(source, &ast);
    Ok((text != source).then_some(text))
}

#[cfg(test)]
mod tests;
