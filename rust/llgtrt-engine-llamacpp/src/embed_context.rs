//! A llama.cpp context that computes the vectors of tokens, or scores, behind a safe interface.
//!
//! The embedder's thread makes every call. As in `context`, what llama.cpp would answer with an abort is refused
//! first: batches that are too long, sequence numbers and positions out of range. llama.cpp computes an output
//! for every token then, and for models that generate its logits as well, so a batch is kept small.

#![expect(unsafe_code, reason = "llama.cpp's C API")]

use std::ptr::NonNull;
use std::sync::Arc;

use llama_cpp_2::model::LlamaModel;
use llama_cpp_sys_2 as sys;
use llgtrt_core::{Error, Result, TokenId};

use crate::config::LlamaCppConfig;
use crate::context::{DecodeError, add_token, raw_model, thread_pool};
use crate::repack::{self, NeededTokens};
use crate::{log, model};

/// The sizes of an [`EmbedContext`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    /// Tokens of one batch.
    pub(crate) capacity: u32,
    /// Cells for the tokens of all sequences.
    pub(crate) cells: u32,
    /// Sequences at a time.
    pub(crate) sequences: u32,
    /// Compute the score of a sequence instead of vectors of tokens.
    pub(crate) rank: bool,
}

/// A context with a batch that is being built.
pub(crate) struct EmbedContext {
    raw: NonNull<sys::llama_context>,
    /// Null where the model reads a text in one go.
    memory: sys::llama_memory_t,
    pool: Option<NonNull<sys::ggml_threadpool>>,
    batch: sys::llama_batch,
    shape: Shape,
    width: usize,
    scores: usize,
    /// The context points into it.
    _weights: Arc<LlamaModel>,
}

// SAFETY: llama.cpp's context, batch and thread pool are not bound to a thread, and `EmbedContext` is not `Sync`.
unsafe impl Send for EmbedContext {}

impl EmbedContext {
    pub(crate) fn new(weights: &Arc<LlamaModel>, config: &LlamaCppConfig, shape: Shape) -> Result<Self> {
        model::backend()?;
        let (_, threads) = config.thread_counts(model::is_on_gpu(weights, config));
        // SAFETY: plain data.
        let mut params = unsafe { sys::llama_context_default_params() };
        params.n_ctx = shape.cells;
        // llama.cpp makes room for an output of every sequence, and aborts where that is more than a batch holds.
        params.n_batch = shape.capacity.max(shape.sequences);
        params.n_ubatch = params.n_batch;
        params.n_seq_max = shape.sequences;
        params.n_threads = threads as i32;
        params.n_threads_batch = threads as i32;
        params.embeddings = true;
        params.pooling_type =
            if shape.rank { sys::LLAMA_POOLING_TYPE_RANK } else { sys::LLAMA_POOLING_TYPE_NONE };
        params.kv_unified = true;
        params.no_perf = true;
        // Otherwise a GPU takes part that has no layers.
        params.op_offload = model::uses_gpu(config);

        log::take_error();
        // SAFETY: the model is alive; llama.cpp answers null on error.
        let context = NonNull::new(unsafe { sys::llama_init_from_model(raw_model(weights), params) });
        let context = context.ok_or_else(|| {
            let reason = log::take_error().unwrap_or_else(|| "out of memory".to_owned());
            Error::configuration(format!("llama.cpp cannot compute embeddings as configured: {reason}"))
        })?;
        // SAFETY: the context is alive; the batch is freed by `drop`.
        let (memory, batch) = unsafe {
            let batch = sys::llama_batch_init(shape.capacity as i32, 0, 1);
            (sys::llama_get_memory(context.as_ptr()), batch)
        };
        let pool = thread_pool(threads);
        if let Some(pool) = pool {
            // SAFETY: context and pool are alive; `drop` frees the context first.
            unsafe { sys::llama_attach_threadpool(context.as_ptr(), pool.as_ptr(), pool.as_ptr()) };
        }
        Ok(Self {
            raw: context,
            memory,
            pool,
            batch,
            shape,
            width: weights.n_embd_out().max(0) as usize,
            scores: weights.n_cls_out() as usize,
            _weights: Arc::clone(weights),
        })
    }

    /// Whether the model reads a text in one go: nothing of an earlier batch is known in a later one.
    pub(crate) fn forgets_batches(&self) -> bool {
        self.memory.is_null()
    }

    pub(crate) fn clear_batch(&mut self) {
        self.batch.n_tokens = 0;
    }

    /// Adds a token at `position` of `sequence`. Answers its place in the batch, or `None` if it does not fit.
    pub(crate) fn push(&mut self, sequence: usize, position: usize, token: TokenId) -> Option<usize> {
        let index = self.batch.n_tokens as usize;
        let Shape { capacity, cells, sequences, .. } = self.shape;
        if index >= capacity as usize || position >= cells as usize || sequence >= sequences as usize {
            return None;
        }
        // SAFETY: the batch was made for `capacity` tokens of one sequence each, and has fewer.
        unsafe { add_token(&mut self.batch, sequence, position, token, true) };
        Some(index)
    }

    /// Evaluates the batch.
    pub(crate) fn compute(&mut self) -> Result<(), DecodeError> {
        // SAFETY: the batch is filled up to `n_tokens`, within the limits the context was made with.
        let decode = || unsafe { sys::llama_decode(self.raw.as_ptr(), self.batch) };
        match repack::computing(self.pool, None, &NeededTokens::default(), 0, decode) {
            0 => Ok(()),
            1 => Err(DecodeError::NoRoom),
            -1 => Err(DecodeError::Refused),
            code => Err(DecodeError::Fatal(code)),
        }
    }

    /// The vector of the token at `index` of the batch that was evaluated last.
    pub(crate) fn vector(&mut self, index: usize) -> Option<&[f32]> {
        // SAFETY: an index without output answers null; a vector has `width` numbers without pooling, and
        // lives until the next call that takes `&mut self`.
        unsafe {
            let row = sys::llama_get_embeddings_ith(self.raw.as_ptr(), index as i32);
            (!row.is_null()).then(|| std::slice::from_raw_parts(row, self.width))
        }
    }

    /// The scores of a sequence whose last token was in the batch that was evaluated last.
    pub(crate) fn scores(&mut self, sequence: usize) -> Option<&[f32]> {
        // SAFETY: a sequence without output answers null; with pooling for ranks there are `n_cls_out` numbers,
        // which live until the next call that takes `&mut self`.
        unsafe {
            let row = sys::llama_get_embeddings_seq(self.raw.as_ptr(), sequence as i32);
            (!row.is_null()).then(|| std::slice::from_raw_parts(row, self.scores))
        }
    }

    /// Frees the cells of a sequence.
    pub(crate) fn forget(&mut self, sequence: usize) {
        assert!(sequence < self.shape.sequences as usize, "sequence out of range");
        if !self.memory.is_null() {
            // SAFETY: the memory belongs to the living context and the number is in range.
            unsafe { sys::llama_memory_seq_rm(self.memory, sequence as i32, 0, -1) };
        }
    }
}

impl Drop for EmbedContext {
    fn drop(&mut self) {
        // SAFETY: each was made by llama.cpp, is freed once, and the context goes before its pool.
        unsafe {
            sys::llama_batch_free(self.batch);
            sys::llama_free(self.raw.as_ptr());
            if let Some(pool) = self.pool {
                sys::ggml_threadpool_free(pool.as_ptr());
            }
        }
    }
}
