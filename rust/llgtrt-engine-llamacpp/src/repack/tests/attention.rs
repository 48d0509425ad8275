//! Attention over a KV cache of halves and of `Q8_0`.

use std::ops::Range;
use std::ptr::NonNull;

use llama_cpp_sys_2 as sys;

use super::{GGML, Pool, choice, first_of_each, for_each_set, numbers};
use crate::repack::{NeededTokens, attention, computing};

/// The sets that compute in bfloat16; ARM has none.
const BF16: Range<i32> = 0..if cfg!(target_arch = "x86_64") { 2 } else { 0 };

/// One stream: `tokens` queries in a row, the last of which sees all `seen` cells, the one before one less, and so on.
#[derive(Clone, Copy, Debug)]
struct Stream {
    seed: u64,
    tokens: usize,
    seen: usize,
}

/// Elements of a head, heads of queries, heads of the cache.
#[derive(Clone, Copy, Debug)]
struct Heads {
    depth: usize,
    queries: usize,
    cached: usize,
}

const SMALL: Heads = Heads { depth: 64, queries: 9, cached: 3 };
/// Whose elements are no multiple of what two vectors hold.
const ODD: Heads = Heads { depth: 80, queries: 4, cached: 2 };
/// The widest.
const WIDE: Heads = Heads { depth: 576, queries: 4, cached: 1 };

impl Stream {
    /// Of shape `[heads][tokens][depth]`. A token is the same whatever the others are.
    fn queries(self, heads: Heads) -> Vec<f32> {
        let token = |head: usize, t: usize| {
            let place = (self.seen + t + 1 - self.tokens) as u64;
            numbers(heads.depth, self.seed * 7_919 + place * 31 + head as u64)
        };
        (0..heads.queries).flat_map(|head| (0..self.tokens).flat_map(move |t| token(head, t))).collect()
    }

    /// Of shape `[heads][cells][depth]`, `which` tells keys from values; cells that nobody has written hold NaN.
    fn cells(self, heads: Heads, cells: usize, which: u64) -> Vec<f32> {
        let cell = |head: usize, cell: usize| {
            if cell < self.seen {
                let seed = self.seed * 104_729 + which * 1_299_709 + (cell * 64 + head) as u64;
                let scale = if which == 0 { 3.0 } else { 1.0 };
                numbers(heads.depth, seed).into_iter().map(|number| number * scale).collect()
            } else {
                vec![f32::NAN; heads.depth]
            }
        };
        (0..heads.cached).flat_map(|head| (0..cells).flat_map(move |at| cell(head, at))).collect()
    }

    fn mask(self, cells: usize) -> Vec<f32> {
        let seen = |t: usize| self.seen + t + 1 - self.tokens;
        let bias = move |t: usize, cell: usize| if cell < seen(t) { 0.0 } else { f32::NEG_INFINITY };
        (0..self.tokens).flat_map(|t| (0..cells).map(move |cell| bias(t, cell))).collect()
    }

    /// By the definition, in double precision: of shape `[tokens][heads][depth]`.
    fn right(self, heads: Heads, cache: sys::ggml_type) -> Vec<f64> {
        self.right_with(heads, cache, None, None)
    }

    /// The same where each head has one cell more, of that score and without a value, and where scores are bent to stay below a cap.
    fn right_with(
        self,
        heads: Heads,
        cache: sys::ggml_type,
        sinks: Option<&[f32]>,
        cap: Option<f64>,
    ) -> Vec<f64> {
        let cells = |which| rounded(&self.cells(heads, self.seen, which), cache);
        let (queries, keys, values) = (self.queries(heads), cells(0), cells(1));
        let mut result = Vec::new();
        for t in 0..self.tokens {
            for head in 0..heads.queries {
                let query = &queries[(head * self.tokens + t) * heads.depth..][..heads.depth];
                let first = head / (heads.queries / heads.cached) * self.seen;
                let seen = self.seen + t + 1 - self.tokens;
                let weights: Vec<f64> = (0..seen)
                    .map(|cell| {
                        let key = &keys[(first + cell) * heads.depth..][..heads.depth];
                        let score: f64 =
                            query.iter().zip(key).map(|(q, k)| f64::from(*q) * f64::from(*k)).sum();
                        let score = score * f64::from(SCALE);
                        cap.map_or(score, |cap| cap * (score / cap).tanh()).exp()
                    })
                    .collect();
                let sink = sinks.map_or(0.0, |sinks| f64::from(sinks[head]).exp());
                let sum = weights.iter().sum::<f64>() + sink;
                for d in 0..heads.depth {
                    let value = |cell: usize| f64::from(values[(first + cell) * heads.depth + d]);
                    let weighted = weights.iter().enumerate().map(|(cell, weight)| weight * value(cell));
                    result.push(weighted.sum::<f64>() / sum);
                }
            }
        }
        result
    }
}

const SCALE: f32 = 0.125;

/// Numbers of a block of a cache, and its bytes.
fn block(cache: sys::ggml_type) -> (usize, usize) {
    // SAFETY: look-ups in a table.
    unsafe { (sys::ggml_blck_size(cache) as usize, sys::ggml_type_size(cache)) }
}

/// Whether heads are whole blocks of a cache.
fn fits(heads: Heads, cache: sys::ggml_type) -> bool {
    heads.depth.is_multiple_of(block(cache).0)
}

/// The bytes of numbers in a cache. Blocks that hold NaN are NaN.
fn stored(numbers: &[f32], cache: sys::ggml_type) -> Vec<u8> {
    let (count, size) = block(cache);
    let mut bytes = vec![0; numbers.len() / count * size];
    for (from, to) in numbers.chunks(count).zip(bytes.chunks_mut(size)) {
        if from.iter().any(|number| number.is_nan()) {
            to.fill(0xff);
            continue;
        }
        let (from, to, count) = (from.as_ptr(), to.as_mut_ptr().cast(), count as i64);
        // SAFETY: reads a block's numbers and writes its bytes.
        unsafe { sys::ggml_quantize_chunk(cache, from, to, 0, 1, count, std::ptr::null()) };
    }
    bytes
}

/// Numbers as a cache has them.
fn rounded(numbers: &[f32], cache: sys::ggml_type) -> Vec<f32> {
    let bytes = stored(numbers, cache);
    let mut result = vec![0.0; numbers.len()];
    // SAFETY: the table has an entry for each type, and the function reads what so many numbers take.
    unsafe {
        let to_float = (*sys::ggml_get_type_traits(cache)).to_float.expect("a type of caches");
        to_float(bytes.as_ptr().cast(), result.as_mut_ptr(), numbers.len() as i64);
    }
    result
}

/// ggml's operation over streams of as many tokens each, with `cells` cells each: per stream `[tokens][heads][depth]`.
fn attend(
    streams: &[Stream],
    heads: Heads,
    cache: sys::ggml_type,
    cells: usize,
    threads: u32,
) -> Vec<Vec<f32>> {
    attend_needed(streams, heads, cache, cells, threads, &NeededTokens::default())
}

/// The same where these tokens are needed.
fn attend_needed(
    streams: &[Stream],
    heads: Heads,
    cache: sys::ggml_type,
    cells: usize,
    threads: u32,
    needed: &NeededTokens,
) -> Vec<Vec<f32>> {
    // SAFETY: the context lives as long as the operation and the graph.
    unsafe {
        let context = new_context();
        let operation = Operation::new(context, streams, heads, cache, cells, None);
        operation.write(streams);
        let graph = sys::ggml_new_graph(context);
        sys::ggml_build_forward_expand(graph, operation.output);
        let pool = Pool::new(threads);
        computing(Some(pool.raw), None, needed, 0, || pool.compute(graph));
        let result = operation.results();
        sys::ggml_free(context);
        result
    }
}

fn new_context() -> *mut sys::ggml_context {
    let params =
        sys::ggml_init_params { mem_size: 1 << 27, mem_buffer: std::ptr::null_mut(), no_alloc: false };
    // SAFETY: it takes any such parameters.
    NonNull::new(unsafe { sys::ggml_init(params) }).expect("memory").as_ptr()
}

/// ggml's operation and its tensors.
struct Operation {
    heads: Heads,
    cache: sys::ggml_type,
    cells: usize,
    streams: usize,
    tokens: usize,
    q: *mut sys::ggml_tensor,
    k: *mut sys::ggml_tensor,
    v: *mut sys::ggml_tensor,
    mask: *mut sys::ggml_tensor,
    output: *mut sys::ggml_tensor,
}

impl Operation {
    /// Over streams of that shape; with the mask of another operation, perhaps.
    ///
    /// # Safety
    /// The context lives as long as this.
    unsafe fn new(
        context: *mut sys::ggml_context,
        streams: &[Stream],
        heads: Heads,
        cache: sys::ggml_type,
        cells: usize,
        mask: Option<*mut sys::ggml_tensor>,
    ) -> Self {
        let (tokens, streams) = (streams[0].tokens, streams.len());
        // SAFETY: ggml's C API as its own examples use it.
        unsafe {
            let tensor = |kind, shape: [usize; 4]| {
                let [a, b, c, d] = shape.map(|n| n as i64);
                sys::ggml_new_tensor_4d(context, kind, a, b, c, d)
            };
            let q = tensor(sys::GGML_TYPE_F32, [heads.depth, tokens, heads.queries, streams]);
            let cached = [heads.depth, cells, heads.cached, streams];
            let (k, v) = (tensor(cache, cached), tensor(cache, cached));
            let mask = mask.unwrap_or_else(|| tensor(sys::GGML_TYPE_F16, [cells, tokens, 1, streams]));
            let output = sys::ggml_flash_attn_ext(context, q, k, v, mask, SCALE, 0.0, 0.0);
            Self { heads, cache, cells, streams, tokens, q, k, v, mask, output }
        }
    }

    /// Writes what is attended to, and NaN to the results.
    fn write(&self, streams: &[Stream]) {
        fn store<T: Copy>(i: usize, from: &[T], to: *mut sys::ggml_tensor) {
            // SAFETY: each stream has as many elements in the tensor.
            unsafe {
                let place = (*to).data.cast::<T>().add(i * from.len());
                std::ptr::copy_nonoverlapping(from.as_ptr(), place, from.len());
            }
        }
        for (i, stream) in streams.iter().enumerate() {
            let (queries, size) = (stream.queries(self.heads), self.size());
            store(i, &queries, self.q);
            store(i, &stored(&stream.cells(self.heads, self.cells, 0), self.cache), self.k);
            store(i, &stored(&stream.cells(self.heads, self.cells, 1), self.cache), self.v);
            // SAFETY: it takes any number.
            let halves = stream.mask(self.cells).into_iter().map(|n| unsafe { sys::ggml_fp32_to_fp16(n) });
            store(i, &halves.collect::<Vec<_>>(), self.mask);
            store(i, &vec![f32::NAN; size], self.output);
        }
    }

    /// Numbers of a stream's result.
    fn size(&self) -> usize {
        self.tokens * self.heads.queries * self.heads.depth
    }

    /// Per stream `[tokens][heads][depth]`.
    fn results(&self) -> Vec<Vec<f32>> {
        // SAFETY: the tensor has so many numbers.
        let all = unsafe {
            std::slice::from_raw_parts((*self.output).data.cast::<f32>(), self.size() * self.streams)
        };
        all.chunks(self.size()).map(<[f32]>::to_vec).collect()
    }
}

/// Runs `check` with every set of instructions that this machine has, and every type of cache.
fn with_each_set(check: impl Fn(i32, sys::ggml_type)) {
    for_each_set(|set| {
        check(set, sys::GGML_TYPE_F16);
        check(set, sys::GGML_TYPE_Q8_0);
    });
}

/// How near to the definition a set comes: numbers of bfloat16 have eight bits, and scores of 576 elements have three
/// times the spread of those of 64, for which the scale is.
fn near(set: i32, heads: Heads) -> f64 {
    let spread = if heads.depth == WIDE.depth { 3.0 } else { 1.0 };
    if BF16.contains(&set) { 4e-3 * spread } else { 1e-5 }
}

#[test]
fn attention_is_that_of_the_definition() {
    let large = Heads { depth: 128, queries: 8, cached: 8 };
    let shared = Heads { depth: 64, queries: 32, cached: 2 };
    with_each_set(|set, cache| {
        for heads in [SMALL, large, shared, ODD, WIDE].into_iter().filter(|heads| fits(*heads, cache)) {
            let near = near(set, heads);
            for (tokens, seen, cells) in
                [(1, 1, 256), (1, 300, 512), (5, 77, 256), (2, 1000, 1024), (70, 290, 304)]
            {
                for threads in [1, 3] {
                    let stream = Stream { seed: 1, tokens, seen };
                    let found = attend(&[stream], heads, cache, cells, threads);
                    for (found, right) in found[0].iter().zip(stream.right(heads, cache)) {
                        let off = (f64::from(*found) - right).abs();
                        assert!(off < near, "{set} {heads:?} {stream:?}: {found}, not {right}");
                    }
                }
            }
        }
    });
}

/// Attention of one stream of small heads by `threads` threads, where `change` has changed it.
fn attend_changed(
    stream: Stream,
    cache: sys::ggml_type,
    cells: usize,
    threads: u32,
    change: impl FnOnce(*mut sys::ggml_context, *mut sys::ggml_tensor),
) -> Vec<f32> {
    // SAFETY: as in `attend_needed`.
    unsafe {
        let context = new_context();
        let operation = Operation::new(context, &[stream], SMALL, cache, cells, None);
        change(context, operation.output);
        operation.write(&[stream]);
        let graph = sys::ggml_new_graph(context);
        sys::ggml_build_forward_expand(graph, operation.output);
        Pool::new(threads).compute(graph);
        let result = operation.results().remove(0);
        sys::ggml_free(context);
        result
    }
}

/// Checks attention that was changed, over few cells and over many.
fn check_changed(
    change: impl Fn(*mut sys::ggml_context, *mut sys::ggml_tensor),
    right: impl Fn(Stream, sys::ggml_type) -> Vec<f64>,
) {
    with_each_set(|set, cache| {
        let near = near(set, SMALL);
        for (tokens, seen, cells) in [(1, 1, 256), (5, 77, 256), (2, 1500, 1536)] {
            for threads in [1, 3] {
                let stream = Stream { seed: 1, tokens, seen };
                let found = attend_changed(stream, cache, cells, threads, &change);
                for (i, (found, right)) in found.iter().zip(right(stream, cache)).enumerate() {
                    let off = (f64::from(*found) - right).abs();
                    assert!(off < near, "{set} {stream:?} {threads} {i}: {found}, not {right}");
                }
            }
        }
    });
}

#[test]
fn a_sink_takes_a_part_of_the_weights() {
    // One that weighs more than all cells, some that weigh little, and one nothing.
    let mut sinks = numbers(SMALL.queries, 3);
    (sinks[0], sinks[1]) = (40.0, f32::NEG_INFINITY);
    let add = |context: *mut sys::ggml_context, output: *mut sys::ggml_tensor| {
        // SAFETY: as in `attend_needed`; a head has a number.
        unsafe {
            let tensor = sys::ggml_new_tensor_1d(context, sys::GGML_TYPE_F32, SMALL.queries as i64);
            std::ptr::copy_nonoverlapping(sinks.as_ptr(), (*tensor).data.cast(), sinks.len());
            sys::ggml_flash_attn_ext_add_sinks(output, tensor);
        }
    };
    check_changed(add, |stream, cache| stream.right_with(SMALL, cache, Some(&sinks), None));
}

#[test]
fn a_cap_bends_scores() {
    for cap in [0.5, 20.0] {
        let set = |_: *mut sys::ggml_context, output: *mut sys::ggml_tensor| {
            // SAFETY: the third parameter of the operation.
            unsafe { (*output).op_params[2] = f32::to_bits(cap).cast_signed() };
        };
        check_changed(set, |stream, cache| stream.right_with(SMALL, cache, None, Some(f64::from(cap))));
    }
}

#[test]
fn numbers_of_few_bits_come_as_near_as_ggmls_to_the_definition_over_many_cells() {
    let _choice = choice();
    // SAFETY: nothing is computed beside it: see `choice`.
    let choose = |set| unsafe { attention(set) };
    let sets = BF16.filter(|set| choose(*set));
    let wide = Heads { depth: 128, queries: 8, cached: 8 };
    for (set, heads) in sets.flat_map(|set| [SMALL, wide].map(|heads| (set, heads))) {
        let stream = Stream { seed: 1, tokens: 2, seen: 1000 };
        let right = stream.right(heads, sys::GGML_TYPE_F16);
        let off = |set| {
            choose(set);
            let found = attend(&[stream], heads, sys::GGML_TYPE_F16, 1024, 1).remove(0);
            found.iter().zip(&right).map(|(found, right)| (f64::from(*found) - right).powi(2)).sum::<f64>()
        };
        assert!(off(set) < off(GGML), "{set} {heads:?}: {:.2e}, not {:.2e}", off(set), off(GGML));
    }
    choose(GGML);
}

#[test]
fn a_token_does_not_depend_on_what_is_computed_beside_it() {
    with_each_set(|set, cache| {
        for heads in [SMALL, ODD].into_iter().filter(|heads| fits(*heads, cache)) {
            // Tokens of one answer, alone: what they come to must be met in every company.
            let last = 700;
            let alone =
                |seen| attend(&[Stream { seed: 1, tokens: 1, seen }], heads, cache, 1024, 1).remove(0);
            let size = heads.queries * heads.depth;
            // With more threads, in a larger cache, beside other streams.
            for (threads, cells, others) in [(2, 1024, 0), (4, 2048, 0), (2, 1024, 3), (3, 1536, 20)] {
                let streams: Vec<Stream> = (0..=others)
                    .map(|i| Stream { seed: i + 1, tokens: 1, seen: last - 31 * i as usize })
                    .collect();
                let found = attend(&streams, heads, cache, cells, threads);
                assert_eq!(found[0], alone(last), "{set} {threads} threads, {cells} cells, {others} others");
                for (found, stream) in found.iter().zip(streams) {
                    let alone = attend(&[stream], heads, cache, 1024, 1).remove(0);
                    assert_eq!(*found, alone, "{set} {threads} threads, {cells} cells, {stream:?}");
                }
            }
            // Together with the tokens before it.
            for tokens in [2, 3, 7, 40] {
                let streams = [Stream { seed: 1, tokens, seen: last }, Stream { seed: 2, tokens, seen: 50 }];
                let found = attend(&streams, heads, cache, 1024, 2).remove(0);
                for (i, token) in found.chunks(size).enumerate() {
                    assert_eq!(token, alone(last + 1 + i - tokens), "{set} {i} of {tokens}");
                }
            }
        }
    });
}

#[test]
fn layers_that_share_a_mask_see_what_each_sees_alone() {
    with_each_set(|set, cache| {
        let (heads, cells) = (SMALL, 512);
        // Masks of the pass: one of two layers, and another one of a layer between them; then the same graph for other masks, with
        // which tokens see less or more.
        let shapes = [[(1, 300), (2, 200), (3, 300)], [(4, 50), (5, 400), (6, 50)]];
        let streams = |layers: [(u64, usize); 3]| {
            layers.map(|(seed, seen)| {
                [Stream { seed, tokens: 30, seen }, Stream { seed: seed + 10, tokens: 30, seen: seen + 70 }]
            })
        };
        for threads in [1, 3] {
            // SAFETY: the context lives as long as the operations and the graph.
            unsafe {
                let context = new_context();
                let [first, between, last] = streams(shapes[0]);
                let first = Operation::new(context, &first, heads, cache, cells, None);
                let between = Operation::new(context, &between, heads, cache, cells, None);
                let last = Operation::new(context, &last, heads, cache, cells, Some(first.mask));
                let layers = [first, between, last];
                let graph = sys::ggml_new_graph(context);
                for layer in &layers {
                    sys::ggml_build_forward_expand(graph, layer.output);
                }
                let pool = Pool::new(threads);
                computing(Some(pool.raw), None, &NeededTokens::default(), 0, || {
                    for shape in shapes {
                        let streams = streams(shape);
                        for (layer, streams) in layers.iter().zip(&streams) {
                            layer.write(streams);
                        }
                        pool.compute(graph);
                        for (layer, streams) in layers.iter().zip(&streams) {
                            let alone = attend(streams, heads, cache, cells, 1);
                            assert_eq!(layer.results(), alone, "{set} {streams:?}, {threads} threads");
                        }
                    }
                });
                sys::ggml_free(context);
            }
        }
    });
}

#[test]
fn tokens_that_are_not_needed_are_left_out_and_the_others_stay_the_same_bits() {
    with_each_set(|set, cache| {
        let heads = SMALL;
        let size = heads.queries * heads.depth;
        // As many threads as share tiles of rows, and as share chunks of cells; many streams, and few of many tokens.
        for (tokens, used) in [(4, vec![1, 0, 4]), (16, vec![16, 2]), (3, (0..20).map(|i| i % 4).collect())] {
            let streams: Vec<Stream> = (1..=used.len() as u64)
                .map(|seed| Stream { seed, tokens, seen: 300 + 7 * seed as usize })
                .collect();
            let all = attend(&streams, heads, cache, 512, 1);
            let needed = first_of_each(tokens, &used);
            for (threads, cells) in [(1, 512), (2, 512), (4, 512), (2, 1024)] {
                let found = attend_needed(&streams, heads, cache, cells, threads, &needed);
                for ((found, right), used) in found.iter().zip(&all).zip(&used) {
                    let end = used * size;
                    assert_eq!(found[..end], right[..end], "{set} {used} of {tokens}, {threads} threads");
                    assert!(found[end..].iter().all(|value| value.is_nan()), "{set} {used} of {tokens}");
                }
            }
        }
    });
}

#[test]
fn a_row_that_sees_nothing_is_zero() {
    with_each_set(|set, cache| {
        let found = attend(&[Stream { seed: 1, tokens: 1, seen: 0 }], SMALL, cache, 256, 2);
        assert!(found[0].iter().all(|value| *value == 0.0), "{set}");
    });
}
