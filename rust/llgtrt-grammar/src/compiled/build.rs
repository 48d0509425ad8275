//! From an admitted grammar to a compiled one: the parser, its first mask, and whether answers can end.

use std::sync::{Arc, OnceLock};

use llguidance::{CancellationHandle, ParserFactory, TokenParser};
use parking_lot::Mutex;
use toktrie::SimpleVob;

use super::locate::locate;
use super::rows::has_wider_row;
use super::{CompiledGrammar, Inner, MAX_LEARNED_BYTES, Size, Start, is_spoilt, lexer_bytes, mask_error};
use crate::GrammarConfig;
use crate::TokenEnv;
use crate::admission::{Admitted, Pairs};
use crate::lexer_guard::create_parser;
use crate::refusal::{Refusal, hint};
use crate::text::TOO_MANY_WAYS;
use crate::way_out::Hints;

/// What a compilation ended with, beside success.
pub(crate) enum Failure {
    /// The grammar is not usable.
    Refused(Refusal),
    /// The computation of the first mask was cancelled.
    Cancelled,
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// Compiles a grammar that passed the checks, and sees to it that answers can end. `on_cancellable` receives the
/// handles that stop a mask; the compilation itself cannot be stopped. `admitted` is left with the grammar that was
/// compiled in the end.
pub(crate) fn build(
    factory: &Arc<ParserFactory>,
    env: &Arc<TokenEnv>,
    kind: &'static str,
    admitted: &mut Admitted,
    config: &GrammarConfig,
    on_cancellable: impl Fn(CancellationHandle),
) -> Result<CompiledGrammar, Failure> {
    if !admitted.is_lark {
        return assemble(factory, env, kind, admitted, config, &on_cancellable);
    }
    let given = admitted.grammar.clone();
    for pairs in [Some(Pairs::Risky), None, Some(Pairs::All)] {
        admitted.grammar.clone_from(&given);
        if pairs.is_some_and(|pairs| !admitted.join(pairs)) {
            continue;
        }
        let grammar = match assemble(factory, env, kind, admitted, config, &on_cancellable) {
            Ok(grammar) => grammar,
            // As it was given it may be another matter.
            Err(Failure::Refused(_)) if pairs.is_some() => continue,
            Err(failure) => return Err(failure),
        };
        if !grammar.is_dead() {
            return Ok(grammar);
        }
    }
    Err(Refusal::new(
        "no answer under this grammar ends: some terminal also takes the text that is to follow it",
        "write a terminal and what ends it as one terminal, such as `TEXT: /[^”]*”/`",
    )
    .into())
}

/// What a grammar takes besides what llguidance counts for its lexer: alone, for each node of its regular expressions, for
/// each symbol. Measured (`tests/accounting.rs`).
const GRAMMAR_BYTES: usize = 12 << 10;
const NODE_BYTES: usize = 200;
const SYMBOL_BYTES: usize = 100;

/// The grammar and its first mask.
fn assemble(
    factory: &Arc<ParserFactory>,
    env: &Arc<TokenEnv>,
    kind: &'static str,
    admitted: &mut Admitted,
    config: &GrammarConfig,
    on_cancellable: &impl Fn(CancellationHandle),
) -> Result<CompiledGrammar, Failure> {
    let (mut parser, symbols, hints) = start(factory, admitted)?;
    let verification = admitted.verification(config.residual_attempts)?.map(Arc::new);
    parser.start_without_prompt();
    let warnings = parser.grammar_warnings();
    let (nodes, compiled) = (parser.parser.lexer_stats().num_ast_nodes, lexer_bytes(&parser));

    // Limits of the lexer and the parser show at the first mask, not before. It is computed on a
    // copy that can be cancelled, because a matcher with a handle checks it at every mask. The copy
    // shares its lexer, so that what this mask builds is kept.
    let mut probe = llguidance::Matcher::new(Ok(parser.clone())).into_cancellable();
    if let Some(handle) = probe.cancellation_handle() {
        on_cancellable(handle);
    }
    if probe.is_stopped() {
        return Err(only_the_empty_text());
    }
    let first_mask = match probe.compute_mask() {
        Ok(mask) => mask,
        Err(_) if probe.is_cancelled() => return Err(Failure::Cancelled),
        Err(_) if is_spoilt(&parser) && admitted.intersects() && admitted.rewrite(false)? => {
            return assemble(factory, env, kind, admitted, config, on_cancellable);
        }
        Err(error) => return Err(Refusal::new(mask_error(&error.to_string()), hint::SIMPLER).into()),
    };
    if allows_only_eos(&first_mask, env) {
        return Err(only_the_empty_text());
    }
    // No grammar of fewer symbols has a row that is too wide.
    let most_items = config.limits.max_items_in_row;
    if symbols > most_items && has_wider_row(parser.parser.grammar(), most_items) {
        return Err(Refusal::new(mask_error(TOO_MANY_WAYS), hint::FEWER_WAYS).into());
    }
    drop(probe);
    let most = compiled + MAX_LEARNED_BYTES;
    // A mask follows a text that is the only one to its end: what that takes, each sequence builds for itself.
    if lexer_bytes(&parser) > most {
        admitted.restore()?;
        (parser, _) = create_parser(factory, admitted.take_grammar(), false)
            .map_err(|error| located(factory, admitted, &error))?;
        parser.start_without_prompt();
    }
    let lexer_bytes = lexer_bytes(&parser);
    let hints = hints.with_factory(factory);
    let bytes = GRAMMAR_BYTES
        + lexer_bytes
        + nodes * NODE_BYTES
        + symbols * SYMBOL_BYTES
        + first_mask.len() / 4
        + hints.bytes()
        + verification.as_ref().map_or(0, |plan| plan.bytes());
    let inner = Inner {
        start: Mutex::new(Start { parser: Box::new(parser), lexer_bytes, most }),
        size: Mutex::new(Size { bytes, account: None }),
        first_mask,
        way_out: OnceLock::new(),
        hints,
        env: Arc::clone(env),
        kind,
        symbols,
        warnings,
        verification,
        most_digits: admitted.notes.most_digits,
    };
    Ok(CompiledGrammar::bare(Arc::new(inner)))
}

/// A parser of the grammar, or of what the schema is rewritten into: what looked plain may be beyond llguidance
/// (patterns that overlap, for instance), and so may be what it would have to intersect.
fn start(factory: &ParserFactory, admitted: &mut Admitted) -> Result<(TokenParser, usize, Hints), Failure> {
    let create = |admitted: &mut Admitted| {
        let hints = Hints::of(&admitted.grammar, admitted.is_schema);
        let has_expressions = admitted.has_expressions();
        create_parser(factory, admitted.take_grammar(), has_expressions)
            .map(|(parser, symbols)| (parser, symbols, hints))
    };
    let mut result = create(admitted);
    let ways: &[bool] = if admitted.is_direct() { &[true, false] } else { &[false] };
    for &intersects in ways {
        let Err(error) = result else { break };
        if !admitted.rewrite(intersects)? {
            return Err(located(factory, admitted, &error));
        }
        result = create(admitted).map_err(|_| error);
    }
    result.map_err(|error| located(factory, admitted, &error))
}

fn located(factory: &ParserFactory, admitted: &Admitted, error: &anyhow::Error) -> Failure {
    locate(factory, admitted, error).into()
}

fn only_the_empty_text() -> Failure {
    Refusal::new("the grammar allows only the empty text", hint::NOT_EMPTY).into()
}

fn allows_only_eos(mask: &SimpleVob, env: &TokenEnv) -> bool {
    mask.iter().all(|token| env.is_eos(token))
}
