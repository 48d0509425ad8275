//! Weights rearranged for batches, where llama.cpp itself has no kernel that does, and attention: `repack/`.

#![cfg_attr(repack, expect(unsafe_code, reason = "registers with ggml"))]

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
            // Where this machine has none of the sets all stays with ggml.
            // SAFETY: once, and before the first load of a model that would read the list meanwhile.
            let _ = (0..SETS).any(|set| unsafe { !buffer_type(set).is_null() });
            // SAFETY: no model is loaded that would compute beside it.
            let _ = (0..ATTENTION_SETS).any(|set| unsafe { attention(set) });
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

/// Which logits are needed of a pass that computes so many rows of them, as [`computing`] asks: what is added is for each
/// row a bit for each token, or `None` for all tokens. Nothing is added: all of all rows.
pub(crate) type Needed<'a> = &'a mut dyn FnMut(usize, &mut Vec<Option<*const [u32]>>);

/// Makes a forward pass that computes of the logits those that `needed` says; the others are minus infinity where leaving
/// them out saves time. It is asked on this thread, in the middle of the pass: where all before the logits is computed; again
/// for each part of a pass that llama.cpp divides. Where they are not computed here it is not asked, and all of them are there.
/// What it answers has a bit for each of `tokens`, and stays as it is while `pass` runs.
pub(crate) fn computing<T>(needed: Needed<'_>, tokens: usize, pass: impl FnOnce() -> T) -> T {
    #[cfg(repack)]
    {
        use std::ffi::c_void;
        use std::panic::{AssertUnwindSafe, catch_unwind};

        unsafe extern "C" fn ask<F: FnMut(usize) -> Masks>(data: *mut c_void, rows: i64) -> Masks {
            // SAFETY: it is the closure below, which nobody else uses while the pass runs.
            let ask = unsafe { &mut *data.cast::<F>() };
            // Nothing may unwind into C++. Whoever asks for the masks after the pass meets what went wrong.
            catch_unwind(AssertUnwindSafe(|| ask(rows as usize))).unwrap_or(std::ptr::null())
        }
        fn asking<F: FnMut(usize) -> Masks>(_: &F) -> Ask {
            ask::<F>
        }

        let (mut masks, mut pointers) = (Vec::new(), Vec::new());
        let mut answer = |rows: usize| {
            masks.clear();
            needed(rows, &mut masks);
            if masks.len() != rows {
                return std::ptr::null();
            }
            let long = |mask: &*const [u32]| mask.len() >= tokens.div_ceil(32);
            pointers.clear();
            pointers.extend(
                masks.iter().map(|mask| mask.filter(long).map_or(std::ptr::null(), <*const [u32]>::cast)),
            );
            pointers.as_ptr()
        };
        let ask = asking(&answer);
        // SAFETY: the closure outlives the pass, after which it is forgotten.
        unsafe { set_needed(Some(ask), (&raw mut answer).cast()) };
        let done = pass();
        // SAFETY: as above.
        unsafe { set_needed(None, std::ptr::null_mut()) };
        done
    }
    #[cfg(not(repack))]
    {
        let _ = (needed, tokens);
        pass()
    }
}

/// A mask for each row, any of which may be null.
#[cfg(repack)]
type Masks = *const *const u32;

#[cfg(repack)]
type Ask = unsafe extern "C" fn(*mut std::ffi::c_void, i64) -> Masks;

/// Sets of instructions that there are kernels for: AMX, AVX-512 VNNI, AVX-VNNI, AVX2; on ARM i8mm, dot products.
#[cfg(repack)]
const SETS: i32 = if cfg!(target_arch = "aarch64") { 2 } else { 4 };

/// Sets of instructions that there is attention for: AVX-512 with BF16, AVX-512, AVX2; on ARM NEON.
#[cfg(repack)]
const ATTENTION_SETS: i32 = if cfg!(target_arch = "aarch64") { 1 } else { 3 };

#[cfg(repack)]
unsafe extern "C" {
    /// Adds the buffer type of a set of instructions to those of the CPU backend and answers it; null if this machine
    /// lacks the set. Not beside another call or the load of a model.
    #[link_name = "llgtrt_repack_buffer_type"]
    fn buffer_type(set: i32) -> llama_cpp_sys_2::ggml_backend_buffer_type_t;

    /// Chooses what computes attention: a set of instructions, or ggml if it is negative. False, and nothing changes, if
    /// this machine lacks the set. Not beside a computation.
    #[link_name = "llgtrt_repack_attention"]
    fn attention(set: i32) -> bool;

    /// Whom to ask which logits are needed, in graphs that this thread computes; nobody if null.
    #[link_name = "llgtrt_repack_needed"]
    fn set_needed(masks: Option<Ask>, data: *mut std::ffi::c_void);

    /// Takes ggml's buffer type for AMX from those of the CPU backend. Not beside another call or the load of a model.
    #[link_name = "llgtrt_repack_without_amx"]
    fn remove_amx();

    /// Whether products or attention have been left to ggml since the last call, in the whole process.
    #[link_name = "llgtrt_repack_left_to_ggml"]
    fn left_to_ggml() -> bool;
}

#[cfg(all(test, repack))]
mod tests;
