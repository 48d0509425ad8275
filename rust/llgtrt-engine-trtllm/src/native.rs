//! The plugin's engine behind safe functions. One thread owns it; freed when dropped, which waits for the executor's
//! thread, so that no callback runs afterwards.

use std::ffi::CString;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use llgtrt_core::{Error, Handover, KvEventQueue, Pass, Result, TokenId};
use serde::Serialize;

use crate::abi::{self, Plain as _, UNSET, dtype, error_kind, status};
use crate::config::{Batching, TrtllmConfig, TrtllmSetup};
use crate::engine_dir::EngineInfo;
use crate::kv_events::Reader;
use crate::library::{Handle, Library, text};
use crate::masks::{MaskCallback, fill};

/// A piece of an answer, owned.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Response {
    pub(crate) request_id: u64,
    pub(crate) is_final: bool,
    pub(crate) finish_reason: i32,
    pub(crate) error: Option<Failure>,
    /// New tokens of the best beam.
    pub(crate) tokens: Vec<TokenId>,
    /// Rows of raw logits over the prompt, if asked for.
    pub(crate) context_logits: Option<Logits>,
    pub(crate) reused_blocks: u32,
    /// With the last piece of a prompt that goes on elsewhere.
    pub(crate) handover: Option<Handover>,
}

/// Why a request failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failure {
    /// For a reason of its own, or because the forward pass failed for all.
    Request(String),
    /// Its adapter is not in the cache any more.
    AdapterMissing(String),
    /// Every adapter in the cache is in use.
    AdapterCacheFull,
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
    kv_events: Option<Reader>,
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
        let settings = settings(setup, info)?;
        let mut config = abi::Config::sized();
        config.settings = settings.as_ptr();
        config.callbacks = abi::Callbacks::sized();
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
        Ok(Self { library, handle, kv_events: None, callback })
    }

    /// Tells `queue` from now on what the KV cache holds.
    ///
    /// # Errors
    /// There is nothing to tell, or not in blocks of that size.
    pub(crate) fn tell_kv_events(&mut self, tokens_per_block: u32, queue: Arc<KvEventQueue>) -> Result<()> {
        let reader = Reader::start(self.library.kv_events, self.handle, tokens_per_block as usize, queue)?;
        self.kv_events = Some(reader);
        Ok(())
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
            tracing::warn!(?error, executor_id = request_id, "TensorRT-LLM did not cancel a request");
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

    /// Whether the engine can go on: the executor answers requests with errors and continues, whatever happened.
    pub(crate) fn health(&mut self) -> std::result::Result<(), NativeError> {
        // SAFETY: the handle is alive.
        self.check(unsafe { (self.library.health)(self.handle) })
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

    /// The statistics, and the iterations that were not told before.
    pub(crate) fn stats(
        &mut self,
    ) -> std::result::Result<(abi::Stats, impl Iterator<Item = Pass>), NativeError> {
        let mut stats = abi::Stats::sized();
        // SAFETY: the handle is alive and the result has a place.
        self.check(unsafe { (self.library.stats)(self.handle, &raw mut stats) })?;
        // SAFETY: the plugin's list is valid until the next call, which needs `&mut self`.
        let recent: &[abi::Iteration] = unsafe { slice(stats.recent, stats.recent_count) };
        Ok((stats, recent.iter().map(pass)))
    }

    pub(crate) fn stats_json(&mut self) -> String {
        // SAFETY: the handle is alive; the text is copied before the next call.
        text(unsafe { (self.library.stats_json)(self.handle) })
    }
}

impl Drop for Native {
    fn drop(&mut self) {
        // Its thread uses the handle.
        self.kv_events = None;
        // SAFETY: nobody uses the handle afterwards. The plugin joins its threads, so the callback's data, which
        // is dropped next, is not used any more either.
        unsafe { (self.library.destroy)(self.handle) }
    }
}

/// # Safety
/// `data` has `count` elements for as long as the result is used, or `count` is 0.
pub(crate) unsafe fn slice<'a, T>(data: *const T, count: usize) -> &'a [T] {
    if count == 0 || data.is_null() {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(data, count) }
}

/// What the executor says of an iteration.
fn pass(iteration: &abi::Iteration) -> Pass {
    let count = |count: i32| count.max(0).unsigned_abs();
    Pass {
        duration: Duration::try_from_secs_f64(iteration.milliseconds / 1e3).unwrap_or_default(),
        prefill_sequences: count(iteration.context_requests),
        prefill_tokens: count(iteration.context_tokens),
        decode_sequences: count(iteration.generation_requests),
        decode_tokens: count(iteration.generation_requests),
        ..Pass::default()
    }
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
        is_final: response.is_final != 0,
        finish_reason: response.finish_reason,
        error: match response.error_kind {
            error_kind::NONE => None,
            error_kind::ADAPTER_MISSING => Some(Failure::AdapterMissing(text(response.error))),
            error_kind::ADAPTER_CACHE_FULL => Some(Failure::AdapterCacheFull),
            _ => Some(Failure::Request(text(response.error))),
        },
        tokens: tokens.iter().map(|token| token.cast_unsigned()).collect(),
        // SAFETY: the caller's promise.
        context_logits: unsafe { logits(&response.context_logits) },
        reused_blocks: u32::try_from(response.reused_blocks).unwrap_or(0),
        // SAFETY: the caller's promise.
        handover: unsafe { handover(&response.handover) },
    }
}

/// # Safety
/// What the handover points to is valid.
unsafe fn handover(plain: &abi::Handover) -> Option<Handover> {
    if plain.state.is_null() {
        return None;
    }
    let own = |tokens: &[i32]| tokens.iter().map(|token| token.cast_unsigned()).collect();
    // SAFETY: the caller's promise.
    let (first, drafts, state) = unsafe {
        (
            slice(plain.first_tokens, plain.first_token_count),
            slice(plain.draft_tokens, plain.draft_token_count),
            slice(plain.state, plain.state_size),
        )
    };
    Some(Handover {
        request_id: plain.request_id,
        first_tokens: own(first),
        draft_tokens: own(drafts),
        state: state.into(),
    })
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

/// The document that an engine is made from: see `llgtrt_trtllm_config` in the header. The plugin refuses an option that it
/// does not know, and one that is missing.
#[derive(Serialize)]
struct Settings<'a> {
    engine_dir: &'a Path,
    vocab_size: u32,
    logits_dtype: &'a str,
    max_lora_rank: u32,
    runtime: &'a Batching,
    trtllm: &'a TrtllmConfig,
}

fn settings(setup: &TrtllmSetup, info: &EngineInfo) -> Result<CString> {
    let settings = Settings {
        engine_dir: &setup.engine_dir,
        vocab_size: info.vocab_size,
        logits_dtype: &info.logits_dtype,
        max_lora_rank: if info.lora { info.max_lora_rank } else { 0 },
        runtime: &setup.batching,
        trtllm: &setup.config,
    };
    let wrong =
        |error: &dyn std::fmt::Display| Error::configuration(format!("TensorRT-LLM's settings: {error}"));
    let json = serde_json::to_string(&settings).map_err(|error| wrong(&error))?;
    CString::new(json).map_err(|error| wrong(&error))
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

/// An optional number.
pub(crate) fn optional(value: Option<u32>) -> i32 {
    value.map_or(UNSET, |value| i32::try_from(value).unwrap_or(i32::MAX))
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
