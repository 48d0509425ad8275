//! From a configuration to a running core: loads the model, picks the engine. GIL released.

use std::sync::Arc;

use llgtrt_core::{Error, Result, Tokenizer};
use llgtrt_engine_llamacpp::{LlamaCppEngine, LlamaCppModel};
use llgtrt_engine_sim::SimEngine;
use llgtrt_engine_trtllm::{EngineInfo, TrtllmEngine, adapter_names};
use llgtrt_runtime::{EngineFactory, Runtime};
use llgtrt_text::{ByteTokenizer, HfTokenizer};
use serde_json::{Value, json};

use crate::config::{Backend, NativeConfig};

/// The core and the JSON that describes its model.
pub(crate) fn start(config: NativeConfig) -> Result<(Runtime, String)> {
    let runtime_config = config.runtime();
    let backend = config.backend;
    let (tokenizer, vocab_size, mut info, engine) = match backend {
        Backend::LlamaCpp => llamacpp(config)?,
        Backend::Sim => sim(config)?,
        Backend::Trtllm => trtllm(&config)?,
    };
    let runtime = Runtime::start(&runtime_config, Arc::clone(&tokenizer), vocab_size, engine)?;
    let capabilities = runtime.capabilities();
    info["backend"] = backend.name().into();
    info["max_sequence_tokens"] = capabilities.max_sequence_tokens.into();
    info["max_batch_size"] = capabilities.max_batch_size.into();
    info["vocab_size"] = capabilities.vocab_size.into();
    info["fast_forward"] = capabilities.fast_forward.into();
    info["prompt_tensors"] = capabilities.request_options.into();
    info["prompt_logprobs"] = capabilities.prompt_logprobs.into();
    let vocabulary = tokenizer.vocabulary();
    let text = |token| String::from_utf8_lossy(vocabulary.bytes(token)).into_owned();
    info["bos_token"] = vocabulary.bos().map(text).into();
    info["eos_token"] = vocabulary.eos().first().copied().map(text).into();
    let ids = 0..vocabulary.len() as u32;
    info["special_tokens"] =
        ids.filter(|&token| vocabulary.is_special(token)).map(text).filter(|text| !text.is_empty()).collect();
    Ok((runtime, info.to_string()))
}

type Parts = (Arc<dyn Tokenizer>, usize, Value, EngineFactory);

fn sim(config: NativeConfig) -> Result<Parts> {
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
    let engine: EngineFactory =
        Box::new(move |masks| Ok(Box::new(SimEngine::new(sim, shared, masks)?) as Box<_>));
    Ok((tokenizer, vocab_size, info, engine))
}

fn trtllm(config: &NativeConfig) -> Result<Parts> {
    let setup = config.trtllm()?;
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
    let info = json!({"chat_template": null, "metadata": {}, "adapters": adapters});
    let shared = Arc::clone(&tokenizer);
    let engine: EngineFactory =
        Box::new(move |masks| Ok(Box::new(TrtllmEngine::new(&setup, shared, masks)?) as Box<_>));
    Ok((tokenizer, vocab_size, info, engine))
}

fn llamacpp(config: NativeConfig) -> Result<Parts> {
    let runtime = config.runtime;
    let mut llamacpp = config.llamacpp;
    llamacpp.model_path =
        config.model_path.ok_or_else(|| Error::configuration("the llamacpp engine needs a GGUF file"))?;
    if let Some(size) = runtime.max_batch_size {
        llamacpp.max_batch_size = size;
    }
    if let Some(tokens) = runtime.max_num_tokens {
        llamacpp.max_num_tokens = tokens;
    }
    llamacpp.max_num_tokens = llamacpp.max_num_tokens.max(llamacpp.max_batch_size);
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
    let info = model.info();
    let info = json!({"chat_template": info.chat_template, "metadata": info.metadata});
    let engine: EngineFactory =
        Box::new(move |masks| Ok(Box::new(LlamaCppEngine::new(&model, masks)?) as Box<_>));
    Ok((tokenizer, vocab_size, info, engine))
}
