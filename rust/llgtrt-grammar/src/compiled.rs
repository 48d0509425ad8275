//! A compiled grammar: the matcher that sequences start from, and its first mask.
//!
//! Built on a compile thread; shared and immutable afterwards.

mod build;
mod locate;
mod rows;

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use llgtrt_core::TokenId;
use llgtrt_schema::{Rule, path};
use llguidance::TokenParser;
use parking_lot::Mutex;
use serde_json::Value;
use toktrie::SimpleVob;

pub(crate) use self::build::{Failure, build};
use crate::EndCheck;
use crate::TokenEnv;
use crate::admission::Notes;
use crate::matcher::Matcher;
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

/// What a [`WeakGrammar`] keeps of one that is gone, in bytes: its place in memory is given back when both are.
const MOST_KEPT_BYTES: usize = 512;
const _: () = assert!(size_of::<Inner>() <= MOST_KEPT_BYTES);

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
    parser: Box<TokenParser>,
    /// Of its lexer.
    lexer_bytes: usize,
    /// Which it may grow to.
    most: usize,
}

/// What a new sequence gets.
pub(crate) struct GrammarCopy {
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
    pub(crate) fn copy(&self) -> GrammarCopy {
        let start = self.inner.start.lock();
        // `clone()` alone would share the lexer, and its lock, with every other sequence.
        let (parser, lexer_bytes) = (start.parser.deep_clone(), start.lexer_bytes);
        drop(start);
        GrammarCopy { matcher: Matcher::new(parser.clone()), start: parser, lexer_bytes }
    }

    /// Keeps what a sequence learned; `start` is its [`GrammarCopy::start`].
    pub(crate) fn learn(&self, start: TokenParser) {
        let lexer_bytes = lexer_bytes(&start);
        let mut kept = self.inner.start.lock();
        if (kept.lexer_bytes + MIN_LEARNED_BYTES..=kept.most).contains(&lexer_bytes) && !is_spoilt(&start) {
            let learned = Start { parser: Box::new(start), lexer_bytes, most: kept.most };
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

/// The message for a mask that could not be computed.
pub(crate) fn mask_error(message: &str) -> String {
    let message = first_line(message);
    if message == "NoExtensionBias" {
        return "the grammar allows no text at this point".to_owned();
    }
    format!("the grammar is too complex: {message}")
}
