//! The engine: accepts sequences, and steps all that hold a slot with one forward pass per poll.
//!
//! One thread makes every call. A poll goes: admit waiting sequences (`admit`), tell the mask source what is
//! new, go on with a long prompt for a while (`apart`), evaluate one batch (`forward`), sample under the masks (`sampling`), report. A batch
//! is of prompts or of answers; where there are both, they take turns or share it. A poll must not wait for anything but llama.cpp and the masks.

use std::sync::Arc;
use std::time::Duration;

use llgtrt_core::{
    Capabilities, Engine, EngineStats, Error, KvEventQueue, MaskSource, Result, SequenceId, SequenceSpec,
    StepBatch,
};
use llgtrt_stepped::{Output, PassCost, Rows, Sequences};

use crate::apart::ApartTurns;
use crate::cells::SlotBlocks;
use crate::config::Speculation;
use crate::context::Context;
use crate::costs::Costs;
use crate::draft_model::DraftModel;
use crate::held::Held;
use crate::model::LlamaCppModel;
use crate::pace::PrefillPace;
use crate::paused::PausedPasses;
use crate::repack::NeededTokens;
use crate::schedule::{Demand, Span, Work};
use crate::turns::Turns;

/// A pass over prompts beside sequences that generate, where these have passes of their own.
const OWN_PASS_MS: u32 = 150;

impl Rows for Context {
    fn logits(&self, index: usize) -> Option<&[f32]> {
        Context::logits(self, index)
    }
}

/// The embedded engine. See [`Engine`] for the contract.
pub struct LlamaCppEngine {
    pub(crate) cache: Held,
    pub(crate) sequences: Sequences,
    pub(crate) turns: Arc<Turns>,
    pub(crate) capabilities: Capabilities,
    pub(crate) reuse_prefix: bool,
    pub(crate) prefill_pace: PrefillPace,
    pub(crate) apart: ApartTurns,
    /// What the latest pass was over.
    pub(crate) work: Work,
    /// What the shape of a pass costs on this device.
    pub(crate) costs: Costs,
    /// Whether slots may have tokens in a pass that are taken back afterwards.
    pub(crate) may_pad: bool,
    /// Of the passes over answers.
    pub(crate) span: Span,
    /// Tokens that each slot has in a pass over answers, where guesses of any length are to keep its shape; else 1.
    pub(crate) width: usize,
    /// What decides whether guesses at the next tokens take part in a pass; `None` if they never do.
    pub(crate) pass_cost: Option<PassCost>,
    /// Guesses of a sequence in a pass, at most. Where there are few, no others generate beside it: llama.cpp gives a sequence with another
    /// number of tokens a pass of its own.
    pub(crate) most_guesses: usize,
    /// Guesses where the text says nothing.
    pub(crate) draft_model: Option<DraftModel>,
    /// What routers are told of `slots`; `None`: nobody asks.
    blocks: Option<SlotBlocks>,
    pub(crate) stats: EngineStats,
    dead: bool,
    // Reused between polls.
    pub(crate) demands: Vec<Demand>,
    pub(crate) shares: Vec<usize>,
    pub(crate) outputs: Vec<Output>,
    /// How many tokens every slot has in the current pass.
    pub(crate) widths: Vec<usize>,
    /// Slots with tokens in the current pass that are to be taken back, and how many are to stay.
    pub(crate) padded: Vec<(usize, usize)>,
    /// Which tokens of the pass are needed.
    pub(crate) needed: NeededTokens,
    pub(crate) usable: Vec<usize>,
    /// Slots whose sequences the draft model guesses for.
    pub(crate) asking: Vec<usize>,
}

impl LlamaCppEngine {
    /// An engine over a loaded model. `masks` answers for the constrained sequences.
    ///
    /// # Errors
    /// [`ErrorKind::Configuration`]: llama.cpp cannot run the model as configured.
    pub fn new(model: &LlamaCppModel, masks: Arc<dyn MaskSource>) -> Result<Self> {
        let config = &model.config;
        let mut context = Context::new(&model.weights, config)?;
        let slots = config.max_batch_size as usize;
        let capabilities = Capabilities {
            max_batch_size: config.max_batch_size,
            max_sequence_tokens: context.slot_tokens(),
            vocab_size: context.vocab_size() as u32,
            fast_forward: true,
            prompt_logprobs: true,
            allowed_logprobs: true,
            host_logits: true,
            retract: true,
            request_options: false,
            handover: false,
            name: "llamacpp",
        };
        let (can_take_back, most_guesses) = (context.can_take_back(), context.most_guesses());
        let tokens_are_independent = most_guesses > 0 && context.tokens_are_independent();
        // Wrong guesses have to leave the cache.
        let guessing = most_guesses > 0
            && match config.speculation {
                Speculation::On => true,
                Speculation::Off => false,
                Speculation::Auto => tokens_are_independent,
            };
        let costs = if model.is_on_gpu() {
            Costs::GPU
        } else {
            Costs::CPU.with_attention_to(model.cells_per_token())
        };
        let tokens = context.slot_tokens() as usize;
        let costs = costs.with_slots_of(tokens).with_window(context.window(), tokens);
        // They are where all of a pass is computed by our kernels.
        let costs = if can_take_back && tokens_are_independent { costs.without_padding() } else { costs };
        let costs = if guessing { costs.with_guesses() } else { costs };
        // Where tokens have the same bits in any company, which pass a prompt's are in changes no answer.
        let pauses = costs.shares_groups() && config.prefill_chunk_tokens.is_none();
        let paused = if pauses { PausedPasses::new(&mut context) } else { None };
        // Short passes are cheap where answers go along in them: elsewhere each reads the weights for prompts alone.
        let pass_ms = config.prefill_pass_ms.unwrap_or(if costs.shares_groups() { 0 } else { OWN_PASS_MS });
        let pace = || {
            let tokens = config.prefill_chunk_tokens.map(|tokens| tokens as usize);
            let pace = PrefillPace::new(Duration::from_millis(pass_ms.into()), tokens, slots);
            if config.prefill_pass_ms.is_none() { pace.with_longer_together() } else { pace }
        };
        let draft_model = match &model.draft {
            Some(draft) if guessing => Some(
                DraftModel::new(draft, config, context.vocab_size(), pace())
                    .map_err(|error| error.with_param("llamacpp.draft_model"))?,
            ),
            Some(_) => {
                tracing::warn!(
                    "llamacpp.draft_model is not used: guesses could change answers, by the types of the model's weights, the \
                     KV cache or this machine; llamacpp.speculation: \"on\" allows them"
                );
                None
            }
            None => None,
        };
        let tokenizer = model.tokenizer();
        let eos = tokenizer.vocabulary().eos();
        Ok(Self {
            sequences: Sequences::new(
                &capabilities,
                eos,
                config.max_waiting as usize,
                config.drawing_threads(model.is_on_gpu()) as usize,
                masks,
            ),
            cache: Held::new(context, paused, slots),
            apart: ApartTurns::default(),
            turns: Arc::clone(&model.turns),
            costs,
            may_pad: can_take_back,
            span: Span::default(),
            width: 1,
            pass_cost: guessing.then(PassCost::default),
            most_guesses,
            capabilities,
            reuse_prefix: config.reuse_prefix,
            prefill_pace: pace(),
            work: Work::Answers,
            draft_model,
            blocks: None,
            stats: EngineStats::default(),
            dead: false,
            demands: Vec::with_capacity(slots),
            shares: Vec::with_capacity(slots),
            outputs: Vec::with_capacity(slots),
            widths: Vec::with_capacity(slots),
            padded: Vec::with_capacity(slots),
            needed: NeededTokens::default(),
            usable: Vec::with_capacity(slots),
            asking: Vec::with_capacity(slots),
        })
    }

    /// Tells `queue` from now on what the slots hold. Without reuse of prefixes there is nothing to tell.
    #[must_use]
    pub fn with_kv_events(mut self, queue: Arc<KvEventQueue>) -> Self {
        self.blocks = self.reuse_prefix.then(|| SlotBlocks::new(self.cache.slots.len(), queue));
        self
    }

    /// Plans passes and copies slots as where all of the model is on a GPU: for tests where none is.
    #[doc(hidden)]
    #[must_use]
    pub fn planned_for_gpu(mut self) -> Self {
        self.costs = if self.pass_cost.is_some() { Costs::GPU.with_guesses() } else { Costs::GPU };
        self.cache.context.copy_on_device();
        self.cache.paused = None;
        self
    }

    fn tell_blocks(&mut self) {
        let Some(blocks) = &mut self.blocks else { return };
        for (index, slot) in self.cache.slots.iter_mut().enumerate() {
            blocks.update(index, &mut slot.tokens);
        }
        blocks.publish();
    }
}

impl Engine for LlamaCppEngine {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn submit(&mut self, spec: SequenceSpec) -> Result<()> {
        if self.dead {
            return Err(Error::engine("the engine has failed"));
        }
        self.sequences.submit(spec)
    }

    fn cancel(&mut self, id: SequenceId) {
        self.sequences.cancel(id, &mut self.cache);
    }

    fn poll(&mut self, timeout: Duration, batch: &mut StepBatch) -> Result<()> {
        if self.dead {
            return Err(Error::engine("the engine has failed"));
        }
        self.admit(batch);
        self.turns.set_generating(!self.sequences.is_idle());
        self.advance();
        if self.sequences.is_idle() {
            if !self.sequences.has_ended() {
                std::thread::sleep(timeout);
            }
        } else if let Some((mut pass, started)) = self.forward().inspect_err(|_| self.dead = true)? {
            self.sample();
            self.advance();
            pass.duration = started.elapsed();
            batch.pass(pass);
        }
        self.sequences.report(batch, &mut self.cache);
        self.tell_blocks();
        self.turns.set_generating(self.has_work());
        Ok(())
    }

    fn has_work(&self) -> bool {
        self.sequences.has_work()
    }

    fn stats(&self) -> EngineStats {
        let busy = self.cache.slots.iter().filter(|slot| slot.busy);
        let cells: usize = busy.map(|slot| slot.tokens.len()).sum();
        EngineStats {
            running: self.sequences.count_running(),
            waiting: self.sequences.waiting.len() as u32,
            kv_cache_usage: cells as f64 / (self.sequences.context() * self.cache.slots.len()) as f64,
            processors: self.sequences.processors(),
            ..self.stats
        }
    }
}
