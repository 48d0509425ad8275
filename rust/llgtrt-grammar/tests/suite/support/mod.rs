//! Tokenizers and drivers for the tests of this crate.

#![allow(dead_code, unreachable_pub, reason = "shared by test binaries that each use a part")]

use std::sync::Arc;

use llgtrt_core::{
    AdvanceBatch, AdvanceState, EncodeOptions, Error, GrammarSpec, MaskBatch, MaskSlot, MaskSource,
    MaskVerdict, Result, SequenceId, TokenId, Tokenizer, Vocabulary, VocabularyBuilder,
};
use llgtrt_grammar::{CompiledGrammar, GrammarCompiler, GrammarConfig, MaskPool, Matcher, Residual};
use prometheus::Registry;

/// A tokenizer that takes the longest token at every position. With single bytes only, that is the
/// canonical tokenization.
pub struct Greedy {
    vocabulary: Vocabulary,
    canonical: bool,
}

impl Greedy {
    /// 256 bytes, then `words`, then `eos` end-of-sequence tokens.
    pub fn new(words: &[&str], eos: usize) -> Self {
        let mut builder = VocabularyBuilder::default();
        for byte in 0..=255_u8 {
            builder.push(&[byte], false);
        }
        for word in words {
            builder.push(word.as_bytes(), false);
        }
        let first = builder.len() as TokenId;
        for index in 0..eos {
            builder.push(format!("<|end{index}|>").as_bytes(), true);
        }
        let eos = (first..first + eos as TokenId).collect();
        Self { vocabulary: builder.build(None, eos), canonical: true }
    }

    pub fn not_canonical(mut self) -> Self {
        self.canonical = false;
        self
    }
}

impl Tokenizer for Greedy {
    fn vocabulary(&self) -> &Vocabulary {
        &self.vocabulary
    }

    fn encode(&self, text: &str, _: EncodeOptions) -> Result<Vec<TokenId>> {
        let mut rest = text.as_bytes();
        let mut tokens = Vec::new();
        while !rest.is_empty() {
            let best = (0..self.vocabulary.len() as TokenId)
                .filter(|&t| !self.vocabulary.is_special(t) && rest.starts_with(self.vocabulary.bytes(t)))
                .max_by_key(|&t| self.vocabulary.bytes(t).len());
            let Some(best) = best else { return Err(Error::internal("no token")) };
            tokens.push(best);
            rest = &rest[self.vocabulary.bytes(best).len()..];
        }
        Ok(tokens)
    }

    fn is_canonical(&self) -> bool {
        self.canonical
    }
}

/// Words that cut through JSON's structure and through UTF-8 sequences.
pub const WORDS: [&str; 30] = [
    "{\"", "\":", "\": ", "\",", "\", \"", "\"}", "[]", "[[", "]}", ", ", "true", "false", "null", "name",
    "na", "the ", "Jo", "hn", "12", "123", "0.", "\n  ", "  ", "é", "日本", "aaa", "aa", "value", "\"name\"",
    "}}",
];

/// A compiler and a pool over one tokenizer.
pub struct Bench {
    pub tokenizer: Arc<dyn Tokenizer>,
    pub compiler: Arc<GrammarCompiler>,
    pub pool: Arc<MaskPool>,
    pub registry: Registry,
    pub vocab_size: usize,
}

impl Bench {
    pub fn new(tokenizer: Greedy, config: GrammarConfig) -> Self {
        // Padded, as the logits of most models are.
        let vocab_size = tokenizer.vocabulary().len() + 61;
        let tokenizer: Arc<dyn Tokenizer> = Arc::new(tokenizer);
        let registry = Registry::new();
        let pool = MaskPool::new(vocab_size, &config, &registry);
        let compiler = GrammarCompiler::new(Arc::clone(&tokenizer), vocab_size, config, &registry).unwrap();
        Self { tokenizer, compiler, pool, registry, vocab_size }
    }

    /// Single bytes, and schemas by the letter of the standard.
    pub fn bytes() -> Self {
        Self::with(GrammarConfig { standard: true, ..GrammarConfig::default() })
    }

    /// As [`bytes`](Self::bytes), for what grammars hold by themselves: nothing is left to a check of the answer.
    pub fn refusing() -> Self {
        Self::with(GrammarConfig { standard: true, residual: Residual::Refuse, ..GrammarConfig::default() })
    }

    /// Single bytes.
    pub fn with(config: GrammarConfig) -> Self {
        Self::new(Greedy::new(&[], 1), config)
    }

    /// Some longer tokens, and schemas by the letter of the standard.
    pub fn words() -> Self {
        let config = GrammarConfig { standard: true, ..GrammarConfig::default() };
        Self::new(Greedy::new(&WORDS, 2), config)
    }

    pub fn compile(&self, spec: &GrammarSpec) -> CompiledGrammar {
        self.compiler.compile(spec).unwrap_or_else(|error| panic!("{spec:?}: {error:?}"))
    }

    pub fn eos(&self) -> TokenId {
        self.tokenizer.vocabulary().eos()[0]
    }

    pub fn encode(&self, text: &str) -> Vec<TokenId> {
        self.tokenizer.encode(text, EncodeOptions { add_special: false, parse_special: false }).unwrap()
    }

    pub fn decode(&self, tokens: &[TokenId]) -> Vec<u8> {
        let vocabulary = self.tokenizer.vocabulary();
        tokens
            .iter()
            .filter(|&&t| !vocabulary.is_special(t))
            .flat_map(|&t| vocabulary.bytes(t).to_vec())
            .collect()
    }

    /// One `advance` for one sequence.
    pub fn advance(&self, id: u64, tokens: &[TokenId], fast_forward: bool) -> (Vec<TokenId>, AdvanceState) {
        let mut out = AdvanceBatch::default();
        self.pool.advance(&[MaskSlot { sequence: SequenceId(id), tokens }], fast_forward, &mut out);
        let (forced, state) = out.get(0);
        (forced.to_vec(), state.clone())
    }

    /// One `fill` for one sequence: the allowed tokens, or the verdict.
    pub fn fill(&self, id: u64, tokens: &[TokenId]) -> Result<Vec<TokenId>, MaskVerdict> {
        let mut batch = MaskBatch::default();
        batch.reset(1, self.vocab_size);
        self.pool.fill(&[MaskSlot { sequence: SequenceId(id), tokens }], &mut batch);
        match batch.verdict(0) {
            MaskVerdict::Mask => Ok(allowed(batch.row(0))),
            other => Err(other.clone()),
        }
    }

    /// Walks a text without forced tokens. `Ok` if every token was allowed and the grammar can end.
    pub fn accepts(&self, grammar: &CompiledGrammar, text: &str) -> Result<(), String> {
        let id = SequenceId(u64::MAX);
        self.pool.register(id, grammar);
        let all = self.encode(text);
        let result = self.walk(&all);
        self.pool.remove(id);
        result
    }

    /// Whether the grammar takes the whole text, found out in one go.
    pub fn takes(&self, grammar: &CompiledGrammar, text: &str) -> bool {
        // Tests run in parallel over one pool.
        static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1 << 32);
        let id = SequenceId(NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
        self.pool.register(id, grammar);
        let all = self.encode(text);
        let mut out = AdvanceBatch::default();
        let slots = [MaskSlot { sequence: id, tokens: &all }];
        self.pool.advance(&slots, false, &mut out);
        let taken = match out.get(0).1 {
            AdvanceState::Stop | AdvanceState::Limit => true,
            AdvanceState::Failed(_) | AdvanceState::Retract { .. } => false,
            AdvanceState::Sample => {
                let mut batch = MaskBatch::default();
                batch.reset(1, self.vocab_size);
                self.pool.fill(&slots, &mut batch);
                match batch.verdict(0) {
                    // What is checked beside the grammar is checked when it is chosen to end.
                    MaskVerdict::Mask if grammar.is_verified() => {
                        allowed(batch.row(0)).contains(&self.eos()) && {
                            let ended: Vec<TokenId> = all.iter().copied().chain([self.eos()]).collect();
                            let slots = [MaskSlot { sequence: id, tokens: &ended }];
                            let mut end = AdvanceBatch::default();
                            self.pool.advance(&slots, false, &mut end);
                            matches!(end.get(0).1, AdvanceState::Stop)
                        }
                    }
                    MaskVerdict::Mask => allowed(batch.row(0)).contains(&self.eos()),
                    MaskVerdict::Stop => true,
                    MaskVerdict::Failed(_) => false,
                }
            }
        };
        self.pool.remove(id);
        taken
    }

    fn walk(&self, all: &[TokenId]) -> Result<(), String> {
        for count in 0..=all.len() {
            let (forced, state) = self.advance(u64::MAX, &all[..count], false);
            assert!(forced.is_empty(), "nothing is forced without fast-forward");
            let end = count == all.len();
            match state {
                AdvanceState::Sample => {}
                AdvanceState::Stop | AdvanceState::Limit if end => return Ok(()),
                AdvanceState::Stop | AdvanceState::Limit => {
                    return Err(format!("complete after {count} tokens"));
                }
                AdvanceState::Failed(error) => return Err(error.message),
                AdvanceState::Retract { keep } => return Err(format!("only {keep} of {count} tokens stay")),
            }
            let allowed = self.fill(u64::MAX, &all[..count]).map_err(|verdict| format!("{verdict:?}"))?;
            assert!(!allowed.is_empty());
            let next = if end { self.eos() } else { all[count] };
            if !allowed.contains(&next) {
                return Err(format!("token {next} refused after {count}"));
            }
        }
        Ok(())
    }
}

/// The set bits of a row.
pub fn allowed(row: &[u32]) -> Vec<TokenId> {
    (0..row.len() as u32 * 32).filter(|t| row[(t / 32) as usize] >> (t % 32) & 1 == 1).collect()
}

pub fn schema(text: &str) -> GrammarSpec {
    GrammarSpec::JsonSchema(text.to_owned())
}

/// A matcher of what llguidance makes of a schema in its subset, over single bytes.
pub fn plain_matcher(schema: &serde_json::Value) -> anyhow::Result<Matcher> {
    let env = toktrie::ApproximateTokEnv::single_byte_env();
    let slices = llguidance::earley::SlicedBiasComputer::general_slices();
    let mut factory =
        llguidance::ParserFactory::new(&env, toktrie::InferenceCapabilities::default(), &slices)?;
    factory.quiet();
    let grammar = llguidance::api::TopLevelGrammar::from_json_schema(schema.clone());
    Ok(Matcher::new(factory.create_parser(grammar)?))
}
