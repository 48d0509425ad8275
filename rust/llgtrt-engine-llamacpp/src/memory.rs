//! Memory of the KV cache: how much it is, and that it is taken as it is used (`memory/lazy.cpp`).

#![expect(unsafe_code, reason = "ggml's buffers")]

use llama_cpp_2::llama_backend::LlamaBackend;
use llama_cpp_2::model::LlamaModel;
use llama_cpp_sys_2 as sys;

use crate::model;

/// Lets the CPU backend clear memory without writing to it, for the rest of the process. On Linux; elsewhere it writes.
pub(crate) fn clear_lazily() {
    #[cfg(lazy_memory)]
    {
        use std::sync::Once;
        static ONCE: Once = Once::new();
        // SAFETY: once, and before the first model and context of this process allocate.
        ONCE.call_once(|| unsafe { llgtrt_clear_lazily() });
    }
}

/// Whether the cache takes memory only where it was written: not on a GPU, whose backends clear it themselves.
pub(crate) fn is_taken_as_used() -> bool {
    cfg!(lazy_memory) && !model::backend().is_ok_and(LlamaBackend::supports_gpu_offload)
}

#[cfg(lazy_memory)]
unsafe extern "C" {
    /// Replaces how buffers of the CPU backend are cleared. Not beside a call that allocates one.
    fn llgtrt_clear_lazily();
}

/// Bytes of `cells` tokens in a KV cache of a number format, by what the model file says of its layers and heads; some
/// architectures keep less.
pub(crate) fn kv_cache_bytes(weights: &LlamaModel, cells: u32, kind: sys::ggml_type) -> u64 {
    let said = |key: &str| number(weights, &format!("attention.{key}"));
    let head = u64::try_from(weights.n_embd()).unwrap_or(0) / u64::from(weights.n_head().max(1));
    let heads = u64::from(weights.n_head_kv());
    // SAFETY: look-ups in a table.
    let (block, size) =
        unsafe { (sys::ggml_blck_size(kind).max(1) as u64, sys::ggml_type_size(kind) as u64) };
    let row = |length: Option<u64>| (heads * length.unwrap_or(head)).div_ceil(block) * size;
    u64::from(cells) * u64::from(weights.n_layer()) * (row(said("key_length")) + row(said("value_length")))
}

/// Bytes of the state that a recurrent model keeps for a sequence, by what the model file says: at most, where not all layers have one.
pub(crate) fn state_bytes(weights: &LlamaModel) -> u64 {
    let said = |key: &str| number(weights, &format!("ssm.{key}")).unwrap_or(0);
    let (inner, depth) = (said("inner_size"), said("state_size"));
    let channels = inner + 2 * said("group_count") * depth;
    let of_layer = inner * depth + channels * said("conv_kernel").saturating_sub(1);
    u64::from(weights.n_layer()) * of_layer * size_of::<f32>() as u64
}

/// What a model file says of its own architecture.
fn number(weights: &LlamaModel, key: &str) -> Option<u64> {
    let architecture = weights.meta_val_str("general.architecture").ok()?;
    weights.meta_val_str(&format!("{architecture}.{key}")).ok()?.parse().ok()
}

#[cfg(all(test, lazy_memory))]
mod tests {
    use super::*;

    #[test]
    fn cleared_memory_holds_what_it_was_cleared_to() {
        clear_lazily();
        // Less than is given back, and a buffer whose ends share pages with others.
        for size in [1 << 12, (5 << 20) + 77] {
            for value in [0, 7] {
                // SAFETY: the buffer has `size` bytes and is freed once, after their last use.
                unsafe {
                    let buffer =
                        sys::ggml_backend_buft_alloc_buffer(sys::ggml_backend_cpu_buffer_type(), size);
                    let begin = sys::ggml_backend_buffer_get_base(buffer).cast::<u8>();
                    let bytes = std::slice::from_raw_parts_mut(begin, size);
                    for dirt in [1, 2] {
                        bytes.fill(dirt);
                        sys::ggml_backend_buffer_clear(buffer, value);
                        assert!(bytes.iter().all(|&byte| byte == value), "{size} bytes of {value}");
                    }
                    sys::ggml_backend_buffer_free(buffer);
                }
            }
        }
    }
}
