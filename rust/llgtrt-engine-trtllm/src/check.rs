//! The configuration against what the engine was built for, before anything native is loaded: TensorRT-LLM answers
//! most of these with an assertion deep inside, or with wrong tokens. Pure.

use llgtrt_core::{Error, Result};

use crate::config::TrtllmSetup;
use crate::engine_dir::EngineInfo;
use crate::ranks::Ranks;

/// Something that does not fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Conflict {
    /// The field of the configuration to change.
    pub(crate) param: &'static str,
    pub(crate) message: String,
}

/// Fails with all that does not fit, one line each.
pub(crate) fn check(setup: &TrtllmSetup, info: &EngineInfo, ranks: Ranks) -> Result<()> {
    let conflicts = conflicts(setup, info, ranks);
    let Some(first) = conflicts.first() else { return Ok(()) };
    let lines: Vec<_> = conflicts.iter().map(|c| format!("{}: {}", c.param, c.message)).collect();
    Err(Error::configuration(lines.join("\n")).with_param(first.param))
}

/// Why this engine cannot constrain answers; None: it can.
pub(crate) fn unconstrained_because(setup: &TrtllmSetup, info: &EngineInfo) -> Option<String> {
    let mode = setup.config.decoding_mode.and_then(crate::DecodingMode::speculation);
    if let Some(mode) = mode.or(info.speculates().then_some(info.speculative_decoding_mode.as_str())) {
        return Some(format!(
            "this engine decodes speculatively ({mode}), where drafted tokens cannot be constrained"
        ));
    }
    (info.pipeline_parallel > 1).then(|| {
        "this engine is divided by layers over several processes (pp_size > 1), and the last of them samples, where \
         grammars are not known; build it with pp_size 1 to constrain answers"
            .to_owned()
    })
}

#[expect(clippy::too_many_lines, reason = "a table: one conflict after the other")]
fn conflicts(setup: &TrtllmSetup, info: &EngineInfo, ranks: Ranks) -> Vec<Conflict> {
    let mut found = Vec::new();
    let mut add = |param, wrong: bool, message: &dyn Fn() -> String| {
        if wrong {
            found.push(Conflict { param, message: message() });
        }
    };
    let (batching, config) = (&setup.batching, &setup.config);
    add("engine", info.logits_type().is_none(), &|| {
        format!(
            "the engine's logits are {}, which cannot be masked; build it with --logits_dtype float32",
            info.logits_dtype
        )
    });
    add("engine", ranks.size != info.world_size, &|| {
        format!(
            "the engine was built for {} process(es) and {} run; start it with: mpirun -n {} --bind-to none llgtrt \
             serve ENGINE_DIR",
            info.world_size, ranks.size, info.world_size
        )
    });
    for rank in 0..info.world_size {
        let file = format!("rank{rank}.engine");
        add("engine", !setup.engine_dir.join(&file).is_file(), &|| {
            format!("the engine folder has no {file}")
        });
    }
    let paged = info.paged_kv_cache && info.paged_context_fmha;
    add("runtime.enable_chunked_context", batching.enable_chunked_context && !paged, &|| {
        "splitting prompts needs an engine built with --kv_cache_type paged and --use_paged_context_fmha enable; \
         build it so or set this to false"
            .to_owned()
    });
    add("runtime.enable_kv_cache_reuse", batching.enable_kv_cache_reuse && !paged, &|| {
        "reusing prefixes needs an engine built with --kv_cache_type paged and --use_paged_context_fmha enable; \
         build it so or set this to false"
            .to_owned()
    });
    let limits = [
        ("runtime.max_batch_size", batching.max_batch_size, info.max_batch_size, "max_batch_size"),
        ("runtime.max_num_tokens", batching.max_num_tokens, info.max_num_tokens, "max_num_tokens"),
        ("runtime.max_seq_len", batching.max_sequence_tokens, info.max_sequence_tokens, "max_seq_len"),
        ("trtllm.max_beam_width", Some(config.max_beam_width), info.max_beam_width, "max_beam_width"),
    ];
    for (param, value, limit, name) in limits {
        let value = value.unwrap_or(limit);
        add(param, value > limit || value == 0, &|| {
            format!("{value} is not between 1 and {limit}, the {name} that the engine was built with")
        });
    }
    add(
        "runtime.guaranteed_no_evict",
        !batching.enable_chunked_context && !batching.guaranteed_no_evict,
        &|| {
            "a streamed sequence that was evicted cannot go on where prompts are not split: set this to true, or \
         runtime.enable_chunked_context"
            .to_owned()
        },
    );
    add(
        "runtime.kv_cache_onboard_blocks",
        !batching.kv_cache_onboard_blocks && info.paged_context_fmha,
        &|| "an engine built with --use_paged_context_fmha enable needs this to be true".to_owned(),
    );
    let speculation = config.decoding_mode.and_then(crate::DecodingMode::speculation);
    add(
        "trtllm.decoding_mode",
        speculation.is_some_and(|mode| mode != info.speculative_decoding_mode),
        &|| {
            format!(
                "needs an engine built with --speculative_decoding_mode {}, and this one has {}",
                speculation.unwrap_or_default(),
                info.speculative_decoding_mode
            )
        },
    );
    add("trtllm.lookahead", config.lookahead.is_some() && speculation != Some("lookahead_decoding"), &|| {
        "has no effect unless trtllm.decoding_mode is lookahead".to_owned()
    });
    add("lora_root", setup.lora_root.is_some() && !info.lora, &|| {
        "LoRA adapters need an engine built with --lora_plugin".to_owned()
    });
    let encodes = config.encoder_dir.is_some();
    add("runtime.cross_kv_cache_fraction", batching.cross_kv_cache_fraction.is_some() != encodes, &|| {
        if encodes {
            "encoder-decoder models need it: the part of the KV cache for cross attention".to_owned()
        } else {
            "only for encoder-decoder models: trtllm.encoder_dir is not set".to_owned()
        }
    });
    add(
        "runtime.guaranteed_no_evict",
        encodes && !batching.guaranteed_no_evict && batching.enable_chunked_context,
        &|| "encoder-decoder models cannot be evicted: set this to true".to_owned(),
    );
    add(
        "trtllm.lora_max_adapter_size",
        config.lora_max_adapter_size.is_some_and(|n| n > info.max_lora_rank),
        &|| format!("more than {}, the --max_lora_rank that the engine was built with", info.max_lora_rank),
    );
    // TensorRT-LLM asserts these without a word about which it was.
    let parts = [
        ("runtime.kv_cache_free_gpu_mem_fraction", Some(batching.kv_cache_free_gpu_mem_fraction)),
        ("runtime.cross_kv_cache_fraction", batching.cross_kv_cache_fraction),
    ];
    for (param, value) in parts {
        let wrong = value.is_some_and(|value| !(value > 0.0 && value < 1.0));
        add(param, wrong, &|| "must be more than 0 and less than 1".to_owned());
    }
    let counts = [
        ("trtllm.sink_token_length", config.sink_token_length),
        ("trtllm.kv_cache_max_tokens", config.kv_cache_max_tokens),
        ("trtllm.max_attention_window", config.max_attention_window.iter().min().copied()),
    ];
    for (param, value) in counts {
        add(param, value == Some(0), &|| "must be more than 0".to_owned());
    }
    let fractions = [
        ("trtllm.gpu_weights_percent", Some(config.gpu_weights_percent)),
        ("trtllm.lora_cache_gpu_memory_fraction", config.lora_cache_gpu_memory_fraction),
    ];
    for (param, value) in fractions {
        let wrong = value.is_some_and(|value| !(0.0..=1.0).contains(&value));
        add(param, wrong, &|| "must be between 0 and 1".to_owned());
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Batching, DecodingMode, TrtllmConfig};

    const ALONE: Ranks = Ranks { rank: 0, size: 1 };

    fn info() -> EngineInfo {
        EngineInfo {
            version: "1.2.1".to_owned(),
            architecture: "LlamaForCausalLM".to_owned(),
            vocab_size: 257,
            layers: 4,
            dtype: "float16".to_owned(),
            logits_dtype: "float32".to_owned(),
            world_size: 1,
            tensor_parallel: 1,
            pipeline_parallel: 1,
            max_batch_size: 8,
            max_sequence_tokens: 512,
            max_input_len: 512,
            max_num_tokens: 128,
            max_beam_width: 1,
            max_prompt_embedding_table_size: 0,
            gather_context_logits: false,
            speculative_decoding_mode: "none".to_owned(),
            lora: false,
            max_lora_rank: 64,
            lora_modules: Vec::new(),
            paged_kv_cache: true,
            paged_context_fmha: true,
            context_fmha: true,
            packed_input: true,
            tokens_per_block: 16,
        }
    }

    /// The fields named, without the engine file, which these tests do not have.
    fn named(setup: &TrtllmSetup, info: &EngineInfo, ranks: Ranks) -> Vec<&'static str> {
        conflicts(setup, info, ranks)
            .into_iter()
            .filter(|conflict| !conflict.message.contains("has no rank"))
            .map(|conflict| conflict.param)
            .collect()
    }

    #[test]
    fn what_fits_is_no_conflict() {
        assert_eq!(named(&TrtllmSetup::default(), &info(), ALONE), [""; 0]);
        assert_eq!(unconstrained_because(&TrtllmSetup::default(), &info()), None);
    }

    #[test]
    #[expect(clippy::too_many_lines, reason = "a table: one conflict after the other")]
    fn every_conflict_is_named() {
        let setup = |config: TrtllmConfig, batching: Batching| TrtllmSetup {
            batching,
            config,
            ..TrtllmSetup::default()
        };
        let default = TrtllmSetup::default;
        let config = |config| setup(config, Batching::default());
        let batching = |batching| setup(TrtllmConfig::default(), batching);
        let unpaged = EngineInfo { paged_context_fmha: false, ..info() };
        assert_eq!(
            named(&default(), &unpaged, ALONE),
            ["runtime.enable_chunked_context", "runtime.enable_kv_cache_reuse"]
        );
        let cases = [
            (default(), EngineInfo { logits_dtype: "fp8".to_owned(), ..info() }, "engine"),
            (default(), EngineInfo { world_size: 2, ..info() }, "engine"),
            (
                batching(Batching { max_batch_size: Some(9), ..Batching::default() }),
                info(),
                "runtime.max_batch_size",
            ),
            (
                batching(Batching { max_num_tokens: Some(129), ..Batching::default() }),
                info(),
                "runtime.max_num_tokens",
            ),
            (
                batching(Batching { max_sequence_tokens: Some(513), ..Batching::default() }),
                info(),
                "runtime.max_seq_len",
            ),
            (
                config(TrtllmConfig { max_beam_width: 2, ..TrtllmConfig::default() }),
                info(),
                "trtllm.max_beam_width",
            ),
            (
                config(TrtllmConfig { decoding_mode: Some(DecodingMode::Eagle), ..TrtllmConfig::default() }),
                info(),
                "trtllm.decoding_mode",
            ),
            (
                config(TrtllmConfig { lookahead: Some([4, 3, 4]), ..TrtllmConfig::default() }),
                info(),
                "trtllm.lookahead",
            ),
            (
                config(TrtllmConfig { gpu_weights_percent: 1.5, ..TrtllmConfig::default() }),
                info(),
                "trtllm.gpu_weights_percent",
            ),
            (TrtllmSetup { lora_root: Some("x".into()), ..default() }, info(), "lora_root"),
            (
                batching(Batching { enable_chunked_context: false, ..Batching::default() }),
                info(),
                "runtime.guaranteed_no_evict",
            ),
            (
                batching(Batching { kv_cache_onboard_blocks: false, ..Batching::default() }),
                info(),
                "runtime.kv_cache_onboard_blocks",
            ),
            (
                config(TrtllmConfig { sink_token_length: Some(0), ..TrtllmConfig::default() }),
                info(),
                "trtllm.sink_token_length",
            ),
            (
                config(TrtllmConfig { max_attention_window: vec![8, 0], ..TrtllmConfig::default() }),
                info(),
                "trtllm.max_attention_window",
            ),
            (
                config(TrtllmConfig { lora_max_adapter_size: Some(65), ..TrtllmConfig::default() }),
                info(),
                "trtllm.lora_max_adapter_size",
            ),
            (
                batching(Batching { cross_kv_cache_fraction: Some(0.5), ..Batching::default() }),
                info(),
                "runtime.cross_kv_cache_fraction",
            ),
        ];
        for (setup, info, param) in cases {
            assert_eq!(named(&setup, &info, ALONE), [param]);
        }
        let fraction =
            |value| batching(Batching { kv_cache_free_gpu_mem_fraction: value, ..Batching::default() });
        for value in [0.0, 1.0, f32::NAN] {
            assert_eq!(named(&fraction(value), &info(), ALONE), ["runtime.kv_cache_free_gpu_mem_fraction"]);
        }
        assert_eq!(named(&fraction(0.999), &info(), ALONE), [""; 0]);
        let encoder = |batching| {
            setup(TrtllmConfig { encoder_dir: Some("x".into()), ..TrtllmConfig::default() }, batching)
        };
        assert_eq!(
            named(&encoder(Batching::default()), &info(), ALONE),
            ["runtime.cross_kv_cache_fraction", "runtime.guaranteed_no_evict"]
        );
        let fitting =
            Batching { cross_kv_cache_fraction: Some(0.5), guaranteed_no_evict: true, ..Batching::default() };
        assert_eq!(named(&encoder(fitting), &info(), ALONE), [""; 0]);
        let error = check(&default(), &unpaged, ALONE).unwrap_err();
        assert!(error.message.lines().count() >= 2, "{}", error.message);
    }

    #[test]
    fn what_cannot_be_constrained_is_known() {
        let speculative = EngineInfo { speculative_decoding_mode: "medusa".to_owned(), ..info() };
        assert!(unconstrained_because(&TrtllmSetup::default(), &speculative).unwrap().contains("medusa"));
        let deep = EngineInfo { pipeline_parallel: 2, world_size: 2, ..info() };
        assert!(unconstrained_because(&TrtllmSetup::default(), &deep).unwrap().contains("pp_size"));
    }
}
