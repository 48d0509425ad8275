//! The structs of `plugin/include/llgtrt_trtllm.h`, field by field. Plain data; nothing here runs.
//! Must be changed together with the header, and [`ABI_VERSION`] with both.

use std::ffi::{c_char, c_void};

/// `LLGTRT_TRTLLM_ABI_VERSION`.
pub(crate) const ABI_VERSION: u32 = 6;

/// `LLGTRT_UNSET`: an optional number that is not given.
pub(crate) const UNSET: i32 = i32::MIN;

/// `LLGTRT_BF16` and its neighbours.
pub(crate) mod dtype {
    pub(crate) const BOOL: i32 = 0;
    pub(crate) const INT32: i32 = 3;
    pub(crate) const INT64: i32 = 4;
    pub(crate) const BF16: i32 = 5;
    pub(crate) const FP8: i32 = 6;
    pub(crate) const FP16: i32 = 7;
    pub(crate) const FP32: i32 = 8;
}

/// `llgtrt_trtllm_status`.
pub(crate) mod status {
    pub(crate) const OK: i32 = 0;
    pub(crate) const FATAL: i32 = 3;
}

/// `llgtrt_trtllm_error_kind`.
pub(crate) mod error_kind {
    pub(crate) const NONE: i32 = 0;
    pub(crate) const ADAPTER_MISSING: i32 = 2;
    pub(crate) const ADAPTER_CACHE_FULL: i32 = 3;
}

/// A struct of the header: its size first, and nothing given where all bytes are zero.
///
/// # Safety
/// The type is `repr(C)`, its first field is `struct_size: usize`, and all zero bytes are a value of it.
pub(crate) unsafe trait Plain: Sized {
    /// Nothing but the size.
    fn sized() -> Self {
        let mut value = std::mem::MaybeUninit::<Self>::zeroed();
        // SAFETY: by the trait's contract zero is a value, and the first field is a usize.
        unsafe {
            value.as_mut_ptr().cast::<usize>().write(size_of::<Self>());
            value.assume_init()
        }
    }
}

macro_rules! plain {
    ($(#[$meta:meta])* struct $name:ident { $($field:ident: $type:ty),+ $(,)? }) => {
        $(#[$meta])*
        #[repr(C)]
        #[derive(Clone, Copy)]
        pub(crate) struct $name {
            pub(crate) struct_size: usize,
            $(pub(crate) $field: $type),+
        }

        // SAFETY: repr(C) with the size first; the fields are numbers, raw pointers, optional functions and
        // other such structs, for all of which zero is a value.
        unsafe impl Plain for $name {}
    };
}

plain! {
    /// A row-major tensor in host memory; no data: no tensor.
    struct Tensor { data: *const c_void, dtype: i32, rank: i32, shape: [i64; 4] }
}

plain! {
    /// Token lists one after the other.
    struct Lists { ids: *const i32, ends: *const usize, count: usize }
}

plain! {
    struct Row {
        request_id: u64,
        client_id: u64,
        tokens: *const i32,
        token_count: usize,
        beam_width: i32,
        columns: i32,
    }
}

plain! {
    struct RowPlan {
        apply_mask: i32,
        temperature: f32,
        min_p: f32,
        report_removed_mass: i32,
        keep_logits: i32,
    }
}

/// `llgtrt_trtllm_fill`.
pub(crate) type Fill =
    unsafe extern "C" fn(*mut c_void, *const Row, usize, *mut u32, usize, *mut RowPlan) -> i32;

plain! {
    struct Callbacks { user: *mut c_void, fill: Option<Fill> }
}

plain! {
    struct Config { settings: *const c_char, callbacks: Callbacks }
}

plain! {
    struct Sampling {
        beam_width: i32,
        top_k: i32,
        top_p: f32,
        top_p_min: f32,
        top_p_decay: f32,
        top_p_reset_id: i32,
        temperature: f32,
        min_p: f32,
        repetition_penalty: f32,
        presence_penalty: f32,
        frequency_penalty: f32,
        no_repeat_ngram_size: i32,
        has_seed: i32,
        seed: u64,
    }
}

/// `llgtrt_trtllm_bias`: so small and so many that it has no size of its own.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bias {
    pub(crate) token: i32,
    pub(crate) bias: f32,
}

plain! {
    struct Retention { token_start: i32, token_end: i32, priority: i32, duration_ms: i64 }
}

/// `llgtrt_trtllm_phase`.
pub(crate) mod phase {
    pub(crate) const WHOLE: i32 = 0;
    pub(crate) const CONTEXT_ONLY: i32 = 1;
    pub(crate) const GENERATION_ONLY: i32 = 2;
}

plain! {
    /// No state: no handover.
    struct Handover {
        request_id: u64,
        first_tokens: *const i32,
        first_token_count: usize,
        draft_tokens: *const i32,
        draft_token_count: usize,
        state: *const u8,
        state_size: usize,
    }
}

plain! {
    struct Request {
        client_id: u64,
        tokens: *const i32,
        token_count: usize,
        max_tokens: i32,
        end_id: i32,
        pad_id: i32,
        sampling: Sampling,
        stop_words: Lists,
        bad_words: Lists,
        biases: *const Bias,
        bias_count: usize,
        post_process: i32,
        return_context_logits: i32,
        priority: f32,
        allotted_time_ms: i64,
        has_cache_salt: i32,
        cache_salt: u64,
        has_lora: i32,
        lora_task: u64,
        lora_weights: Tensor,
        lora_config: Tensor,
        prompt_table: Tensor,
        prompt_extra_ids: *const u64,
        prompt_extra_id_count: usize,
        position_ids: *const i32,
        position_id_count: usize,
        mrope_cos_sin: Tensor,
        mrope_position_deltas: i32,
        encoder_tokens: *const i32,
        encoder_token_count: usize,
        encoder_features: Tensor,
        encoder_output_length: i32,
        cross_attention_mask: Tensor,
        skip_cross_attention: Tensor,
        retention: *const Retention,
        retention_count: usize,
        decode_retention_priority: i32,
        decode_retention_ms: i64,
        lookahead_window: i32,
        lookahead_ngram: i32,
        lookahead_verification_set: i32,
        phase: i32,
        handover: Handover,
    }
}

plain! {
    struct Response {
        request_id: u64,
        client_id: u64,
        is_final: i32,
        finish_reason: i32,
        error_kind: i32,
        error: *const c_char,
        tokens: Lists,
        context_logits: Tensor,
        reused_blocks: i32,
        handover: Handover,
    }
}

plain! {
    struct RowResult { removed_mass: f32, logits: Tensor }
}

/// `llgtrt_trtllm_kv_event_kind`.
pub(crate) mod kv_event {
    pub(crate) const CREATED: i32 = 1;
    pub(crate) const STORED: i32 = 2;
    pub(crate) const REMOVED: i32 = 3;
}

plain! {
    struct KvEvent {
        number: u64,
        kind: i32,
        window: i32,
        has_parent: i32,
        parent: u64,
        hashes: *const u64,
        count: usize,
        tokens: Lists,
        plain: *const u8,
    }
}

plain! {
    struct Iteration {
        milliseconds: f64,
        context_requests: i32,
        context_tokens: i32,
        generation_requests: i32,
    }
}

plain! {
    struct Stats {
        iterations: u64,
        active_requests: i32,
        queued_requests: i32,
        paused_requests: i32,
        max_active_requests: i32,
        scheduled_requests: i32,
        context_requests: i32,
        generation_requests: i32,
        context_tokens: i32,
        micro_batch_id: i32,
        kv_blocks_max: i32,
        kv_blocks_used: i32,
        kv_blocks_free: i32,
        kv_tokens_per_block: i32,
        kv_blocks_reused: u64,
        kv_blocks_missed: u64,
        gpu_bytes: u64,
        cpu_bytes: u64,
        pinned_bytes: u64,
        iteration_ms: f64,
        recent: *const Iteration,
        recent_count: usize,
    }
}
