//! Weights rearranged for batches, where llama.cpp itself has no kernel that does, and attention: `repack/`.

#![expect(unsafe_code, reason = "registers with ggml")]

/// Keeps ggml's kernels for AMX from models that are loaded from now on, for the rest of the process: some compilers
/// make code of them that ends the process.
pub(crate) fn without_amx() {
    // A compiler too old for `repack/` knows no AMX.
    #[cfg(repack)]
    {
        use std::sync::Once;
        static ONCE: Once = Once::new();
        // SAFETY: once, and before the first load of a model that would read the list meanwhile.
        ONCE.call_once(|| unsafe { remove_amx() });
    }
}

/// Lets models that are loaded from now on hold their weights so, for the rest of the process, and computes the attention
/// of all models.
pub(crate) fn enable() {
    #[cfg(repack)]
    {
        use std::sync::Once;
        static ONCE: Once = Once::new();
        ONCE.call_once(|| {
            // SAFETY: once, and before the first load of a model that would read the list meanwhile.
            let add = |set: &i32| unsafe { !buffer_type(*set).is_null() };
            if let Some(set) = (0..SETS).find(add) {
                // SAFETY: no model is loaded that would compute beside it.
                unsafe { attention(set) };
            }
        });
    }
}

/// Whether all products and all attention of the forward pass that `pass` makes are computed here: a token then has the
/// same logits, bit for bit, alone and in any batch. False if another model of the process computes meanwhile and
/// leaves something to ggml.
pub(crate) fn covers(pass: impl FnOnce()) -> bool {
    #[cfg(repack)]
    {
        // SAFETY: reads and writes a flag, and reads the list of buffer types, which `enable` has left as it is.
        let left = || unsafe { left_to_ggml() };
        left();
        pass();
        !left()
    }
    #[cfg(not(repack))]
    {
        pass();
        false
    }
}

/// Sets of instructions that there are kernels for: AMX, AVX-512 VNNI, AVX-VNNI, AVX2.
#[cfg(repack)]
const SETS: i32 = 4;

#[cfg(repack)]
unsafe extern "C" {
    /// Adds the buffer type of a set of instructions to those of the CPU backend and answers it; null if this machine
    /// lacks the set. Not beside another call or the load of a model.
    #[link_name = "llgtrt_repack_buffer_type"]
    fn buffer_type(set: i32) -> llama_cpp_sys_2::ggml_backend_buffer_type_t;

    /// Chooses what computes attention: a set that has a buffer type, or ggml if it is negative. Not beside a
    /// computation.
    #[link_name = "llgtrt_repack_attention"]
    fn attention(set: i32);

    /// Takes ggml's buffer type for AMX from those of the CPU backend. Not beside another call or the load of a model.
    #[link_name = "llgtrt_repack_without_amx"]
    fn remove_amx();

    /// Whether products or attention have been left to ggml since the last call, in the whole process.
    #[link_name = "llgtrt_repack_left_to_ggml"]
    fn left_to_ggml() -> bool;
}

#[cfg(all(test, repack))]
mod tests;
