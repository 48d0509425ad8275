//! What a request asks of the engines that have it, from Python's values. Runs with the GIL held.

use std::sync::Arc;

use llgtrt_core::{
    ElementType, EncoderInput, Error, ExtraSampling, HostTensor, Mrope, PromptTable, RequestOptions, Result,
    Retention, TokenId,
};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// Element, shape and bytes.
pub(crate) type TensorArgument<'py> = (String, Vec<usize>, Bound<'py, PyBytes>);

/// What a prompt may have beside its tokens.
pub(crate) struct PromptExtras<'py> {
    pub(crate) prompt_table: Option<TensorArgument<'py>>,
    pub(crate) prompt_table_extra_ids: Option<Vec<u64>>,
    pub(crate) position_ids: Option<Vec<u32>>,
    pub(crate) mrope_cos_sin: Option<TensorArgument<'py>>,
    pub(crate) mrope_position_deltas: Option<i32>,
    pub(crate) encoder_tokens: Option<Vec<TokenId>>,
    pub(crate) encoder_features: Option<TensorArgument<'py>>,
    pub(crate) encoder_output_length: Option<u32>,
    pub(crate) cross_attention_mask: Option<TensorArgument<'py>>,
    pub(crate) skip_cross_attention: Option<TensorArgument<'py>>,
}

impl PromptExtras<'_> {
    /// Adds them to `options`.
    ///
    /// # Errors
    /// `InvalidRequest` with the field: a tensor is not sound, or fields that belong together are not.
    pub(crate) fn add_to(self, options: &mut RequestOptions) -> Result<()> {
        let table = tensor("prompt_table", self.prompt_table)?;
        if table.as_ref().is_some_and(|table| table.shape.len() != 2) {
            return Err(Error::invalid("prompt_table", "prompt_table must have two dimensions"));
        }
        options.prompt_table = match (table, self.prompt_table_extra_ids) {
            (Some(embeddings), extra_ids) => {
                Some(PromptTable { embeddings, extra_ids: extra_ids.unwrap_or_default() })
            }
            (None, None) => None,
            (None, Some(_)) => {
                let message = "prompt_table_extra_ids needs prompt_table";
                return Err(Error::invalid("prompt_table_extra_ids", message));
            }
        };
        options.position_ids = self.position_ids.unwrap_or_default();
        options.mrope = match (tensor("mrope_cos_sin", self.mrope_cos_sin)?, self.mrope_position_deltas) {
            (Some(rotary_cos_sin), Some(position_deltas)) => {
                of_type("mrope_cos_sin", &rotary_cos_sin, ElementType::Fp32, "fp32")?;
                Some(Mrope { rotary_cos_sin, position_deltas })
            }
            (None, None) => None,
            _ => {
                let message = "mrope_cos_sin and mrope_position_deltas go together";
                return Err(Error::invalid("mrope_cos_sin", message));
            }
        };
        let encoder = EncoderInput {
            tokens: self.encoder_tokens.unwrap_or_default(),
            features: tensor("encoder_features", self.encoder_features)?,
            output_length: self.encoder_output_length,
            cross_attention_mask: tensor("cross_attention_mask", self.cross_attention_mask)?,
            skip_cross_attention: tensor("skip_cross_attention", self.skip_cross_attention)?,
        };
        if let Some(skip) = &encoder.skip_cross_attention {
            of_type("skip_cross_attention", skip, ElementType::Bool, "bool")?;
        }
        options.encoder = (encoder != EncoderInput::default()).then_some(encoder);
        Ok(())
    }
}

/// The tensor of a field, whose bytes are as many as its shape says.
fn tensor(name: &str, given: Option<TensorArgument<'_>>) -> Result<Option<HostTensor>> {
    let Some((element, shape, bytes)) = given else { return Ok(None) };
    let element = match element.as_str() {
        "bool" => ElementType::Bool,
        "i32" => ElementType::I32,
        "i64" => ElementType::I64,
        "bf16" => ElementType::Bf16,
        "fp8" => ElementType::Fp8,
        "fp16" => ElementType::Fp16,
        "fp32" => ElementType::Fp32,
        other => return Err(Error::invalid(name, format!("{name}: unknown element type {other:?}"))),
    };
    let tensor = HostTensor { element, shape, bytes: Arc::from(bytes.as_bytes()) };
    if tensor.is_sound() {
        return Ok(Some(tensor));
    }
    let (shape, bytes) = (&tensor.shape, tensor.bytes.len());
    let message = format!(
        "{name}: a tensor of shape {shape:?} in {} bytes per element cannot have {bytes} bytes",
        element.size()
    );
    Err(Error::invalid(name, message))
}

fn of_type(name: &str, tensor: &HostTensor, element: ElementType, text: &str) -> Result<()> {
    if tensor.element == element {
        return Ok(());
    }
    Err(Error::invalid(name, format!("{name} must have elements of type {text}")))
}

/// First token, one past the last, priority, milliseconds.
pub(crate) type RetentionArgument = (u32, Option<u32>, u32, Option<u64>);

/// How long parts of the prompt, and the answer (priority, milliseconds), stay in the KV cache.
pub(crate) fn add_retention(
    options: &mut RequestOptions,
    ranges: Vec<RetentionArgument>,
    decode: Option<(u32, Option<u64>)>,
) -> Result<()> {
    let refuse = |message| Err(Error::invalid("kv_cache_retention", message));
    let most = i32::MAX.cast_unsigned();
    for (start, end, priority, duration_ms) in ranges {
        if start >= most || end.is_some_and(|end| end <= start || end > most) {
            return refuse("kv_cache_retention: a range ends after its start");
        }
        if priority > 100 {
            return refuse("kv_cache_retention: a priority is from 0 to 100");
        }
        options.retention.push(Retention { start, end, priority, duration_ms });
    }
    if decode.is_some_and(|(priority, _)| priority > 100) {
        return refuse("kv_cache_retention: a priority is from 0 to 100");
    }
    options.decode_retention = decode;
    Ok(())
}

/// Checks the ranges of what is given.
pub(crate) fn sampling(given: ExtraSampling) -> Result<ExtraSampling> {
    // The executor counts in 32 bits, with a sign.
    let most = i32::MAX.cast_unsigned();
    if given.no_repeat_ngram_size.is_some_and(|size| !(1..=most).contains(&size)) {
        let message = format!("no_repeat_ngram_size must be from 1 to {most}");
        return Err(Error::invalid("no_repeat_ngram_size", message));
    }
    if given.top_p_reset_ids.is_some_and(|token| token > most) {
        return Err(Error::invalid("top_p_reset_ids", format!("top_p_reset_ids must be at most {most}")));
    }
    for (name, value) in [("top_p_decay", given.top_p_decay), ("top_p_min", given.top_p_min)] {
        if value.is_some_and(|value| !(value > 0.0 && value <= 1.0)) {
            return Err(Error::invalid(name, format!("{name} must be above 0 and at most 1")));
        }
    }
    Ok(given)
}

/// The priority of a request, 0 to 1.
pub(crate) fn priority(given: Option<f32>) -> Result<Option<f32>> {
    match given {
        Some(value) if !(0.0..=1.0).contains(&value) => {
            Err(Error::invalid("priority", "priority must be from 0 to 1"))
        }
        other => Ok(other),
    }
}
