//! Products of rearranged weights.

use std::ffi::CStr;
use std::ptr::NonNull;

use llama_cpp_sys_2 as sys;

use super::{Pool, WEIGHTS, first_of_each, kinds, numbers};
use crate::repack::{NeededTokens, computing};

fn plain() -> sys::ggml_backend_buffer_type_t {
    // SAFETY: answers a static object.
    unsafe { sys::ggml_backend_cpu_buffer_type() }
}

/// Elements of K in a block of a type of weights.
pub(super) fn block(kind: sys::ggml_type) -> usize {
    // SAFETY: a table look-up.
    unsafe { sys::ggml_blck_size(kind) as usize }
}

pub(super) fn new_context(no_alloc: bool) -> *mut sys::ggml_context {
    let params = sys::ggml_init_params { mem_size: 1 << 24, mem_buffer: std::ptr::null_mut(), no_alloc };
    // SAFETY: it allocates its own memory.
    NonNull::new(unsafe { sys::ggml_init(params) }).expect("memory").as_ptr()
}

/// Weights in a buffer.
pub(super) struct Matrix {
    context: *mut sys::ggml_context,
    memory: sys::ggml_backend_buffer_t,
    pub(super) raw: *mut sys::ggml_tensor,
}

impl Matrix {
    /// `rows x k` weights of `kind` in a buffer of type `buffer`.
    pub(super) fn new(
        buffer: sys::ggml_backend_buffer_type_t,
        kind: sys::ggml_type,
        [rows, k]: [usize; 2],
        weights: &[f32],
    ) -> Self {
        Self::of_experts(buffer, kind, [1, rows, k], weights)
    }

    /// As many such matrices as there are experts.
    pub(super) fn of_experts(
        buffer: sys::ggml_backend_buffer_type_t,
        kind: sys::ggml_type,
        [experts, rows, k]: [usize; 3],
        weights: &[f32],
    ) -> Self {
        let (from, context) = (weights.as_ptr(), new_context(true));
        // SAFETY: as in `product_named`.
        unsafe {
            let (experts, rows, k) = (experts as i64, rows as i64, k as i64);
            let raw = sys::ggml_new_tensor_3d(context, kind, k, rows, experts);
            let memory = sys::ggml_backend_alloc_ctx_tensors_from_buft(context, buffer);
            assert!(!memory.is_null());
            let mut quantized = vec![0u8; sys::ggml_nbytes(raw)];
            let to = quantized.as_mut_ptr().cast();
            sys::ggml_quantize_chunk(kind, from, to, 0, experts * rows, k, std::ptr::null());
            sys::ggml_backend_tensor_set(raw, quantized.as_ptr().cast(), 0, quantized.len());
            Self { context, memory, raw }
        }
    }
}

impl Drop for Matrix {
    fn drop(&mut self) {
        // SAFETY: nothing is computed with it any more.
        unsafe {
            sys::ggml_backend_buffer_free(self.memory);
            sys::ggml_free(self.context);
        }
    }
}

/// `rows x k` weights of `kind` in a buffer of type `buffer`, times `columns` of `k` numbers each.
pub(super) fn product(
    buffer: sys::ggml_backend_buffer_type_t,
    kind: sys::ggml_type,
    [rows, k, columns]: [usize; 3],
    weights: &[f32],
    activations: &[f32],
    threads: u32,
) -> Vec<f32> {
    product_named(c"product", buffer, kind, [rows, k, columns], weights, activations, &Pool::new(threads))
}

/// The same, of which llama.cpp would have the result called `name`.
fn product_named(
    name: &CStr,
    buffer: sys::ggml_backend_buffer_type_t,
    kind: sys::ggml_type,
    [rows, k, columns]: [usize; 3],
    weights: &[f32],
    activations: &[f32],
    pool: &Pool,
) -> Vec<f32> {
    assert_eq!((weights.len(), activations.len()), (rows * k, columns * k));
    let held = Matrix::new(buffer, kind, [rows, k], weights);
    // SAFETY: ggml's C API as its own examples use it; every object lives until the end of the block, and each
    // pointer is to as many bytes as the call beside it says.
    unsafe {
        let graph_context = new_context(false);
        let matrix = held.raw;
        let (rows, k) = (rows as i64, k as i64);

        let input = sys::ggml_new_tensor_2d(graph_context, sys::GGML_TYPE_F32, k, columns as i64);
        std::ptr::copy_nonoverlapping(activations.as_ptr(), (*input).data.cast(), activations.len());
        let output = sys::ggml_mul_mat(graph_context, matrix, input);
        sys::ggml_set_name(output, name.as_ptr());
        std::slice::from_raw_parts_mut((*output).data.cast(), rows as usize * columns).fill(f32::NAN);
        let graph = sys::ggml_new_graph(graph_context);
        sys::ggml_build_forward_expand(graph, output);
        pool.compute(graph);
        let result = std::slice::from_raw_parts((*output).data.cast(), rows as usize * columns).to_vec();
        sys::ggml_free(graph_context);
        result
    }
}

/// Whether a buffer type takes `rows x k` weights of a type for a multiplication.
fn takes(buffer: sys::ggml_backend_buffer_type_t, kind: sys::ggml_type, [rows, k]: [i64; 2]) -> bool {
    // SAFETY: as in `product`; the buffer is empty, and nothing is computed.
    unsafe {
        let params =
            sys::ggml_init_params { mem_size: 1 << 16, mem_buffer: std::ptr::null_mut(), no_alloc: true };
        let context = sys::ggml_init(params);
        let matrix = sys::ggml_new_tensor_2d(context, kind, k, rows);
        let memory = sys::ggml_backend_buft_alloc_buffer(buffer, 0);
        (*matrix).buffer = memory;
        let input = sys::ggml_new_tensor_2d(context, sys::GGML_TYPE_F32, k, 1);
        let device = sys::ggml_backend_reg_dev_get(sys::ggml_backend_cpu_reg(), 0);
        let taken = sys::ggml_backend_dev_supports_op(device, sys::ggml_mul_mat(context, matrix, input));
        sys::ggml_backend_buffer_free(memory);
        sys::ggml_free(context);
        taken
    }
}

#[test]
fn products_are_those_of_ggml() {
    for ours in kinds() {
        for &kind in &WEIGHTS {
            let unit = block(kind);
            for (columns, threads) in
                [(1, 1), (2, 2), (3, 1), (5, 2), (8, 2), (9, 2), (31, 3), (40, 5), (64, 2)]
            {
                // One thread quantizes up to 16 of 40 blocks of 32 elements at a time; some have fewer blocks than there are threads.
                // Of some the last rows fill no group, and of one not even the first ones.
                for [rows, blocks] in [[16, 1], [48, 3], [208, 2], [16, 40], [3, 2], [41, 3], [79, 1]] {
                    let k = blocks * unit;
                    let shape = [rows, k, columns];
                    let weights = numbers(rows * k, 1);
                    let activations = numbers(columns * k, 2);
                    let right = product(plain(), kind, shape, &weights, &activations, 1);
                    let found = product(ours.buffer(), kind, shape, &weights, &activations, threads);
                    for (right, found) in right.iter().zip(&found) {
                        // Only the order of additions differs.
                        assert!(
                            (right - found).abs() <= 2e-6 * (k as f32),
                            "{} {kind:?} {shape:?}: {found}, not {right}",
                            ours.set
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn products_are_as_near_to_those_of_floats_as_ggmls() {
    let [rows, k, columns] = [32, 768, 6];
    // Of different sizes along K, as those of a model are.
    let scale = |i: usize| [1.0, 0.1, 3.0][i / 32 % 3];
    let some = |count, seed| {
        let numbers = numbers(count, seed).into_iter().enumerate();
        numbers.map(|(i, number)| number * scale(i)).collect::<Vec<f32>>()
    };
    let (weights, activations) = (some(rows * k, 5), some(columns * k, 6));
    let dot = |row: usize, column: usize| {
        let pairs = weights[row * k..][..k].iter().zip(&activations[column * k..][..k]);
        pairs.map(|(w, y)| f64::from(*w) * f64::from(*y)).sum::<f64>()
    };
    let error = |found: &[f32]| {
        let squares =
            found.iter().enumerate().map(|(i, found)| (f64::from(*found) - dot(i % rows, i / rows)).powi(2));
        squares.sum::<f64>().sqrt()
    };
    for kind in kinds() {
        for &types in &WEIGHTS {
            let shape = [rows, k, columns];
            let theirs = error(&product(plain(), types, shape, &weights, &activations, 1));
            let ours = error(&product(kind.buffer(), types, shape, &weights, &activations, 1));
            assert!(ours <= 1.0001 * theirs, "{} {types:?}: {ours}, ggml {theirs}", kind.set);
        }
    }
}

/// Sums of integers become as large as they can, and odd: one that is rounded on the way shows.
#[test]
fn products_of_the_largest_numbers_are_the_same_in_any_company() {
    const COLUMNS: usize = 37;
    for kind in kinds() {
        for &types in &WEIGHTS {
            let (rows, k) = (32, 2 * block(types));
            let weights: Vec<f32> = (0..rows * k).map(|i| if i / k % 2 == 0 { 1.0 } else { -1.0 }).collect();
            // They are quantized to 127 and a little less, by turns that differ from column to column.
            let activations: Vec<f32> = (0..COLUMNS * k)
                .map(|i| if i % k % (3 + i / k) == 1 { 126.0 / 127.0 } else { 1.0 })
                .collect();
            let together = product(kind.buffer(), types, [rows, k, COLUMNS], &weights, &activations, 1);
            for (column, (found, activations)) in together.chunks(rows).zip(activations.chunks(k)).enumerate()
            {
                let alone = product(kind.buffer(), types, [rows, k, 1], &weights, activations, 1);
                assert_eq!(alone, found, "{} {types:?} {column}", kind.set);
                for (row, &found) in found.iter().enumerate() {
                    let right = activations.iter().sum::<f32>() * weights[row * k];
                    assert!(
                        (found - right).abs() < 0.07 * k as f32,
                        "{} {types:?} {row}: {found}, {right}",
                        kind.set
                    );
                }
            }
        }
    }
}

#[test]
fn a_column_does_not_depend_on_its_neighbours() {
    for kind in kinds() {
        for &types in &WEIGHTS {
            // So long that a wide tile is done in several steps and a narrow one at once.
            for (rows, k) in [(96, 3 * block(types)), (16, 4096), (43, 2 * block(types))] {
                let weights = numbers(rows * k, 3);
                let activations = numbers(97 * k, 4);
                for columns in [13, 37, 97] {
                    let shape = [rows, k, columns];
                    let together =
                        product(kind.buffer(), types, shape, &weights, &activations[..columns * k], 2);
                    for column in (0..columns).step_by(columns / 6).chain([columns - 1]) {
                        let activations = &activations[column * k..][..k];
                        let alone = product(kind.buffer(), types, [rows, k, 1], &weights, activations, 1);
                        let found = &together[column * rows..(column + 1) * rows];
                        assert_eq!(alone, found, "{} {types:?} {shape:?} {column}", kind.set);
                    }
                }
            }
        }
    }
}

#[test]
fn products_that_share_activations_are_those_of_each_alone() {
    const COLUMNS: usize = 21;
    for ours in kinds() {
        for (&one, &other) in WEIGHTS.iter().zip(WEIGHTS.iter().cycle().skip(1)) {
            let (rows, k) = (64, 3 * block(one).max(block(other)));
            let weights: Vec<_> = [(one, 11), (one, 12), (other, 13)]
                .map(|(kind, seed)| (kind, numbers(rows * k, seed)))
                .to_vec();
            let matrices: Vec<_> = weights
                .iter()
                .map(|(kind, weights)| Matrix::new(ours.buffer(), *kind, [rows, k], weights))
                .collect();
            // Which matrix, times which activations: by turns the same ones and others, and both forms of them; at the end
            // those that are first in the next graph.
            let products = [(0, 0), (1, 0), (2, 0), (2, 1), (0, 1), (0, 0), (1, 0)];
            for threads in [1, 3] {
                let pool = Pool::new(threads);
                // SAFETY: as in `product_named`.
                unsafe {
                    let context = new_context(false);
                    let inputs = [(); 2].map(|()| {
                        sys::ggml_new_tensor_2d(context, sys::GGML_TYPE_F32, k as i64, COLUMNS as i64)
                    });
                    let graph = sys::ggml_new_graph(context);
                    let outputs = products.map(|(matrix, input): (usize, usize)| {
                        let output = sys::ggml_mul_mat(context, matrices[matrix].raw, inputs[input]);
                        sys::ggml_build_forward_expand(graph, output);
                        output
                    });
                    // As of a pass that llama.cpp divides: the same graph for other numbers.
                    computing(Some(pool.raw), None, &NeededTokens::default(), rows, || {
                        for seed in [14, 15] {
                            let activations = [0, 1].map(|input| numbers(COLUMNS * k, seed + 10 * input));
                            for (input, from) in inputs.iter().zip(&activations) {
                                std::ptr::copy_nonoverlapping(
                                    from.as_ptr(),
                                    (**input).data.cast(),
                                    from.len(),
                                );
                            }
                            pool.compute(graph);
                            for (output, (matrix, input)) in outputs.iter().zip(products) {
                                let (kind, weights) = &weights[matrix];
                                let shape = [rows, k, COLUMNS];
                                let right =
                                    product(ours.buffer(), *kind, shape, weights, &activations[input], 1);
                                let found =
                                    std::slice::from_raw_parts((**output).data.cast::<f32>(), rows * COLUMNS);
                                assert_eq!(found, right, "{} {one:?} {other:?} {matrix} {input}", ours.set);
                            }
                        }
                    });
                    sys::ggml_free(context);
                }
            }
        }
    }
}

const LOGITS: &CStr = c"result_output";

/// A mask of so many tokens that allows those.
fn mask_of(tokens: usize, allowed: impl IntoIterator<Item = usize>) -> Vec<u32> {
    let mut mask = vec![0_u32; tokens.div_ceil(32)];
    for token in allowed {
        mask[token / 32] |= 1 << (token % 32);
    }
    mask
}

#[test]
fn logits_that_are_not_needed_are_left_out_and_the_others_stay_the_same_bits() {
    for kind in kinds() {
        for &types in &WEIGHTS {
            let (rows, k) = (1021, 2 * block(types));
            let (weights, activations) = (numbers(rows * k, 5), numbers(2 * k, 6));
            let column = &activations[..k];
            let all = product(kind.buffer(), types, [rows, k, 1], &weights, column, 1);
            let allowed = [0, 7, 8, 15, 16, 500, 511, 512, 1020];
            let mask = mask_of(rows, allowed);
            for threads in [1, 2] {
                let pool = Pool::new(threads);
                let with = |name, columns: usize, words: usize| {
                    let mut asked = 0;
                    let found = computing(
                        Some(pool.raw),
                        Some(&mut |rows, masks| {
                            asked += 1;
                            if rows == 1 {
                                masks.push(Some(std::ptr::from_ref(&mask[..words])));
                            }
                        }),
                        &NeededTokens::default(),
                        rows,
                        || {
                            let activations = &activations[..columns * k];
                            let shape = [rows, k, columns];
                            product_named(name, kind.buffer(), types, shape, &weights, activations, &pool)
                        },
                    );
                    (found, asked)
                };
                let (some, asked) = with(LOGITS, 1, mask.len());
                assert_eq!(asked, 1);
                for (token, (&found, &right)) in some.iter().zip(&all).enumerate() {
                    // Neighbours of what is needed may be there.
                    let is_left_out = found == f32::NEG_INFINITY && !allowed.contains(&token);
                    assert!(
                        found.to_bits() == right.to_bits() || is_left_out,
                        "{} {types:?} {token}",
                        kind.set
                    );
                }
                let left_out = some.iter().filter(|logit| **logit == f32::NEG_INFINITY).count();
                assert!(left_out >= rows - 16 * allowed.len(), "{} {types:?} {left_out}", kind.set);
                // Nobody is asked of another product; a mask that is too short says nothing, and neither does no answer.
                assert_eq!(with(c"other", 1, mask.len()), (all.clone(), 0));
                let (two, asked) = with(LOGITS, 2, mask.len());
                assert_eq!((&two[..rows], asked), (&all[..], 1));
                assert_eq!(with(LOGITS, 1, mask.len() - 1), (all.clone(), 1));
            }
        }
    }
}

#[test]
fn tokens_that_are_not_needed_are_left_out_and_the_others_stay_the_same_bits() {
    for kind in kinds() {
        for &types in &WEIGHTS {
            let (rows, k) = (96, 3 * block(types));
            let weights = numbers(rows * k, 9);
            // Of three slots, and of one more than two tiles hold.
            for (width, used) in [(4, vec![1, 0, 4]), (3, vec![2; 19]), (5, vec![0, 0])] {
                let columns = width * used.len();
                let activations = numbers(columns * k, 10);
                let is_needed = |column: usize| column % width < used[column / width];
                let tokens = first_of_each(width, &used);
                for threads in [1, 3] {
                    let pool = Pool::new(threads);
                    let compute = |columns: usize| {
                        let activations = &activations[..columns * k];
                        computing(Some(pool.raw), None, &tokens, rows, || {
                            let shape = [rows, k, columns];
                            product_named(
                                c"product",
                                kind.buffer(),
                                types,
                                shape,
                                &weights,
                                activations,
                                &pool,
                            )
                        })
                    };
                    let found = compute(columns);
                    for (column, found) in found.chunks(rows).enumerate() {
                        if !is_needed(column) {
                            assert!(
                                found.iter().all(|value| value.is_nan()),
                                "{} {types:?} {column}",
                                kind.set
                            );
                            continue;
                        }
                        let activations = &activations[column * k..][..k];
                        let right = product(kind.buffer(), types, [rows, k, 1], &weights, activations, 1);
                        assert_eq!(found, right, "{} {types:?} {used:?} {column}", kind.set);
                    }
                    // Columns of another number are not the pass's tokens.
                    let shape = [rows, k, columns - 1];
                    let all = &activations[..(columns - 1) * k];
                    let all = product(kind.buffer(), types, shape, &weights, all, 1);
                    assert_eq!(compute(columns - 1), all, "{} {types:?}", kind.set);
                }
            }
        }
    }
}

#[test]
fn of_several_rows_of_logits_those_with_few_that_are_needed_are_done_apart() {
    for kind in kinds() {
        for &types in &WEIGHTS {
            for columns in [2, 9, 40] {
                let (rows, k) = (1021, 2 * block(types));
                let (weights, activations) = (numbers(rows * k, 7), numbers(columns * k, 8));
                let shape = [rows, k, columns];
                let all = product(kind.buffer(), types, shape, &weights, &activations, 1);
                // By turns few tokens, none, nearly all of them, and no mask.
                let masks: Vec<Option<Vec<u32>>> = (0..columns)
                    .map(|column| match column % 5 {
                        0 | 1 => Some(mask_of(rows, [column, 300 + column, 1020 - column])),
                        2 => Some(mask_of(rows, [])),
                        3 => Some(mask_of(rows, (0..rows).filter(|token| token % 97 != column))),
                        _ => None,
                    })
                    .collect();
                for threads in [1, 3] {
                    let pool = Pool::new(threads);
                    let found = computing(
                        Some(pool.raw),
                        Some(&mut |_, out| {
                            out.extend(masks.iter().map(|m| m.as_deref().map(std::ptr::from_ref)));
                        }),
                        &NeededTokens::default(),
                        rows,
                        || product_named(LOGITS, kind.buffer(), types, shape, &weights, &activations, &pool),
                    );
                    for (column, mask) in masks.iter().enumerate() {
                        let (right, found) = (&all[column * rows..][..rows], &found[column * rows..][..rows]);
                        let is_needed = |token: usize| {
                            mask.as_ref().is_none_or(|mask| mask[token / 32] >> (token % 32) & 1 == 1)
                        };
                        let mut left_out = 0;
                        for token in 0..rows {
                            let same = found[token].to_bits() == right[token].to_bits();
                            left_out += usize::from(!same);
                            assert!(
                                same || (found[token] == f32::NEG_INFINITY && !is_needed(token)),
                                "{} {types:?} {column} {token}: {}, not {}",
                                kind.set,
                                found[token],
                                right[token]
                            );
                        }
                        let least = [rows - 3 * 16, rows - 3 * 16, rows, 0, 0][column % 5];
                        assert!(left_out >= least, "{} {types:?} {column}: {left_out}", kind.set);
                    }
                }
            }
        }
    }
}

#[test]
fn activations_without_a_value_are_no_trouble() {
    for kind in kinds() {
        for &types in &WEIGHTS {
            let (rows, k) = (16, 2 * block(types));
            let weights = numbers(rows * k, 7);
            let nothing = product(kind.buffer(), types, [rows, k, 1], &weights, &vec![0.0; k], 1);
            assert_eq!(nothing, vec![0.0; rows], "{} {types:?}", kind.set);
            // So small that 127 over the largest is infinite.
            let tiny = product(kind.buffer(), types, [rows, k, 1], &weights, &vec![1e-41; k], 1);
            assert!(tiny.iter().all(|value| value.abs() < 1e-30), "{} {types:?}: {tiny:?}", kind.set);
        }
    }
}

#[test]
fn other_types_stay_with_ggml() {
    for kind in kinds() {
        for &types in &WEIGHTS {
            let unit = block(types) as i64;
            for rows in [48, 42, 1] {
                assert!(takes(kind.buffer(), types, [rows, 3 * unit]), "{} {types:?} {rows}", kind.set);
            }
        }
        assert!(!takes(kind.buffer(), sys::GGML_TYPE_F16, [48, 256]));
        assert!(!takes(kind.buffer(), sys::GGML_TYPE_IQ3_S, [48, 256]));
    }
}
