//! The matrix kernels of `repack/` beside ggml's own, per type of weights and number of columns.
//!
//! ```text
//! cargo run --release -p llgtrt-engine-llamacpp --example repack_bench -- [rows] [k] [rounds] [threads] [megabytes] [types...]
//! ```
//! Each round multiplies once with every kernel, in turns, because the machine may be busy with something else. A time
//! is the one that a tenth of the rounds stay below; the ratio is that of the best of ggml's kernels over ours. With `megabytes` the
//! weights are so many copies that no cache holds them, which is what a decoding model sees.

#![cfg_attr(repack, expect(unsafe_code, reason = "ggml's C API"))]

#[cfg(repack)]
fn main() {
    bench::main();
}

#[cfg(not(repack))]
fn main() {
    println!("there are no kernels for this target");
}

#[cfg(repack)]
mod bench {
    use std::ffi::CStr;
    use std::time::Instant;

    use llama_cpp_sys_2 as sys;
    // Its library holds the kernels.
    use llgtrt_engine_llamacpp as _;

    unsafe extern "C" {
        fn llgtrt_repack_buffer_type(set: i32) -> sys::ggml_backend_buffer_type_t;
    }

    const TYPES: [(&str, sys::ggml_type); 13] = [
        ("Q4_0", sys::GGML_TYPE_Q4_0),
        ("Q4_1", sys::GGML_TYPE_Q4_1),
        ("Q5_0", sys::GGML_TYPE_Q5_0),
        ("Q5_1", sys::GGML_TYPE_Q5_1),
        ("Q8_0", sys::GGML_TYPE_Q8_0),
        ("Q2_K", sys::GGML_TYPE_Q2_K),
        ("Q3_K", sys::GGML_TYPE_Q3_K),
        ("Q4_K", sys::GGML_TYPE_Q4_K),
        ("Q5_K", sys::GGML_TYPE_Q5_K),
        ("Q6_K", sys::GGML_TYPE_Q6_K),
        ("IQ4_NL", sys::GGML_TYPE_IQ4_NL),
        ("IQ4_XS", sys::GGML_TYPE_IQ4_XS),
        ("MXFP4", sys::GGML_TYPE_MXFP4),
    ];
    const COLUMNS: [usize; 6] = [1, 4, 8, 16, 32, 64];

    pub(super) fn main() {
        let arguments: Vec<String> = std::env::args().skip(1).collect();
        let (numbers, names) = arguments.split_at(arguments.len().min(5));
        let numbers: Vec<usize> = numbers.iter().map(|text| text.parse().expect("a number")).collect();
        let number = |index: usize, default: usize| numbers.get(index).copied().unwrap_or(default);
        let shape = [number(0, 2048), number(1, 2048)];
        let (rounds, threads, bytes) = (number(2, 15), number(3, 1) as i32, number(4, 0) << 20);

        // SAFETY: nothing else runs, and the answers are static objects.
        let mut kernels = unsafe {
            let ours = (0..4).map(|set| llgtrt_repack_buffer_type(set)).filter(|kind| !kind.is_null());
            let mut kernels: Vec<_> = ours.collect();
            kernels.push(sys::ggml_backend_cpu_buffer_type());
            kernels
        };
        let own = kernels.len() - 1;
        kernels.extend(ggml_repack());
        println!("{} rows, K {}, {threads} threads; times in us", shape[0], shape[1]);
        println!("{:8} {:>7}  {:16} {:>9} {:>9}  ratio", "type", "columns", "kernel", "ours", "ggml");
        let chosen = |name: &str| names.is_empty() || names.iter().any(|chosen| chosen == name);
        for (name, kind) in TYPES.into_iter().filter(|&(name, _)| chosen(name)) {
            let copies = copies(kind, shape, bytes);
            let weights: Vec<_> =
                kernels.iter().map(|&buffer| Weights::new(buffer, kind, shape, copies)).collect();
            for columns in COLUMNS {
                let times: Vec<Option<f64>> = times(&weights, columns, rounds, threads);
                let theirs = times[own..].iter().flatten().copied().fold(f64::INFINITY, f64::min);
                for (index, ours) in times[..own].iter().enumerate() {
                    let Some(ours) = ours else { continue };
                    println!(
                        "{name:8} {columns:7}  {:16} {:9.1} {:9.1}  {:5.2}",
                        // SAFETY: the name is a static text.
                        unsafe { CStr::from_ptr(sys::ggml_backend_buft_name(kernels[index])) }
                            .to_string_lossy()
                            .trim_start_matches("CPU_LLGTRT "),
                        ours * 1e6,
                        theirs * 1e6,
                        theirs / ours,
                    );
                }
            }
        }
    }

    /// The time that a tenth of the multiplications stay below: the others were interrupted, or had to share a core.
    fn fast(mut times: Vec<f64>) -> Option<f64> {
        times.sort_by(f64::total_cmp);
        times.get(times.len() / 10).copied()
    }

    /// Copies of a matrix that are as many bytes together; one at least.
    fn copies(kind: sys::ggml_type, [rows, k]: [usize; 2], bytes: usize) -> usize {
        // SAFETY: a look-up in a table.
        let row = unsafe { sys::ggml_row_size(kind, k as i64) };
        (bytes / (rows * row)).max(1)
    }

    /// ggml's own buffer type for rearranged weights.
    fn ggml_repack() -> Option<sys::ggml_backend_buffer_type_t> {
        type Extra = unsafe extern "C" fn(sys::ggml_backend_dev_t) -> *mut sys::ggml_backend_buffer_type_t;
        // SAFETY: the name is that of a function of this type, whose answer ends with a null pointer.
        unsafe {
            let registry = sys::ggml_backend_cpu_reg();
            let name = c"ggml_backend_dev_get_extra_bufts";
            let function = sys::ggml_backend_reg_get_proc_address(registry, name.as_ptr());
            if function.is_null() {
                return None;
            }
            let function: Extra = std::mem::transmute(function);
            let mut list = function(sys::ggml_backend_reg_dev_get(registry, 0));
            while !list.is_null() && !(*list).is_null() {
                if CStr::from_ptr(sys::ggml_backend_buft_name(*list)) == c"CPU_REPACK" {
                    return Some(*list);
                }
                list = list.add(1);
            }
            None
        }
    }

    /// Copies of one matrix in one buffer type; none where that does not take it. Lives until the process ends.
    struct Weights {
        matrices: Vec<*mut sys::ggml_tensor>,
        shape: [usize; 2],
    }

    impl Weights {
        fn new(
            buffer: sys::ggml_backend_buffer_type_t,
            kind: sys::ggml_type,
            shape: [usize; 2],
            copies: usize,
        ) -> Self {
            let [rows, k] = shape.map(|n| n as i64);
            // SAFETY: ggml's C API as its own examples use it; nothing is freed while it is in use.
            let matrices = unsafe {
                if !takes(buffer, kind, [rows, k]) {
                    return Self { matrices: Vec::new(), shape };
                }
                let mut state = 1_u64;
                let floats: Vec<f32> = std::iter::repeat_with(|| {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    (state >> 40) as f32 / (1 << 23) as f32 - 1.0
                })
                .take(shape[0] * shape[1])
                .collect();
                let mut quantized = vec![0_u8; sys::ggml_row_size(kind, k) * shape[0]];
                let none = std::ptr::null();
                sys::ggml_quantize_chunk(
                    kind,
                    floats.as_ptr(),
                    quantized.as_mut_ptr().cast(),
                    0,
                    rows,
                    k,
                    none,
                );
                let new = |_| {
                    let held = context(1 << 16, true);
                    let matrix = sys::ggml_new_tensor_2d(held, kind, k, rows);
                    assert!(!sys::ggml_backend_alloc_ctx_tensors_from_buft(held, buffer).is_null());
                    sys::ggml_backend_tensor_set(matrix, quantized.as_ptr().cast(), 0, quantized.len());
                    matrix
                };
                (0..copies).map(new).collect()
            };
            Self { matrices, shape }
        }
    }

    unsafe fn takes(
        buffer: sys::ggml_backend_buffer_type_t,
        kind: sys::ggml_type,
        [rows, k]: [i64; 2],
    ) -> bool {
        // SAFETY: nothing is computed; the buffer is empty.
        unsafe {
            let context = context(1 << 16, true);
            let matrix = sys::ggml_new_tensor_2d(context, kind, k, rows);
            (*matrix).buffer = sys::ggml_backend_buft_alloc_buffer(buffer, 0);
            let input = sys::ggml_new_tensor_2d(context, sys::GGML_TYPE_F32, k, 1);
            let device = sys::ggml_backend_reg_dev_get(sys::ggml_backend_cpu_reg(), 0);
            let taken = sys::ggml_backend_dev_supports_op(device, sys::ggml_mul_mat(context, matrix, input));
            sys::ggml_backend_buffer_free((*matrix).buffer);
            sys::ggml_free(context);
            taken
        }
    }

    unsafe fn context(bytes: usize, no_alloc: bool) -> *mut sys::ggml_context {
        let params = sys::ggml_init_params { mem_size: bytes, mem_buffer: std::ptr::null_mut(), no_alloc };
        // SAFETY: ggml allocates the memory itself.
        unsafe { sys::ggml_init(params) }
    }

    /// Seconds of a multiplication with `columns` columns, per buffer type; none where that does not take them.
    fn times(weights: &[Weights], columns: usize, rounds: usize, threads: i32) -> Vec<Option<f64>> {
        // SAFETY: as above; graphs and inputs live until the contexts are freed at the end.
        unsafe {
            let backend = sys::ggml_backend_cpu_init();
            sys::ggml_backend_cpu_set_n_threads(backend, threads);
            let mut contexts = Vec::new();
            let mut graph = |matrix: *mut sys::ggml_tensor, [rows, k]: [usize; 2]| {
                let context = context(4 * columns * (rows + k) + (1 << 20), false);
                contexts.push(context);
                let input = sys::ggml_new_tensor_2d(context, sys::GGML_TYPE_F32, k as i64, columns as i64);
                for index in 0..columns * k {
                    *(*input).data.cast::<f32>().add(index) = (index * 7919 % 1009) as f32 / 504.5 - 1.0;
                }
                let graph = sys::ggml_new_graph(context);
                sys::ggml_build_forward_expand(graph, sys::ggml_mul_mat(context, matrix, input));
                graph
            };
            let graphs: Vec<Vec<_>> = weights
                .iter()
                .map(|weights| weights.matrices.iter().map(|&matrix| graph(matrix, weights.shape)).collect())
                .collect();
            let mut times = vec![Vec::new(); weights.len()];
            for round in 0..=rounds {
                for copy in 0..graphs.iter().map(Vec::len).max().unwrap_or(0) {
                    for (graphs, times) in graphs.iter().zip(&mut times) {
                        let Some(&graph) = graphs.get(copy) else { continue };
                        let start = Instant::now();
                        assert_eq!(sys::ggml_backend_graph_compute(backend, graph), sys::GGML_STATUS_SUCCESS);
                        if round > 0 {
                            times.push(start.elapsed().as_secs_f64());
                        }
                    }
                }
            }
            for context in contexts {
                sys::ggml_free(context);
            }
            sys::ggml_backend_free(backend);
            times.into_iter().map(fast).collect()
        }
    }
}
