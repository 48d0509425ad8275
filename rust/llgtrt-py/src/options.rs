//! What a request asks of the engines that have it: what of it cannot be is refused. Runs with the GIL held.

use std::sync::Arc;

use llgtrt_core::{
    ElementType, EncoderInput, Error, ExtraSampling, HostTensor, Mrope, PromptTable, RequestOptions, Result,
    Retention, TokenId,
};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use serde::Deserialize;

/// A tensor whose bytes cross beside the JSON.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TensorField {
    element: ElementType,
    shape: Vec<usize>,
    /// Its place among the buffers.
    buffer: usize,
}

/// What a prompt may have beside its tokens.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct PromptExtras {
    prompt_table: Option<TensorField>,
    prompt_table_extra_ids: Option<Vec<u64>>,
    position_ids: Option<Vec<u32>>,
    mrope_cos_sin: Option<TensorField>,
    mrope_position_deltas: Option<i32>,
    encoder_tokens: Option<Vec<TokenId>>,
    encoder_features: Option<TensorField>,
    encoder_output_length: Option<u32>,
    cross_attention_mask: Option<TensorField>,
    skip_cross_attention: Option<TensorField>,
}

impl PromptExtras {
    /// What they ask of the engine.
    ///
    /// # Errors
    /// `InvalidRequest` with the field: a tensor is not sound, or fields that belong together are not.
    pub(crate) fn options(self, buffers: &[Bound<'_, PyBytes>]) -> Result<RequestOptions> {
        let mut options = RequestOptions::default();
        let tensor = |name: &str, given| tensor(name, given, buffers);
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
        Ok(options)
    }
}

/// The tensor of a field, whose bytes are as many as its shape says.
fn tensor(
    name: &str,
    given: Option<TensorField>,
    buffers: &[Bound<'_, PyBytes>],
) -> Result<Option<HostTensor>> {
    let Some(TensorField { element, shape, buffer }) = given else { return Ok(None) };
    let Some(bytes) = buffers.get(buffer) else {
        return Err(Error::invalid(name, format!("{name}: there is no buffer {buffer}")));
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

/// Checks the ranges of what is given.
///
/// # Errors
/// `InvalidRequest` with the field that is out of range.
pub(crate) fn check(options: &RequestOptions) -> Result<()> {
    check_retention(&options.retention, options.decode_retention)?;
    check_sampling(&options.sampling)?;
    if options.priority.is_some_and(|value| !(0.0..=1.0).contains(&value)) {
        return Err(Error::invalid("priority", "priority must be from 0 to 1"));
    }
    Ok(())
}

fn check_retention(ranges: &[Retention], decode: Option<(u32, Option<u64>)>) -> Result<()> {
    let refuse = |message| Err(Error::invalid("kv_cache_retention", message));
    let most = i32::MAX.cast_unsigned();
    for &Retention { start, end, .. } in ranges {
        if start >= most || end.is_some_and(|end| end <= start || end > most) {
            return refuse("kv_cache_retention: a range ends after its start");
        }
    }
    let mut priorities =
        ranges.iter().map(|range| range.priority).chain(decode.map(|(priority, _)| priority));
    if priorities.any(|priority| priority > 100) {
        return refuse("kv_cache_retention: a priority is from 0 to 100");
    }
    Ok(())
}

fn check_sampling(given: &ExtraSampling) -> Result<()> {
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
    Ok(())
}
