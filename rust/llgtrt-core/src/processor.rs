//! Code of the operator's that changes rows of logits before a token is drawn from them, and the rows that it changed.
//!
//! Owned and run by the engine's thread, between a forward pass and the masks. A mask is laid over what a processor
//! leaves, so no processor can let a token through that a grammar forbids. Where no sequence of a pass has a processor,
//! nothing here runs.

use std::fmt::Debug;
use std::time::Instant;

use crate::{Error, ErrorKind, Result, TokenId};

/// Changes the rows of logits of one sequence.
pub trait LogitsProcessor: Debug + Send + Sync {
    /// Changes the row that the next token is drawn from. Called once for every token that is drawn, not for
    /// those that a grammar forces. `generated` becomes shorter where tokens were withdrawn
    /// ([`AdvanceState::Retract`](crate::AdvanceState::Retract)).
    ///
    /// # Errors
    /// Ends the sequence, and no other.
    fn process(&self, prompt: &[TokenId], generated: &[TokenId], row: &mut [f32]) -> Result<()>;

    /// Runs `work`, which calls the processors of all sequences of a pass: what all of them need (the lock of an
    /// interpreter) is taken once.
    fn together(&self, work: &mut dyn FnMut()) {
        work();
    }
}

/// What processors have done since start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProcessorStats {
    /// Rows that they were given.
    pub rows: u64,
    /// Of those, rows that ended their sequence with an error.
    pub failures: u64,
    /// How long the engine's thread was with them, in microseconds, waiting for a lock included.
    pub micros: u64,
}

/// One sequence that has a processor.
#[derive(Debug, Clone, Copy)]
pub struct Processed<'a> {
    /// Its processor.
    pub processor: &'a dyn LogitsProcessor,
    /// Its prompt.
    pub prompt: &'a [TokenId],
    /// What it has generated so far, forced tokens included.
    pub generated: &'a [TokenId],
}

/// The rows of one pass that processors work on. Its memory is kept between passes.
#[derive(Debug, Default)]
pub struct ProcessedRows {
    /// Under what each row is looked up.
    keys: Vec<usize>,
    rows: Vec<f32>,
    width: usize,
    verdicts: Vec<Result<()>>,
    stats: ProcessorStats,
}

impl ProcessedRows {
    /// Forgets the rows of the pass before.
    pub fn clear(&mut self) {
        self.keys.clear();
        self.rows.clear();
        self.verdicts.clear();
    }

    /// Adds a copy of a row. All rows of a pass have one length.
    pub fn push(&mut self, key: usize, logits: &[f32]) {
        debug_assert!(self.keys.is_empty() || self.width == logits.len(), "rows of one length");
        self.width = logits.len();
        self.keys.push(key);
        self.rows.extend_from_slice(logits);
    }

    /// Lets the processors change the rows. `sequence` says whose row lies under a key.
    pub fn run<'a>(&mut self, sequence: impl Fn(usize) -> Option<Processed<'a>>) {
        let Some(first) = self.keys.first().and_then(|&key| sequence(key)) else { return };
        let started = Instant::now();
        let (keys, verdicts) = (&self.keys, &mut self.verdicts);
        let (rows, width) = (&mut self.rows, self.width.max(1));
        first.processor.together(&mut || {
            for (&key, row) in keys.iter().zip(rows.chunks_exact_mut(width)) {
                verdicts.push(match sequence(key) {
                    Some(Processed { processor, prompt, generated }) => {
                        processor.process(prompt, generated, row).and_then(|()| check(row))
                    }
                    None => Err(Error::internal("a row without a sequence")),
                });
            }
        });
        self.stats.micros += started.elapsed().as_micros() as u64;
        self.stats.rows += self.keys.len() as u64;
        self.stats.failures += self.verdicts.iter().filter(|verdict| verdict.is_err()).count() as u64;
    }

    /// What became of a row; `None`: nobody works on it.
    ///
    /// # Errors
    /// Its processor failed, or left a row that no token can be drawn from.
    pub fn get(&self, key: usize) -> Option<Result<&[f32]>> {
        let index = self.keys.iter().position(|&known| known == key)?;
        Some(match self.verdicts.get(index) {
            Some(Ok(())) => Ok(&self.rows[index * self.width..(index + 1) * self.width]),
            Some(Err(error)) => Err(error.clone()),
            None => Err(Error::internal("the logits processors did not run")),
        })
    }

    /// What happened since start.
    pub fn stats(&self) -> ProcessorStats {
        self.stats
    }
}

/// Whether a token can be drawn from what a processor left.
fn check(row: &[f32]) -> Result<()> {
    let wrong = |what: &str| {
        let message = format!("a logits processor left a row {what}");
        Err(Error::new(ErrorKind::LogitsProcessor, message).with_param("logits_processors"))
    };
    if row.iter().any(|logit| logit.is_nan() || *logit == f32::INFINITY) {
        return wrong("with a logit that is not a number or infinite");
    }
    if row.iter().all(|&logit| logit == f32::NEG_INFINITY) {
        return wrong("without a token that may come next");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// Sets the logit of a token, and counts what is asked of all at once.
    #[derive(Debug)]
    struct Set<'a>(TokenId, f32, &'a AtomicU32);

    impl LogitsProcessor for Set<'_> {
        fn process(&self, prompt: &[TokenId], generated: &[TokenId], row: &mut [f32]) -> Result<()> {
            if generated == [9] {
                return Err(Error::internal("no"));
            }
            row[(self.0 + prompt[0]) as usize] = self.1;
            Ok(())
        }

        fn together(&self, work: &mut dyn FnMut()) {
            self.2.fetch_add(1, Ordering::Relaxed);
            work();
        }
    }

    #[test]
    fn each_row_is_changed_by_its_own_processor_and_all_together() {
        let entered = AtomicU32::new(0);
        let boost = Set(0, 5.0, &entered);
        let spoil = Set(1, f32::NAN, &entered);
        let generated: [&[TokenId]; 4] = [&[], &[], &[9], &[]];
        let mut rows = ProcessedRows::default();
        for _ in 0..2 {
            rows.clear();
            for key in 0..3 {
                rows.push(key, &[0.0, 1.0, f32::NEG_INFINITY]);
            }
            rows.run(|key| {
                let processor: &dyn LogitsProcessor = if key == 1 { &spoil } else { &boost };
                Some(Processed { processor, prompt: &[1], generated: generated[key] })
            });
            assert_eq!(rows.get(0).unwrap().unwrap(), [0.0, 5.0, f32::NEG_INFINITY]);
            assert_eq!(rows.get(1).unwrap().unwrap_err().kind, ErrorKind::LogitsProcessor);
            assert_eq!(rows.get(2).unwrap().unwrap_err().message, "no");
            assert!(rows.get(3).is_none());
        }
        assert_eq!(entered.load(Ordering::Relaxed), 2, "once for each pass");
        assert_eq!((rows.stats().rows, rows.stats().failures), (6, 4));
    }

    #[test]
    fn a_row_without_a_token_is_an_error() {
        assert!(check(&[f32::NEG_INFINITY, 0.0]).is_ok());
        for row in [[f32::NEG_INFINITY; 2], [0.0, f32::NAN], [0.0, f32::INFINITY]] {
            assert_eq!(check(&row).unwrap_err().param.as_deref(), Some("logits_processors"), "{row:?}");
        }
    }
}
