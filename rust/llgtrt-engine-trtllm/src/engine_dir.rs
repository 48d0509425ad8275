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
    /// Most tokens of a prompt.
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
    /// The KV cache is in blocks.
    pub paged_kv_cache: bool,
    /// Prompts attend over blocks, so that they can be split and shared.
    pub paged_context_fmha: bool,
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
    logits_dtype: Option<String>,
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
    gather_context_logits: bool,
    speculative_decoding_mode: Option<Speculation>,
    plugin_config: Plugins,
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
    use_paged_context_fmha: bool,
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
            logits_dtype: model.logits_dtype.unwrap_or_else(|| "float32".to_owned()),
            world_size: model.mapping.world_size.unwrap_or(tensor_parallel * pipeline_parallel).max(1),
            tensor_parallel,
            pipeline_parallel,
            max_batch_size: build.max_batch_size.unwrap_or(1),
            max_sequence_tokens,
            max_input_len: build.max_input_len.unwrap_or(max_sequence_tokens),
            max_num_tokens: build.max_num_tokens.unwrap_or(max_sequence_tokens),
            max_beam_width: build.max_beam_width.unwrap_or(1),
            max_prompt_embedding_table_size: build.max_prompt_embedding_table_size.unwrap_or(0),
            gather_context_logits: build.gather_context_logits,
            speculative_decoding_mode: build
                .speculative_decoding_mode
                .map_or_else(|| "none".to_owned(), Speculation::name),
            lora,
            paged_kv_cache: match (paged.as_deref(), plugins.paged_kv_cache) {
                (Some(kind), _) => kind == "paged",
                (None, switch) => switch.unwrap_or(true),
            },
            paged_context_fmha: plugins.use_paged_context_fmha,
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

    #[test]
    fn a_file_of_trtllm_build_is_read() {
        let info = parse(
            r#"{"version": "1.2.1", "pretrained_config": {"architecture": "LlamaForCausalLM", "dtype": "bfloat16",
                "logits_dtype": "float32", "vocab_size": 128256, "mapping": {"world_size": 2, "tp_size": 2,
                "pp_size": 1}, "quantization": {"quant_algo": null}}, "build_config": {"max_batch_size": 128,
                "max_seq_len": 8192, "max_num_tokens": 4096, "max_beam_width": 1, "kv_cache_type": "PAGED",
                "gather_context_logits": true, "speculative_decoding_mode": 1, "lora_config": {"lora_dir": []},
                "plugin_config": {"lora_plugin": "bfloat16", "tokens_per_block": 32,
                "use_paged_context_fmha": true}}}"#,
        );
        assert_eq!((info.vocab_size, info.max_batch_size, info.tensor_parallel), (128_256, 128, 2));
        assert_eq!((info.max_sequence_tokens, info.max_input_len, info.tokens_per_block), (8192, 8192, 32));
        assert!(info.lora && info.paged_kv_cache && info.paged_context_fmha && info.gather_context_logits);
        assert!(!info.speculates());
        assert_eq!(info.logits_type(), Some(dtype::FP32));
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
