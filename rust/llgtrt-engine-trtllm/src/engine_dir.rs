//! What an engine folder says about itself in `config.json`. Read once, before anything native is loaded; must not
//! touch the engine file, which can have many gigabytes.

use std::path::Path;

use llgtrt_core::{Error, Result};
use serde::Deserialize;

use crate::abi::dtype;

/// The parts of `config.json` that matter here. Everything is optional in the file: versions differ.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "the file's own switches")]
pub struct EngineInfo {
    /// Version of TensorRT-LLM that built the engine.
    pub version: String,
    /// Class of the model, such as `LlamaForCausalLM`.
    pub architecture: String,
    /// Tokens of the model.
    pub vocab_size: u32,
    /// Layers of the model.
    pub layers: u32,
    /// Type of the weights: `float16`, `bfloat16` or `float32`.
    pub dtype: String,
    /// Type of the logits: `float32`, `float16` or `bfloat16`.
    pub logits_dtype: String,
    /// Processes that the engine was built for.
    pub world_size: u32,
    /// Of them, over how many each layer is divided.
    pub tensor_parallel: u32,
    /// Over how many the layers are divided.
    pub pipeline_parallel: u32,
    /// Most sequences in a forward pass.
    pub max_batch_size: u32,
    /// Most tokens of a sequence, prompt and answer.
    pub max_sequence_tokens: u32,
    /// The flag `--max_input_len`, 1024 unless given. Counts only where prompts are neither split nor packed: see
    /// [`Self::max_prompt_tokens`].
    pub max_input_len: u32,
    /// Most tokens in a forward pass.
    pub max_num_tokens: u32,
    /// Most beams.
    pub max_beam_width: u32,
    /// Virtual tokens of the prompt table; 0: none.
    pub max_prompt_embedding_table_size: u32,
    /// Logits of all prompt tokens can be asked for.
    pub gather_context_logits: bool,
    /// `none`, or how the engine speculates.
    pub speculative_decoding_mode: String,
    /// Adapters can be used.
    pub lora: bool,
    /// Largest rank of an adapter.
    pub max_lora_rank: u32,
    /// Parts of the model that adapters may change, by TensorRT-LLM's names.
    pub lora_modules: Vec<String>,
    /// The KV cache is in blocks.
    pub paged_kv_cache: bool,
    /// Prompts attend over blocks, so that they can be split and shared.
    pub paged_context_fmha: bool,
    /// Prompts attend in one kernel.
    pub context_fmha: bool,
    /// Prompts lie one after the other, without padding.
    pub packed_input: bool,
    /// Tokens in a block of the KV cache.
    pub tokens_per_block: u32,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct File {
    version: String,
    pretrained_config: Pretrained,
    build_config: Build,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Pretrained {
    architecture: String,
    dtype: Option<String>,
    logits_dtype: Option<String>,
    num_hidden_layers: u32,
    vocab_size: u32,
    mapping: Mapping,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
#[expect(clippy::struct_field_names, reason = "the file's own names")]
struct Mapping {
    world_size: Option<u32>,
    tp_size: Option<u32>,
    pp_size: Option<u32>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Build {
    max_batch_size: Option<u32>,
    max_seq_len: Option<u32>,
    max_input_len: Option<u32>,
    max_num_tokens: Option<u32>,
    max_beam_width: Option<u32>,
    max_prompt_embedding_table_size: Option<u32>,
    kv_cache_type: Option<String>,
    gather_context_logits: Switch,
    speculative_decoding_mode: Option<Speculation>,
    lora_config: Lora,
    plugin_config: Plugins,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Lora {
    max_lora_rank: Option<u32>,
    lora_target_modules: Vec<String>,
}

/// Written as `true` or, by earlier versions, as 1.
#[derive(Debug, Default, Deserialize)]
#[serde(from = "serde_json::Value")]
struct Switch(bool);

impl From<serde_json::Value> for Switch {
    fn from(value: serde_json::Value) -> Self {
        Self(value.as_bool().unwrap_or_else(|| value.as_u64().is_some_and(|number| number != 0)))
    }
}

/// Written as a name or as the number of TensorRT-LLM's flag.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Speculation {
    Name(String),
    Flag(u32),
}

impl Speculation {
    fn name(self) -> String {
        match self {
            // As Python prints the enum.
            Self::Name(name) => name.rsplit('.').next().unwrap_or_default().to_lowercase(),
            Self::Flag(flag) => match flag {
                0 | 1 => "none".to_owned(),
                2 => "draft_tokens_external".to_owned(),
                4 => "medusa".to_owned(),
                8 => "lookahead_decoding".to_owned(),
                16 => "explicit_draft_tokens".to_owned(),
                32 => "eagle".to_owned(),
                other => format!("mode {other}"),
            },
        }
    }
}

/// A plugin is off as `null`, `false`, `"disable"`, on as a type's name or `true`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Plugins {
    lora_plugin: serde_json::Value,
    paged_kv_cache: Option<bool>,
    use_paged_context_fmha: Switch,
    context_fmha: Option<bool>,
    remove_input_padding: Option<bool>,
    tokens_per_block: Option<u32>,
}

impl EngineInfo {
    /// Reads `config.json` of an engine folder.
    ///
    /// # Errors
    /// [`ErrorKind::Configuration`](llgtrt_core::ErrorKind::Configuration): it is missing, no JSON, or not what
    /// trtllm-build writes.
    pub fn read(engine_dir: &Path) -> Result<Self> {
        let path = engine_dir.join("config.json");
        let failed = |reason: &dyn std::fmt::Display| {
            Error::configuration(format!("{}: {reason}", path.display())).with_param("engine")
        };
        let text = std::fs::read_to_string(&path).map_err(|error| failed(&error))?;
        let file: File = serde_json::from_str(&text).map_err(|error| failed(&error))?;
        let info = Self::from(file);
        if info.vocab_size == 0 || info.architecture.is_empty() {
            return Err(failed(&"not the config.json of a TensorRT-LLM engine (no pretrained_config)"));
        }
        Ok(info)
    }

    /// The logits' type by TensorRT-LLM's number; None: one that cannot be masked.
    pub(crate) fn logits_type(&self) -> Option<i32> {
        match self.logits_dtype.as_str() {
            "float32" => Some(dtype::FP32),
            "float16" => Some(dtype::FP16),
            "bfloat16" => Some(dtype::BF16),
            _ => None,
        }
    }

    /// Most tokens of a prompt, as TensorRT-LLM computes it (`batch_manager/trtGptModel.h`) from whether prompts are split
    /// and how many tokens a forward pass takes.
    pub(crate) fn max_prompt_tokens(&self, chunked: bool, max_num_tokens: u32) -> u32 {
        let before_the_answer = self.max_sequence_tokens.saturating_sub(1);
        if chunked {
            before_the_answer
        } else if self.context_fmha && self.packed_input {
            before_the_answer.min(max_num_tokens)
        } else {
            self.max_input_len
        }
    }

    /// Columns of the logits: the vocabulary, divided evenly over the processes.
    pub(crate) fn padded_vocab_size(&self) -> u32 {
        self.vocab_size.next_multiple_of(self.world_size)
    }

    /// Whether the engine speculates by itself.
    pub(crate) fn speculates(&self) -> bool {
        self.speculative_decoding_mode != "none"
    }
}

impl From<File> for EngineInfo {
    fn from(file: File) -> Self {
        let (model, build) = (file.pretrained_config, file.build_config);
        let plugins = build.plugin_config;
        let tensor_parallel = model.mapping.tp_size.unwrap_or(1).max(1);
        let pipeline_parallel = model.mapping.pp_size.unwrap_or(1).max(1);
        let max_sequence_tokens = build.max_seq_len.unwrap_or(2048);
        let lora = match &plugins.lora_plugin {
            serde_json::Value::String(text) => !text.is_empty() && text != "disable",
            other => other == &serde_json::Value::Bool(true),
        };
        let paged =
            build.kv_cache_type.map(|kind| kind.rsplit('.').next().unwrap_or_default().to_lowercase());
        Self {
            version: file.version,
            architecture: model.architecture,
            vocab_size: model.vocab_size,
            layers: model.num_hidden_layers,
            dtype: model.dtype.unwrap_or_else(|| "float16".to_owned()),
            logits_dtype: model.logits_dtype.unwrap_or_else(|| "float32".to_owned()),
            world_size: model.mapping.world_size.unwrap_or(tensor_parallel * pipeline_parallel).max(1),
            tensor_parallel,
            pipeline_parallel,
            max_batch_size: build.max_batch_size.unwrap_or(1),
            max_sequence_tokens,
            max_input_len: build.max_input_len.unwrap_or(1024),
            max_num_tokens: build.max_num_tokens.unwrap_or(max_sequence_tokens),
            max_beam_width: build.max_beam_width.unwrap_or(1),
            max_prompt_embedding_table_size: build.max_prompt_embedding_table_size.unwrap_or(0),
            gather_context_logits: build.gather_context_logits.0,
            speculative_decoding_mode: build
                .speculative_decoding_mode
                .map_or_else(|| "none".to_owned(), Speculation::name),
            lora,
            max_lora_rank: build.lora_config.max_lora_rank.unwrap_or(64),
            lora_modules: build.lora_config.lora_target_modules,
            paged_kv_cache: match (paged.as_deref(), plugins.paged_kv_cache) {
                (Some(kind), _) => kind == "paged",
                (None, switch) => switch.unwrap_or(true),
            },
            paged_context_fmha: plugins.use_paged_context_fmha.0,
            context_fmha: plugins.context_fmha.unwrap_or(true),
            packed_input: plugins.remove_input_padding.unwrap_or(true),
            tokens_per_block: plugins.tokens_per_block.unwrap_or(64).max(1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> EngineInfo {
        EngineInfo::from(serde_json::from_str::<File>(text).unwrap())
    }

    /// What trtllm-build 1.2 writes, by what was changed from its defaults.
    fn fixture(name: &str) -> EngineInfo {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/engines");
        parse(&std::fs::read_to_string(folder.join(name).with_extension("json")).unwrap())
    }

    #[test]
    fn an_engine_of_the_defaults_takes_long_prompts() {
        let info = fixture("defaults");
        assert_eq!((info.vocab_size, info.max_batch_size, info.world_size), (128_256, 2048, 1));
        assert_eq!((info.layers, info.dtype.as_str(), info.tokens_per_block), (32, "bfloat16", 32));
        assert!(!info.lora && info.paged_kv_cache && info.paged_context_fmha && !info.gather_context_logits);
        assert!(!info.speculates() && info.context_fmha && info.packed_input);
        assert_eq!(info.logits_type(), Some(dtype::FP32));
        // The flag is 1024 because nobody gave it, and counts for neither of these.
        assert_eq!((info.max_input_len, info.max_sequence_tokens), (1024, 131_072));
        assert_eq!(info.max_prompt_tokens(true, 8192), 131_071);
        assert_eq!(info.max_prompt_tokens(false, 8192), 8192);
        let short = EngineInfo { max_sequence_tokens: 4096, ..info.clone() };
        assert_eq!(short.max_prompt_tokens(false, 8192), 4095);
        let padded = EngineInfo { packed_input: false, ..info };
        assert_eq!(padded.max_prompt_tokens(false, 8192), 1024);
    }

    #[test]
    fn other_engines_are_read() {
        let lora = fixture("lora_128");
        assert_eq!((lora.lora, lora.max_lora_rank), (true, 128));
        assert_eq!(lora.lora_modules, ["attn_qkv", "attn_dense"]);
        let two = fixture("tp_2");
        assert_eq!((two.world_size, two.tensor_parallel, two.pipeline_parallel), (2, 2, 1));
        // 50257 is odd: one column more than tokens.
        assert_eq!((two.vocab_size, two.padded_vocab_size()), (50_257, 50_258));
        let unpaged = fixture("no_paged_fmha");
        assert!(unpaged.paged_kv_cache && !unpaged.paged_context_fmha && unpaged.context_fmha);
        assert!(fixture("context_logits").gather_context_logits);
    }

    #[test]
    fn switches_are_read_in_all_their_forms() {
        let lora = |value: &str| {
            parse(&format!(r#"{{"build_config": {{"plugin_config": {{"lora_plugin": {value}}}}}}}"#)).lora
        };
        assert!(lora(r#""auto""#) && lora("true"));
        assert!(!lora("null") && !lora("false") && !lora(r#""disable""#));
        let mode = |value: &str| {
            parse(&format!(r#"{{"build_config": {{"speculative_decoding_mode": {value}}}}}"#))
                .speculative_decoding_mode
        };
        assert_eq!(mode(r#""SpeculativeDecodingMode.MEDUSA""#), "medusa");
        assert_eq!(
            (mode("8").as_str(), mode("1").as_str(), mode("64").as_str()),
            ("lookahead_decoding", "none", "mode 64")
        );
        let paged = |value: &str| {
            parse(&format!(r#"{{"build_config": {{"kv_cache_type": {value}}}}}"#)).paged_kv_cache
        };
        assert!(paged(r#""KVCacheType.PAGED""#) && paged("null") && !paged(r#""continuous""#));
    }
}
