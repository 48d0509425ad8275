//! From a configuration to a running core: loads the model, picks the engine. GIL released.

use std::path::Path;
use std::sync::Arc;

use llgtrt_core::{Embedder, Error, KvEventQueue, Result, Tokenizer};
use llgtrt_engine_llamacpp::{
    EmbedderConfig, LlamaCppConfig, LlamaCppEmbedder, LlamaCppEngine, LlamaCppModel,
};
use llgtrt_engine_sim::{SimEmbedder, SimEngine};
use llgtrt_engine_trtllm::{EngineInfo, TrtllmEngine, adapter_names};
use llgtrt_runtime::{EngineFactory, Runtime};
use llgtrt_stepped::RowEngine;
use llgtrt_text::{ByteTokenizer, HfTokenizer};
use serde_json::{Value, json};

use crate::config::{Backend, NativeConfig};
use crate::python_engine::PyRowModel;

/// The core and the JSON that describes its model. `kv_events` is told what the prefix cache holds.
pub(crate) fn start(
    config: NativeConfig,
    model: Option<PyRowModel>,
    kv_events: Option<&Arc<KvEventQueue>>,
) -> Result<(Runtime, String)> {
    if kv_events.is_some() {
        check_kv_events(&config)?;
    }
    let runtime_config = config.runtime();
    let backend = config.backend;
    let embedding = config.embedding.clone();
    let settings = embedding.embedder()?;
    // Before the engine, which takes minutes: what is wrong with it shows at once.
    let own = embedding.model.as_deref().map(|path| own_model(&config.llamacpp, path)).transpose()?;
    let Parts { tokenizer, vocab_size, mut info, engine, embedder } = match backend {
        Backend::LlamaCpp => llamacpp(config, own.as_ref(), &settings, kv_events)?,
        Backend::Python => python(&config, model)?,
        Backend::Sim => sim(config, kv_events)?,
        Backend::Trtllm => trtllm(&config, kv_events)?,
    };
    let embedder = match own {
        // Nothing else of llama.cpp computes in this process.
        Some(own) if backend != Backend::LlamaCpp => Some(over_own(&own, &own, &settings)?),
        _ => embedder,
    };
    let runtime = Runtime::start(&runtime_config, Arc::clone(&tokenizer), vocab_size, engine)?;
    if let Some(embedder) = embedder {
        runtime.serve_embedder(embedder, embedding.max_queue_size)?;
    }
    info["embedder"] = match runtime.embedder() {
        None => Value::Null,
        Some(traits) => json!({
            "dimensions": traits.dimensions,
            "ranks": traits.ranks,
            "max_tokens": traits.max_tokens,
            "vocab_size": traits.vocab_size,
            "pooling": traits.pooling,
        }),
    };
    let capabilities = runtime.capabilities();
    info["backend"] = backend.name().into();
    info["max_sequence_tokens"] = capabilities.max_sequence_tokens.into();
    info["max_batch_size"] = capabilities.max_batch_size.into();
    info["vocab_size"] = capabilities.vocab_size.into();
    info["fast_forward"] = capabilities.fast_forward.into();
    info["prompt_tensors"] = capabilities.request_options.into();
    info["prompt_logprobs"] = capabilities.prompt_logprobs.into();
    info["host_logits"] = capabilities.host_logits.into();
    info["handover"] = capabilities.handover.into();
    info["allowed_logprobs"] = capabilities.allowed_logprobs.into();
    let vocabulary = tokenizer.vocabulary();
    let text = |token| String::from_utf8_lossy(vocabulary.bytes(token)).into_owned();
    info["bos_token"] = vocabulary.bos().map(text).into();
    info["eos_token_ids"] = vocabulary.eos().into();
    info["eos_token"] = vocabulary.eos().first().copied().map(text).into();
    let ids = 0..vocabulary.len() as u32;
    info["special_tokens"] =
        ids.filter(|&token| vocabulary.is_special(token)).map(text).filter(|text| !text.is_empty()).collect();
    Ok((runtime, info.to_string()))
}

/// Events are refused where there would never be any.
fn check_kv_events(config: &NativeConfig) -> Result<()> {
    let problem = match config.backend {
        Backend::Trtllm if config.runtime.event_buffer_max_size == Some(0) => {
            "runtime.event_buffer_max_size is 0, so that TensorRT-LLM keeps none"
        }
        Backend::Python => "an engine in Python keeps no prefixes",
        Backend::LlamaCpp | Backend::Trtllm if !config.runtime.enable_kv_cache_reuse => {
            "runtime.enable_kv_cache_reuse is false, so that no prefix is cached"
        }
        Backend::Sim if config.sim.prefix_cache_tokens == 0 => {
            "sim.prefix_cache_tokens is 0, so that no prefix is cached"
        }
        Backend::LlamaCpp | Backend::Sim | Backend::Trtllm => return Ok(()),
    };
    Err(Error::configuration(format!("there are no KV events to publish: {problem}")).with_param("kv_events"))
}

/// What a backend brings.
struct Parts {
    tokenizer: Arc<dyn Tokenizer>,
    vocab_size: usize,
    info: Value,
    engine: EngineFactory,
    embedder: Option<Box<dyn Embedder>>,
}

/// The model that is there for vectors alone.
fn own_model(config: &LlamaCppConfig, path: &Path) -> Result<LlamaCppModel> {
    let config = LlamaCppConfig { model_path: path.to_owned(), draft_model: None, ..config.clone() };
    LlamaCppModel::load(&config).map_err(|error| error.with_param("embedding.model"))
}

/// The embedder of a model that is there for it alone: it is sure to be wanted, so what it needs is taken now.
fn over_own(
    model: &LlamaCppModel,
    beside: &LlamaCppModel,
    settings: &EmbedderConfig,
) -> Result<Box<dyn Embedder>> {
    let mut embedder = LlamaCppEmbedder::new(model, beside, settings)?;
    embedder.prepare()?;
    Ok(Box::new(embedder))
}

fn sim(config: NativeConfig, kv_events: Option<&Arc<KvEventQueue>>) -> Result<Parts> {
    let tokenizer: Arc<dyn Tokenizer> = match &config.tokenizer_path {
        Some(path) => Arc::new(HfTokenizer::from_path(path, &config.tokenizer)?),
        None => Arc::new(ByteTokenizer::new()),
    };
    let mut sim = config.sim;
    if let Some(size) = config.runtime.max_batch_size {
        sim.max_batch_size = size;
    }
    if let Some(tokens) = config.runtime.max_seq_len {
        sim.max_sequence_tokens = tokens;
    }
    let vocab_size = tokenizer.vocabulary().len();
    let info = json!({"chat_template": null, "metadata": {}});
    let shared = Arc::clone(&tokenizer);
    let embedder: Box<dyn Embedder> = Box::new(SimEmbedder::new(&sim, Arc::clone(&tokenizer)));
    let kv_events = kv_events.cloned();
    let engine: EngineFactory = Box::new(move |masks| {
        let engine = SimEngine::new(sim, shared, masks)?;
        Ok(match kv_events {
            Some(queue) => Box::new(engine.with_kv_events(queue)) as Box<_>,
            None => Box::new(engine),
        })
    });
    Ok(Parts { tokenizer, vocab_size, info, engine, embedder: Some(embedder) })
}

fn python(config: &NativeConfig, model: Option<PyRowModel>) -> Result<Parts> {
    let model = model.ok_or_else(|| Error::configuration("the python engine needs an object"))?;
    let tokenizer: Arc<dyn Tokenizer> = match config.tokenizer_path.as_ref().or(model.tokenizer.as_ref()) {
        Some(path) => Arc::new(HfTokenizer::from_path(path, &config.tokenizer)?),
        None => Arc::new(ByteTokenizer::new()),
    };
    let (vocab_size, tokens) = (model.vocab_size(), tokenizer.vocabulary().len());
    if tokens > vocab_size {
        return Err(Error::configuration(format!(
            "the tokenizer has {tokens} tokens and the Python engine {vocab_size}"
        )));
    }
    let info = json!({"chat_template": model.chat_template, "metadata": {}});
    let eos = tokenizer.vocabulary().eos().to_vec();
    let waiting = config.runtime().max_queue_size;
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let engine: EngineFactory = Box::new(move |masks| {
        Ok(Box::new(RowEngine::new(Box::new(model), &eos, waiting, threads, masks)?) as Box<_>)
    });
    Ok(Parts { tokenizer, vocab_size, info, engine, embedder: None })
}

/// Events of its KV cache that TensorRT-LLM keeps unless it is told: those of some seconds.
const EVENT_BUFFER: u64 = 65_536;

fn trtllm(config: &NativeConfig, kv_events: Option<&Arc<KvEventQueue>>) -> Result<Parts> {
    let mut setup = config.trtllm()?;
    if kv_events.is_some() {
        setup.batching.event_buffer_max_size.get_or_insert(EVENT_BUFFER);
    }
    let info = EngineInfo::read(&setup.engine_dir)?;
    let path = config.tokenizer_path.as_ref().ok_or_else(|| {
        Error::configuration(
            "the engine folder has no tokenizer.json: copy the model's there, or name it with -T",
        )
    })?;
    let tokenizer: Arc<dyn Tokenizer> = Arc::new(HfTokenizer::from_path(path, &config.tokenizer)?);
    let adapters = match &setup.lora_root {
        Some(root) => adapter_names(root).map_err(|error| {
            Error::configuration(format!("{}: {error}", root.display())).with_param("lora_root")
        })?,
        None => Vec::new(),
    };
    let vocab_size = info.vocab_size as usize;
    let info = json!({"device": "gpu", "chat_template": null, "metadata": {}, "adapters": adapters});
    let shared = Arc::clone(&tokenizer);
    let required = config.kv_events.as_ref().is_some_and(|section| section.required);
    let kv_events = kv_events.cloned();
    let engine: EngineFactory = Box::new(move |masks| {
        let mut engine = TrtllmEngine::new(&setup, shared, masks)?;
        match kv_events.map(|queue| engine.tell_kv_events(queue)) {
            Some(Err(error)) if required => return Err(error),
            Some(Err(error)) => {
                tracing::warn!(reason = error.message, "routers are not told what the KV cache holds");
            }
            Some(Ok(())) | None => {}
        }
        Ok(Box::new(engine))
    });
    Ok(Parts { tokenizer, vocab_size, info, engine, embedder: None })
}

fn llamacpp(
    config: NativeConfig,
    own: Option<&LlamaCppModel>,
    settings: &EmbedderConfig,
    kv_events: Option<&Arc<KvEventQueue>>,
) -> Result<Parts> {
    let runtime = config.runtime;
    let mut llamacpp = config.llamacpp;
    llamacpp.model_path =
        config.model_path.ok_or_else(|| Error::configuration("the llamacpp engine needs a GGUF file"))?;
    if let Some(size) = runtime.max_batch_size {
        llamacpp.max_batch_size = size;
    }
    llamacpp.max_num_tokens = runtime.max_num_tokens.map(|tokens| tokens.max(llamacpp.max_batch_size));
    llamacpp.max_sequence_tokens = runtime.max_seq_len;
    llamacpp.reuse_prefix = runtime.enable_kv_cache_reuse;
    let model = LlamaCppModel::load(&llamacpp)?;
    let vocab_size = model.tokenizer().vocabulary().len();
    let tokenizer = match &config.tokenizer_path {
        Some(path) => Arc::new(HfTokenizer::from_path(path, &config.tokenizer)?),
        None => model.tokenizer(),
    };
    if tokenizer.vocabulary().len() > vocab_size {
        let entries = tokenizer.vocabulary().len();
        return Err(Error::configuration(format!(
            "the tokenizer has {entries} tokens and the model {vocab_size}"
        )));
    }
    let embedder: Option<Box<dyn Embedder>> = match own {
        Some(own) => Some(over_own(own, &model, settings)?),
        None => {
            LlamaCppEmbedder::new(&model, &model, settings).map(|embedder| Some(Box::new(embedder) as _))?
        }
    };
    let (device, threads) = (model.device(), model.threads());
    let info = model.info();
    let info = json!({
        "device": device,
        "threads": threads,
        "chat_template": info.chat_template,
        "metadata": info.metadata,
        "fill_in": info.fill_in,
    });
    let kv_events = kv_events.cloned();
    let engine: EngineFactory = Box::new(move |masks| {
        let engine = LlamaCppEngine::new(&model, masks)?;
        Ok(match kv_events {
            Some(queue) => Box::new(engine.with_kv_events(queue)) as Box<_>,
            None => Box::new(engine),
        })
    });
    Ok(Parts { tokenizer, vocab_size, info, engine, embedder })
}
