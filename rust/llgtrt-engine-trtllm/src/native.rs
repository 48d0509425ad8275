//! The plugin's engine behind safe functions. One thread owns it; freed when dropped, which waits for the executor's
//! thread, so that no callback runs afterwards.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use llgtrt_core::{Error, Result, TokenId};

use crate::abi::{self, Plain as _, UNSET, UNSET_64, dtype, status};
use crate::config::{ChunkingPolicy, DecodingMode, TrtllmSetup};
use crate::engine_dir::EngineInfo;
use crate::library::{Handle, Library, text};
use crate::masks::{MaskCallback, fill};

/// A piece of an answer, owned.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Response {
    pub(crate) request_id: u64,
    pub(crate) sequence_index: i32,
    pub(crate) is_final: bool,
    pub(crate) finish_reason: i32,
    pub(crate) error: Option<String>,
    pub(crate) lora_missing: bool,
    /// New tokens of the best beam.
    pub(crate) tokens: Vec<TokenId>,
    /// Rows of raw logits over the prompt, if asked for.
    pub(crate) context_logits: Option<Logits>,
    pub(crate) reused_blocks: u32,
}

/// Rows of logits as 32-bit floats.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Logits {
    pub(crate) values: Vec<f32>,
    pub(crate) columns: usize,
}

/// What the plugin measured of one row.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct RowResult {
    pub(crate) removed_mass: Option<f32>,
    pub(crate) logits: Option<Logits>,
}

/// Why a call failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NativeError {
    /// This request only.
    Refused(String),
    /// The engine is dead.
    Fatal(String),
}

/// The plugin's engine.
pub(crate) struct Native {
    library: Library,
    handle: *mut Handle,
    // The plugin has a pointer to it until the handle is destroyed.
    callback: Arc<MaskCallback>,
}

// SAFETY: the handle may be used from any thread, by one at a time, which `&mut self` ensures.
unsafe impl Send for Native {}

impl Native {
    /// Loads the engine; takes as long as reading its weights.
    pub(crate) fn create(
        library: Library,
        setup: &TrtllmSetup,
        info: &EngineInfo,
        callback: Arc<MaskCallback>,
    ) -> Result<Self> {
        let strings = Strings::new(setup)?;
        let lists = Lists::new(setup);
        let mut config = executor_config(setup, info, &strings, &lists);
        config.callbacks.user = Arc::as_ptr(&callback).cast_mut().cast();
        config.callbacks.fill = Some(fill);
        let mut handle = std::ptr::null_mut();
        // SAFETY: the configuration and all that it points to live until the call returns; `callback` lives as
        // long as the handle.
        let outcome = unsafe { (library.create)(&raw const config, &raw mut handle) };
        if outcome != status::OK || handle.is_null() {
            return Err(Error::configuration(format!(
                "TensorRT-LLM {} could not load the engine: {}",
                library.version(),
                library.last_error()
            ))
            .with_param("engine"));
        }
        Ok(Self { library, handle, callback })
    }

    pub(crate) fn callback(&self) -> &MaskCallback {
        &self.callback
    }

    pub(crate) fn version(&self) -> String {
        self.library.version()
    }

    pub(crate) fn is_leader(&self) -> bool {
        // SAFETY: the handle is alive.
        unsafe { (self.library.is_leader)(self.handle) != 0 }
    }

    fn check(&self, outcome: i32) -> std::result::Result<(), NativeError> {
        match outcome {
            status::OK => Ok(()),
            status::FATAL => Err(NativeError::Fatal(self.library.last_error())),
            _ => Err(NativeError::Refused(self.library.last_error())),
        }
    }

    pub(crate) fn submit(&mut self, request: &abi::Request) -> std::result::Result<u64, NativeError> {
        let mut id = 0;
        // SAFETY: whoever built the request keeps alive what it points to; the plugin copies it.
        self.check(unsafe { (self.library.submit)(self.handle, request, &raw mut id) })?;
        Ok(id)
    }

    pub(crate) fn cancel(&mut self, request_id: u64) {
        // SAFETY: the handle is alive.
        let outcome = unsafe { (self.library.cancel)(self.handle, request_id) };
        if let Err(error) = self.check(outcome) {
            // Its responses are ignored from here on; it runs to its end.
            tracing::warn!(?error, request_id, "TensorRT-LLM did not cancel a request");
        }
    }

    /// Blocks until there are responses, at most `timeout`, and appends them.
    pub(crate) fn wait(
        &mut self,
        timeout: Duration,
        responses: &mut Vec<Response>,
    ) -> std::result::Result<(), NativeError> {
        let (mut list, mut count) = (std::ptr::null(), 0);
        let timeout_ms = i64::try_from(timeout.as_millis()).unwrap_or(i64::MAX);
        // SAFETY: the handle is alive and the results have a place.
        self.check(unsafe { (self.library.wait)(self.handle, timeout_ms, &raw mut list, &raw mut count) })?;
        // SAFETY: the plugin's list is valid until the next wait, which needs `&mut self`.
        let plain = unsafe { slice(list, count) };
        responses.extend(plain.iter().map(|response| {
            // SAFETY: so is all that it points to.
            unsafe { own(response) }
        }));
        Ok(())
    }

    /// What was measured of the row from which token `token_count` of the sequence was sampled.
    pub(crate) fn row_result(&mut self, request_id: u64, token_count: usize) -> Option<RowResult> {
        let mut result = abi::RowResult::sized();
        // SAFETY: the handle is alive and the result has a place.
        let outcome =
            unsafe { (self.library.row_results)(self.handle, request_id, token_count, &raw mut result) };
        (outcome == status::OK).then(|| RowResult {
            removed_mass: Some(result.removed_mass).filter(|mass| !mass.is_nan()),
            // SAFETY: the plugin keeps the row until the next call.
            logits: unsafe { logits(&result.logits) },
        })
    }

    pub(crate) fn forget(&mut self, request_id: u64) {
        // SAFETY: the handle is alive.
        unsafe { (self.library.forget)(self.handle, request_id) }
    }

    pub(crate) fn stats(&mut self) -> std::result::Result<abi::Stats, NativeError> {
        let mut stats = abi::Stats::sized();
        // SAFETY: the handle is alive and the result has a place.
        self.check(unsafe { (self.library.stats)(self.handle, &raw mut stats) })?;
        Ok(stats)
    }

    pub(crate) fn stats_json(&mut self) -> String {
        // SAFETY: the handle is alive; the text is copied before the next call.
        text(unsafe { (self.library.stats_json)(self.handle) })
    }
}

impl Drop for Native {
    fn drop(&mut self) {
        // SAFETY: nobody uses the handle afterwards. The plugin joins its threads, so the callback's data, which
        // is dropped next, is not used any more either.
        unsafe { (self.library.destroy)(self.handle) }
    }
}

/// # Safety
/// `data` has `count` elements for as long as the result is used, or `count` is 0.
unsafe fn slice<'a, T>(data: *const T, count: usize) -> &'a [T] {
    if count == 0 || data.is_null() {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(data, count) }
}

/// # Safety
/// What the response points to is valid.
unsafe fn own(response: &abi::Response) -> Response {
    // SAFETY: the caller's promise; a list of `count` lists has as many ends.
    let tokens = unsafe {
        let ends = slice(response.tokens.ends, response.tokens.count);
        slice(response.tokens.ids, ends.first().copied().unwrap_or(0))
    };
    Response {
        request_id: response.request_id,
        sequence_index: response.sequence_index,
        is_final: response.is_final != 0,
        finish_reason: response.finish_reason,
        error: (!response.error.is_null()).then(|| text(response.error)),
        lora_missing: response.lora_missing != 0,
        tokens: tokens.iter().map(|token| token.cast_unsigned()).collect(),
        // SAFETY: the caller's promise.
        context_logits: unsafe { logits(&response.context_logits) },
        reused_blocks: u32::try_from(response.reused_blocks).unwrap_or(0),
    }
}

/// The last two dimensions of a tensor of logits.
///
/// # Safety
/// The tensor's data is as large as its shape says.
unsafe fn logits(tensor: &abi::Tensor) -> Option<Logits> {
    if tensor.data.is_null() {
        return None;
    }
    let shape = tensor.shape.get(..usize::try_from(tensor.rank).ok()?)?;
    let columns = usize::try_from(*shape.last()?).ok()?;
    let count =
        shape.iter().try_fold(1, |product: usize, size| product.checked_mul(usize::try_from(*size).ok()?))?;
    let values = match tensor.dtype {
        // SAFETY: the caller's promise; rows of logits are aligned for their elements.
        dtype::FP32 => unsafe { slice(tensor.data.cast::<f32>(), count) }.to_vec(),
        dtype::BF16 | dtype::FP16 => {
            let decode = if tensor.dtype == dtype::BF16 { bf16 } else { fp16 };
            // SAFETY: as above.
            unsafe { slice(tensor.data.cast::<u16>(), count) }.iter().map(|bits| decode(*bits)).collect()
        }
        _ => return None,
    };
    Some(Logits { values, columns })
}

fn bf16(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

fn fp16(bits: u16) -> f32 {
    let (exponent, fraction) = (bits >> 10 & 0x1f, u32::from(bits & 0x3ff));
    let magnitude = match exponent {
        0 => fraction as f32 * f32::from_bits(0x3380_0000),
        0x1f => f32::from_bits(0x7f80_0000 | fraction << 13),
        _ => f32::from_bits((u32::from(exponent) + 112) << 23 | fraction << 13),
    };
    if bits & 0x8000 == 0 { magnitude } else { -magnitude }
}

/// Texts of the configuration, with their zero bytes.
struct Strings {
    engine: CString,
    encoder: Option<CString>,
    lora_prefetch: Option<CString>,
}

impl Strings {
    fn new(setup: &TrtllmSetup) -> Result<Self> {
        let text = |path: &Path| {
            CString::new(path.as_os_str().as_bytes())
                .map_err(|_| Error::configuration("a path holds a zero byte"))
        };
        Ok(Self {
            engine: text(&setup.engine_dir)?,
            encoder: setup.config.encoder_dir.as_deref().map(text).transpose()?,
            lora_prefetch: setup.config.lora_prefetch_dir.as_deref().map(text).transpose()?,
        })
    }
}

/// Lists of the configuration, as the plugin wants them.
struct Lists {
    windows: Vec<i32>,
    devices: Vec<i32>,
    medusa: FlatLists,
    eagle: FlatLists,
}

/// Lists one after the other.
#[derive(Debug, Default)]
pub(crate) struct FlatLists {
    ids: Vec<i32>,
    ends: Vec<usize>,
}

impl FlatLists {
    pub(crate) fn push(&mut self, list: &[u32]) {
        self.ids.extend(list.iter().map(|id| id.cast_signed()));
        self.ends.push(self.ids.len());
    }

    /// Points into this.
    pub(crate) fn plain(&self) -> abi::Lists {
        let mut lists = abi::Lists::sized();
        lists.ids = self.ids.as_ptr();
        lists.ends = self.ends.as_ptr();
        lists.count = self.ends.len();
        lists
    }
}

impl<'a> FromIterator<&'a [u32]> for FlatLists {
    fn from_iter<I: IntoIterator<Item = &'a [u32]>>(lists: I) -> Self {
        let mut flat = Self::default();
        lists.into_iter().for_each(|list| flat.push(list));
        flat
    }
}

impl Lists {
    fn new(setup: &TrtllmSetup) -> Self {
        let config = &setup.config;
        let signed = |list: &[u32]| list.iter().map(|value| value.cast_signed()).collect();
        Self {
            windows: signed(&config.max_attention_window),
            devices: signed(&config.gpu_device_ids),
            medusa: config.medusa_choices.iter().map(Vec::as_slice).collect(),
            eagle: config.eagle_choices.iter().map(Vec::as_slice).collect(),
        }
    }
}

/// An optional number.
pub(crate) fn optional(value: Option<u32>) -> i32 {
    value.map_or(UNSET, |value| i32::try_from(value).unwrap_or(i32::MAX))
}

/// The whole configuration. Points into `strings` and `lists`.
fn executor_config(setup: &TrtllmSetup, info: &EngineInfo, strings: &Strings, lists: &Lists) -> abi::Config {
    const MEGABYTE: u64 = 1 << 20;
    let (batching, own) = (&setup.batching, &setup.config);
    let bytes = |megabytes: u64| i64::try_from(megabytes.saturating_mul(MEGABYTE)).unwrap_or(i64::MAX);
    let pointer = |text: &Option<CString>| text.as_ref().map_or(std::ptr::null(), |text| text.as_ptr());

    let mut config = abi::Config::sized();
    config.engine_dir = strings.engine.as_ptr();
    config.encoder_dir = pointer(&strings.encoder);
    config.callbacks = abi::Callbacks::sized();
    config.vocab_size = info.vocab_size.cast_signed();
    config.logits_dtype = info.logits_type().unwrap_or(dtype::FP32);
    // CapacitySchedulerPolicy: kMAX_UTILIZATION, kGUARANTEED_NO_EVICT.
    config.scheduler_policy = batching.guaranteed_no_evict.into();
    config.chunking_policy = match own.context_chunking_policy {
        None => UNSET,
        Some(ChunkingPolicy::FirstComeFirstServed) => 0,
        Some(ChunkingPolicy::EqualProgress) => 1,
    };
    config.max_beam_width = own.max_beam_width.cast_signed();
    config.max_batch_size = optional(batching.max_batch_size);
    config.max_num_tokens = optional(batching.max_num_tokens);
    config.max_queue_size = optional(batching.max_queue_size);
    config.enable_chunked_context = batching.enable_chunked_context.into();
    config.normalize_log_probs = own.normalize_log_probs.into();
    config.enable_batch_size_tuning = batching.enable_batch_size_tuning.into();
    config.enable_max_num_tokens_tuning = batching.enable_max_num_tokens_tuning.into();
    config.tuning_window = optional(own.tuning_window);
    config.iter_stats_max_iterations = own.iter_stats_max_iterations.cast_signed();
    config.gpu_weights_percent = own.gpu_weights_percent;
    config.kv_enable_reuse = batching.enable_kv_cache_reuse.into();
    config.kv_onboard_blocks = batching.kv_cache_onboard_blocks.into();
    config.kv_max_tokens = optional(own.kv_cache_max_tokens);
    config.kv_sink_token_length = optional(own.sink_token_length);
    config.kv_secondary_offload_min_priority = batching.secondary_offload_min_priority.unwrap_or(UNSET);
    config.kv_free_gpu_mem_fraction = batching.kv_cache_free_gpu_mem_fraction;
    config.kv_cross_fraction = batching.cross_kv_cache_fraction.unwrap_or(f32::NAN);
    config.kv_host_cache_bytes = match batching.kv_cache_host_memory_megabytes {
        0 => UNSET_64,
        megabytes => bytes(megabytes),
    };
    config.kv_event_buffer_max_size =
        batching.event_buffer_max_size.map_or(0, |size| i64::try_from(size).unwrap_or(i64::MAX));
    config.kv_attention_windows = lists.windows.as_ptr();
    config.kv_attention_window_count = lists.windows.len();
    config.multi_block_mode = own.multi_block_mode.into();
    config.context_fmha_fp32_acc = own.enable_context_fmha_fp32_acc.into();
    config.cuda_graph_mode = own.cuda_graph_mode.into();
    config.cuda_graph_cache_size = own.cuda_graph_cache_size.cast_signed();
    config.decoding_mode = decoding_mode(own.decoding_mode);
    let [window, ngram, verification] = own.lookahead.map_or([UNSET; 3], |n| n.map(u32::cast_signed));
    (config.lookahead_window, config.lookahead_ngram) = (window, ngram);
    config.lookahead_verification_set = verification;
    config.medusa_choices = lists.medusa.plain();
    config.eagle_choices = lists.eagle.plain();
    config.eagle_greedy_sampling = own.eagle_greedy_sampling.into();
    config.eagle_use_dynamic_tree = own.eagle_dynamic_tree_top_k.is_some().into();
    config.eagle_dynamic_tree_max_top_k = optional(own.eagle_dynamic_tree_top_k);
    config.eagle_posterior_threshold = own.eagle_posterior_threshold.unwrap_or(f32::NAN);
    config.lora_optimal_adapter_size = optional(own.lora_optimal_adapter_size);
    config.lora_max_adapter_size = optional(own.lora_max_adapter_size);
    config.lora_device_cache_fraction = own.lora_cache_gpu_memory_fraction.unwrap_or(f32::NAN);
    config.lora_host_cache_bytes = own.lora_cache_host_memory_megabytes.map_or(UNSET_64, bytes);
    config.lora_prefetch_dir = pointer(&strings.lora_prefetch);
    // Grammars are known to the leader alone: it masks, and the others get the sampled tokens.
    config.replicate_post_processor = 0;
    config.device_ids = lists.devices.as_ptr();
    config.device_id_count = lists.devices.len();
    config
}

/// `llgtrt_trtllm_decoding_mode`.
fn decoding_mode(mode: Option<DecodingMode>) -> i32 {
    match mode {
        None => 0,
        Some(DecodingMode::Auto) => 1,
        Some(DecodingMode::TopK) => 2,
        Some(DecodingMode::TopP) => 3,
        Some(DecodingMode::TopKTopP) => 4,
        Some(DecodingMode::BeamSearch) => 5,
        Some(DecodingMode::Medusa) => 6,
        Some(DecodingMode::Redrafter) => 7,
        Some(DecodingMode::Lookahead) => 8,
        Some(DecodingMode::Eagle) => 9,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sixteen_bit_floats_are_read() {
        assert_eq!((fp16(0x3c00), fp16(0xc000), fp16(0x7bff)), (1.0, -2.0, 65504.0));
        assert_eq!((fp16(1), fp16(0x8000)), (f32::exp2(-24.0), -0.0));
        assert!(fp16(0x7c00).is_infinite() && fp16(0x7e00).is_nan());
        assert_eq!((bf16(0x3f80), bf16(0xc000)), (1.0, -2.0));
    }

    #[test]
    fn lists_lie_one_after_the_other() {
        let flat: FlatLists = [&[1, 2][..], &[], &[3]].into_iter().collect();
        assert_eq!((flat.ids, flat.ends), (vec![1, 2, 3], vec![2, 2, 3]));
    }
}
