//! Small tokenizers made by hand: a byte-level BPE and a SentencePiece-like BPE with byte fallback.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::{Map, Value, json};

/// A folder of its own with these files.
pub(crate) fn folder(files: &[(&str, Value)]) -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let folder =
        PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("tokenizer-{}-{number}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    for (name, content) in files {
        fs::write(folder.join(name), content.to_string()).unwrap();
    }
    folder
}

/// An entry of `added_tokens`.
pub(crate) fn added(id: u32, content: &str, special: bool) -> Value {
    json!({"id": id, "content": content, "special": special, "single_word": false, "lstrip": false,
        "rstrip": content == "<|user|>", "normalized": false})
}

fn bos_template(bos: &str, id: u32) -> Value {
    json!({"type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": bos, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {bos: {"id": bos, "ids": [id], "tokens": [bos]}}})
}

/// The character that stands for a byte in GPT-2's alphabet.
fn alphabet() -> Vec<char> {
    let printable = |byte: u32| matches!(byte, 0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF);
    let mut next = 0x100;
    (0..256)
        .map(|byte| {
            let code = if printable(byte) {
                byte
            } else {
                next += 1;
                next - 1
            };
            char::from_u32(code).unwrap()
        })
        .collect()
}

pub(crate) const BEGIN: u32 = 262;
pub(crate) const IM_START: u32 = 263;
pub(crate) const IM_END: u32 = 264;
pub(crate) const THINK: u32 = 265;

/// Ids 0 to 255 are the bytes; six merges; four added tokens, one of which is no control token.
pub(crate) fn byte_level() -> Value {
    let alphabet = alphabet();
    let mut vocab = Map::new();
    for (byte, character) in alphabet.iter().enumerate() {
        vocab.insert(character.to_string(), byte.into());
    }
    let merges = ["h e", "Ġ t", "Ġt he", "l l", "he ll", "hell o"];
    for (number, merge) in merges.iter().enumerate() {
        vocab.insert(merge.replace(' ', ""), (256 + number).into());
    }
    json!({
        "version": "1.0", "truncation": {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0},
        "padding": null,
        "added_tokens": [added(BEGIN, "<|begin|>", true), added(IM_START, "<|im_start|>", true),
            added(IM_END, "<|im_end|>", true), added(THINK, "<think>", false)],
        "normalizer": null,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
        "post_processor": bos_template("<|begin|>", BEGIN),
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": "",
            "end_of_word_suffix": "", "fuse_unk": false, "byte_fallback": false, "vocab": vocab,
            "merges": merges},
    })
}

pub(crate) const USER: u32 = 266;

/// `<unk>`, `<s>`, `</s>`, 256 byte tokens, some letters with merges, and `<|user|>`, which takes the
/// blanks after it. A blank is put before every text.
pub(crate) fn sentencepiece() -> Value {
    let mut vocab = Map::new();
    let mut names: Vec<String> = ["<unk>", "<s>", "</s>"].map(str::to_owned).to_vec();
    names.extend((0..256).map(|byte| format!("<0x{byte:02X}>")));
    names.extend(["▁", "a", "b", "▁a", "ab", "▁ab", "<"].map(str::to_owned));
    for (id, name) in names.into_iter().enumerate() {
        vocab.insert(name, id.into());
    }
    json!({
        "version": "1.0", "truncation": null, "padding": null,
        "added_tokens": [added(0, "<unk>", true), added(1, "<s>", true), added(2, "</s>", true),
            added(USER, "<|user|>", true)],
        "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
        "pre_tokenizer": null,
        "post_processor": bos_template("<s>", 1),
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"},
            {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        "model": {"type": "BPE", "dropout": null, "unk_token": "<unk>", "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": true, "byte_fallback": true, "vocab": vocab,
            "merges": ["▁ a", "a b", "▁a b"]},
    })
}
