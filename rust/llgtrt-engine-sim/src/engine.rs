//! The step loop: waiting queue, slots, prefill in chunks, pretended forward passes, faults.
//! Runs on the thread that polls; sleeps to a deadline and never spins.
//!
//! A step starts when `poll` finds none in flight: free slots are given to waiting sequences and a chunk of
//! their prompts is evaluated. It ends at its deadline: every sequence whose prompt is evaluated gets a token.
//! Steps follow each other without a gap as long as the caller polls in time.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use llgtrt_core::{
    AdvanceBatch, Capabilities, Engine, EngineStats, Error, ErrorKind, Finish, KvEventQueue, MaskBatch,
    MaskSource, MaskVerdict, Pass, Phase, ProcessedRows, Result, SequenceId, SequenceSpec, StepBatch,
    StopCause, Tokenizer,
};

use crate::config::SimConfig;
use crate::fault::Faults;
use crate::handover;
use crate::prefix::PrefixCache;
use crate::processed::Said;
use crate::sequence::Sequence;
use crate::voice::Voice;

/// A deterministic engine without a model.
///
/// The tokens of a sequence depend on its own prompt, parameters and mask, never on its neighbours or on time.
/// Of the sampling parameters it honours temperature 0 and `top_k` 1 (the seed does not matter then), `seed`,
/// `logit_bias` (±100 forces or bans), `min_tokens`, `ignore_eos` and `logprobs`; the others have no effect
/// without logits.
pub struct SimEngine {
    config: SimConfig,
    capabilities: Capabilities,
    pub(crate) tokenizer: Arc<dyn Tokenizer>,
    masks: Arc<dyn MaskSource>,
    voice: Voice,
    faults: Faults,
    waiting: VecDeque<Sequence>,
    pub(crate) running: Vec<Sequence>,
    prefixes: Option<PrefixCache>,
    /// Cancelled since the last poll.
    cancelled: Vec<SequenceId>,
    /// End of the step in flight.
    deadline: Option<Instant>,
    /// What takes part in it.
    pass: Pass,
    /// End of the step before.
    last_deadline: Option<Instant>,
    submitted: u64,
    stats: EngineStats,
    dead: Option<Error>,
    advance_batch: AdvanceBatch,
    pub(crate) mask_batch: MaskBatch,
    pub(crate) processed: ProcessedRows,
}

impl SimEngine {
    /// An engine that speaks the tokenizer's vocabulary.
    ///
    /// # Errors
    /// [`ErrorKind::Configuration`]: an option has no usable value, or the vocabulary is empty.
    pub fn new(config: SimConfig, tokenizer: Arc<dyn Tokenizer>, masks: Arc<dyn MaskSource>) -> Result<Self> {
        config.validate()?;
        if tokenizer.vocabulary().is_empty() {
            return Err(Error::configuration("the vocabulary is empty"));
        }
        Ok(Self {
            capabilities: Capabilities {
                max_batch_size: config.max_batch_size,
                max_sequence_tokens: config.max_sequence_tokens,
                vocab_size: tokenizer.vocabulary().len() as u32,
                fast_forward: config.fast_forward,
                prompt_logprobs: true,
                allowed_logprobs: true,
                host_logits: true,
                retract: true,
                request_options: false,
                handover: true,
                name: "sim",
            },
            voice: Voice::new(&config, &*tokenizer)?,
            faults: Faults::new(&config.faults),
            tokenizer,
            masks,
            waiting: VecDeque::new(),
            running: Vec::new(),
            prefixes: PrefixCache::new(config.prefix_cache_tokens, None),
            cancelled: Vec::new(),
            deadline: None,
            pass: Pass::default(),
            last_deadline: None,
            submitted: 0,
            stats: EngineStats::default(),
            dead: None,
            advance_batch: AdvanceBatch::default(),
            mask_batch: MaskBatch::default(),
            processed: ProcessedRows::default(),
            config,
        })
    }

    /// Tells `queue` from now on what the prefix cache holds.
    #[must_use]
    pub fn with_kv_events(mut self, queue: Arc<KvEventQueue>) -> Self {
        self.prefixes = PrefixCache::new(self.config.prefix_cache_tokens, Some(queue));
        self
    }

    fn check(&self, spec: &SequenceSpec) -> Result<()> {
        if let Some(error) = &self.dead {
            return Err(error.clone());
        }
        if spec.prompt.is_empty() {
            return Err(Error::invalid("prompt", "the prompt has no tokens"));
        }
        if spec.prompt.iter().any(|token| *token >= self.capabilities.vocab_size) {
            return Err(Error::invalid("prompt", "the prompt holds a token that is not in the vocabulary"));
        }
        if spec.max_tokens == 0 {
            return Err(Error::invalid("max_tokens", "max_tokens must be at least 1"));
        }
        let tokens = spec.prompt.len() as u64 + u64::from(spec.max_tokens);
        if tokens > u64::from(self.config.max_sequence_tokens) {
            let message = format!(
                "{tokens} tokens with the prompt, but the context holds {}",
                self.config.max_sequence_tokens
            );
            return Err(Error::new(ErrorKind::ContextLength, message).with_param("max_tokens"));
        }
        spec.phase.check(&self.capabilities, spec.max_tokens)?;
        if let Phase::Generation(handover) = &spec.phase {
            handover::check(handover, spec, self.config.seed)?;
        }
        let places = self.config.max_batch_size as usize + self.config.max_waiting as usize;
        if self.running.len() + self.waiting.len() >= places {
            return Err(Error::new(ErrorKind::Overloaded, "the engine's queue is full"));
        }
        Ok(())
    }

    /// Gives out slots, evaluates prompts, and says when the step ends.
    fn start_step(&mut self, now: Instant, batch: &mut StepBatch) -> Instant {
        while self.running.len() < self.config.max_batch_size as usize
            && let Some(mut sequence) = self.waiting.pop_front()
        {
            let same = |other: &&Sequence| Arc::ptr_eq(&other.spec.prompt, &sequence.spec.prompt);
            if let Phase::Generation(_) = sequence.spec.phase {
                batch.start(sequence.spec.id);
                self.running.push(sequence);
                continue;
            }
            if let Some(other) = self.running.iter().find(same) {
                sequence.join(other);
            } else if let Some(prefixes) = &mut self.prefixes
                && !sequence.spec.prompt_logprobs
            {
                sequence.reuse(prefixes.find(&sequence.spec.prompt));
            }
            batch.start(sequence.spec.id);
            self.stats.prefix_cache_queries += sequence.spec.prompt.len() as u64;
            self.stats.prefix_cache_hits += u64::from(sequence.cached());
            self.running.push(sequence);
        }
        self.advance();

        let decoding = self.running.iter().filter(|sequence| sequence.is_ready()).count() as u64;
        let mut budget = self.config.prefill_chunk_tokens;
        self.pass = Pass::default();
        for sequence in &mut self.running {
            budget -= sequence.evaluate(budget, &mut self.pass);
        }
        let evaluated = u64::from(self.config.prefill_chunk_tokens - budget);
        let duration = Duration::from_micros(
            self.config
                .step_us
                .saturating_add(self.config.step_us_per_sequence.saturating_mul(decoding))
                .saturating_add(self.config.prefill_us_per_token.saturating_mul(evaluated)),
        );
        self.pass.duration = duration;
        // A late poll does not slow the engine down, a long pause does not make it race.
        let start = self.last_deadline.filter(|last| now.saturating_duration_since(*last) < duration);
        start.unwrap_or(now) + duration
    }

    /// Tells the grammars what is known, and appends what they force.
    fn advance(&mut self) {
        let slots: Vec<_> = self.running.iter().filter(|s| s.must_advance()).map(Sequence::slot).collect();
        if slots.is_empty() {
            return;
        }
        self.advance_batch.clear();
        self.masks.advance(&slots, self.config.fast_forward, &mut self.advance_batch);
        let vocabulary = self.tokenizer.vocabulary();
        let advanced = self.running.iter_mut().filter(|s| s.must_advance());
        for (index, sequence) in advanced.enumerate() {
            let (forced, state) = self.advance_batch.get(index);
            sequence.advance(forced, state, vocabulary);
            sequence.certain = self.advance_batch.certain(index);
        }
    }

    /// Samples a token for every sequence that is ready, and reports.
    fn finish_step(&mut self, batch: &mut StepBatch) -> Result<()> {
        self.stats.forward_passes += 1;
        if let Err(error) = self.faults.act(self.stats.forward_passes, &mut self.running) {
            self.dead = Some(error.clone());
            return Err(error);
        }
        self.sample();
        self.advance();
        let seed = self.config.seed;
        self.running.iter_mut().for_each(|sequence| handover::hand_over(sequence, seed));
        self.store_prefixes();
        batch.pass(self.pass);
        let vocabulary = self.tokenizer.vocabulary();
        self.running.retain_mut(|sequence| sequence.report(batch, vocabulary));
        Ok(())
    }

    fn store_prefixes(&mut self) {
        let Some(prefixes) = &mut self.prefixes else { return };
        for sequence in self.running.iter_mut().filter_map(|s| s.must_store().then_some(s)) {
            prefixes.store(sequence.spec.prompt.iter().chain(&sequence.tokens));
        }
        prefixes.publish();
    }

    fn sample(&mut self) {
        let masked = |sequence: &&Sequence| sequence.must_sample() && sequence.spec.constrained;
        let slots: Vec<_> = self.running.iter().filter(masked).map(Sequence::slot).collect();
        if !slots.is_empty() {
            self.mask_batch.reset(slots.len(), self.capabilities.vocab_size as usize);
            self.masks.fill(&slots, &mut self.mask_batch);
        }
        let vocabulary = self.tokenizer.vocabulary();
        let mut row = 0;
        let ready = self.running.iter_mut().enumerate().filter(|(_, sequence)| sequence.must_sample());
        self.processed.clear();
        for (index, sequence) in ready {
            let mut mask = None;
            let mask_row = sequence.spec.constrained.then_some(row);
            if sequence.spec.constrained {
                match self.mask_batch.verdict(row) {
                    MaskVerdict::Mask => mask = Some(self.mask_batch.row(row)),
                    MaskVerdict::Stop => sequence.finish = Some(Finish::Stop(StopCause::GrammarComplete)),
                    MaskVerdict::Failed(error) => sequence.finish = Some(Finish::Failed(error.clone())),
                }
                row += 1;
            }
            if sequence.finish.is_some() {
                continue;
            }
            if let Some(token) = self.voice.next(sequence, vocabulary, mask) {
                if sequence.spec.processor.is_some() {
                    sequence.said = Some(Said { token, mask_row });
                    self.processed.push(index, &sequence.row(token, vocabulary));
                    continue;
                }
                sequence.push_sampled(token, mask, vocabulary);
            } else {
                let error = Error::new(ErrorKind::Grammar, "the mask allows no token");
                sequence.finish = Some(Finish::Failed(error));
            }
        }
        self.sample_processed();
    }
}

impl Engine for SimEngine {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn submit(&mut self, spec: SequenceSpec) -> Result<()> {
        self.check(&spec)?;
        self.submitted += 1;
        let faults = self.faults.aimed_at(self.submitted, &spec.prompt, self.tokenizer.vocabulary());
        let max = self.config.max_sequence_tokens;
        self.waiting.push_back(Sequence::new(spec, faults, self.config.seed, max));
        Ok(())
    }

    fn cancel(&mut self, id: SequenceId) {
        let known = self.running.len() + self.waiting.len();
        self.running.retain(|sequence| sequence.spec.id != id);
        self.waiting.retain(|sequence| sequence.spec.id != id);
        if self.running.len() + self.waiting.len() < known {
            self.cancelled.push(id);
        }
        if self.running.is_empty() {
            self.deadline = None;
        }
    }

    fn poll(&mut self, timeout: Duration, batch: &mut StepBatch) -> Result<()> {
        if let Some(error) = &self.dead {
            return Err(error.clone());
        }
        if !self.cancelled.is_empty() {
            for id in self.cancelled.drain(..) {
                batch.begin(id);
                batch.finish(Finish::Cancelled);
            }
            return Ok(());
        }
        if !self.has_work() {
            self.last_deadline = None;
            std::thread::sleep(timeout);
            return Ok(());
        }
        let now = Instant::now();
        let deadline = match self.deadline {
            Some(deadline) => deadline,
            None => self.start_step(now, batch),
        };
        let wait = deadline.saturating_duration_since(now);
        if wait > timeout {
            self.deadline = Some(deadline);
            std::thread::sleep(timeout);
            return Ok(());
        }
        if !wait.is_zero() {
            std::thread::sleep(wait);
        }
        self.deadline = None;
        self.last_deadline = Some(deadline);
        self.finish_step(batch)
    }

    fn has_work(&self) -> bool {
        self.dead.is_none()
            && !(self.running.is_empty() && self.waiting.is_empty() && self.cancelled.is_empty())
    }

    fn stats(&self) -> EngineStats {
        let used: u64 = self.running.iter().map(Sequence::context).sum();
        let all = u64::from(self.config.max_batch_size) * u64::from(self.config.max_sequence_tokens);
        EngineStats {
            running: self.running.len() as u32,
            waiting: self.waiting.len() as u32,
            kv_cache_usage: used as f64 / all as f64,
            processors: self.processed.stats(),
            ..self.stats
        }
    }
}
