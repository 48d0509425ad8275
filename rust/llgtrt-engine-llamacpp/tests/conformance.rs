//! The contract every engine must pass, on the demo model.

mod common;

use std::sync::Arc;

use common::*;
use llgtrt_core::{Engine, MaskSource, Tokenizer};
use llgtrt_engine_llamacpp::{LlamaCppEngine, LlamaCppModel, Speculation};

struct Demo<'a>(&'a LlamaCppModel);

impl llgtrt_conformance::Fixture for Demo<'_> {
    fn engine(&self, masks: Arc<dyn MaskSource>) -> Box<dyn Engine> {
        Box::new(LlamaCppEngine::new(self.0, masks).unwrap())
    }

    fn tokenizer(&self) -> Arc<dyn Tokenizer> {
        self.0.tokenizer()
    }

    fn independent_of_batch(&self) -> bool {
        // llama.cpp picks its kernels, and so the order of additions, by the size of the batch.
        false
    }
}

#[test]
fn the_engine_keeps_its_contract() {
    if let Some(model) = model() {
        llgtrt_conformance::run(&Demo(model));
    }
}

#[test]
fn the_engine_keeps_its_contract_while_it_guesses() {
    if let Some(model) = model_with(|config| config.speculation = Speculation::On) {
        llgtrt_conformance::run(&Demo(&model));
    }
}
