//! Products of a mixture of experts: each token by the matrices of those that it goes to.

use llama_cpp_sys_2 as sys;

use super::products::{Matrix, block, new_context, product};
use super::{Pool, WEIGHTS, first_of_each, kinds, numbers};
use crate::repack::computing;

const EXPERTS: usize = 6;
/// That each token goes to.
const CHOSEN: usize = 2;

/// The experts of a token, the most of which go to the first ones.
fn chosen(token: usize) -> [usize; CHOSEN] {
    let first = if token.is_multiple_of(5) { token / 5 % EXPERTS } else { 1 };
    [first, (first + 1 + token % 3) % EXPERTS]
}

/// Activations of tokens, `columns` of each: all experts take the same one, or each its own.
#[derive(Clone, Copy)]
struct Activations<'a> {
    values: &'a [f32],
    columns: usize,
    k: usize,
}

impl Activations<'_> {
    fn of(&self, token: usize, number: usize) -> &[f32] {
        &self.values[(token * self.columns + number % self.columns) * self.k..][..self.k]
    }

    fn tokens(&self) -> usize {
        self.values.len() / self.columns / self.k
    }
}

/// For each of `matrices` what its experts make of the tokens, by one graph. Each has the experts of the one before in the other order.
fn products(matrices: &[&Matrix], rows: usize, activations: Activations<'_>, pool: &Pool) -> Vec<Vec<f32>> {
    let tokens = activations.tokens();
    // SAFETY: ggml's C API as its own examples use it; every object lives until the end of the block, and each pointer is to as many
    // elements as the tensor beside it has.
    unsafe {
        let context = new_context(false);
        let (k, columns) = (activations.k as i64, activations.columns as i64);
        let input = sys::ggml_new_tensor_3d(context, sys::GGML_TYPE_F32, k, columns, tokens as i64);
        std::ptr::copy_nonoverlapping(
            activations.values.as_ptr(),
            (*input).data.cast(),
            activations.values.len(),
        );
        let orders = [false, true].map(|turned| {
            let ids = sys::ggml_new_tensor_2d(context, sys::GGML_TYPE_I32, CHOSEN as i64, tokens as i64);
            for token in 0..tokens {
                let mut experts = chosen(token).map(|expert| expert as i32);
                if turned {
                    experts.reverse();
                }
                std::ptr::copy_nonoverlapping(
                    experts.as_ptr(),
                    (*ids).data.cast::<i32>().add(token * CHOSEN),
                    CHOSEN,
                );
            }
            ids
        });
        let graph = sys::ggml_new_graph(context);
        let outputs: Vec<_> = matrices
            .iter()
            .zip([orders[0], orders[0], orders[1]])
            .map(|(matrix, ids)| {
                let output = sys::ggml_mul_mat_id(context, matrix.raw, input, ids);
                std::slice::from_raw_parts_mut((*output).data.cast(), rows * CHOSEN * tokens).fill(f32::NAN);
                sys::ggml_build_forward_expand(graph, output);
                output
            })
            .collect();
        pool.compute(graph);
        let values = |output: *mut sys::ggml_tensor| {
            std::slice::from_raw_parts((*output).data.cast::<f32>(), rows * CHOSEN * tokens).to_vec()
        };
        let results = outputs.into_iter().map(values).collect();
        sys::ggml_free(context);
        results
    }
}

fn needed_all(width: usize, used: &[usize]) -> bool {
    used.iter().all(|&used| used == width)
}

#[test]
fn each_token_is_multiplied_by_the_matrices_of_its_experts_as_it_would_be_alone() {
    for kind in kinds() {
        for &types in &WEIGHTS {
            let (rows, k) = (45, 2 * block(types));
            let weights: Vec<_> = (1..=3).map(|seed| numbers(EXPERTS * rows * k, seed)).collect();
            let shape = [EXPERTS, rows, k];
            let held = weights.iter().map(|all| Matrix::of_experts(kind.buffer(), types, shape, all));
            let held: Vec<_> = held.collect();
            let matrices: Vec<_> = held.iter().collect();
            // One token, some slots of which not all tokens are needed, and more for one expert than a tile holds.
            for (width, used) in [(1, vec![1]), (4, vec![1, 0, 4]), (1, vec![1; 75])] {
                let (tokens, needed) = (width * used.len(), first_of_each(width, &used));
                for columns in [1, CHOSEN] {
                    let values = numbers(tokens * columns * k, 9);
                    let activations = Activations { values: &values, columns, k };
                    for threads in [1, 3] {
                        let pool = Pool::new(threads);
                        let found = computing(Some(pool.raw), None, &needed, 0, || {
                            products(&matrices, rows, activations, &pool)
                        });
                        if needed_all(width, &used) {
                            // By a pass that nobody has begun, which keeps what it finds out to itself.
                            assert_eq!(products(&matrices, rows, activations, &pool), found, "{}", kind.set);
                        }
                        for (matrix, (found, weights)) in found.iter().zip(&weights).enumerate() {
                            for (place, found) in found.chunks(rows).enumerate() {
                                let (token, number) = (place / CHOSEN, place % CHOSEN);
                                let what = format!("{} {types:?} {used:?} {matrix} {token}", kind.set);
                                if token % width >= used[token / width] {
                                    assert!(found.iter().all(|value| value.is_nan()), "{what}");
                                    continue;
                                }
                                let mut experts = chosen(token);
                                if matrix == 2 {
                                    experts.reverse();
                                }
                                let weights = &weights[experts[number] * rows * k..][..rows * k];
                                let activations = activations.of(token, number);
                                let right =
                                    product(kind.buffer(), types, [rows, k, 1], weights, activations, 1);
                                assert_eq!(found, right, "{what}");
                            }
                        }
                    }
                }
            }
        }
    }
}
