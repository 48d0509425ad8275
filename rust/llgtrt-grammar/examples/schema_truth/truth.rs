//! The measurement: data, both compilers, verdicts. Runs on one thread with a large stack.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use llgtrt_core::{
    AdvanceBatch, AdvanceState, GrammarSpec, MaskBatch, MaskSlot, MaskSource, MaskVerdict, SequenceId,
    TokenId, Tokenizer,
};
use llgtrt_grammar::{
    CompiledGrammar, GrammarCompiler, GrammarConfig, Instance, Judgement, MaskPool, Matcher, Residual, judge,
};
use llgtrt_schema::{NormalizeLimits, normalize};
use llguidance::ParserFactory;
use llguidance::api::TopLevelGrammar;
use llguidance::earley::SlicedBiasComputer;
use serde_json::{Value, json};
use toktrie::{ApproximateTokEnv, InferenceCapabilities, TokRxInfo, TokTrie};

use crate::report::{Record, Row, Verdict, report};
use crate::words::Words;

/// What to measure.
#[derive(Default)]
#[allow(clippy::struct_excessive_bools, reason = "flags of a command line")]
pub(crate) struct Options {
    file: String,
    json: Option<String>,
    only: Option<String>,
    masks: bool,
    verbose: bool,
    plain: bool,
    show: bool,
}

impl Options {
    pub(crate) fn from_args(args: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut options = Self { plain: true, masks: true, ..Self::default() };
        let mut args = args;
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--json" => options.json = args.next(),
                "--only" => options.only = args.next(),
                "--no-masks" => options.masks = false,
                "--no-plain" => options.plain = false,
                "--show" => options.show = true,
                "--verbose" => options.verbose = true,
                _ => options.file = arg,
            }
        }
        if options.file.is_empty() {
            return Err("usage: schema_truth FILE [--json OUT] [--only TEXT] [--no-masks] [--no-plain] \
                        [--verbose]"
                .to_owned());
        }
        Ok(options)
    }
}

struct Case {
    id: String,
    schema: Value,
    tests: Vec<(bool, String, Value)>,
}

impl Case {
    /// An instance as a JSON value. In draft 4 a number is what is written: 1.0 is no integer.
    fn instance<'a>(&self, value: &'a Value) -> Instance<'a> {
        if llgtrt_schema::is_draft_4(&self.schema) { Instance::Exact(value) } else { Instance::Value(value) }
    }
}

/// Measures; `true` if no invalid instance was accepted.
pub(crate) fn run(options: &Options) -> Result<bool, String> {
    let text = std::fs::read_to_string(&options.file).map_err(|e| format!("{}: {e}", options.file))?;
    let cases = read(&text, options.only.as_deref())?;
    let words = Arc::new(Words::from_text(&text));
    let bench = Bench::new(&words, options.show)?;
    let mut records = Vec::new();
    for (index, case) in cases.iter().enumerate() {
        if options.show {
            let limits = NormalizeLimits { compose: true, standard: true, ..NormalizeLimits::default() };
            println!("{}\n{}", case.id, case.schema);
            match normalize(&case.schema, &limits) {
                Ok(found) => {
                    println!("{}\n{}\n{:?}", found.schema, found.lark.unwrap_or_default(), found.rules);
                }
                Err(error) => println!("{error:?}"),
            }
        }
        // What comes second finds its code and tables in the CPU's caches.
        let plain = || if options.plain { bench.plain(case, options.masks) } else { Record::default() };
        let (ours, plain) = if index % 2 == 0 {
            let ours = bench.ours(case, options.masks);
            (ours, plain())
        } else {
            let plain = plain();
            (bench.ours(case, options.masks), plain)
        };
        let verify = bench.verify(case, &ours);
        if options.verbose {
            eprintln!("{} {:?} {:?}", case.id, ours.compile, ours.refused);
        }
        records.push(Row { id: case.id.clone(), ours, verify, plain });
    }
    if let Some(path) = &options.json {
        let list: Vec<Value> = records.iter().map(Row::to_json).collect();
        std::fs::write(path, serde_json::to_string_pretty(&list).map_err(|e| e.to_string())?)
            .map_err(|e| format!("{path}: {e}"))?;
    }
    Ok(report(&records))
}

/// Paths at which the rule `narrowed` was used.
fn narrowed(schema: &Value) -> Vec<String> {
    let limits = NormalizeLimits { compose: true, standard: true, ..NormalizeLimits::default() };
    let rules = normalize(schema, &limits).map(|found| found.rules).unwrap_or_default();
    rules.into_iter().filter(|used| used.rule == "narrowed").map(|used| used.path).collect()
}

fn read(text: &str, only: Option<&str>) -> Result<Vec<Case>, String> {
    let mut cases = Vec::new();
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for (number, line) in text.lines().enumerate() {
        let row: Value = serde_json::from_str(line).map_err(|e| format!("line {}: {e}", number + 1))?;
        let id = if let Some(id) = row["id"].as_str() {
            id.to_owned()
        } else {
            let base = format!(
                "{}---{}---{}",
                row["draft"].as_str().unwrap_or(""),
                row["file"].as_str().unwrap_or(""),
                row["description"].as_str().unwrap_or("")
            );
            let count = counts.entry(base.clone()).or_default();
            *count += 1;
            if *count > 1 { format!("{base} #{count}") } else { base }
        };
        if only.is_some_and(|only| !id.contains(only)) {
            continue;
        }
        let tests = row["tests"].as_array().into_iter().flatten();
        let tests = tests
            .map(|t| {
                (t["valid"].as_bool().unwrap_or(false), crate::words::dumps(&t["data"]), t["data"].clone())
            })
            .collect();
        let mut schema = row["schema"].clone();
        // The suite's older drafts do not name themselves.
        if let (Some("draft7"), Some(object)) = (row["draft"].as_str(), schema.as_object_mut()) {
            object.entry("$schema").or_insert_with(|| json!("http://json-schema.org/draft-07/schema#"));
        }
        cases.push(Case { id, schema, tests });
    }
    Ok(cases)
}

/// llguidance alone, on a thread that waits for work as our compiler's does, and with its grammars kept as our cache
/// keeps them: what a thread that wakes up pays, and memory that is new, both pay.
struct Plain {
    work: Sender<String>,
    done: Receiver<Result<(Matcher, Duration), String>>,
    kept: RefCell<Vec<Matcher>>,
}

impl Plain {
    fn new(factory: ParserFactory) -> Result<Self, String> {
        let (work, jobs) = channel::<String>();
        let (results, done) = channel();
        let work_loop = move || jobs.iter().all(|text| results.send(plain_matcher(&factory, &text)).is_ok());
        llgtrt_grammar::spawn_big_stack("plain", work_loop).map_err(|e| e.to_string())?;
        Ok(Self { work, done, kept: RefCell::default() })
    }

    fn compile(&self, schema: String) -> Result<(Matcher, Duration), String> {
        self.work.send(schema).expect("its thread waits");
        self.done.recv().expect("its thread answers")
    }
}

/// A matcher with its first mask, which ours have as well, and how long it took from the text of the schema on.
fn plain_matcher(factory: &ParserFactory, schema: &str) -> Result<(Matcher, Duration), String> {
    let started = Instant::now();
    let schema = serde_json::from_str(schema).expect("it was JSON");
    let line = |error: &dyn std::fmt::Display| error.to_string().lines().next().unwrap_or("").to_owned();
    let parser = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        factory.create_parser(TopLevelGrammar::from_json_schema(schema))
    }));
    let parser = parser.map_err(|_| "panic".to_owned())?.map_err(|error| line(&error))?;
    let mut matcher = Matcher::new(parser);
    matcher.compute_mask().map_err(|error| line(&error))?;
    Ok((matcher, started.elapsed()))
}

/// Both compilers over one vocabulary.
struct Bench {
    words: Arc<Words>,
    vocab_size: usize,
    compiler: Arc<GrammarCompiler>,
    /// As servers have it by default: what no grammar holds is checked beside it.
    verifying: Arc<GrammarCompiler>,
    pool: Arc<MaskPool>,
    plain: Plain,
    eos: TokenId,
    /// Prints why valid instances are rejected.
    explain: bool,
    /// The grammar that is walked.
    grammars: RefCell<Option<CompiledGrammar>>,
}

impl Bench {
    fn new(words: &Arc<Words>, explain: bool) -> Result<Self, String> {
        let vocabulary = words.vocabulary();
        let vocab_size = vocabulary.len();
        let registry = prometheus::Registry::new();
        // No second mask threads: masks are timed.
        // What grammars hold by themselves; what they leave open is measured beside it.
        let config = GrammarConfig {
            mask_threads: Some(1),
            standard: true,
            residual: Residual::Refuse,
            ..GrammarConfig::default()
        };
        let pool = MaskPool::new(vocab_size, &config, &registry);
        let tokenizer: Arc<dyn Tokenizer> = Arc::clone(words) as Arc<dyn Tokenizer>;
        let verify = GrammarConfig { residual: Residual::Verify, ..config.clone() };
        let verifying = GrammarCompiler::alone(Arc::clone(&tokenizer), verify).map_err(|e| e.message)?;
        let compiler =
            GrammarCompiler::new(tokenizer, vocab_size, config, &registry).map_err(|e| e.message)?;
        let eos = vocabulary.eos()[0];
        let list: Vec<Vec<u8>> =
            (0..vocab_size as TokenId).map(|token| vocabulary.bytes(token).to_vec()).collect();
        let trie = TokTrie::from(&TokRxInfo::new(vocab_size as u32, eos), &list);
        let env: toktrie::TokEnv = Arc::new(ApproximateTokEnv::new(trie));
        let mut factory =
            ParserFactory::new(&env, InferenceCapabilities::default(), &SlicedBiasComputer::general_slices())
                .map_err(|e| e.to_string())?;
        factory.quiet();
        factory.limits_mut().max_items_in_row = 50_000;
        Ok(Self {
            words: Arc::clone(words),
            vocab_size,
            compiler,
            verifying,
            pool,
            plain: Plain::new(factory)?,
            eos,
            explain,
            grammars: RefCell::new(None),
        })
    }

    fn ours(&self, case: &Case, masks: bool) -> Record {
        let mut record = Record::default();
        let spec = GrammarSpec::JsonSchema(case.schema.to_string());
        let started = Instant::now();
        let compiled = self.compiler.compile(&spec);
        record.compile = started.elapsed();
        let grammar = match compiled {
            Ok(grammar) => grammar,
            Err(error) => {
                record.refused = Some(error.message);
                record.path = error.param;
                return record;
            }
        };
        record.compile = grammar.facts().compile_time;
        *self.grammars.borrow_mut() = Some(grammar.clone());
        record.narrowed = narrowed(&case.schema);
        for (index, (valid, text, value)) in case.tests.iter().enumerate() {
            let id = SequenceId(index as u64);
            self.pool.register(id, &grammar);
            let tokens = self.words.encode_text(text);
            let stopped = self.walk(id, &tokens, masks, &mut record.masks);
            self.pool.remove(id);
            let vocabulary = self.words.vocabulary();
            let at = stopped.map(|count| tokens[..count].iter().map(|&t| vocabulary.bytes(t).len()).sum());
            let any_order = at.is_none() || {
                let judgement = grammar.judge(case.instance(value));
                self.explain(*valid, &judgement);
                judgement.accepted
            };
            record.verdicts.push(Verdict { valid: *valid, accepted: at.is_none(), any_order, at });
        }
        record
    }

    /// A refused schema again, with what no grammar holds checked beside it.
    fn verify(&self, case: &Case, refused: &Record) -> Record {
        if refused.refused.is_none() {
            return refused.without_times();
        }
        let mut record = Record::default();
        let started = Instant::now();
        let compiled = self.verifying.compile(&GrammarSpec::JsonSchema(case.schema.to_string()));
        record.compile = started.elapsed();
        let grammar = match compiled {
            Ok(grammar) => grammar,
            Err(error) => {
                record.refused = Some(error.message);
                record.path = error.param;
                return record;
            }
        };
        for (valid, text, value) in &case.tests {
            let holds = grammar.left_open(value);
            let accepted = holds == Some(true) && grammar.judge(Instance::Text(text)).accepted;
            let any_order = accepted
                || holds == Some(true) && {
                    let judgement = grammar.judge(case.instance(value));
                    self.explain(*valid, &judgement);
                    judgement.accepted
                };
            if self.explain && *valid && holds != Some(true) {
                println!("what is left open: {holds:?}");
            }
            record.verdicts.push(Verdict { valid: *valid, accepted, any_order, at: None });
        }
        record
    }

    fn explain(&self, valid: bool, judgement: &Judgement) {
        if self.explain && valid && !judgement.accepted {
            println!("{}: byte {:?} of {}", judgement.reason, judgement.rejected_at, judgement.text);
        }
    }

    /// The number of tokens that were allowed, unless all were and the text may end there.
    fn walk(
        &self,
        id: SequenceId,
        tokens: &[TokenId],
        masks: bool,
        times: &mut Vec<Duration>,
    ) -> Option<usize> {
        let mut out = AdvanceBatch::default();
        let mut batch = MaskBatch::default();
        let first = if masks { 0 } else { tokens.len() };
        for count in first..=tokens.len() {
            let slots = [MaskSlot { sequence: id, tokens: &tokens[..count] }];
            self.pool.advance(&slots, false, &mut out);
            match out.get(0).1 {
                AdvanceState::Sample => {}
                AdvanceState::Stop | AdvanceState::Limit => return (count < tokens.len()).then_some(count),
                AdvanceState::Failed(_) | AdvanceState::Retract { .. } => {
                    return Some(self.prefix(id, tokens));
                }
            }
            batch.reset(1, self.vocab_size);
            let started = Instant::now();
            self.pool.fill(&slots, &mut batch);
            times.push(started.elapsed());
            if *batch.verdict(0) == MaskVerdict::Stop && count == tokens.len() {
                return None;
            }
            if *batch.verdict(0) != MaskVerdict::Mask {
                return Some(if masks { count } else { self.prefix(id, tokens) });
            }
            let next = tokens.get(count).copied().unwrap_or(self.eos);
            if batch.row(0)[next as usize / 32] >> (next % 32) & 1 == 0 {
                return Some(if masks { count } else { self.prefix(id, tokens) });
            }
        }
        None
    }

    /// How many tokens the grammar takes, found one by one.
    fn prefix(&self, failed: SequenceId, tokens: &[TokenId]) -> usize {
        let Some(grammar) = self.grammars.borrow().clone() else { return 0 };
        let id = SequenceId(failed.0 + 1_000_000);
        self.pool.register(id, &grammar);
        let mut out = AdvanceBatch::default();
        let mut batch = MaskBatch::default();
        let fits = (0..tokens.len()).take_while(|&count| {
            let slots = [MaskSlot { sequence: id, tokens: &tokens[..count] }];
            self.pool.advance(&slots, false, &mut out);
            batch.reset(1, self.vocab_size);
            self.pool.fill(&slots, &mut batch);
            let next = tokens[count] as usize;
            *batch.verdict(0) == MaskVerdict::Mask && batch.row(0)[next / 32] >> (next % 32) & 1 == 1
        });
        let count = fits.count();
        self.pool.remove(id);
        count
    }

    fn plain(&self, case: &Case, masks: bool) -> Record {
        let mut record = Record::default();
        let matcher = match self.plain.compile(case.schema.to_string()) {
            Ok((matcher, time)) => {
                record.compile = time;
                matcher
            }
            Err(error) => {
                record.refused = Some(error);
                return record;
            }
        };
        for (valid, text, value) in &case.tests {
            let mut walked = matcher.deep_clone();
            let tokens = self.words.encode_text(text);
            let accepted = Self::walk_plain(&mut walked, &tokens, masks, &mut record.masks);
            let any_order = accepted || judge(matcher.deep_clone(), case.instance(value)).accepted;
            record.verdicts.push(Verdict { valid: *valid, accepted, any_order, at: None });
        }
        self.plain.kept.borrow_mut().push(matcher);
        record
    }

    fn walk_plain(matcher: &mut Matcher, tokens: &[TokenId], masks: bool, times: &mut Vec<Duration>) -> bool {
        for &token in tokens {
            if masks {
                let started = Instant::now();
                let mask = matcher.compute_mask();
                times.push(started.elapsed());
                if !mask.is_ok_and(|mask| mask.is_allowed(token)) {
                    return false;
                }
            }
            if matcher.is_stopped() || matcher.consume_token(token).is_err() {
                return false;
            }
        }
        let ends = matcher.is_stopped() || matcher.is_accepting().unwrap_or(false);
        ends && matcher.get_error().is_none()
    }
}
