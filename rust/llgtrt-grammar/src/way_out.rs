//! The way out of a grammar's state: a short run of tokens that completes the answer.
//!
//! Found by walking a copy of the matcher, depth first and a little deeper each time, and preferring what
//! closes: ends of strings, brackets, short values. A check beside the grammar follows, so that what is found is right by it
//! as well. Forced tokens come for free. All work is counted in one unit (see [`Search::spend`]) and bounded; where that does
//! not suffice there is no way out to follow.
//! Runs on the thread that holds the slot, on a big stack.

mod candidates;
mod hints;
mod names;
mod parts;
mod query;
mod quoting;

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use llgtrt_core::TokenId;
use toktrie::SimpleVob;

pub(crate) use self::hints::Hints;
pub(crate) use self::query::{Answer, Query};
use self::quoting::Behind;
pub(crate) use self::quoting::{Quoting, Strings};

use crate::matcher::Matcher;
use crate::token_env::{Closers, TokenEnv};
use crate::verify::Trial;

/// What work costs besides what the matcher counts ([`Matcher::work`]), in the same units of about 0.2 us: a mask, a run of
/// tokens that is held against the grammar, a token that is taken.
const MASK_COST: u64 = 20;
const HINT_COST: u64 = 5;
const TOKEN_COST: u64 = 5;

/// Ways tried at one position.
const MAX_BRANCHES: usize = 8;

/// Tokens of one byte that are tried as the last one before the end of a text.
const MAX_BYTES_AHEAD: usize = 100;

/// Other tokens that are tried like this, and at how many positions of a search.
const MAX_TOKENS_AHEAD: usize = 500;
const MAX_POSITIONS_AHEAD: usize = 4;

/// Tokens in a row that only make a text longer, in a search that does not go back.
const MAX_FILLING: usize = 64;

/// Tokens at the beginning of a run that are found by asking for them one by one, which takes a hundredth of a mask where the
/// vocabulary is large. A longer run repeats itself, and masks tell how.
const MAX_ASKED: usize = 64;

/// Terminals that are tried at one position.
const MAX_LEXEMES: usize = 12;

/// Times that a search of whole terminals goes on from where the same tokens are allowed after the same terminal.
const MAX_RETURNS: usize = 2;

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
    /// Those that were found are longer than what is left.
    TooLong,
    /// None, as far as whole terminals and what else is tried at a position can tell.
    Dead,
    /// None within the bounds.
    Unknown,
}

impl Found {
    /// Memory, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        if let Self::Way(run) = self { size_of_val(&**run) } else { 0 }
    }

    pub(crate) fn way(self) -> Option<Vec<TokenId>> {
        match self {
            Self::Way(run) => Some(run),
            Self::TooLong | Self::Dead | Self::Unknown => None,
        }
    }
}

/// What is checked beside the grammar.
pub(crate) struct Checked<'a> {
    /// Follows the search, and finds wrong what may not go on like this.
    pub(crate) trial: Trial<'a>,
    /// Those of the answer so far. A way out adds none that has been there: they may have to differ.
    pub(crate) strings: Strings,
}

/// How a search goes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Style {
    /// The best token at every position, and never back.
    #[default]
    Plain,
    /// The same, but inside of a text that must not end yet, what leads to where the search has not been:
    /// to the `@` of an e-mail address, not to one more letter before it.
    Novel,
    /// As `Plain`, but where it has been before, with the same tokens allowed, it takes what it took least: the item that a
    /// list has to contain is not the one that is best everywhere.
    InTurns,
    /// Back to other ways where one is too long.
    Back,
    /// As `Back`, with whole terminals first, and only a few times on from where the same tokens are allowed.
    Lexemes,
}

/// A position with ways that were not tried yet, the best one last.
struct Branch {
    len: usize,
    quoting: Quoting,
    /// Digest of the tokens that are allowed there; `None` where they were not looked at.
    allowed: Option<u64>,
    ways: Vec<Vec<TokenId>>,
}

/// What a run took where: its length, a digest of the tokens that were allowed there if it is known, the way.
type Turn = (usize, Option<u64>, Vec<TokenId>);

/// What a run took between two positions where the same tokens are allowed.
struct Round {
    tokens: Vec<TokenId>,
    /// What it chose in them.
    turns: Vec<Turn>,
    /// Digest of the tokens that are allowed at both.
    allowed: u64,
}

struct Search<'a, 'c> {
    matcher: Matcher,
    env: &'a Arc<TokenEnv>,
    closers: &'a Closers,
    hints: &'a Hints,
    trial: Option<&'a mut Trial<'c>>,
    /// The check found wrong where the search is.
    is_wrong: bool,
    strings: Option<&'a Strings>,
    path: Vec<TokenId>,
    masks_left: usize,
    /// What the search, and the present run of it, may still spend.
    cost_left: u64,
    run_left: u64,
    /// Of the matcher's work, what has been counted.
    counted: u64,
    positions_ahead: usize,
    /// Pairs of masks that this run has come by, or looked at: of one position, and of the next.
    seen: HashSet<(u64, u64)>,
    /// How often this run came to where a set of tokens is allowed, by the last way to there.
    returns: HashMap<(u64, Vec<TokenId>), usize>,
    last_way: Vec<TokenId>,
    turns: Vec<Turn>,
    /// Where the run will go another way than it did before, as far as is known: up to there it repeats nothing.
    parts_at: usize,
    /// A bound kept this run from looking at some way.
    is_cut: bool,
    /// It was the bound on its length.
    is_too_long: bool,
}

impl<'a> Search<'a, '_> {
    fn is_complete(&mut self) -> bool {
        self.matcher.is_stopped() || self.matcher.is_accepting().unwrap_or(false)
    }

    /// Whether the check allows a complete answer to end here.
    fn may_end(&mut self) -> bool {
        self.trial.as_mut().is_none_or(|trial| trial.ends())
    }

    /// Depth first, from the start again, with at most `masks` masks. Leaves the run in `path` if there is one.
    fn run(&mut self, mut quoting: Quoting, depth: usize, mut masks: usize, style: Style) -> bool {
        self.run_left = if style == Style::Back { self.cost_left } else { self.cost_left / 2 };
        self.back_to(0);
        self.seen.clear();
        self.returns.clear();
        self.last_way.clear();
        self.parts_at = 0;
        self.is_cut = false;
        self.is_too_long = false;
        let mut filling = 0;
        let mut branches: Vec<Branch> = Vec::new();
        loop {
            if self.matcher.is_error() || self.run_left == 0 {
                self.is_cut = true;
                return false;
            }
            if !self.is_wrong && self.is_complete() {
                if self.may_end() {
                    return true;
                }
                self.is_wrong = true;
            }
            if !self.is_wrong && self.path.len() < depth {
                let forced = self.forced(depth);
                if !forced.is_empty() {
                    self.push(&forced, &mut quoting);
                    continue;
                }
                if let Some(run) = self.end_of_string(quoting, depth) {
                    self.push(run, &mut quoting);
                    continue;
                }
                let best = if style == Style::Plain && self.trial.is_none() && self.path.len() < MAX_ASKED {
                    self.name(quoting, depth).or_else(|| Some(vec![self.closer(quoting)?]))
                } else {
                    None
                };
                if best.is_none() && (masks == 0 || self.masks_left == 0) {
                    self.is_cut = true;
                    return false;
                }
                let (mut ways, allowed) = if let Some(way) = best {
                    (vec![way], None)
                } else {
                    masks -= 1;
                    let (ways, allowed) = self.ways(quoting, style, depth);
                    (ways, Some(allowed))
                };
                if matches!(style, Style::Plain | Style::Novel | Style::InTurns) {
                    // What a check finds wrong is the one reason to go back.
                    let kept = if self.trial.is_some() { MAX_BRANCHES } else { 1 };
                    ways.drain(..ways.len().saturating_sub(kept));
                    let fills =
                        |&token: &TokenId| !self.env.bytes(token).iter().any(|b| b"\"{}[],:".contains(b));
                    filling =
                        if ways.last().is_some_and(|way| way.iter().all(fills)) { filling + 1 } else { 0 };
                    if filling > MAX_FILLING {
                        return false;
                    }
                }
                if style == Style::Plain
                    && self.trial.is_none()
                    && let (Some(way), Some(allowed)) = (ways.last(), allowed)
                {
                    self.repeat(way, allowed, &mut quoting, depth);
                }
                branches.push(Branch { len: self.path.len(), quoting, allowed, ways });
            } else {
                self.is_cut = true;
                self.is_too_long |= !self.is_wrong;
            }
            let Some(way) = self.next_way(&mut branches, &mut quoting) else { return false };
            self.push(&way, &mut quoting);
            self.last_way = way;
        }
    }

    /// Goes back to the last position with a way that was not tried, and takes it.
    fn next_way(&mut self, branches: &mut Vec<Branch>, quoting: &mut Quoting) -> Option<Vec<TokenId>> {
        while let Some(branch) = branches.last_mut() {
            let (len, before, allowed) = (branch.len, branch.quoting, branch.allowed);
            match branch.ways.pop() {
                Some(way) => {
                    self.back_to(len);
                    *quoting = before;
                    self.turns.push((len, allowed, way.clone()));
                    return Some(way);
                }
                None => branches.pop(),
            };
        }
        None
    }

    /// Takes what the run took since the same tokens were allowed and it went the same way, again and again, as long as the
    /// same are allowed behind it and nothing ended earlier: a list that must have a thousand items does not need masks for each.
    fn repeat(&mut self, way: &[TokenId], allowed: u64, quoting: &mut Quoting, depth: usize) {
        if self.path.len() < self.parts_at {
            return;
        }
        let before = self.turns.iter().rposition(|(_, at, other)| *at == Some(allowed) && other == way);
        let Some(before) = before else { return };
        let from = self.turns[before].0;
        if from == self.path.len() {
            return;
        }
        let round = Round {
            tokens: self.path[from..].to_vec(),
            turns: self.turns[before..]
                .iter()
                .map(|(at, allowed, way)| (at - from, *allowed, way.clone()))
                .collect(),
            allowed,
        };
        let (mut times, mut is_growing) = (1, true);
        while times > 0 && self.run_left > 0 {
            // The way itself follows.
            let is_taken = times * round.tokens.len() < depth - self.path.len()
                && self.take_rounds(&round, times, quoting);
            if times > 1 {
                self.parts_at = 0; // in which round is not known
            }
            is_growing &= is_taken;
            times = if is_growing { 2 * times } else { times / 2 };
        }
    }

    /// Takes so many rounds if they are allowed, the last one as the run would go by itself, and behind them the same tokens as here.
    fn take_rounds(&mut self, round: &Round, times: usize, quoting: &mut Quoting) -> bool {
        let tokens = round.tokens.repeat(times);
        self.spend(tokens.len() as u64 * TOKEN_COST);
        if self.masks_left == 0 || !self.takes(&tokens) {
            return false;
        }
        let (len, before) = (self.path.len(), *quoting);
        let last = tokens.len() - round.tokens.len();
        self.push(&tokens[..last], quoting);
        let is_same = self.would_take(round, quoting) && !self.matcher.is_stopped() && {
            let mask = self.matcher.compute_mask();
            self.spend_mask();
            mask.is_ok_and(|mask| digest(&mask) == round.allowed)
        };
        if is_same {
            for start in (len..self.path.len()).step_by(round.tokens.len()) {
                let turns = round.turns.iter().map(|(at, allowed, way)| (start + at, *allowed, way.clone()));
                self.turns.extend(turns);
            }
        } else {
            self.back_to(len);
            *quoting = before;
        }
        is_same
    }

    /// Takes a round, as long as the answer is not complete and nothing could be closed where the run went on: a list that has all the
    /// items that it must have ends.
    fn would_take(&mut self, round: &Round, quoting: &mut Quoting) -> bool {
        let mut taken = 0;
        for &(choice, ..) in &round.turns {
            self.push(&round.tokens[taken..choice], quoting);
            taken = choice;
            if self.is_complete() {
                return false;
            }
            let token = round.tokens[choice];
            let goes_on = !quoting.inside && self.closers.separators.contains(&token);
            if goes_on && self.closer(*quoting).is_some_and(|other| other != token) {
                self.parts_at = self.path.len();
                return false;
            }
        }
        self.push(&round.tokens[taken..], quoting);
        true
    }

    fn back_to(&mut self, len: usize) {
        let drop = self.path.len() - len;
        if drop > 0 && self.matcher.rollback(drop).is_ok() {
            self.path.truncate(len);
        }
        while self.turns.last().is_some_and(|&(at, ..)| at >= self.path.len()) {
            self.turns.pop();
        }
        if let Some(trial) = &mut self.trial {
            let cost = trial.back_to(&self.path);
            self.spend(cost);
        }
        self.spend_work();
        self.is_wrong = false;
    }

    fn push(&mut self, tokens: &[TokenId], quoting: &mut Quoting) {
        self.spend(tokens.len() as u64 * TOKEN_COST);
        if self.matcher.consume_tokens(tokens).is_ok() {
            for &token in tokens {
                quoting.push(self.env.bytes(token));
            }
            self.path.extend_from_slice(tokens);
            self.is_wrong = self.trial.as_mut().is_some_and(|trial| !trial.take(tokens));
            let cost = self.trial.as_ref().map_or(0, |trial| trial.cost());
            self.spend(cost);
        }
        self.spend_work();
    }

    /// The strings up to here, if new ones have to differ from them.
    fn behind(&mut self) -> Option<Behind<'a>> {
        let mut behind = self.strings?.behind();
        self.spend(self.path.len() as u64 / 4);
        self.path.iter().for_each(|&token| behind.push(self.env.bytes(token)));
        Some(behind)
    }

    /// What the grammar forces, as far as it fits.
    fn forced(&mut self, depth: usize) -> Vec<TokenId> {
        let mut run = self.matcher.compute_ff_tokens();
        self.spend_work();
        let end = run.iter().position(|&token| self.env.is_eos(token)).unwrap_or(run.len());
        run.truncate(end.min(depth - self.path.len()));
        run
    }

    /// Whether this is the inside of a string that must not end at once.
    fn must_go_on(&mut self, quoting: Quoting) -> bool {
        let quote = self.closers.quotes.last().copied();
        quoting.inside && !quoting.escaped && quote.is_some_and(|quote| !self.takes(&[quote]))
    }

    /// The name of a required property that may come here, up to its colon.
    fn name(&mut self, quoting: Quoting, depth: usize) -> Option<Vec<TokenId>> {
        let names = &self.hints.runs(self.env).names;
        let begins = self.path.last().is_none_or(|&token| self.env.bytes(token).ends_with(b"\""));
        if names.is_empty() || !begins || !self.must_go_on(quoting) {
            return None;
        }
        let room = depth - self.path.len();
        names.iter().find(|run| run.len() <= room && self.takes(run)).cloned()
    }

    /// What ends a string that must not end at once, by its pattern.
    fn end_of_string(&mut self, quoting: Quoting, depth: usize) -> Option<&'a [TokenId]> {
        let strings = &self.hints.runs(self.env).strings;
        if strings.is_empty() || !self.must_go_on(quoting) {
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
        if self.run_left == 0 {
            self.is_cut = true;
            return false;
        }
        let valid = self.matcher.validate_tokens(run);
        self.spend(HINT_COST);
        self.spend_work();
        valid.is_ok_and(|valid| valid == run.len())
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

    /// Counts work.
    fn spend(&mut self, cost: u64) {
        self.cost_left = self.cost_left.saturating_sub(cost);
        self.run_left = self.run_left.saturating_sub(cost);
    }

    /// Counts what the matcher did since the last call.
    fn spend_work(&mut self) {
        let work = self.matcher.work();
        self.spend(work - self.counted);
        self.counted = work;
    }

    /// Counts a mask.
    fn spend_mask(&mut self) {
        self.masks_left -= 1;
        self.spend(MASK_COST);
        self.spend_work();
    }

    /// The ways to try here, the best one last, and a digest of the tokens that are allowed.
    fn ways(&mut self, quoting: Quoting, style: Style, depth: usize) -> (Vec<Vec<TokenId>>, u64) {
        let mask = self.matcher.compute_mask();
        self.spend_mask();
        let Ok(mask) = mask else { return (Vec::new(), 0) };
        let allowed = digest(&mask);
        let mut ways = Vec::new();
        if style == Style::Lexemes {
            let returns = self.returns.entry((allowed, self.last_way.clone())).or_default();
            *returns += 1;
            if *returns > MAX_RETURNS {
                return (Vec::new(), allowed);
            }
            ways = self.lexemes(depth);
        }
        let tokens = self.tokens(quoting, style, &mask);
        if style == Style::InTurns {
            ways = self.in_turns(tokens, quoting, &mask, allowed);
        } else {
            ways.extend(self.name(quoting, depth));
            ways.extend(tokens.into_iter().map(|token| vec![token]));
        }
        ways.reverse();
        (ways, allowed)
    }
}

/// Equal for equal masks, and hardly ever for others; a mistake makes a search miss a way.
fn digest(mask: &SimpleVob) -> u64 {
    let mut hasher = DefaultHasher::new();
    mask.as_slice().hash(&mut hasher);
    hasher.finish()
}
