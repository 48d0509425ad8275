//! The plugin built with the stand-in of the executor, and engine folders for it.
#![allow(dead_code, reason = "each test file uses a part")]
#![allow(missing_docs, unreachable_pub, reason = "a module of tests")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use llgtrt_conformance::support::{AllowAll, Bytes};
use llgtrt_core::{
    Engine, Finish, MaskSource, SamplingParams, SequenceId, SequenceSpec, StepBatch, TokenId, TokenOutput,
};
use llgtrt_engine_trtllm::{TrtllmConfig, TrtllmEngine, TrtllmSetup};

/// Folder of the built plugin and its companions. Built once per process; a second build does nothing.
pub fn build() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("trtllm-plugin");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("plugin");
        let cmake = std::env::var_os("CMAKE").unwrap_or_else(|| "cmake".into());
        let run = |command: &mut Command| {
            let output = command.output().unwrap_or_else(|error| {
                panic!("CMake does not run ({error}): see \"To call cargo yourself\" in docs/contributing.md")
            });
            let text = [output.stdout, output.stderr].concat();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&text));
        };
        run(Command::new(&cmake).arg("-S").arg(source).arg("-B").arg(&folder).args([
            "-DLLGTRT_STANDIN=ON",
            "-DLLGTRT_TESTS=ON",
            "-DCMAKE_BUILD_TYPE=Release",
        ]));
        run(Command::new(&cmake).arg("--build").arg(&folder).args(["--parallel", "2"]));
        folder
    })
}

pub fn plugin() -> PathBuf {
    build().join("libllgtrt_trtllm.so")
}

/// An engine folder, removed when dropped.
pub struct EngineDir(PathBuf);

impl Drop for EngineDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl EngineDir {
    /// For the byte tokenizer, with the stand-in's switches (`key=value` lines).
    pub fn new(switches: &str) -> Self {
        Self::with(switches, |_| {})
    }

    /// `change` edits config.json.
    pub fn with(switches: &str, change: impl FnOnce(&mut serde_json::Value)) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("llgtrt-trtllm-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        let mut config = Self::built();
        let model = &mut config["pretrained_config"];
        model["vocab_size"] = 257.into();
        model["num_hidden_layers"] = 4.into();
        model["dtype"] = "float16".into();
        let build = &mut config["build_config"];
        build["max_batch_size"] = 4.into();
        build["max_seq_len"] = 512.into();
        build["max_num_tokens"] = 256.into();
        build["max_beam_width"] = 2.into();
        build["lora_config"]["max_lora_rank"] = 128.into();
        build["plugin_config"]["lora_plugin"] = "float16".into();
        build["plugin_config"]["tokens_per_block"] = 16.into();
        change(&mut config);
        std::fs::write(folder.join("config.json"), config.to_string()).unwrap();
        std::fs::write(folder.join("rank0.engine"), b"").unwrap();
        std::fs::write(folder.join("standin.conf"), switches).unwrap();
        Self(folder)
    }

    /// `config.json` as trtllm-build writes it without a flag.
    pub fn built() -> serde_json::Value {
        serde_json::from_str(include_str!("../engines/defaults.json")).unwrap()
    }

    /// An engine that returns the logits of prompts, for which TensorRT-LLM gives up reusing prefixes.
    pub fn with_context_logits(switches: &str) -> Self {
        Self::with(switches, |config| config["build_config"]["gather_context_logits"] = true.into())
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn setup(&self) -> TrtllmSetup {
        TrtllmSetup {
            engine_dir: self.0.clone(),
            config: TrtllmConfig { plugin_path: Some(plugin()), ..TrtllmConfig::default() },
            ..TrtllmSetup::default()
        }
    }

    pub fn engine(&self, masks: Arc<dyn MaskSource>) -> TrtllmEngine {
        TrtllmEngine::new(&self.setup(), Bytes::shared(), masks).expect("the stand-in starts")
    }

    pub fn free_engine(&self) -> TrtllmEngine {
        self.engine(Arc::new(AllowAll))
    }
}

/// A greedy sequence with a prompt of its own; bytes are tokens.
pub fn spec(id: u64, prompt: &str, max_tokens: u32) -> SequenceSpec {
    SequenceSpec {
        id: SequenceId(id),
        prompt: prompt.bytes().map(TokenId::from).collect(),
        max_tokens,
        sampling: SamplingParams { temperature: 0.0, ignore_eos: true, ..SamplingParams::default() },
        stop_token_ids: Arc::from([]),
        constrained: false,
        prompt_logprobs: false,
        options: None,
        processor: None,
        phase: llgtrt_core::Phase::Whole,
    }
}

/// What was reported of one sequence.
#[derive(Debug, Clone, Default)]
pub struct Record {
    pub outputs: Vec<TokenOutput>,
    pub finish: Option<Finish>,
    pub cached: Option<u32>,
}

impl Record {
    pub fn tokens(&self) -> Vec<TokenId> {
        self.outputs.iter().map(|output| output.token).collect()
    }

    pub fn failure(&self) -> &llgtrt_core::Error {
        match &self.finish {
            Some(Finish::Failed(error)) => error,
            other => panic!("it ended with {other:?}"),
        }
    }
}

/// Polls until `ids` have ended.
pub fn finish(engine: &mut dyn Engine, ids: &[u64]) -> Vec<Record> {
    let mut records = vec![Record::default(); ids.len()];
    poll_until(engine, ids, &mut records, |records| records.iter().all(|record| record.finish.is_some()));
    records
}

/// Polls until `done`.
pub fn poll_until(
    engine: &mut dyn Engine,
    ids: &[u64],
    records: &mut [Record],
    done: impl Fn(&[Record]) -> bool,
) {
    let start = Instant::now();
    let mut batch = StepBatch::default();
    while !done(records) {
        assert!(start.elapsed() < Duration::from_secs(60), "no end: {records:?}");
        batch.clear();
        engine.poll(Duration::from_millis(50), &mut batch).expect("the engine lives");
        note(&batch, ids, records);
    }
}

/// Adds a batch to the records.
pub fn note(batch: &StepBatch, ids: &[u64], records: &mut [Record]) {
    for (output, tokens) in batch.iter() {
        let index = ids.iter().position(|id| *id == output.id.0).expect("a sequence of this test");
        let record = &mut records[index];
        assert!(record.finish.is_none(), "output after the end of {}", output.id.0);
        record.outputs.extend_from_slice(tokens);
        record.finish.clone_from(&output.finish);
        record.cached = record.cached.or(output.cached_prompt_tokens);
    }
}

impl EngineDir {
    pub fn try_engine(&self) -> llgtrt_core::Result<TrtllmEngine> {
        TrtllmEngine::new(&self.setup(), Bytes::shared(), Arc::new(AllowAll))
    }

    /// An engine with a first sequence.
    pub fn free_engine_with(&self, spec: SequenceSpec) -> TrtllmEngine {
        let mut engine = self.free_engine();
        engine.submit(spec).unwrap();
        engine
    }
}

/// An engine of a changed setup.
pub fn engine_of(setup: &TrtllmSetup) -> TrtllmEngine {
    TrtllmEngine::new(setup, Bytes::shared(), Arc::new(AllowAll)).expect("the stand-in starts")
}

/// One row: module 0 (`attn_qkv`), layer 0, of this rank; halves as the model's weights.
pub fn write_adapter(root: &Path, name: &str, rank: i32) {
    let header = r#"{"weights":{"dtype":"F16","shape":[1,8],"data_offsets":[0,16]},"config":{"dtype":"I32","shape":[1,3],"data_offsets":[16,28]}}"#;
    let row: Vec<u8> = [0, 0, rank].iter().flat_map(|number: &i32| number.to_ne_bytes()).collect();
    let bytes = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &[0; 16], &row].concat();
    std::fs::write(root.join(format!("{name}.safetensors")), bytes).unwrap();
}
