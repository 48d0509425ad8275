//! A mask source that follows a plan per sequence and checks how the engine uses it. Called on whichever
//! thread samples.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use llgtrt_core::{
    AdvanceBatch, AdvanceState, Error, ErrorKind, MaskBatch, MaskSlot, MaskSource, MaskVerdict, SequenceId,
    TokenId,
};

/// What the grammar of one sequence does.
#[derive(Debug, Clone, Default)]
pub(crate) struct Plan {
    /// Tokens that every mask allows.
    pub(crate) allowed: Vec<TokenId>,
    /// Runs forced after so many tokens.
    pub(crate) forced: BTreeMap<usize, Vec<TokenId>>,
    /// `advance` says that the grammar is complete from so many tokens on.
    pub(crate) stop_at: Option<usize>,
    /// `fill` does, `advance` does not.
    pub(crate) late_stop_at: Option<usize>,
    /// `advance` fails from so many tokens on.
    pub(crate) fail_at: Option<usize>,
    /// `fill` does.
    pub(crate) late_fail_at: Option<usize>,
    /// `advance` withdraws all but so many tokens when there are so many, once.
    pub(crate) retract: BTreeMap<usize, usize>,
    /// Tokens that are certain to stay.
    pub(crate) certain: Option<usize>,
}

#[derive(Debug, Default)]
struct State {
    plans: HashMap<SequenceId, Plan>,
    /// Tokens that each sequence must have when its mask is asked for.
    expected: HashMap<SequenceId, Vec<TokenId>>,
    fills: HashMap<SequenceId, usize>,
    violations: Vec<String>,
}

/// The mask source under which the engine runs.
#[derive(Debug)]
pub(crate) struct PlannedMasks {
    vocab_size: usize,
    state: Mutex<State>,
}

impl PlannedMasks {
    pub(crate) fn new(plans: impl IntoIterator<Item = (u64, Plan)>, vocab_size: usize) -> Arc<Self> {
        let plans = plans.into_iter().map(|(id, plan)| (SequenceId(id), plan)).collect();
        Arc::new(Self { vocab_size, state: Mutex::new(State { plans, ..State::default() }) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fails if the engine misused the contract.
    pub(crate) fn verdict(&self) -> Result<(), String> {
        match self.state().violations.first() {
            Some(violation) => Err(violation.clone()),
            None => Ok(()),
        }
    }

    /// How many masks a sequence asked for.
    pub(crate) fn fills(&self, id: u64) -> usize {
        self.state().fills.get(&SequenceId(id)).copied().unwrap_or(0)
    }
}

impl State {
    fn plan(&mut self, id: SequenceId) -> Plan {
        if !self.plans.contains_key(&id) {
            self.violations.push(format!("sequence {} is not constrained but was asked about", id.0));
        }
        self.plans.get(&id).cloned().unwrap_or_default()
    }

    fn check_grown(&mut self, slot: &MaskSlot<'_>, call: &str) {
        let known = self.expected.get(&slot.sequence).map_or(&[][..], |tokens| &tokens[..]);
        if !slot.tokens.starts_with(known) {
            let (id, tokens) = (slot.sequence.0, slot.tokens);
            self.violations.push(format!("{call} of sequence {id}: {tokens:?} does not continue {known:?}"));
        }
    }
}

impl MaskSource for PlannedMasks {
    fn advance(&self, slots: &[MaskSlot<'_>], fast_forward: bool, out: &mut AdvanceBatch) {
        let mut state = self.state();
        for slot in slots {
            let plan = state.plan(slot.sequence);
            let position = slot.tokens.len();
            if state.expected.get(&slot.sequence).is_none_or(|known| known.len() <= position) {
                state.check_grown(slot, "advance");
            }
            let run =
                if fast_forward { plan.forced.get(&position).map_or(&[][..], |run| &run[..]) } else { &[] };
            let end = position + run.len();
            let reached = |limit: Option<usize>| limit.is_some_and(|limit| end >= limit);
            let retract = state.plans.get_mut(&slot.sequence).and_then(|plan| plan.retract.remove(&position));
            if let Some(keep) = retract {
                out.push(&[], AdvanceState::Retract { keep });
                state.expected.insert(slot.sequence, slot.tokens[..keep].to_vec());
                continue;
            }
            let answer = if reached(plan.stop_at) {
                AdvanceState::Stop
            } else if reached(plan.fail_at) {
                AdvanceState::Failed(Error::new(ErrorKind::Grammar, "planned"))
            } else {
                AdvanceState::Sample
            };
            out.push(run, answer);
            if let Some(certain) = plan.certain {
                out.hold_after(certain);
            }
            state.expected.insert(slot.sequence, [slot.tokens, run].concat());
        }
    }

    fn fill(&self, slots: &[MaskSlot<'_>], batch: &mut MaskBatch) {
        let mut state = self.state();
        if batch.rows() != slots.len() || batch.words_per_row() < self.vocab_size.div_ceil(32) {
            state.violations.push("fill: the batch is not shaped to the slots and the vocabulary".to_owned());
        }
        for (slot, (row, verdict)) in slots.iter().zip(batch.rows_mut()) {
            let plan = state.plan(slot.sequence);
            *state.fills.entry(slot.sequence).or_default() += 1;
            let position = slot.tokens.len();
            match state.expected.get(&slot.sequence) {
                Some(known) if known == slot.tokens => {}
                Some(_) => {
                    state.check_grown(slot, "fill");
                    state.violations.push(format!(
                        "fill of sequence {} at {position} tokens without advance to there",
                        slot.sequence.0
                    ));
                }
                None => state.violations.push(format!("fill of sequence {} before advance", slot.sequence.0)),
            }
            let reached = |limit: Option<usize>| limit.is_some_and(|limit| position >= limit);
            *verdict = if reached(plan.late_stop_at) || reached(plan.stop_at) {
                MaskVerdict::Stop
            } else if reached(plan.late_fail_at) || reached(plan.fail_at) {
                MaskVerdict::Failed(Error::new(ErrorKind::Grammar, "planned"))
            } else {
                MaskVerdict::Mask
            };
            // An engine that does not fast-forward meets a forced run as masks of one token.
            let run =
                plan.forced.iter().find(|(start, run)| (**start..**start + run.len()).contains(&position));
            let forced = run.map(|(start, run)| [run[position - start]]);
            row.fill(0);
            for &token in forced.as_ref().map_or(&plan.allowed[..], |token| &token[..]) {
                row[token as usize / 32] |= 1 << (token % 32);
            }
        }
    }
}
