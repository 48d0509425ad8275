//! The llama.cpp context, its batch and its thread pool behind a safe interface.
//!
//! The engine's thread makes every call. llama.cpp asserts (and so aborts the process) on a batch that is
//! too long, on a sequence number out of range and on too many output rows: this file refuses them first.

#![expect(unsafe_code, reason = "llama.cpp's C API")]

use std::ptr::NonNull;
use std::sync::Arc;

use llama_cpp_2::model::LlamaModel;
use llama_cpp_sys_2 as sys;
use llgtrt_core::{Error, Result, TokenId};

use crate::cells::Cells;
use crate::config::{FlashAttention, KvCacheType, LlamaCppConfig, Speculation};
use crate::{log, memory, model, repack};

/// Output rows of one forward pass are memory: 64 rows of a vocabulary of 128 000 are 32 MB.
const MIN_OUTPUT_ROWS: u32 = 64;

/// Guesses of a recurrent model's next tokens at most: each takes a state more in each slot.
const MOST_STATES: u64 = 4;

/// The copy buffer is given back when a copy needs less than one part in so many.
const KEPT_RATIO: usize = 4;

/// llama.h's `LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY`, which the bindings lack: what is no cells of tokens.
const PARTIAL_ONLY: sys::llama_state_seq_flags = 1;

/// Cells that a GPU copies within its memory in the time that one takes to the host's memory and back.
const CELLS_PER_TRANSFER: usize = 256;

/// Why a forward pass did not happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DecodeError {
    /// The KV cache has no room for the batch; nothing changed.
    NoRoom,
    /// llama.cpp refused the batch; nothing changed.
    Refused,
    /// The computation failed; the context is of no further use.
    Fatal(i32),
}

impl DecodeError {
    /// What `llama_decode` answers.
    pub(crate) fn of(code: i32) -> Result<(), Self> {
        match code {
            0 => Ok(()),
            1 => Err(Self::NoRoom),
            -1 => Err(Self::Refused),
            code => Err(Self::Fatal(code)),
        }
    }

    pub(crate) fn fatal(code: i32) -> Error {
        Error::engine(format!("the forward pass failed with code {code}"))
    }
}

/// The size of the KV cache, in words.
struct KvCache {
    slots: u32,
    tokens: u32,
    kind: KvCacheType,
    bytes: u64,
}

impl std::fmt::Display for KvCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { slots, tokens, kind, bytes } = self;
        write!(f, "the KV cache of {slots} slots of {tokens} tokens in {kind:?} is {} MB", bytes >> 20)
    }
}

/// One llama.cpp context with a batch being built. Slot numbers are llama.cpp's sequence ids.
pub(crate) struct Context {
    raw: NonNull<sys::llama_context>,
    memory: sys::llama_memory_t,
    /// What it was made with.
    params: sys::llama_context_params,
    pools: Vec<NonNull<sys::ggml_threadpool>>,
    batch: sys::llama_batch,
    capacity: usize,
    outputs: usize,
    max_outputs: usize,
    slots: usize,
    vocab_size: usize,
    slot_tokens: u32,
    /// Whether a GPU takes part.
    on_gpu: bool,
    /// Whether copies of slots are made by the device that holds them.
    copies_on_device: bool,
    /// Whether such a copy is to be made before the next pass.
    copies_wait: bool,
    /// Tokens that some layers attend to at most; 0: all layers attend to all.
    window: usize,
    copy_buffer: Vec<u8>,
    /// The context points into it.
    weights: Arc<LlamaModel>,
}

// SAFETY: llama.cpp's context, batch and thread pool are not bound to a thread, and `Context` is not `Sync`.
unsafe impl Send for Context {}

impl Context {
    pub(crate) fn new(weights: &Arc<LlamaModel>, config: &LlamaCppConfig) -> Result<Self> {
        model::backend()?;
        let raw_model = raw_model(weights);
        // SAFETY: the model is alive.
        if unsafe { sys::llama_model_has_encoder(raw_model) || !sys::llama_model_has_decoder(raw_model) } {
            return Err(Error::configuration("the model is not a decoder-only language model"));
        }
        let trained = weights.n_ctx_train().max(1);
        let slot_tokens = config.max_sequence_tokens.unwrap_or(trained.min(4096));
        let slots = config.max_batch_size;
        let cells = slot_tokens.next_multiple_of(256).checked_mul(slots);
        let cells = cells.filter(|&cells| i32::try_from(cells).is_ok()).ok_or_else(|| {
            Error::configuration("max_sequence_tokens times max_batch_size is too large")
                .with_param("max_sequence_tokens")
        })?;
        let all_on_gpu = model::is_on_gpu(weights, config);
        let capacity = config.pass_tokens(all_on_gpu).min(cells);
        let max_outputs = MIN_OUTPUT_ROWS.max(2 * slots).min(capacity);
        let (threads, batch_threads) = config.thread_counts(all_on_gpu);

        // SAFETY: plain data.
        let mut params = unsafe { sys::llama_context_default_params() };
        params.n_ctx = cells;
        params.n_batch = capacity;
        params.n_ubatch = capacity;
        params.n_seq_max = slots;
        params.n_outputs_max = max_outputs;
        params.n_threads = threads as i32;
        params.n_threads_batch = batch_threads as i32;
        params.n_rs_seq = kept_states(weights, config, capacity);
        params.kv_unified = false;
        params.no_perf = true;
        let on_gpu = model::uses_gpu(config);
        // Without layers there, llama.cpp would still send it the weights with every long batch.
        params.op_offload = on_gpu;
        params.flash_attn_type = match config.flash_attention {
            FlashAttention::Auto => sys::LLAMA_FLASH_ATTN_TYPE_AUTO,
            FlashAttention::On => sys::LLAMA_FLASH_ATTN_TYPE_ENABLED,
            FlashAttention::Off => sys::LLAMA_FLASH_ATTN_TYPE_DISABLED,
        };
        params.type_k = ggml_type(config.kv_cache_type);
        params.type_v = params.type_k;
        let kv_cache = KvCache {
            slots,
            tokens: slot_tokens,
            kind: config.kv_cache_type,
            bytes: memory::kv_cache_bytes(weights, cells, params.type_k),
        };

        log::take_error();
        // SAFETY: the model is alive; llama.cpp answers null on error.
        let context = NonNull::new(unsafe { sys::llama_init_from_model(raw_model, params) });
        let context = context.ok_or_else(|| {
            let reason = log::take_error().unwrap_or_else(|| "out of memory".to_owned());
            Error::configuration(format!(
                "llama.cpp cannot run the model as configured: {reason}; {kv_cache}: lower runtime.max_batch_size \
                 (--max-batch-size) or runtime.max_seq_len (--max-seq-len), or use smaller numbers with \
                 --set llamacpp.kv_cache_type=q8_0"
            ))
        })?;
        let when = if memory::is_taken_as_used() { "taken as it is used" } else { "taken at the start" };
        tracing::debug!("{kv_cache}, {when}");
        // SAFETY: the context is alive; the batch is freed by `drop`.
        let (memory, batch) = unsafe {
            (sys::llama_get_memory(context.as_ptr()), sys::llama_batch_init(capacity as i32, 0, 1))
        };
        let mut this = Self {
            raw: context,
            memory,
            params,
            pools: Vec::new(),
            batch,
            capacity: capacity as usize,
            outputs: 0,
            max_outputs: max_outputs as usize,
            slots: slots as usize,
            vocab_size: weights.n_vocab().max(0) as usize,
            slot_tokens,
            on_gpu,
            copies_on_device: false,
            copies_wait: false,
            // SAFETY: the model is alive.
            window: unsafe { sys::llama_model_n_swa(raw_model) }.max(0) as usize,
            copy_buffer: Vec::new(),
            weights: Arc::clone(weights),
        };
        if memory.is_null() {
            return Err(Error::configuration("the model does not generate text"));
        }
        this.attach_threads(threads, batch_threads);
        if all_on_gpu {
            this.copy_on_device();
        }
        Ok(this)
    }

    /// Threads that live as long as the context; llama.cpp would start new ones for every forward pass.
    fn attach_threads(&mut self, threads: u32, batch_threads: u32) {
        let Some(single) = thread_pool(threads) else { return };
        self.pools.push(single);
        let mut batch = single;
        if batch_threads != threads {
            let Some(pool) = thread_pool(batch_threads) else { return };
            self.pools.push(pool);
            batch = pool;
        }
        // SAFETY: context and pools are alive; `drop` frees the context first.
        unsafe { sys::llama_attach_threadpool(self.raw.as_ptr(), single.as_ptr(), batch.as_ptr()) };
    }

    /// Whether tokens can be taken back: not out of the state of a recurrent model.
    pub(crate) fn can_take_back(&self) -> bool {
        let model = raw_model(&self.weights);
        // SAFETY: the model is alive.
        unsafe { !sys::llama_model_is_recurrent(model) && !sys::llama_model_is_hybrid(model) }
    }

    /// How many tokens of the latest pass can be taken back, once: all, but of a recurrent model those behind which its state is kept.
    pub(crate) fn most_guesses(&self) -> usize {
        if self.can_take_back() {
            return usize::MAX;
        }
        // SAFETY: the context is alive.
        unsafe { sys::llama_n_rs_seq(self.raw.as_ptr()) as usize }
    }

    /// Whether a token has the same logits, bit for bit, whatever else is in its forward pass. Found out by a pass
    /// over one token, after which the cache is empty.
    pub(crate) fn tokens_are_independent(&mut self) -> bool {
        let mut done = false;
        let covered = repack::covers(|| {
            self.clear_batch();
            done = self.push(0, 0, 0, true).is_some() && self.decode().is_ok();
        });
        self.clear_batch();
        self.truncate(0, 0);
        // A GPU's kernels are chosen by the size of the batch. It has loaded those for one token now, which the first answer
        // would have waited for.
        covered && done && !self.on_gpu
    }

    /// Tokens that some layers attend to at most; 0: all layers attend to all.
    pub(crate) fn window(&self) -> usize {
        self.window
    }

    /// Lets the device that holds the cells copy slots.
    pub(crate) fn copy_on_device(&mut self) {
        self.copies_on_device = self.can_take_back();
    }

    /// What the context was made with.
    pub(crate) fn params(&self) -> sys::llama_context_params {
        self.params
    }

    pub(crate) fn raw(&self) -> NonNull<sys::llama_context> {
        self.raw
    }

    pub(crate) fn weights(&self) -> &Arc<LlamaModel> {
        &self.weights
    }

    /// Positions of one slot that may be used.
    pub(crate) fn slot_tokens(&self) -> u32 {
        self.slot_tokens
    }

    /// Columns of a logits row.
    pub(crate) fn vocab_size(&self) -> usize {
        self.vocab_size
    }

    /// Tokens that fit into one batch.
    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Output rows that one batch may ask for.
    pub(crate) fn max_outputs(&self) -> usize {
        self.max_outputs
    }

    pub(crate) fn clear_batch(&mut self) {
        self.batch.n_tokens = 0;
        self.outputs = 0;
    }

    pub(crate) fn batch_len(&self) -> usize {
        self.batch.n_tokens as usize
    }

    /// Adds a token at `position` of `slot`; `output` asks for its logits. Answers its place in the batch,
    /// or `None` if it does not fit.
    pub(crate) fn push(
        &mut self,
        slot: usize,
        position: usize,
        token: TokenId,
        output: bool,
    ) -> Option<usize> {
        let index = self.batch_len();
        let outputs = self.outputs + usize::from(output);
        if index >= self.capacity || outputs > self.max_outputs || slot >= self.slots {
            return None;
        }
        // SAFETY: the batch was made for `capacity` tokens of one sequence each, and has fewer.
        unsafe { add_token(&mut self.batch, slot, position, token, output) };
        self.outputs = outputs;
        Some(index)
    }

    /// As [`Self::decode`] where not all is needed (see [`repack::computing`]).
    pub(crate) fn decode_needed(
        &mut self,
        logits: Option<repack::NeededLogits<'_>>,
        tokens: &repack::NeededTokens,
    ) -> Result<(), DecodeError> {
        // llama.cpp has the first for single tokens.
        let pool = if self.batch_len() > 1 { self.pools.last() } else { self.pools.first() };
        repack::computing(pool.copied(), logits, tokens, self.vocab_size, || self.evaluate())
    }

    /// Evaluates the batch.
    pub(crate) fn decode(&mut self) -> Result<(), DecodeError> {
        self.decode_needed(None, &repack::NeededTokens::default())
    }

    /// Evaluates the batch by threads that have been told of the pass.
    fn evaluate(&mut self) -> Result<(), DecodeError> {
        // SAFETY: the batch is filled up to `n_tokens`, within the limits the context was made with.
        let code = unsafe { sys::llama_decode(self.raw.as_ptr(), self.batch) };
        // A GPU may still compute, and whoever measures how long a pass takes would not see it.
        // SAFETY: the context is alive.
        unsafe { sys::llama_synchronize(self.raw.as_ptr()) };
        let result = DecodeError::of(code);
        self.copies_wait &= result.is_err();
        result
    }

    /// The logits of the token at `index` of the batch that was evaluated last.
    pub(crate) fn logits(&self, index: usize) -> Option<&[f32]> {
        // SAFETY: an index without output answers null; a row has `vocab_size` columns and lives until the
        // next call that takes `&mut self`. llama.cpp brings the rows into the batch's order at the first call after a
        // pass, before it hands any of them out; `Context` is not `Sync`, so no two calls are made at once.
        unsafe {
            let row = sys::llama_get_logits_ith(self.raw.as_ptr(), index as i32);
            (!row.is_null()).then(|| std::slice::from_raw_parts(row, self.vocab_size))
        }
    }

    /// The state of a recurrent model behind the last token of `slot`: what it needs to go on, beside the cells of tokens.
    pub(crate) fn save(&self, slot: usize) -> Option<Arc<Vec<u8>>> {
        assert!(slot < self.slots, "slot out of range");
        let (context, slot, flags) = (self.raw.as_ptr(), slot as i32, PARTIAL_ONLY);
        // SAFETY: the context is alive, the slot is in range, and the buffer has the length passed.
        unsafe {
            let mut state = vec![0_u8; sys::llama_state_seq_get_size_ext(context, slot, flags)];
            let size =
                sys::llama_state_seq_get_data_ext(context, state.as_mut_ptr(), state.len(), slot, flags);
            (size > 0 && size == state.len()).then(|| Arc::new(state))
        }
    }

    /// Brings `slot` back to a state that was saved. What follows the token of the state is to be taken back then. False if that failed:
    /// the slot has no state then.
    pub(crate) fn restore(&mut self, slot: usize, state: &[u8]) -> bool {
        assert!(slot < self.slots, "slot out of range");
        let (context, data) = (self.raw.as_ptr(), state.as_ptr());
        // SAFETY: the context is alive, the slot is in range, and llama.cpp checks what it reads.
        unsafe {
            sys::llama_state_seq_set_data_ext(context, data, state.len(), slot as i32, PARTIAL_ONLY) > 0
        }
    }

    /// Forgets everything of `slot` from `position` on. False if the model cannot forget a part.
    pub(crate) fn truncate(&mut self, slot: usize, position: usize) -> bool {
        assert!(slot < self.slots, "slot out of range");
        // SAFETY: the memory belongs to the living context and the slot is in range.
        unsafe { sys::llama_memory_seq_rm(self.memory, slot as i32, position as i32, -1) }
    }

    /// Leaves `slot` the first `kept` of the tokens whose cells it holds; none where the model cannot forget a
    /// part.
    pub(crate) fn keep(&mut self, slot: usize, cells: &mut Cells, kept: usize) {
        if kept >= cells.len() {
            return;
        }
        let kept = if kept > 0 && self.truncate(slot, kept) { kept } else { 0 };
        if kept == 0 {
            self.truncate(slot, 0);
        }
        cells.truncate(kept);
    }

    /// Replaces everything of slot `to` by a copy of slot `from`. False if that failed, `to` is then empty.
    pub(crate) fn copy(&mut self, from: usize, to: usize) -> bool {
        assert!(from < self.slots && to < self.slots, "slot out of range");
        let context = self.raw.as_ptr();
        // SAFETY: the memory belongs to the living context; -1 of an empty slot.
        let used = unsafe { sys::llama_memory_seq_pos_max(self.memory, from as i32) + 1 };
        let used = used.max(0) as usize;
        let on_device = self.copies_on_device && self.slot_tokens as usize <= used * CELLS_PER_TRANSFER;
        // What llama.cpp writes of a slot lacks the cells that no token behind the last one attends to, in layers with a window. They are
        // needed where the copy is cut.
        let is_cut = self.window > 0 && used > self.window && self.can_take_back();
        // What waits is not in the memory that would be read, and would overwrite what is written.
        if on_device || is_cut || self.copies_wait {
            // A copy of all cells of a slot, used or not, before the next pass. On a device the other way, through the host's memory,
            // has two transfers per layer, one after the other.
            // SAFETY: the memory belongs to the living context, the slots are in range, and all positions are copied.
            unsafe {
                sys::llama_memory_seq_rm(self.memory, to as i32, -1, -1);
                sys::llama_memory_seq_cp(self.memory, from as i32, to as i32, -1, -1);
            }
            self.copies_wait = true;
            return true;
        }
        // llama.cpp's own `seq_cp` copies a whole stream of `max_sequence_tokens` cells; this copies the
        // used ones.
        // SAFETY: the buffer has the length passed, and llama.cpp checks what it reads from it.
        let copied = unsafe {
            let size = sys::llama_state_seq_get_size(context, from as i32);
            fit(&mut self.copy_buffer, size);
            let buffer = self.copy_buffer.as_mut_ptr();
            let written = sys::llama_state_seq_get_data(context, buffer, size, from as i32);
            written > 0 && sys::llama_state_seq_set_data(context, buffer, written, to as i32) > 0
        };
        if !copied {
            self.truncate(to, 0);
        }
        copied
    }
}

/// States of a recurrent model that each slot keeps beside the last one, so that guesses can be taken back: all of them are at most half as
/// large as the weights.
fn kept_states(weights: &LlamaModel, config: &LlamaCppConfig, capacity: u32) -> u32 {
    let model = raw_model(weights);
    // SAFETY: the model is alive.
    let has_states = unsafe { sys::llama_model_is_recurrent(model) || sys::llama_model_is_hybrid(model) };
    if !has_states || config.speculation == Speculation::Off || model::uses_gpu(config) {
        return 0;
    }
    let of_all = memory::state_bytes(weights).saturating_mul(config.max_batch_size.into());
    let states = (weights.size() / 2).checked_div(of_all).unwrap_or(MOST_STATES).min(MOST_STATES);
    // llama.cpp ends the process if they do not fit in a pass with the last one.
    (states as u32).min(capacity.saturating_sub(2))
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: each was made by llama.cpp, is freed once, and the context goes before its pools.
        unsafe {
            sys::llama_batch_free(self.batch);
            sys::llama_free(self.raw.as_ptr());
            for pool in &self.pools {
                sys::ggml_threadpool_free(pool.as_ptr());
            }
        }
    }
}

/// Adds a token at `position` of `sequence` to a batch; `output` asks for its logits.
///
/// # Safety
/// The batch was made for more tokens than it has, of one sequence each.
pub(crate) unsafe fn add_token(
    batch: &mut sys::llama_batch,
    sequence: usize,
    position: usize,
    token: TokenId,
    output: bool,
) {
    let index = batch.n_tokens as usize;
    // SAFETY: by the condition above each list has a place at `index`.
    unsafe {
        *batch.token.add(index) = token as sys::llama_token;
        *batch.pos.add(index) = position as sys::llama_pos;
        *batch.n_seq_id.add(index) = 1;
        **batch.seq_id.add(index) = sequence as sys::llama_seq_id;
        *batch.logits.add(index) = i8::from(output);
    }
    batch.n_tokens += 1;
}

/// Threads for forward passes; `None` if there cannot be any, and llama.cpp starts its own.
pub(crate) fn thread_pool(count: u32) -> Option<NonNull<sys::ggml_threadpool>> {
    // SAFETY: zero is a valid value of every field, and `init` sets them all.
    let params = unsafe {
        let mut params: sys::ggml_threadpool_params = std::mem::zeroed();
        sys::ggml_threadpool_params_init(&raw mut params, count as i32);
        params
    };
    // Between two forward passes the threads sleep: the cores belong to the mask pool then.
    let mut params = sys::ggml_threadpool_params { poll: 0, ..params };
    // SAFETY: the parameters are copied.
    NonNull::new(unsafe { sys::ggml_threadpool_new(&raw mut params) })
}

/// The pointer inside llama-cpp-2's model, which that crate does not hand out.
pub(crate) fn raw_model(model: &LlamaModel) -> *mut sys::llama_model {
    const { assert!(size_of::<LlamaModel>() == size_of::<*mut sys::llama_model>()) };
    // SAFETY: `LlamaModel` is `repr(transparent)` over a non-null pointer to `llama_model`.
    unsafe { *std::ptr::from_ref(model).cast::<*mut sys::llama_model>() }
}

/// Makes room for `size` bytes. A buffer that is many times larger, after one long sequence, is given back.
fn fit(buffer: &mut Vec<u8>, size: usize) {
    if size < buffer.len() / KEPT_RATIO {
        *buffer = Vec::new();
    }
    if buffer.len() < size {
        buffer.resize(size, 0);
    }
}

fn ggml_type(kind: KvCacheType) -> sys::ggml_type {
    match kind {
        KvCacheType::F32 => sys::GGML_TYPE_F32,
        KvCacheType::F16 => sys::GGML_TYPE_F16,
        KvCacheType::Bf16 => sys::GGML_TYPE_BF16,
        KvCacheType::Q8_0 => sys::GGML_TYPE_Q8_0,
        KvCacheType::Q5_1 => sys::GGML_TYPE_Q5_1,
        KvCacheType::Q5_0 => sys::GGML_TYPE_Q5_0,
        KvCacheType::Q4_1 => sys::GGML_TYPE_Q4_1,
        KvCacheType::Q4_0 => sys::GGML_TYPE_Q4_0,
        KvCacheType::Iq4Nl => sys::GGML_TYPE_IQ4_NL,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_copy_buffer_does_not_keep_the_largest_for_ever() {
        let mut buffer = Vec::new();
        fit(&mut buffer, 1 << 20);
        fit(&mut buffer, 1 << 19);
        assert_eq!(buffer.len(), 1 << 20);
        fit(&mut buffer, 1 << 10);
        assert!(buffer.len() == 1 << 10 && buffer.capacity() < 1 << 12);
    }
}
