//! Bounds the one part of llguidance's compilation that it does not bound itself. Runs on a compile thread.
//!
//! Before a parser exists, llguidance computes the lexer's first transitions, and for each whether the
//! rest of a regular expression can match anything, without fuel: an intersection of a few patterns was
//! measured to take minutes and more than 16 GB. Here the same transitions are computed first, on a lexer
//! of our own that has fuel; what they cost there they cost again, so grammars that intersect and complement nothing
//! are spared it.

use std::collections::{HashSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};

use llgtrt_schema::width::{Expressions, MOST_WIDTH, Shape, width};
use llguidance::api::{GrammarInit, ParserLimits, TopLevelGrammar};
use llguidance::derivre::ExprRef;
use llguidance::derivre::raw::ExprSet;
use llguidance::earley::lexerspec::{LexemeIdx, LexerSpec};
use llguidance::earley::regexvec::{NextByte, RegexVec, StateID};
use llguidance::{ParserFactory, TokenParser};

/// Expressions whose width is worked out at most: some ten milliseconds.
const MAX_MEASURED: usize = 10_000;

/// States of one lexeme that are looked at.
const EXPLORED_STATES: usize = 8;

/// States of a lexeme that are looked at though they are cheap: it may be a word, or a plain pattern.
const CHEAP_STATES: usize = 3;

/// Fuel that these may take all together.
const CHEAP_FUEL: u64 = 1000;

/// Lexemes that are looked at.
const EXPLORED_LEXEMES: usize = 100;

/// Fuel after which no further state is looked at: some ten milliseconds.
const EXPLORED_FUEL: u64 = 500_000;

/// States as dear as the dearest that a mask has fuel for.
const MASK_STATES: u64 = 2;

/// Parts that may be left out, each with something behind it, from which on a lexer is looked at. Behind each of them all
/// that follow may come next, and behind those again: a byte costs as much as there are pairs of them.
const MOST_OPTIONAL: usize = 64;

/// As [`MASK_STATES`], of lexers with more of them: they cost the same at every byte of a token.
const MASK_STATES_OF_OPTIONAL: u64 = 32;

/// Creates a parser, unless its lexer cannot start within the limits, and says how many symbols the grammar has.
/// Without `has_expressions` it consists of words, lengths and bounds: what is intersected of these (the keys that an
/// object does not name, for instance) soon differs from every word, and needs no check.
///
/// # Errors
/// llguidance refuses the grammar, or its lexer needs more than `initial_lexer_fuel`.
pub(crate) fn create_parser(
    factory: &ParserFactory,
    grammar: TopLevelGrammar,
    has_expressions: bool,
) -> anyhow::Result<(TokenParser, usize)> {
    // llguidance catches its own panics in the call below; this part of it has to be caught here.
    let has_lark = grammar.grammars.iter().any(|part| part.lark_grammar.is_some());
    let checked = catch_unwind(AssertUnwindSafe(|| {
        let limits = factory.limits();
        let (grammar, lexer) =
            GrammarInit::Serialized(grammar).to_internal(Some(factory.tok_env().clone()), limits.clone())?;
        if has_expressions && has_doubts(&lexer) {
            // Those of a schema were looked at before llguidance had them.
            if has_lark {
                check_widths(&lexer)?;
            }
            check_start(&lexer, limits, MASK_STATES)?;
        } else if has_expressions && optional_parts(&lexer) > MOST_OPTIONAL {
            check_start(&lexer, limits, MASK_STATES_OF_OPTIONAL)?;
        }
        anyhow::Ok((grammar, lexer))
    }));
    let (grammar, lexer) = checked.unwrap_or_else(|_| anyhow::bail!("the grammar cannot be read"))?;
    let symbols = grammar.num_symbols();
    let parser = factory.create_parser_from_init_default(GrammarInit::Internal(grammar, lexer))?;
    Ok((parser, symbols))
}

/// Whether some regular expression is not known to match anything. That is so of intersections and complements alone,
/// and what is left of other expressions after some text has none of them.
fn has_doubts(lexer: &LexerSpec) -> bool {
    let expressions = lexer.regex_builder.exprset();
    (1..expressions.len() as u32)
        .map(ExprRef::new)
        .filter(|&expression| expression != ExprRef::NO_MATCH && expressions.is_valid(expression))
        .any(|expression| !expressions.is_positive(expression))
}

/// Parts that may be left out before others.
fn optional_parts(lexer: &LexerSpec) -> usize {
    let expressions = lexer.regex_builder.exprset();
    (1..expressions.len() as u32)
        .map(ExprRef::new)
        .filter(|&id| expressions.is_valid(id))
        .filter(|&id| {
            matches!(expressions.get_args(id), &[head, _] if expressions.is_nullable(head))
                && format!("{:?}", expressions.get_tag(id)) == "Concat"
        })
        .count()
}

/// What llguidance pays for a single byte of an intersection it pays all at once, whatever fuel there is.
fn check_widths(lexer: &LexerSpec) -> anyhow::Result<()> {
    let expressions = Lexemes(lexer.regex_builder.exprset());
    for id in (1..expressions.0.len() as u32).map(ExprRef::new).filter(|&id| expressions.0.is_valid(id)) {
        if let Shape::And(parts) = expressions.shape(Place::Whole(id)) {
            let width = width(&expressions, &parts, MAX_MEASURED);
            anyhow::ensure!(
                width.is_some_and(|width| width <= MOST_WIDTH),
                "the regular expressions are too complex to intersect"
            );
        }
    }
    Ok(())
}

/// llguidance's expressions, of bytes.
struct Lexemes<'a>(&'a ExprSet);

/// An expression, or the first byte of one that begins with a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Place {
    Whole(ExprRef),
    FirstByte(ExprRef),
}

impl Expressions for Lexemes<'_> {
    type Id = Place;

    fn shape(&self, place: Place) -> Shape<Place> {
        let bytes = |id| {
            let expression = self.0.get(id);
            Shape::Bytes(Box::new(std::array::from_fn(|byte| expression.matches_byte(byte as u8))))
        };
        let id = match place {
            Place::FirstByte(id) => return bytes(id),
            Place::Whole(id) => id,
        };
        let parts: Vec<Place> = self.0.get_args(id).iter().copied().map(Place::Whole).collect();
        // The kinds have a name in messages alone.
        match (&*format!("{:?}", self.0.get_tag(id)), &*parts) {
            ("Byte" | "ByteSet", _) => bytes(id),
            ("ByteConcat", &[rest]) => Shape::Concat(Place::FirstByte(id), rest),
            ("Concat", &[a, b]) => Shape::Concat(a, b),
            ("Repeat", &[inner]) => Shape::Repeat { inner, exact: false },
            ("Or" | "Lookahead", _) => Shape::Or(parts),
            ("And", _) => Shape::And(parts),
            ("EmptyString" | "NoMatch", _) => Shape::Nothing,
            // Complements and multiples have one way on at each byte.
            _ => Shape::Not(place),
        }
    }

    fn nullable(&self, place: Place) -> bool {
        matches!(place, Place::Whole(id) if self.0.is_nullable(id))
    }
}

fn check_start(lexer: &LexerSpec, limits: &ParserLimits, mask_states: u64) -> anyhow::Result<()> {
    let mut regexes = lexer.to_regex_vec(&mut limits.clone())?;
    regexes.set_fuel(limits.initial_lexer_fuel);
    let bytes = distinct_bytes(&regexes);
    let start = regexes.initial_state(&lexer.all_lexemes());
    successors(&mut regexes, start, &bytes)?;
    // One by one, as far as that is cheap: together they have too many states.
    let most = regexes.total_fuel_spent() + EXPLORED_FUEL;
    for index in 0..lexer.lexemes.len().min(EXPLORED_LEXEMES) {
        let mut alone = lexer.alloc_lexeme_set();
        alone.add(LexemeIdx::new(index));
        let start = regexes.initial_state(&alone);
        explore(&mut regexes, start, &bytes, most, limits.step_lexer_fuel / mask_states)?;
    }
    Ok(())
}

/// One byte of each kind that the lexer tells from others, in their order.
fn distinct_bytes(regexes: &RegexVec) -> Vec<u8> {
    let mut seen = HashSet::new();
    (0..=u8::MAX).filter(|&byte| seen.insert(regexes.alpha().map(byte))).collect()
}

/// Follows some texts of a lexeme: what a state costs that an answer may get to has to fit into one mask. What is
/// looked for there (an end, beside lengths that are counted) is mostly dearest where an answer begins, while nothing
/// is known of what follows.
fn explore(
    regexes: &mut RegexVec,
    start: StateID,
    bytes: &[u8],
    most: u64,
    state_fuel: u64,
) -> anyhow::Result<()> {
    let mut seen = HashSet::from([start]);
    let mut open = VecDeque::from([start]);
    let before = regexes.total_fuel_spent();
    for done in 0.. {
        let Some(state) = open.pop_front() else { break };
        let spent = regexes.total_fuel_spent();
        if spent > most || (done == CHEAP_STATES && spent - before < CHEAP_FUEL) {
            break;
        }
        regexes.set_fuel(state_fuel);
        for next in successors(regexes, state, bytes)? {
            if seen.len() < EXPLORED_STATES && seen.insert(next) {
                open.push_back(next);
            }
        }
    }
    Ok(())
}

/// The states behind a state, in the order of the bytes.
fn successors(regexes: &mut RegexVec, state: StateID, bytes: &[u8]) -> anyhow::Result<Vec<StateID>> {
    let forced = match regexes.next_byte(state) {
        NextByte::ForcedByte(byte) => Some([byte]),
        _ => None,
    };
    let mut list = Vec::new();
    for &byte in forced.as_ref().map_or(bytes, |one| one) {
        let next = regexes.transition(state, byte);
        if regexes.has_error() {
            anyhow::bail!("the regular expressions are too complex");
        }
        if !next.is_dead() && !list.contains(&next) {
            list.push(next);
        }
    }
    Ok(list)
}
