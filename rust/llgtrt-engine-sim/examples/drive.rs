//! Measures what the sim engine itself costs per token. Run with
//! `cargo run --release -p llgtrt-engine-sim --example drive`. A measurement, not a test.

use std::sync::Arc;
use std::time::{Duration, Instant};

use llgtrt_conformance::support::{AllowAll, Bytes};
use llgtrt_core::{Engine, SamplingParams, SequenceId, SequenceSpec, StepBatch};
use llgtrt_engine_sim::{SimConfig, SimEngine};

fn main() {
    println!("{:<12}{:>10}{:>14}{:>12}", "case", "streams", "us per token", "tokens/s");
    for constrained in [false, true] {
        for streams in [1_u64, 64, 256] {
            let mut engine = SimEngine::new(SimConfig::default(), Bytes::shared(), Arc::new(AllowAll))
                .expect("the default configuration is valid");
            let (mut batch, mut tokens) = (StepBatch::default(), 0);
            let start = Instant::now();
            for round in 0..(100_000 / (streams * 500)).max(1) {
                for id in 0..streams {
                    let spec = SequenceSpec {
                        id: SequenceId(round * streams + id),
                        prompt: vec![65; 32].into(),
                        max_tokens: 500,
                        sampling: SamplingParams { seed: id, ignore_eos: true, ..SamplingParams::default() },
                        stop_token_ids: Arc::from([]),
                        constrained,
                        prompt_logprobs: false,
                        options: None,
                        processor: None,
                        phase: llgtrt_core::Phase::Whole,
                    };
                    engine.submit(spec).expect("there is room");
                }
                while engine.has_work() {
                    batch.clear();
                    engine.poll(Duration::from_millis(100), &mut batch).expect("no faults");
                    tokens += batch.iter().map(|(_, tokens)| tokens.len()).sum::<usize>();
                }
            }
            let seconds = start.elapsed().as_secs_f64();
            println!(
                "{:<12}{streams:>10}{:>14.3}{:>12.0}",
                if constrained { "masked" } else { "plain" },
                seconds * 1e6 / tokens as f64,
                tokens as f64 / seconds
            );
        }
    }
}
