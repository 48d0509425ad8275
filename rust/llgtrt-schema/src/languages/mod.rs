//! Regular languages of `pattern`, `format` and key sets: parsing, boolean algebra, and writing them
//! as regular expressions that llguidance reads.
//!
//! Pure; used by one normalisation on one thread.

mod boundary;
mod chars;
mod dfa;
mod ecma;
mod expr;
pub(crate) mod formats;
mod print;
mod search;

use std::collections::HashMap;
use std::rc::Rc;

pub(crate) use self::ecma::{Ast, PatternError};
pub(crate) use self::expr::{ALL, ANY_CHAR, LanguageId, NOTHING};

use self::expr::{EMPTY, Exprs};
use crate::budget::Budget;
use crate::width;

/// Longest pattern that is written for a complement or an intersection, in bytes.
pub(crate) const MAX_PATTERN: usize = 6000;

/// Steps of an engine for a character that it counts beside a pattern, and for each range of characters that the pattern
/// tells apart there (measured on llguidance: 210 for `\\s` and `\\S`).
const COUNT_STEPS: u64 = 10;
const COUNT_STEPS_PER_RANGE: u64 = 8;

/// Steps that an engine may take for one character of a string.
const MAX_COUNT_STEPS: u64 = 400_000;

/// Expressions whose width is worked out at most: some milliseconds.
const MAX_MEASURED: usize = 4000;

/// A parsed pattern: its language over whole strings, and how to write it.
#[derive(Debug, Clone)]
pub(crate) struct Pattern {
    /// All strings in which the pattern finds a match.
    pub(crate) language: LanguageId,
    /// The pattern in llguidance's dialect; `None` where only the automaton can tell (look-ahead, word
    /// boundaries).
    pub(crate) text: Option<String>,
}

/// Languages of one normalisation.
#[derive(Debug)]
pub(crate) struct Languages {
    exprs: Exprs,
    patterns: HashMap<String, Result<Pattern, PatternError>>,
    empty: HashMap<LanguageId, Option<bool>>,
    printed: HashMap<LanguageId, Option<String>>,
}

impl Languages {
    pub(crate) fn new(budget: &Rc<Budget>) -> Self {
        Self {
            exprs: Exprs::new(budget),
            patterns: HashMap::new(),
            empty: HashMap::new(),
            printed: HashMap::new(),
        }
    }

    /// Parses a JSON Schema pattern.
    pub(crate) fn pattern(&mut self, source: &str) -> Result<Pattern, PatternError> {
        if let Some(known) = self.patterns.get(source) {
            return known.clone();
        }
        self.exprs.charge(parse_cost(source));
        self.go_on()?;
        let parsed = ecma::parse(source).and_then(|ast| {
            let short = search::shortened(&ast);
            let language = self.search(short.as_ref().unwrap_or(&ast))?;
            let text = if ast.has_boundary() {
                self.common_boundaries(&ast, language)
            } else {
                let plain = !ast.looks_around() && !anchors_inside(&ast, true, true);
                plain.then(|| print::rewrite(source, &ast))
            };
            Ok(Pattern { language, text })
        });
        self.exprs.hold(100 + 4 * source.len());
        self.patterns.insert(source.to_owned(), parsed.clone());
        parsed
    }

    /// Patterns that are a look-ahead pattern together: what it looks ahead for at the start of a text, each with
    /// whether it must not be there, and the rest. `None` if it looks ahead anywhere else.
    pub(crate) fn conjuncts(&mut self, source: &str) -> Option<Vec<(Pattern, bool)>> {
        self.exprs.charge(parse_cost(source));
        let Ok(Ast::Concat(list)) = ecma::parse(source) else { return None };
        let (Ast::Start, list) = list.split_first()? else { return None };
        let looks = list.iter().take_while(|ast| matches!(ast, Ast::Look { .. })).count();
        let (looks, rest) = list.split_at(looks);
        let rest = Ast::Concat(rest.to_vec());
        let ahead = looks.iter().filter_map(|ast| match ast {
            Ast::Look { negated, inner } => Some((&**inner, *negated)),
            _ => None,
        });
        let mut parts = Vec::new();
        for (ast, negated) in ahead.chain([(&rest, false)]) {
            let ast = Ast::Concat(vec![Ast::Start, ast.clone()]);
            if ast.looks_around() || anchors_inside(&ast, true, true) {
                return None;
            }
            self.go_on().ok()?;
            let text = Some(print::text(&ast));
            self.exprs.hold(100 + text.as_ref().map_or(0, String::len));
            parts.push((Pattern { language: self.search(&ast).ok()?, text }, negated));
        }
        Some(parts)
    }

    /// Counts a step over a pattern. The error does not get out: the budget is spent.
    fn go_on(&self) -> Result<(), PatternError> {
        self.exprs.charge(1);
        if self.exprs.is_over() {
            return Err(PatternError::unsupported("the pattern is too complex"));
        }
        Ok(())
    }

    /// Strings in which `ast` finds a match anywhere.
    fn search(&mut self, ast: &Ast) -> Result<LanguageId, PatternError> {
        if ast.has_boundary() {
            return self.search_boundaries(ast);
        }
        let at_start = self.lang(ast, ALL, true)?;
        let inside = self.lang(ast, ALL, false)?;
        let later = if inside == NOTHING { NOTHING } else { self.exprs.concat(ALL, inside) };
        Ok(self.exprs.or([at_start, later]))
    }

    /// Texts that start with a match of `ast` followed by a text of `after`. `start` tells whether
    /// nothing precedes.
    fn lang(&mut self, ast: &Ast, after: LanguageId, start: bool) -> Result<LanguageId, PatternError> {
        self.go_on()?;
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
            // Read by `search_boundaries`.
            Ast::Boundary { .. } => NOTHING,
            Ast::Look { negated, inner } => {
                let ahead = self.lang(inner, ALL, start)?;
                let ahead = if *negated { self.exprs.not(ahead) } else { ahead };
                self.exprs.and([ahead, after])
            }
            Ast::Alt(list) => {
                let parts: Result<Vec<LanguageId>, PatternError> =
                    list.iter().map(|x| self.lang(x, after, start)).collect();
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
                    _ if only_end(inner) => self.repeat_to_end(inner, *min, *max, after)?,
                    _ => {
                        return Err(PatternError::unsupported(
                            "anchors and look-ahead inside a repetition are not supported",
                        ));
                    }
                }
            }
        })
    }

    /// A repetition whose body may contain `$`: all rounds but the last are without it.
    fn repeat_to_end(
        &mut self,
        body: &Ast,
        min: u32,
        max: Option<u32>,
        after: LanguageId,
    ) -> Result<LanguageId, PatternError> {
        let inside = self.lang(&without_end(body), EMPTY, false)?;
        let last = self.lang(body, EMPTY, false)?;
        // Rounds that match nothing fill up the count.
        let min = if self.exprs.nullable(last) { 0 } else { min };
        let rounds = self.exprs.repeat(inside, min, max);
        let plain = self.exprs.concat(rounds, after);
        let rest = self.exprs.and([EMPTY, after]);
        let last = self.lang(body, rest, false)?;
        let rounds = self.exprs.repeat(inside, min.saturating_sub(1), max.map(|max| max.saturating_sub(1)));
        let ended = self.exprs.concat(rounds, last);
        Ok(self.exprs.or([plain, ended]))
    }

    fn sequence(&mut self, list: &[Ast], after: LanguageId, start: bool) -> Result<LanguageId, PatternError> {
        // Whether an element is at the start depends on what those before it consumed, as far as it matters.
        let last_start = if start { list.iter().rposition(has_start).unwrap_or(0) } else { 0 };
        let mut starts = vec![false; list.len()];
        if let Some(first) = starts.first_mut() {
            *first = start;
        }
        for at in 0..last_start {
            match width(&list[at]) {
                Width::None => starts[at + 1] = true,
                Width::Some => break,
                Width::Either => {
                    return Err(PatternError::unsupported(
                        "`^` after something that may be empty is not supported",
                    ));
                }
            }
        }
        let mut rest = after;
        for (ast, &start) in list.iter().zip(&starts).rev() {
            rest = self.lang(ast, rest, start)?;
        }
        Ok(rest)
    }

    pub(crate) fn literal(&mut self, text: &str) -> LanguageId {
        self.exprs.literal(text)
    }

    pub(crate) fn lengths(&mut self, min: u64, max: Option<u64>) -> LanguageId {
        let clip = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        self.exprs.repeat(ANY_CHAR, clip(min), max.map(clip))
    }

    pub(crate) fn or(&mut self, list: impl IntoIterator<Item = LanguageId>) -> LanguageId {
        self.exprs.or(list)
    }

    pub(crate) fn and(&mut self, list: impl IntoIterator<Item = LanguageId>) -> LanguageId {
        self.exprs.and(list)
    }

    pub(crate) fn not(&mut self, x: LanguageId) -> LanguageId {
        self.exprs.not(x)
    }

    pub(crate) fn matches(&mut self, x: LanguageId, text: &str) -> bool {
        self.exprs.matches(x, text)
    }

    /// Whether the language has no string; `None` if that would take too long to find out.
    pub(crate) fn is_empty(&mut self, x: LanguageId) -> Option<bool> {
        if let Some(&known) = self.empty.get(&x) {
            return known;
        }
        let result = dfa::is_empty(&mut self.exprs, x);
        self.exprs.hold(40);
        self.empty.insert(x, result);
        result
    }

    /// The width of the intersection of several languages; `None` if they are too large to tell.
    pub(crate) fn width(&self, parts: &[LanguageId]) -> Option<u64> {
        width::width(&self.exprs, parts, MAX_MEASURED)
    }

    /// Whether an engine that looks for the end of a string from wherever it is finds one soon, beside a count of the
    /// characters.
    pub(crate) fn can_count(&mut self, x: LanguageId, min: u64, max: Option<u64>) -> bool {
        let Some(dfa::Size { states, ranges }) = dfa::measure(&mut self.exprs, x) else { return false };
        let longest = max.unwrap_or(0).saturating_add(min.saturating_mul(states as u64));
        longest.saturating_mul(COUNT_STEPS + COUNT_STEPS_PER_RANGE * ranges as u64) <= MAX_COUNT_STEPS
    }

    /// Short texts, one of which leads to a string of the language from wherever the beginning of one may have
    /// got: first the shortest string as a whole, then the others, shortest first; none if there is too much to look
    /// at.
    pub(crate) fn completions(&mut self, x: LanguageId) -> Vec<String> {
        dfa::completions(&mut self.exprs, x)
    }

    /// The language as a regular expression, if it is small enough.
    pub(crate) fn print(&mut self, x: LanguageId, max_bytes: usize) -> Option<String> {
        if let Some(known) = self.printed.get(&x) {
            return known.clone();
        }
        let text = dfa::print(&mut self.exprs, x, max_bytes);
        // Once here, and once or more where it is written.
        self.exprs.hold(60 + text.as_ref().map_or(0, |text| 3 * text.len()));
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
        Ast::Empty | Ast::Start | Ast::End | Ast::Boundary { .. } | Ast::Look { .. } => Width::None,
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

/// Whether `^` or `$` stands where llguidance does not take it: anywhere but at the outer ends.
fn anchors_inside(ast: &Ast, first: bool, last: bool) -> bool {
    match ast {
        Ast::Start => !first,
        Ast::End => !last,
        Ast::Alt(list) => list.iter().any(|x| anchors_inside(x, first, last)),
        Ast::Concat(list) => {
            let head = list.iter().position(|x| !matches!(x, Ast::Start)).unwrap_or(list.len());
            let tail = list.iter().rposition(|x| !matches!(x, Ast::End)).map_or(0, |at| at + 1);
            list.iter().enumerate().any(|(i, x)| anchors_inside(x, first && i <= head, last && i + 1 >= tail))
        }
        Ast::Repeat(inner, _, _) | Ast::Look { inner, .. } => inner.asserts(),
        Ast::Empty | Ast::Class(_) | Ast::Boundary { .. } => false,
    }
}

/// Whether `$` is the only assertion inside.
fn only_end(ast: &Ast) -> bool {
    match ast {
        Ast::Start | Ast::Boundary { .. } | Ast::Look { .. } => false,
        Ast::Concat(list) | Ast::Alt(list) => list.iter().all(only_end),
        Ast::Repeat(inner, _, _) => only_end(inner),
        Ast::Empty | Ast::Class(_) | Ast::End => true,
    }
}

/// The same pattern where `$` never holds.
fn without_end(ast: &Ast) -> Ast {
    match ast {
        Ast::End => Ast::Alt(Vec::new()),
        Ast::Concat(list) => Ast::Concat(list.iter().map(without_end).collect()),
        Ast::Alt(list) => Ast::Alt(list.iter().map(without_end).collect()),
        Ast::Repeat(inner, min, max) => Ast::Repeat(Box::new(without_end(inner)), *min, *max),
        other => other.clone(),
    }
}

fn has_start(ast: &Ast) -> bool {
    match ast {
        Ast::Start => true,
        Ast::Concat(list) | Ast::Alt(list) => list.iter().any(has_start),
        Ast::Repeat(inner, _, _) | Ast::Look { inner, .. } => has_start(inner),
        Ast::Empty | Ast::Class(_) | Ast::End | Ast::Boundary { .. } => false,
    }
}

/// Steps that it may take to parse a pattern: a class is put together item by item, and a brace looks for the other one.
fn parse_cost(source: &str) -> usize {
    let (mut cost, mut from) = (0, None);
    let braces = source.bytes().filter(|&b| b == b'{').count();
    let ignores_case = source.contains("(?") && source.contains('i');
    let mut escaped = false;
    for (at, byte) in source.bytes().enumerate() {
        match byte {
            _ if escaped => {}
            b'[' if from.is_none() => from = Some(at),
            b']' => {
                let length = from.take().map_or(0, |from| at - from);
                cost += length * length / 64;
            }
            // Every letter of the range is added on its own.
            b'-' if ignores_case && from.is_some() => cost += 4000,
            _ => {}
        }
        escaped = byte == b'\\' && !escaped;
    }
    let open = from.map_or(0, |from| source.len() - from);
    cost + open * open / 64 + source.len() / 2 + braces * source.len() / 32
}

/// Rewrites a pattern into llguidance's dialect; `None` if it already means the same there, an error
/// if it cannot be written directly (look-ahead).
pub(crate) fn translate(source: &str, budget: &Budget) -> Result<Option<String>, PatternError> {
    if budget.spend(parse_cost(source) as u64).is_err() {
        return Err(PatternError::unsupported("the pattern is too complex"));
    }
    let ast = ecma::parse(source)?;
    if ast.looks_around() || anchors_inside(&ast, true, true) {
        return Err(PatternError::unsupported("look-ahead"));
    }
    let text = print::rewrite(source, &ast);
    Ok((text != source).then_some(text))
}

#[cfg(test)]
pub(crate) mod tests;
