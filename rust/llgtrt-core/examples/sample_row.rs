//! Measures what sampling one row costs. Run with
//! `cargo run --release -p llgtrt-core --example sample_row`. A measurement, not a test.

use std::time::Instant;

use llgtrt_core::{Sampler, SamplingParams, TokenId};

/// A row shaped like a language model's: noise, and a few hundred likely tokens above it.
fn row(vocabulary: usize, seed: u64) -> Vec<f32> {
    let mut state = seed;
    let mut unit = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1 << 24) as f32
    };
    let mut row: Vec<f32> =
        (0..vocabulary).map(|_| (unit() + unit() + unit() + unit() - 2.0) * 4.0).collect();
    for rank in 0..300 {
        let index = (unit() * vocabulary as f32) as usize % vocabulary;
        row[index] = 20.0 - 2.0 * ((1 + rank) as f32).ln() + unit();
    }
    row
}

/// Allows one token in `every`.
fn mask(vocabulary: usize, every: usize) -> Vec<u32> {
    let mut mask = vec![0_u32; vocabulary.div_ceil(32)];
    for token in (0..vocabulary).filter(|token| token % every == 0) {
        mask[token / 32] |= 1 << (token % 32);
    }
    mask
}

fn measure(params: &SamplingParams, rows: &[Vec<f32>], mask: Option<&[u32]>) -> f64 {
    let prompt: Vec<TokenId> = (0..500).collect();
    let mut sampler = Sampler::new(params.clone(), &prompt, &[2], &[]);
    let mut best = f64::INFINITY;
    for _ in 0..20 {
        let start = Instant::now();
        for row in rows {
            sampler.sample(row, mask).expect("finite row");
        }
        best = best.min(start.elapsed().as_secs_f64() / rows.len() as f64);
    }
    best * 1e6
}

fn main() {
    let greedy = SamplingParams { temperature: 0.0, ..SamplingParams::default() };
    let plain = SamplingParams { temperature: 0.8, ..SamplingParams::default() };
    let nucleus = SamplingParams { top_p: 0.9, ..plain.clone() };
    let cases = [
        ("greedy", greedy.clone()),
        ("greedy, ignore_eos", SamplingParams { ignore_eos: true, ..greedy.clone() }),
        ("greedy, 5 logprobs", SamplingParams { logprobs: Some(5), ..greedy }),
        ("temperature", plain.clone()),
        ("temperature, penalties", SamplingParams { repetition_penalty: 1.1, ..plain.clone() }),
        ("min-p", SamplingParams { min_p: 0.05, ..plain }),
        ("top-p", nucleus.clone()),
        ("top-k 50, top-p", SamplingParams { top_k: 50, ..nucleus.clone() }),
        ("top-k 1000, top-p", SamplingParams { top_k: 1000, ..nucleus.clone() }),
        ("top-p 0.9999, T 2", SamplingParams { top_p: 0.9999, temperature: 2.0, ..nucleus }),
    ];
    println!("us per row (best of 20 rounds over 8 rows)");
    println!(
        "{:<24}{:>10}{:>10}{:>12}{:>12}{:>12}",
        "case", "tokens", "no mask", "mask 1/1", "mask 1/3", "mask 1/200"
    );
    for vocabulary in [49_152, 128_256, 262_144] {
        let rows: Vec<_> = (0..8).map(|seed| row(vocabulary, seed)).collect();
        for (name, params) in &cases {
            print!("{name:<24}{vocabulary:>10}{:>10.1}", measure(params, &rows, None));
            for every in [1, 3, 200] {
                print!("{:>12.1}", measure(params, &rows, Some(&mask(vocabulary, every))));
            }
            println!();
        }
    }
}
