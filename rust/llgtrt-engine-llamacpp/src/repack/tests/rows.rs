//! Operations on each token by itself.

use std::ptr::NonNull;

use llama_cpp_sys_2 as sys;

use super::{GGML, Pool, choice, first_of_each, for_each_set, numbers};
use crate::repack::{NeededTokens, attention, computing};

const EPSILON: f32 = 1e-5;
const HEAD: usize = 64;
/// Of the cache that rows are written to.
const CELLS: usize = 100;
/// Of weights: no multiple of what is multiplied at a time.
const ROWS: usize = 21;

/// One operation of a layer; all but the last have so many elements for each token.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Operation {
    Norm,
    /// As llama.cpp has it: ggml would compute both at once.
    NormAndScale,
    Sum,
    Scale,
    /// By two rows in turns, which is left to ggml.
    ScaleInTurns,
    Gate,
    /// Of two halves of one tensor.
    GateOfHalves,
    Rotation {
        mode: i32,
    },
    Store,
    /// With weights of a type that nobody rearranges.
    Product {
        weights: sys::ggml_type,
    },
    /// Each of a token's heads with a number.
    WeighHeads,
    /// A token with a number.
    Weigh,
}

const OPERATIONS: [Operation; 15] = [
    Operation::Norm,
    Operation::NormAndScale,
    Operation::Sum,
    Operation::Scale,
    Operation::ScaleInTurns,
    Operation::Gate,
    Operation::GateOfHalves,
    Operation::Rotation { mode: 0 },
    Operation::Rotation { mode: sys::LLAMA_ROPE_TYPE_NEOX },
    Operation::Store,
    Operation::Product { weights: sys::GGML_TYPE_F32 },
    Operation::Product { weights: sys::GGML_TYPE_F16 },
    Operation::Product { weights: sys::GGML_TYPE_BF16 },
    Operation::WeighHeads,
    Operation::Weigh,
];

/// How heads are rotated.
#[derive(Clone, Copy, Debug)]
struct Angles {
    mode: i32,
    base: f32,
    /// Of the elements of a head.
    turned: usize,
    /// Whether each pair's angle has a factor.
    has_factors: bool,
}

const ANGLES: Angles = Angles { mode: 0, base: 10_000.0, turned: HEAD, has_factors: false };

/// Rotates `heads` at `positions`.
///
/// # Safety
///
/// As of ggml's C API.
unsafe fn rotation(
    context: *mut sys::ggml_context,
    heads: *mut sys::ggml_tensor,
    positions: *mut sys::ggml_tensor,
    angles: Angles,
) -> *mut sys::ggml_tensor {
    // SAFETY: as the caller promises; the factors are as many as there are pairs.
    unsafe {
        let mut factors = std::ptr::null_mut();
        if angles.has_factors {
            factors = sys::ggml_new_tensor_1d(context, sys::GGML_TYPE_F32, (angles.turned / 2) as i64);
            for pair in 0..angles.turned / 2 {
                *(*factors).data.cast::<f32>().add(pair) = 1.0 + pair as f32 / 7.0;
            }
        }
        let turned = angles.turned as i32;
        let (base, mode) = (angles.base, angles.mode);
        sys::ggml_rope_ext(
            context, heads, positions, factors, turned, mode, 4096, base, 1.0, 0.0, 1.0, 32.0, 1.0,
        )
    }
}

/// What an operation makes of tokens of `depth` elements, by `threads` threads, as bytes of each token. What nothing is written
/// to holds ones. What a token is does not depend on how many there are.
fn compute(
    operation: Operation,
    depth: usize,
    tokens: usize,
    threads: u32,
    needed: &NeededTokens,
) -> Vec<Vec<u8>> {
    // SAFETY: ggml's C API as its own examples use it; every object lives until the end of the block, and each
    // pointer is to as many elements as the tensor beside it has.
    unsafe {
        let params =
            sys::ggml_init_params { mem_size: 1 << 26, mem_buffer: std::ptr::null_mut(), no_alloc: false };
        let context = NonNull::new(sys::ggml_init(params)).expect("memory").as_ptr();
        let floats = |elements: usize, rows: usize, seed| {
            let tensor = sys::ggml_new_tensor_2d(context, sys::GGML_TYPE_F32, elements as i64, rows as i64);
            let values = numbers(elements * rows, seed);
            std::ptr::copy_nonoverlapping(values.as_ptr(), (*tensor).data.cast(), values.len());
            tensor
        };
        // Rows that lie apart, as the parts of one product do.
        let wide = floats(depth + 3, tokens, 1);
        let first = sys::ggml_view_2d(context, wide, depth as i64, tokens as i64, (*wide).nb[1], 0);
        let (second, scales) = (floats(depth, tokens, 2), floats(depth, 1, 3));
        let row = |tensor: *mut sys::ggml_tensor| (*tensor).nb[1];
        let heads = || {
            let (heads, size) = ((depth / HEAD) as i64, HEAD * 4);
            sys::ggml_view_3d(context, wide, HEAD as i64, heads, tokens as i64, size, (*wide).nb[1], 0)
        };
        let (output, size) = match operation {
            Operation::Norm => {
                let output = sys::ggml_rms_norm(context, first, EPSILON);
                (output, row(output))
            }
            Operation::NormAndScale => {
                let norm = sys::ggml_rms_norm(context, first, EPSILON);
                let output = sys::ggml_mul(context, norm, scales);
                (output, row(output))
            }
            Operation::Sum => {
                let output = sys::ggml_add(context, first, second);
                (output, row(output))
            }
            Operation::Scale => {
                let output = sys::ggml_mul(context, first, scales);
                (output, row(output))
            }
            Operation::ScaleInTurns => {
                let output = sys::ggml_mul(context, first, floats(depth, 2, 3));
                (output, row(output))
            }
            Operation::Gate => {
                let output = sys::ggml_swiglu_split(context, second, floats(depth, tokens, 4));
                (output, row(output))
            }
            Operation::GateOfHalves => {
                let output = sys::ggml_swiglu(context, floats(2 * depth, tokens, 4));
                (output, row(output))
            }
            Operation::Rotation { mode } => {
                let positions = sys::ggml_new_tensor_1d(context, sys::GGML_TYPE_I32, tokens as i64);
                for token in 0..tokens {
                    *(*positions).data.cast::<i32>().add(token) = (token * 37 % 1000) as i32;
                }
                let output = rotation(context, heads(), positions, Angles { mode, ..ANGLES });
                (output, (*output).nb[2])
            }
            Operation::Store => {
                let cache = sys::ggml_new_tensor_2d(context, sys::GGML_TYPE_F16, depth as i64, CELLS as i64);
                let places = sys::ggml_new_tensor_1d(context, sys::GGML_TYPE_I64, tokens as i64);
                for token in 0..tokens {
                    *(*places).data.cast::<i64>().add(token) = ((token * 7 + 3) % CELLS) as i64;
                }
                (sys::ggml_set_rows(context, cache, first, places), row(cache))
            }
            Operation::Product { weights: kind } => {
                let (values, all) = (numbers(depth * ROWS, 3), ROWS as i64);
                let weights = sys::ggml_new_tensor_2d(context, kind, depth as i64, all);
                let (from, to) = (values.as_ptr(), (*weights).data);
                sys::ggml_quantize_chunk(kind, from, to, 0, all, depth as i64, std::ptr::null());
                let output = sys::ggml_mul_mat(context, weights, first);
                (output, row(output))
            }
            Operation::Weigh => {
                let output = sys::ggml_mul(context, first, floats(1, tokens, 3));
                (output, row(output))
            }
            Operation::WeighHeads => {
                let by = floats(depth / HEAD, tokens, 3);
                let by = sys::ggml_reshape_3d(context, by, 1, (depth / HEAD) as i64, tokens as i64);
                let output = sys::ggml_mul(context, heads(), by);
                (output, (*output).nb[2])
            }
        };
        std::ptr::write_bytes((*output).data.cast::<u8>(), u8::MAX, sys::ggml_nbytes(output));
        let graph = sys::ggml_new_graph(context);
        sys::ggml_build_forward_expand(graph, output);
        let pool = Pool::new(threads);
        computing(Some(pool.raw), None, needed, 0, || pool.compute(graph));
        let all = std::slice::from_raw_parts((*output).data.cast::<u8>(), sys::ggml_nbytes(output));
        let result = (0..tokens)
            .map(|token| if operation == Operation::Store { (token * 7 + 3) % CELLS } else { token })
            .map(|place| all[place * size..][..size].to_vec())
            .collect();
        sys::ggml_free(context);
        result
    }
}

fn all() -> NeededTokens {
    NeededTokens::default()
}

#[test]
fn a_norm_is_that_of_the_definition_in_any_company() {
    for_each_set(|set| {
        for depth in [HEAD, 576, 77, 9] {
            for (tokens, threads) in [(1, 1), (5, 2), (40, 3)] {
                let values = numbers((depth + 3) * tokens, 1);
                let scales = numbers(depth, 3);
                for operation in [Operation::Norm, Operation::NormAndScale] {
                    let found = compute(operation, depth, tokens, threads, &all());
                    for (found, values) in found.iter().zip(values.chunks(depth + 3)) {
                        let values = &values[..depth];
                        let squares: f64 = values.iter().map(|value| f64::from(*value).powi(2)).sum();
                        let root = (squares / depth as f64 + f64::from(EPSILON)).sqrt();
                        for ((found, value), scale) in found.chunks(4).zip(values).zip(&scales) {
                            let found = f32::from_le_bytes(found.try_into().unwrap());
                            let scale = if operation == Operation::Norm { 1.0 } else { f64::from(*scale) };
                            let right = f64::from(*value) / root * scale;
                            let off = (f64::from(found) - right).abs();
                            assert!(off < 1e-6, "{set} {operation:?} {depth}: {found}, not {right}");
                        }
                    }
                    let alone = compute(operation, depth, 1, 1, &all());
                    assert_eq!(found[0], alone[0], "{set} {operation:?} {depth}");
                }
            }
        }
    });
}

#[test]
fn a_norm_is_not_left_to_ggml_where_a_product_follows() {
    let (depth, width, used) = (576, 3, [1, 3, 0]);
    let needed = first_of_each(width, &used);
    for_each_set(|set| {
        let norm = compute(Operation::Norm, depth, width * used.len(), 2, &needed);
        let scaled = compute(Operation::NormAndScale, depth, width * used.len(), 2, &needed);
        for (token, (norm, scaled)) in norm.iter().zip(&scaled).enumerate() {
            let is_needed = token % width < used[token / width];
            for found in [norm, scaled] {
                assert_eq!(found.iter().any(|&byte| byte != u8::MAX), is_needed, "{set} {token}");
            }
        }
    });
}

/// What layers that rotate the same heads make of them, one after the other in one graph: floats of all heads. Of tokens that are not
/// needed the bits are ones. In a pass that nobody has begun layers share nothing, and all tokens are needed.
fn rotate_in_turns(
    layers: &[Angles],
    width: usize,
    used: &[usize],
    threads: u32,
    begins: bool,
) -> Vec<Vec<f32>> {
    let tokens = width * used.len();
    // SAFETY: as in `compute`.
    unsafe {
        let params =
            sys::ggml_init_params { mem_size: 1 << 26, mem_buffer: std::ptr::null_mut(), no_alloc: false };
        let context = NonNull::new(sys::ggml_init(params)).expect("memory").as_ptr();
        let heads = sys::ggml_new_tensor_3d(context, sys::GGML_TYPE_F32, HEAD as i64, 3, tokens as i64);
        let values = numbers(HEAD * 3 * tokens, 1);
        std::ptr::copy_nonoverlapping(values.as_ptr(), (*heads).data.cast(), values.len());
        let positions = sys::ggml_new_tensor_1d(context, sys::GGML_TYPE_I32, tokens as i64);
        for token in 0..tokens {
            *(*positions).data.cast::<i32>().add(token) = (token * 37 % 1000) as i32;
        }
        let graph = sys::ggml_new_graph(context);
        let outputs: Vec<_> = layers
            .iter()
            .map(|&angles| {
                let output = rotation(context, heads, positions, angles);
                (*output).data.cast::<f32>().write_bytes(u8::MAX, values.len());
                sys::ggml_build_forward_expand(graph, output);
                output
            })
            .collect();
        let pool = Pool::new(threads);
        let begun = begins.then_some(pool.raw);
        computing(begun, None, &first_of_each(width, used), 0, || pool.compute(graph));
        let result = outputs
            .iter()
            .map(|output| std::slice::from_raw_parts((**output).data.cast(), values.len()).to_vec())
            .collect();
        sys::ggml_free(context);
        result
    }
}

#[test]
fn rotations_of_one_pass_are_what_each_is_alone() {
    let neox = sys::LLAMA_ROPE_TYPE_NEOX;
    let kinds = [
        ANGLES,
        Angles { base: 500.0, ..ANGLES },
        Angles { mode: neox, ..ANGLES },
        Angles { has_factors: true, ..ANGLES },
        // The others stay; and what is turned are no whole vectors.
        Angles { turned: 22, ..ANGLES },
        Angles { mode: neox, turned: 22, ..ANGLES },
    ];
    let turns = [0, 0, 1, 0, 2, 3, 3, 4, 5, 0].map(|kind: usize| kinds[kind]);
    for (width, used) in [(1, vec![1; 7]), (16, vec![3, 16])] {
        let right: Vec<_> = {
            let _choice = choice();
            // SAFETY: nothing is computed beside it: see `choice`.
            unsafe { attention(GGML) };
            turns.iter().map(|&angles| rotate_in_turns(&[angles], width, &used, 1, true).remove(0)).collect()
        };
        for_each_set(|set| {
            let alone: Vec<_> = turns
                .iter()
                .map(|&angles| rotate_in_turns(&[angles], width, &used, 1, true).remove(0))
                .collect();
            for threads in [1, 3] {
                let together = rotate_in_turns(&turns, width, &used, threads, true);
                if width == 1 {
                    let apart = rotate_in_turns(&turns, width, &used, threads, false);
                    assert!(apart == together, "{set}, {threads} threads");
                }
                for (((angles, found), alone), right) in turns.iter().zip(&together).zip(&alone).zip(&right) {
                    for (i, ((found, alone), right)) in found.iter().zip(alone).zip(right).enumerate() {
                        let token = i / HEAD / 3;
                        let is_needed = token % width < used[token / width];
                        let is_right = if is_needed { (found - right).abs() < 1e-6 } else { found.is_nan() };
                        assert!(
                            is_right && found.to_bits() == alone.to_bits(),
                            "{set} {angles:?} {width}, {threads} threads, {i}: {found}, not {right}, {alone} alone"
                        );
                    }
                }
            }
        });
    }
}

/// The bytes of floats as those are.
fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks(4).map(|four| f32::from_le_bytes(four.try_into().unwrap())).collect()
}

/// Whether a token is what ggml makes of it: exactly, or, where that is not how ggml computes, but for what is rounded.
fn is_that_of_ggml(operation: Operation, found: &[u8], right: &[u8]) -> bool {
    let most = match operation {
        Operation::Rotation { .. } => 1e-6,
        // ggml rounds what it multiplies by to the type of the weights.
        Operation::Product { weights: sys::GGML_TYPE_F16 } => 2e-2,
        Operation::Product { weights: sys::GGML_TYPE_BF16 } => 0.2,
        Operation::Product { .. } => 1e-4,
        _ => return found == right,
    };
    floats(found).iter().zip(floats(right)).all(|(found, right)| (found - right).abs() < most)
}

#[test]
fn products_are_those_of_the_definition_in_any_company() {
    let (float, long) = (sys::GGML_TYPE_F32, 9 * HEAD);
    // Those of floats also with fewer elements than a vector has.
    for (kind, depth) in [(float, long), (sys::GGML_TYPE_F16, long), (sys::GGML_TYPE_BF16, long), (float, 4)]
    {
        let mut weights = numbers(depth * ROWS, 3);
        // SAFETY: as in `compute`; the table has an entry for each type.
        unsafe {
            let mut bytes = vec![0_u8; depth * ROWS * 4];
            let (from, to, rows) = (weights.as_ptr(), bytes.as_mut_ptr().cast(), ROWS as i64);
            sys::ggml_quantize_chunk(kind, from, to, 0, rows, depth as i64, std::ptr::null());
            if let Some(to_float) = (*sys::ggml_get_type_traits(kind)).to_float {
                to_float(bytes.as_ptr().cast(), weights.as_mut_ptr(), weights.len() as i64);
            }
        }
        for_each_set(|set| {
            let operation = Operation::Product { weights: kind };
            let alone = compute(operation, depth, 1, 1, &all());
            for (tokens, threads) in [(1, 2), (2, 1), (5, 2), (40, 3)] {
                let values = numbers((depth + 3) * tokens, 1);
                let found = compute(operation, depth, tokens, threads, &all());
                assert_eq!(found[0], alone[0], "{set} {kind}, {tokens} tokens");
                for (found, values) in found.iter().zip(values.chunks(depth + 3)) {
                    for (found, row) in floats(found).iter().zip(weights.chunks(depth)) {
                        let products = row
                            .iter()
                            .zip(values)
                            .map(|(weight, value)| f64::from(*weight) * f64::from(*value));
                        let right: f64 = products.sum();
                        assert!(
                            (f64::from(*found) - right).abs() < 1e-4,
                            "{set} {kind}: {found}, not {right}"
                        );
                    }
                }
            }
        });
    }
}

#[test]
fn operations_on_tokens_that_are_needed_are_those_of_ggml_and_the_others_are_left_out() {
    let depth = 9 * HEAD;
    for operation in OPERATIONS {
        if matches!(operation, Operation::Norm | Operation::NormAndScale) {
            continue;
        }
        for (width, used) in [(1, vec![1; 40]), (4, vec![1, 0, 4]), (16, vec![3, 16]), (3, vec![2; 8])] {
            let tokens = width * used.len();
            let right = {
                let _choice = choice();
                // SAFETY: nothing is computed beside it: see `choice`.
                unsafe { attention(GGML) };
                compute(operation, depth, tokens, 1, &all())
            };
            let needed = first_of_each(width, &used);
            for_each_set(|set| {
                for threads in [1, 2, 5] {
                    let found = compute(operation, depth, tokens, threads, &all());
                    for (token, (found, right)) in found.iter().zip(&right).enumerate() {
                        assert!(
                            is_that_of_ggml(operation, found, right),
                            "{set} {operation:?}: {token} of {tokens}, {threads} threads"
                        );
                    }
                    let some = compute(operation, depth, tokens, threads, &needed);
                    for (token, (some, found)) in some.iter().zip(&found).enumerate() {
                        let untouched = vec![u8::MAX; found.len()];
                        let is_left_out =
                            operation != Operation::ScaleInTurns && token % width >= used[token / width];
                        let right = if is_left_out { &untouched } else { found };
                        assert!(some == right, "{set} {operation:?} {used:?} {token}, {threads} threads");
                    }
                }
            });
        }
    }
}

/// The order of `count` scores of each token, where the highest come first, by `threads` threads.
fn order(scores: &[f32], count: usize, threads: u32, needed: &NeededTokens) -> Vec<Vec<i32>> {
    let tokens = scores.len() / count;
    // SAFETY: as in `compute`.
    unsafe {
        let params =
            sys::ggml_init_params { mem_size: 1 << 22, mem_buffer: std::ptr::null_mut(), no_alloc: false };
        let context = NonNull::new(sys::ggml_init(params)).expect("memory").as_ptr();
        let input = sys::ggml_new_tensor_2d(context, sys::GGML_TYPE_F32, count as i64, tokens as i64);
        std::ptr::copy_nonoverlapping(scores.as_ptr(), (*input).data.cast(), scores.len());
        let output = sys::ggml_argsort(context, input, sys::GGML_SORT_ORDER_DESC);
        let graph = sys::ggml_new_graph(context);
        sys::ggml_build_forward_expand(graph, output);
        let pool = Pool::new(threads);
        computing(Some(pool.raw), None, needed, 0, || pool.compute(graph));
        let all = std::slice::from_raw_parts((*output).data.cast::<i32>(), scores.len());
        let result = all.chunks(count).map(<[i32]>::to_vec).collect();
        sys::ggml_free(context);
        result
    }
}

#[test]
fn scores_are_put_in_order_whatever_they_are_and_those_that_are_not_needed_in_any() {
    let (count, tokens) = (40, 12);
    let mut scores = numbers(count * tokens, 5);
    // Of the second token some are no numbers, of the third all.
    scores[count..2 * count].iter_mut().step_by(3).for_each(|score| *score = f32::NAN);
    scores[2 * count..3 * count].fill(f32::NAN);
    for_each_set(|set| {
        for threads in [1, 3] {
            for (width, used) in [(1, vec![1; tokens]), (4, vec![3, 0, 1])] {
                let found = order(&scores, count, threads, &first_of_each(width, &used));
                for (token, (found, scores)) in found.iter().zip(scores.chunks(count)).enumerate() {
                    let mut places = found.clone();
                    places.sort_unstable();
                    assert!(places.into_iter().eq(0..count as i32), "{set} {token}: {found:?}");
                    if token % width < used[token / width] {
                        let scores = found.iter().map(|&place| scores[place as usize]);
                        let keys: Vec<f32> =
                            scores.map(|s| if s.is_nan() { f32::NEG_INFINITY } else { s }).collect();
                        assert!(keys.is_sorted_by(|a, b| a >= b), "{set} {token}: {keys:?}");
                    }
                }
            }
        }
    });
}
