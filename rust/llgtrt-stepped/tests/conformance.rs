//! The engine keeps its contract over a model of a few lines, and passes errors on as it should.

use std::sync::Arc;
use std::time::Duration;

use llgtrt_conformance::support::{AllowAll, Bytes};
use llgtrt_core::{
    Engine, Error, ErrorKind, Finish, MaskSource, SamplingParams, SequenceId, SequenceSpec, StepBatch,
    TokenId, Tokenizer,
};
use llgtrt_stepped::{Part, PassError, RowEngine, RowModel, RowTraits};

/// Logits follow from all tokens so far, which each slot keeps: a part that does not continue them would show.
struct Hashes {
    traits: RowTraits,
    slots: Vec<Vec<TokenId>>,
    passes: usize,
    /// The pass that fails, and whether that is the end.
    fails: Option<(usize, bool)>,
}

impl Hashes {
    fn new(slots: u32, pass_tokens: u32) -> Self {
        let vocab_size = Bytes::shared().vocabulary().len() as u32;
        let traits = RowTraits { name: "hashes", vocab_size, slots, context_tokens: 300, pass_tokens };
        Self { traits, slots: vec![Vec::new(); slots as usize], passes: 0, fails: None }
    }
}

impl RowModel for Hashes {
    fn traits(&self) -> RowTraits {
        self.traits
    }

    fn forward(&mut self, parts: &[Part<'_>], rows: &mut [f32]) -> Result<(), PassError> {
        self.passes += 1;
        if let Some((pass, fatal)) = self.fails
            && pass == self.passes
        {
            let error = Error::internal("planned");
            return Err(if fatal { PassError::Fatal(error) } else { PassError::Failed(error) });
        }
        let evaluated: usize = parts.iter().map(|part| part.tokens.len()).sum();
        assert!(evaluated <= self.traits.pass_tokens as usize);
        let mut rows = rows.chunks_exact_mut(self.traits.vocab_size as usize);
        for &Part { slot, start, tokens, rows: wanted } in parts {
            let held = &mut self.slots[slot];
            assert!(start <= held.len(), "tokens {start} follow {}", held.len());
            held.truncate(start);
            for (index, &token) in tokens.iter().enumerate() {
                held.push(token);
                if index + wanted >= tokens.len() {
                    let mut state = held.iter().fold(7_u64, |state, &token| mix(state ^ u64::from(token)));
                    for logit in rows.next().expect("a row for each that is wanted") {
                        state = mix(state);
                        *logit = (state >> 40) as f32 / f32::from(1_u16 << 13) / 256.0;
                    }
                }
            }
        }
        assert!(rows.next().is_none(), "more rows than are wanted");
        Ok(())
    }

    fn free(&mut self, slot: usize) {
        self.slots[slot].clear();
    }
}

fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    value ^ (value >> 29)
}

fn engine(model: Hashes, masks: Arc<dyn MaskSource>) -> RowEngine {
    RowEngine::new(Box::new(model), &[Bytes::EOS], 100, 2, masks).expect("a usable model")
}

struct Fixture {
    slots: u32,
    pass_tokens: u32,
}

impl llgtrt_conformance::Fixture for Fixture {
    fn engine(&self, masks: Arc<dyn MaskSource>) -> Box<dyn Engine> {
        Box::new(engine(Hashes::new(self.slots, self.pass_tokens), masks))
    }

    fn tokenizer(&self) -> Arc<dyn Tokenizer> {
        Bytes::shared()
    }

    fn independent_of_batch(&self) -> bool {
        true
    }
}

#[test]
fn the_engine_keeps_its_contract() {
    llgtrt_conformance::run(&Fixture { slots: 4, pass_tokens: 512 });
}

#[test]
fn with_prompts_in_pieces() {
    llgtrt_conformance::run(&Fixture { slots: 3, pass_tokens: 5 });
}

fn spec(id: u64) -> SequenceSpec {
    SequenceSpec {
        id: SequenceId(id),
        prompt: Arc::from([1, 2, 3 + id as TokenId]),
        max_tokens: 5,
        sampling: SamplingParams { ignore_eos: true, ..SamplingParams::default() },
        stop_token_ids: Arc::from([]),
        constrained: false,
        prompt_logprobs: false,
        options: None,
        processor: None,
        phase: llgtrt_core::Phase::Whole,
    }
}

/// What became of two sequences, where the model fails in its third pass.
fn finishes(fatal: bool) -> (Result<(), Error>, Vec<(u64, Finish)>) {
    let model = Hashes { fails: Some((3, fatal)), ..Hashes::new(2, 64) };
    let mut engine = engine(model, Arc::new(AllowAll));
    for id in 0..3 {
        engine.submit(spec(id)).expect("accepted");
    }
    let mut ended = Vec::new();
    let mut batch = StepBatch::default();
    while engine.has_work() {
        batch.clear();
        if let Err(error) = engine.poll(Duration::from_millis(10), &mut batch) {
            assert!(engine.submit(spec(9)).is_err(), "a dead engine takes nothing");
            return (Err(error), ended);
        }
        ended.extend(batch.iter().filter_map(|(output, _)| Some((output.id.0, output.finish.clone()?))));
    }
    (Ok(()), ended)
}

#[test]
fn a_pass_that_fails_ends_the_sequences_in_it() {
    let failed = Finish::Failed(Error::new(ErrorKind::Internal, "planned"));
    let (outcome, ended) = finishes(false);
    assert_eq!(outcome, Ok(()));
    assert_eq!(ended, [(0, failed.clone()), (1, failed), (2, Finish::Length)]);
}

#[test]
fn a_model_that_is_lost_ends_the_engine() {
    let (outcome, ended) = finishes(true);
    assert_eq!((outcome, ended), (Err(Error::internal("planned")), Vec::new()));
}
