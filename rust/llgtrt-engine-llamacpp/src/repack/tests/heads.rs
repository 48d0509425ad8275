//! Products of each head's vectors with a matrix of its own (latent attention).

use llama_cpp_sys_2 as sys;

use super::products::{Matrix, block, new_context, product};
use super::{Pool, WEIGHTS, first_of_each, kinds, numbers};
use crate::repack::{NeededTokens, computing};

const HEADS: usize = 3;

/// What the matrices make of vectors that lie token by token, those of a token's heads together; as many for each of `streams`.
fn by_heads(
    matrices: &Matrix,
    rows: usize,
    k: usize,
    streams: usize,
    vectors: &[f32],
    pool: &Pool,
) -> Vec<f32> {
    let tokens = vectors.len() / k / HEADS;
    let context = new_context(false);
    // SAFETY: ggml's C API as its own examples use it; every object lives until the end of the block, and each pointer is to as many
    // elements as the tensor beside it has.
    unsafe {
        let [k, heads, width] = [k, HEADS, tokens / streams].map(|count| count as i64);
        let input = sys::ggml_new_tensor_4d(context, sys::GGML_TYPE_F32, k, heads, width, streams as i64);
        std::ptr::copy_nonoverlapping(vectors.as_ptr(), (*input).data.cast(), vectors.len());
        let output = sys::ggml_mul_mat(context, matrices.raw, sys::ggml_permute(context, input, 0, 2, 1, 3));
        (*output).data.cast::<f32>().write_bytes(u8::MAX, rows * HEADS * tokens);
        let graph = sys::ggml_new_graph(context);
        sys::ggml_build_forward_expand(graph, output);
        pool.compute(graph);
        let found = std::slice::from_raw_parts((*output).data.cast::<f32>(), rows * HEADS * tokens).to_vec();
        sys::ggml_free(context);
        found
    }
}

#[test]
fn each_head_of_a_token_is_multiplied_by_its_matrix_as_it_would_be_alone() {
    for kind in kinds() {
        for &types in &WEIGHTS {
            let (rows, k) = (45, 2 * block(types));
            let weights = numbers(HEADS * rows * k, 21);
            let held = Matrix::of_experts(kind.buffer(), types, [HEADS, rows, k], &weights);
            // One token, slots of which not all tokens are needed, and more tokens than a tile holds.
            for (width, used) in [(1, vec![1]), (4, vec![1, 0, 4]), (3, vec![3]), (1, vec![1; 75])] {
                let tokens = width * used.len();
                let vectors = numbers(tokens * HEADS * k, 22);
                // Slots have streams of their own before attention has ended, and none in the products before that.
                for streams in [1, used.len()] {
                    for (threads, needed) in [
                        (1, first_of_each(width, &used)),
                        (3, first_of_each(width, &used)),
                        (2, NeededTokens::default()),
                    ] {
                        let pool = Pool::new(threads);
                        let found = computing(Some(pool.raw), None, &needed, 0, || {
                            by_heads(&held, rows, k, streams, &vectors, &pool)
                        });
                        let of_stream = tokens / streams;
                        for token in 0..tokens {
                            for head in 0..HEADS {
                                let place =
                                    (token / of_stream * HEADS + head) * of_stream + token % of_stream;
                                let found = &found[place * rows..][..rows];
                                let what =
                                    format!("{} {types:?} {used:?} {streams} {token} {head}", kind.set);
                                if threads != 2 && token % width >= used[token / width] {
                                    assert!(found.iter().all(|value| value.is_nan()), "{what}");
                                    continue;
                                }
                                let weights = &weights[head * rows * k..][..rows * k];
                                let vector = &vectors[(token * HEADS + head) * k..][..k];
                                let right = product(kind.buffer(), types, [rows, k, 1], weights, vector, 1);
                                assert_eq!(found, right, "{what}");
                            }
                        }
                    }
                }
            }
        }
    }
}
