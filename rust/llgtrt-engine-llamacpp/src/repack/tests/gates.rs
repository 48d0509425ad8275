//! Two products that are left to the gate which makes one of them.

use llama_cpp_sys_2 as sys;

use super::products::{Matrix, block, new_context, product};
use super::{Kind, Pool, WEIGHTS, first_of_each, for_each_set, kinds, numbers};
use crate::repack::{NeededTokens, computing};

/// What else is made of a gate's products.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Reader {
    Nobody,
    /// An operation behind the gate.
    Behind,
    /// An operation between the products and the gate.
    Between,
    /// Whoever asked for the graph.
    Caller,
}

const READERS: [Reader; 4] = [Reader::Nobody, Reader::Behind, Reader::Between, Reader::Caller];

/// What a graph came to: the gate, and its two products, which are not numbers where nothing was written.
struct Found {
    gate: Vec<f32>,
    products: [Vec<f32>; 2],
}

struct Case<'a> {
    matrices: [&'a Matrix; 2],
    shape: [usize; 3],
    activations: &'a [f32],
}

impl Case<'_> {
    /// Computes the gate; the product that goes through it comes first if `through_first`.
    fn compute(&self, reader: Reader, through_first: bool, threads: u32, needed: &NeededTokens) -> Found {
        let [rows, k, columns] = self.shape;
        let context = new_context(false);
        // SAFETY: ggml's C API as its own examples use it; every object lives until the end of the block, and each
        // pointer is to as many elements as the tensor beside it has.
        unsafe {
            let input = sys::ggml_new_tensor_2d(context, sys::GGML_TYPE_F32, k as i64, columns as i64);
            std::ptr::copy_nonoverlapping(
                self.activations.as_ptr(),
                (*input).data.cast(),
                self.activations.len(),
            );
            let products = self.matrices.map(|matrix| sys::ggml_mul_mat(context, matrix.raw, input));
            let gate = sys::ggml_swiglu_split(context, products[0], products[1]);
            for tensor in [products[0], products[1], gate] {
                (*tensor).data.cast::<f32>().write_bytes(u8::MAX, rows * columns);
            }
            let graph = sys::ggml_new_graph(context);
            for i in if through_first { [1, 0] } else { [0, 1] } {
                sys::ggml_build_forward_expand(graph, products[i]);
            }
            let another = sys::ggml_scale(context, products[1], 2.0);
            match reader {
                Reader::Nobody => {}
                Reader::Between => sys::ggml_build_forward_expand(graph, another),
                Reader::Behind => {
                    sys::ggml_build_forward_expand(graph, gate);
                    sys::ggml_build_forward_expand(graph, another);
                }
                Reader::Caller => sys::ggml_set_output(products[1]),
            }
            sys::ggml_build_forward_expand(graph, gate);
            let pool = Pool::new(threads);
            // The same graph again and again, as llama.cpp has it: what it was planned for the first time is of no effect.
            computing(Some(pool.raw), None, needed, rows, || {
                pool.compute(graph);
                pool.compute(graph);
            });
            let floats = |tensor: *mut sys::ggml_tensor| {
                std::slice::from_raw_parts((*tensor).data.cast::<f32>(), rows * columns).to_vec()
            };
            let found = Found { gate: floats(gate), products: products.map(floats) };
            if matches!(reader, Reader::Behind | Reader::Between) {
                let right: Vec<f32> = found.products[1].iter().map(|value| 2.0 * value).collect();
                assert_eq!(floats(another), right, "{reader:?}");
            }
            sys::ggml_free(context);
            found
        }
    }
}

/// What ggml's gate makes of two products that are there.
fn gate_of(products: &[Vec<f32>; 2], rows: usize) -> Vec<f32> {
    let context = new_context(false);
    // SAFETY: as above.
    unsafe {
        let [one, other] = products.each_ref().map(|values| {
            let columns = (values.len() / rows) as i64;
            let tensor = sys::ggml_new_tensor_2d(context, sys::GGML_TYPE_F32, rows as i64, columns);
            std::ptr::copy_nonoverlapping(values.as_ptr(), (*tensor).data.cast(), values.len());
            tensor
        });
        let gate = sys::ggml_swiglu_split(context, one, other);
        let graph = sys::ggml_new_graph(context);
        sys::ggml_build_forward_expand(graph, gate);
        Pool::new(1).compute(graph);
        let result = std::slice::from_raw_parts((*gate).data.cast(), products[0].len()).to_vec();
        sys::ggml_free(context);
        result
    }
}

/// Calls `check` with a gate of so many rows and columns, and what its two products are.
fn with_gate(
    ours: &Kind,
    kind: sys::ggml_type,
    [rows, columns]: [usize; 2],
    check: impl Fn(&Case<'_>, &[Vec<f32>; 2]),
) {
    let k = 2 * block(kind);
    let weights = [31, 32].map(|seed| numbers(rows * k, seed));
    let matrices = weights.each_ref().map(|weights| Matrix::new(ours.buffer(), kind, [rows, k], weights));
    let activations = numbers(columns * k, 33);
    let shape = [rows, k, columns];
    let products =
        weights.each_ref().map(|weights| product(ours.buffer(), kind, shape, weights, &activations, 1));
    let case = Case { matrices: matrices.each_ref(), shape, activations: &activations };
    check(&case, &products);
}

fn all() -> NeededTokens {
    NeededTokens::default()
}

#[test]
fn a_gate_of_products_is_that_of_ggml_and_they_are_not_stored_unless_somebody_reads_them() {
    for_each_set(|_| {
        for ours in kinds() {
            for &kind in &WEIGHTS {
                // Chunks of rows of unequal sizes, and columns that fill tiles and do not.
                for (rows, columns, threads) in
                    [(208, 1, 1), (208, 21, 3), (48, 40, 2), (32, 5, 4), (59, 3, 2)]
                {
                    with_gate(ours, kind, [rows, columns], |case, products| {
                        let right = gate_of(products, rows);
                        for reader in READERS {
                            for through_first in [false, true] {
                                let found = case.compute(reader, through_first, threads, &all());
                                let of = format!("{} {kind:?} {rows}x{columns} {reader:?}", ours.set);
                                assert!(found.gate == right, "{of}");
                                for (found, right) in found.products.iter().zip(products) {
                                    if reader == Reader::Nobody {
                                        assert!(found.iter().all(|value| value.is_nan()), "{of}");
                                    } else {
                                        assert!(found == right, "{of}");
                                    }
                                }
                            }
                        }
                    });
                }
            }
        }
    });
}

#[test]
fn tokens_that_are_not_needed_are_left_out_of_a_gate_and_the_others_stay_the_same_bits() {
    for_each_set(|_| {
        for ours in kinds() {
            for &kind in &WEIGHTS {
                let (rows, width, used) = (96, 5, [1, 0, 5, 3, 2, 5, 5, 5]);
                with_gate(ours, kind, [rows, width * used.len()], |case, products| {
                    let right = gate_of(products, rows);
                    for threads in [1, 3] {
                        let needed = first_of_each(width, &used);
                        let found = case.compute(Reader::Nobody, true, threads, &needed).gate;
                        let columns = found.chunks(rows).zip(right.chunks(rows)).enumerate();
                        for (column, (found, right)) in columns {
                            let is_right = if column % width < used[column / width] {
                                found == right
                            } else {
                                found.iter().all(|value| value.is_nan())
                            };
                            assert!(is_right, "{} {kind:?} {column}, {threads} threads", ours.set);
                        }
                    }
                });
            }
        }
    });
}

#[test]
fn products_of_other_activations_or_weights_are_computed_for_themselves() {
    let columns = 3;
    for_each_set(|_| {
        for ours in kinds() {
            let (one, other) = (WEIGHTS[0], WEIGHTS[1]);
            let (rows, k) = (64, block(one).max(block(other)));
            let weights = [41, 42].map(|seed| numbers(rows * k, seed));
            let activations = [43, 44].map(|seed| numbers(columns * k, seed));
            let of = |kind, i: usize| Matrix::new(ours.buffer(), kind, [rows, k], &weights[i]);
            let matrices = [of(one, 0), of(one, 1), of(other, 1)];
            let types = [one, one, other];
            // The matrix of the second product, and its activations.
            for (matrix, input) in [(1, 1), (2, 0), (2, 1)] {
                let context = new_context(false);
                // SAFETY: as above.
                let found = unsafe {
                    let inputs = activations.each_ref().map(|values| {
                        let input =
                            sys::ggml_new_tensor_2d(context, sys::GGML_TYPE_F32, k as i64, columns as i64);
                        std::ptr::copy_nonoverlapping(values.as_ptr(), (*input).data.cast(), values.len());
                        input
                    });
                    let first = sys::ggml_mul_mat(context, matrices[0].raw, inputs[0]);
                    let second = sys::ggml_mul_mat(context, matrices[matrix].raw, inputs[input]);
                    let gate = sys::ggml_swiglu_split(context, first, second);
                    let graph = sys::ggml_new_graph(context);
                    sys::ggml_build_forward_expand(graph, gate);
                    Pool::new(2).compute(graph);
                    let found =
                        std::slice::from_raw_parts((*gate).data.cast::<f32>(), rows * columns).to_vec();
                    sys::ggml_free(context);
                    found
                };
                let shape = [rows, k, columns];
                let products =
                    [(0, 0, 0), (matrix, 1, input)].map(|(matrix, weight, input): (usize, usize, usize)| {
                        product(ours.buffer(), types[matrix], shape, &weights[weight], &activations[input], 1)
                    });
                assert!(found == gate_of(&products, rows), "{} {matrix} {input}", ours.set);
            }
        }
    });
}
