//! Fills masks when the executor is about to sample. Runs on the executor's thread, through a callback from C++;
//! must not unwind into it, must not block on the engine's thread for longer than a slot's lock.
//!
//! The rows of a call are matched with sequences by client id. A grammar that is complete or has failed leaves a
//! verdict with its position; until the engine's thread has acted on it, the row allows only the end token.

use std::collections::HashMap;
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use llgtrt_core::{
    AdvanceBatch, AdvanceState, Error, MaskBatch, MaskSlot, MaskSource, MaskVerdict, SequenceId, TokenId,
};
use parking_lot::{Mutex, MutexGuard};

use crate::abi;

/// What ended a constrained sequence.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Verdict {
    /// The grammar is complete.
    Stop,
    /// It cannot go on.
    Failed(Error),
}

/// What the callback does with the rows of a sequence.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) sequence: SequenceId,
    pub(crate) prompt_len: usize,
    pub(crate) constrained: bool,
    /// Tokens that may not come before `min_tokens`.
    pub(crate) bans: Vec<TokenId>,
    pub(crate) min_tokens: usize,
    /// What is left to sample where nothing else may come.
    pub(crate) end_token: TokenId,
    /// Applied with the mask; 0 and 0: left to the executor.
    pub(crate) temperature: f32,
    pub(crate) min_p: f32,
    pub(crate) report_removed_mass: bool,
    pub(crate) keep_logits: bool,
    /// After so many tokens it is over.
    pub(crate) verdict: Option<(usize, Verdict)>,
}

/// A slot as both threads hold it.
pub(crate) type SharedSlot = Arc<Mutex<Slot>>;

/// What the callback works with. The engine keeps it alive for longer than the executor.
pub(crate) struct MaskCallback {
    masks: Arc<dyn MaskSource>,
    vocab_size: usize,
    slots: Mutex<HashMap<u64, SharedSlot>>,
    /// Reused between steps; only the executor's thread takes it.
    scratch: Mutex<(AdvanceBatch, MaskBatch)>,
}

impl MaskCallback {
    pub(crate) fn new(masks: Arc<dyn MaskSource>, vocab_size: usize) -> Self {
        Self { masks, vocab_size, slots: Mutex::default(), scratch: Mutex::default() }
    }

    pub(crate) fn insert(&self, client_id: u64, slot: Slot) -> SharedSlot {
        let slot = Arc::new(Mutex::new(slot));
        self.slots.lock().insert(client_id, Arc::clone(&slot));
        slot
    }

    pub(crate) fn remove(&self, client_id: u64) {
        self.slots.lock().remove(&client_id);
    }

    /// Whether the grammar is complete after the last tokens, or has failed with them.
    pub(crate) fn last_word(&self, sequence: SequenceId, tokens: &[TokenId]) -> Option<Verdict> {
        let mut answer = AdvanceBatch::default();
        self.masks.advance(&[MaskSlot { sequence, tokens }], false, &mut answer);
        match answer.get(0).1 {
            AdvanceState::Sample => None,
            AdvanceState::Stop | AdvanceState::Limit => Some(Verdict::Stop),
            AdvanceState::Failed(error) => Some(Verdict::Failed(error.clone())),
            AdvanceState::Retract { .. } => Some(Verdict::Failed(cannot_retract())),
        }
    }

    /// Fills the masks and plans of a step.
    fn fill(&self, rows: &[abi::Row], words: &mut [u32], words_per_row: usize, plans: &mut [abi::RowPlan]) {
        let shared: Vec<_> = {
            let slots = self.slots.lock();
            rows.iter().map(|row| slots.get(&row.client_id).cloned()).collect()
        };
        let mut slots: Vec<_> = shared.iter().map(|slot| slot.as_ref().map(|slot| slot.lock())).collect();
        let tokens: Vec<_> =
            rows.iter().zip(&slots).map(|(row, slot)| generated(row, slot.as_deref())).collect();

        let mut scratch = self.scratch.lock();
        let (advanced, masks) = &mut *scratch;
        let asked = self.advance(&mut slots, &tokens, advanced);
        self.compute(&mut slots, &tokens, &asked, masks);

        // `asked` is in the order of the rows.
        let mut computed = asked.iter().enumerate().peekable();
        for (index, slot) in slots.iter().enumerate() {
            let row = computed.next_if(|(_, asked)| **asked == index).map(|(row, _)| masks.row(row));
            let (Some(slot), Some(tokens)) = (slot.as_deref(), tokens[index]) else { continue };
            let mask = &mut words[index * words_per_row..(index + 1) * words_per_row];
            plan(slot, tokens, row, mask, &mut plans[index]);
        }
    }

    /// Moves the grammars; answers which rows need a mask.
    fn advance(
        &self,
        slots: &mut [Option<MutexGuard<'_, Slot>>],
        tokens: &[Option<&[TokenId]>],
        advanced: &mut AdvanceBatch,
    ) -> Vec<usize> {
        let mut asked = Vec::with_capacity(slots.len());
        let mut requests = Vec::with_capacity(slots.len());
        for (index, slot) in slots.iter().enumerate() {
            if let (Some(slot), Some(tokens)) = (slot, tokens[index])
                && slot.constrained
                && slot.verdict.as_ref().is_none_or(|(position, _)| *position == tokens.len())
            {
                asked.push(index);
                requests.push(MaskSlot { sequence: slot.sequence, tokens });
            }
        }
        if requests.is_empty() {
            return asked;
        }
        advanced.clear();
        self.masks.advance(&requests, false, advanced);
        let mut answer = 0;
        asked.retain(|&index| {
            let state = advanced.get(answer).1;
            answer += 1;
            let verdict = match state {
                AdvanceState::Sample => return true,
                AdvanceState::Stop | AdvanceState::Limit => Verdict::Stop,
                AdvanceState::Failed(error) => Verdict::Failed(error.clone()),
                AdvanceState::Retract { .. } => Verdict::Failed(cannot_retract()),
            };
            decide(slots, tokens, index, verdict);
            false
        });
        asked
    }

    /// Computes the masks of the rows `asked`.
    fn compute(
        &self,
        slots: &mut [Option<MutexGuard<'_, Slot>>],
        tokens: &[Option<&[TokenId]>],
        asked: &[usize],
        masks: &mut MaskBatch,
    ) {
        if asked.is_empty() {
            return;
        }
        let requests: Vec<_> = asked
            .iter()
            .filter_map(|&index| {
                Some(MaskSlot { sequence: slots[index].as_ref()?.sequence, tokens: tokens[index]? })
            })
            .collect();
        masks.reset(requests.len(), self.vocab_size);
        self.masks.fill(&requests, masks);
        for (row, &index) in asked.iter().enumerate() {
            match masks.verdict(row) {
                MaskVerdict::Mask => {}
                MaskVerdict::Stop => decide(slots, tokens, index, Verdict::Stop),
                MaskVerdict::Failed(error) => decide(slots, tokens, index, Verdict::Failed(error.clone())),
            }
        }
    }

    /// Ends every sequence of a call that panicked: its rows would be sampled without their masks.
    fn fail_all(&self, rows: &[abi::Row]) {
        let slots = self.slots.lock();
        for row in rows {
            if let Some(slot) = slots.get(&row.client_id) {
                let mut slot = slot.lock();
                let position = row.token_count.saturating_sub(slot.prompt_len);
                let error = Error::internal("the masks of a step could not be computed");
                slot.verdict.get_or_insert((position, Verdict::Failed(error)));
            }
        }
    }
}

fn decide(
    slots: &mut [Option<MutexGuard<'_, Slot>>],
    tokens: &[Option<&[TokenId]>],
    index: usize,
    verdict: Verdict,
) {
    if let (Some(slot), Some(tokens)) = (&mut slots[index], tokens[index]) {
        slot.verdict = Some((tokens.len(), verdict));
    }
}

/// The answer so far; None for a row that is nobody's, or of several beams.
fn generated<'a>(row: &'a abi::Row, slot: Option<&Slot>) -> Option<&'a [TokenId]> {
    let slot = slot?;
    if row.beam_width != 1 || row.tokens.is_null() {
        return None;
    }
    // SAFETY: the plugin passes `token_count` tokens that live for the call. A TokenId is the unsigned twin of what
    // is there; negative ones do not occur.
    let tokens = unsafe { std::slice::from_raw_parts(row.tokens.cast::<TokenId>(), row.token_count) };
    // A prompt that is evaluated in pieces may come with fewer tokens than it has.
    Some(tokens.get(slot.prompt_len..).unwrap_or(&[]))
}

/// Writes the row's bits and says what to do with it.
fn plan(slot: &Slot, tokens: &[TokenId], row: Option<&[u32]>, mask: &mut [u32], plan: &mut abi::RowPlan) {
    plan.temperature = slot.temperature;
    plan.min_p = slot.min_p;
    plan.report_removed_mass = slot.report_removed_mass.into();
    plan.keep_logits = slot.keep_logits.into();
    if slot.verdict.is_some() {
        mask.fill(0);
        set(mask, slot.end_token, true);
        plan.apply_mask = 1;
        return;
    }
    let banning = tokens.len() < slot.min_tokens && !slot.bans.is_empty();
    match row {
        Some(row) => mask.copy_from_slice(&row[..mask.len()]),
        None if banning => mask.fill(u32::MAX),
        None => return,
    }
    plan.apply_mask = 1;
    if banning {
        for &token in &slot.bans {
            set(mask, token, false);
        }
        // A grammar that allows nothing but the end has its way.
        if let Some(row) = row
            && mask.iter().all(|word| *word == 0)
        {
            mask.copy_from_slice(&row[..mask.len()]);
        }
    }
}

fn set(mask: &mut [u32], token: TokenId, allowed: bool) {
    if let Some(word) = mask.get_mut(token as usize / 32) {
        let bit = 1 << (token % 32);
        if allowed { *word |= bit } else { *word &= !bit }
    }
}

/// The callback itself. `user` is a [`MaskCallback`].
///
/// # Safety
/// `rows` and `plans` have `count` elements, `words` has `count * words_per_row`, and `user` is alive: what the
/// plugin promises in its header.
pub(crate) unsafe extern "C" fn fill(
    user: *mut c_void,
    rows: *const abi::Row,
    count: usize,
    words: *mut u32,
    words_per_row: usize,
    plans: *mut abi::RowPlan,
) -> i32 {
    // SAFETY: the plugin was given this pointer; the engine frees it after the executor's thread has ended.
    let callback = unsafe { &*user.cast::<MaskCallback>() };
    // SAFETY: by the contract above; nobody else has these for the duration of the call.
    let (rows, words, plans) = unsafe {
        (
            std::slice::from_raw_parts(rows, count),
            std::slice::from_raw_parts_mut(words, count * words_per_row),
            std::slice::from_raw_parts_mut(plans, count),
        )
    };
    let fits = rows.iter().all(|row| row.struct_size == size_of::<abi::Row>())
        && words_per_row == callback.vocab_size.div_ceil(32);
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        if fits {
            callback.fill(rows, words, words_per_row, plans);
        }
        fits
    }));
    if matches!(outcome, Ok(true)) {
        return 0;
    }
    let failed = catch_unwind(AssertUnwindSafe(|| callback.fail_all(rows)));
    if failed.is_err() {
        tracing::error!("the masks of a step could not be computed, nor its sequences ended");
    }
    1
}

/// For a mask source that ignores what the engine can do.
fn cannot_retract() -> Error {
    Error::internal("the engine cannot take tokens back")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot() -> Slot {
        Slot {
            sequence: SequenceId(1),
            prompt_len: 2,
            constrained: true,
            bans: vec![3, 40],
            min_tokens: 2,
            end_token: 3,
            temperature: 0.0,
            min_p: 0.0,
            report_removed_mass: false,
            keep_logits: false,
            verdict: None,
        }
    }

    fn planned(slot: &Slot, tokens: &[TokenId], row: Option<&[u32]>) -> (Vec<u32>, bool) {
        let (mut mask, mut answer) = (vec![0; 2], <abi::RowPlan as abi::Plain>::sized());
        plan(slot, tokens, row, &mut mask, &mut answer);
        (mask, answer.apply_mask == 1)
    }

    #[test]
    fn ends_are_banned_before_their_time() {
        let free = Slot { constrained: false, ..slot() };
        assert_eq!(planned(&free, &[1], None), (vec![!8, !256], true));
        assert_eq!(planned(&free, &[1, 1], None), (vec![0, 0], false));
        assert_eq!(planned(&slot(), &[1], Some(&[12, 256])), (vec![4, 0], true));
        assert_eq!(planned(&slot(), &[1, 1], Some(&[12, 256])), (vec![12, 256], true));
        // Only the end is allowed: the ban gives way.
        assert_eq!(planned(&slot(), &[1], Some(&[8, 0])), (vec![8, 0], true));
    }

    #[test]
    fn a_verdict_leaves_only_the_end() {
        let ended = Slot { verdict: Some((1, Verdict::Stop)), ..slot() };
        assert_eq!(planned(&ended, &[1], None), (vec![8, 0], true));
    }

    #[test]
    fn the_answer_starts_after_the_prompt() {
        let tokens = [7, 8, 9];
        let mut row = <abi::Row as abi::Plain>::sized();
        row.tokens = tokens.as_ptr();
        row.token_count = 3;
        row.beam_width = 1;
        assert_eq!(generated(&row, Some(&slot())), Some(&[9][..]));
        row.token_count = 1;
        assert_eq!(generated(&row, Some(&slot())), Some(&[][..]));
        row.beam_width = 2;
        assert_eq!(generated(&row, Some(&slot())), None);
        assert_eq!(generated(&row, None), None);
    }
}
