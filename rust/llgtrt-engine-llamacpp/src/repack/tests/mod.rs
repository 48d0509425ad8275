//! The kernels beside those of ggml.

mod attention;
mod experts;
mod gates;
mod heads;
mod products;
mod recurrence;
mod rows;

#[cfg(target_arch = "aarch64")]
use std::arch::is_aarch64_feature_detected;
use std::ffi::CStr;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use llama_cpp_sys_2 as sys;

use super::{ATTENTION_SETS, NeededTokens, SETS, attention, buffer_type, without_amx};
use crate::context::thread_pool;

/// A buffer type of this machine.
struct Kind {
    set: i32,
    buffer: usize,
}

impl Kind {
    fn buffer(&self) -> sys::ggml_backend_buffer_type_t {
        self.buffer as sys::ggml_backend_buffer_type_t
    }
}

/// The types of weights that there are kernels for.
const WEIGHTS: [sys::ggml_type; 13] = [
    sys::GGML_TYPE_Q4_0,
    sys::GGML_TYPE_Q4_1,
    sys::GGML_TYPE_Q5_0,
    sys::GGML_TYPE_Q5_1,
    sys::GGML_TYPE_Q2_K,
    sys::GGML_TYPE_Q3_K,
    sys::GGML_TYPE_Q4_K,
    sys::GGML_TYPE_Q5_K,
    sys::GGML_TYPE_Q6_K,
    sys::GGML_TYPE_Q8_0,
    sys::GGML_TYPE_IQ4_NL,
    sys::GGML_TYPE_IQ4_XS,
    sys::GGML_TYPE_MXFP4,
];

fn kinds() -> &'static [Kind] {
    static KINDS: OnceLock<Vec<Kind>> = OnceLock::new();
    KINDS.get_or_init(|| {
        // SAFETY: once; a multiplication that runs beside it would be one of these tests, which all begin here.
        let buffers = (0..SETS).map(|set| (set, unsafe { buffer_type(set) } as usize));
        buffers.filter(|&(_, buffer)| buffer != 0).map(|(set, buffer)| Kind { set, buffer }).collect()
    })
}

#[test]
fn the_sets_are_those_of_this_machine() {
    let found: Vec<i32> = kinds().iter().map(|kind| kind.set).collect();
    #[cfg(target_arch = "aarch64")]
    let expected = [is_aarch64_feature_detected!("i8mm"), is_aarch64_feature_detected!("dotprod")];
    // For AMX the system has to agree.
    #[cfg(target_arch = "x86_64")]
    let expected = [
        found.contains(&0),
        is_x86_feature_detected!("avx512vnni"),
        is_x86_feature_detected!("avxvnni"),
        is_x86_feature_detected!("avx2"),
    ];
    let expected: Vec<i32> =
        (0..).zip(expected).filter_map(|(set, is_there)| is_there.then_some(set)).collect();
    assert_eq!(found, expected);
}

/// ggml's buffer types beside the plain one, as a model that is loaded sees them.
fn offered() -> Vec<String> {
    type List = unsafe extern "C" fn(sys::ggml_backend_dev_t) -> *mut sys::ggml_backend_buffer_type_t;
    // SAFETY: the name is that of a function of this type, whose answer ends with a null pointer.
    unsafe {
        let registry = sys::ggml_backend_cpu_reg();
        let name = c"ggml_backend_dev_get_extra_bufts".as_ptr();
        let list = sys::ggml_backend_reg_get_proc_address(registry, name);
        let list: List = std::mem::transmute::<*mut std::ffi::c_void, List>(list);
        let mut list = list(sys::ggml_backend_reg_dev_get(registry, 0));
        let mut names = Vec::new();
        while !(*list).is_null() {
            names.push(CStr::from_ptr(sys::ggml_backend_buft_name(*list)).to_string_lossy().into_owned());
            list = list.add(1);
        }
        names
    }
}

#[test]
fn models_are_not_offered_ggml_s_kernels_for_amx() {
    kinds();
    without_amx();
    let offered = offered();
    assert!(offered.iter().any(|name| name == "CPU_REPACK"), "{offered:?}");
    assert!(offered.iter().all(|name| name != "AMX"), "{offered:?}");
}

/// Whoever holds it decides what computes attention and operations on each token in this process.
fn choice() -> MutexGuard<'static, ()> {
    static CHOICE: Mutex<()> = Mutex::new(());
    kinds();
    CHOICE.lock().unwrap_or_else(PoisonError::into_inner)
}

const GGML: i32 = -1;

/// Runs `check` with every set of instructions that this machine has for attention and operations on each token.
fn for_each_set(check: impl Fn(i32)) {
    let _choice = choice();
    // SAFETY: nothing is computed beside it: see `choice`.
    for set in (0..ATTENTION_SETS).filter(|set| unsafe { attention(*set) }) {
        check(set);
    }
    // SAFETY: as above.
    unsafe { attention(GGML) };
}

/// Threads that compute a graph.
struct Pool {
    threads: i32,
    raw: NonNull<sys::ggml_threadpool>,
}

impl Pool {
    fn new(threads: u32) -> Self {
        Self { threads: threads as i32, raw: thread_pool(threads).expect("threads") }
    }

    fn compute(&self, graph: *mut sys::ggml_cgraph) {
        // SAFETY: the pool is alive, and the backend goes before it.
        unsafe {
            let backend = sys::ggml_backend_cpu_init();
            sys::ggml_backend_cpu_set_n_threads(backend, self.threads);
            sys::ggml_backend_cpu_set_threadpool(backend, self.raw.as_ptr());
            assert_eq!(sys::ggml_backend_graph_compute(backend, graph), sys::GGML_STATUS_SUCCESS);
            sys::ggml_backend_free(backend);
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: nothing is computed by it any more.
        unsafe { sys::ggml_threadpool_free(self.raw.as_ptr()) };
    }
}

/// Of slots with `width` tokens each the first `used` are needed.
fn first_of_each(width: usize, used: &[usize]) -> NeededTokens {
    let mut tokens = NeededTokens::default();
    tokens.clear(width);
    for &used in used {
        tokens.add(used);
    }
    tokens
}

/// Numbers in -1..1 that look random and are the same every time.
fn numbers(count: usize, mut state: u64) -> Vec<f32> {
    std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    })
    .take(count)
    .collect()
}
