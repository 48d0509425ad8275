//! Bounds the one part of llguidance's compilation that it does not bound itself. Runs on a compile thread.
//!
//! Before a parser exists, llguidance computes the lexer's first transitions, and for each whether the
//! rest of a regular expression can match anything, without fuel: an intersection of a few patterns was
//! measured to take minutes and more than 16 GB. Here the same transitions are computed first, on a lexer
//! of our own that has fuel; what they cost there they cost again, so grammars that intersect and complement nothing
//! are spared it.

use std::panic::{AssertUnwindSafe, catch_unwind};

use llguidance::api::{GrammarInit, ParserLimits, TopLevelGrammar};
use llguidance::derivre::ExprRef;
use llguidance::earley::lexerspec::LexerSpec;
use llguidance::{ParserFactory, TokenParser};

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
    let checked = catch_unwind(AssertUnwindSafe(|| {
        let limits = factory.limits();
        let (grammar, lexer) =
            GrammarInit::Serialized(grammar).to_internal(Some(factory.tok_env().clone()), limits.clone())?;
        if has_expressions && has_doubts(&lexer) {
            check_start(&lexer, limits)?;
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

fn check_start(lexer: &LexerSpec, limits: &ParserLimits) -> anyhow::Result<()> {
    let mut regexes = lexer.to_regex_vec(&mut limits.clone())?;
    regexes.set_fuel(limits.initial_lexer_fuel);
    let start = regexes.initial_state(&lexer.all_lexemes());
    for byte in 0..=u8::MAX {
        regexes.transition(start, byte);
        if regexes.has_error() {
            anyhow::bail!("the regular expressions are too complex to intersect");
        }
    }
    Ok(())
}
