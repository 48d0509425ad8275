//! What a request may ask for, as far as the stand-in lets it be seen.

mod common;

use std::sync::Arc;

use common::{EngineDir, Record, engine_of, finish, poll_until, spec, write_adapter};
use llgtrt_core::{
    Adapter, AdvanceBatch, ElementType, Engine, ErrorKind, Finish, HostTensor, LoadWeights, MaskBatch,
    MaskSlot, MaskSource, PromptTable, RequestOptions, SamplingParams, SequenceSpec, StopCause, TokenOutput,
};
use llgtrt_engine_trtllm::TrtllmEngine;

fn adapter(name: &str, load: LoadWeights) -> RequestOptions {
    RequestOptions { adapter: Some(Adapter { name: name.to_owned(), load }), ..RequestOptions::default() }
}

#[test]
fn adapters_of_the_engines_largest_rank_are_served() {
    let dir = EngineDir::new("");
    write_adapter(dir.path(), "large", 128);
    write_adapter(dir.path(), "larger", 129);
    let mut setup = dir.setup();
    setup.lora_root = Some(dir.path().to_path_buf());
    let mut engine = engine_of(&setup);
    // TensorRT-LLM's own default takes 64 at most, whatever the engine was built for.
    engine.submit(with(spec(1, "hello", 4), adapter("large", LoadWeights::Auto))).unwrap();
    assert_eq!(finish(&mut engine, &[1])[0].outputs.len(), 4);
    let error = engine.submit(with(spec(2, "hello", 4), adapter("larger", LoadWeights::Auto))).unwrap_err();
    assert!(error.message.contains("rank is 129"), "{error:?}");
}

#[test]
fn adapters_that_are_all_in_use_are_overload() {
    let dir = EngineDir::new("lora_cache=1\nstep_us=500\n");
    for name in ["a", "b"] {
        write_adapter(dir.path(), name, 8);
    }
    let mut setup = dir.setup();
    setup.lora_root = Some(dir.path().to_path_buf());
    let mut engine = engine_of(&setup);
    engine.submit(with(spec(1, "hello", 400), adapter("a", LoadWeights::Auto))).unwrap();
    engine.submit(with(spec(2, "hello", 4), adapter("b", LoadWeights::Auto))).unwrap();
    let mut records = vec![Record::default(); 2];
    poll_until(&mut engine, &[1, 2], &mut records, |records| records[1].finish.is_some());
    assert_eq!(records[1].failure().kind, ErrorKind::Overloaded);
    assert!(records[0].finish.is_none());
}

#[test]
fn adapters_are_loaded_on_demand_and_again_after_a_miss() {
    // Room for two of the three.
    let dir = EngineDir::new("lora_cache=2\n");
    for name in ["a", "b", "c"] {
        write_adapter(dir.path(), name, 8);
    }
    let mut setup = dir.setup();
    setup.lora_root = Some(dir.path().to_path_buf());
    let mut engine = engine_of(&setup);
    let mut id = 0;
    let mut run = |name: &str, load| {
        id += 1;
        engine.submit(with(spec(id, "hello", 6), adapter(name, load))).unwrap();
        finish(&mut engine, &[id]).remove(0)
    };
    let first: Vec<_> = ["a", "b", "c"].iter().map(|name| run(name, LoadWeights::Auto).tokens()).collect();
    assert!(first[0] != first[1] && first[1] != first[2], "adapters change nothing: {first:?}");
    // "a" was lost to "c": the miss is answered with its weights.
    let again = run("a", LoadWeights::Auto);
    assert_eq!((again.tokens(), again.finish), (first[0].clone(), Some(Finish::Length)));
    // "b" was lost to "a", and nobody may help.
    let never = run("b", LoadWeights::Never);
    assert!(never.failure().message.contains("not found in cache"), "{:?}", never.finish);
    assert_eq!(run("b", LoadWeights::Always).tokens(), first[1]);
    assert_eq!(run("b", LoadWeights::Never).tokens(), first[1]);

    let error = engine.submit(with(spec(99, "hello", 6), adapter("../a", LoadWeights::Auto))).unwrap_err();
    assert_eq!((error.kind, error.param.as_deref()), (ErrorKind::InvalidRequest, Some("lora_model")));
    assert!(!engine.has_work());
}

#[test]
fn adapters_need_a_folder() {
    let dir = EngineDir::new("");
    let error = dir.free_engine().submit(with(spec(1, "x", 2), adapter("a", LoadWeights::Auto))).unwrap_err();
    assert_eq!(error.param.as_deref(), Some("lora_model"));
}

#[test]
fn prefixes_are_found_in_the_cache_unless_salted() {
    let dir = EngineDir::new("");
    let mut engine = dir.free_engine();
    let prompt = "a prompt of three blocks and a bit more than that, see";
    let mut cached = |id, salt| {
        let options = RequestOptions { cache_salt: salt, ..RequestOptions::default() };
        engine.submit(with(spec(id, prompt, 2), options)).unwrap();
        finish(&mut engine, &[id]).remove(0).cached
    };
    assert_eq!(cached(1, None), Some(0));
    assert_eq!(cached(2, None), Some(48));
    assert_eq!(cached(3, Some(7)), Some(0));
    assert_eq!(cached(4, Some(7)), Some(48));
    let stats = engine.stats();
    assert_eq!((stats.prefix_cache_queries, stats.prefix_cache_hits), (4 * prompt.len() as u64, 96));
    let blocks = stats.cache_blocks.unwrap();
    assert!(blocks.max > 0 && blocks.free <= blocks.max && blocks.used <= blocks.max, "{blocks:?}");
    assert_eq!(blocks.tokens, 16);
    let batcher = stats.batcher.unwrap();
    assert_eq!(batcher.scheduled, batcher.context + batcher.generation);
    assert!(stats.memory.is_some());
    assert!(engine.native_stats_json().starts_with("{\"iter\":"));
}

#[test]
fn a_higher_priority_goes_first() {
    let dir = EngineDir::with("step_us=300\n", |config| config["build_config"]["max_batch_size"] = 1.into());
    let mut engine = dir.free_engine();
    engine.submit(spec(1, "runs", 200)).unwrap();
    let mut order = Vec::new();
    let mut poll = |engine: &mut TrtllmEngine| {
        let mut batch = llgtrt_core::StepBatch::default();
        engine.poll(std::time::Duration::from_millis(50), &mut batch).unwrap();
        order.extend(batch.started().iter().map(|(id, _)| id.0));
        order.clone()
    };
    while poll(&mut engine).is_empty() {}
    engine.submit(spec(2, "waits", 4)).unwrap();
    let urgent = RequestOptions { priority: Some(0.9), ..RequestOptions::default() };
    engine.submit(with(spec(3, "overtakes", 4), urgent)).unwrap();
    while poll(&mut engine).len() < 3 {}
    assert_eq!(order, [1, 3, 2]);
}

#[test]
fn runs_of_stop_tokens_and_bad_words_are_passed_on() {
    let dir = EngineDir::new("");
    let mut engine = dir.free_engine_with(spec(1, "hello", 12));
    let free = finish(&mut engine, &[1]).remove(0).tokens();
    let stop = RequestOptions { stop_words: vec![free[3..6].to_vec()], ..RequestOptions::default() };
    engine.submit(with(spec(2, "hello", 12), stop)).unwrap();
    let stopped = finish(&mut engine, &[2]).remove(0);
    assert_eq!(stopped.tokens(), free[..6]);
    assert_eq!(stopped.finish, Some(Finish::Stop(StopCause::StopToken(free[5]))));
    let bad = RequestOptions { bad_words: vec![vec![free[0]]], ..RequestOptions::default() };
    engine.submit(with(spec(3, "hello", 4), bad)).unwrap();
    assert!(!finish(&mut engine, &[3])[0].tokens().contains(&free[0]));
}

/// Allows the even tokens.
struct Even;

impl MaskSource for Even {
    fn advance(&self, slots: &[MaskSlot<'_>], _: bool, out: &mut AdvanceBatch) {
        for _ in slots {
            out.push(&[], llgtrt_core::AdvanceState::Sample);
        }
    }

    fn fill(&self, _: &[MaskSlot<'_>], batch: &mut MaskBatch) {
        for (row, _) in batch.rows_mut() {
            row.fill(0x5555_5555);
        }
    }
}

#[test]
fn the_removed_probability_is_reported_per_token() {
    let dir = EngineDir::new("");
    let mut engine = dir.engine(Arc::new(Even));
    let free = spec(2, "hello", 3);
    let sampling = SamplingParams { removed_mass: true, ..free.sampling.clone() };
    let constrained = SequenceSpec { constrained: true, sampling: sampling.clone(), ..spec(1, "hello", 7) };
    engine.submit(constrained).unwrap();
    engine.submit(SequenceSpec { sampling, ..free }).unwrap();
    let records = finish(&mut engine, &[1, 2]);
    assert!(records[0].tokens().iter().all(|token| token % 2 == 0));
    let mass = |output: &TokenOutput| output.removed_mass.unwrap();
    let masses = [0, 1].map(|index: usize| records[index].outputs.iter().map(mass).collect::<Vec<_>>());
    assert_eq!((masses[0].len(), masses[1].len()), (7, 3));
    // About half of 257 tokens of a hash.
    assert!(masses[0].iter().all(|mass| (0.2..0.8).contains(mass)), "{masses:?}");
    assert_eq!(masses[1], [0.0; 3]);
}

#[test]
fn prompt_tables_are_part_of_the_prompt() {
    let dir = EngineDir::with("", |config| {
        config["build_config"]["max_prompt_embedding_table_size"] = 2.into();
    });
    let mut engine = dir.free_engine();
    let vocab_size = engine.info().vocab_size;
    let table = |rows: usize, value: u8| {
        let embeddings = HostTensor {
            element: ElementType::Fp32,
            shape: vec![rows, 1],
            bytes: vec![value; rows * 4].into(),
        };
        let prompt_table = Some(PromptTable { embeddings, extra_ids: Vec::new() });
        RequestOptions { prompt_table, ..RequestOptions::default() }
    };
    let prompt: Arc<[u32]> = Arc::from([104, vocab_size, vocab_size + 1]);
    let spec = |id| SequenceSpec { prompt: Arc::clone(&prompt), ..spec(id, "x", 5) };
    for (id, value) in [(1, 7), (2, 7), (3, 8)] {
        engine.submit(with(spec(id), table(2, value))).unwrap();
    }
    let answers: Vec<_> = finish(&mut engine, &[1, 2, 3]).iter().map(Record::tokens).collect();
    assert_eq!(answers[0], answers[1]);
    assert_ne!(answers[0], answers[2]);
    let mut refused = |options| engine.submit(with(spec(4), options)).unwrap_err();
    assert_eq!(refused(table(3, 7)).param.as_deref(), Some("prompt_table"));
    assert!(refused(table(1, 7)).message.contains("outside the vocabulary"));
    assert!(refused(RequestOptions::default()).message.contains("outside the vocabulary"));
}

#[test]
fn padding_is_never_sampled() {
    // The stand-in gives padded tokens the largest logits: a mask has to cover them.
    let dir = EngineDir::new("padded_vocab_size=320\n");
    let mut engine = dir.engine(Arc::new(llgtrt_conformance::support::AllowAll));
    let sampling = SamplingParams { temperature: 1.0, min_p: 0.05, ..SamplingParams::default() };
    let constrained = SequenceSpec { constrained: true, sampling, ..spec(1, "hello", 50) };
    engine.submit(constrained).unwrap();
    assert!(finish(&mut engine, &[1])[0].tokens().iter().all(|token| *token < 257));
}

#[test]
fn what_the_engine_cannot_do_is_refused() {
    let dir = EngineDir::with("", |config| {
        config["build_config"]["gather_context_logits"] = false.into();
        config["build_config"]["speculative_decoding_mode"] = "LOOKAHEAD_DECODING".into();
    });
    let mut engine = dir.free_engine();
    let mut refused = |spec: SequenceSpec| engine.submit(spec).unwrap_err();
    let constrained = SequenceSpec { constrained: true, ..spec(1, "x", 2) };
    assert!(refused(constrained).message.contains("speculatively"));
    assert_eq!(
        refused(SequenceSpec { prompt_logprobs: true, ..spec(1, "x", 2) }).param.as_deref(),
        Some("prompt_logprobs")
    );
    assert_eq!(refused(spec(1, "x", 600)).kind, ErrorKind::ContextLength);
    let beams = RequestOptions { beam_width: Some(2), ..RequestOptions::default() };
    assert_eq!(refused(with(spec(1, "x", 2), beams)).param.as_deref(), Some("beam_width"));
    let lookahead = RequestOptions { lookahead: Some([4, 3, 4]), ..RequestOptions::default() };
    assert_eq!(refused(with(spec(1, "x", 2), lookahead)).param.as_deref(), Some("lookahead_config"));
    let words = RequestOptions { bad_words: vec![vec![65], vec![66, 257]], ..RequestOptions::default() };
    assert_eq!(refused(with(spec(1, "x", 2), words)).param.as_deref(), Some("bad_words"));
    let words = RequestOptions { stop_words: vec![vec![u32::MAX]], ..RequestOptions::default() };
    assert_eq!(refused(with(spec(1, "x", 2), words)).param.as_deref(), Some("stop"));
    assert_eq!(refused(spec(1, "", 6)).kind, ErrorKind::InvalidRequest);
    let dir = EngineDir::new("");
    let mut engine = dir.free_engine();
    let beams = RequestOptions { beam_width: Some(2), ..RequestOptions::default() };
    let constrained = SequenceSpec { constrained: true, ..spec(1, "x", 2) };
    assert!(engine.submit(with(constrained, beams)).unwrap_err().message.contains("beam width"));
}

/// The longest that the engine takes, far beyond the flag `--max_input_len` that nobody gave.
#[test]
fn prompts_may_be_as_long_as_the_engine_can_take_them() {
    let dir = EngineDir::with("", |config| {
        config["build_config"]["max_seq_len"] = 4096.into();
        config["build_config"]["max_num_tokens"] = 2048.into();
    });
    let prompt = |length: usize| "x".repeat(length);
    let mut engine = dir.free_engine();
    engine.submit(spec(1, &prompt(3000), 4)).unwrap();
    engine.submit(spec(2, &prompt(4095), 1)).unwrap();
    let lengths: Vec<_> = finish(&mut engine, &[1, 2]).iter().map(|record| record.outputs.len()).collect();
    assert_eq!(lengths, [4, 1]);
    assert_eq!(engine.submit(spec(3, &prompt(4096), 1)).unwrap_err().kind, ErrorKind::ContextLength);

    // Whole prompts have to fit a forward pass.
    let mut setup = dir.setup();
    setup.batching.enable_chunked_context = false;
    setup.batching.guaranteed_no_evict = true;
    let mut engine = engine_of(&setup);
    engine.submit(spec(1, &prompt(2048), 4)).unwrap();
    assert_eq!(finish(&mut engine, &[1])[0].outputs.len(), 4);
    assert_eq!(engine.submit(spec(2, &prompt(2049), 4)).unwrap_err().kind, ErrorKind::ContextLength);
}

/// With streaming, the executor repeats the whole answer of all beams in each response.
#[test]
fn tokens_of_beams_come_once() {
    let dir = EngineDir::new("");
    let mut setup = dir.setup();
    setup.config.max_beam_width = 2;
    let mut engine = engine_of(&setup);
    let options = RequestOptions { beam_width: Some(2), ..RequestOptions::default() };
    engine.submit(with(spec(1, "hello", 7), options)).unwrap();
    let record = finish(&mut engine, &[1]).remove(0);
    assert_eq!((record.outputs.len(), record.finish), (7, Some(Finish::Length)));
}

/// The executor looks at biases when it sets up its decoder, and fails every running request if it does not like one.
#[test]
fn a_bias_that_the_executor_cannot_apply_stops_nobody() {
    // 257 tokens do not divide by two processes; of one process only the arithmetic can be seen.
    let dir = EngineDir::with("", |config| {
        config["pretrained_config"]["mapping"]["world_size"] = 2.into();
        config["pretrained_config"]["mapping"]["tp_size"] = 2.into();
    });
    let error = dir.try_engine().err().expect("one process is not two");
    assert!(error.message.contains("mpirun -n 2 --bind-to none"), "{error:?}");
    // With one there is no padding, and biases work.
    let dir = EngineDir::new("");
    let mut engine = dir.free_engine_with(spec(1, "a neighbour", 9));
    let sampling = SamplingParams { logit_bias: vec![(65, 100.0)], ..spec(2, "x", 3).sampling };
    engine.submit(SequenceSpec { sampling, ..spec(2, "x", 3) }).unwrap();
    let records = finish(&mut engine, &[1, 2]);
    assert_eq!((records[0].outputs.len(), records[1].tokens()), (9, vec![65; 3]));
}

fn with(spec: SequenceSpec, options: RequestOptions) -> SequenceSpec {
    SequenceSpec { options: Some(Arc::new(options)), ..spec }
}
