//! The contract between an engine and whoever knows the grammars.
//!
//! A step of an engine with constrained sequences goes:
//! 1. tokens were sampled: `advance` tells the mask source, which moves its matchers, answers runs of
//!    forced tokens, and starts computing the next masks in the background;
//! 2. the forward pass runs over the sampled and the forced tokens;
//! 3. `fill` hands over the masks, waiting for those that are not done;
//! 4. the engine samples under them.

use crate::{Error, SequenceId, TokenId};

/// One constrained sequence and all that it has generated so far.
#[derive(Debug, Clone, Copy)]
pub struct MaskSlot<'a> {
    /// Whose.
    pub sequence: SequenceId,
    /// Every token generated so far (sampled and forced), without the prompt.
    pub tokens: &'a [TokenId],
}

/// What may follow after [`MaskSource::advance`].
#[derive(Debug, Clone, PartialEq)]
pub enum AdvanceState {
    /// Append the forced tokens, if any, then sample under a mask.
    Sample,
    /// Append the forced tokens, if any; then the grammar is complete.
    Stop,
    /// Append the forced tokens, if any; then the answer is complete. It was completed because its limit of tokens
    /// is near: it ends with [`Finish::Length`](crate::Finish::Length).
    Limit,
    /// What was generated cannot be completed to an answer: all but the first `keep` generated tokens are
    /// withdrawn, an end that they led to included. Then sample under a mask again. Only asked of an engine
    /// with [`Capabilities::retract`](crate::Capabilities::retract).
    Retract {
        /// Generated tokens that stay.
        keep: usize,
    },
    /// The sequence cannot go on.
    Failed(Error),
}

/// Answers of [`MaskSource::advance`], one per slot in order, flat and reused between steps.
#[derive(Debug, Default)]
pub struct AdvanceBatch {
    forced: Vec<TokenId>,
    slots: Vec<Answer>,
}

#[derive(Debug)]
struct Answer {
    /// End of its forced tokens.
    end: usize,
    state: AdvanceState,
    certain: Option<usize>,
}

impl AdvanceBatch {
    /// Empties the batch, keeping its memory.
    pub fn clear(&mut self) {
        self.forced.clear();
        self.slots.clear();
    }

    /// Adds the answer for the next slot.
    pub fn push(&mut self, forced: &[TokenId], state: AdvanceState) {
        self.forced.extend_from_slice(forced);
        self.slots.push(Answer { end: self.forced.len(), state, certain: None });
    }

    /// Says of the answer added last that only the first `tokens` generated tokens are certain to stay.
    pub fn hold_after(&mut self, tokens: usize) {
        if let Some(answer) = self.slots.last_mut() {
            answer.certain = Some(tokens);
        }
    }

    /// Number of answers.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether there is no answer.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Forced tokens and state of slot `index`.
    pub fn get(&self, index: usize) -> (&[TokenId], &AdvanceState) {
        let start = if index == 0 { 0 } else { self.slots[index - 1].end };
        let answer = &self.slots[index];
        (&self.forced[start..answer.end], &answer.state)
    }

    /// How many generated tokens of slot `index`, forced ones included, are certain to stay; `None` if all
    /// are. It never decreases. The engine passes it on in
    /// [`SequenceOutput::certain`](crate::SequenceOutput::certain).
    pub fn certain(&self, index: usize) -> Option<usize> {
        self.slots[index].certain
    }
}

/// What a row of a [`MaskBatch`] means.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum MaskVerdict {
    /// The row's set bits are the tokens that may be sampled; at least one is set.
    #[default]
    Mask,
    /// The grammar is complete and allows nothing more.
    Stop,
    /// The sequence cannot go on.
    Failed(Error),
}

/// Bitmasks over the padded vocabulary, one row per slot: bit `t % 32` of word `t / 32` is token `t`.
/// Reused between steps.
#[derive(Debug, Default)]
pub struct MaskBatch {
    words: Vec<u32>,
    verdicts: Vec<MaskVerdict>,
    words_per_row: usize,
}

impl MaskBatch {
    /// Shapes the batch to `rows` rows of `vocab_size` bits. Old contents are unspecified until filled.
    pub fn reset(&mut self, rows: usize, vocab_size: usize) {
        self.words_per_row = vocab_size.div_ceil(32);
        self.words.resize(rows * self.words_per_row, 0);
        self.verdicts.clear();
        self.verdicts.resize(rows, MaskVerdict::Mask);
    }

    /// Rows in the batch.
    pub fn rows(&self) -> usize {
        self.verdicts.len()
    }

    /// Words per row.
    pub fn words_per_row(&self) -> usize {
        self.words_per_row
    }

    /// The bits of row `index`; meaningful if its verdict is [`MaskVerdict::Mask`].
    pub fn row(&self, index: usize) -> &[u32] {
        &self.words[index * self.words_per_row..(index + 1) * self.words_per_row]
    }

    /// The verdict of row `index`.
    pub fn verdict(&self, index: usize) -> &MaskVerdict {
        &self.verdicts[index]
    }

    /// Every row with its verdict, for filling in parallel.
    pub fn rows_mut(&mut self) -> impl Iterator<Item = (&mut [u32], &mut MaskVerdict)> {
        self.words.chunks_exact_mut(self.words_per_row.max(1)).zip(self.verdicts.iter_mut())
    }
}

/// Computes masks. Shared by the engine's thread and the threads that admit requests.
///
/// Both calls are idempotent for the same token count, so an engine may ask again (chunked prefill
/// does), and both accept slots whose token list grew by any number since the last call. A list becomes
/// shorter only where [`AdvanceState::Retract`] said so. A matcher is advanced in this one place.
pub trait MaskSource: Send + Sync {
    /// Tells the tokens known so far and learns what the grammar forces next.
    ///
    /// `fast_forward` says whether the engine wants forced tokens; if it does, it *must*
    /// append all that it is given to the sequence, or end it. It tells of every token, also of one that ended
    /// the sequence. Pushes one answer per slot to `out`,
    /// then starts computing the masks in the background. Cheap (about a microsecond per slot).
    fn advance(&self, slots: &[MaskSlot<'_>], fast_forward: bool, out: &mut AdvanceBatch);

    /// Writes row `i` of `batch` for slot `i`, computing what is not ready, in parallel.
    /// The caller has [`reset`](MaskBatch::reset) the batch to `slots.len()` rows.
    fn fill(&self, slots: &[MaskSlot<'_>], batch: &mut MaskBatch);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advance_batch_keeps_runs_apart() {
        let mut batch = AdvanceBatch::default();
        batch.push(&[1, 2], AdvanceState::Sample);
        batch.push(&[], AdvanceState::Stop);
        batch.push(&[3], AdvanceState::Sample);
        assert_eq!(batch.len(), 3);
        assert_eq!(batch.get(0), (&[1, 2][..], &AdvanceState::Sample));
        assert_eq!(batch.get(1), (&[][..], &AdvanceState::Stop));
        assert_eq!(batch.get(2), (&[3][..], &AdvanceState::Sample));
        batch.clear();
        assert!(batch.is_empty());
    }

    #[test]
    fn rows_cover_a_padded_vocabulary() {
        let mut batch = MaskBatch::default();
        batch.reset(3, 33);
        assert_eq!((batch.rows(), batch.words_per_row()), (3, 2));
        for (index, (row, _)) in batch.rows_mut().enumerate() {
            row.fill(index as u32);
        }
        assert_eq!(batch.row(2), &[2, 2]);
        batch.reset(1, 33);
        assert_eq!(batch.rows(), 1);
    }
}
