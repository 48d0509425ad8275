//! Tokens per second of the engine beside a bare `llama_decode` loop, so that the engine's own cost shows.
//!
//! ```text
//! cargo run --release -p llgtrt-engine-llamacpp --example engine_bench -- model.gguf [rounds] [threads] [prompt] [pass]
//! ```
//! With `prompt`, a number of tokens, it evaluates prompts of that length in every round, in passes of at most `pass` tokens,
//! and prints the tokens/s of that and of answers behind it.
//!
//! Both use the same model, threads, prompts and greedy sampling, one after the other in every round, because
//! the machine may be busy with something else; compare the ratios, and take the best round for the speed.

#![expect(unsafe_code, reason = "the bare loop is llama.cpp's C API")]

use std::env;
use std::error::Error;
use std::ffi::CString;
use std::sync::Arc;
use std::time::{Duration, Instant};

use llama_cpp_sys_2 as sys;
use llgtrt_core::{
    AdvanceBatch, AdvanceState, EncodeOptions, Engine, MaskBatch, MaskSlot, MaskSource, SamplingParams,
    SequenceId, SequenceSpec, StepBatch, TokenId,
};
use llgtrt_engine_llamacpp::{LlamaCppConfig, LlamaCppEngine, LlamaCppModel};

const ANSWER: u32 = 128;
/// Tokens of an answer behind a long prompt.
const BEHIND: u32 = 64;
const PROMPT: &str = "<|im_start|>user\nWrite a long story about a lighthouse keeper and the sea, number ";

/// Allows everything; after every third token it forces a run of `run` tokens, as a JSON schema would.
struct Forcing {
    tokens: Vec<TokenId>,
    run: usize,
}

impl MaskSource for Forcing {
    fn advance(&self, slots: &[MaskSlot<'_>], _: bool, out: &mut AdvanceBatch) {
        for slot in slots {
            let length = slot.tokens.len();
            let run = if length % (3 + self.run) == 2 {
                1 + (length + slot.sequence.0 as usize) % self.run
            } else {
                0
            };
            out.push(&self.tokens[..run], AdvanceState::Sample);
        }
    }

    fn fill(&self, _: &[MaskSlot<'_>], batch: &mut MaskBatch) {
        for (row, _) in batch.rows_mut() {
            row.fill(u32::MAX);
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = env::args().skip(1);
    let path = args.next().ok_or("usage: engine_bench MODEL.gguf [rounds] [threads]")?;
    let rounds: usize = args.next().map_or(Ok(3), |text| text.parse())?;
    let threads: Option<u32> = args.next().map(|text| text.parse()).transpose()?;
    let prompt: Option<usize> = args.next().map(|text| text.parse()).transpose()?;
    let pass: Option<u32> = args.next().map(|text| text.parse()).transpose()?;
    let default = LlamaCppConfig::default();
    let config = LlamaCppConfig {
        model_path: path.clone().into(),
        max_sequence_tokens: Some(prompt.map_or(1024, |length| length as u32 + BEHIND + 1)),
        max_num_tokens: pass,
        threads,
        reuse_prefix: false,
        ..default
    };
    let model = LlamaCppModel::load(&config)?;
    let options = EncodeOptions { add_special: true, parse_special: true };
    let prompts: Vec<Vec<TokenId>> = (0..8)
        .map(|n| {
            model.tokenizer().encode(&format!("{PROMPT}{n}.<|im_end|>\n<|im_start|>assistant\n"), options)
        })
        .collect::<Result<_, _>>()?;
    let forced = model.tokenizer().encode("\", \"description\": \"the ", options)?;
    let mut engine = LlamaCppEngine::new(&model, Arc::new(Forcing { tokens: forced, run: 6 }))?;
    if let Some(length) = prompt {
        return long_prompts(&mut engine, &prompts, length, rounds);
    }
    let threads = threads.unwrap_or_else(|| num_cpus::get_physical().min(num_cpus::get()) as u32);
    let mut bare = Bare::new(&path, threads as i32)?;

    println!("round  sequences  bare tok/s  engine tok/s  engine/bare  with forced runs tok/s");
    for round in 1..=rounds {
        for sequences in [1, 2, 4, 8] {
            let prompts = &prompts[..sequences];
            let bare = bare.speed(prompts);
            let plain = engine_speed(&mut engine, prompts, false)?;
            let ragged = engine_speed(&mut engine, prompts, true)?;
            let ratio = plain / bare;
            println!("{round:5}  {sequences:9}  {bare:10.1}  {plain:12.1}  {ratio:11.2}  {ragged:22.1}");
        }
    }
    Ok(())
}

/// Prompts of `length` tokens alone, then with answers of [`BEHIND`] tokens more: what these take is the difference.
fn long_prompts(
    engine: &mut LlamaCppEngine,
    prompts: &[Vec<TokenId>],
    length: usize,
    rounds: usize,
) -> Result<(), Box<dyn Error>> {
    let all: Vec<TokenId> = prompts.iter().flatten().copied().cycle().take(length + prompts.len()).collect();
    let long: Vec<Vec<TokenId>> = (0..prompts.len()).map(|n| all[n..n + length].to_vec()).collect();
    println!("round  sequences  prompt tok/s  step ms");
    for round in 1..=rounds {
        for sequences in [1, 8] {
            let mut seconds = [0.0; 2];
            for (seconds, answer) in seconds.iter_mut().zip([1, 1 + BEHIND]) {
                let start = Instant::now();
                generate(engine, &long[..sequences], false, answer)?;
                *seconds = start.elapsed().as_secs_f64();
            }
            let speed = (sequences * length) as f64 / seconds[0];
            let step = 1e3 * (seconds[1] - seconds[0]) / f64::from(BEHIND);
            println!("{round:5}  {sequences:9}  {speed:12.1}  {step:7.2}");
        }
    }
    Ok(())
}

fn engine_speed(
    engine: &mut LlamaCppEngine,
    prompts: &[Vec<TokenId>],
    constrained: bool,
) -> Result<f64, Box<dyn Error>> {
    let start = Instant::now();
    let tokens = generate(engine, prompts, constrained, ANSWER)?;
    Ok(tokens as f64 / start.elapsed().as_secs_f64())
}

/// Answers of so many tokens to all prompts at once; their number in all.
fn generate(
    engine: &mut LlamaCppEngine,
    prompts: &[Vec<TokenId>],
    constrained: bool,
    max_tokens: u32,
) -> Result<usize, Box<dyn Error>> {
    for (id, prompt) in prompts.iter().enumerate() {
        let sampling = SamplingParams { temperature: 0.0, ignore_eos: true, ..SamplingParams::default() };
        engine.submit(SequenceSpec {
            id: SequenceId(id as u64),
            prompt: prompt.clone().into(),
            max_tokens,
            sampling,
            stop_token_ids: [].into(),
            constrained,
            prompt_logprobs: false,
            options: None,
            processor: None,
            phase: llgtrt_core::Phase::Whole,
        })?;
    }
    let mut tokens = 0;
    let mut batch = StepBatch::default();
    while engine.has_work() {
        batch.clear();
        engine.poll(Duration::from_millis(10), &mut batch)?;
        tokens += batch.iter().map(|(_, tokens)| tokens.len()).sum::<usize>();
    }
    Ok(tokens)
}

/// The least that generating takes: one batch per step, argmax, nothing else.
struct Bare {
    context: *mut sys::llama_context,
    batch: sys::llama_batch,
    columns: usize,
}

impl Bare {
    fn new(path: &str, threads: i32) -> Result<Self, Box<dyn Error>> {
        let path = CString::new(path)?;
        // SAFETY: the backend was initialized by the engine; null pointers are checked. Nothing is freed: the
        // example ends with it.
        unsafe {
            let model = sys::llama_load_model_from_file(path.as_ptr(), sys::llama_model_default_params());
            if model.is_null() {
                return Err("the model cannot be loaded".into());
            }
            let mut params = sys::llama_context_default_params();
            (params.n_ctx, params.n_seq_max) = (8 * 1024, 8);
            (params.n_batch, params.n_ubatch) = (512, 512);
            (params.n_threads, params.n_threads_batch) = (threads, threads);
            let context = sys::llama_init_from_model(model, params);
            if context.is_null() {
                return Err("no context".into());
            }
            let columns = sys::llama_vocab_n_tokens(sys::llama_model_get_vocab(model)) as usize;
            Ok(Self { context, batch: sys::llama_batch_init(512, 0, 1), columns })
        }
    }

    fn speed(&mut self, prompts: &[Vec<TokenId>]) -> f64 {
        let start = Instant::now();
        // SAFETY: the batch holds 512 tokens, which the prompts and the steps stay below; every row that is
        // read was asked for.
        unsafe {
            sys::llama_memory_clear(sys::llama_get_memory(self.context), false);
            let mut last = vec![0; prompts.len()];
            self.batch.n_tokens = 0;
            for (slot, prompt) in prompts.iter().enumerate() {
                for (position, &token) in prompt.iter().enumerate() {
                    self.push(slot, position, token as i32, position + 1 == prompt.len());
                }
                last[slot] = self.batch.n_tokens - 1;
            }
            for step in 0..ANSWER as usize {
                assert_eq!(sys::llama_decode(self.context, self.batch), 0);
                let next: Vec<i32> = last.iter().map(|&index| self.most_likely(index)).collect();
                self.batch.n_tokens = 0;
                for (slot, prompt) in prompts.iter().enumerate() {
                    self.push(slot, prompt.len() + step, next[slot], true);
                    last[slot] = slot as i32;
                }
            }
        }
        (prompts.len() * ANSWER as usize) as f64 / start.elapsed().as_secs_f64()
    }

    unsafe fn push(&mut self, slot: usize, position: usize, token: i32, output: bool) {
        let index = self.batch.n_tokens as usize;
        assert!(index < 512);
        // SAFETY: the index was checked.
        unsafe {
            *self.batch.token.add(index) = token;
            *self.batch.pos.add(index) = position as i32;
            *self.batch.n_seq_id.add(index) = 1;
            **self.batch.seq_id.add(index) = slot as i32;
            *self.batch.logits.add(index) = i8::from(output);
        }
        self.batch.n_tokens += 1;
    }

    unsafe fn most_likely(&self, index: i32) -> i32 {
        // SAFETY: the caller asked for this row.
        let row = unsafe {
            std::slice::from_raw_parts(sys::llama_get_logits_ith(self.context, index), self.columns)
        };
        let mut best = 0;
        for (token, logit) in row.iter().enumerate() {
            if *logit > row[best] {
                best = token;
            }
        }
        best as i32
    }
}
