//! One constrained sequence: its matcher, what it has consumed, and its next mask.
//!
//! A slot is used under its own lock by one thread at a time, always on a big stack.

mod before;
mod digits;
mod lexer;
mod limit;
mod retract;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use llgtrt_core::{AdvanceState, Error, ErrorKind, MaskVerdict, TokenId};
use llguidance::TokenParser;
use toktrie::SimpleVob;

use crate::compiled::mask_error;
use crate::matcher::Matcher;
use crate::text::{first_line, grammar_error};
use crate::verify::{Allowance, Verifier};
use crate::{CompiledGrammar, TokenEnv};

use self::digits::Digits;
use self::lexer::REPAIRS_PER_ANSWER;
use self::limit::Limit;
pub use self::limit::TokenLimit;

/// Forced tokens handed out at once. A long constant text is forced in several runs.
const MAX_FORCED: usize = 256;

#[expect(clippy::struct_excessive_bools, reason = "each says one thing of the last advance")]
pub(crate) struct Slot {
    matcher: Matcher,
    /// Tokens that the matcher has consumed.
    taken: Vec<TokenId>,
    /// Shares its lexer with `matcher`; handed back to the grammar at the end.
    start: Option<TokenParser>,
    /// What that lexer took when it was the grammar's, in bytes.
    lexer_bytes_at_start: usize,
    grammar: CompiledGrammar,
    env: Arc<TokenEnv>,
    /// Length of the sequence's token list at the last advance.
    seen: usize,
    /// Length of the token list, forced ones included, that the engine was told to keep at the last advance.
    told: usize,
    /// Whether the engine appends forced tokens.
    fast_forward: bool,
    /// Tokens consumed beyond `seen`; the engine has to append them.
    forced: Vec<TokenId>,
    /// Whether forced tokens were looked for at this position.
    tried_force: bool,
    state: State,
    mask: Mask,
    /// The check of what the grammar leaves open, if it leaves anything.
    verifier: Option<Box<Verifier>>,
    /// Tokens that stay, if the last advance took some back.
    retract: Option<usize>,
    /// Tokens that the engine has had to take back so far: each has cost a forward pass.
    withdrawn: usize,
    /// What the checks of the present advance may spend.
    allowance: Allowance,
    /// Whether the last advance had too little of it.
    put_off: bool,
    /// What keeps the answer completable within its limit of tokens.
    limit: Option<Box<Limit>>,
    /// Completed because of the limit.
    closed: bool,
    /// Lines of the log belong to the request that registered it.
    span: tracing::Span,
    /// Work that may still be done for masks that were beyond the limits.
    repairs_left: u64,
    /// Time spent on masks within an advance, since it was asked for.
    mask_time: Duration,
    /// How long the numbers are, if that is bounded.
    digits: Option<Digits>,
    /// The beginning of the answer, where that was generated elsewhere.
    before: Box<[TokenId]>,
}

enum State {
    Open,
    /// Complete. `eos` tells that an end-of-sequence token was consumed.
    Complete {
        eos: bool,
    },
    Failed(Error),
}

enum Mask {
    /// Not computed for the current position.
    Stale,
    Ready(SimpleVob),
    /// The first mask of the grammar, which the compiled grammar holds.
    First,
}

impl Slot {
    pub(crate) fn new(grammar: &CompiledGrammar, limit: Option<TokenLimit>) -> Self {
        let copy = grammar.copy();
        Self {
            matcher: copy.matcher,
            taken: Vec::new(),
            start: Some(copy.start),
            lexer_bytes_at_start: copy.lexer_bytes,
            grammar: grammar.clone(),
            env: Arc::clone(grammar.env()),
            seen: 0,
            told: 0,
            fast_forward: false,
            forced: Vec::new(),
            tried_force: false,
            state: State::Open,
            mask: Mask::First,
            verifier: grammar
                .verification()
                .map(|plan| Box::new(Verifier::new(Arc::clone(plan), Arc::clone(grammar.env())))),
            retract: None,
            withdrawn: 0,
            allowance: Allowance::default(),
            put_off: false,
            limit: limit.map(|limit| Box::new(Limit::new(limit, grammar))),
            closed: false,
            span: tracing::Span::current(),
            repairs_left: REPAIRS_PER_ANSWER,
            mask_time: Duration::ZERO,
            digits: grammar.most_digits().map(Digits::new),
            before: Box::default(),
        }
    }

    /// Moves the matcher over the tokens that are new, then, if wanted, over what is forced. Checks beside the
    /// grammar spend from the allowance.
    pub(crate) fn advance(&mut self, tokens: &[TokenId], fast_forward: bool, allowance: &mut Allowance) {
        if self.is_failed() {
            return;
        }
        self.retract = None;
        self.put_off = false;
        self.allowance = std::mem::take(allowance);
        self.told = self.seen + self.forced.len();
        self.fast_forward = fast_forward;
        let advanced = guard(|| {
            self.consume(tokens)?;
            let open = matches!(self.state, State::Open);
            if open && self.has_bans_here() {
                return self.restrict_mask();
            }
            let following = self.limit.as_ref().is_some_and(|limit| limit.following);
            if fast_forward && !self.tried_force && open && !following {
                self.tried_force = true;
                self.force()?;
            }
            self.stay_completable(tokens)
        });
        let len = tokens.len();
        if let Err(error) = advanced.and_then(|()| self.withdraws_in_proportion(len)) {
            // Only a check fails like this.
            let is_lost = error.kind != ErrorKind::Constraint || self.verifier.is_none();
            if is_lost
                || self.withdrawn > 2 * self.most_withdrawn(len)
                || !guard(|| self.escapes()).unwrap_or(false)
            {
                self.fail(error);
            }
        }
        self.withdrawn += self.retract.map_or(0, |keep| len - keep);
        *allowance = std::mem::take(&mut self.allowance);
    }

    /// What [`advance`](Self::advance) led to.
    pub(crate) fn outcome(&self) -> (&[TokenId], AdvanceState) {
        match &self.state {
            State::Open => match self.retract {
                Some(keep) => (&[], AdvanceState::Retract { keep }),
                None => (&self.forced, AdvanceState::Sample),
            },
            State::Complete { .. } if self.closed => (&self.forced, AdvanceState::Limit),
            State::Complete { .. } => (&self.forced, AdvanceState::Stop),
            State::Failed(error) => (&[], AdvanceState::Failed(error.clone())),
        }
    }

    /// Whether the answer was completed because of its limit.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed && matches!(self.state, State::Complete { .. })
    }

    /// Time spent on masks within advances since the last call.
    pub(crate) fn take_mask_time(&mut self) -> Duration {
        std::mem::take(&mut self.mask_time)
    }

    /// Takes the tokens the engine appended: the forced ones first, then those it sampled.
    fn consume(&mut self, tokens: &[TokenId]) -> Result<(), Error> {
        let Some(mut new) = tokens.get(self.seen..) else {
            return Err(Error::internal("a constrained sequence became shorter"));
        };
        if new.is_empty() {
            return Ok(());
        }
        match new.strip_prefix(self.forced.as_slice()) {
            Some(rest) => new = rest,
            None => return Err(Error::internal("forced tokens were not appended to their sequence")),
        }
        self.forced.clear();
        self.tried_force = false;
        self.seen = tokens.len();
        for &token in new {
            if !self.consume_one(token)? {
                break;
            }
        }
        Ok(())
    }

    /// False if this token and perhaps others were taken back.
    fn consume_one(&mut self, token: TokenId) -> Result<bool, Error> {
        let eos = self.env.is_eos(token);
        if let State::Complete { eos: ended } = self.state {
            // A complete grammar may be followed by the token that ends the sequence, once.
            if eos && !ended {
                self.state = State::Complete { eos: true };
                return Ok(true);
            }
            return Err(grammar_error(format!("token {token} follows the end of the grammar")));
        }
        self.mask = Mask::Stale;
        self.take(&[token])
            .map_err(|error| grammar_error(format!("token {token}: {}", first_line(&error.to_string()))))?;
        if !self.verify(&[token])? {
            return Ok(false);
        }
        self.note_stop(eos)
    }

    fn force(&mut self) -> Result<(), Error> {
        let mut run = self.matcher.compute_ff_tokens();
        if let Some(error) = self.matcher.get_error() {
            return Err(grammar_error(mask_error(error)));
        }
        // An end-of-sequence token is never forced: the engine has to see it sampled.
        let end = run.iter().position(|&token| self.env.is_eos(token)).unwrap_or(run.len());
        run.truncate(end.min(MAX_FORCED));
        if run.is_empty() {
            return Ok(());
        }
        self.mask = Mask::Stale;
        self.take(&run)
            .map_err(|error| grammar_error(format!("forced tokens: {}", first_line(&error.to_string()))))?;
        if self.verify(&run)? {
            self.forced = run;
            self.note_stop(false)?;
        }
        Ok(())
    }

    /// False if tokens were taken back.
    fn note_stop(&mut self, eos: bool) -> Result<bool, Error> {
        if !self.matcher.is_stopped() {
            return Ok(true);
        }
        let reason = self.matcher.stop_reason();
        if !reason.is_ok() {
            return Err(grammar_error(mask_error(&reason.to_string())));
        }
        if !self.verify_end()? {
            return Ok(false);
        }
        self.state = State::Complete { eos };
        Ok(true)
    }

    /// Whether the mask has to be computed.
    pub(crate) fn is_stale(&self) -> bool {
        matches!((&self.state, &self.mask), (State::Open, Mask::Stale))
    }

    /// Computes the mask of the current position.
    pub(crate) fn compute(&mut self) {
        let mask = guard(|| self.matcher.compute_mask().or_else(|error| self.repair_mask(refused(error))));
        match mask {
            Ok(mask) => self.mask = Mask::Ready(self.bound_digits(mask)),
            Err(error) => self.fail(error),
        }
    }

    /// Writes the mask for a token list of `len` tokens, which was advanced over.
    pub(crate) fn write(&self, len: usize, row: &mut [u32]) -> MaskVerdict {
        match &self.state {
            State::Failed(error) => return MaskVerdict::Failed(error.clone()),
            State::Complete { .. } => return MaskVerdict::Stop,
            State::Open => {}
        }
        if len != self.seen + self.forced.len() {
            return MaskVerdict::Failed(Error::internal("forced tokens were not appended to their sequence"));
        }
        let words = match &self.mask {
            Mask::Ready(mask) => mask.as_slice(),
            Mask::First => self.grammar.first_mask().as_slice(),
            Mask::Stale => return MaskVerdict::Failed(Error::internal("a mask was not computed")),
        };
        copy_row(words, self.env.vocabulary_len(), row)
    }

    /// Ends the slot for good; returns nothing because the error is reported by what follows.
    fn fail(&mut self, error: Error) {
        let _within = self.span.enter();
        tracing::debug!(error = error.message, "a constrained sequence failed");
        self.forced.clear();
        self.mask = Mask::Stale;
        // A failure may have left the lexer in any state.
        self.start = None;
        self.state = State::Failed(error);
    }

    /// Whether a list of `len` tokens holds any that the matcher has not consumed.
    pub(crate) fn knows_fewer_than(&self, len: usize) -> bool {
        len > self.seen + self.forced.len()
    }

    /// Whether a check beside the grammar follows the answer.
    pub(crate) fn is_checked(&self) -> bool {
        self.verifier.is_some()
    }

    pub(crate) fn is_failed(&self) -> bool {
        matches!(self.state, State::Failed(_))
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(start) = self.start.take() {
            self.grammar.learn(start);
        }
    }
}

/// The error for what llguidance says of a mask.
#[expect(clippy::needless_pass_by_value, reason = "the shape that map_err wants")]
fn refused(error: anyhow::Error) -> Error {
    grammar_error(mask_error(&error.to_string()))
}

/// Copies a mask and clears the bits beyond the vocabulary.
fn copy_row(words: &[u32], tokens: usize, row: &mut [u32]) -> MaskVerdict {
    // llguidance's sets have room for one token more than a row.
    let shared = words.len().min(row.len());
    row[..shared].copy_from_slice(&words[..shared]);
    row[shared..].fill(0);
    let last = tokens / 32;
    if let Some(tail) = row.get_mut(last..) {
        if let Some(word) = tail.first_mut() {
            *word &= (1_u32 << (tokens % 32)) - 1;
        }
        if let Some(rest) = tail.get_mut(1..) {
            rest.fill(0);
        }
    }
    MaskVerdict::Mask
}

/// Runs `f`; a panic becomes an error of this sequence.
fn guard<T>(f: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    catch_unwind(AssertUnwindSafe(f))
        .unwrap_or_else(|_| Err(Error::internal("the grammar engine panicked for this sequence")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_end_where_the_vocabulary_ends() {
        for tokens in [1_usize, 31, 32, 33, 63, 64, 65, 96] {
            let mut row = [7_u32; 3];
            copy_row(&[u32::MAX; 4], tokens, &mut row);
            let set: u32 = row.iter().map(|word| word.count_ones()).sum();
            assert_eq!(set as usize, tokens);
        }
        let mut row = [7_u32; 3];
        copy_row(&[1], 96, &mut row);
        assert_eq!(row, [1, 0, 0]);
    }

    #[test]
    fn a_panic_is_an_error() {
        llgtrt_conformance::silence_panics("a slot's defect");
        let error = guard::<()>(|| panic!("a slot's defect")).unwrap_err();
        assert!(!error.message.contains("defect"));
    }
}
