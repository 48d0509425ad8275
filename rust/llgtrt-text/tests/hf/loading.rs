//! What the files and the options make of a tokenizer.

use llgtrt_core::{EncodeOptions, ErrorKind, Tokenizer};
use llgtrt_text::{HfTokenizer, TokenizerOptions};
use serde_json::{Value, json};

use crate::fixtures::{BEGIN, IM_END, IM_START, THINK, USER, added, byte_level, folder, sentencepiece};

const PROMPT: EncodeOptions = EncodeOptions { add_special: true, parse_special: true };

fn load(files: &[(&str, Value)], options: &TokenizerOptions) -> HfTokenizer {
    HfTokenizer::from_path(&folder(files), options).unwrap()
}

fn refused(tokenizer: &Value, options: &TokenizerOptions) -> String {
    let folder = folder(&[("tokenizer.json", tokenizer.clone())]);
    let error = HfTokenizer::from_path(&folder, options).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Configuration);
    assert!(error.message.contains("tokenizer.json"), "{error}");
    error.message
}

fn options(json: Value) -> TokenizerOptions {
    serde_json::from_value(json).unwrap()
}

#[test]
fn token_bytes_equal_those_of_toktrie() {
    for tokenizer in [byte_level(), sentencepiece()] {
        let bytes = tokenizer.to_string().into_bytes();
        let reference = toktrie_hf_tokenizers::ByteTokenizer::from_json_bytes(&bytes).unwrap().token_bytes();
        let ours = load(&[("tokenizer.json", tokenizer)], &TokenizerOptions::default());
        let vocabulary = ours.vocabulary();
        assert_eq!(vocabulary.len(), reference.len());
        for (id, expected) in reference.iter().enumerate() {
            let id = id as u32;
            // The reference marks control tokens with a leading 0xFF byte, and everything in angle
            // brackets as one.
            let expected =
                expected.strip_prefix(&[0xFF_u8]).filter(|name| !name.is_empty()).unwrap_or(expected);
            assert_eq!(vocabulary.bytes(id), expected, "token {id}");
        }
    }
}

#[test]
fn only_control_tokens_are_special() {
    let tokenizer = load(&[("tokenizer.json", byte_level())], &TokenizerOptions::default());
    let special: Vec<u32> = (0..tokenizer.vocabulary().len() as u32)
        .filter(|&token| tokenizer.vocabulary().is_special(token))
        .collect();
    assert_eq!(special, [BEGIN, IM_START, IM_END]);
    assert_eq!(tokenizer.vocabulary().bytes(THINK), b"<think>");
}

#[test]
fn a_file_is_as_good_as_its_folder() {
    let folder = folder(&[
        ("tokenizer.json", byte_level()),
        ("tokenizer_config.json", json!({"eos_token": "<|im_end|>"})),
    ]);
    for path in [folder.clone(), folder.join("tokenizer.json")] {
        let tokenizer = HfTokenizer::from_path(&path, &TokenizerOptions::default()).unwrap();
        assert_eq!(tokenizer.vocabulary().eos(), [IM_END]);
    }
}

#[test]
fn roles_come_from_the_files_in_order() {
    let config = json!({"bos_token": {"content": "<|begin|>"}, "eos_token": "<|im_end|>"});
    let map = json!({"bos_token": "<|im_start|>", "eos_token": {"content": "<|begin|>"}});
    let generation = json!({"bos_token_id": IM_START, "eos_token_id": [IM_END, BEGIN, 70_000]});
    let names = ["tokenizer_config.json", "special_tokens_map.json", "generation_config.json"];
    let roles = |given: &[(usize, &Value)], json: Value| {
        let mut files = vec![("tokenizer.json", byte_level())];
        files.extend(given.iter().map(|(name, content)| (names[*name], (*content).clone())));
        let tokenizer = load(&files, &options(json));
        (tokenizer.vocabulary().bos(), tokenizer.vocabulary().eos().to_vec())
    };
    let all = [(0, &config), (1, &map), (2, &generation)];
    assert_eq!(roles(&all, json!({})), (Some(BEGIN), vec![IM_END, BEGIN]));
    assert_eq!(roles(&all[1..], json!({})), (Some(IM_START), vec![BEGIN, IM_END]));
    assert_eq!(roles(&all[2..], json!({})), (Some(IM_START), vec![IM_END, BEGIN]));
    assert_eq!(roles(&[(2, &json!({"eos_token_id": BEGIN}))], json!({})), (None, vec![BEGIN]));
    assert_eq!(roles(&[], json!({})), (None, vec![IM_END]), "a common name, where no file says anything");
    let overrides = json!({"bos_token": "<|im_end|>", "eos_token": "<think>"});
    assert_eq!(roles(&all, overrides), (Some(IM_END), vec![THINK, IM_END, BEGIN]));
    assert_eq!(
        roles(&all, json!({"bos_token": null, "eos_token": null})),
        (Some(BEGIN), vec![IM_END, BEGIN])
    );
}

#[test]
fn a_token_with_a_role_is_a_control_token() {
    let tokenizer = load(&[("tokenizer.json", byte_level())], &options(json!({"eos_token": "<think>"})));
    assert!(tokenizer.vocabulary().is_special(THINK));
    assert_eq!(tokenizer.vocabulary().bytes(THINK), b"<think>");
}

#[test]
fn p25_bos_is_added_once_or_as_the_options_say() {
    let config = json!({"bos_token": "<|begin|>"});
    let files = [("tokenizer.json", byte_level()), ("tokenizer_config.json", config)];
    let encode = |json: Value, text: &str| load(&files, &options(json)).encode(text, PROMPT).unwrap();
    let a = u32::from(b'a');
    assert_eq!(encode(json!({}), "a"), [BEGIN, a]);
    assert_eq!(encode(json!({}), "<|begin|>a"), [BEGIN, a], "the template wrote it already");
    assert_eq!(encode(json!({}), ""), [BEGIN]);
    assert_eq!(encode(json!({"add_bos_token": false}), "a"), [a]);
    assert_eq!(encode(json!({"add_bos_token": true}), "<|begin|>a"), [BEGIN, a]);
    assert_eq!(encode(json!({"bos_token": "<|im_start|>"}), "a"), [IM_START, a]);
    assert_eq!(encode(json!({"bos_token": "<|im_start|>"}), "<|im_start|>a"), [IM_START, a]);
}

#[test]
fn p25_the_files_say_whether_bos_is_added() {
    let mut without = byte_level();
    without["post_processor"] = Value::Null;
    let encode = |tokenizer: Value, config: Value| {
        let files = [("tokenizer.json", tokenizer), ("tokenizer_config.json", config)];
        load(&files, &TokenizerOptions::default()).encode("a", PROMPT).unwrap()
    };
    let a = u32::from(b'a');
    assert_eq!(encode(without.clone(), json!({"bos_token": "<|begin|>"})), [a]);
    assert_eq!(encode(without, json!({"bos_token": "<|begin|>", "add_bos_token": true})), [BEGIN, a]);
    assert_eq!(encode(byte_level(), json!({"bos_token": "<|begin|>", "add_bos_token": false})), [a]);
    assert_eq!(encode(byte_level(), json!({})), [BEGIN, a], "the post-processor alone");
}

#[test]
fn p25_a_prefix_of_several_tokens_and_a_suffix() {
    let mut tokenizer = byte_level();
    let special = |name: &str| json!({"SpecialToken": {"id": name, "type_id": 0}});
    let text = json!({"Sequence": {"id": "A", "type_id": 0}});
    tokenizer["post_processor"]["single"] =
        json!([special("<|begin|>"), special("<|im_start|>"), text, special("<|im_end|>")]);
    tokenizer["post_processor"]["special_tokens"] = json!({
        "<|begin|>": {"id": "<|begin|>", "ids": [BEGIN], "tokens": ["<|begin|>"]},
        "<|im_start|>": {"id": "<|im_start|>", "ids": [IM_START], "tokens": ["<|im_start|>"]},
        "<|im_end|>": {"id": "<|im_end|>", "ids": [IM_END], "tokens": ["<|im_end|>"]},
    });
    let config = json!({"bos_token": "<|begin|>"});
    let tokenizer = load(
        &[("tokenizer.json", tokenizer), ("tokenizer_config.json", config)],
        &TokenizerOptions::default(),
    );
    let a = u32::from(b'a');
    for (text, expected) in [
        ("a", vec![BEGIN, IM_START, a]),
        ("<|begin|><|im_start|>a", vec![BEGIN, IM_START, a]),
        ("<|begin|>a", vec![BEGIN, a]),
        ("<|im_start|>a", vec![BEGIN, IM_START, IM_START, a]),
    ] {
        assert_eq!(tokenizer.encode(text, PROMPT).unwrap(), expected, "{text}");
    }
}

#[test]
fn the_vocabulary_can_be_wider_than_the_files() {
    let tokenizer = load(&[("tokenizer.json", sentencepiece())], &options(json!({"n_vocab_override": 320})));
    let vocabulary = tokenizer.vocabulary();
    assert_eq!(vocabulary.len(), 320);
    assert!(vocabulary.is_special(319) && vocabulary.bytes(319).is_empty());
    let message = refused(&sentencepiece(), &options(json!({"n_vocab_override": USER})));
    assert!(message.contains("n_vocab_override is 266, but the tokenizer has 267 tokens"), "{message}");
}

#[test]
fn ids_with_gaps_are_padded() {
    let mut tokenizer = byte_level();
    tokenizer["model"]["vocab"]["hello"] = 400.into();
    let tokenizer = load(&[("tokenizer.json", tokenizer)], &TokenizerOptions::default());
    let vocabulary = tokenizer.vocabulary();
    assert_eq!((vocabulary.len(), vocabulary.bytes(400)), (401, &b"hello"[..]));
    assert!(vocabulary.is_special(261) && vocabulary.bytes(261).is_empty());
}

#[test]
fn unusable_files_are_errors_that_name_them() {
    let defaults = TokenizerOptions::default();
    for tokenizer in [json!({}), json!([]), json!("a"), json!({"model": {"type": "BPE"}, "decoder": 7})] {
        refused(&tokenizer, &defaults);
    }
    let mut no_decoder = byte_level();
    no_decoder["decoder"] = Value::Null;
    assert!(refused(&no_decoder, &defaults).contains("decoder"));
    let mut far = byte_level();
    far["model"]["vocab"]["x"] = 4_000_000_000_u32.into();
    refused(&far, &defaults);
    let mut twice = byte_level();
    twice["added_tokens"].as_array_mut().unwrap().push(added(5, "<|begin|>", true));
    // Whatever becomes of an id given twice, it must not end the process.
    let _ = HfTokenizer::from_path(&folder(&[("tokenizer.json", twice)]), &defaults);

    assert!(
        refused(&byte_level(), &options(json!({"eos_token": "<nope>"}))).contains("eos_token is \"<nope>\"")
    );
    assert!(refused(&byte_level(), &options(json!({"add_bos_token": true}))).contains("no bos_token"));

    let missing = HfTokenizer::from_path(&folder(&[]), &defaults).unwrap_err();
    assert!(missing.message.contains("tokenizer.json"), "{missing}");
    let files = folder(&[("tokenizer.json", byte_level())]);
    std::fs::write(files.join("generation_config.json"), "{").unwrap();
    let broken = HfTokenizer::from_path(&files, &defaults).unwrap_err();
    assert!(broken.message.contains("generation_config.json"), "{broken}");
}

#[test]
fn unknown_options_are_refused() {
    assert!(serde_json::from_value::<TokenizerOptions>(json!({"bos": "x"})).is_err());
}
