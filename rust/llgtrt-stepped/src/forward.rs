//! One forward pass: what takes part, and what comes of its rows. Runs in a poll.

use std::time::Instant;

use llgtrt_core::{Finish, Pass, Result};

use crate::engine::RowEngine;
use crate::model::{Part, PassError};
use crate::sequence::Sequence;
use crate::sequences::Output;

/// Most rows of one pass that are not of tokens to be drawn: a row of a large vocabulary is half a megabyte.
const MOST_ROWS: usize = 64;

/// What the present pass evaluates of one sequence.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Share {
    slot: usize,
    start: usize,
    count: usize,
    rows: usize,
}

impl RowEngine {
    /// Evaluates the next tokens of all running sequences; `None` if nothing was evaluated.
    ///
    /// # Errors
    /// The model is of no further use.
    pub(crate) fn forward(&mut self) -> Result<Option<(Pass, Instant)>> {
        self.plan();
        if self.shares.is_empty() {
            return Ok(None);
        }
        let started = Instant::now();
        match self.evaluate() {
            Ok(()) => {}
            Err(PassError::Failed(error)) => {
                for share in std::mem::take(&mut self.shares) {
                    self.sequences.end(share.slot, Finish::Failed(error.clone()), &mut self.cache);
                }
                return Ok(None);
            }
            Err(PassError::Fatal(error)) => return Err(error),
        }
        self.stats.forward_passes += 1;
        Ok(Some((self.book(), started)))
    }

    /// Decides who takes part: those that generate first, then prompts as far as there is room.
    fn plan(&mut self) {
        self.shares.clear();
        let mut room = self.pass_tokens;
        let mut rows_left = MOST_ROWS.max(self.sequences.running.len());
        for prompts in [false, true] {
            for (slot, sequence) in self.sequences.running.iter().enumerate() {
                let Some(sequence) = sequence else { continue };
                let start = self.cache.evaluated[slot];
                if prompts != (start < sequence.spec.prompt.len()) || sequence.is_done() {
                    continue;
                }
                let pending = sequence.target().saturating_sub(start);
                let mut count = pending.min(room);
                if sequence.wants_many_outputs(pending) {
                    count = count.min(rows_left);
                }
                if count == 0 {
                    continue;
                }
                let end = start + count;
                let rows = wanted_rows(sequence, start, end);
                if rows > rows_left {
                    continue;
                }
                room -= count;
                rows_left -= rows;
                self.shares.push(Share { slot, start, count, rows });
            }
        }
    }

    fn evaluate(&mut self) -> Result<(), PassError> {
        self.tokens.clear();
        let mut rows = 0;
        for share in &self.shares {
            rows += share.rows;
            if let Some(sequence) = &self.sequences.running[share.slot] {
                let positions = share.start..share.start + share.count;
                self.tokens.extend(positions.map(|position| sequence.token(position)));
            }
        }
        let mut left = &self.tokens[..];
        let mut parts = Vec::with_capacity(self.shares.len());
        for &Share { slot, start, count, rows } in &self.shares {
            let (tokens, rest) = left.split_at(count);
            left = rest;
            parts.push(Part { slot, start, tokens, rows });
        }
        self.rows.resize(rows * self.capabilities.vocab_size as usize, 0.0);
        self.cache.model.forward(&parts, &mut self.rows)
    }

    /// Takes the log-probabilities of prompt tokens and of forced tokens from the rows, and leaves in `outputs`
    /// what is to be sampled.
    fn book(&mut self) -> Pass {
        let mut pass = Pass::default();
        self.outputs.clear();
        let mut rows = self.rows.chunks_exact(self.capabilities.vocab_size as usize).enumerate();
        for &Share { slot, start, count, rows: wanted } in &self.shares {
            let own = rows.by_ref().take(wanted);
            let Some(sequence) = &mut self.sequences.running[slot] else { continue };
            pass.add(sequence.spec.prompt.len(), start, count);
            self.cache.evaluated[slot] = start + count;
            for (position, (index, logits)) in (start + count - wanted..).zip(own) {
                if !sequence.wants_output(position) {
                    continue;
                }
                if position + 1 >= sequence.len() {
                    self.outputs.push(Output { slot, position, index });
                } else {
                    sequence.read_logprobs(position, logits);
                }
            }
            sequence.release(start + count);
        }
        pass
    }
}

/// How many rows at the end of `start..end` are wanted.
fn wanted_rows(sequence: &Sequence, start: usize, end: usize) -> usize {
    (start..end).find(|&position| sequence.wants_output(position)).map_or(0, |first| end - first)
}
