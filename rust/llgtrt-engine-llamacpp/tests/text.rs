//! The tokenizer of a model file: exact bytes, roles, BOS, control tokens, and texts made to break it.

mod common;
#[path = "common/patch.rs"]
mod patch;

use std::sync::Arc;

use common::*;
use llgtrt_core::{EncodeOptions, Tokenizer};
use llgtrt_engine_llamacpp::{LlamaCppConfig, LlamaCppModel};
use patch::*;

const PLAIN: EncodeOptions = EncodeOptions { add_special: false, parse_special: false };
const SPECIAL: EncodeOptions = EncodeOptions { add_special: true, parse_special: true };

/// The demo model with its metadata changed.
fn patched(name: &str, change: impl FnOnce(&mut Vec<u8>)) -> Option<(TempFile, LlamaCppModel)> {
    let mut bytes = std::fs::read(model_path()?).unwrap();
    change(&mut bytes);
    let file = TempFile::new(name, &bytes);
    let config = LlamaCppConfig { model_path: file.path().into(), ..LlamaCppConfig::default() };
    let model = LlamaCppModel::load(&config).unwrap();
    Some((file, model))
}

#[test]
fn tokens_have_their_exact_bytes_and_roles() {
    let Some(model) = model() else { return };
    let tokenizer = model.tokenizer();
    let vocabulary = tokenizer.vocabulary();
    assert_eq!(vocabulary.len(), 49_152);
    for text in
        ["plain words", "tabs\tand\nlines \r\n", "Größe, 東京, 😀👩‍👩‍👧", "\u{0}\u{7f}", "  two  spaces  "]
    {
        let tokens = tokenizer.encode(text, PLAIN).unwrap();
        let bytes: Vec<u8> = tokens.iter().flat_map(|&token| vocabulary.bytes(token)).copied().collect();
        assert_eq!(bytes, text.as_bytes());
        assert!(tokens.iter().all(|&token| !vocabulary.is_special(token)));
    }
    let single = |byte: u8| (0..vocabulary.len() as u32).any(|token| vocabulary.bytes(token) == [byte]);
    assert!((0x80..0xC0).all(single), "a piece of a character is a token of its own");
    assert_eq!(vocabulary.bytes(vocabulary.eos()[0]), b"<|im_end|>");
    assert_eq!(vocabulary.bytes(vocabulary.bos().unwrap()), b"<|im_start|>");
    assert!(vocabulary.eos().iter().any(|&token| vocabulary.bytes(token) == b"<|endoftext|>"));
    assert!(vocabulary.eos().iter().all(|&token| vocabulary.is_special(token)));
}

#[test]
fn text_becomes_control_tokens_only_if_asked_to() {
    let Some(model) = model() else { return };
    let tokenizer = model.tokenizer();
    let text = "<|im_start|>user";
    let special = tokenizer.encode(text, EncodeOptions { parse_special: true, ..PLAIN }).unwrap();
    assert_eq!(special[0], tokenizer.vocabulary().bos().unwrap());
    let plain = tokenizer.encode(text, PLAIN).unwrap();
    assert!(plain.iter().all(|&token| !tokenizer.vocabulary().is_special(token)));
    assert_eq!(decode(model, &plain), text);
}

#[test]
fn bos_is_added_once_and_only_where_the_model_wants_it() {
    let Some(model) = model() else { return };
    assert_eq!(model.tokenizer().encode("Hi", SPECIAL).unwrap().len(), 1, "this model adds none");
    let change = |bytes: &mut Vec<u8>| {
        let place = value_of(bytes, "tokenizer.ggml.add_bos_token");
        bytes[place] = 1;
    };
    let Some((_file, model)) = patched("bos", change) else { return };
    let tokenizer = model.tokenizer();
    let bos = tokenizer.vocabulary().bos().unwrap();
    let encode = |text, options| tokenizer.encode(text, options).unwrap();
    assert_eq!(encode("Hi", PLAIN).len(), 1);
    assert_eq!(encode("Hi", SPECIAL)[..1], [bos]);
    assert_eq!(encode("", SPECIAL), [bos]);
    let count = |tokens: Vec<u32>| tokens.iter().filter(|&&token| token == bos).count();
    assert_eq!(count(encode("<|im_start|>Hi", SPECIAL)), 1, "the template has added it already");
    let as_text = EncodeOptions { parse_special: false, ..SPECIAL };
    assert_eq!(encode("<|im_start|>Hi", as_text)[..1], [bos], "a text is not a control token");
}

#[test]
fn the_model_tells_about_itself() {
    let Some(model) = model() else { return };
    let info = model.info();
    assert_eq!((info.trained_context, info.vocab_size), (8192, 49_152));
    assert_eq!((info.bos.as_deref(), info.eos.as_deref()), (Some("<|im_start|>"), Some("<|im_end|>")));
    assert!(info.chat_template.as_deref().unwrap().contains("<|im_start|>"));
    assert_eq!(info.metadata["general.architecture"], "llama");
    assert!(info.special_tokens.iter().any(|(_, text)| text == "<|endoftext|>"));
    assert!(info.weight_bytes > 90_000_000);
}

/// Megabytes that have no word to split at, on a thread with the stack of an ordinary one.
fn survives(tokenizer: &Arc<dyn Tokenizer>) {
    for unit in ["a", " ", "\n", "😀", ".", "1", "aB", "a'", "<|im_end|>", "\u{301}", "東京", "x \n"] {
        let text = unit.repeat((1 << 20) / unit.len());
        let tokenizer = Arc::clone(tokenizer);
        let thread = std::thread::Builder::new().stack_size(2 << 20);
        let check = move || {
            let tokens = tokenizer.encode(&text, EncodeOptions { parse_special: true, ..PLAIN }).unwrap();
            let vocabulary = tokenizer.vocabulary();
            let bytes: Vec<u8> = tokens.iter().flat_map(|&token| vocabulary.bytes(token)).copied().collect();
            assert!(bytes == text.as_bytes(), "{unit:?} came back changed");
        };
        thread.spawn(check).unwrap().join().unwrap();
    }
}

#[test]
fn texts_without_words_do_not_kill_the_process() {
    let Some(model) = model() else { return };
    survives(&model.tokenizer());
}

#[test]
fn nor_do_they_where_llama_cpp_splits_with_its_recursive_regex() {
    let change = |bytes: &mut Vec<u8>| set_text(bytes, "tokenizer.ggml.pre", "tekken");
    let Some((_file, model)) = patched("tekken", change) else { return };
    survives(&model.tokenizer());
}

#[test]
fn a_text_beyond_all_contexts_is_refused() {
    let Some(model) = model() else { return };
    let error = model.tokenizer().encode(&"a ".repeat(9 << 20), PLAIN).unwrap_err();
    assert_eq!(error.kind, llgtrt_core::ErrorKind::InvalidRequest);
}
