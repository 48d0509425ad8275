//! The JSON of log-probabilities: in the form of chat, in that of completions, and by token ids.
//!
//! Runs where a chunk is rendered. Values that JSON has no word for (`-inf` is common under constraints)
//! are clipped.

use llgtrt_core::{TokenId, TokenLogprobs, Vocabulary};

use crate::Detokenizer;
use crate::json::{self, Sink};

/// What stands for minus infinity, NaN and everything below.
pub const LOGPROB_FLOOR: f32 = -9999.0;

/// What is reported about one token.
#[derive(Debug, Clone, PartialEq)]
pub struct LogprobEntry {
    /// The token.
    pub token: TokenId,
    /// Characters (Unicode scalar values) that this token completes in the text: 0 for a control token and
    /// for a token that ends inside its first character.
    pub characters: u32,
    /// Probability that the mask took away, where that was measured.
    pub removed_mass: Option<f32>,
    /// As the engine reported them; `None` for the first token of a prompt, which has none.
    pub logprobs: Option<Box<TokenLogprobs>>,
}

/// The entries of an echoed prompt. `logprobs` is what the engine reported, one per prompt token; missing
/// ones count as absent.
pub fn prompt_logprob_entries(
    vocabulary: &Vocabulary,
    prompt: &[TokenId],
    logprobs: &[Option<TokenLogprobs>],
) -> Vec<LogprobEntry> {
    let mut detokenizer = Detokenizer::new();
    let mut text = String::new();
    prompt
        .iter()
        .enumerate()
        .map(|(position, &token)| {
            text.clear();
            detokenizer.push(vocabulary, token, &mut text);
            LogprobEntry {
                token,
                characters: text.chars().count() as u32,
                removed_mass: None,
                logprobs: logprobs.get(position).cloned().flatten().map(Box::new),
            }
        })
        .collect()
}

/// `{"content":[{"token","logprob","bytes","top_logprobs"}...],"refusal":null}`. An entry without
/// log-probabilities gets the floor; one with a removed mass has it as `removed_mass`.
pub fn chat_logprobs(vocabulary: &Vocabulary, entries: &[LogprobEntry]) -> String {
    let mut out = String::with_capacity(64 + entries.len() * 64);
    out.put("{\"content\":[");
    for (position, entry) in entries.iter().enumerate() {
        separate(&mut out, position);
        let logprobs = entry.logprobs.as_deref();
        chat_entry(
            &mut out,
            vocabulary.bytes(entry.token),
            logprobs.map_or(LOGPROB_FLOOR, |logprobs| logprobs.logprob),
        );
        out.put(",\"top_logprobs\":[");
        for (rank, &(token, logprob)) in logprobs.iter().flat_map(|logprobs| &logprobs.top).enumerate() {
            separate(&mut out, rank);
            chat_entry(&mut out, vocabulary.bytes(token), logprob);
            out.put("}");
        }
        out.put("]");
        if let Some(mass) = entry.removed_mass {
            out.put(",\"removed_mass\":");
            probability(&mut out, mass);
        }
        out.put("}");
    }
    out.put("],\"refusal\":null}");
    out
}

/// `{"tokens":[..],"token_logprobs":[..],"top_logprobs":[{text: logprob}..],"text_offset":[..]}`.
/// `offset` counts the characters of the choice's text before the first entry and is advanced past the last;
/// entries without log-probabilities are `null`. If any entry has a removed mass there is a column
/// `removed_mass` as well.
pub fn completion_logprobs(vocabulary: &Vocabulary, entries: &[LogprobEntry], offset: &mut usize) -> String {
    let mut out = String::with_capacity(96 + entries.len() * 48);
    out.put("{\"tokens\":[");
    for (position, entry) in entries.iter().enumerate() {
        separate(&mut out, position);
        json::string(&mut out, &String::from_utf8_lossy(vocabulary.bytes(entry.token)));
    }
    out.put("],\"token_logprobs\":[");
    for (position, entry) in entries.iter().enumerate() {
        separate(&mut out, position);
        match &entry.logprobs {
            Some(logprobs) => number(&mut out, logprobs.logprob),
            None => out.put("null"),
        }
    }
    out.put("],\"top_logprobs\":[");
    for (position, entry) in entries.iter().enumerate() {
        separate(&mut out, position);
        match &entry.logprobs {
            Some(logprobs) => top_by_text(&mut out, vocabulary, entry.token, logprobs),
            None => out.put("null"),
        }
    }
    out.put("],\"text_offset\":[");
    for (position, entry) in entries.iter().enumerate() {
        separate(&mut out, position);
        json::integer(&mut out, *offset as u64);
        *offset += entry.characters as usize;
    }
    out.put("]");
    if entries.iter().any(|entry| entry.removed_mass.is_some()) {
        out.put(",\"removed_mass\":[");
        for (position, entry) in entries.iter().enumerate() {
            separate(&mut out, position);
            match entry.removed_mass {
                Some(mass) => probability(&mut out, mass),
                None => out.put("null"),
            }
        }
        out.put("]");
    }
    out.put("}");
    out
}

/// `[null,{"<token id>":{"logprob","rank","decoded_token"}..}..]`, one per token of a prompt, as vLLM has it: the
/// `top` likeliest tokens and the prompt's own. Its rank is known only among the likeliest, else `null`.
pub fn prompt_logprobs_by_token(
    vocabulary: &Vocabulary,
    prompt: &[TokenId],
    logprobs: &[Option<TokenLogprobs>],
    top: usize,
) -> String {
    let mut out = String::with_capacity(16 + prompt.len() * 64 * (top + 1));
    out.put("[");
    for (position, &token) in prompt.iter().enumerate() {
        separate(&mut out, position);
        let Some(own) = logprobs.get(position).and_then(Option::as_ref) else {
            out.put("null");
            continue;
        };
        out.put("{");
        let likely = own.top.iter().take(top).copied();
        let missing = !likely.clone().any(|(id, _)| id == token);
        let rank = own.top.iter().position(|&(id, _)| id == token);
        let ranked = likely.zip(1_u64..).map(|(entry, rank)| (entry, Some(rank)));
        let rest = missing.then_some(((token, own.logprob), rank.map(|rank| rank as u64 + 1)));
        for (index, ((id, logprob), rank)) in ranked.chain(rest).enumerate() {
            separate(&mut out, index);
            out.put("\"");
            json::integer(&mut out, id.into());
            out.put("\":{\"logprob\":");
            number(&mut out, logprob);
            out.put(",\"rank\":");
            match rank {
                Some(rank) => json::integer(&mut out, rank),
                None => out.put("null"),
            }
            out.put(",\"decoded_token\":");
            json::string(&mut out, &String::from_utf8_lossy(vocabulary.bytes(id)));
            out.put("}");
        }
        out.put("}");
    }
    out.put("]");
    out
}

/// `{"logprobs":[..],"top":[[[token, logprob]..]..]}`, for callers that know tokens by their ids. Entries without
/// log-probabilities get the floor and no alternatives.
pub fn token_logprobs(entries: &[LogprobEntry]) -> String {
    let mut out = String::with_capacity(32 + entries.len() * 32);
    out.put("{\"logprobs\":[");
    for (position, entry) in entries.iter().enumerate() {
        separate(&mut out, position);
        number(&mut out, entry.logprobs.as_deref().map_or(LOGPROB_FLOOR, |logprobs| logprobs.logprob));
    }
    out.put("],\"top\":[");
    for (position, entry) in entries.iter().enumerate() {
        separate(&mut out, position);
        out.put("[");
        for (rank, &(token, logprob)) in entry.logprobs.iter().flat_map(|logprobs| &logprobs.top).enumerate()
        {
            separate(&mut out, rank);
            out.put("[");
            json::integer(&mut out, token.into());
            out.put(",");
            number(&mut out, logprob);
            out.put("]");
        }
        out.put("]");
    }
    out.put("]}");
    out
}

/// An object keyed by text: the token itself is always in it, and of tokens with the same text (parts of
/// characters) only the most likely, because clients keep one value per key.
fn top_by_text(out: &mut String, vocabulary: &Vocabulary, token: TokenId, logprobs: &TokenLogprobs) {
    let mut seen: Vec<std::borrow::Cow<'_, str>> = Vec::with_capacity(logprobs.top.len() + 1);
    out.put("{");
    for &(token, logprob) in logprobs.top.iter().chain([&(token, logprobs.logprob)]) {
        let text = String::from_utf8_lossy(vocabulary.bytes(token));
        if seen.contains(&text) {
            continue;
        }
        separate(out, seen.len());
        json::string(out, &text);
        out.put(":");
        number(out, logprob);
        seen.push(text);
    }
    out.put("}");
}

/// Writes `{"token":..,"logprob":..,"bytes":[..]` and leaves the object open.
fn chat_entry(out: &mut String, bytes: &[u8], logprob: f32) {
    out.put("{\"token\":");
    json::string(out, &String::from_utf8_lossy(bytes));
    out.put(",\"logprob\":");
    number(out, logprob);
    out.put(",\"bytes\":[");
    for (position, &byte) in bytes.iter().enumerate() {
        separate(out, position);
        json::integer(out, byte.into());
    }
    out.put("]");
}

/// Writes the comma before every member but the first.
fn separate(out: &mut String, position: usize) {
    if position > 0 {
        out.put(",");
    }
}

/// Writes a log-probability as a JSON number.
fn number(out: &mut String, logprob: f32) {
    use std::fmt::Write;
    let clipped = if logprob.is_finite() { logprob.max(LOGPROB_FLOOR) } else { LOGPROB_FLOOR };
    // Writing to a String does not fail. `{:?}` of a finite f32 is a JSON number.
    let _ = write!(out, "{clipped:?}");
}

/// Writes a probability as a JSON number; one that is not known is `null`.
fn probability(out: &mut String, value: f32) {
    use std::fmt::Write;
    if value.is_finite() {
        // As in `number`.
        let _ = write!(out, "{:?}", value.clamp(0.0, 1.0));
    } else {
        out.put("null");
    }
}

#[cfg(test)]
mod tests {
    use llgtrt_core::Tokenizer;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::ByteTokenizer;

    #[derive(Clone, Copy, PartialEq)]
    enum Form {
        Chat,
        Completion,
    }

    /// Every token counts as one character.
    fn encoded(form: Form, entries: &[(TokenId, Option<TokenLogprobs>)]) -> Value {
        let entries: Vec<LogprobEntry> = entries
            .iter()
            .map(|(token, logprobs)| LogprobEntry {
                token: *token,
                characters: 1,
                removed_mass: None,
                logprobs: logprobs.clone().map(Box::new),
            })
            .collect();
        written(form, &entries)
    }

    fn written(form: Form, entries: &[LogprobEntry]) -> Value {
        let tokenizer = ByteTokenizer::new();
        let out = match form {
            Form::Chat => chat_logprobs(tokenizer.vocabulary(), entries),
            Form::Completion => completion_logprobs(tokenizer.vocabulary(), entries, &mut 0),
        };
        serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}"))
    }

    #[expect(clippy::unnecessary_wraps, reason = "entries take an Option")]
    fn logprobs(logprob: f32, top: &[(TokenId, f32)]) -> Option<TokenLogprobs> {
        Some(TokenLogprobs { logprob, top: top.to_vec(), row: None })
    }

    #[test]
    fn a_prompts_own_tokens_are_among_the_likeliest_or_beside_them() {
        let tokenizer = ByteTokenizer::new();
        let logprobs =
            |logprob, top: &[(TokenId, f32)]| Some(TokenLogprobs { logprob, top: top.to_vec(), row: None });
        let entries = [
            None,
            logprobs(-0.5, &[(98, -0.5), (97, -1.0), (99, -2.0)]),
            logprobs(-2.0, &[(97, -0.5), (98, -1.0), (99, -2.0)]),
            logprobs(f32::NEG_INFINITY, &[(97, -0.5)]),
        ];
        let prompt: Vec<TokenId> = "abcd".bytes().map(TokenId::from).collect();
        let json = prompt_logprobs_by_token(tokenizer.vocabulary(), &prompt, &entries, 1);
        let one = |rank: Option<u32>, logprob: f64, text: &str| json!({"logprob": logprob, "rank": rank, "decoded_token": text});
        assert_eq!(
            serde_json::from_str::<Value>(&json).unwrap(),
            json!([
                null,
                {"98": one(Some(1), -0.5, "b")},
                {"97": one(Some(1), -0.5, "a"), "99": one(Some(3), -2.0, "c")},
                {"97": one(Some(1), -0.5, "a"), "100": one(None, f64::from(LOGPROB_FLOOR), "d")},
            ])
        );
    }

    #[test]
    fn chat_form() {
        let value = encoded(
            Form::Chat,
            &[(b'a'.into(), logprobs(-0.5, &[(b'a'.into(), -0.5), (b'"'.into(), -1.25)]))],
        );
        let expected = json!({"content": [{"token": "a", "logprob": -0.5, "bytes": [97], "top_logprobs": [
            {"token": "a", "logprob": -0.5, "bytes": [97]},
            {"token": "\"", "logprob": -1.25, "bytes": [34]},
        ]}], "refusal": null});
        assert_eq!(value, expected);
    }

    #[test]
    fn completions_form() {
        let entries = [
            (b'a'.into(), None),
            (b'b'.into(), logprobs(-0.5, &[(b'c'.into(), -0.25)])),
            (b'c'.into(), logprobs(-0.25, &[(b'c'.into(), -0.25)])),
        ];
        let expected = json!({
            "tokens": ["a", "b", "c"],
            "token_logprobs": [null, -0.5, -0.25],
            "top_logprobs": [null, {"c": -0.25, "b": -0.5}, {"c": -0.25}],
            "text_offset": [0, 1, 2],
        });
        assert_eq!(encoded(Form::Completion, &entries), expected);
    }

    #[test]
    fn the_form_of_ids() {
        let entries = [
            LogprobEntry {
                token: 98,
                characters: 1,
                removed_mass: None,
                logprobs: logprobs(-0.5, &[(99, -0.25), (98, f32::NEG_INFINITY)]).map(Box::new),
            },
            LogprobEntry { token: 300, characters: 0, removed_mass: None, logprobs: None },
        ];
        let value: Value = serde_json::from_str(&token_logprobs(&entries)).unwrap();
        assert_eq!(value, json!({"logprobs": [-0.5, -9999.0], "top": [[[99, -0.25], [98, -9999.0]], []]}));
        assert_eq!(token_logprobs(&[]), r#"{"logprobs":[],"top":[]}"#);
    }

    #[test]
    fn the_removed_mass_is_written_where_it_is_known() {
        let with = |token: u8, removed_mass| LogprobEntry {
            token: token.into(),
            characters: 1,
            removed_mass,
            logprobs: logprobs(-0.5, &[]).map(Box::new),
        };
        let entries =
            [with(b'a', Some(0.25)), with(b'b', Some(f32::NAN)), with(b'c', None), with(b'd', Some(1.5))];
        let columns = written(Form::Completion, &entries);
        assert_eq!(columns["removed_mass"], json!([0.25, null, null, 1.0]));
        let chat = written(Form::Chat, &entries);
        assert_eq!(chat["content"][0]["removed_mass"], json!(0.25));
        assert_eq!(chat["content"][1]["removed_mass"], Value::Null);
        assert!(chat["content"][2].get("removed_mass").is_none());
        assert!(written(Form::Completion, &entries[2..3]).get("removed_mass").is_none());
    }

    #[test]
    fn p2_bytes_are_the_tokens_own_and_the_text_is_lossy() {
        let value = encoded(Form::Chat, &[(0xC3, logprobs(-1.0, &[]))]);
        assert_eq!(value["content"][0]["bytes"], json!([0xC3]));
        assert_eq!(value["content"][0]["token"], json!("\u{FFFD}"));
    }

    #[test]
    fn parts_of_characters_share_a_key_in_the_completions_form() {
        let value = encoded(Form::Completion, &[(0xC3, logprobs(-2.0, &[(0xE2, -1.0), (0xC3, -2.0)]))]);
        assert_eq!(value["top_logprobs"], json!([{"\u{FFFD}": -1.0}]));
    }

    #[test]
    fn p27_values_that_json_cannot_hold_are_clipped() {
        for kind in [Form::Chat, Form::Completion] {
            for bad in [f32::NEG_INFINITY, f32::INFINITY, f32::NAN, f32::MIN] {
                let value = encoded(kind, &[(b'a'.into(), logprobs(bad, &[(b'b'.into(), bad)]))]);
                let (own, top) = match kind {
                    Form::Chat => {
                        (&value["content"][0]["logprob"], &value["content"][0]["top_logprobs"][0]["logprob"])
                    }
                    Form::Completion => (&value["token_logprobs"][0], &value["top_logprobs"][0]["b"]),
                };
                assert_eq!((own, top), (&json!(-9999.0), &json!(-9999.0)), "{bad}");
            }
        }
    }

    #[test]
    fn offsets_go_on_from_chunk_to_chunk_and_count_whole_characters() {
        let tokenizer = ByteTokenizer::new();
        let vocabulary = tokenizer.vocabulary();
        let prompt: Vec<TokenId> = [256].into_iter().chain("aé".bytes().map(TokenId::from)).collect();
        let first = prompt_logprob_entries(vocabulary, &prompt, &[None, logprobs(-1.0, &[])]);
        assert_eq!(
            first.iter().map(|entry| entry.logprobs.is_some()).collect::<Vec<_>>(),
            [false, true, false, false]
        );
        let mut offset = 0;
        let offsets = |json: String| serde_json::from_str::<Value>(&json).unwrap()["text_offset"].clone();
        assert_eq!(offsets(completion_logprobs(vocabulary, &first, &mut offset)), json!([0, 0, 1, 1]));
        assert_eq!(offset, 2);
        assert_eq!(offsets(completion_logprobs(vocabulary, &first[..1], &mut offset)), json!([2]));
    }

    proptest! {
        #[test]
        fn always_valid_json(tokens in proptest::collection::vec((0_u32..300, any::<f32>(), 0_u32..300, any::<f32>()), 0..8)) {
            let entries: Vec<_> = tokens
                .iter()
                .map(|&(token, own, other, logprob)| (token, logprobs(own, &[(other, logprob), (token, own)])))
                .collect();
            let value = encoded(Form::Chat, &entries);
            prop_assert_eq!(value["content"].as_array().unwrap().len(), entries.len());
            let value = encoded(Form::Completion, &entries);
            for column in ["tokens", "token_logprobs", "top_logprobs", "text_offset"] {
                prop_assert_eq!(value[column].as_array().unwrap().len(), entries.len());
            }
        }
    }
}
