//! Opening the plugin and loading an engine: what can be missing is said before anything is loaded.

mod common;

use std::path::PathBuf;
use std::sync::Arc;

use common::{EngineDir, build};
use llgtrt_conformance::support::{AllowAll, Bytes};
use llgtrt_core::{Error, ErrorKind};
use llgtrt_engine_trtllm::{TrtllmEngine, TrtllmSetup};

fn refusal(setup: &TrtllmSetup) -> Error {
    match TrtllmEngine::new(setup, Bytes::shared(), Arc::new(AllowAll)) {
        Ok(_) => panic!("the engine started"),
        Err(error) => {
            assert_eq!(error.kind, ErrorKind::Configuration, "{error:?}");
            error
        }
    }
}

fn with_plugin(dir: &EngineDir, path: Option<PathBuf>) -> Error {
    let mut setup = dir.setup();
    setup.config.plugin_path = path;
    refusal(&setup)
}

#[test]
fn a_plugin_that_cannot_be_used_is_explained() {
    let dir = EngineDir::new("");
    let cases = [
        (None, "llgtrt build-trtllm"),
        (Some("/nowhere/plugin.so".into()), "does not exist"),
        (Some(build().join("libllgtrt_other_abi.so")), "version 999 of the interface"),
        (Some(build().join("libllgtrt_no_symbols.so")), "is no TensorRT-LLM plugin"),
        (Some(build().join("libllgtrt_no_executor.so")), "no C++ executor"),
        (Some(dir.path().join("config.json")), "cannot be loaded"),
    ];
    for (path, expected) in cases {
        let error = with_plugin(&dir, path.clone());
        assert!(error.message.contains(expected), "{path:?}: {}", error.message);
        assert_eq!(error.param.as_deref(), Some("trtllm.plugin_path"));
    }
}

#[test]
fn libraries_are_looked_for_where_python_packages_keep_them() {
    let dir = EngineDir::new("");
    let mut setup = dir.setup();
    setup.config.plugin_path = Some(build().join("libllgtrt_needs_other.so"));
    assert!(refusal(&setup).message.contains("libllgtrt_elsewhere.so"));
    setup.library_folders = vec![build().to_path_buf(), build().join("elsewhere")];
    // Loaded, and then found to be of another version.
    assert!(refusal(&setup).message.contains("version 999 of the interface"));
}

#[test]
fn conflicts_are_found_before_the_plugin_is_opened() {
    let dir = EngineDir::with("", |config| {
        config["build_config"]["plugin_config"]["use_paged_context_fmha"] = false.into();
        config["build_config"]["plugin_config"]["lora_plugin"] = serde_json::Value::Null;
    });
    let mut setup = dir.setup();
    setup.config.plugin_path = Some("/nowhere/plugin.so".into());
    setup.lora_root = Some(dir.path().to_path_buf());
    setup.batching.max_batch_size = Some(64);
    let message = refusal(&setup).message;
    for field in [
        "runtime.enable_chunked_context",
        "runtime.enable_kv_cache_reuse",
        "lora_root",
        "runtime.max_batch_size",
    ] {
        assert!(message.contains(field), "{field}: {message}");
    }
    std::fs::remove_file(dir.path().join("rank0.engine")).unwrap();
    assert!(refusal(&dir.setup()).message.contains("no rank0.engine"));
    std::fs::write(dir.path().join("config.json"), "{").unwrap();
    assert!(refusal(&dir.setup()).message.contains("config.json"));
}

#[test]
fn a_tokenizer_of_another_model_is_refused() {
    let dir = EngineDir::with("", |config| config["pretrained_config"]["vocab_size"] = 100.into());
    assert!(refusal(&dir.setup()).message.contains("257 tokens and the engine 100"));
}
