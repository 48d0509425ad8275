//! Keeps an answer completable within its limit of tokens, and completes it there.
//!
//! Near the limit a slot knows a way out: a run of tokens that completes the answer from where it stands. Every
//! new token is compared with it; mostly the same run still does. When what is left of the limit is only just
//! enough, the run is followed. A token after which nothing fits any more is withdrawn before anybody was told
//! of it, and the way out that was known before is followed instead; where the engine cannot take tokens
//! back, the way out is followed earlier. Called by [`Slot::advance`], under the slot's lock.

use std::hash::{DefaultHasher, Hash, Hasher};

use llgtrt_core::{Error, TokenId};
use toktrie::SimpleVob;

use super::{MAX_FORCED, Mask, Slot, State};
use crate::CompiledGrammar;
use crate::compiled::mask_error;
use crate::text::grammar_error;
use crate::verify::Trial;
use crate::way_out::{self, Checked, Found, Query, Quoting, Strings, Style};

/// Tokens to spare from which on every token is compared with the way out.
const NEAR: usize = 512;

/// Tokens until a search that found nothing is tried again; twice as many after each that finds nothing either.
const RETRY_AFTER: usize = 4;

/// First tokens of a way out that others may have taken the place of.
const MAX_SKIPPED: usize = 8;

/// Spare tokens below which a token is withdrawn if no way out was found behind it.
const ENOUGH: usize = 64;

/// What searches may cost for each token of the answer where there are tokens to spare: about 1 ms.
const COST_PER_TOKEN: u64 = 5_000;

/// What the searches of an answer may cost besides: about 0.4 s, the end of an answer whose check beside the grammar makes
/// each of them long. After that the way out that is known is taken, or the answer ends as it does without one.
const COST_PER_ANSWER: u64 = 2_000_000;

/// Steps of a check that take as long as a unit of what a search costs.
const STEPS_PER_COST: u64 = 4;

/// A search that cannot be made at every token.
const DEAR: u64 = 5 * COST_PER_TOKEN;

/// Ways out that are kept to go back to, and tokens between them.
const MAX_KEPT: usize = 8;
const KEPT_APART: usize = 16;

/// The limit of one sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenLimit {
    /// Most tokens of the answer.
    pub tokens: usize,
    /// Whether the engine can withdraw tokens ([`Capabilities::retract`](llgtrt_core::Capabilities::retract)).
    pub retract: bool,
    /// Which of the answers to one request it is: they search for their ends one after the other.
    pub turn: u32,
}

impl TokenLimit {
    /// Longest limit for which the shortest answer is computed before the first token.
    pub const SHORT: usize = 1024;
}

/// A way out that a check beside the grammar found right. When nothing else is found any more it is followed, as long as
/// nobody has seen what came behind it.
struct Kept {
    at: usize,
    /// Digest of the tokens before it.
    before: u64,
    run: Vec<TokenId>,
}

/// What a slot knows of its way out.
pub(super) struct Limit {
    bound: TokenLimit,
    /// Completes the answer after its first `at` tokens.
    way_out: Option<Vec<TokenId>>,
    at: usize,
    /// The check beside the grammar has found the way out right, or there is none.
    is_right: bool,
    /// The first of those that are right, and the last ones.
    kept: Vec<Kept>,
    /// Tokens until another search, if the next one finds nothing.
    retry_after: usize,
    /// How it was found.
    style: Style,
    /// What the last search spent, by [`Answer::cost`](way_out::Answer); 0 where none was needed.
    cost: u64,
    /// What all searches spent, and the checks that followed them.
    spent: u64,
    /// Tokens from which on it has to be looked at again.
    next: usize,
    /// Nothing else may come any more.
    pub(super) following: bool,
}

impl Limit {
    pub(super) fn new(limit: TokenLimit, grammar: &CompiledGrammar) -> Self {
        // Not for long answers, even if it is known: what others asked for must not change an answer.
        let is_short = limit.tokens <= TokenLimit::SHORT;
        let way_out = if is_short { grammar.way_out().map(<[_]>::to_vec) } else { None };
        let (style, is_right) = if is_short { grammar.way_out_traits() } else { (Style::default(), true) };
        let is_known = way_out.is_some();
        let first = way_out.iter().filter(|_| is_right);
        let kept = first.map(|run| Kept { at: 0, before: digest(&[]), run: run.clone() }).collect();
        let mut own = Self {
            bound: limit,
            way_out,
            at: 0,
            is_right,
            kept,
            style,
            cost: 0,
            spent: 0,
            retry_after: RETRY_AFTER,
            next: 0,
            following: false,
        };
        if !is_known {
            own.next = own.in_turn(limit.tokens / 8);
        }
        own
    }

    /// Tokens until a way out of this length has to be looked at again. Searches that cost much are made seldom.
    fn pause(&self, way_out: usize, spare: usize) -> usize {
        match spare {
            _ if spare >= NEAR + 2 * way_out => self.in_turn(spare / 8),
            ENOUGH.. => self.in_turn((spare / 8).min((self.cost / COST_PER_TOKEN) as usize)),
            _ => 0,
        }
    }

    /// Keeps the way out behind the first `at` of the tokens, if it is right.
    fn keep(&mut self, taken: &[TokenId], run: &[TokenId]) {
        let at = taken.len();
        self.kept.retain(|kept| kept.at <= at);
        if !self.is_right || self.kept.last().is_some_and(|last| at < last.at + KEPT_APART) {
            return;
        }
        if self.kept.len() == MAX_KEPT {
            self.kept.remove(1);
        }
        self.kept.push(Kept { at, before: digest(taken), run: run.to_vec() });
    }

    /// Whether no more searches are made, in an answer of `len` tokens so far.
    fn has_spent_all(&self, len: usize) -> bool {
        self.spent > COST_PER_ANSWER + COST_PER_TOKEN * len as u64
    }

    /// This many tokens or up to half as many more, so that the equal answers of one request do not search at one time.
    fn in_turn(&self, tokens: usize) -> usize {
        tokens + self.bound.turn as usize % (1 + tokens / 2)
    }

    /// Tokens that have to be left besides a way out of this length.
    fn margin(&self, way_out: usize) -> usize {
        // Without withdrawing, a token may lead to where the way out is longer. A check beside the grammar that could not
        // follow the search may withdraw some of the way out itself, and another one is longer.
        let margin = match (self.bound.retract, self.is_right) {
            (true, true) => 1,
            (true, false) => 4 + way_out / 4,
            (false, _) => 16 + way_out / 2,
        };
        // Nearer than `ENOUGH` every token may need a search.
        if self.cost > DEAR { margin.max(ENOUGH - 1) } else { margin }
    }
}

impl Slot {
    /// Sees to it that the answer can be completed after `tokens` and the forced ones.
    pub(super) fn stay_completable(&mut self, tokens: &[TokenId]) -> Result<(), Error> {
        let Some(mut limit) = self.limit.take() else { return Ok(()) };
        let kept = self.keep_way_out(tokens, &mut limit);
        self.limit = Some(limit);
        kept
    }

    fn keep_way_out(&mut self, tokens: &[TokenId], limit: &mut Limit) -> Result<(), Error> {
        let tokens = &tokens[..self.seen.min(tokens.len())];
        let len = self.seen + self.forced.len();
        match self.state {
            State::Open => {}
            // What the last token forces is more than is left.
            State::Complete { .. } if len > limit.bound.tokens => {
                let before = limit.way_out.take();
                return self.without_way_out(limit, before, len, 0, true);
            }
            _ => {
                self.closed |= limit.following;
                return Ok(());
            }
        }
        if self.retract.is_some() || len < limit.at {
            // The check beside the grammar went back: other ways are open, and tokens are left again.
            if len < limit.at {
                (limit.way_out, limit.at) = (None, 0);
            }
            (limit.next, limit.following) = (0, false);
        }
        if len < limit.next {
            return Ok(());
        }
        let Some(left) = limit.bound.tokens.checked_sub(len) else {
            let before = limit.way_out.take();
            return self.without_way_out(limit, before, len, 0, true);
        };
        let new: Vec<TokenId> = tokens.iter().chain(&self.forced).skip(limit.at).copied().collect();
        let before = limit.way_out.take();
        let (found, is_right) = self.way_out_behind(tokens, before.as_deref(), &new, left, limit);
        let is_too_long = matches!(found, Found::TooLong);
        let Some(run) = found.way() else {
            return self.without_way_out(limit, before, len, left, is_too_long);
        };
        let spare = left - run.len();
        limit.retry_after = RETRY_AFTER;
        limit.at = len;
        limit.is_right = is_right.unwrap_or(limit.is_right);
        limit.next = len + limit.pause(run.len(), spare);
        limit.following |= spare <= limit.margin(run.len());
        if self.verifier.is_some() && !limit.following {
            limit.keep(&self.taken, &run);
        }
        limit.way_out = Some(run);
        if limit.following { self.follow_way_out(limit) } else { Ok(()) }
    }

    /// A way out behind `tokens` and the forced ones, of which the way out `before` did not know the `new` ones: the
    /// rest of it, all of it, or another one. Tells whether the check beside the grammar found it right; `None` if that is as
    /// it was before.
    fn way_out_behind(
        &mut self,
        tokens: &[TokenId],
        before: Option<&[TokenId]>,
        new: &[TokenId],
        left: usize,
        limit: &mut Limit,
    ) -> (Found, Option<bool>) {
        limit.cost = 0;
        let before_search = self.matcher.work();
        let rest = before.and_then(|run| run.strip_prefix(new));
        let known = match (rest, before) {
            (Some(rest), _) => self.fits(rest, left).then_some(rest),
            // Often the new tokens are what the way out began with, in other tokens or with a space.
            (None, Some(run)) if !limit.has_spent_all(self.taken.len()) => {
                (0..=run.len().min(MAX_SKIPPED)).map(|skip| &run[skip..]).find(|run| self.fits(run, left))
            }
            (None, _) => None,
        };
        limit.cost = self.matcher.work() - before_search;
        limit.spent += limit.cost;
        if let Some(run) = known
            && (rest.is_some() || self.verifier.is_none())
        {
            return (Found::Way(run.to_vec()), None);
        }
        if limit.has_spent_all(self.taken.len()) {
            return (Found::Unknown, None);
        }
        let verifier = self.verifier.as_deref();
        let allowed = self.allowance.left();
        let mut trial = verifier.map(|verifier| Trial::new(verifier, self.allowance.search()));
        let mut found = Found::Unknown;
        if let (Some(run), Some(trial)) = (known, &mut trial) {
            if trial.take(run) && trial.ends() {
                found = Found::Way(run.to_vec());
            }
            trial.back_to(&[]);
        }
        let mut quoting = Quoting::default();
        let mut checked = trial.map(|trial| Checked { trial, strings: Strings::default() });
        if !matches!(found, Found::Way(_)) {
            for &token in tokens.iter().chain(&self.forced) {
                let text = self.env.bytes(token);
                quoting.push(text);
                if let Some(checked) = &mut checked {
                    checked.strings.push(text);
                }
            }
            let query = Query {
                matcher: &self.matcher,
                env: &self.env,
                hints: self.grammar.hints(),
                quoting,
                checked: checked.as_mut(),
                most: left,
                first: limit.style,
            };
            let answer = query.find();
            limit.style = answer.style;
            limit.cost += answer.cost;
            limit.spent += answer.cost;
            found = answer.found;
        }
        let is_right = checked.is_none_or(|checked| {
            let (allowance, is_right) = checked.trial.into_rest();
            self.allowance.add(&allowance);
            is_right
        });
        limit.spent += (allowed - self.allowance.left()) / STEPS_PER_COST;
        (found, Some(is_right))
    }

    /// Whether the run completes the answer within what is left.
    fn fits(&mut self, run: &[TokenId], left: usize) -> bool {
        run.len() <= left
            && !self.lengthens_number(run)
            && way_out::completes(&mut self.matcher, &self.env, run)
    }

    /// Nothing that fits was found behind the new tokens; `before` is the way out that was known before them.
    fn without_way_out(
        &mut self,
        limit: &mut Limit,
        before: Option<Vec<TokenId>>,
        len: usize,
        left: usize,
        is_too_long: bool,
    ) -> Result<(), Error> {
        let at = limit.at;
        let enough = !is_too_long && before.as_ref().is_none_or(|run| left > run.len() + ENOUGH);
        // Without a way out from before there is nothing to go back for: the engine cuts the answer at its limit.
        let lost = before.is_none() && (self.verifier.is_none() || limit.has_spent_all(len));
        let is_shown = at < self.shown();
        if lost || (enough && left > 0) || !limit.bound.retract || at >= len || is_shown {
            limit.next = len + limit.in_turn(limit.retry_after);
            limit.retry_after *= 2;
            if left == 0 && limit.bound.retract && self.go_back_to_kept(limit)? {
                return Ok(());
            }
            if left > 0 {
                // Once more where nothing is left.
                limit.next = limit.next.min(limit.bound.tokens);
            }
            if self.verifier.is_some() && before.is_some() && !is_shown {
                // To go back to when no more than enough is left.
                limit.next = limit.next.min(limit.bound.tokens.saturating_sub(ENOUGH)).max(len + 1);
                limit.way_out = before;
            } else {
                limit.at = len;
            }
            return Ok(());
        }
        let way_out = match before {
            Some(way_out) if limit.is_right || self.verifier.is_none() => way_out,
            // Token by token, as long as that is cheap.
            _ => {
                if limit.spent > COST_PER_ANSWER / 8 && self.go_back_to_kept(limit)? {
                    return Ok(());
                }
                return self.step_back();
            }
        };
        self.go_back(limit, at, way_out)
    }

    /// Whether another way was left when the check beside the grammar found none from here on: one that was found
    /// right before.
    pub(super) fn escapes(&mut self) -> Result<bool, Error> {
        let Some(mut limit) = self.limit.take() else { return Ok(false) };
        let escapes = if limit.bound.retract { self.go_back_to_kept(&mut limit) } else { Ok(false) };
        self.limit = Some(limit);
        escapes
    }

    /// Goes back to the last way out that is right and that nobody was shown anything behind.
    fn go_back_to_kept(&mut self, limit: &mut Limit) -> Result<bool, Error> {
        let shown = self.shown();
        while let Some(kept) = limit.kept.pop() {
            let is_before = |taken: &[TokenId]| kept.before == digest(taken);
            if (shown..self.seen).contains(&kept.at) && self.taken.get(..kept.at).is_some_and(is_before) {
                self.go_back(limit, kept.at, kept.run)?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Tokens that cannot be taken back any more. What a check may still take back nobody has seen, though the engine
    /// has it for long, if it was generated here.
    fn shown(&self) -> usize {
        self.certain().map_or(self.told, |certain| certain.min(self.told)).max(self.before.len())
    }

    /// Goes back to the first `at` tokens, and follows the way out from there.
    fn go_back(&mut self, limit: &mut Limit, at: usize, way_out: Vec<TokenId>) -> Result<(), Error> {
        if let Some(verifier) = &mut self.verifier {
            verifier.back_to(at);
        }
        self.matcher
            .rollback(self.taken.len() - at)
            .map_err(|e| grammar_error(mask_error(&e.to_string())))?;
        self.truncate_taken(at);
        self.seen = at;
        self.forced.clear();
        self.retract = Some(at);
        self.state = State::Open;
        (limit.way_out, limit.at) = (Some(way_out), at);
        (limit.following, limit.next) = (true, 0);
        self.allow_only_way_out(limit);
        Ok(())
    }

    /// Takes the way out, or as much of it as is forced at once.
    fn follow_way_out(&mut self, limit: &mut Limit) -> Result<(), Error> {
        let Some(run) = limit.way_out.take() else { return Ok(()) };
        // An engine that is told to withdraw tokens is not told of others, nor of the end.
        if self.retract.is_some() || (!self.fast_forward && !run.is_empty()) {
            limit.way_out = Some(run);
            self.allow_only_way_out(limit);
            return Ok(());
        }
        let (now, later) = run.split_at(run.len().min(MAX_FORCED));
        if !now.is_empty() {
            self.mask = Mask::Stale;
            self.take(now).map_err(|e| grammar_error(mask_error(&e.to_string())))?;
            // What the grammar had forced before may be withdrawn with it.
            if !self.verify(now)? {
                return Ok(());
            }
            self.forced.extend_from_slice(now);
            self.tried_force = true;
        }
        limit.at = self.seen + self.forced.len();
        if !later.is_empty() {
            limit.way_out = Some(later.to_vec());
            self.allow_only_way_out(limit);
        } else if self.note_stop(false)? && matches!(self.state, State::Open) && self.verify_end()? {
            self.state = State::Complete { eos: false };
        }
        self.closed |= matches!(self.state, State::Complete { .. });
        Ok(())
    }

    /// The mask of the next position has one token.
    fn allow_only_way_out(&mut self, limit: &Limit) {
        // Where nothing is missing the way out is the end itself.
        let next =
            limit.way_out.as_ref().and_then(|run| run.first().copied().or_else(|| self.env.first_eos()));
        if let Some(token) = next {
            let mut mask = SimpleVob::alloc(self.env.vocab_size());
            mask.allow_token(token);
            self.mask = Mask::Ready(mask);
            self.tried_force = true;
        }
    }
}

fn digest(tokens: &[TokenId]) -> u64 {
    let mut hasher = DefaultHasher::new();
    tokens.hash(&mut hasher);
    hasher.finish()
}
