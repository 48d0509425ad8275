//! What a step costs beside the forward pass and the masks: drawing a token from every row, and all that goes with it.
//!
//! The model's forward pass takes no time and its rows stay as they are; masks are there already. Printed beside the time that
//! one thread takes to read all rows once, which is the floor of a thread that draws from them.
//!
//! ```sh
//! cargo run --release -p llgtrt-stepped --example step_bench -- [STREAMS] [VOCABULARY]
//! ```

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use llgtrt_core::{
    AdvanceBatch, AdvanceState, Engine, MaskBatch, MaskSlot, MaskSource, Phase, SamplingParams, SequenceId,
    SequenceSpec, StepBatch,
};
use llgtrt_stepped::{Part, PassError, RowEngine, RowModel, RowTraits};

const STEPS: usize = 60;

/// Rows that were made before.
struct Rows {
    traits: RowTraits,
    made: bool,
}

impl RowModel for Rows {
    fn traits(&self) -> RowTraits {
        self.traits
    }

    fn forward(&mut self, parts: &[Part<'_>], rows: &mut [f32]) -> Result<(), PassError> {
        assert_eq!(
            parts.iter().map(|part| part.rows).sum::<usize>() * self.traits.vocab_size as usize,
            rows.len()
        );
        if !self.made {
            self.made = true;
            rows.copy_from_slice(&logits(rows.len()));
        }
        Ok(())
    }

    fn free(&mut self, _slot: usize) {}
}

/// About as a model's are: most tokens far from likely.
fn logits(len: usize) -> Vec<f32> {
    let mut state = 1_u64;
    let mut uniform = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / f32::from(1_u16 << 12) / 4096.0
    };
    (0..len).map(|_| (0..4).map(|_| uniform()).sum::<f32>() * 9.0 - 18.0).collect()
}

/// The same mask at every step.
struct Masks(Vec<u32>);

impl MaskSource for Masks {
    fn advance(&self, slots: &[MaskSlot<'_>], _fast_forward: bool, out: &mut AdvanceBatch) {
        for _ in slots {
            out.push(&[], AdvanceState::Sample);
        }
    }

    fn fill(&self, _slots: &[MaskSlot<'_>], batch: &mut MaskBatch) {
        for (words, _) in batch.rows_mut() {
            words.copy_from_slice(&self.0);
        }
    }
}

/// Milliseconds of the median step of `streams` sequences, drawn by so many threads.
fn measure(
    streams: u32,
    vocab_size: u32,
    threads: usize,
    sampling: &SamplingParams,
    mask: Option<&[u32]>,
) -> f64 {
    let traits =
        RowTraits { name: "rows", vocab_size, slots: streams, context_tokens: 4096, pass_tokens: streams };
    let masks = Arc::new(Masks(mask.map(<[u32]>::to_vec).unwrap_or_default()));
    let model = Box::new(Rows { traits, made: false });
    let mut engine = RowEngine::new(model, &[0], 0, threads, masks).expect("a usable model");
    for id in 0..streams {
        let spec = SequenceSpec {
            id: SequenceId(id.into()),
            prompt: [5].into(),
            max_tokens: 4000,
            sampling: SamplingParams { seed: id.into(), ignore_eos: true, ..sampling.clone() },
            stop_token_ids: [].into(),
            constrained: mask.is_some(),
            prompt_logprobs: false,
            options: None,
            processor: None,
            phase: Phase::Whole,
        };
        engine.submit(spec).expect("there is room");
    }
    let mut times: Vec<Duration> = (0..STEPS)
        .map(|_| {
            let mut batch = StepBatch::default();
            let started = Instant::now();
            engine.poll(Duration::ZERO, &mut batch).expect("it does not fail");
            let elapsed = started.elapsed();
            assert_eq!(batch.iter().map(|(_, tokens)| tokens.len()).sum::<usize>(), streams as usize);
            elapsed
        })
        .collect();
    // The first steps make the rows and learn what one costs.
    times.drain(..STEPS / 6);
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64() * 1e3
}

/// Milliseconds that one thread takes to read all rows once.
fn floor(streams: u32, vocab_size: u32) -> f64 {
    let rows = logits(streams as usize * vocab_size as usize);
    let mut times: Vec<f64> = (0..20)
        .map(|_| {
            let started = Instant::now();
            let mut most = [f32::NEG_INFINITY; 64];
            for chunk in black_box(&rows).as_chunks::<64>().0 {
                for (most, &logit) in most.iter_mut().zip(chunk) {
                    *most = if logit > *most { logit } else { *most };
                }
            }
            black_box(most);
            started.elapsed().as_secs_f64() * 1e3
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default: u32| arguments.next().map_or(default, |text| text.parse().expect("a number"));
    let (streams, vocab_size) = (number(64), number(131_072));
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let words = vocab_size.div_ceil(32) as usize;
    let pattern = |word: &dyn Fn(usize) -> u32| (0..words).map(word).collect::<Vec<u32>>();
    let masks = [
        ("none", None),
        // As in a string: a tenth of the blocks has tokens that may not come.
        ("nine tenths", Some(pattern(&|word| if word % 80 < 8 { 0x5555_5555 } else { u32::MAX }))),
        ("every other", Some(pattern(&|_| 0x5555_5555))),
        ("twenty", Some(pattern(&|word| u32::from(word < 20)))),
    ];
    let params =
        |temperature, top_p, top_k| SamplingParams { temperature, top_p, top_k, ..SamplingParams::default() };
    let samplings = [
        ("greedy", params(0.0, 1.0, 0)),
        ("temperature 1", params(1.0, 1.0, 0)),
        ("top_p 0.95", params(1.0, 0.95, 0)),
        ("top_k 40, top_p 0.95", params(0.7, 0.95, 40)),
    ];
    let floor = floor(streams, vocab_size);
    println!("{streams} rows of {vocab_size}, read once by one thread: {floor:.2} ms");
    println!(
        "{:<22}{:<14}{:>12}{:>12}{:>9}{:>9}",
        "sampling",
        "mask",
        "1 thread ms",
        format!("{threads} threads"),
        "ratio",
        "/ floor"
    );
    for (name, sampling) in &samplings {
        for (allowed, mask) in &masks {
            let [alone, shared] =
                [1, threads].map(|threads| measure(streams, vocab_size, threads, sampling, mask.as_deref()));
            println!(
                "{name:<22}{allowed:<14}{alone:>12.2}{shared:>12.2}{:>9.2}{:>9.2}",
                alone / shared,
                shared / floor
            );
        }
    }
}
