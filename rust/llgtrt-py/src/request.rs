//! What Python asks for: frozen, keyword-only. Runs with the GIL held; only moves data.

use std::sync::Arc;

use llgtrt_core::{Adapter, Error, ExtraSampling, LoadWeights, RequestOptions, SamplingParams};
use llgtrt_runtime as runtime;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::errors::OrRaise;
use crate::options::{self, PromptExtras, RetentionArgument, TensorArgument};

/// A constraint on the answer: a kind and its source text.
#[pyclass(frozen, module = "llgtrt._native")]
#[derive(Clone)]
pub(crate) struct GrammarSpec(pub(crate) llgtrt_core::GrammarSpec);

#[pymethods]
impl GrammarSpec {
    #[staticmethod]
    fn json_schema(schema: String) -> Self {
        Self(llgtrt_core::GrammarSpec::JsonSchema(schema))
    }

    #[staticmethod]
    fn json_object() -> Self {
        Self(llgtrt_core::GrammarSpec::JsonObject)
    }

    #[staticmethod]
    fn regex(pattern: String) -> Self {
        Self(llgtrt_core::GrammarSpec::Regex(pattern))
    }

    #[staticmethod]
    fn choice(choices: Vec<String>) -> Self {
        Self(llgtrt_core::GrammarSpec::Choice(choices))
    }

    #[staticmethod]
    fn lark(grammar: String) -> Self {
        Self(llgtrt_core::GrammarSpec::Lark(grammar))
    }

    #[staticmethod]
    fn llguidance(grammar: String) -> Self {
        Self(llgtrt_core::GrammarSpec::Llguidance(grammar))
    }

    #[getter]
    fn kind(&self) -> &'static str {
        self.0.kind()
    }

    #[getter]
    fn source(&self) -> String {
        use llgtrt_core::GrammarSpec as Spec;
        match &self.0 {
            Spec::JsonSchema(text) | Spec::Regex(text) | Spec::Lark(text) | Spec::Llguidance(text) => {
                text.clone()
            }
            Spec::JsonObject => r#"{"type":"object"}"#.to_owned(),
            Spec::Choice(choices) => serde_json::Value::from(choices.as_slice()).to_string(),
        }
    }

    fn __repr__(&self) -> String {
        format!("GrammarSpec.{}(...)", self.0.kind())
    }
}

/// A prompt as Python gives it.
#[derive(FromPyObject)]
pub(crate) enum Prompt {
    Text(String),
    Tokens(Vec<u32>),
}

/// One HTTP request's worth of generation.
#[pyclass(frozen, module = "llgtrt._native")]
pub(crate) struct GenerateRequest(pub(crate) runtime::GenerateRequest);

#[pymethods]
impl GenerateRequest {
    #[new]
    #[pyo3(signature = (
        *, prompts, most_prompt_tokens=None, add_special=true, parse_special=true, n=1, max_tokens=None, clamp_max_tokens=false, min_tokens=0,
        temperature=1.0,
        top_k=0, top_p=1.0, min_p=0.0, presence_penalty=0.0, frequency_penalty=0.0, repetition_penalty=1.0,
        logit_bias=Vec::new(), seed=None, ignore_eos=false, logprobs=None, removed_mass=false, prompt_logprobs=false, prompt_top=None, token_ids=false, stop=Vec::new(),
        stop_token_ids=Vec::new(), include_stop=false, echo=false, grammar=None, grammar_param=None,
        close_at_limit=true, receipt=None, request_id="", output="final", control_text=false, logprobs_form="chat",
        text_token_ids=false, generated_tokens=0, response_id="", model="",
        created=0,
        include_usage=false, first_chunk_fields=None, lora_model=None, load_lora_weights="auto",
        bad_words=Vec::new(), priority=None, cache_salt=None, allotted_time_ms=None,
        no_repeat_ngram_size=None, top_p_decay=None, top_p_min=None, top_p_reset_ids=None,
        prompt_table=None, prompt_table_extra_ids=None, position_ids=None, mrope_cos_sin=None,
        mrope_position_deltas=None, encoder_tokens=None, encoder_features=None, encoder_output_length=None,
        cross_attention_mask=None, skip_cross_attention=None, kv_cache_retention=Vec::new(),
        decode_retention=None,
    ))]
    #[expect(
        clippy::too_many_arguments,
        clippy::fn_params_excessive_bools,
        reason = "keyword-only in Python"
    )]
    fn new(
        py: Python<'_>,
        prompts: Vec<Prompt>,
        most_prompt_tokens: Option<u32>,
        add_special: bool,
        parse_special: bool,
        n: u32,
        max_tokens: Option<u32>,
        clamp_max_tokens: bool,
        min_tokens: u32,
        temperature: f32,
        top_k: u32,
        top_p: f32,
        min_p: f32,
        presence_penalty: f32,
        frequency_penalty: f32,
        repetition_penalty: f32,
        logit_bias: Vec<(u32, f32)>,
        seed: Option<u64>,
        ignore_eos: bool,
        logprobs: Option<u32>,
        removed_mass: bool,
        prompt_logprobs: bool,
        prompt_top: Option<u32>,
        token_ids: bool,
        stop: Vec<String>,
        stop_token_ids: Vec<u32>,
        include_stop: bool,
        echo: bool,
        grammar: Option<Bound<'_, GrammarSpec>>,
        grammar_param: Option<String>,
        close_at_limit: bool,
        receipt: Option<String>,
        request_id: &str,
        output: &str,
        control_text: bool,
        logprobs_form: &str,
        text_token_ids: bool,
        generated_tokens: u32,
        response_id: &str,
        model: &str,
        created: u64,
        include_usage: bool,
        first_chunk_fields: Option<String>,
        lora_model: Option<String>,
        load_lora_weights: &str,
        bad_words: Vec<String>,
        priority: Option<f32>,
        cache_salt: Option<u64>,
        allotted_time_ms: Option<u64>,
        no_repeat_ngram_size: Option<u32>,
        top_p_decay: Option<f32>,
        top_p_min: Option<f32>,
        top_p_reset_ids: Option<u32>,
        prompt_table: Option<TensorArgument<'_>>,
        prompt_table_extra_ids: Option<Vec<u64>>,
        position_ids: Option<Vec<u32>>,
        mrope_cos_sin: Option<TensorArgument<'_>>,
        mrope_position_deltas: Option<i32>,
        encoder_tokens: Option<Vec<u32>>,
        encoder_features: Option<TensorArgument<'_>>,
        encoder_output_length: Option<u32>,
        cross_attention_mask: Option<TensorArgument<'_>>,
        skip_cross_attention: Option<TensorArgument<'_>>,
        kv_cache_retention: Vec<RetentionArgument>,
        decode_retention: Option<(u32, Option<u64>)>,
    ) -> PyResult<Self> {
        let output = output_format(output)?;
        let logprobs_form = parse_logprobs_form(logprobs_form)?;
        let load = match load_lora_weights {
            "auto" => LoadWeights::Auto,
            "always" => LoadWeights::Always,
            "never" => LoadWeights::Never,
            other => {
                return Err(PyValueError::new_err(format!("unknown way to load LoRA weights {other:?}")));
            }
        };
        let mut options = RequestOptions::default();
        let extras = PromptExtras {
            prompt_table,
            prompt_table_extra_ids,
            position_ids,
            mrope_cos_sin,
            mrope_position_deltas,
            encoder_tokens,
            encoder_features,
            encoder_output_length,
            cross_attention_mask,
            skip_cross_attention,
        };
        extras.add_to(&mut options).or_raise(py)?;
        if prompts.len() > 1
            && let Some(name) = options.asks_for()
        {
            return Err(Error::invalid(name, format!("{name} belongs to a single prompt"))).or_raise(py);
        }
        options::add_retention(&mut options, kv_cache_retention, decode_retention).or_raise(py)?;
        options.adapter = lora_model.map(|name| Adapter { name, load });
        options.priority = options::priority(priority).or_raise(py)?;
        options.cache_salt = cache_salt;
        options.allotted_time_ms = allotted_time_ms;
        let sampling = ExtraSampling { no_repeat_ngram_size, top_p_decay, top_p_min, top_p_reset_ids };
        options.sampling = options::sampling(sampling).or_raise(py)?;
        let options = (options != RequestOptions::default()).then(|| Arc::new(options));
        if prompts.is_empty() || n == 0 {
            return Err(PyValueError::new_err("prompts and n must not be empty or zero"));
        }
        let prompts = prompts
            .into_iter()
            .map(|prompt| match prompt {
                Prompt::Text(text) => runtime::Prompt::Text(text),
                Prompt::Tokens(tokens) => runtime::Prompt::Tokens(tokens),
            })
            .collect();
        Ok(Self(runtime::GenerateRequest {
            prompts,
            most_prompt_tokens,
            add_special,
            parse_special,
            n,
            max_tokens,
            clamp_max_tokens,
            sampling: SamplingParams {
                temperature,
                top_k,
                top_p,
                min_p,
                presence_penalty,
                frequency_penalty,
                repetition_penalty,
                logit_bias,
                seed: 0,
                logprobs,
                removed_mass: false,
                min_tokens,
                ignore_eos,
            },
            seed,
            removed_mass,
            receipt,
            request_id: request_id.to_owned(),
            prompt_logprobs,
            prompt_top,
            token_ids,
            options,
            bad_words,
            stop,
            stop_token_ids,
            include_stop,
            echo,
            grammar: grammar.map(|grammar| grammar.get().0.clone()),
            grammar_param,
            close_at_limit,
            output,
            control_text,
            logprobs_form,
            text_token_ids,
            generated_tokens,
            response_id: response_id.to_owned(),
            model: model.to_owned(),
            created,
            include_usage,
            first_chunk_fields,
        }))
    }
}

fn parse_logprobs_form(name: &str) -> PyResult<runtime::LogprobsForm> {
    match name {
        "chat" => Ok(runtime::LogprobsForm::Chat),
        "completion" => Ok(runtime::LogprobsForm::Completion),
        "tokens" => Ok(runtime::LogprobsForm::Tokens),
        other => Err(PyValueError::new_err(format!("unknown logprobs form {other:?}"))),
    }
}

fn output_format(name: &str) -> PyResult<runtime::OutputFormat> {
    Ok(match name {
        "final" => runtime::OutputFormat::Final,
        "deltas" => runtime::OutputFormat::Deltas,
        "chat_sse" => runtime::OutputFormat::ChatSse,
        "completion_sse" => runtime::OutputFormat::CompletionSse,
        other => return Err(PyValueError::new_err(format!("unknown output format {other:?}"))),
    })
}
