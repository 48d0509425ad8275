//! What a step of constrained rows costs the executor's thread: the time of the logits post-processor, callback included, over the
//! stand-in, whose device's own work does not count. Prints one table; grammars cost nothing here.
//!
//! `cargo bench -p llgtrt-engine-trtllm --bench host_cost`

#[path = "../tests/common/mod.rs"]
mod common;

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use common::{EngineDir, finish, spec};
use llgtrt_conformance::support::Bytes;
use llgtrt_core::{
    AdvanceBatch, AdvanceState, Finish, MaskBatch, MaskSlot, MaskSource, SamplingParams, SequenceSpec,
};
use llgtrt_engine_trtllm::TrtllmEngine;

const ROWS: u64 = 256;
const STEPS: u32 = 100;
/// Microseconds that a step may take without the masks themselves.
const GOAL: f64 = 60.0;

/// Masks that are ready at once: always the same ones, or new ones in each step.
struct Ready {
    change: bool,
    step: AtomicU32,
}

impl MaskSource for Ready {
    fn advance(&self, slots: &[MaskSlot<'_>], _fast_forward: bool, out: &mut AdvanceBatch) {
        for _ in slots {
            out.push(&[], AdvanceState::Sample);
        }
    }

    fn fill(&self, _slots: &[MaskSlot<'_>], batch: &mut MaskBatch) {
        let step = self.step.fetch_add(1, Ordering::Relaxed);
        for (row, _) in batch.rows_mut() {
            if self.change {
                // The token that the stand-in takes is always allowed.
                row[0] = step << 1 | 1;
            } else if row[0] == 0 {
                row.fill(u32::MAX);
            }
        }
    }
}

/// Median and 99th percentile of a step, in microseconds.
fn measure(vocab_size: u32, change: bool, logprobs: bool) -> (f64, f64) {
    let dir = EngineDir::with("time_post_processor=1\n", |config| {
        config["pretrained_config"]["vocab_size"] = vocab_size.into();
        config["build_config"]["max_batch_size"] = ROWS.into();
        config["build_config"]["max_num_tokens"] = 8192.into();
    });
    let masks = Arc::new(Ready { change, step: AtomicU32::new(0) });
    let mut engine = TrtllmEngine::new(&dir.setup(), Bytes::shared(), masks).expect("the stand-in starts");
    let ids: Vec<_> = (1..=ROWS).collect();
    for &id in &ids {
        let sequence = spec(id, "a prompt", STEPS);
        let sampling = SamplingParams {
            removed_mass: logprobs,
            logprobs: logprobs.then_some(0),
            ..sequence.sampling.clone()
        };
        let sequence = SequenceSpec { constrained: true, sampling, ..sequence };
        llgtrt_core::Engine::submit(&mut engine, sequence).expect("accepted");
    }
    for record in finish(&mut engine, &ids) {
        assert_eq!(record.finish, Some(Finish::Length), "every step was made");
    }
    drop(engine);
    let times =
        std::fs::read_to_string(dir.path().join("post_processor_times")).expect("the stand-in's file");
    let mut times: Vec<f64> =
        times.lines().map(|line| line.parse::<f64>().expect("a number") / 1000.0).collect();
    // At the ends of the run the batch is not full.
    let skipped = times.len() / 5;
    let mut times = times.drain(skipped..).take(STEPS as usize * 3 / 5).collect::<Vec<_>>();
    times.sort_by(f64::total_cmp);
    (times[times.len() / 2], times[times.len() * 99 / 100])
}

fn main() {
    // cargo test runs it too, for nothing.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let cases = [
        ("no masks to speak of (257 tokens)", 257, true, false),
        ("the same, with log-probabilities and removed mass", 257, true, true),
        ("128256 tokens, masks as in the step before", 128_256, false, false),
        ("128256 tokens, every mask another", 128_256, true, false),
    ];
    let mut table =
        format!("{ROWS} constrained rows: microseconds per step\n{:52} {:>8} {:>8}\n", "", "median", "99 %");
    for (name, vocab_size, change, logprobs) in cases {
        let (median, slow) = measure(vocab_size, change, logprobs);
        let _ = writeln!(table, "{name:52} {median:8.1} {slow:8.1}");
    }
    println!("{table}goal without the masks: {GOAL:.0}");
}
