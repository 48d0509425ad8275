//! A compiled grammar: the matcher that sequences start from, and its first mask.
//!
//! Built on a compile thread; shared and immutable afterwards.

mod locate;

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use llgtrt_core::{Result, TokenId};
use llgtrt_schema::{Rule, path};
use llguidance::{CancellationHandle, ParserFactory, TokenParser};
use parking_lot::Mutex;
use serde_json::Value;
use toktrie::SimpleVob;

use self::locate::locate;
use crate::EndCheck;
use crate::GrammarConfig;
use crate::TokenEnv;
use crate::admission::{Admitted, Notes, Pairs};
use crate::lexer_guard::create_parser;
use crate::matcher::Matcher;
use crate::refusal::{Refusal, hint};
use crate::text::first_line;
use crate::verify::{Allowance, Plan, Trial, Verifier};
use crate::way_out::{Answer, Checked, Found, Hints, Query, Quoting, Strings, Style};

/// What a sequence has to add to the lexer before it is kept, in bytes.
const MIN_LEARNED_BYTES: usize = 16 << 10;

/// What may be kept beyond the lexer that was compiled, in bytes.
const MAX_LEARNED_BYTES: usize = 8 << 20;

/// Longest run that counts as the shortest answer, in tokens.
const MAX_SHORTEST: usize = 4096;

/// A grammar that is ready for use. Cloning copies a pointer.
#[derive(Clone)]
pub struct CompiledGrammar {
    inner: Arc<Inner>,
    /// Of the request's own text: others whose meaning is the same share the grammar.
    facts: Arc<GrammarFacts>,
    cached: bool,
}

/// What became of a grammar's text on its way, for the receipts of answers.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GrammarFacts {
    /// Rules by which answers may lack what the standard allows, each once.
    pub narrowing: Vec<&'static str>,
    /// Paths of the keywords that the grammar does not hold.
    pub residual: Vec<String>,
    /// From the text to the first mask.
    pub compile_time: Duration,
}

impl GrammarFacts {
    pub(crate) fn new(notes: &Notes, compile_time: Duration) -> Self {
        let mut narrowing: Vec<&'static str> = Vec::new();
        for used in &notes.rules {
            if Rule::narrows(used.rule) && !narrowing.contains(&used.rule) {
                narrowing.push(used.rule);
            }
        }
        let mut residual: Vec<String> = Vec::new();
        let mut known = HashSet::new();
        for left in &notes.residual {
            let mut path = left.path.clone();
            if !left.keyword.is_empty() {
                path::push_key(&mut path, &left.keyword);
            }
            // One keyword may be left open for several places of an answer.
            if known.insert(path.clone()) {
                residual.push(path);
            }
        }
        Self { narrowing, residual, compile_time }
    }

    /// Memory, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let paths = self.residual.iter().map(|path| size_of_val(path) + path.capacity()).sum::<usize>();
        size_of_val(self) + size_of_val(&*self.narrowing) + paths
    }
}

/// Bytes of the grammars in a cache, as the cache and the grammars count them.
pub(crate) type Account = Arc<AtomicUsize>;

/// A grammar that is gone when nobody else holds it.
pub(crate) struct WeakGrammar {
    inner: Weak<Inner>,
}

impl WeakGrammar {
    /// The grammar, for another text of the same meaning.
    pub(crate) fn upgrade(&self) -> Option<CompiledGrammar> {
        self.inner.upgrade().map(CompiledGrammar::bare)
    }
}

struct Inner {
    start: Mutex<Start>,
    size: Mutex<Size>,
    first_mask: SimpleVob,
    /// The shortest answer that was found, once somebody asked.
    way_out: OnceLock<Shortest>,
    /// What answers may be completed with.
    hints: Hints,
    env: Arc<TokenEnv>,
    kind: &'static str,
    symbols: usize,
    warnings: Vec<String>,
    verification: Option<Arc<Plan>>,
    most_digits: Option<usize>,
}

/// What the search for the shortest answer ended with.
struct Shortest {
    found: Found,
    style: Style,
    /// The check beside the grammar followed to the end, or there is none.
    is_right: bool,
}

/// Estimated memory. Its lock is held for an instant only, unlike that of [`Start`].
struct Size {
    bytes: usize,
    /// Of the cache that holds the grammar, and how many of its keys lead to it.
    account: Option<(Account, usize)>,
}

/// The parser that sequences start from. It never moves, but it learns: llguidance builds the
/// states of its lexer when they are first needed, and those that one sequence needed, the next
/// ones start with. That halves the time of most masks.
struct Start {
    parser: TokenParser,
    /// Of its lexer.
    lexer_bytes: usize,
    /// Which it may grow to.
    most: usize,
}

/// What a new sequence gets.
pub(crate) struct Copy {
    /// Moves over the sequence's tokens.
    pub(crate) matcher: Matcher,
    /// Stays at the start, and shares its lexer with `matcher` and with nobody else.
    pub(crate) start: TokenParser,
    /// What that lexer takes now.
    pub(crate) lexer_bytes: usize,
}

impl std::fmt::Debug for CompiledGrammar {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CompiledGrammar").field("kind", &self.kind()).field("bytes", &self.bytes()).finish()
    }
}

impl CompiledGrammar {
    fn bare(inner: Arc<Inner>) -> Self {
        Self { inner, facts: Arc::default(), cached: false }
    }

    pub(crate) fn with_facts(self, facts: GrammarFacts) -> Self {
        Self { facts: Arc::new(facts), ..self }
    }

    pub(crate) fn as_cached(&self) -> Self {
        Self { cached: true, ..self.clone() }
    }

    /// What became of the text.
    pub fn facts(&self) -> &GrammarFacts {
        &self.facts
    }

    /// Whether it was compiled before it was asked for.
    pub fn is_cached(&self) -> bool {
        self.cached
    }

    /// The kind of the specification, such as `json_schema`.
    pub fn kind(&self) -> &'static str {
        self.inner.kind
    }

    /// Estimated memory, in bytes. Grows while the grammar learns.
    pub fn bytes(&self) -> usize {
        self.inner.size.lock().bytes
    }

    /// From now on the account counts the grammar, once for any number of keys.
    pub(crate) fn enter(&self, account: &Account) {
        let mut size = self.inner.size.lock();
        let bytes = size.bytes;
        match &mut size.account {
            Some((_, keys)) => *keys += 1,
            none => {
                account.fetch_add(bytes, Ordering::Relaxed);
                *none = Some((Arc::clone(account), 1));
            }
        }
    }

    /// One key less leads to the grammar; without any, it is not counted.
    pub(crate) fn leave(&self) {
        let mut size = self.inner.size.lock();
        let bytes = size.bytes;
        if let Some((account, keys)) = &mut size.account {
            *keys -= 1;
            if *keys == 0 {
                account.fetch_sub(bytes, Ordering::Relaxed);
                size.account = None;
            }
        }
    }

    pub(crate) fn downgrade(&self) -> WeakGrammar {
        WeakGrammar { inner: Arc::downgrade(&self.inner) }
    }

    /// Size of the grammar, in symbols; what [`GrammarLimits::max_grammar_size`](crate::GrammarLimits) bounds.
    pub fn symbols(&self) -> usize {
        self.inner.symbols
    }

    /// What llguidance only approximates (an `x-guidance` with `lenient`, for instance).
    pub fn warnings(&self) -> &[String] {
        &self.inner.warnings
    }

    /// Whether answers are checked beside the grammar, and tokens may be taken back
    /// ([`AdvanceState::Retract`](llgtrt_core::AdvanceState::Retract)).
    pub fn is_verified(&self) -> bool {
        self.inner.verification.is_some()
    }

    /// What the check beside the grammar says of a value that the grammar accepts: `None` if it takes more steps
    /// than a check may take. True where the grammar leaves nothing open.
    pub fn left_open(&self, value: &Value) -> Option<bool> {
        self.inner.verification.as_ref().map_or(Some(true), |plan| plan.judge(value))
    }

    /// How many digits masks let a number have before its point, where they keep numbers short.
    pub(crate) fn most_digits(&self) -> Option<usize> {
        self.inner.most_digits
    }

    /// What is to be checked beside the grammar.
    pub(crate) fn verification(&self) -> Option<&Arc<Plan>> {
        self.inner.verification.as_ref()
    }

    /// A matcher at the start of the grammar, independent of all others.
    pub(crate) fn copy(&self) -> Copy {
        let start = self.inner.start.lock();
        // `clone()` alone would share the lexer, and its lock, with every other sequence.
        let (parser, lexer_bytes) = (start.parser.deep_clone(), start.lexer_bytes);
        drop(start);
        Copy { matcher: Matcher::new(parser.clone()), start: parser, lexer_bytes }
    }

    /// Keeps what a sequence learned; `start` is its [`Copy::start`].
    pub(crate) fn learn(&self, start: TokenParser) {
        let lexer_bytes = lexer_bytes(&start);
        let mut kept = self.inner.start.lock();
        if (kept.lexer_bytes + MIN_LEARNED_BYTES..=kept.most).contains(&lexer_bytes) && !is_spoilt(&start) {
            let learned = Start { parser: start, lexer_bytes, most: kept.most };
            let old = std::mem::replace(&mut *kept, learned);
            drop(kept);
            self.grow(lexer_bytes - old.lexer_bytes);
        }
    }

    /// The grammar takes so many bytes more.
    fn grow(&self, by: usize) {
        let mut size = self.inner.size.lock();
        size.bytes += by;
        if let Some((account, _)) = &size.account {
            account.fetch_add(by, Ordering::Relaxed);
        }
    }

    /// Follows a text of this grammar, to tell where it may end.
    pub fn end_check(&self) -> EndCheck {
        EndCheck::new(self.copy().matcher, Arc::clone(self.env()), self.is_verified())
    }

    /// A short answer, in tokens; `None` if none was found within the bounds of the search. An answer with
    /// fewer tokens may exist, though rarely. Needs a big stack; the first call takes some milliseconds.
    pub fn way_out(&self) -> Option<&[TokenId]> {
        match &self.shortest().found {
            Found::Way(run) => Some(run),
            Found::TooLong | Found::Dead | Found::Unknown => None,
        }
    }

    fn shortest(&self) -> &Shortest {
        self.inner.way_out.get_or_init(|| {
            let copy = self.copy();
            let Inner { env, hints, .. } = &*self.inner;
            let verification = self.inner.verification.as_ref();
            let verifier = verification.map(|plan| Verifier::new(Arc::clone(plan), Arc::clone(env)));
            let mut checked = verifier.as_ref().map(|verifier| Checked {
                trial: Trial::new(verifier, Allowance::turn().search()),
                strings: Strings::default(),
            });
            let query = Query {
                matcher: &copy.matcher,
                env,
                hints,
                quoting: Quoting::default(),
                checked: checked.as_mut(),
                most: MAX_SHORTEST,
                first: Style::Plain,
            };
            let Answer { found, style, .. } = query.find_first();
            let is_right = checked.is_none_or(|checked| checked.trial.into_rest().1);
            self.learn(copy.start);
            self.grow(hints.learned_bytes() + found.bytes());
            Shortest { found, style, is_right }
        })
    }

    /// How the way out was found, and whether it is right by the check beside the grammar as well.
    pub(crate) fn way_out_traits(&self) -> (Style, bool) {
        let Shortest { style, is_right, .. } = self.shortest();
        (*style, *is_right)
    }

    /// Whether no answer can end, as far as a bounded search tells.
    fn is_dead(&self) -> bool {
        matches!(self.shortest().found, Found::Dead)
    }

    /// What answers may be completed with.
    pub(crate) fn hints(&self) -> &Hints {
        &self.inner.hints
    }

    /// The mask of the first token.
    pub(crate) fn first_mask(&self) -> &SimpleVob {
        &self.inner.first_mask
    }

    /// The tokenizer it was compiled for.
    pub(crate) fn env(&self) -> &Arc<TokenEnv> {
        &self.inner.env
    }
}

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
        start: Mutex::new(Start { parser, lexer_bytes, most }),
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

/// Estimated memory of what a parser's lexer has built, in bytes, with the room that its tables have to grow. Fitted to
/// what was measured; llguidance's own count is from a half to twice of that.
pub(crate) fn lexer_bytes(parser: &TokenParser) -> usize {
    let lexer = parser.parser.lexer_stats();
    let built = lexer.num_states * (lexer.alphabet_size * 13 / 2 + 220 + lexer.num_regexps / 8)
        + lexer.num_derived * 45
        + lexer.num_derivatives * 25;
    // With many terminals most of it is in the lists of those that are possible in a state.
    built.max(lexer.num_bytes / 4 * 3)
}

/// Whether the lexer has reached one of its limits, and is of no further use.
fn is_spoilt(parser: &TokenParser) -> bool {
    parser.parser.lexer_stats().error
}

fn only_the_empty_text() -> Failure {
    Refusal::new("the grammar allows only the empty text", hint::NOT_EMPTY).into()
}

fn allows_only_eos(mask: &SimpleVob, env: &TokenEnv) -> bool {
    mask.iter().all(|token| env.is_eos(token))
}

/// The message for a mask that could not be computed.
pub(crate) fn mask_error(message: &str) -> String {
    let message = first_line(message);
    if message == "NoExtensionBias" {
        return "the grammar allows no text at this point".to_owned();
    }
    format!("the grammar is too complex: {message}")
}
