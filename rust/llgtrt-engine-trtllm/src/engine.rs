//! TensorRT-LLM's executor as an [`Engine`]. The thread that polls owns the plugin's handle and the table of live
//! sequences; the executor's own thread only fills masks (`masks`).
//!
//! A sequence is one request of the executor. It leaves the table in one place, [`TrtllmEngine::retire`]; what the
//! executor still says about it afterwards is ignored.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use llgtrt_core::{
    AdvanceBatch, AdvanceState, Batcher, CacheBlocks, Capabilities, Engine, EngineStats, Error, ErrorKind,
    Finish, KvEventQueue, MaskBatch, MaskSlot, MaskSource, Pass, RequestOptions, Result, RuntimeMemory,
    SequenceId, SequenceSpec, StepBatch, Tokenizer,
};

use crate::admission::Admission;
use crate::check::check;
use crate::config::TrtllmSetup;
use crate::engine_dir::EngineInfo;
use crate::library::Library;
use crate::lora::{AdapterLimits, AdapterUse, Adapters};
use crate::masks::MaskCallback;
use crate::native::{Failure, Native, NativeError, Response};
use crate::ranks::Ranks;
use crate::request::{Prepared, Shape, slot};
use crate::sequence::{Live, Progress, Reader};

/// The engine.
pub struct TrtllmEngine {
    native: Native,
    info: EngineInfo,
    capabilities: Capabilities,
    tokenizer: Arc<dyn Tokenizer>,
    admission: Admission,
    adapters: Adapters,
    /// By the executor's request id.
    live: HashMap<u64, Live>,
    requests: HashMap<SequenceId, u64>,
    /// Ends to report with the next poll.
    ended: Vec<(SequenceId, Finish)>,
    responses: Vec<Response>,
    stats: EngineStats,
    dead: Option<Error>,
}

impl TrtllmEngine {
    /// Loads an engine, which takes as long as reading its weights.
    ///
    /// # Errors
    /// [`ErrorKind::Configuration`]: the configuration does not fit the engine (each conflict is named, before
    /// anything native is loaded), the plugin cannot be opened, or TensorRT-LLM refuses the engine.
    pub fn new(
        setup: &TrtllmSetup,
        tokenizer: Arc<dyn Tokenizer>,
        masks: Arc<dyn MaskSource>,
    ) -> Result<Self> {
        let info = EngineInfo::read(&setup.engine_dir)?;
        if tokenizer.vocabulary().len() > info.vocab_size as usize {
            return Err(Error::configuration(format!(
                "the tokenizer has {} tokens and the engine {}",
                tokenizer.vocabulary().len(),
                info.vocab_size
            ))
            .with_param("tokenizer"));
        }
        let native = load(setup, &info, masks)?;
        let admission = Admission::new(setup, &info);
        tracing::info!(
            version = native.version(),
            engine_version = info.version,
            architecture = info.architecture,
            "TensorRT-LLM loaded the engine"
        );
        Ok(Self {
            capabilities: Capabilities {
                max_batch_size: setup.batching.max_batch_size.unwrap_or(info.max_batch_size),
                max_sequence_tokens: admission.max_sequence_tokens(),
                vocab_size: info.vocab_size,
                fast_forward: false,
                prompt_logprobs: info.gather_context_logits,
                // The masks are applied on the device.
                allowed_logprobs: false,
                host_logits: false,
                // A sequence of the executor cannot be shortened.
                retract: false,
                request_options: true,
                handover: setup.config.cache_transceiver_backend.is_some(),
                name: "trtllm",
            },
            native,
            tokenizer,
            admission,
            adapters: Adapters::new(setup.lora_root.as_deref(), AdapterLimits::new(setup, &info)),
            live: HashMap::new(),
            requests: HashMap::new(),
            ended: Vec::new(),
            responses: Vec::new(),
            stats: EngineStats::default(),
            dead: None,
            info,
        })
    }

    /// Tells `queue` from now on what the KV cache holds.
    ///
    /// # Errors
    /// [`ErrorKind::Configuration`]: the executor tells of nothing, or the queue's blocks do not divide the engine's.
    pub fn tell_kv_events(&mut self, queue: Arc<KvEventQueue>) -> Result<()> {
        self.native.tell_kv_events(self.info.tokens_per_block, queue)
    }

    /// What the engine was built for.
    pub fn info(&self) -> &EngineInfo {
        &self.info
    }

    /// TensorRT-LLM's own statistics of the last iteration, as JSON.
    pub fn native_stats_json(&mut self) -> String {
        self.native.stats_json()
    }

    /// Hands a sequence to the executor and enters it into the table.
    fn start(
        &mut self,
        spec: SequenceSpec,
        options: Arc<RequestOptions>,
        adapter: Option<&AdapterUse>,
        retried: bool,
    ) -> Result<()> {
        let shape = Shape { vocabulary: self.tokenizer.vocabulary(), vocab_size: self.info.vocab_size };
        let slot = slot(&spec, &shape);
        let prepared = Prepared::new(&spec, &options, adapter, slot.is_some(), &shape);
        // Before the executor knows the request: its thread may ask for the first mask at once.
        let slot = slot.map(|slot| self.native.callback().insert(spec.id.0, slot));
        match self.native.submit(&prepared.plain()) {
            Ok(request_id) => {
                self.requests.insert(spec.id, request_id);
                let mut live = Live::new(spec, options, request_id, slot);
                live.retried = retried;
                self.live.insert(request_id, live);
                Ok(())
            }
            Err(error) => {
                self.native.callback().remove(spec.id.0);
                Err(self.refused(error))
            }
        }
    }

    /// Whether a refusal means the request or the engine.
    fn refused(&mut self, error: NativeError) -> Error {
        let text = match error {
            NativeError::Fatal(text) => return self.die(&text),
            NativeError::Refused(text) => text,
        };
        // An executor that has ended refuses as well.
        if let Err(NativeError::Fatal(text)) = self.native.health() {
            return self.die(&text);
        }
        Error::new(ErrorKind::InvalidRequest, format!("TensorRT-LLM refused the request: {text}"))
    }

    fn die(&mut self, text: &str) -> Error {
        let error = Error::engine(format!("TensorRT-LLM: {text}"));
        self.dead.get_or_insert(error).clone()
    }

    /// The one place where a sequence leaves the table. `finished`: the executor is done with it as well.
    fn retire(&mut self, request_id: u64, finished: bool) -> Option<Live> {
        let live = self.live.remove(&request_id)?;
        self.requests.remove(&live.spec.id);
        self.native.callback().remove(live.spec.id.0);
        self.native.forget(request_id);
        if !finished {
            self.native.cancel(request_id);
        }
        Some(live)
    }

    /// Reports what the executor has said. Fails if what it said was that the device is lost.
    fn read(&mut self, batch: &mut StepBatch) -> Result<(), NativeError> {
        let mut failed = false;
        for response in std::mem::take(&mut self.responses) {
            let Some(live) = self.live.get_mut(&response.request_id) else { continue };
            let missing = matches!(response.error, Some(Failure::AdapterMissing(_)));
            if missing && !live.retried && self.send_weights(response.request_id, batch) {
                continue;
            }
            let Some(live) = self.live.get_mut(&response.request_id) else { continue };
            failed |= matches!(response.error, Some(Failure::Request(_)));
            if !live.started && response.error.is_none() {
                self.stats.prefix_cache_queries += live.spec.prompt.len() as u64;
                self.stats.prefix_cache_hits += u64::from(live.cached(&response, self.info.tokens_per_block));
            }
            let mut reader = Reader {
                native: &mut self.native,
                vocabulary: self.tokenizer.vocabulary(),
                vocab_size: self.info.vocab_size as usize,
                tokens_per_block: self.info.tokens_per_block,
            };
            if let Progress::Ended(finish) = live.read(&response, &mut reader, batch) {
                if batch.current().is_none_or(|output| output.id != live.spec.id) {
                    batch.begin(live.spec.id);
                }
                batch.finish(finish);
                self.retire(response.request_id, response.is_final);
            }
        }
        // The executor answers with errors and goes on, whether a request was at fault or the device is gone.
        if failed { self.native.health() } else { Ok(()) }
    }

    /// The adapter fell out of the cache: submits the sequence again with its weights. False: it cannot be helped.
    fn send_weights(&mut self, request_id: u64, batch: &mut StepBatch) -> bool {
        let Some(adapter) = self.live.get(&request_id).and_then(|live| live.options.adapter.clone()) else {
            return false;
        };
        let adapter = match self.adapters.resolve(&adapter, true) {
            Ok(adapter) if adapter.weights.is_some() => adapter,
            _ => return false,
        };
        let _within = self.live.get(&request_id).map(|live| live.span.clone().entered());
        tracing::info!(adapter = adapter.adapter.name, "LoRA weights are sent again");
        let Some(live) = self.retire(request_id, true) else { return false };
        let id = live.spec.id;
        if let Err(error) = self.start(live.spec, live.options, Some(&adapter), true) {
            batch.begin(id);
            batch.finish(Finish::Failed(error));
        }
        true
    }

    /// Tokens of the sequences that generate. The executor does not say it of an iteration; those that one poll hears of
    /// are few.
    fn generating_tokens(&self) -> u64 {
        self.live.values().filter(|live| live.started).map(|live| live.len() as u64).sum()
    }

    fn update_stats(&mut self, decode_context_tokens: u64, batch: &mut StepBatch) -> Result<(), NativeError> {
        let (native, passes) = self.native.stats()?;
        for pass in passes {
            let decodes = pass.decode_sequences > 0;
            let decode_context_tokens = if decodes { decode_context_tokens } else { 0 };
            batch.pass(Pass { decode_context_tokens, ..pass });
        }
        let started = self.live.values().filter(|live| live.started).count() as u32;
        self.stats.running = started.min(self.capabilities.max_batch_size);
        self.stats.waiting = self.live.len() as u32 - self.stats.running;
        self.stats.forward_passes = native.iterations;
        let count = |count: i32| count.max(0).unsigned_abs();
        let blocks = CacheBlocks {
            max: count(native.kv_blocks_max),
            used: count(native.kv_blocks_used).min(count(native.kv_blocks_max)),
            free: count(native.kv_blocks_free),
            tokens: count(native.kv_tokens_per_block),
        };
        // A model without attention has none.
        self.stats.cache_blocks = (blocks.max > 0).then_some(blocks);
        self.stats.kv_cache_usage =
            if blocks.max > 0 { f64::from(blocks.used) / f64::from(blocks.max) } else { 0.0 };
        self.stats.memory =
            Some(RuntimeMemory { gpu: native.gpu_bytes, cpu: native.cpu_bytes, pinned: native.pinned_bytes });
        self.stats.batcher = Some(Batcher {
            scheduled: count(native.scheduled_requests),
            context: count(native.context_requests),
            generation: count(native.generation_requests),
            paused: count(native.paused_requests),
            context_tokens: count(native.context_tokens),
            micro_batch: count(native.micro_batch_id),
        });
        Ok(())
    }
}

/// Checks the configuration, opens the plugin and loads the engine.
fn load(setup: &TrtllmSetup, info: &EngineInfo, masks: Arc<dyn MaskSource>) -> Result<Native> {
    check(setup, info, Ranks::from_env())?;
    let path = setup.config.plugin_path.as_deref().ok_or_else(|| {
        Error::configuration("there is no TensorRT-LLM plugin; build it with: llgtrt build-trtllm")
            .with_param("trtllm.plugin_path")
    })?;
    let library = Library::open(path, &setup.library_folders)?;
    let callback = Arc::new(MaskCallback::new(masks, info.vocab_size as usize));
    Native::create(library, setup, info, callback)
}

/// Runs this process as a worker of a group (`mpirun -n N`): loads its part of the engine and returns when the leader
/// has ended.
///
/// # Errors
/// As [`TrtllmEngine::new`]; and if the executor takes this process for the leader.
pub fn run_worker(setup: &TrtllmSetup) -> Result<()> {
    let info = EngineInfo::read(&setup.engine_dir)?;
    let native = load(setup, &info, Arc::new(NoMasks))?;
    if native.is_leader() {
        return Err(Error::configuration("TensorRT-LLM takes this process for the leader of its group"));
    }
    // Dropping waits for the leader.
    drop(native);
    Ok(())
}

/// A worker has no sequences of its own; its executor does not ask.
struct NoMasks;

impl MaskSource for NoMasks {
    fn advance(&self, slots: &[MaskSlot<'_>], _fast_forward: bool, out: &mut AdvanceBatch) {
        for _ in slots {
            out.push(&[], AdvanceState::Failed(Error::internal("a worker knows no grammars")));
        }
    }

    fn fill(&self, _slots: &[MaskSlot<'_>], _batch: &mut MaskBatch) {}
}

impl Engine for TrtllmEngine {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn submit(&mut self, spec: SequenceSpec) -> Result<()> {
        let options = spec.options.clone().unwrap_or_default();
        if let Some(error) = &self.dead {
            return Err(error.clone());
        }
        spec.phase.check(&self.capabilities, spec.max_tokens)?;
        self.admission.check(&spec, &options)?;
        let adapter = match &options.adapter {
            Some(adapter) => Some(self.adapters.resolve(adapter, false)?),
            None => None,
        };
        self.start(spec, options, adapter.as_ref(), false)
    }

    fn cancel(&mut self, id: SequenceId) {
        if let Some(&request_id) = self.requests.get(&id)
            && self.retire(request_id, false).is_some()
        {
            self.ended.push((id, Finish::Cancelled));
        }
    }

    fn poll(&mut self, timeout: Duration, batch: &mut StepBatch) -> Result<()> {
        let deadline = Instant::now() + timeout;
        loop {
            for (id, finish) in self.ended.drain(..) {
                batch.begin(id);
                batch.finish(finish);
            }
            if let Some(error) = &self.dead {
                return Err(error.clone());
            }
            let wait = if batch.is_empty() {
                deadline.saturating_duration_since(Instant::now())
            } else {
                Duration::ZERO
            };
            let generating = self.generating_tokens();
            let responses = &mut self.responses;
            let outcome = match self.native.wait(wait, responses) {
                Ok(()) => self.read(batch).and_then(|()| self.update_stats(generating, batch)),
                Err(error) => Err(error),
            };
            if let Err(NativeError::Fatal(text) | NativeError::Refused(text)) = outcome {
                return Err(self.die(&text));
            }
            if !batch.is_empty() || Instant::now() >= deadline {
                return Ok(());
            }
        }
    }

    fn has_work(&self) -> bool {
        // A dead engine has to be polled once more, to say so.
        !self.live.is_empty() || !self.ended.is_empty() || self.dead.is_some()
    }

    fn stats(&self) -> EngineStats {
        self.stats
    }
}
