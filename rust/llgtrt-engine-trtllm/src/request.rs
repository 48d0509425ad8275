//! From a sequence to the plugin's request. Runs on the engine's thread.
//!
//! Who does what: TensorRT-LLM samples, with temperature, top-k, top-p, penalties and biases of its own. Masks, bans
//! of end tokens before `min_tokens`, and `min_p` (where neither penalties nor biases follow it) are applied to the
//! logits before. The end token is the vocabulary's first; the others and the stop tokens are stop words.

use std::hash::{Hash as _, Hasher as _};

use llgtrt_core::{
    ElementType, HostTensor, Phase, RequestOptions, SamplingParams, SequenceSpec, TokenId, Vocabulary,
};

use crate::abi::{self, Plain as _, UNSET, dtype, phase};
use crate::lora::AdapterUse;
use crate::masks::Slot;
use crate::native::{FlatLists, optional};

/// Below this temperature sampling is greedy, as in the other engines.
const MIN_TEMPERATURE: f32 = 1e-5;

/// What a request points to beside the sequence's own lists: it borrows those.
pub(crate) struct Prepared<'a> {
    spec: &'a SequenceSpec,
    options: &'a RequestOptions,
    adapter: Option<&'a AdapterUse>,
    stop_words: FlatLists,
    bad_words: FlatLists,
    biases: Vec<abi::Bias>,
    /// Of the prompt's tokens, where a table of embeddings gives some of them a meaning of their own.
    extra_ids: Vec<u64>,
    retention: Vec<abi::Retention>,
    end_id: Option<TokenId>,
    post_process: bool,
}

/// What an engine's requests have in common.
pub(crate) struct Shape<'a> {
    pub(crate) vocabulary: &'a Vocabulary,
    pub(crate) vocab_size: u32,
}

/// What the callback has to know of a sequence; None: it needs no callback.
pub(crate) fn slot(spec: &SequenceSpec, shape: &Shape<'_>) -> Option<Slot> {
    let sampling = &spec.sampling;
    let ends = end_tokens(spec, shape.vocabulary);
    let in_kernel = samples_in_kernel(sampling);
    let slot = Slot {
        sequence: spec.id,
        prompt_len: spec.prompt.len(),
        constrained: spec.constrained,
        bans: ends.iter().copied().filter(|token| *token < shape.vocab_size).collect(),
        min_tokens: sampling.min_tokens as usize,
        end_token: ends.first().copied().unwrap_or(0),
        temperature: if in_kernel { sampling.temperature } else { 0.0 },
        min_p: if in_kernel { sampling.min_p } else { 0.0 },
        report_removed_mass: sampling.removed_mass,
        keep_logits: sampling.logprobs.is_some(),
        verdict: None,
    };
    let needed = spec.constrained
        || (slot.min_tokens > 0 && !slot.bans.is_empty())
        || in_kernel
        || slot.keep_logits
        || slot.report_removed_mass;
    needed.then_some(slot)
}

/// Tokens that the executor may generate. It hands a sequence over only where another token may follow, and gets its
/// cache only to go on.
pub(crate) fn executor_tokens(spec: &SequenceSpec) -> u32 {
    let least = match &spec.phase {
        Phase::Whole => 1,
        Phase::Context => 2,
        Phase::Generation(handover) => handover.first_tokens.len() as u32 + 1,
    };
    spec.max_tokens.max(least)
}

/// The tokens that end a sequence, the executor's end token first.
fn end_tokens(spec: &SequenceSpec, vocabulary: &Vocabulary) -> Vec<TokenId> {
    // A grammar that allows the end is complete: it ends there whatever the request says.
    let eos = if spec.constrained || !spec.sampling.ignore_eos { vocabulary.eos() } else { &[] };
    eos.iter().chain(spec.stop_token_ids.iter()).copied().collect()
}

/// Whether `min_p`, and with it the temperature that comes before it, is applied with the mask.
fn samples_in_kernel(sampling: &SamplingParams) -> bool {
    sampling.min_p > 0.0
        && sampling.temperature >= MIN_TEMPERATURE
        && sampling.logit_bias.is_empty()
        && !has_penalties(sampling)
}

#[expect(clippy::float_cmp, reason = "a parameter is off at one exact value")]
fn has_penalties(sampling: &SamplingParams) -> bool {
    sampling.repetition_penalty != 1.0
        || sampling.presence_penalty != 0.0
        || sampling.frequency_penalty != 0.0
}

impl<'a> Prepared<'a> {
    pub(crate) fn new(
        spec: &'a SequenceSpec,
        options: &'a RequestOptions,
        adapter: Option<&'a AdapterUse>,
        post_process: bool,
        shape: &Shape<'_>,
    ) -> Self {
        let eos_ends = spec.constrained || !spec.sampling.ignore_eos;
        let end_id = shape.vocabulary.eos().first().copied().filter(|_| eos_ends);
        let mut stop_words = FlatLists::default();
        for token in end_tokens(spec, shape.vocabulary).iter().filter(|token| Some(**token) != end_id) {
            stop_words.push(&[*token]);
        }
        options.stop_words.iter().for_each(|word| stop_words.push(word));
        let biases = spec.sampling.logit_bias.iter().filter(|(token, _)| *token < shape.vocab_size);
        Self {
            spec,
            options,
            adapter,
            stop_words,
            bad_words: options.bad_words.iter().map(Vec::as_slice).collect(),
            biases: biases.map(|&(token, bias)| abi::Bias { token: token.cast_signed(), bias }).collect(),
            extra_ids: extra_ids(spec, options, shape),
            retention: options.retention.iter().map(retention).collect(),
            end_id,
            post_process,
        }
    }

    /// The plugin's view. Points into this and into what this borrows.
    pub(crate) fn plain(&self) -> abi::Request {
        let (spec, options) = (self.spec, self.options);
        let mut request = abi::Request::sized();
        request.client_id = spec.id.0;
        (request.tokens, request.token_count) = signed(&spec.prompt);
        request.max_tokens = executor_tokens(spec).cast_signed();
        request.end_id = optional(self.end_id);
        request.pad_id = optional(self.end_id);
        request.sampling = sampling(&spec.sampling, options);
        request.stop_words = self.stop_words.plain();
        request.bad_words = self.bad_words.plain();
        (request.biases, request.bias_count) = (self.biases.as_ptr(), self.biases.len());
        request.post_process = self.post_process.into();
        // An engine that can return them reuses no prefix: the whole prompt is evaluated.
        request.return_context_logits = spec.prompt_logprobs.into();
        request.priority = options.priority.unwrap_or(f32::NAN);
        request.allotted_time_ms = milliseconds(options.allotted_time_ms);
        request.has_cache_salt = options.cache_salt.is_some().into();
        request.cache_salt = options.cache_salt.unwrap_or(0);
        self.point_to_handover(&mut request);
        self.point_to_adapter(&mut request);
        self.point_to_inputs(&mut request);
        (request.retention, request.retention_count) = (self.retention.as_ptr(), self.retention.len());
        request.decode_retention_priority = optional(options.decode_retention.map(|(priority, _)| priority));
        request.decode_retention_ms =
            milliseconds(options.decode_retention.and_then(|(_, duration)| duration));
        let [window, ngram, verification] = options.lookahead.map_or([UNSET; 3], |n| n.map(u32::cast_signed));
        (request.lookahead_window, request.lookahead_ngram) = (window, ngram);
        request.lookahead_verification_set = verification;
        request
    }

    fn point_to_handover(&self, request: &mut abi::Request) {
        request.handover = abi::Handover::sized();
        request.phase = match &self.spec.phase {
            Phase::Whole => phase::WHOLE,
            Phase::Context => phase::CONTEXT_ONLY,
            Phase::Generation(_) => phase::GENERATION_ONLY,
        };
        let Phase::Generation(handover) = &self.spec.phase else { return };
        let plain = &mut request.handover;
        plain.request_id = handover.request_id;
        (plain.first_tokens, plain.first_token_count) = signed(&handover.first_tokens);
        (plain.draft_tokens, plain.draft_token_count) = signed(&handover.draft_tokens);
        (plain.state, plain.state_size) = (handover.state.as_ptr(), handover.state.len());
    }

    fn point_to_adapter(&self, request: &mut abi::Request) {
        request.has_lora = self.adapter.is_some().into();
        request.lora_task = self.adapter.map_or(0, |adapter| adapter.task);
        let weights = self.adapter.and_then(|adapter| adapter.weights.as_deref());
        request.lora_weights = tensor(weights.map(|weights| &weights.weights));
        request.lora_config = tensor(weights.map(|weights| &weights.config));
    }

    fn point_to_inputs(&self, request: &mut abi::Request) {
        let options = self.options;
        request.prompt_table = tensor(options.prompt_table.as_ref().map(|table| &table.embeddings));
        (request.prompt_extra_ids, request.prompt_extra_id_count) =
            (self.extra_ids.as_ptr(), self.extra_ids.len());
        (request.position_ids, request.position_id_count) = signed(&options.position_ids);
        let mrope = options.mrope.as_ref();
        request.mrope_cos_sin = tensor(mrope.map(|mrope| &mrope.rotary_cos_sin));
        request.mrope_position_deltas = mrope.map_or(0, |mrope| mrope.position_deltas);
        let encoder = options.encoder.as_ref();
        (request.encoder_tokens, request.encoder_token_count) =
            signed(encoder.map_or(&[][..], |input| &input.tokens));
        request.encoder_features = tensor(encoder.and_then(|input| input.features.as_ref()));
        request.encoder_output_length = optional(encoder.and_then(|input| input.output_length));
        request.cross_attention_mask = tensor(encoder.and_then(|input| input.cross_attention_mask.as_ref()));
        request.skip_cross_attention = tensor(encoder.and_then(|input| input.skip_cross_attention.as_ref()));
    }
}

/// The list itself: ids are below 2^31, where both types have the same bits.
fn signed(ids: &[u32]) -> (*const i32, usize) {
    (ids.as_ptr().cast(), ids.len())
}

/// TensorRT-LLM shares prefixes by tokens and these ids, and wants them with a table of embeddings. Where the request has
/// none, tokens of the table get an id of the table's content, so that only prompts with the same table share them.
fn extra_ids(spec: &SequenceSpec, options: &RequestOptions, shape: &Shape<'_>) -> Vec<u64> {
    let Some(table) = &options.prompt_table else { return Vec::new() };
    if !table.extra_ids.is_empty() {
        return table.extra_ids.clone();
    }
    let mut hasher = std::hash::DefaultHasher::new();
    table.embeddings.bytes.hash(&mut hasher);
    let id = hasher.finish().max(1);
    spec.prompt.iter().map(|&token| if token < shape.vocab_size { 0 } else { id }).collect()
}

fn milliseconds(value: Option<u64>) -> i64 {
    value.map_or(-1, |value| i64::try_from(value).unwrap_or(i64::MAX))
}

fn retention(range: &llgtrt_core::Retention) -> abi::Retention {
    let mut plain = abi::Retention::sized();
    plain.token_start = range.start.cast_signed();
    plain.token_end = optional(range.end);
    plain.priority = range.priority.cast_signed();
    plain.duration_ms = milliseconds(range.duration_ms);
    plain
}

fn tensor(tensor: Option<&HostTensor>) -> abi::Tensor {
    let mut plain = abi::Tensor::sized();
    let Some(tensor) = tensor.filter(|tensor| tensor.is_sound()) else { return plain };
    plain.data = tensor.bytes.as_ptr().cast();
    plain.dtype = match tensor.element {
        ElementType::Bool => dtype::BOOL,
        ElementType::I32 => dtype::INT32,
        ElementType::I64 => dtype::INT64,
        ElementType::Bf16 => dtype::BF16,
        ElementType::Fp8 => dtype::FP8,
        ElementType::Fp16 => dtype::FP16,
        ElementType::Fp32 => dtype::FP32,
    };
    plain.rank = tensor.shape.len() as i32;
    for (target, size) in plain.shape.iter_mut().zip(&tensor.shape) {
        *target = *size as i64;
    }
    plain
}

#[expect(clippy::float_cmp, reason = "a parameter is off at one exact value")]
fn sampling(params: &SamplingParams, options: &RequestOptions) -> abi::Sampling {
    let mut plain = abi::Sampling::sized();
    let given = |value: f32, off: f32| if value == off { f32::NAN } else { value };
    plain.beam_width = options.beam_width.unwrap_or(1).max(1).cast_signed();
    let extra = options.sampling;
    plain.top_p_min = extra.top_p_min.unwrap_or(f32::NAN);
    plain.top_p_decay = extra.top_p_decay.unwrap_or(f32::NAN);
    plain.top_p_reset_id = optional(extra.top_p_reset_ids);
    plain.repetition_penalty = given(params.repetition_penalty, 1.0);
    plain.presence_penalty = given(params.presence_penalty, 0.0);
    plain.frequency_penalty = given(params.frequency_penalty, 0.0);
    plain.no_repeat_ngram_size = optional(extra.no_repeat_ngram_size);
    plain.has_seed = 1;
    plain.seed = params.seed;
    if params.temperature < MIN_TEMPERATURE {
        plain.top_k = 1;
        plain.top_p = f32::NAN;
        plain.temperature = f32::NAN;
        plain.min_p = f32::NAN;
        return plain;
    }
    let in_kernel = samples_in_kernel(params);
    // TensorRT-LLM samples greedily where neither is given, so that "all tokens" has to be said.
    plain.top_k = if params.top_k == 0 { UNSET } else { params.top_k.min(1024).cast_signed() };
    plain.top_p = params.top_p;
    plain.temperature = if in_kernel { f32::NAN } else { given(params.temperature, 1.0) };
    plain.min_p = if in_kernel { f32::NAN } else { given(params.min_p, 0.0) };
    plain
}

#[cfg(test)]
mod tests {
    use super::*;
    use llgtrt_core::{SequenceId, VocabularyBuilder};
    use std::sync::Arc;

    fn vocabulary() -> Vocabulary {
        let mut builder = VocabularyBuilder::default();
        (0..8_u8).for_each(|byte| builder.push(&[byte], false));
        builder.build(None, vec![7, 6])
    }

    fn spec(sampling: SamplingParams) -> SequenceSpec {
        SequenceSpec {
            id: SequenceId(5),
            prompt: Arc::from([1, 2]),
            max_tokens: 4,
            sampling,
            stop_token_ids: Arc::from([3]),
            constrained: false,
            prompt_logprobs: false,
            options: None,
            processor: None,
            phase: llgtrt_core::Phase::Whole,
        }
    }

    /// End token and number of stop words.
    fn ends(spec: &SequenceSpec) -> (i32, usize) {
        let vocabulary = vocabulary();
        let shape = Shape { vocabulary: &vocabulary, vocab_size: 8 };
        let options = RequestOptions::default();
        let prepared = Prepared::new(spec, &options, None, false, &shape);
        let plain = prepared.plain();
        (plain.end_id, plain.stop_words.count)
    }

    #[test]
    fn the_first_end_is_the_end_token_and_the_others_stop_words() {
        assert_eq!(ends(&spec(SamplingParams::default())), (7, 2));
        let ignoring = SamplingParams { ignore_eos: true, ..SamplingParams::default() };
        assert_eq!(ends(&spec(ignoring.clone())), (UNSET, 1));
        assert_eq!(ends(&SequenceSpec { constrained: true, ..spec(ignoring) }), (7, 2));
    }

    #[test]
    fn tables_of_embeddings_have_ids_of_their_content() {
        let vocabulary = vocabulary();
        let shape = Shape { vocabulary: &vocabulary, vocab_size: 8 };
        let ids = |value: u8, given: &[u64]| {
            let embeddings =
                HostTensor { element: ElementType::Fp32, shape: vec![1, 1], bytes: vec![value; 4].into() };
            let prompt_table = Some(llgtrt_core::PromptTable { embeddings, extra_ids: given.to_vec() });
            let options = RequestOptions { prompt_table, ..RequestOptions::default() };
            let spec = SequenceSpec { prompt: Arc::from([1, 8, 9]), ..spec(SamplingParams::default()) };
            extra_ids(&spec, &options, &shape)
        };
        let (one, other) = (ids(1, &[]), ids(2, &[]));
        assert!(one[0] == 0 && one[1] == one[2] && one[1] != 0 && one != other && one == ids(1, &[]));
        assert_eq!(ids(1, &[4, 5, 6]), [4, 5, 6]);
        assert!(extra_ids(&spec(SamplingParams::default()), &RequestOptions::default(), &shape).is_empty());
    }

    #[test]
    fn all_tokens_have_to_be_asked_for() {
        let plain = sampling(&SamplingParams::default(), &RequestOptions::default());
        assert!(plain.top_k == UNSET && (plain.top_p - 1.0).abs() < f32::EPSILON);
        assert!(plain.temperature.is_nan() && plain.min_p.is_nan());
        let greedy = SamplingParams { temperature: 0.0, top_k: 50, ..SamplingParams::default() };
        assert_eq!(sampling(&greedy, &RequestOptions::default()).top_k, 1);
    }

    #[test]
    fn min_p_is_applied_once() {
        let vocabulary = vocabulary();
        let shape = Shape { vocabulary: &vocabulary, vocab_size: 8 };
        let options = RequestOptions::default();
        let alone = SamplingParams { min_p: 0.1, temperature: 0.5, ..SamplingParams::default() };
        let kernel = slot(&spec(alone.clone()), &shape).unwrap();
        assert!((kernel.min_p, kernel.temperature) == (0.1, 0.5));
        let native = sampling(&alone, &options);
        assert!(native.min_p.is_nan() && native.temperature.is_nan());
        let biased = SamplingParams { logit_bias: vec![(1, 2.0)], ..alone };
        assert!(slot(&spec(biased.clone()), &shape).is_none());
        let native = sampling(&biased, &options);
        assert!((native.min_p, native.temperature) == (0.1, 0.5));
    }

    #[test]
    fn plain_requests_need_no_callback() {
        let vocabulary = vocabulary();
        let shape = Shape { vocabulary: &vocabulary, vocab_size: 8 };
        assert!(slot(&spec(SamplingParams::default()), &shape).is_none());
        let logprobs = SamplingParams { logprobs: Some(0), ..SamplingParams::default() };
        assert!(slot(&spec(logprobs), &shape).unwrap().keep_logits);
        let late = SamplingParams { min_tokens: 3, ..SamplingParams::default() };
        assert_eq!(slot(&spec(late), &shape).unwrap().bans, [7, 6, 3]);
    }
}
