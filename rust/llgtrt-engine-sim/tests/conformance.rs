//! The sim engine keeps the contract, with and without fast-forward, scripted, and with time passing.

use std::sync::Arc;

use llgtrt_conformance::{Fixture, run, support::Bytes};
use llgtrt_core::{Engine, MaskSource, Tokenizer};
use llgtrt_engine_sim::{SimConfig, SimEngine};

struct Sim(SimConfig);

impl Fixture for Sim {
    fn engine(&self, masks: Arc<dyn MaskSource>) -> Box<dyn Engine> {
        Box::new(SimEngine::new(self.0.clone(), Bytes::shared(), masks).expect("a valid configuration"))
    }

    fn tokenizer(&self) -> Arc<dyn Tokenizer> {
        Bytes::shared()
    }

    fn independent_of_batch(&self) -> bool {
        true
    }
}

fn config() -> SimConfig {
    SimConfig { max_batch_size: 4, ..SimConfig::default() }
}

#[test]
fn as_fast_as_possible() {
    run(&Sim(config()));
}

#[test]
fn without_fast_forward() {
    run(&Sim(SimConfig { fast_forward: false, ..config() }));
}

#[test]
fn with_time_and_a_prefill_of_many_steps() {
    run(&Sim(SimConfig {
        step_us: 200,
        step_us_per_sequence: 10,
        prefill_us_per_token: 1,
        prefill_chunk_tokens: 7,
        max_sequence_tokens: 512,
        ..config()
    }));
}

#[test]
fn one_slot() {
    run(&Sim(SimConfig { max_batch_size: 1, ..config() }));
}
