//! The configuration as it crosses from Python: one JSON string, unknown fields refused.
//!
//! Sections that belong to one crate are that crate's own type; `runtime` is shared by the engines
//! and is divided here.

use std::path::PathBuf;
use std::time::Duration;

use llgtrt_core::{Error, Result};
use llgtrt_engine_llamacpp::{EmbedderConfig, LlamaCppConfig, Pooling};
use llgtrt_engine_sim::SimConfig;
use llgtrt_engine_trtllm::{Batching, TrtllmConfig, TrtllmSetup};
use llgtrt_grammar::{GrammarConfig, GrammarLimits};
use llgtrt_runtime::RuntimeConfig;
use llgtrt_text::TokenizerOptions;
use serde::Deserialize;
use serde_aux::serde_introspection::serde_introspect;
use serde_json::{Value, json};

/// Which engine to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Backend {
    LlamaCpp,
    Python,
    Sim,
    Trtllm,
}

impl Backend {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::LlamaCpp => "llamacpp",
            Self::Python => "python",
            Self::Sim => "sim",
            Self::Trtllm => "trtllm",
        }
    }
}

/// Everything Rust is told.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NativeConfig {
    pub backend: Backend,
    pub model_path: Option<PathBuf>,
    pub tokenizer_path: Option<PathBuf>,
    pub runtime: RuntimeSection,
    pub tokenizer: TokenizerOptions,
    pub llguidance: GrammarConfig,
    pub llamacpp: LlamaCppConfig,
    pub sim: SimConfig,
    #[serde(default)]
    pub embedding: EmbeddingSection,
    #[serde(default)]
    pub trtllm: TrtllmConfig,
    #[serde(default)]
    pub lora_root: Option<PathBuf>,
    /// Whether routers are told what the prefix cache holds.
    #[serde(default)]
    pub kv_events: Option<KvEventsSection>,
    /// Where shared libraries of Python packages are.
    #[serde(default)]
    pub library_folders: Vec<PathBuf>,
}

/// The `runtime` section. One file serves every engine: each takes the fields that it knows.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "the names and types of the configuration file")]
pub(crate) struct RuntimeSection {
    pub guaranteed_no_evict: bool,
    pub max_batch_size: Option<u32>,
    pub max_num_tokens: Option<u32>,
    pub max_queue_size: usize,
    pub seed: Option<u64>,
    pub max_seq_len: Option<u32>,
    pub enable_chunked_context: bool,
    pub enable_kv_cache_reuse: bool,
    pub kv_cache_free_gpu_mem_fraction: f32,
    pub kv_cache_host_memory_megabytes: u64,
    pub kv_cache_onboard_blocks: bool,
    pub cross_kv_cache_fraction: Option<f32>,
    pub secondary_offload_min_priority: Option<i32>,
    pub event_buffer_max_size: Option<u64>,
    pub enable_batch_size_tuning: bool,
    pub enable_max_num_tokens_tuning: bool,
    pub stall_timeout_ms: u64,
}

/// How the prefix cache is told of. Who is told is Python's business.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct KvEventsSection {
    /// Tokens of a block.
    pub block_size: usize,
    /// Whether an engine that tells of nothing is an error.
    pub required: bool,
}

/// The `embedding` section.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct EmbeddingSection {
    pub model: Option<PathBuf>,
    pub pooling: Pooling,
    pub max_tokens: Option<u32>,
    pub batch_tokens: u32,
    pub max_queue_size: usize,
}

impl Default for EmbeddingSection {
    fn default() -> Self {
        Self { model: None, pooling: Pooling::Auto, max_tokens: None, batch_tokens: 256, max_queue_size: 64 }
    }
}

impl EmbeddingSection {
    /// What an embedder over a GGUF model is made from.
    ///
    /// # Errors
    /// A number is out of range.
    pub(crate) fn embedder(&self) -> Result<EmbedderConfig> {
        let wrong = |name: &str, range: &str| {
            Err(Error::configuration(format!("embedding.{name} must be {range}"))
                .with_param(format!("embedding.{name}")))
        };
        if !(1..=65_536).contains(&self.batch_tokens) {
            return wrong("batch_tokens", "1 to 65536");
        }
        if self.max_tokens.is_some_and(|tokens| !(2..=1 << 20).contains(&tokens)) {
            return wrong("max_tokens", "2 to 1048576");
        }
        Ok(EmbedderConfig {
            pooling: self.pooling,
            max_tokens: self.max_tokens,
            batch_tokens: self.batch_tokens,
        })
    }
}

/// Sequences that may wait when the configuration says 0.
const DEFAULT_QUEUE_SIZE: usize = 256;

impl NativeConfig {
    pub(crate) fn runtime(&self) -> RuntimeConfig {
        RuntimeConfig {
            max_queue_size: match self.runtime.max_queue_size {
                0 => DEFAULT_QUEUE_SIZE,
                size => size,
            },
            seed: self.runtime.seed,
            stall_timeout: Duration::from_millis(self.runtime.stall_timeout_ms),
            grammar: self.llguidance.clone(),
        }
    }

    /// What a TensorRT-LLM engine is made from.
    pub(crate) fn trtllm(&self) -> Result<TrtllmSetup> {
        let runtime = &self.runtime;
        Ok(TrtllmSetup {
            engine_dir: self
                .model_path
                .clone()
                .ok_or_else(|| Error::configuration("the trtllm engine needs an engine folder"))?,
            config: self.trtllm.clone(),
            lora_root: self.lora_root.clone(),
            library_folders: self.library_folders.clone(),
            batching: Batching {
                guaranteed_no_evict: runtime.guaranteed_no_evict,
                max_batch_size: runtime.max_batch_size,
                max_num_tokens: runtime.max_num_tokens,
                max_sequence_tokens: runtime.max_seq_len,
                enable_chunked_context: runtime.enable_chunked_context,
                enable_kv_cache_reuse: runtime.enable_kv_cache_reuse,
                kv_cache_free_gpu_mem_fraction: runtime.kv_cache_free_gpu_mem_fraction,
                kv_cache_host_memory_megabytes: runtime.kv_cache_host_memory_megabytes,
                kv_cache_onboard_blocks: runtime.kv_cache_onboard_blocks,
                cross_kv_cache_fraction: runtime.cross_kv_cache_fraction,
                secondary_offload_min_priority: runtime.secondary_offload_min_priority,
                event_buffer_max_size: runtime.event_buffer_max_size,
                enable_batch_size_tuning: runtime.enable_batch_size_tuning,
                enable_max_num_tokens_tuning: runtime.enable_max_num_tokens_tuning,
            },
        })
    }
}

/// Fields of the engines' own types that are set from the `runtime` section and the paths, and so are no
/// options of the engines' sections.
const SET_ELSEWHERE: &[&str] =
    &["model_path", "max_batch_size", "max_sequence_tokens", "max_num_tokens", "max_waiting", "reuse_prefix"];

/// The fields of every section, for the test that compares them with Python's models.
pub(crate) fn fields() -> Value {
    let section = |fields: &'static [&'static str]| -> Vec<&str> {
        fields.iter().filter(|field| !SET_ELSEWHERE.contains(field)).copied().collect()
    };
    json!({
        "": serde_introspect::<NativeConfig>(),
        "runtime": serde_introspect::<RuntimeSection>(),
        "tokenizer": serde_introspect::<TokenizerOptions>(),
        "llguidance": serde_introspect::<GrammarConfig>(),
        "llguidance.limits": serde_introspect::<GrammarLimits>(),
        "llamacpp": section(serde_introspect::<LlamaCppConfig>()),
        "sim": section(serde_introspect::<SimConfig>()),
        "trtllm": serde_introspect::<TrtllmConfig>(),
        "embedding": serde_introspect::<EmbeddingSection>(),
    })
}
