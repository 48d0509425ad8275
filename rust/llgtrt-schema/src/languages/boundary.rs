//! Patterns with word boundaries (`\b`, `\B`). Whether one holds depends on the character before, so
//! what follows a part of a pattern is known for each kind of character before it.
//!
//! Pure; recursion is bounded by the depth of the tree.

use super::ecma::{Ast, PatternError, word};
use super::{ALL, EMPTY, LanguageId, Languages, NOTHING};

/// Rounds of a repetition with assertions inside that are written out.
const MAX_ROUNDS: u32 = 16;

/// What follows, if nothing, a word character or another character is before.
#[derive(Clone, Copy)]
struct After {
    nothing: LanguageId,
    word: LanguageId,
    other: LanguageId,
}

impl After {
    const ANY: After = After { nothing: ALL, word: ALL, other: ALL };
}

impl Languages {
    /// Strings in which `ast` finds a match anywhere.
    pub(super) fn search_boundaries(&mut self, ast: &Ast) -> Result<LanguageId, PatternError> {
        let found = self.before(ast, After::ANY)?;
        let later = self.ending_in(ALL, found);
        Ok(self.exprs.or([found.nothing, later]))
    }

    /// Texts of `language` that are not empty, each followed by what comes after its last character.
    fn ending_in(&mut self, language: LanguageId, after: After) -> LanguageId {
        let in_word = self.exprs.class(word());
        let outside = self.exprs.class(word().negate());
        let parts = [(in_word, after.word), (outside, after.other)].map(|(last, rest)| {
            let ends = self.exprs.concat(ALL, last);
            let part = self.exprs.and([language, ends]);
            self.exprs.concat(part, rest)
        });
        self.exprs.or(parts)
    }

    /// As `ast`, then as `after`.
    fn before(&mut self, ast: &Ast, after: After) -> Result<After, PatternError> {
        self.go_on()?;
        if !ast.asserts() {
            let language = self.lang(ast, EMPTY, false)?;
            let some = self.ending_in(language, after);
            if !self.exprs.nullable(language) {
                return Ok(After { nothing: some, word: some, other: some });
            }
            return Ok(self.either(After { nothing: some, word: some, other: some }, after));
        }
        Ok(match ast {
            Ast::Start => After { nothing: after.nothing, word: NOTHING, other: NOTHING },
            Ast::End => self.each(after, EMPTY),
            Ast::Boundary { negated } => self.boundary(*negated, after),
            Ast::Look { negated, inner } => {
                let ahead = self.before(inner, After::ANY)?;
                let list =
                    [(ahead.nothing, after.nothing), (ahead.word, after.word), (ahead.other, after.other)];
                let [nothing, word, other] = list.map(|(ahead, after)| {
                    let ahead = if *negated { self.exprs.not(ahead) } else { ahead };
                    self.exprs.and([ahead, after])
                });
                After { nothing, word, other }
            }
            Ast::Alt(list) => {
                let mut all = After { nothing: NOTHING, word: NOTHING, other: NOTHING };
                for option in list {
                    let option = self.before(option, after)?;
                    all = self.either(all, option);
                }
                all
            }
            Ast::Concat(list) => {
                let mut rest = after;
                for part in list.iter().rev() {
                    rest = self.before(part, rest)?;
                }
                rest
            }
            Ast::Repeat(inner, min, Some(max)) if *max <= MAX_ROUNDS => {
                let mut rest = after;
                for round in (0..*max).rev() {
                    let once = self.before(inner, rest)?;
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

    fn boundary(&mut self, negated: bool, after: After) -> After {
        let in_word = self.exprs.class(word());
        let word_next = self.exprs.concat(in_word, ALL);
        let none_next = self.exprs.not(word_next);
        let (word_next, none_next) = if negated { (none_next, word_next) } else { (word_next, none_next) };
        After {
            nothing: self.exprs.and([word_next, after.nothing]),
            word: self.exprs.and([none_next, after.word]),
            other: self.exprs.and([word_next, after.other]),
        }
    }

    fn each(&mut self, after: After, language: LanguageId) -> After {
        After {
            nothing: self.exprs.and([language, after.nothing]),
            word: self.exprs.and([language, after.word]),
            other: self.exprs.and([language, after.other]),
        }
    }

    fn either(&mut self, a: After, b: After) -> After {
        After {
            nothing: self.exprs.or([a.nothing, b.nothing]),
            word: self.exprs.or([a.word, b.word]),
            other: self.exprs.or([a.other, b.other]),
        }
    }
}
