//! What can be set about the engine. Plain data; used once, by whichever thread starts the server.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Settings that only TensorRT-LLM has: the section `trtllm` of the configuration file.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "the names and types of the configuration file")]
pub struct TrtllmConfig {
    /// The plugin; None: the one that `llgtrt build-trtllm` made.
    #[serde(skip_serializing)]
    pub plugin_path: Option<PathBuf>,
    /// Folder of an encoder's engine, for encoder-decoder models.
    pub encoder_dir: Option<PathBuf>,
    /// Order in which long prompts share a forward pass. None: the executor's choice.
    pub context_chunking_policy: Option<ChunkingPolicy>,
    /// Most beams of a request.
    pub max_beam_width: u32,
    /// Requests over which batch size and token limit are tuned. None: the executor's choice.
    pub tuning_window: Option<u32>,
    /// Log-probabilities are those of a distribution that sums to 1.
    pub normalize_log_probs: bool,
    /// Iterations of which statistics are kept until they are read.
    pub iter_stats_max_iterations: u32,
    /// Fraction of the weights that stay in GPU memory, 0 to 1.
    pub gpu_weights_percent: f32,
    /// Most tokens in the KV cache. None: as many as fit.
    pub kv_cache_max_tokens: Option<u32>,
    /// Attention window of each layer, repeated over the layers; empty: as the engine was built.
    pub max_attention_window: Vec<u32>,
    /// Tokens at the start that a sliding window always keeps.
    pub sink_token_length: Option<u32>,
    /// Spread the attention of a long context over several blocks of the GPU.
    pub multi_block_mode: bool,
    /// Add up in 32 bits in the prompt's attention kernels.
    pub enable_context_fmha_fp32_acc: bool,
    /// Use CUDA graphs.
    pub cuda_graph_mode: bool,
    /// CUDA graphs to keep.
    pub cuda_graph_cache_size: u32,
    /// How tokens are decoded. None: the executor's choice.
    pub decoding_mode: Option<DecodingMode>,
    /// Lookahead decoding: window, n-gram and verification set. None: the executor's defaults.
    pub lookahead: Option<[u32; 3]>,
    /// Medusa's tree; empty: the engine's.
    pub medusa_choices: Vec<Vec<u32>>,
    /// Eagle's tree; empty: the engine's.
    pub eagle_choices: Vec<Vec<u32>>,
    /// Eagle accepts the likeliest token only.
    pub eagle_greedy_sampling: bool,
    /// Least probability that Eagle's typical acceptance takes.
    pub eagle_posterior_threshold: Option<f32>,
    /// Eagle grows its tree while decoding; the tokens expanded per node.
    pub eagle_dynamic_tree_top_k: Option<u32>,
    /// Rank that the pages of the LoRA cache are laid out for.
    pub lora_optimal_adapter_size: Option<u32>,
    /// Largest rank of an adapter.
    pub lora_max_adapter_size: Option<u32>,
    /// Fraction of the free GPU memory for LoRA weights.
    pub lora_cache_gpu_memory_fraction: Option<f32>,
    /// Host memory for LoRA weights, in MB.
    pub lora_cache_host_memory_megabytes: Option<u64>,
    /// How KV caches go to other executors. None: they do not.
    pub cache_transceiver_backend: Option<TransceiverBackend>,
    /// Tokens that its buffer holds; larger caches go in pieces. None: the executor's choice.
    pub cache_transceiver_max_tokens_in_buffer: Option<u32>,
    /// Longest that a transfer may take. None: no limit.
    pub kv_transfer_timeout_ms: Option<u32>,
    /// Longest that a step waits for transfers to end. None: the executor's choice.
    pub kv_transfer_sender_future_timeout_ms: Option<u32>,
    /// GPUs to use, one per rank on this machine. Empty: by rank.
    pub gpu_device_ids: Vec<u32>,
}

impl Default for TrtllmConfig {
    fn default() -> Self {
        Self {
            plugin_path: None,
            encoder_dir: None,
            context_chunking_policy: None,
            max_beam_width: 1,
            tuning_window: None,
            normalize_log_probs: true,
            iter_stats_max_iterations: 1000,
            gpu_weights_percent: 1.0,
            kv_cache_max_tokens: None,
            max_attention_window: Vec::new(),
            sink_token_length: None,
            multi_block_mode: true,
            enable_context_fmha_fp32_acc: false,
            cuda_graph_mode: false,
            cuda_graph_cache_size: 0,
            decoding_mode: None,
            lookahead: None,
            medusa_choices: Vec::new(),
            eagle_choices: Vec::new(),
            eagle_greedy_sampling: true,
            eagle_posterior_threshold: None,
            eagle_dynamic_tree_top_k: None,
            lora_optimal_adapter_size: None,
            lora_max_adapter_size: None,
            lora_cache_gpu_memory_fraction: None,
            lora_cache_host_memory_megabytes: None,
            cache_transceiver_backend: None,
            cache_transceiver_max_tokens_in_buffer: None,
            kv_transfer_timeout_ms: None,
            kv_transfer_sender_future_timeout_ms: None,
            gpu_device_ids: Vec::new(),
        }
    }
}

/// Order in which long prompts share a forward pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ChunkingPolicy {
    /// One prompt after the other.
    FirstComeFirstServed,
    /// A piece of each.
    EqualProgress,
}

/// What moves KV caches between executors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TransceiverBackend {
    /// TensorRT-LLM's choice.
    Default,
    /// MPI.
    Mpi,
    /// UCX.
    Ucx,
    /// NIXL.
    Nixl,
}

/// How tokens are decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DecodingMode {
    /// Top-k or top-p, or beams, by the first request.
    Auto,
    /// Top-k.
    TopK,
    /// Top-p.
    TopP,
    /// Top-k, then top-p.
    TopKTopP,
    /// Beam search.
    BeamSearch,
    /// Medusa heads.
    Medusa,
    /// Recurrent drafter.
    Redrafter,
    /// Lookahead.
    Lookahead,
    /// Eagle.
    Eagle,
}

impl DecodingMode {
    /// The engine's `speculative_decoding_mode` that this needs; None: any.
    pub(crate) const fn speculation(self) -> Option<&'static str> {
        match self {
            Self::Medusa => Some("medusa"),
            Self::Redrafter => Some("explicit_draft_tokens"),
            Self::Lookahead => Some("lookahead_decoding"),
            Self::Eagle => Some("eagle"),
            _ => None,
        }
    }
}

/// Settings that every engine has, as far as TensorRT-LLM knows them: options of the section `runtime`, by their names there.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[expect(clippy::struct_excessive_bools, reason = "the names and types of the configuration file")]
pub struct Batching {
    /// Never evict a sequence that was started.
    pub guaranteed_no_evict: bool,
    /// Sequences that generate at the same time. None: as many as the engine was built for.
    pub max_batch_size: Option<u32>,
    /// Tokens in one forward pass. None: as many as the engine was built for.
    pub max_num_tokens: Option<u32>,
    /// Prompt plus answer. None: as many as the engine was built for.
    #[serde(skip)]
    pub max_sequence_tokens: Option<u32>,
    /// Split long prompts.
    pub enable_chunked_context: bool,
    /// Reuse the KV cache of common prefixes.
    pub enable_kv_cache_reuse: bool,
    /// Fraction of the free GPU memory for the KV cache.
    pub kv_cache_free_gpu_mem_fraction: f32,
    /// Host memory for the KV cache, in MB.
    pub kv_cache_host_memory_megabytes: u64,
    /// Bring offloaded blocks back before they are reused.
    pub kv_cache_onboard_blocks: bool,
    /// Fraction of the KV cache for cross attention.
    pub cross_kv_cache_fraction: Option<f32>,
    /// Only blocks of a higher priority are offloaded.
    pub secondary_offload_min_priority: Option<i32>,
    /// KV cache events to keep.
    pub event_buffer_max_size: Option<u64>,
    /// Tune the batch size.
    pub enable_batch_size_tuning: bool,
    /// Tune the token limit.
    pub enable_max_num_tokens_tuning: bool,
}

impl Default for Batching {
    fn default() -> Self {
        Self {
            guaranteed_no_evict: false,
            max_batch_size: None,
            max_num_tokens: None,
            max_sequence_tokens: None,
            enable_chunked_context: true,
            enable_kv_cache_reuse: true,
            kv_cache_free_gpu_mem_fraction: 0.9,
            kv_cache_host_memory_megabytes: 0,
            kv_cache_onboard_blocks: true,
            cross_kv_cache_fraction: None,
            secondary_offload_min_priority: None,
            event_buffer_max_size: None,
            enable_batch_size_tuning: true,
            enable_max_num_tokens_tuning: true,
        }
    }
}

/// Everything that an engine is made from.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TrtllmSetup {
    /// Output folder of trtllm-build.
    pub engine_dir: PathBuf,
    /// The shared settings.
    pub batching: Batching,
    /// The engine's own settings.
    pub config: TrtllmConfig,
    /// Folder of LoRA adapters, `NAME.safetensors`. None: no adapters.
    pub lora_root: Option<PathBuf>,
    /// Folders of shared libraries to look into for what the plugin needs and the linker does not find.
    pub library_folders: Vec<PathBuf>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_and_values_have_the_names_of_the_file_format() {
        let parsed: TrtllmConfig = serde_json::from_str(
            r#"{"decoding_mode": "top_k_top_p", "lookahead": [4, 3, 4], "context_chunking_policy": "equal_progress"}"#,
        )
        .unwrap();
        assert_eq!(parsed.decoding_mode, Some(DecodingMode::TopKTopP));
        assert_eq!(parsed.context_chunking_policy, Some(ChunkingPolicy::EqualProgress));
        assert!(serde_json::from_str::<TrtllmConfig>(r#"{"kv_cache": 1}"#).is_err());
        assert_eq!(serde_json::from_str::<TrtllmConfig>("{}").unwrap(), TrtllmConfig::default());
    }
}
