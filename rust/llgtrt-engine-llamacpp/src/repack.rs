//! Weights rearranged for batches, where llama.cpp itself has no kernel that does: `repack/`.

#![expect(unsafe_code, reason = "registers with ggml")]

/// Lets models that are loaded from now on hold their weights so, for the rest of the process.
pub(crate) fn enable() {
    #[cfg(repack)]
    {
        // SAFETY: registers on the first call and is thread-safe; the result is static.
        let _ = unsafe { buffer_type() };
    }
}

#[cfg(repack)]
unsafe extern "C" {
    /// The buffer type; null where the CPU that this was compiled for has no instructions to do better with.
    #[link_name = "llgtrt_repack_buffer_type"]
    fn buffer_type() -> llama_cpp_sys_2::ggml_backend_buffer_type_t;
}

#[cfg(all(test, repack))]
mod tests {
    use std::ptr::NonNull;

    use llama_cpp_sys_2 as sys;

    use super::buffer_type;

    /// The types that are rearranged; bytes only where dot products of bytes do not saturate.
    fn kinds() -> Vec<sys::ggml_type> {
        let mut kinds = vec![sys::GGML_TYPE_Q4_1, sys::GGML_TYPE_Q5_0, sys::GGML_TYPE_Q5_1];
        if cfg!(any(target_feature = "avx512vnni", target_feature = "avxvnni")) {
            kinds.push(sys::GGML_TYPE_Q8_0);
        }
        kinds
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

    /// `rows x k` weights of `kind` in a buffer of type `buffer`, times `columns` of `k` numbers each.
    fn product(
        buffer: sys::ggml_backend_buffer_type_t,
        kind: sys::ggml_type,
        [rows, k, columns]: [usize; 3],
        weights: &[f32],
        activations: &[f32],
        threads: i32,
    ) -> Vec<f32> {
        assert_eq!((weights.len(), activations.len()), (rows * k, columns * k));
        // SAFETY: ggml's C API as its own examples use it; every object lives until the end of the block, and each
        // pointer is to as many bytes as the call beside it says.
        unsafe {
            let context = |no_alloc| {
                let params =
                    sys::ggml_init_params { mem_size: 1 << 24, mem_buffer: std::ptr::null_mut(), no_alloc };
                NonNull::new(sys::ggml_init(params)).expect("memory").as_ptr()
            };
            let (held, graph_context) = (context(true), context(false));
            let matrix = sys::ggml_new_tensor_2d(held, kind, k as i64, rows as i64);
            let memory = sys::ggml_backend_alloc_ctx_tensors_from_buft(held, buffer);
            assert!(!memory.is_null());
            let mut quantized = vec![0u8; sys::ggml_nbytes(matrix)];
            let (rows, k) = (rows as i64, k as i64);
            sys::ggml_quantize_chunk(
                kind,
                weights.as_ptr(),
                quantized.as_mut_ptr().cast(),
                0,
                rows,
                k,
                std::ptr::null(),
            );
            sys::ggml_backend_tensor_set(matrix, quantized.as_ptr().cast(), 0, quantized.len());

            let input = sys::ggml_new_tensor_2d(graph_context, sys::GGML_TYPE_F32, k, columns as i64);
            std::ptr::copy_nonoverlapping(activations.as_ptr(), (*input).data.cast(), activations.len());
            let output = sys::ggml_mul_mat(graph_context, matrix, input);
            let graph = sys::ggml_new_graph(graph_context);
            sys::ggml_build_forward_expand(graph, output);
            let backend = sys::ggml_backend_cpu_init();
            sys::ggml_backend_cpu_set_n_threads(backend, threads);
            assert_eq!(sys::ggml_backend_graph_compute(backend, graph), sys::GGML_STATUS_SUCCESS);
            let result = std::slice::from_raw_parts((*output).data.cast(), rows as usize * columns).to_vec();

            sys::ggml_backend_free(backend);
            sys::ggml_backend_buffer_free(memory);
            sys::ggml_free(graph_context);
            sys::ggml_free(held);
            result
        }
    }

    #[test]
    fn products_are_those_of_ggml() {
        // SAFETY: as in `enable`; the other returns a static object.
        let (ours, theirs) = unsafe { (buffer_type(), sys::ggml_backend_cpu_buffer_type()) };
        if ours.is_null() {
            return;
        }
        for kind in kinds() {
            for (columns, threads) in [(1, 1), (2, 2), (3, 1), (5, 2), (8, 2), (9, 2), (31, 3), (64, 2)] {
                for [rows, k] in [[16, 32], [48, 576], [208, 96]] {
                    let shape = [rows, k, columns];
                    let weights = numbers(rows * k, 1);
                    let activations = numbers(columns * k, 2);
                    let right = product(theirs, kind, shape, &weights, &activations, 1);
                    let found = product(ours, kind, shape, &weights, &activations, threads);
                    for (right, found) in right.iter().zip(&found) {
                        // Only the order of additions differs.
                        assert!(
                            (right - found).abs() <= 2e-6 * (k as f32),
                            "{kind:?} {shape:?}: {found}, not {right}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn a_column_does_not_depend_on_its_neighbours() {
        // SAFETY: as in `enable`.
        let ours = unsafe { buffer_type() };
        if ours.is_null() {
            return;
        }
        let (rows, k) = (96, 576);
        for kind in kinds() {
            let weights = numbers(rows * k, 3);
            let activations = numbers(13 * k, 4);
            let together = product(ours, kind, [rows, k, 13], &weights, &activations, 2);
            for (column, activations) in activations.chunks(k).enumerate() {
                let alone = product(ours, kind, [rows, k, 1], &weights, activations, 1);
                assert_eq!(alone, together[column * rows..(column + 1) * rows], "{kind:?} {column}");
            }
        }
    }
}
