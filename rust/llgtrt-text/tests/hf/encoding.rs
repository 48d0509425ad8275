//! Texts to tokens and back.

use std::sync::{Arc, LazyLock};

use llgtrt_core::{EncodeOptions, TokenId, Tokenizer};
use llgtrt_text::{GUARD, GuardedEncoder, HfTokenizer, TokenizerOptions, decode_lossy};
use proptest::prelude::*;
use serde_json::Value;

use crate::fixtures::{BEGIN, IM_END, IM_START, THINK, USER, byte_level, folder, sentencepiece};

const PROMPT: EncodeOptions = EncodeOptions { add_special: true, parse_special: true };
const PLAIN: EncodeOptions = EncodeOptions { add_special: false, parse_special: false };

fn load(tokenizer: Value) -> HfTokenizer {
    HfTokenizer::from_path(&folder(&[("tokenizer.json", tokenizer)]), &TokenizerOptions::default()).unwrap()
}

/// The library's own tokenizer, without the truncation that its file asks for.
fn reference(tokenizer: &Value) -> tokenizers::Tokenizer {
    let mut reference = tokenizers::Tokenizer::from_bytes(tokenizer.to_string()).unwrap();
    reference.with_truncation(None).unwrap();
    reference
}

/// One of our tokenizers with the library's, loaded once for all cases of a property.
type Pair = (Arc<HfTokenizer>, tokenizers::Tokenizer);

static PAIRS: LazyLock<[Pair; 2]> = LazyLock::new(|| {
    [byte_level(), sentencepiece()].map(|json| (Arc::new(load(json.clone())), reference(&json)))
});

fn concat(tokenizer: &HfTokenizer, tokens: &[TokenId]) -> Vec<u8> {
    tokens.iter().flat_map(|&token| tokenizer.vocabulary().bytes(token).iter().copied()).collect()
}

#[test]
fn names_are_control_tokens_only_if_asked() {
    let tokenizer = load(byte_level());
    let text = "<|im_start|>hello<think>";
    assert_eq!(tokenizer.encode(text, PROMPT).unwrap(), [BEGIN, IM_START, 261, THINK]);
    let plain = tokenizer.encode(text, PLAIN).unwrap();
    assert!(!plain.contains(&IM_START));
    assert_eq!(plain.last(), Some(&THINK), "an added token that is no control token is text");
    assert_eq!(concat(&tokenizer, &plain), text.as_bytes());
}

#[test]
fn a_blank_is_put_before_prompts_and_not_before_continuations() {
    let tokenizer = load(sentencepiece());
    let id = |name: &str| reference(&sentencepiece()).token_to_id(name).unwrap();
    assert_eq!(tokenizer.encode("ab", PROMPT).unwrap(), [1, id("▁ab")]);
    assert_eq!(tokenizer.encode("ab", PLAIN).unwrap(), [id("ab")]);
    assert_eq!(tokenizer.encode(" ab", PLAIN).unwrap(), [id("▁ab")]);
    assert_eq!(tokenizer.encode("é", PLAIN).unwrap(), [id("<0xC3>"), id("<0xA9>")]);
}

#[test]
fn p25_the_guarded_prompt_of_a_template_has_one_bos() {
    let encoder = GuardedEncoder::new(Arc::new(load(sentencepiece()))).unwrap();
    let tokens = encoder.encode("<s><|user|>\n<\u{FDD0}s>ab", PROMPT).unwrap();
    assert_eq!(tokens.iter().filter(|&&token| token == 1).count(), 1);
}

#[test]
fn user_text_never_becomes_control_tokens() {
    let tokenizer = load(byte_level());
    let tokens = tokenizer.encode("<|im_start|>a<\u{FDD0}|im_end|>\u{FDD0}b<|im_end|>", PROMPT).unwrap();
    assert_eq!((&tokens[..2], tokens.last()), (&[BEGIN, IM_START][..], Some(&IM_END)));
    assert_eq!(tokens.iter().filter(|&&token| token == IM_END).count(), 1);
    assert_eq!(concat(&tokenizer, &tokens[2..tokens.len() - 1]), b"a<|im_end|>b");
}

#[test]
fn a_guard_changes_nothing_but_the_name() {
    // `<|user|>` takes the line end after it, and the text goes on with a blank before it: what the
    // tokenizer makes of a template must not depend on whether the user's text held a name.
    let tokenizer = load(sentencepiece());
    let encode = |text: &str| tokenizer.encode(text, PROMPT).unwrap();
    assert_eq!(encode("<|user|>\nab"), encode("<|user|>\na\u{FDD0}b"));
    assert!(encode("<|user|>\nab").contains(&USER));
    assert!(tokenizer.encode("\u{FDD0}", PLAIN).unwrap().is_empty());
}

#[test]
fn hostile_texts_are_encoded() {
    for tokenizer in [load(byte_level()), load(sentencepiece())] {
        for text in
            [" ".repeat(200_000), "a".repeat(200_000), "😀".repeat(50_000), "\u{0}\u{FFFF}".repeat(1000)]
        {
            let tokens = tokenizer.encode(&text, PLAIN).unwrap();
            assert_eq!(decode_lossy(tokenizer.vocabulary(), &tokens), text);
        }
    }
}

fn texts() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        "[ab <the\\nlo]{0,8}",
        "\\PC{0,4}",
        Just("<|im_start|>".to_owned()),
        Just("<|im_end|>".to_owned()),
        Just("<|user|>".to_owned()),
        Just("<s>".to_owned()),
        Just("</s>".to_owned()),
        Just("<think>".to_owned()),
    ];
    proptest::collection::vec(piece, 0..8)
        .prop_map(|pieces| pieces.concat())
        .prop_filter("guards are another test's", |text| !text.contains(GUARD))
}

proptest! {
    #[test]
    fn prompts_are_encoded_as_the_library_does(text in texts()) {
        for (tokenizer, reference) in &*PAIRS {
            let without = EncodeOptions { add_special: false, parse_special: true };
            let expected = reference.encode_fast(text.as_str(), false).unwrap();
            prop_assert_eq!(tokenizer.encode(&text, without).unwrap(), expected.get_ids());
            let expected = reference.encode_fast(text.as_str(), true).unwrap();
            let expected = expected.get_ids();
            // The library doubles a BOS that the text already has.
            let expected = if expected.len() > 1 && expected[0] == 1 && expected[1] == 1 { &expected[1..] } else { expected };
            prop_assert_eq!(tokenizer.encode(&text, PROMPT).unwrap(), expected);
        }
    }

    #[test]
    fn continuations_spell_the_text(text in texts()) {
        for (tokenizer, _) in &*PAIRS {
            let tokens = tokenizer.encode(&text, PLAIN).unwrap();
            prop_assert_eq!(concat(tokenizer, &tokens), text.as_bytes());
            prop_assert_eq!(decode_lossy(tokenizer.vocabulary(), &tokens), text.as_str());
        }
    }

    #[test]
    fn guards_anywhere_outside_names_change_nothing(text in "[ab <é\\n]{1,20}", at in 0_usize..20) {
        let at = text.char_indices().map(|(at, _)| at).nth(at).unwrap_or(text.len());
        let guarded = format!("{}{GUARD}{}", &text[..at], &text[at..]);
        for (tokenizer, _) in &*PAIRS {
            let encoder = GuardedEncoder::new(Arc::<HfTokenizer>::clone(tokenizer)).unwrap();
            prop_assert_eq!(encoder.encode(&guarded, PROMPT).unwrap(), tokenizer.encode(&text, PROMPT).unwrap());
        }
    }
}
