//! Polls an engine under test and records what it reports, checking the rules that hold for every sequence:
//! one finish, nothing after it, nothing for strangers. Runs on the test's thread.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use llgtrt_core::{
    EncodeOptions, Engine, Finish, MaskSource, Pass, SamplingParams, SequenceId, SequenceSpec, StepBatch,
    TokenId, TokenLogprobs, TokenOutput, Tokenizer,
};

use crate::Fixture;
use crate::support::AllowAll;

/// Turns a hang into a failure; not a measure of speed.
const PATIENCE: Duration = Duration::from_secs(120);
/// Timeout of a poll while there is work.
const POLL: Duration = Duration::from_millis(200);

/// Everything that one sequence reported.
#[derive(Debug, Clone, Default)]
pub(crate) struct Record {
    pub(crate) outputs: Vec<TokenOutput>,
    pub(crate) finish: Option<Finish>,
    pub(crate) prompt_logprobs: Option<Vec<Option<TokenLogprobs>>>,
    /// What the last output said.
    pub(crate) certain: Option<usize>,
    prompt_len: usize,
    started: bool,
    cached_reported: bool,
}

impl Record {
    pub(crate) fn tokens(&self) -> Vec<TokenId> {
        self.outputs.iter().map(|output| output.token).collect()
    }
}

/// An engine with a record of its sequences.
pub(crate) struct Driver {
    pub(crate) engine: Box<dyn Engine>,
    pub(crate) tokenizer: Arc<dyn Tokenizer>,
    records: BTreeMap<u64, Record>,
    batch: StepBatch,
    /// Polls that neither reported nor computed anything, and returned early.
    pub(crate) idle_polls: u32,
    /// Every forward pass that was told of.
    pub(crate) passes: Vec<Pass>,
    started: Instant,
}

impl Driver {
    pub(crate) fn new(fixture: &dyn Fixture) -> Self {
        Self::with_masks(fixture, Arc::new(AllowAll))
    }

    pub(crate) fn with_masks(fixture: &dyn Fixture, masks: Arc<dyn MaskSource>) -> Self {
        Self {
            engine: fixture.engine(masks),
            tokenizer: fixture.tokenizer(),
            records: BTreeMap::new(),
            batch: StepBatch::default(),
            idle_polls: 0,
            passes: Vec::new(),
            started: Instant::now(),
        }
    }

    /// A greedy sequence of 8 tokens with a prompt of its own.
    pub(crate) fn spec(&self, id: u64) -> SequenceSpec {
        let text = format!("{id}. The quick brown fox jumps over the lazy dog, and then it");
        SequenceSpec {
            id: SequenceId(id),
            prompt: self.prompt(&text),
            max_tokens: 8,
            sampling: SamplingParams { temperature: 0.0, ..SamplingParams::default() },
            stop_token_ids: Arc::from([]),
            constrained: false,
            prompt_logprobs: false,
            options: None,
            processor: None,
            phase: llgtrt_core::Phase::Whole,
        }
    }

    /// A sequence that does not end by itself for as long as the context allows.
    pub(crate) fn endless(&self, id: u64) -> SequenceSpec {
        let mut spec = self.spec(id);
        spec.sampling.ignore_eos = true;
        spec.max_tokens = self.engine.capabilities().max_sequence_tokens - spec.prompt.len() as u32;
        spec
    }

    pub(crate) fn prompt(&self, text: &str) -> Arc<[TokenId]> {
        let options = EncodeOptions { add_special: true, parse_special: false };
        let tokens = self.tokenizer.encode(text, options).expect("the tokenizer encodes plain text");
        Arc::from(tokens)
    }

    /// Different tokens of plain text.
    pub(crate) fn text_tokens(&self, count: usize) -> Vec<TokenId> {
        ordinary(&*self.tokenizer, count)
    }

    pub(crate) fn eos(&self) -> Result<TokenId, String> {
        self.tokenizer
            .vocabulary()
            .eos()
            .first()
            .copied()
            .ok_or("the vocabulary has no end of sequence".to_owned())
    }

    pub(crate) fn submit(&mut self, spec: SequenceSpec) -> Result<(), String> {
        let (id, prompt_len) = (spec.id.0, spec.prompt.len());
        self.engine.submit(spec).map_err(|error| format!("submit of sequence {id} failed: {error}"))?;
        self.records.insert(id, Record { prompt_len, ..Record::default() });
        Ok(())
    }

    pub(crate) fn cancel(&mut self, id: u64) {
        self.engine.cancel(SequenceId(id));
    }

    pub(crate) fn record(&self, id: u64) -> &Record {
        &self.records[&id]
    }

    pub(crate) fn live(&self) -> usize {
        self.records.values().filter(|record| record.finish.is_none()).count()
    }

    /// Polls once; returns whether anything was reported.
    pub(crate) fn poll(&mut self) -> Result<bool, String> {
        self.poll_for(POLL)
    }

    fn poll_for(&mut self, timeout: Duration) -> Result<bool, String> {
        if self.started.elapsed() > PATIENCE {
            return Err(format!("{} sequences did not finish in {PATIENCE:?}", self.live()));
        }
        let (start, passes) = (Instant::now(), self.engine.stats().forward_passes);
        self.batch.clear();
        self.engine.poll(timeout, &mut self.batch).map_err(|error| format!("the engine died: {error}"))?;
        let idle = self.batch.is_empty() && self.engine.stats().forward_passes == passes;
        if idle && start.elapsed() < timeout / 4 {
            self.idle_polls += 1;
        }
        self.passes.extend_from_slice(self.batch.passes());
        for &(SequenceId(id), _) in self.batch.started() {
            let Some(record) = self.records.get_mut(&id) else {
                return Err(format!("start of sequence {id}, which was not submitted"));
            };
            if std::mem::replace(&mut record.started, true) {
                return Err(format!("sequence {id} started twice"));
            }
        }
        for (output, tokens) in self.batch.iter() {
            let id = output.id.0;
            let Some(record) = self.records.get_mut(&id) else {
                return Err(format!("output for sequence {id}, which was not submitted"));
            };
            if record.finish.is_some() {
                return Err(format!("output for sequence {id} after its finish"));
            }
            if let Some(cached) = output.cached_prompt_tokens {
                if std::mem::replace(&mut record.cached_reported, true) {
                    return Err(format!("sequence {id} reported its cached prompt tokens twice"));
                }
                if cached as usize > record.prompt_len {
                    return Err(format!(
                        "sequence {id}: {cached} of {} prompt tokens cached",
                        record.prompt_len
                    ));
                }
            }
            if !tokens.is_empty() && !record.started {
                return Err(format!("sequence {id}: a token came before its start"));
            }
            if !tokens.is_empty() && !record.cached_reported {
                return Err(format!("sequence {id}: the first token came without cached_prompt_tokens"));
            }
            if let Some(logprobs) = &output.prompt_logprobs
                && (record.prompt_logprobs.replace(logprobs.clone()).is_some() || !record.outputs.is_empty())
            {
                return Err(format!("sequence {id}: prompt logprobs belong to the first output only"));
            }
            if let Some(keep) = output.retract_to {
                if keep >= record.outputs.len() {
                    return Err(format!("sequence {id} withdraws tokens that it did not report"));
                }
                record.outputs.truncate(keep);
            }
            record.outputs.extend_from_slice(tokens);
            record.certain = output.certain;
            record.finish.clone_from(&output.finish);
        }
        Ok(!self.batch.is_empty())
    }

    /// Polls until `done` holds.
    pub(crate) fn poll_until(&mut self, done: impl Fn(&Self) -> bool) -> Result<(), String> {
        while !done(self) {
            if !self.engine.has_work() {
                return Err("the engine has no work left but sequences are live".to_owned());
            }
            self.poll()?;
        }
        Ok(())
    }

    /// Polls until every sequence finished.
    pub(crate) fn finish(&mut self) -> Result<(), String> {
        self.poll_until(|driver| driver.live() == 0)?;
        // Whatever an engine still has to say, it must not be about these sequences.
        for _ in 0..3 {
            if self.engine.has_work() {
                self.poll_for(Duration::from_millis(5))?;
            }
        }
        if self.engine.has_work() {
            return Err("every sequence finished but has_work is true".to_owned());
        }
        Ok(())
    }

    /// Runs one sequence to its end.
    pub(crate) fn run(&mut self, spec: SequenceSpec) -> Result<Record, String> {
        let id = spec.id.0;
        self.submit(spec)?;
        self.finish()?;
        Ok(self.records[&id].clone())
    }
}

/// Different tokens of plain text.
pub(crate) fn ordinary(tokenizer: &dyn Tokenizer, count: usize) -> Vec<TokenId> {
    let vocabulary = tokenizer.vocabulary();
    (0..vocabulary.len() as TokenId)
        .filter(|token| !vocabulary.is_special(*token) && !vocabulary.is_eos(*token))
        .filter(|token| vocabulary.bytes(*token).iter().all(u8::is_ascii_lowercase))
        .filter(|token| !vocabulary.bytes(*token).is_empty())
        .take(count)
        .collect()
}

/// Fails with `message` unless `condition` holds.
pub(crate) fn ensure(condition: bool, message: impl FnOnce() -> String) -> Result<(), String> {
    if condition { Ok(()) } else { Err(message()) }
}
