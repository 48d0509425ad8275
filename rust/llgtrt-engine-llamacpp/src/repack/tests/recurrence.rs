//! Layers that remember in a state.

use std::ops::Range;
use std::ptr::NonNull;

use llama_cpp_sys_2 as sys;

use super::{GGML, Pool, choice, for_each_set, numbers};
use crate::repack::attention;

/// Of a part of the cache that the states are in, each with one.
const CELLS: usize = 8;
/// Elements of a key.
const DEPTH: usize = 64;
/// Elements of a value.
const WIDTH: usize = 32;
const HEADS: usize = 4;
const KEY_HEADS: usize = 2;
/// Channels of a convolution, no multiple of what is computed at a time, and the weights of each.
const CHANNELS: usize = 144;
const TAPS: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Rule {
    /// A gated delta rule, whose values are as wide as its keys.
    Delta,
    /// With a decay for each element of a key, which is left to ggml.
    DeltaOfElements,
    /// A state space.
    Space,
}

impl Rule {
    fn width(self) -> usize {
        if self == Self::Space { WIDTH } else { DEPTH }
    }

    fn state(self) -> usize {
        DEPTH * self.width() * HEADS
    }
}

/// A pass of some sequences, whose states are moved to the cells from `first` on.
#[derive(Clone, Debug)]
struct Pass {
    tokens: Range<usize>,
    sequences: usize,
    first: usize,
    /// Where each of those cells is filled from: those of the sequences, and then others'.
    from: Vec<i32>,
    /// Whether the old states are read by something else as well.
    has_reader: bool,
    threads: u32,
    /// States that are kept of each sequence at most, those behind its last tokens. The cache has a part for each, the last one's first.
    kept: usize,
}

/// What a pass comes to: a row for each token of each sequence, and what else reads the old states, nothing if nobody does.
type Results = (Vec<Vec<f32>>, Vec<f32>);

/// # Safety
///
/// The tensor has been computed, and lies there as a whole.
unsafe fn floats_of(tensor: *const sys::ggml_tensor) -> Vec<f32> {
    // SAFETY: as the caller promises.
    unsafe {
        std::slice::from_raw_parts((*tensor).data.cast(), sys::ggml_nelements(tensor) as usize).to_vec()
    }
}

struct Memory(*mut sys::ggml_context);

impl Memory {
    fn new() -> Self {
        let params =
            sys::ggml_init_params { mem_size: 1 << 26, mem_buffer: std::ptr::null_mut(), no_alloc: false };
        // SAFETY: ggml's C API.
        Self(NonNull::new(unsafe { sys::ggml_init(params) }).expect("memory").as_ptr())
    }

    fn filled(&self, shape: [usize; 4], values: &[f32]) -> *mut sys::ggml_tensor {
        let [a, b, c, d] = shape.map(|count| count as i64);
        // SAFETY: ggml's C API, and the tensor has as many elements.
        unsafe {
            let tensor = sys::ggml_new_tensor_4d(self.0, sys::GGML_TYPE_F32, a, b, c, d);
            assert_eq!(sys::ggml_nelements(tensor) as usize, values.len());
            std::ptr::copy_nonoverlapping(values.as_ptr(), (*tensor).data.cast(), values.len());
            tensor
        }
    }

    /// `rows` of `elements` for each token of each sequence, the same for a token in any pass, `scale` and less around `middle`.
    fn of_tokens(
        &self,
        pass: &Pass,
        [elements, rows]: [usize; 2],
        seed: u64,
        middle: f32,
        scale: f32,
    ) -> *mut sys::ggml_tensor {
        let of = |sequence: usize, token: usize| {
            numbers(elements * rows, seed + (sequence * 1000 + token) as u64 * 7919)
        };
        let places = (0..pass.sequences).flat_map(|s| pass.tokens.clone().map(move |t| (s, t)));
        let values: Vec<f32> =
            places.flat_map(|(s, t)| of(s, t)).map(|value| middle + scale * value).collect();
        self.filled([elements, rows, pass.tokens.len(), pass.sequences], &values)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: nobody has its tensors any more.
        unsafe { sys::ggml_free(self.0) }
    }
}

/// Makes a pass as llama.cpp does, over states that are in `cache` before and after.
fn remember(rule: Rule, pass: &Pass, cache: &mut Vec<f32>) -> Results {
    let memory = Memory::new();
    let (context, state, sequences) = (memory.0, rule.state() as i64, pass.sequences as i64);
    let (rest, row) = (pass.from.len() as i64 - sequences, rule.state() * 4);
    let keys = memory.of_tokens(pass, [DEPTH, KEY_HEADS], 1, 0.0, 0.2);
    let queries = memory.of_tokens(pass, [DEPTH, KEY_HEADS], 2, 0.0, 0.2);
    let values = memory.of_tokens(pass, [rule.width(), HEADS], 3, 0.0, 1.0);
    let rates = memory.of_tokens(pass, [1, HEADS], 4, 0.5, 0.4);
    let rows = (CELLS * pass.kept) as i64;
    let all = memory.filled([rule.state(), CELLS * pass.kept, 1, 1], cache);
    // SAFETY: ggml's C API as llama.cpp uses it; every object lives until the end of the function.
    unsafe {
        let graph = sys::ggml_new_graph(context);
        let expand = |tensor| sys::ggml_build_forward_expand(graph, tensor);
        let states = sys::ggml_reshape_2d(context, all, state, rows);
        let places = sys::ggml_new_tensor_1d(context, sys::GGML_TYPE_I32, pass.from.len() as i64);
        std::ptr::copy_nonoverlapping(pass.from.as_ptr(), (*places).data.cast(), pass.from.len());
        let cells = |first: usize, count| sys::ggml_view_2d(context, all, state, count, row, first * row);
        let rows_of = |gather, first: i64, count| {
            sys::ggml_view_2d(context, gather, state, count, row, first as usize * row)
        };
        let move_rest = |rows| {
            expand(sys::ggml_cpy(context, rows, cells(pass.first + pass.sequences, rest)));
        };
        let (output, gather) = match rule {
            Rule::Delta | Rule::DeltaOfElements => {
                let of_head = if rule == Rule::Delta { 1 } else { DEPTH };
                let decays = memory.of_tokens(pass, [of_head, HEADS], 5, -0.2, 0.1);
                let gather = sys::ggml_get_rows(context, states, places);
                let old = rows_of(gather, 0, sequences);
                expand(old);
                move_rest(rows_of(gather, sequences, rest));
                let [depth, width, heads] = [DEPTH, DEPTH, HEADS].map(|count| count as i64);
                let old = sys::ggml_reshape_4d(context, old, depth, width, heads, sequences);
                let output = sys::ggml_gated_delta_net(
                    context,
                    queries,
                    keys,
                    values,
                    decays,
                    rates,
                    old,
                    pass.kept as i64,
                );
                (output, gather)
            }
            Rule::Space => {
                let decays = memory.filled([1, HEADS, 1, 1], &[-0.3, -0.7, -0.05, -1.5]);
                let tokens = pass.tokens.len() as i64;
                let rates = sys::ggml_reshape_3d(context, rates, HEADS as i64, tokens, sequences);
                let [depth, width, heads] = [DEPTH, WIDTH, HEADS].map(|count| count as i64);
                let old = sys::ggml_reshape_4d(context, states, depth, width, heads, rows);
                let first = sys::ggml_view_1d(context, places, sequences, 0);
                let others = sys::ggml_view_1d(context, places, pass.from.len() as i64 - 1, 4);
                let gather = sys::ggml_get_rows(context, states, others);
                let kept = pass.kept as i64;
                let output =
                    sys::ggml_ssm_scan(context, old, values, rates, decays, keys, queries, first, kept);
                expand(output);
                move_rest(rows_of(gather, sequences - 1, rest));
                (output, gather)
            }
        };
        let reader = pass.has_reader.then(|| sys::ggml_scale(context, gather, 2.0));
        reader.into_iter().for_each(expand);
        let results = rule.width() * HEADS;
        let offset = results * pass.tokens.len() * pass.sequences * 4;
        let made = pass.kept.min(pass.tokens.len()) as i64;
        let in_parts = |from, distance, offset| {
            sys::ggml_view_3d(context, from, state, sequences, made, row, distance, offset)
        };
        let new = in_parts(output, pass.sequences * row, offset);
        // Without more than one part llama.cpp has a view of two dimensions for one of the rules.
        let to = if pass.kept == 1 && rule != Rule::Space {
            cells(pass.first, sequences)
        } else {
            in_parts(all, CELLS * row, pass.first * row)
        };
        expand(sys::ggml_cpy(context, new, to));
        Pool::new(pass.threads).compute(graph);
        *cache = floats_of(all);
        let rows = floats_of(output)[..offset / 4].chunks(results).map(<[f32]>::to_vec).collect();
        (rows, reader.map(|reader| floats_of(reader)).unwrap_or_default())
    }
}

/// Convolves each channel of some sequences behind what was there before, as llama.cpp does: the rows of all tokens, and what the next
/// tokens begin with.
fn convolve(pass: &Pass) -> (Vec<Vec<f32>>, Vec<f32>) {
    let memory = Memory::new();
    let tokens = memory.of_tokens(pass, [CHANNELS, 1], 1, 0.0, 1.0);
    let weights = memory.filled([TAPS, CHANNELS, 1, 1], &numbers(TAPS * CHANNELS, 2));
    // As the tokens before are, or zeros.
    let start = pass.tokens.start;
    let before: Vec<f32> = (0..pass.sequences)
        .flat_map(|sequence| (0..CHANNELS).map(move |channel| (sequence, channel)))
        .flat_map(|(sequence, channel)| {
            (1..TAPS).rev().map(move |back| {
                let token = start.checked_sub(back)?;
                Some(numbers(CHANNELS, 1 + (sequence * 1000 + token) as u64 * 7919)[channel])
            })
        })
        .map(Option::unwrap_or_default)
        .collect();
    let before = memory.filled([TAPS - 1, CHANNELS, pass.sequences, 1], &before);
    // SAFETY: ggml's C API as llama.cpp uses it; every object lives until the end of the function.
    unsafe {
        let (channels, count, sequences) = (CHANNELS as i64, pass.tokens.len() as i64, pass.sequences as i64);
        let tokens = sys::ggml_reshape_3d(memory.0, tokens, channels, count, sequences);
        let all = sys::ggml_concat(memory.0, before, sys::ggml_transpose(memory.0, tokens), 0);
        let output = sys::ggml_ssm_conv(memory.0, all, weights);
        let graph = sys::ggml_new_graph(memory.0);
        sys::ggml_build_forward_expand(graph, output);
        let (end, (per_channel, per_sequence)) = (TAPS as i64 - 1, ((*all).nb[1], (*all).nb[2]));
        let last = pass.tokens.len() * 4;
        let from =
            sys::ggml_view_3d(memory.0, all, end, channels, sequences, per_channel, per_sequence, last);
        let kept = sys::ggml_new_tensor_2d(memory.0, sys::GGML_TYPE_F32, end * channels, sequences + 2);
        let row = (*kept).nb[1];
        let to = sys::ggml_view_2d(memory.0, kept, end * channels, sequences, row, row);
        sys::ggml_build_forward_expand(graph, sys::ggml_cpy(memory.0, from, to));
        Pool::new(pass.threads).compute(graph);
        let rows = floats_of(output).chunks(CHANNELS).map(<[f32]>::to_vec).collect();
        let kept = floats_of(kept)[row / 4..(pass.sequences + 1) * row / 4].to_vec();
        (rows, kept)
    }
}

/// How far the numbers are from those, as a part of their size.
fn distance(found: &[f32], expected: &[f32]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let square = |value: f32| f64::from(value).powi(2);
    let error: f64 = found.iter().zip(expected).map(|(a, b)| square(a - b)).sum();
    let size: f64 = expected.iter().copied().map(square).sum();
    (error / size.max(1e-30)).sqrt()
}

fn pass(tokens: Range<usize>, first: usize, from: &[i32], sequences: usize) -> Pass {
    Pass { tokens, sequences, first, from: from.to_vec(), has_reader: false, threads: 2, kept: 1 }
}

/// Computed by ggml.
fn by_ggml<T>(compute: impl FnOnce() -> T) -> T {
    let _choice = choice();
    // SAFETY: nothing is computed beside it: see `choice`.
    unsafe { attention(GGML) };
    compute()
}

const RULES: [Rule; 3] = [Rule::Delta, Rule::DeltaOfElements, Rule::Space];

#[test]
fn answers_and_states_are_those_of_ggml_wherever_states_come_from() {
    let places: [(usize, &[i32], usize); 10] = [
        (2, &[2, 3, 4], 3),
        (0, &[0], 1),
        (2, &[4, 2, 3], 3),
        (1, &[6, 6], 2),
        // Others' cells behind, which are moved or stay.
        (2, &[2, 3, 5, 4], 2),
        (2, &[3, 2, 4, 7, 5], 2),
        // One of them from a cell that is changed.
        (2, &[2, 3, 2], 2),
        // From states behind earlier tokens, of themselves and of others.
        (2, &[2, 11, 20], 3),
        (2, &[2, 11, 20], 2),
        (2, &[2, 12, 11], 2),
    ];
    for rule in RULES {
        for ((first, from, sequences), kept) in places.into_iter().flat_map(|place| [(place, 1), (place, 3)])
        {
            if from.iter().any(|&cell| cell as usize >= CELLS * kept) {
                continue;
            }
            let cache = numbers(rule.state() * CELLS * kept, 9);
            for tokens in [1, 3, 40] {
                let mut pass = Pass { kept, ..pass(0..tokens, first, from, sequences) };
                // llama.cpp gathers states behind a state space, where they may have been changed.
                for has_reader in [false, rule != Rule::Space] {
                    pass.has_reader = has_reader;
                    let mut expected_cache = cache.clone();
                    let expected = by_ggml(|| remember(rule, &pass, &mut expected_cache));
                    for_each_set(|set| {
                        let mut found_cache = cache.clone();
                        let found = remember(rule, &pass, &mut found_cache);
                        let error = distance(&found.0.concat(), &expected.0.concat());
                        assert!(error < 1e-5, "{set}: {rule:?} {pass:?}: {error}");
                        assert!(found.1 == expected.1, "{set}: {rule:?} {pass:?}");
                        let error = distance(&found_cache, &expected_cache);
                        assert!(error < 1e-5, "{set}: {rule:?} {pass:?}: {error}");
                    });
                }
            }
        }
    }
}

#[test]
fn states_are_the_same_bits_however_tokens_are_divided() {
    for rule in RULES {
        let cache = numbers(rule.state() * CELLS, 9);
        for_each_set(|set| {
            let mut whole = cache.clone();
            let expected = remember(rule, &pass(0..70, 2, &[2, 3], 2), &mut whole).0;
            for (threads, ends) in [(1, vec![70]), (3, vec![1, 2, 35, 70]), (16, vec![32, 69, 70])] {
                let (mut divided, mut start) = (cache.clone(), 0);
                for end in ends {
                    let some = Pass { threads, ..pass(start..end, 2, &[2, 3], 2) };
                    let rows = remember(rule, &some, &mut divided).0;
                    for (sequence, rows) in rows.chunks(end - start).enumerate() {
                        let expected = &expected[sequence * 70 + start..sequence * 70 + end];
                        assert!(rows == expected, "{set}: {rule:?}, {start} to {end}");
                    }
                    start = end;
                }
                assert!(divided == whole, "{set}: {rule:?}");
            }
        });
    }
}

#[test]
fn states_behind_the_last_tokens_are_those_of_passes_that_end_there() {
    const KEPT: usize = 4;
    for rule in RULES {
        let state = rule.state();
        let cache = numbers(state * CELLS, 9);
        let parts = [cache.clone(), vec![0.0; state * CELLS * (KEPT - 1)]].concat();
        for_each_set(|set| {
            // In blocks of a head's tokens that end between them.
            for tokens in [2, 33, 34, 64] {
                let mut found = parts.clone();
                remember(rule, &Pass { kept: KEPT, ..pass(0..tokens, 2, &[2, 3], 2) }, &mut found);
                for back in 0..KEPT.min(tokens - 1) {
                    let mut right = cache.clone();
                    remember(rule, &pass(0..tokens - back, 2, &[2, 3], 2), &mut right);
                    let found = &found[back * CELLS * state..][2 * state..4 * state];
                    assert!(found == &right[2 * state..4 * state], "{set}: {rule:?}, {tokens}, {back}");
                }
            }
        });
    }
}

#[test]
fn convolutions_are_those_of_ggml_and_the_same_bits_however_tokens_are_divided() {
    let whole = pass(0..45, 0, &[], 2);
    let parts = [0..1, 1..8, 8..27, 27..45].map(|tokens| Pass { threads: 3, ..pass(tokens, 0, &[], 2) });
    let (expected, ends) = by_ggml(|| (convolve(&whole).0, parts.each_ref().map(|part| convolve(part).1)));
    for_each_set(|set| {
        let (all, last) = convolve(&whole);
        assert!(last == ends[3], "{set}");
        let error = distance(&all.concat(), &expected.concat());
        assert!(error < 1e-6, "{set}: {error}");
        for (part, right) in parts.iter().zip(&ends) {
            let (rows, end) = convolve(part);
            let tokens = &part.tokens;
            assert!(end == *right, "{set}: {tokens:?}");
            for (sequence, rows) in rows.chunks(tokens.len()).enumerate() {
                let expected = &all[sequence * 45 + tokens.start..sequence * 45 + tokens.end];
                assert!(rows == expected, "{set}: {tokens:?}");
            }
        }
    });
}
