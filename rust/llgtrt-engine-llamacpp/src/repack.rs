//! Weights rearranged for batches, where llama.cpp itself has no kernel that does, attention, and norms: `repack/`.

#![cfg_attr(repack, expect(unsafe_code, reason = "registers with ggml"))]

use std::ptr::NonNull;

use llama_cpp_sys_2 as sys;

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
/// and norms of all models.
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

/// Whether all products and all attention of the forward pass that `pass` makes are computed here, and what it stores in the
/// cache can be left out: a token then has the same logits, bit for bit, alone and in any batch. False if another model of the process computes meanwhile and
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

/// Which logits are needed of a pass that computes so many rows of them: what is added is for each row a bit for each token, or
/// `None` for all tokens. Nothing is added: all of all rows.
pub(crate) type NeededLogits<'a> = &'a mut dyn FnMut(usize, &mut Vec<Option<*const [u32]>>);

/// The tokens of a pass that are needed, where llama.cpp wants as many of each of some slots: of each the first ones.
#[derive(Debug, Default)]
pub(crate) struct NeededTokens {
    /// Tokens that each slot has in the pass.
    width: usize,
    /// How many of them are needed, of each slot.
    used: Vec<i32>,
    /// The places of those among all tokens of the pass.
    places: Vec<i32>,
}

impl NeededTokens {
    /// Begins with another pass, of slots with `width` tokens each. 0: all tokens are needed.
    pub(crate) fn clear(&mut self, width: usize) {
        self.width = width;
        self.used.clear();
        self.places.clear();
    }

    /// Of the next slot the first `used` tokens are needed.
    pub(crate) fn add(&mut self, used: usize) {
        let start = self.used.len() * self.width;
        let used = used.min(self.width);
        self.used.push(used as i32);
        self.places.extend((start..start + used).map(|place| place as i32));
    }

    /// Whether some are not needed.
    fn are_some(&self) -> bool {
        self.places.len() < self.width * self.used.len()
    }
}

/// Makes a forward pass of which not all is needed, by the threads of `pool`.
///
/// Of `logits` those are computed that it says; the others are minus infinity where leaving them out saves time. It is asked on
/// this thread, in the middle of the pass: where all before the logits is computed; again for each part of a pass that
/// llama.cpp divides. Where they are not computed here it is not asked, and all of them are there. What it answers has a bit
/// for each token of `vocabulary`, and stays as it is while `pass` runs.
///
/// Of tokens that are not needed nothing is computed here, where `pass` is over as many tokens as `tokens` tells and llama.cpp does
/// not divide it; their cells then hold what they held before.
pub(crate) fn computing<T>(
    pool: Option<NonNull<sys::ggml_threadpool>>,
    logits: Option<NeededLogits<'_>>,
    tokens: &NeededTokens,
    vocabulary: usize,
    pass: impl FnOnce() -> T,
) -> T {
    let Some(pool) = pool else { return pass() };
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
        let has_logits = logits.is_some();
        let (mut logits, mut masks, mut pointers) = (logits, Vec::new(), Vec::new());
        let mut answer = |rows: usize| {
            masks.clear();
            if let Some(logits) = &mut logits {
                logits(rows, &mut masks);
            }
            if masks.len() != rows {
                return std::ptr::null();
            }
            let long = |mask: &*const [u32]| mask.len() >= vocabulary.div_ceil(32);
            pointers.clear();
            pointers.extend(
                masks.iter().map(|mask| mask.filter(long).map_or(std::ptr::null(), <*const [u32]>::cast)),
            );
            pointers.as_ptr()
        };
        let ask = has_logits.then(|| asking(&answer));
        let streams = if tokens.are_some() { tokens.used.len() } else { 0 };
        let needed = Needed {
            masks: ask,
            data: (&raw mut answer).cast(),
            streams: streams as i64,
            width: tokens.width as i64,
            used: tokens.used.as_ptr(),
            tokens: tokens.places.as_ptr(),
            count: tokens.places.len() as i64,
            in_parts: false,
        };
        told(pool, &needed, pass)
    }
    #[cfg(not(repack))]
    {
        let _ = (pool, logits, tokens, vocabulary);
        pass()
    }
}

/// Makes a forward pass that llama.cpp does not divide, but plans and computes part by part, by the threads of `pool`. What a part
/// has found out holds for the next.
pub(crate) fn computing_in_parts<T>(
    pool: Option<NonNull<sys::ggml_threadpool>>,
    pass: impl FnOnce() -> T,
) -> T {
    #[cfg(repack)]
    if let Some(pool) = pool {
        use std::ptr;

        let needed = Needed {
            masks: None,
            data: ptr::null_mut(),
            streams: 0,
            width: 0,
            used: ptr::null(),
            tokens: ptr::null(),
            count: 0,
            in_parts: true,
        };
        return told(pool, &needed, pass);
    }
    pass()
}

/// Makes a pass by threads that have been told what is needed of it, of what stays until it ends. Where there is no room all is computed.
#[cfg(repack)]
fn told<T>(pool: NonNull<sys::ggml_threadpool>, needed: &Needed, pass: impl FnOnce() -> T) -> T {
    struct Told(NonNull<sys::ggml_threadpool>);
    impl Drop for Told {
        fn drop(&mut self) {
            // SAFETY: the pass has ended.
            unsafe { set_needed(self.0.as_ptr(), std::ptr::null()) };
        }
    }

    // SAFETY: what `needed` points to stays until the pass has ended, after which it is forgotten.
    unsafe { set_needed(pool.as_ptr(), needed) };
    let _told = Told(pool);
    pass()
}

/// A mask for each row, any of which may be null.
#[cfg(repack)]
type Masks = *const *const u32;

#[cfg(repack)]
type Ask = unsafe extern "C" fn(*mut std::ffi::c_void, i64) -> Masks;

/// As in `repack/pass.h`.
#[cfg(repack)]
#[repr(C)]
struct Needed {
    masks: Option<Ask>,
    data: *mut std::ffi::c_void,
    streams: i64,
    width: i64,
    used: *const i32,
    tokens: *const i32,
    count: i64,
    in_parts: bool,
}

/// Sets of instructions that there are kernels for: AMX, AVX-512 VNNI, AVX-VNNI, AVX2; on ARM i8mm, dot products.
#[cfg(repack)]
const SETS: i32 = if cfg!(target_arch = "aarch64") { 2 } else { 4 };

/// Sets of instructions that there is attention for, and norms: AMX, AVX-512 with BF16, AVX-512, AVX2; on ARM NEON.
#[cfg(repack)]
const ATTENTION_SETS: i32 = if cfg!(target_arch = "aarch64") { 1 } else { 4 };

#[cfg(repack)]
unsafe extern "C" {
    /// Adds the buffer type of a set of instructions to those of the CPU backend and answers it; null if this machine
    /// lacks the set. Not beside another call or the load of a model.
    #[link_name = "llgtrt_repack_buffer_type"]
    fn buffer_type(set: i32) -> sys::ggml_backend_buffer_type_t;

    /// Chooses what computes attention and norms: a set of instructions, or ggml if it is negative. False, and nothing changes, if
    /// this machine lacks the set. Not beside a computation.
    #[link_name = "llgtrt_repack_attention"]
    fn attention(set: i32) -> bool;

    /// What is needed of the passes that the threads of a pool compute; all if it is null. False if there is no room for it.
    #[link_name = "llgtrt_repack_needed"]
    fn set_needed(pool: *const sys::ggml_threadpool, needed: *const Needed) -> bool;

    /// Takes ggml's buffer type for AMX from those of the CPU backend. Not beside another call or the load of a model.
    #[link_name = "llgtrt_repack_without_amx"]
    fn remove_amx();

    /// Whether products or attention have been left to ggml since the last call, in the whole process.
    #[link_name = "llgtrt_repack_left_to_ggml"]
    fn left_to_ggml() -> bool;
}

#[cfg(all(test, repack))]
mod tests;
