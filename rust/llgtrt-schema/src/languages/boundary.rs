//! Patterns with word boundaries (`\b`, `\B`). Whether one holds depends on the character before, so
//! what follows a part of a pattern is known for each kind of character before it.
//!
//! ECMA-262 knows words of ASCII only, most libraries those of Unicode. What is offered is what both take:
//! there, a boundary is never beside a character outside of ASCII.
//!
//! Pure; recursion is bounded by the depth of the tree.

use super::chars::Chars;
use super::ecma::{Ast, PatternError, word};
use super::{ALL, EMPTY, LanguageId, Languages, NOTHING};

/// Rounds of a repetition with assertions inside that are written out.
const MAX_ROUNDS: u32 = 16;

/// Longest pattern that is written for one with word boundaries, in bytes.
const MAX_BYTES: usize = 24_000;

/// What follows, if nothing, a word character, another character, or one of which opinions differ is
/// before.
#[derive(Clone, Copy)]
struct After {
    nothing: LanguageId,
    word: LanguageId,
    other: LanguageId,
    unclear: LanguageId,
}

/// The kinds of characters.
#[derive(Clone, Copy)]
struct Words {
    inside: LanguageId,
    outside: LanguageId,
    unclear: LanguageId,
}

impl After {
    const ANY: After = After::same(ALL);

    const fn same(language: LanguageId) -> After {
        After { nothing: language, word: language, other: language, unclear: language }
    }
}

impl Languages {
    /// Strings in which `ast` finds a match anywhere, by ECMA-262.
    pub(super) fn search_boundaries(&mut self, ast: &Ast) -> Result<LanguageId, PatternError> {
        let words = Words {
            inside: self.exprs.class(word()),
            outside: self.exprs.class(word().negate()),
            unclear: NOTHING,
        };
        self.search_words(ast, words)
    }

    /// A pattern for strings in which libraries that know Unicode find a match as well.
    pub(super) fn common_boundaries(&mut self, ast: &Ast, language: LanguageId) -> Option<String> {
        let ascii = Chars::new([(0, 127)]);
        let words = Words {
            inside: self.exprs.class(word()),
            outside: self.exprs.class(word().union(&ascii.negate()).negate()),
            unclear: self.exprs.class(ascii.negate()),
        };
        let common = self.search_words(ast, words).ok()?;
        let both = self.exprs.and([language, common]);
        self.print(both, MAX_BYTES)
    }

    fn search_words(&mut self, ast: &Ast, words: Words) -> Result<LanguageId, PatternError> {
        let found = self.before(ast, After::ANY, words)?;
        let later = self.ending_in(ALL, found, words);
        Ok(self.exprs.or([found.nothing, later]))
    }

    /// Texts of `language` that are not empty, each followed by what comes after its last character.
    fn ending_in(&mut self, language: LanguageId, after: After, words: Words) -> LanguageId {
        let parts =
            [(words.inside, after.word), (words.outside, after.other), (words.unclear, after.unclear)].map(
                |(last, rest)| {
                    let ends = self.exprs.concat(ALL, last);
                    let part = self.exprs.and([language, ends]);
                    self.exprs.concat(part, rest)
                },
            );
        self.exprs.or(parts)
    }

    /// As `ast`, then as `after`.
    fn before(&mut self, ast: &Ast, after: After, words: Words) -> Result<After, PatternError> {
        self.go_on()?;
        if !ast.asserts() {
            let language = self.lang(ast, EMPTY, false)?;
            let some = self.ending_in(language, after, words);
            let some = After::same(some);
            return Ok(if self.exprs.nullable(language) { self.either(some, after) } else { some });
        }
        Ok(match ast {
            Ast::Start => After { nothing: after.nothing, ..After::same(NOTHING) },
            Ast::End => self.each(after, EMPTY),
            Ast::Boundary { negated } => self.boundary(*negated, after, words),
            Ast::Look { negated: true, inner } if inner.has_boundary() && words.unclear != NOTHING => {
                return Err(PatternError::unsupported("not all strings without a match are common ones"));
            }
            Ast::Look { negated, inner } => {
                let ahead = self.before(inner, After::ANY, words)?;
                let mut both = |ahead, after| {
                    let ahead = if *negated { self.exprs.not(ahead) } else { ahead };
                    self.exprs.and([ahead, after])
                };
                After {
                    nothing: both(ahead.nothing, after.nothing),
                    word: both(ahead.word, after.word),
                    other: both(ahead.other, after.other),
                    unclear: both(ahead.unclear, after.unclear),
                }
            }
            Ast::Alt(list) => {
                let mut all = After::same(NOTHING);
                for option in list {
                    let option = self.before(option, after, words)?;
                    all = self.either(all, option);
                }
                all
            }
            Ast::Concat(list) => {
                let mut rest = after;
                for part in list.iter().rev() {
                    rest = self.before(part, rest, words)?;
                }
                rest
            }
            Ast::Repeat(inner, min, Some(max)) if *max <= MAX_ROUNDS => {
                let mut rest = after;
                for round in (0..*max).rev() {
                    let once = self.before(inner, rest, words)?;
                    rest = if round < *min { once } else { self.either(once, after) };
                }
                rest
            }
            Ast::Repeat(..) => {
                return Err(PatternError::unsupported(
                    "assertions inside a repetition without end are not supported",
                ));
            }
            Ast::Empty | Ast::Class(_) => after,
        })
    }

    fn boundary(&mut self, negated: bool, after: After, words: Words) -> After {
        let word_next = self.exprs.concat(words.inside, ALL);
        let none_next = self.exprs.concat(words.outside, ALL);
        let none_next = self.exprs.or([EMPTY, none_next]);
        let (word_next, none_next) = if negated { (none_next, word_next) } else { (word_next, none_next) };
        After {
            nothing: self.exprs.and([word_next, after.nothing]),
            word: self.exprs.and([none_next, after.word]),
            other: self.exprs.and([word_next, after.other]),
            unclear: NOTHING,
        }
    }

    fn each(&mut self, after: After, language: LanguageId) -> After {
        After {
            nothing: self.exprs.and([language, after.nothing]),
            word: self.exprs.and([language, after.word]),
            other: self.exprs.and([language, after.other]),
            unclear: self.exprs.and([language, after.unclear]),
        }
    }

    fn either(&mut self, a: After, b: After) -> After {
        After {
            nothing: self.exprs.or([a.nothing, b.nothing]),
            word: self.exprs.or([a.word, b.word]),
            other: self.exprs.or([a.other, b.other]),
            unclear: self.exprs.or([a.unclear, b.unclear]),
        }
    }
}
