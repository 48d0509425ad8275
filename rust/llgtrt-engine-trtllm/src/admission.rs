//! What a request may ask of an engine, checked before the executor sees it. Pure.
//!
//! The executor looks at some of it only when it sets up its decoder, where an error ends every running request
//! (`createNewDecoderRequests.cpp`), and at some of it never.

use llgtrt_core::{Error, ErrorKind, Phase, RequestOptions, Result, SequenceSpec, TokenId};

use crate::DecodingMode;
use crate::check::unconstrained_because;
use crate::config::TrtllmSetup;
use crate::engine_dir::EngineInfo;
use crate::request::executor_tokens;

/// TensorRT-LLM's own setting for lookahead decoding.
const LOOKAHEAD: [u32; 3] = [4, 3, 4];

/// The bounds of an engine's requests.
pub(crate) struct Admission {
    vocab_size: u32,
    padded_vocab_size: u32,
    max_sequence_tokens: u32,
    max_prompt_tokens: u32,
    max_beam_width: u32,
    max_prompt_table_rows: u32,
    prompt_logprobs: bool,
    lookahead: Option<[u32; 3]>,
    /// Why constrained sequences are refused; None: they are not.
    unconstrained: Option<String>,
}

impl Admission {
    pub(crate) fn new(setup: &TrtllmSetup, info: &EngineInfo) -> Self {
        let (batching, config) = (&setup.batching, &setup.config);
        let pass = batching.max_num_tokens.unwrap_or(info.max_num_tokens);
        Self {
            vocab_size: info.vocab_size,
            padded_vocab_size: info.padded_vocab_size(),
            max_sequence_tokens: batching.max_sequence_tokens.unwrap_or(info.max_sequence_tokens),
            max_prompt_tokens: info.max_prompt_tokens(batching.enable_chunked_context, pass),
            max_beam_width: config.max_beam_width,
            max_prompt_table_rows: info.max_prompt_embedding_table_size,
            prompt_logprobs: info.gather_context_logits,
            lookahead: (config.decoding_mode == Some(DecodingMode::Lookahead))
                .then(|| config.lookahead.unwrap_or(LOOKAHEAD)),
            unconstrained: unconstrained_because(setup, info),
        }
    }

    /// Most tokens of a sequence, prompt and answer.
    pub(crate) fn max_sequence_tokens(&self) -> u32 {
        self.max_sequence_tokens
    }

    /// Refuses what the engine cannot do.
    pub(crate) fn check(&self, spec: &SequenceSpec, options: &RequestOptions) -> Result<()> {
        self.check_lengths(spec)?;
        self.check_constraint(spec, options)?;
        options.check_prompt(&spec.prompt, self.vocab_size)?;
        self.check_tokens(options)?;
        self.check_table(options)?;
        check_phase(spec, options)?;
        if !spec.sampling.logit_bias.is_empty() && self.padded_vocab_size != self.vocab_size {
            let message = format!(
                "this engine's vocabulary of {} tokens is not a multiple of its number of processes, where \
                 TensorRT-LLM cannot apply biases",
                self.vocab_size
            );
            return Err(Error::invalid("logit_bias", message));
        }
        let width = options.beam_width.unwrap_or(1);
        if width > self.max_beam_width || width == 0 {
            let most = self.max_beam_width;
            return Err(Error::invalid(
                "beam_width",
                format!("not between 1 and {most}, trtllm.max_beam_width"),
            ));
        }
        if let Some(asked) = options.lookahead {
            let Some(most) = self.lookahead else {
                return Err(Error::invalid("lookahead_config", "this engine does not decode by lookahead"));
            };
            if asked.iter().zip(most).any(|(asked, most)| *asked > most || *asked == 0) {
                let message = format!("each number has to be between 1 and that of the engine's {most:?}");
                return Err(Error::invalid("lookahead_config", message));
            }
        }
        Ok(())
    }

    fn check_lengths(&self, spec: &SequenceSpec) -> Result<()> {
        if spec.prompt.is_empty() || spec.max_tokens == 0 {
            return Err(Error::invalid("prompt", "a prompt and max_tokens of at least 1 are needed"));
        }
        let tokens = spec.prompt.len() as u64 + u64::from(executor_tokens(spec));
        let (most, most_prompt) = (self.max_sequence_tokens, self.max_prompt_tokens);
        if tokens > u64::from(most) || spec.prompt.len() > most_prompt as usize {
            let message = format!(
                "{tokens} tokens with the prompt, but the engine takes {most} (prompts of {most_prompt})"
            );
            return Err(Error::new(ErrorKind::ContextLength, message).with_param("max_tokens"));
        }
        Ok(())
    }

    fn check_constraint(&self, spec: &SequenceSpec, options: &RequestOptions) -> Result<()> {
        if let Some(reason) = self.unconstrained.as_ref().filter(|_| spec.constrained) {
            return Err(Error::invalid("response_format", reason.clone()));
        }
        if spec.constrained && options.beam_width.unwrap_or(1) > 1 {
            return Err(Error::invalid("beam_width", "constrained answers need a beam width of 1"));
        }
        if spec.prompt_logprobs && !self.prompt_logprobs {
            return Err(Error::invalid(
                "prompt_logprobs",
                "the engine was not built with --gather_context_logits",
            ));
        }
        Ok(())
    }

    /// Ids that kernels of the executor use as they are, to write to a row of logits.
    fn check_tokens(&self, options: &RequestOptions) -> Result<()> {
        let known = |token: TokenId| token < self.vocab_size;
        let unknown = |param| Err(Error::invalid(param, "a token outside the vocabulary"));
        if !options.bad_words.iter().flatten().all(|token| known(*token)) {
            return unknown("bad_words");
        }
        if !options.stop_words.iter().flatten().all(|token| known(*token)) {
            return unknown("stop");
        }
        if !options.sampling.top_p_reset_ids.is_none_or(known) {
            return unknown("top_p_reset_ids");
        }
        Ok(())
    }

    fn check_table(&self, options: &RequestOptions) -> Result<()> {
        let rows = options.prompt_table.as_ref().map_or(0, |table| table.embeddings.shape[0]);
        let most = self.max_prompt_table_rows;
        if rows > most as usize {
            let message = format!(
                "the prompt table has {rows} rows, but the engine was built with \
                 --max_prompt_embedding_table_size {most}"
            );
            return Err(Error::invalid("prompt_table", message));
        }
        Ok(())
    }
}

/// What is not handed over, or was never followed to its end in TensorRT-LLM.
fn check_phase(spec: &SequenceSpec, options: &RequestOptions) -> Result<()> {
    if matches!(spec.phase, Phase::Whole) {
        return Ok(());
    }
    let undivided = [
        ("beam_width", options.beam_width.unwrap_or(1) > 1),
        ("logprobs", spec.sampling.logprobs.is_some()),
        ("prompt_logprobs", spec.prompt_logprobs),
        ("prompt_table", options.prompt_table.is_some()),
        ("mrope_cos_sin", options.mrope.is_some()),
        ("position_ids", !options.position_ids.is_empty()),
        ("encoder", options.encoder.is_some()),
        ("lookahead_config", options.lookahead.is_some()),
    ];
    match undivided.into_iter().find(|(_, asked)| *asked) {
        Some((name, _)) => {
            Err(Error::invalid(name, format!("{name} cannot be combined with disaggregated_params")))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use llgtrt_core::{SamplingParams, SequenceId};
    use std::sync::Arc;

    #[test]
    fn biases_need_a_vocabulary_without_padding() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/engines");
        let mut setup = TrtllmSetup::default();
        let spec = SequenceSpec {
            id: SequenceId(1),
            prompt: Arc::from([1]),
            max_tokens: 1,
            sampling: SamplingParams { logit_bias: vec![(1, 1.0)], ..SamplingParams::default() },
            stop_token_ids: Arc::from([]),
            constrained: false,
            prompt_logprobs: false,
            options: None,
            processor: None,
            phase: llgtrt_core::Phase::Whole,
        };
        let copy = std::env::temp_dir().join(format!("llgtrt-admission-{}", std::process::id()));
        std::fs::create_dir_all(&copy).unwrap();
        let mut check = |name: &str| {
            std::fs::copy(folder.join(name), copy.join("config.json")).unwrap();
            setup.engine_dir.clone_from(&copy);
            let info = EngineInfo::read(&copy).unwrap();
            Admission::new(&setup, &info).check(&spec, &RequestOptions::default())
        };
        check("defaults.json").unwrap();
        // 50257 tokens over 2 processes.
        assert_eq!(check("tp_2.json").unwrap_err().param.as_deref(), Some("logit_bias"));
        std::fs::remove_dir_all(copy).unwrap();
    }
}
