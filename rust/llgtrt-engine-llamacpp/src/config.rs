//! What can be set about the engine, and the checks that llama.cpp would answer with an abort.
//! Plain data; used once, by whichever thread starts the server.

use std::path::PathBuf;

use llgtrt_core::{Error, Result};
use serde::Deserialize;

/// Sequences that one llama.cpp context can hold.
const MAX_SLOTS: u32 = 256;

/// Beside a GPU the threads of a pass only look up the embeddings of its tokens, and spin between passes, on cores that masks
/// are computed on (H100 with 16 cores, one run: under a schema 3857 tokens/s with 4 threads and 3246 with 8 at 64 streams, 2267 and
/// 1817 for 16 clients; without one 6449 and 6074 at 64 streams).
const GPU_THREADS: u32 = 4;

/// Most tokens of a forward pass. On a GPU a pass over prompts costs much beside its tokens (H100, a model of 1B shape, prompts of
/// 1000 tokens: 8 clients got 1204 tokens/s with 2048 and 1003 with 512, 32 clients 2097 and 1513).
const PASS_TOKENS: u32 = 512;
const GPU_PASS_TOKENS: u32 = 2048;

/// Settings of the engine. Every field has a default but `model_path`, which must be given.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "one per switch of the configuration")]
pub struct LlamaCppConfig {
    /// The GGUF file, or a folder that holds exactly one model.
    pub model_path: PathBuf,
    /// Sequences that generate at the same time, 1 to 256.
    pub max_batch_size: u32,
    /// Prompt plus generated tokens of one sequence. None: what the model was trained for, at most 4096.
    pub max_sequence_tokens: Option<u32>,
    /// Most tokens in one forward pass. None: 512, or 2048 where all of the model is on a GPU; at least one for each slot.
    pub max_num_tokens: Option<u32>,
    /// While other sequences generate, a forward pass over prompts takes so many milliseconds, as far as the latest passes
    /// tell, or as long as two of those others, if that is more. None: 0 where they can share passes, 150 elsewhere.
    pub prefill_pass_ms: Option<u32>,
    /// Or it has so many tokens, whatever they take.
    pub prefill_chunk_tokens: Option<u32>,
    /// Sequences that may wait in the engine for a slot; beyond it, `submit` answers that it is overloaded.
    pub max_waiting: u32,
    /// Keep the KV cache of finished sequences and reuse it for prompts that start the same way.
    pub reuse_prefix: bool,
    /// Threads of a forward pass over a single token. None: one per physical core, at most 4 where all of the model is on a GPU.
    pub threads: Option<u32>,
    /// Threads of a forward pass over several tokens. None: as `threads`.
    pub batch_threads: Option<u32>,
    /// Model layers on the GPU. None: as many as there are, where a GPU backend was built in.
    pub gpu_layers: Option<u32>,
    /// Whether to use llama.cpp's fused attention.
    pub flash_attention: FlashAttention,
    /// Number format of the KV cache.
    pub kv_cache_type: KvCacheType,
    /// Map the model file instead of reading it.
    pub mmap: bool,
    /// Lock the model in memory.
    pub mlock: bool,
    /// Rearrange weights for batches, and compute attention, with kernels of our own where they are faster than
    /// llama.cpp's. Attention holds for the whole process from the first model that asks for it.
    pub repack: bool,
    /// Guess at the next tokens from the prompt and the answer, and check the guesses in the same forward pass.
    pub speculation: Speculation,
    /// A small model of the same vocabulary that guesses where those say nothing: a GGUF file, or a folder with one.
    pub draft_model: Option<PathBuf>,
}

impl Default for LlamaCppConfig {
    fn default() -> Self {
        Self {
            model_path: PathBuf::new(),
            max_batch_size: 8,
            max_sequence_tokens: None,
            max_num_tokens: None,
            prefill_pass_ms: None,
            prefill_chunk_tokens: None,
            max_waiting: 4096,
            reuse_prefix: true,
            threads: None,
            batch_threads: None,
            gpu_layers: None,
            flash_attention: FlashAttention::Auto,
            kv_cache_type: KvCacheType::F16,
            mmap: true,
            mlock: false,
            repack: true,
            speculation: Speculation::Auto,
            draft_model: None,
        }
    }
}

/// Whether to use llama.cpp's fused attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FlashAttention {
    /// Where the backend has it.
    Auto,
    /// Always; an error where the backend lacks it.
    On,
    /// Never.
    Off,
}

/// When to guess at next tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Speculation {
    /// Where a pass of several tokens gives each the logits of a pass of its own, so that no answer changes.
    Auto,
    /// Also where kernels round otherwise in a pass of several tokens: of two tokens that are nearly as likely
    /// the other one may come.
    On,
    /// Never.
    Off,
}

/// Number format of the KV cache. The quantized ones need fused attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names are ggml's own")]
pub enum KvCacheType {
    F32,
    F16,
    Bf16,
    Q8_0,
    Q5_1,
    Q5_0,
    Q4_1,
    Q4_0,
    Iq4Nl,
}

impl LlamaCppConfig {
    /// Checks the numbers against each other.
    ///
    /// # Errors
    /// [`ErrorKind::Configuration`](llgtrt_core::ErrorKind::Configuration), naming the field.
    pub fn validate(&self) -> Result<()> {
        let check = |field: &str, ok: bool, rule: &str| {
            if ok { Ok(()) } else { Err(Error::configuration(format!("{field} {rule}")).with_param(field)) }
        };
        check("model_path", !self.model_path.as_os_str().is_empty(), "is missing")?;
        check("max_batch_size", (1..=MAX_SLOTS).contains(&self.max_batch_size), "must be 1 to 256")?;
        check(
            "max_num_tokens",
            self.max_num_tokens.is_none_or(|n| (self.max_batch_size..=65_536).contains(&n)),
            "must be at least max_batch_size and at most 65536",
        )?;
        check("prefill_chunk_tokens", self.prefill_chunk_tokens != Some(0), "must be at least 1")?;
        check(
            "prefill_pass_ms",
            self.prefill_pass_ms.is_none_or(|ms| ms <= 60_000),
            "must be at most 60000",
        )?;
        check(
            "max_sequence_tokens",
            self.max_sequence_tokens.is_none_or(|n| (2..=1 << 24).contains(&n)),
            "must be 2 to 16777216",
        )?;
        check(
            "draft_model",
            self.draft_model.is_none() || self.speculation != Speculation::Off,
            "guesses at next tokens, and speculation is off",
        )?;
        for (field, threads) in [("threads", self.threads), ("batch_threads", self.batch_threads)] {
            check(field, threads.is_none_or(|n| (1..=512).contains(&n)), "must be 1 to 512")?;
        }
        Ok(())
    }

    /// Tokens that a forward pass has room for; `on_gpu`: all of the model is on a GPU.
    pub(crate) fn pass_tokens(&self, on_gpu: bool) -> u32 {
        let tokens = self.max_num_tokens.unwrap_or(if on_gpu { GPU_PASS_TOKENS } else { PASS_TOKENS });
        tokens.max(self.max_batch_size)
    }

    /// Threads for single tokens and for batches; `on_gpu`: all of the model is on a GPU.
    pub(crate) fn thread_counts(&self, on_gpu: bool) -> (u32, u32) {
        let threads = self.threads.unwrap_or_else(|| if on_gpu { cores().min(GPU_THREADS) } else { cores() });
        (threads, self.batch_threads.unwrap_or(threads))
    }

    /// Threads that draw tokens from the logits.
    pub(crate) fn drawing_threads(&self, on_gpu: bool) -> u32 {
        if on_gpu { cores() } else { self.thread_counts(false).0 }
    }
}

/// Physical cores.
fn cores() -> u32 {
    num_cpus::get_physical().min(num_cpus::get()).clamp(1, 512) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> LlamaCppConfig {
        LlamaCppConfig { model_path: "model.gguf".into(), ..LlamaCppConfig::default() }
    }

    #[test]
    fn fields_and_values_have_the_names_of_the_file_format() {
        let parsed: LlamaCppConfig = serde_json::from_str(
            r#"{"model_path": "a.gguf", "kv_cache_type": "q8_0", "flash_attention": "on", "threads": 3}"#,
        )
        .unwrap();
        assert_eq!(parsed.kv_cache_type, KvCacheType::Q8_0);
        assert_eq!(parsed.flash_attention, FlashAttention::On);
        assert_eq!(parsed.thread_counts(false), (3, 3));
        assert_eq!(parsed.thread_counts(true), (3, 3));
        assert!((1..=GPU_THREADS).contains(&config().thread_counts(true).0));
        assert_eq!((parsed.pass_tokens(false), parsed.pass_tokens(true)), (512, 2048));
        assert_eq!(parsed.max_batch_size, 8);
        assert_eq!(serde_json::from_str::<KvCacheType>("\"iq4_nl\"").unwrap(), KvCacheType::Iq4Nl);
        assert!(serde_json::from_str::<LlamaCppConfig>(r#"{"model": "a.gguf"}"#).is_err());
    }

    #[test]
    fn a_wrong_number_names_its_field() {
        assert!(config().validate().is_ok());
        let wrong = [
            (LlamaCppConfig::default(), "model_path"),
            (LlamaCppConfig { max_batch_size: 0, ..config() }, "max_batch_size"),
            (LlamaCppConfig { max_batch_size: 257, ..config() }, "max_batch_size"),
            (LlamaCppConfig { max_num_tokens: Some(7), ..config() }, "max_num_tokens"),
            (LlamaCppConfig { prefill_chunk_tokens: Some(0), ..config() }, "prefill_chunk_tokens"),
            (LlamaCppConfig { prefill_pass_ms: Some(60_001), ..config() }, "prefill_pass_ms"),
            (LlamaCppConfig { max_sequence_tokens: Some(1), ..config() }, "max_sequence_tokens"),
            (LlamaCppConfig { batch_threads: Some(0), ..config() }, "batch_threads"),
            (
                LlamaCppConfig {
                    draft_model: Some("small.gguf".into()),
                    speculation: Speculation::Off,
                    ..config()
                },
                "draft_model",
            ),
        ];
        for (config, field) in wrong {
            assert_eq!(config.validate().unwrap_err().param.as_deref(), Some(field));
        }
    }
}
