//! The way out of a grammar's state: a short run of tokens that completes the answer.
//!
//! Found by walking a copy of the matcher, depth first and a little deeper each time, and preferring what
//! closes: ends of strings, brackets, short values. Forced tokens come for free. The work is bounded in
//! masks and in what llguidance counts for each; where it does not suffice there is no way out to follow.
//! Runs on the thread that holds the slot, on a big stack.

mod candidates;
mod closers;
mod hints;
mod quoting;

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use llgtrt_core::TokenId;
use llguidance::Matcher;
use toktrie::SimpleVob;

pub(crate) use self::closers::Closers;
pub(crate) use self::hints::Hints;
use self::quoting::Behind;
pub(crate) use self::quoting::{Quoting, Strings};

use crate::TokenEnv;

/// Masks that one search may compute; about 20 us each.
const MAX_MASKS: usize = 1600;

/// Masks of the attempts that never go back, each.
const DIRECT_MASKS: usize = 600;

/// Work that one search may cause inside llguidance: bytes that its lexer had to build states for, and items
/// of its parser.
const MAX_COST: u64 = 400_000;

/// Ways tried at one position.
const MAX_BRANCHES: usize = 8;

/// Tokens of one byte that are tried as the last one before the end of a text.
const MAX_BYTES_AHEAD: usize = 100;

/// Other tokens that are tried like this, and at how many positions of a search.
const MAX_TOKENS_AHEAD: usize = 500;
const MAX_POSITIONS_AHEAD: usize = 4;

/// Tokens in a row that only make a text longer, in a search that does not go back.
const MAX_FILLING: usize = 64;

/// Hints that one search tries.
const MAX_HINTS: usize = 8000;

/// Terminals that are tried at one position.
const MAX_LEXEMES: usize = 12;

/// Times that a search of whole terminals goes on from where the same tokens are allowed after the same terminal.
const MAX_RETURNS: usize = 2;

/// Length of the first runs among which the search goes back; it doubles.
const FIRST_DEPTH: usize = 16;

/// Whether `run` completes the answer from where the matcher is.
pub(crate) fn completes(matcher: &mut Matcher, env: &TokenEnv, run: &[TokenId]) -> bool {
    let Some(eos) = env.first_eos() else { return false };
    if matcher.is_stopped() {
        return run.is_empty();
    }
    if run.is_empty() {
        return matcher.is_accepting().unwrap_or(false);
    }
    let mut tokens = run.to_vec();
    tokens.push(eos);
    matcher.validate_tokens(&tokens).is_ok_and(|valid| valid == tokens.len())
}

/// What a search ended with.
#[derive(Debug)]
pub(crate) enum Found {
    /// A run that completes the answer.
    Way(Vec<TokenId>),
    /// None, as far as whole terminals and what else is tried at a position can tell.
    Dead,
    /// None within the bounds.
    Unknown,
}

impl Found {
    pub(crate) fn way(self) -> Option<Vec<TokenId>> {
        match self {
            Self::Way(run) => Some(run),
            Self::Dead | Self::Unknown => None,
        }
    }
}

/// A run of at most `most` tokens that completes the answer. With `strings`, those of the answer so far, it adds none that
/// has been there: a check beside the grammar may want them to differ.
pub(crate) fn find(
    matcher: &Matcher,
    env: &TokenEnv,
    hints: &Hints,
    quoting: Quoting,
    strings: Option<Strings>,
    most: usize,
) -> Found {
    let mut search = Search {
        matcher: matcher.clone(),
        env,
        closers: env.closers(),
        hints,
        strings: strings.map(Arc::new),
        path: Vec::new(),
        masks_left: MAX_MASKS,
        cost_left: MAX_COST,
        hints_left: MAX_HINTS,
        positions_ahead: MAX_POSITIONS_AHEAD,
        seen: HashSet::new(),
        returns: HashMap::new(),
        last_way: Vec::new(),
        is_cut: false,
    };
    if search.is_complete() {
        return Found::Way(Vec::new());
    }
    let mut is_dead = false;
    if !hints.runs(env).lexemes.is_empty() {
        search.masks_left += DIRECT_MASKS;
        if search.run(quoting, most, DIRECT_MASKS, Style::Lexemes) {
            return Found::Way(search.path);
        }
        is_dead = !search.is_cut && !hints.has_more;
    }
    for style in [Style::Plain, Style::Novel] {
        if search.run(quoting, most, DIRECT_MASKS, style) {
            return Found::Way(search.path);
        }
    }
    let mut depth = FIRST_DEPTH.min(most);
    while depth > 0 && search.masks_left > 0 {
        let masks = (search.masks_left / 4).max(1);
        // Where the text is not JSON, what looks like the inside of a string may be the outside.
        for quoting in [quoting, Quoting { inside: !quoting.inside, escaped: false }] {
            if search.run(quoting, depth, masks, Style::Back) {
                return Found::Way(search.path);
            }
        }
        if depth == most {
            break;
        }
        depth = (2 * depth).min(most);
    }
    if is_dead { Found::Dead } else { Found::Unknown }
}

/// How a search goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Style {
    /// The best token at every position, and never back.
    Plain,
    /// The same, but inside of a text that must not end yet, what leads to where the search has not been:
    /// to the `@` of an e-mail address, not to one more letter before it.
    Novel,
    /// Back to other ways where one is too long.
    Back,
    /// As `Back`, with whole terminals first, and only a few times on from where the same tokens are allowed.
    Lexemes,
}

/// A position with ways that were not tried yet, the best one last.
struct Branch {
    len: usize,
    quoting: Quoting,
    ways: Vec<Vec<TokenId>>,
}

struct Search<'a> {
    matcher: Matcher,
    env: &'a TokenEnv,
    closers: &'a Closers,
    hints: &'a Hints,
    strings: Option<Arc<Strings>>,
    path: Vec<TokenId>,
    masks_left: usize,
    cost_left: u64,
    hints_left: usize,
    positions_ahead: usize,
    /// Pairs of masks that this run has come by, or looked at: of one position, and of the next.
    seen: HashSet<(u64, u64)>,
    /// How often this run came to where a set of tokens is allowed, by the last way to there.
    returns: HashMap<(u64, Vec<TokenId>), usize>,
    last_way: Vec<TokenId>,
    /// A bound kept this run from looking at some way.
    is_cut: bool,
}

impl<'a> Search<'a> {
    fn is_complete(&mut self) -> bool {
        self.matcher.is_stopped() || self.matcher.is_accepting().unwrap_or(false)
    }

    /// Depth first, from the start again, with at most `masks` masks. Leaves the run in `path` if there is one.
    fn run(&mut self, mut quoting: Quoting, depth: usize, mut masks: usize, style: Style) -> bool {
        self.back_to(0);
        self.seen.clear();
        self.returns.clear();
        self.last_way.clear();
        self.is_cut = false;
        let mut filling = 0;
        let mut branches: Vec<Branch> = Vec::new();
        loop {
            if self.matcher.is_error() {
                return false;
            }
            if self.is_complete() {
                return true;
            }
            if self.path.len() < depth {
                let forced = self.forced(depth);
                if !forced.is_empty() {
                    self.push(&forced, &mut quoting);
                    continue;
                }
                if let Some(run) = self.end_of_string(quoting, depth) {
                    self.push(run, &mut quoting);
                    continue;
                }
                if masks == 0 || self.masks_left == 0 || self.cost_left == 0 {
                    self.is_cut = true;
                    return false;
                }
                masks -= 1;
                let mut ways = self.ways(quoting, style, depth);
                if matches!(style, Style::Plain | Style::Novel) {
                    ways.drain(..ways.len().saturating_sub(1));
                    let fills =
                        |&token: &TokenId| !self.env.bytes(token).iter().any(|b| b"\"{}[],:".contains(b));
                    filling =
                        if ways.first().is_some_and(|way| way.iter().all(fills)) { filling + 1 } else { 0 };
                    if filling > MAX_FILLING {
                        return false;
                    }
                }
                branches.push(Branch { len: self.path.len(), quoting, ways });
            } else {
                self.is_cut = true;
            }
            let Some(way) = self.next_way(&mut branches, &mut quoting) else { return false };
            self.push(&way, &mut quoting);
            self.last_way = way;
        }
    }

    /// Goes back to the last position with a way that was not tried, and takes it.
    fn next_way(&mut self, branches: &mut Vec<Branch>, quoting: &mut Quoting) -> Option<Vec<TokenId>> {
        while let Some(branch) = branches.last_mut() {
            let (len, before) = (branch.len, branch.quoting);
            match branch.ways.pop() {
                Some(way) => {
                    self.back_to(len);
                    *quoting = before;
                    return Some(way);
                }
                None => branches.pop(),
            };
        }
        None
    }

    fn back_to(&mut self, len: usize) {
        let drop = self.path.len() - len;
        if drop > 0 && self.matcher.rollback(drop).is_ok() {
            self.path.truncate(len);
        }
    }

    fn push(&mut self, tokens: &[TokenId], quoting: &mut Quoting) {
        if self.matcher.consume_tokens(tokens).is_ok() {
            for &token in tokens {
                quoting.push(self.env.bytes(token));
            }
            self.path.extend_from_slice(tokens);
        }
    }

    /// The strings up to here, if new ones have to differ from them.
    fn behind(&self) -> Option<Behind> {
        let mut behind = self.strings.as_ref()?.behind();
        self.path.iter().for_each(|&token| behind.push(self.env.bytes(token)));
        Some(behind)
    }

    /// What the grammar forces, as far as it fits.
    fn forced(&mut self, depth: usize) -> Vec<TokenId> {
        let mut run = self.matcher.compute_ff_tokens();
        let end = run.iter().position(|&token| self.env.is_eos(token)).unwrap_or(run.len());
        run.truncate(end.min(depth - self.path.len()));
        run
    }

    /// What ends a string that must not end at once, by its pattern.
    fn end_of_string(&mut self, quoting: Quoting, depth: usize) -> Option<&'a [TokenId]> {
        let strings = &self.hints.runs(self.env).strings;
        let quote = [*self.closers.quotes.last()?];
        if strings.is_empty() || !quoting.inside || quoting.escaped || self.takes(&quote) {
            return None;
        }
        let (room, behind, env) = (depth - self.path.len(), self.behind(), self.env);
        let is_new = |run: &[TokenId]| {
            behind.as_ref().is_none_or(|behind| {
                let text: Vec<u8> = run.iter().flat_map(|&token| env.bytes(token).to_vec()).collect();
                !behind.has_string(text.strip_suffix(b"\"").unwrap_or(&text))
            })
        };
        strings.iter().map(Vec::as_slice).find(|run| run.len() <= room && self.takes(run) && is_new(run))
    }

    /// Whether the whole run is allowed here.
    fn takes(&mut self, run: &[TokenId]) -> bool {
        if self.hints_left == 0 {
            self.is_cut = true;
            return false;
        }
        self.hints_left -= 1;
        self.cost_left = self.cost_left.saturating_sub(run.len() as u64);
        self.matcher.validate_tokens(run).is_ok_and(|valid| valid == run.len())
    }

    /// Whole terminals that may follow; if the answer may end behind one of them, that one alone.
    fn lexemes(&mut self, depth: usize) -> Vec<Vec<TokenId>> {
        let room = depth - self.path.len();
        let mut ways: Vec<Vec<TokenId>> = Vec::new();
        for run in &self.hints.runs(self.env).lexemes {
            if run.is_empty() || run.len() > room || !self.takes(run) {
                continue;
            }
            let ended: Vec<TokenId> = run.iter().copied().chain(self.env.first_eos()).collect();
            if self.takes(&ended) {
                return vec![run.clone()];
            }
            if ways.len() < MAX_LEXEMES {
                ways.push(run.clone());
            } else {
                self.is_cut = true;
            }
        }
        ways
    }

    /// The ways to try here, the best one last.
    fn ways(&mut self, quoting: Quoting, style: Style, depth: usize) -> Vec<Vec<TokenId>> {
        self.masks_left -= 1;
        let Ok(mask) = self.matcher.compute_mask() else { return Vec::new() };
        let cost =
            self.matcher.last_step_stats().map_or(0, |stats| stats.lexer_cost + stats.all_items as u64);
        self.cost_left = self.cost_left.saturating_sub(cost);
        let mut ways = Vec::new();
        if style == Style::Lexemes {
            let returns = self.returns.entry((digest(&mask), self.last_way.clone())).or_default();
            *returns += 1;
            if *returns > MAX_RETURNS {
                return Vec::new();
            }
            ways = self.lexemes(depth);
        }
        ways.extend(self.tokens(quoting, style, &mask).into_iter().map(|token| vec![token]));
        ways.reverse();
        ways
    }
}

/// Equal for equal masks, and hardly ever for others; a mistake makes a search miss a way.
fn digest(mask: &SimpleVob) -> u64 {
    let mut hasher = DefaultHasher::new();
    mask.as_slice().hash(&mut hasher);
    hasher.finish()
}
