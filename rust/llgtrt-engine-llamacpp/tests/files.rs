//! Model files that are missing, damaged or something else: one clear error each, and never a crash.

mod common;
#[path = "common/patch.rs"]
mod patch;

use std::sync::Arc;

use common::*;
use llgtrt_core::{Error, ErrorKind};
use llgtrt_engine_llamacpp::{LlamaCppConfig, LlamaCppEngine, LlamaCppModel};
use patch::*;

fn load(path: impl Into<std::path::PathBuf>) -> Error {
    let config = LlamaCppConfig { model_path: path.into(), ..LlamaCppConfig::default() };
    let error = LlamaCppModel::load(&config).err().expect("an unusable file loads");
    assert_eq!(error.kind, ErrorKind::Configuration);
    assert!(!error.message.contains('\n'), "{}", error.message);
    error
}

#[test]
fn a_missing_file_is_named() {
    let error = load("/nonexistent/model.gguf");
    assert!(
        error.message.contains("model.gguf") && !error.message.contains("/nonexistent"),
        "{}",
        error.message
    );
    assert_eq!(load("").param.as_deref(), Some("model_path"));
}

#[test]
fn a_folder_must_hold_one_model() {
    let folder = std::env::temp_dir().join(format!("llgtrt-models-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    assert!(load(&folder).message.contains("no GGUF file"));
    std::fs::write(folder.join("a.gguf"), "text").unwrap();
    assert!(load(&folder).message.contains("a.gguf: is not a GGUF file"));
    std::fs::write(folder.join("b-00001-of-00002.gguf"), "text").unwrap();
    std::fs::write(folder.join("b-00002-of-00002.gguf"), "text").unwrap();
    assert!(load(&folder).message.contains("2 GGUF files"));
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn other_files_are_no_models() {
    for (name, bytes) in
        [("empty", &b""[..]), ("short", b"GG"), ("text", b"hello, world"), ("magic", b"GGUF")]
    {
        let file = TempFile::new(name, bytes);
        let message = load(file.path()).message;
        assert!(message.contains("is not a GGUF file") || message.contains("is truncated"), "{message}");
    }
}

#[test]
fn a_truncated_model_is_refused_wherever_it_ends() {
    let Some(path) = model_path() else { return };
    let bytes = std::fs::read(path).unwrap();
    let lengths = [5, 100, 3_000, 500_000, 1_770_000, 1_785_000, 1_786_000, 40_000_000, bytes.len() - 1];
    for length in lengths {
        let file = TempFile::new("cut", &bytes[..length]);
        load(file.path());
    }
}

#[test]
fn numbers_that_cannot_be_are_refused() {
    let Some(path) = model_path() else { return };
    let bytes = std::fs::read(path).unwrap();
    let impossible = [
        ("llama.block_count", 0),
        ("llama.block_count", 31),
        ("llama.block_count", u32::MAX),
        ("llama.embedding_length", 0),
        ("llama.embedding_length", 577),
        ("llama.attention.head_count", u32::MAX),
        ("llama.attention.head_count", 7),
        ("llama.attention.head_count_kv", 0),
        ("llama.attention.head_count_kv", 2),
        ("llama.context_length", 0),
        ("llama.feed_forward_length", 5),
        ("llama.rope.dimension_count", 63),
    ];
    for (key, value) in impossible {
        let mut bytes = bytes.clone();
        let place = value_of(&bytes, key);
        bytes[place..place + 4].copy_from_slice(&value.to_le_bytes());
        let file = TempFile::new("number", &bytes);
        let message = load(file.path()).message;
        println!("{key} = {value}: {message}");
    }
}

#[test]
fn another_architecture_or_tokenizer_is_refused() {
    let Some(path) = model_path() else { return };
    let bytes = std::fs::read(path).unwrap();
    for (key, text) in [
        ("general.architecture", "llamb"),
        ("tokenizer.ggml.model", "gpt9"),
        ("tokenizer.ggml.pre", "nobody"),
    ] {
        let mut bytes = bytes.clone();
        set_text(&mut bytes, key, text);
        let file = TempFile::new("unknown", &bytes);
        println!("{key}: {}", load(file.path()).message);
    }
}

#[test]
fn a_cache_that_does_not_fit_names_the_options() {
    // Set to 1, the system promises any amount of memory.
    if std::fs::read_to_string("/proc/sys/vm/overcommit_memory").is_ok_and(|way| way.trim() == "1") {
        println!("skipped: this machine never refuses memory");
        return;
    }
    let Some(model) = model_with(|config| {
        // 3 TB.
        config.max_batch_size = 8;
        config.max_sequence_tokens = Some(1 << 24);
    }) else {
        return;
    };
    let error = LlamaCppEngine::new(&model, Arc::new(Script::default())).err().expect("no such machine");
    assert_eq!(error.kind, ErrorKind::Configuration);
    for part in ["8 slots of 16777216 tokens", "runtime.max_batch_size", "runtime.max_seq_len"] {
        assert!(error.message.contains(part), "{}", error.message);
    }
}
