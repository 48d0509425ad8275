//! Measures mask times through [`MaskPool`]; driven by `benches/masks.py`, which walks the same
//! tokens with the llguidance Python package in alternating rounds.
//!
//! Usage: `mask_bench VOCABULARY WALKS`. `VOCABULARY` has a JSON header line
//! (`{"pattern", "eos", "vocab_size"}`), then one line per token: `n HEX` or `s NAME`. `WALKS` has
//! one JSON line per schema: `{"schema", "instances": [[token, ...], ...]}`. A command per line of
//! standard input (`refused`, `compile`, `single`, `batch N STEPS`) is answered by one JSON line.

use std::io::{BufRead, Write};
use std::sync::Arc;
use std::time::Instant;

use llgtrt_core::{
    AdvanceBatch, EncodeOptions, Error, GrammarSpec, MaskBatch, MaskSlot, MaskSource, MaskVerdict, Result,
    SequenceId, TokenId, Tokenizer, Vocabulary, VocabularyBuilder,
};
use llgtrt_grammar::{
    CompiledGrammar, GrammarCompiler, GrammarConfig, MaskPool, TokenLimit, spawn_big_stack,
};
use serde::Deserialize;
use toktrie_tiktoken::TikTokenBPE;

/// The server's allocator.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

#[derive(Deserialize)]
struct Header {
    pattern: String,
    eos: TokenId,
    vocab_size: usize,
}

#[derive(Deserialize)]
struct Walk {
    schema: String,
    instances: Vec<Vec<TokenId>>,
}

struct Tekken {
    vocabulary: Vocabulary,
    bpe: TikTokenBPE,
}

impl Tokenizer for Tekken {
    fn vocabulary(&self) -> &Vocabulary {
        &self.vocabulary
    }

    fn encode(&self, text: &str, _: EncodeOptions) -> Result<Vec<TokenId>> {
        Ok(self.bpe.bpe.encode_ordinary(text))
    }
}

fn hex(text: &str) -> Vec<u8> {
    (0..text.len() / 2).map(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).expect("hex")).collect()
}

fn load_vocabulary(path: &str) -> (Tekken, usize) {
    let text = std::fs::read_to_string(path).expect("the vocabulary");
    let mut lines = text.lines();
    let header: Header = serde_json::from_str(lines.next().expect("a header")).expect("a header");
    let mut builder = VocabularyBuilder::default();
    let (mut ranks, mut specials) = (Vec::new(), Vec::new());
    for (id, line) in lines.enumerate() {
        let (kind, value) = line.split_once(' ').expect("kind and value");
        if kind == "s" {
            builder.push(value.as_bytes(), true);
            specials.push((value.to_owned(), id as TokenId));
        } else {
            let bytes = hex(value);
            builder.push(&bytes, false);
            ranks.push((bytes, id as TokenId));
        }
    }
    let bpe = TikTokenBPE::new(ranks, specials, &header.pattern, None, header.eos).expect("a BPE");
    (Tekken { vocabulary: builder.build(None, vec![header.eos]), bpe }, header.vocab_size)
}

struct Bench {
    pool: Arc<MaskPool>,
    vocab_size: usize,
    /// Every instance with its grammar, in the order of the file.
    walks: Vec<(CompiledGrammar, Vec<TokenId>)>,
    compile_micros: Vec<f64>,
    /// Lines of the file whose schema was refused, and why.
    refused: Vec<(usize, String)>,
}

impl Bench {
    fn new(vocabulary: &str, walks: &str) -> Self {
        let (tokenizer, vocab_size) = load_vocabulary(vocabulary);
        let config = GrammarConfig { standard: true, ..GrammarConfig::default() };
        let registry = prometheus::Registry::new();
        let pool = MaskPool::new(vocab_size, &config, &registry);
        let compiler =
            GrammarCompiler::new(Arc::new(tokenizer), vocab_size, config, &registry).expect("a compiler");
        let mut bench =
            Self { pool, vocab_size, walks: Vec::new(), compile_micros: Vec::new(), refused: Vec::new() };
        for (number, line) in std::fs::read_to_string(walks).expect("walks").lines().enumerate() {
            let walk: Walk = serde_json::from_str(line).expect("a walk");
            let started = Instant::now();
            let grammar = match compiler.compile(&GrammarSpec::JsonSchema(walk.schema)) {
                Ok(grammar) => grammar,
                Err(error) => {
                    let place = error.param.unwrap_or_default();
                    bench.refused.push((number, format!("{}: {}", place, error.message)));
                    continue;
                }
            };
            bench.compile_micros.push(started.elapsed().as_secs_f64() * 1e6);
            bench.walks.extend(walk.instances.into_iter().map(|tokens| (grammar.clone(), tokens)));
        }
        bench
    }

    /// Commit and mask of every token of every instance, one sequence at a time, in microseconds.
    fn single(&self) -> Vec<f64> {
        let mut times = Vec::new();
        let mut batch = MaskBatch::default();
        let id = SequenceId(0);
        for (grammar, tokens) in &self.walks {
            self.pool.register(id, grammar);
            for count in 0..tokens.len() {
                let slots = [MaskSlot { sequence: id, tokens: &tokens[..count] }];
                batch.reset(1, self.vocab_size);
                let started = Instant::now();
                self.pool.fill(&slots, &mut batch);
                times.push(started.elapsed().as_nanos() as f64 / 1e3);
                assert_eq!(*batch.verdict(0), MaskVerdict::Mask, "a valid instance");
            }
            self.pool.remove(id);
        }
        times
    }

    /// Mean time of a step of `size` sequences, together or one after the other, and of its `advance`, both in
    /// microseconds. With `spare` every answer has a limit of that many tokens more than it needs.
    fn batch(&self, size: usize, steps: usize, parallel: bool, spare: Option<usize>) -> [f64; 2] {
        let mut next = 0;
        let mut lanes: Vec<(usize, usize)> = Vec::new();
        let enter = |lane: usize, next: &mut usize| {
            let walk = *next % self.walks.len();
            *next += 1;
            let (grammar, tokens) = &self.walks[walk];
            match spare {
                None => self.pool.register(SequenceId(lane as u64), grammar),
                Some(spare) => {
                    let limit = TokenLimit { tokens: tokens.len() + spare, retract: true, turn: 0 };
                    self.pool.register_within(SequenceId(lane as u64), grammar, limit);
                }
            }
            (walk, 0)
        };
        for lane in 0..size {
            let entered = enter(lane, &mut next);
            lanes.push(entered);
        }
        let mut batch = MaskBatch::default();
        let mut out = AdvanceBatch::default();
        let (mut total, mut advances) = (0.0, 0.0);
        for _ in 0..steps {
            let slots: Vec<MaskSlot<'_>> = lanes
                .iter()
                .enumerate()
                .map(|(lane, &(walk, count))| MaskSlot {
                    sequence: SequenceId(lane as u64),
                    tokens: &self.walks[walk].1[..count],
                })
                .collect();
            let started = Instant::now();
            if parallel {
                batch.reset(size, self.vocab_size);
                out.clear();
                self.pool.advance(&slots, false, &mut out);
                advances += started.elapsed().as_secs_f64() * 1e6;
                self.pool.fill(&slots, &mut batch);
            } else {
                batch.reset(1, self.vocab_size);
                for slot in &slots {
                    self.pool.fill(std::slice::from_ref(slot), &mut batch);
                }
            }
            total += started.elapsed().as_secs_f64() * 1e6;
            for (lane, entry) in lanes.iter_mut().enumerate() {
                entry.1 += 1;
                if entry.1 >= self.walks[entry.0].1.len() {
                    *entry = enter(lane, &mut next);
                }
            }
        }
        for lane in 0..size {
            self.pool.remove(SequenceId(lane as u64));
        }
        [total, advances].map(|time| time / steps as f64)
    }

    fn answer(&self, command: &str) -> std::result::Result<serde_json::Value, Error> {
        let words: Vec<&str> = command.split_whitespace().collect();
        let number = |index: usize| words.get(index).and_then(|word| word.parse().ok()).unwrap_or(1);
        match words.first() {
            Some(&"refused") => Ok(serde_json::json!(self.refused)),
            Some(&"compile") => Ok(serde_json::json!(self.compile_micros)),
            Some(&"single") => Ok(serde_json::json!(self.single())),
            Some(&"batch") => {
                let (size, steps) = (number(1), number(2));
                let [serial, _] = self.batch(size, steps, false, None);
                let [parallel, _] = self.batch(size, steps, true, None);
                Ok(serde_json::json!({"serial": serial, "parallel": parallel}))
            }
            Some(&"near") => {
                let (size, steps, spare) = (number(1), number(2), number(3));
                let [_, far] = self.batch(size, steps, true, None);
                let [_, near] = self.batch(size, steps, true, Some(spare));
                Ok(serde_json::json!({"far": far, "near": near}))
            }
            _ => Err(Error::internal("unknown command")),
        }
    }
}

fn run() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, vocabulary, walks] = arguments.as_slice() else {
        eprintln!("usage: mask_bench VOCABULARY WALKS");
        return;
    };
    let bench = Bench::new(vocabulary, walks);
    println!("ready");
    let _ = std::io::stdout().flush();
    for line in std::io::stdin().lock().lines().map_while(std::result::Result::ok) {
        match bench.answer(&line) {
            Ok(value) => println!("{value}"),
            Err(error) => println!("{}", serde_json::json!({"error": error.message})),
        }
        let _ = std::io::stdout().flush();
    }
}

fn main() {
    // As an engine's thread: masks are computed right on it.
    let thread = spawn_big_stack("engine", run).expect("a thread");
    thread.join().expect("the benchmark");
}
