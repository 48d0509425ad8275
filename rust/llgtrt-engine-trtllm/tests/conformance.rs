//! The contract every engine must pass, through the plugin built with the stand-in of the executor.
//!
//! In lockstep: an executor that runs ahead may have finished a sequence before the suite can cancel it. `faults.rs`
//! covers the races.

mod common;

use std::sync::Arc;

use common::EngineDir;
use llgtrt_conformance::support::Bytes;
use llgtrt_conformance::{Fixture, run};
use llgtrt_core::{Engine, MaskSource, Tokenizer};

struct Standin(EngineDir);

impl Fixture for Standin {
    fn engine(&self, masks: Arc<dyn MaskSource>) -> Box<dyn Engine> {
        Box::new(self.0.engine(masks))
    }

    fn tokenizer(&self) -> Arc<dyn Tokenizer> {
        Bytes::shared()
    }

    fn independent_of_batch(&self) -> bool {
        true
    }
}

#[test]
fn as_fast_as_possible() {
    run(&Standin(EngineDir::with_context_logits("lockstep=1\n")));
}

#[test]
fn with_time_and_prompts_in_pieces() {
    run(&Standin(EngineDir::new("lockstep=1\nstep_us=200\nchunk_tokens=7\n")));
}

#[test]
fn with_half_precision_logits() {
    let dtype = |name: &'static str| {
        move |config: &mut serde_json::Value| config["pretrained_config"]["logits_dtype"] = name.into()
    };
    run(&Standin(EngineDir::with("lockstep=1\nchunk_tokens=30\n", dtype("float16"))));
    run(&Standin(EngineDir::with("lockstep=1\n", dtype("bfloat16"))));
}

#[test]
fn one_slot() {
    run(&Standin(EngineDir::with("lockstep=1\n", |config| {
        config["build_config"]["max_batch_size"] = 1.into();
    })));
}
