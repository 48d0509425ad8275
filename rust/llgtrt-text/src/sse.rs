//! Writes a stream's server-sent events.
//!
//! Runs on the output thread, one value per request; the choices share it. Everything that is the same in
//! every chunk is rendered once. A chunk with both text and a finish reason carries both in one event:
//! the clients in use add up `delta.content` and read `finish_reason` independently of each other, and it
//! saves one event per choice.

use serde_json::{Map, Value};

use crate::json::{self, Sink};

/// Which API the chunks belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SseKind {
    /// `chat.completion.chunk`: text under `delta`.
    Chat,
    /// `text_completion`: text under `text`.
    Completion,
}

/// What the last chunk of a choice says beside its text. The two members that OpenAI does not have are ready JSON
/// and written only if given.
#[derive(Debug, Clone, Copy)]
pub struct ChoiceEnd<'a> {
    /// OpenAI's `finish_reason`.
    pub finish_reason: &'a str,
    /// The stop string or the id of the stop token that ended the choice.
    pub stop_reason: Option<&'a str>,
    /// The [`Receipt`](llgtrt_core::Receipt) of a constrained choice.
    pub constraint: Option<&'a str>,
}

/// Encoder of one request's events.
#[derive(Debug, Clone)]
pub struct SseEncoder {
    kind: SseKind,
    /// `data: {"id":...,"model":"..."` and the rest of [`ChunkHead`]: the start of every chunk.
    head: String,
    /// Members for the first chunk, each with a comma before it; taken by that chunk.
    first_fields: Option<String>,
    /// What closes a chunk: `]}` or `],"usage":null}`, and the blank line.
    foot: &'static str,
    /// Choices that have had their first chunk.
    started: Vec<bool>,
}

/// What all chunks of an answer begin with.
#[derive(Debug, Clone, Copy)]
pub struct ChunkHead<'a> {
    /// `id`.
    pub id: &'a str,
    /// `model`.
    pub model: &'a str,
    /// `created`, in Unix seconds.
    pub created: u64,
    /// `system_fingerprint`, if the server has one.
    pub system_fingerprint: Option<&'a str>,
}

impl SseEncoder {
    /// An encoder for one request. With `include_usage`, chunks say `"usage":null` until
    /// [`usage_chunk`](Self::usage_chunk). `first_chunk_fields` is a list of JSON members (`"a":1,"b":2`) for the top
    /// level of the first chunk; if it is anything else it is left out, because an event has to stay readable.
    pub fn new(
        kind: SseKind,
        answer: ChunkHead<'_>,
        include_usage: bool,
        first_chunk_fields: Option<&str>,
    ) -> Self {
        let mut head = String::from("data: {\"id\":");
        json::string(&mut head, answer.id);
        head.push_str(match kind {
            SseKind::Chat => ",\"object\":\"chat.completion.chunk\",\"created\":",
            SseKind::Completion => ",\"object\":\"text_completion\",\"created\":",
        });
        json::integer(&mut head, answer.created);
        head.push_str(",\"model\":");
        json::string(&mut head, answer.model);
        if let Some(fingerprint) = answer.system_fingerprint {
            head.push_str(",\"system_fingerprint\":");
            json::string(&mut head, fingerprint);
        }
        let foot = if include_usage { "}],\"usage\":null}\n\n" } else { "}]}\n\n" };
        let first_fields = first_chunk_fields.and_then(checked_members);
        Self { kind, head, first_fields, foot, started: Vec::new() }
    }

    /// Writes one chunk of choice `index`, also if there is nothing new in it. `logprobs` is ready JSON. The
    /// first chunk of a chat choice carries the role, its last one the `end`.
    pub fn chunk(
        &mut self,
        out: &mut Vec<u8>,
        index: u32,
        text: &str,
        logprobs: Option<&str>,
        end: Option<ChoiceEnd<'_>>,
    ) {
        // One growth at most: what is written beside the variable parts is about 140 bytes.
        out.reserve(self.head.len() + text.len() + logprobs.map_or(0, str::len) + 192);
        self.open(out);
        out.put(",\"choices\":[{\"index\":");
        json::integer(out, index.into());
        match self.kind {
            SseKind::Chat => {
                if self.is_first(index) {
                    out.put(",\"delta\":{\"role\":\"assistant\",\"content\":\"");
                    json::escape(out, text);
                    out.put("\"}");
                } else if text.is_empty() {
                    out.put(",\"delta\":{}");
                } else {
                    out.put(",\"delta\":{\"content\":\"");
                    json::escape(out, text);
                    out.put("\"}");
                }
            }
            SseKind::Completion => {
                out.put(",\"text\":\"");
                json::escape(out, text);
                out.put("\"");
            }
        }
        out.put(",\"logprobs\":");
        out.put(logprobs.unwrap_or("null"));
        out.put(",\"finish_reason\":");
        json::string_or_null(out, end.map(|end| end.finish_reason));
        if let Some(stop_reason) = end.and_then(|end| end.stop_reason) {
            out.put(",\"stop_reason\":");
            json::on_one_line(out, stop_reason);
        }
        if let Some(constraint) = end.and_then(|end| end.constraint) {
            out.put(",\"constraint\":");
            json::on_one_line(out, constraint);
        }
        out.put(self.foot);
    }

    /// Writes the chunk with the token counts and no choices, which comes after all others.
    pub fn usage_chunk(
        &mut self,
        out: &mut Vec<u8>,
        prompt_tokens: u64,
        completion_tokens: u64,
        cached_tokens: u64,
    ) {
        self.open(out);
        out.put(",\"choices\":[],\"usage\":{\"prompt_tokens\":");
        json::integer(out, prompt_tokens);
        out.put(",\"completion_tokens\":");
        json::integer(out, completion_tokens);
        out.put(",\"total_tokens\":");
        json::integer(out, prompt_tokens.saturating_add(completion_tokens));
        out.put(",\"prompt_tokens_details\":{\"cached_tokens\":");
        json::integer(out, cached_tokens);
        out.put("}}}\n\n");
    }

    /// Writes the end of the stream.
    pub fn done(&self, out: &mut Vec<u8>) {
        out.put("data: [DONE]\n\n");
    }

    /// Writes an error; the stream ends after it, without [`done`](Self::done). `kind` is the error's `type`,
    /// such as `invalid_request_error`.
    pub fn error(
        &self,
        out: &mut Vec<u8>,
        message: &str,
        kind: &str,
        param: Option<&str>,
        code: Option<&str>,
    ) {
        out.put("data: {\"error\":{\"message\":");
        json::string(out, message);
        out.put(",\"type\":");
        json::string(out, kind);
        out.put(",\"param\":");
        json::string_or_null(out, param);
        out.put(",\"code\":");
        json::string_or_null(out, code);
        out.put("}}\n\n");
    }

    fn open(&mut self, out: &mut Vec<u8>) {
        out.put(&self.head);
        if let Some(fields) = self.first_fields.take() {
            out.put(&fields);
        }
    }

    fn is_first(&mut self, index: u32) -> bool {
        let index = index as usize;
        if self.started.len() <= index {
            self.started.resize(index + 1, false);
        }
        !std::mem::replace(&mut self.started[index], true)
    }
}

/// The members on one line with a comma before each; `None` if this is no list of members. Read and
/// written again, so that no line end inside can cut the event in two.
fn checked_members(fields: &str) -> Option<String> {
    let members: Map<String, Value> = serde_json::from_str(&format!("{{{fields}}}")).ok()?;
    let mut out = String::new();
    for (key, value) in &members {
        out.push(',');
        json::string(&mut out, key);
        out.push(':');
        json::on_one_line(&mut out, &value.to_string());
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    const HEAD: ChunkHead<'_> =
        ChunkHead { id: "id-1", model: "model \"m\"", created: 1_700_000_000, system_fingerprint: None };

    fn encoder(kind: SseKind, include_usage: bool, fields: Option<&str>) -> SseEncoder {
        SseEncoder::new(kind, HEAD, include_usage, fields)
    }

    /// The JSON of one event; checks the framing.
    fn event(bytes: &[u8]) -> Value {
        let text = std::str::from_utf8(bytes).unwrap();
        let json = text.strip_prefix("data: ").unwrap().strip_suffix("\n\n").unwrap();
        assert_eq!(json.lines().count(), 1);
        assert!(!json.contains(['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}']));
        serde_json::from_str(json).unwrap_or_else(|error| panic!("{error}: {json}"))
    }

    #[test]
    fn a_chat_stream() {
        let mut encoder = encoder(SseKind::Chat, false, None);
        let mut chunk = |index, text, finish: Option<&str>, stop_reason| {
            let mut out = Vec::new();
            let end = finish.map(|finish_reason| ChoiceEnd { finish_reason, stop_reason, constraint: None });
            encoder.chunk(&mut out, index, text, None, end);
            event(&out)
        };
        let with_choice = |choice: Value| {
            json!({"id": "id-1", "object": "chat.completion.chunk", "created": 1_700_000_000, "model": "model \"m\"",
                "choices": [choice]})
        };
        assert_eq!(
            chunk(0, "He", None, None),
            with_choice(json!({"index": 0, "delta": {"role": "assistant", "content": "He"},
                "logprobs": null, "finish_reason": null}))
        );
        assert_eq!(
            chunk(1, "", None, None)["choices"][0]["delta"],
            json!({"role": "assistant", "content": ""}),
            "each choice has its own first chunk"
        );
        assert_eq!(
            chunk(0, "llo", None, None),
            with_choice(
                json!({"index": 0, "delta": {"content": "llo"}, "logprobs": null, "finish_reason": null})
            )
        );
        assert_eq!(
            chunk(0, "", Some("length"), None),
            with_choice(json!({"index": 0, "delta": {}, "logprobs": null, "finish_reason": "length"}))
        );
        assert_eq!(
            chunk(1, "x", Some("stop"), Some("\"END\"")),
            with_choice(
                json!({"index": 1, "delta": {"content": "x"}, "logprobs": null, "finish_reason": "stop",
                "stop_reason": "END"})
            )
        );
    }

    #[test]
    fn every_chunk_has_the_fingerprint() {
        let head = ChunkHead { system_fingerprint: Some("fp_\"1"), ..HEAD };
        for kind in [SseKind::Chat, SseKind::Completion] {
            let mut encoder = SseEncoder::new(kind, head, true, Some("\"a\":1"));
            let mut write = |write: &dyn Fn(&mut SseEncoder, &mut Vec<u8>)| {
                let mut out = Vec::new();
                write(&mut encoder, &mut out);
                event(&out)["system_fingerprint"].clone()
            };
            assert_eq!(write(&|encoder, out| encoder.chunk(out, 0, "a", None, None)), "fp_\"1");
            assert_eq!(write(&|encoder, out| encoder.chunk(out, 0, "b", None, None)), "fp_\"1");
            assert_eq!(write(&|encoder, out| encoder.usage_chunk(out, 5, 3, 2)), "fp_\"1");
        }
    }

    #[test]
    fn a_completion_stream() {
        let mut encoder = encoder(SseKind::Completion, false, None);
        let mut out = Vec::new();
        let receipt = json!({"kind": "json_schema", "residual": ["properties.a\u{2028}b"]}).to_string();
        let end = ChoiceEnd { finish_reason: "stop", stop_reason: Some("7"), constraint: Some(&receipt) };
        encoder.chunk(&mut out, 3, "a", Some("{\"tokens\":[]}"), Some(end));
        assert_eq!(
            event(&out),
            json!({"id": "id-1", "object": "text_completion", "created": 1_700_000_000, "model": "model \"m\"",
                "choices": [{"index": 3, "text": "a", "logprobs": {"tokens": []}, "finish_reason": "stop",
                    "stop_reason": 7,
                    "constraint": {"kind": "json_schema", "residual": ["properties.a\u{2028}b"]}}]})
        );
    }

    #[test]
    fn p17_usage_comes_in_a_last_chunk_without_choices() {
        let mut encoder = encoder(SseKind::Chat, true, None);
        let mut out = Vec::new();
        encoder.chunk(&mut out, 0, "a", None, None);
        assert_eq!(event(&out).get("usage"), Some(&Value::Null));
        out.clear();
        encoder.usage_chunk(&mut out, 5, 3, 2);
        let last = event(&out);
        assert_eq!(last["choices"], json!([]));
        assert_eq!(
            last["usage"],
            json!({"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8,
                "prompt_tokens_details": {"cached_tokens": 2}})
        );
        out.clear();
        encoder.done(&mut out);
        assert_eq!(out, b"data: [DONE]\n\n");
    }

    #[test]
    fn first_chunk_fields_come_once() {
        let fields = "\"prompt\": \"a\u{2028}\\n\",\n \"n\": [1, {}]";
        let mut encoder = encoder(SseKind::Completion, false, Some(fields));
        let (mut first, mut second) = (Vec::new(), Vec::new());
        encoder.chunk(&mut first, 0, "a", None, None);
        encoder.chunk(&mut second, 0, "b", None, None);
        let first = event(&first);
        assert_eq!((&first["prompt"], &first["n"]), (&json!("a\u{2028}\n"), &json!([1, {}])));
        assert_eq!(event(&second).get("prompt"), None);
    }

    #[test]
    fn first_chunk_fields_that_are_no_members_are_left_out() {
        for fields in ["x", "\"a\":", "\"a\":1}", "\"a\":1},{", "\"a\":1,", " ", ""] {
            let mut encoder = encoder(SseKind::Chat, false, Some(fields));
            let mut out = Vec::new();
            encoder.chunk(&mut out, 0, "", None, None);
            assert_eq!(event(&out).as_object().unwrap().len(), 5, "{fields}");
        }
    }

    #[test]
    fn p18_errors_are_nested() {
        let mut out = Vec::new();
        encoder(SseKind::Chat, false, None).error(&mut out, "bad \"x\"\n", "server_error", None, Some("c"));
        assert_eq!(
            event(&out),
            json!({"error": {"message": "bad \"x\"\n", "type": "server_error", "param": null, "code": "c"}})
        );
    }

    proptest! {
        #[test]
        fn every_event_is_valid(text: String, id: String, model: String, finish: Option<String>, index in 0_u32..200, chat: bool, usage: bool) {
            let kind = if chat { SseKind::Chat } else { SseKind::Completion };
            let system_fingerprint = usage.then_some("fp_0");
            let head = ChunkHead { id: &id, model: &model, created: 1, system_fingerprint };
            let mut encoder = SseEncoder::new(kind, head, usage, None);
            let stop = serde_json::to_string(&text).unwrap();
            for first in [true, false] {
                let mut out = Vec::new();
                let end = finish.as_deref().map(|finish_reason| ChoiceEnd {
                    finish_reason,
                    stop_reason: Some(&stop),
                    constraint: None,
                });
                encoder.chunk(&mut out, index, &text, None, end);
                let value = event(&out);
                prop_assert_eq!(value["id"].as_str(), Some(id.as_str()));
                prop_assert_eq!(value["model"].as_str(), Some(model.as_str()));
                let choice = &value["choices"][0];
                prop_assert_eq!(choice["finish_reason"].as_str(), finish.as_deref());
                let stop_reason = finish.as_ref().map_or(Value::Null, |_| json!(text));
                prop_assert_eq!(&choice["stop_reason"], &stop_reason);
                let got = if chat { &choice["delta"]["content"] } else { &choice["text"] };
                prop_assert_eq!(got.as_str().unwrap_or_default(), text.as_str());
                prop_assert_eq!(choice["delta"].get("role").is_some(), chat && first);
            }
            let mut out = Vec::new();
            encoder.error(&mut out, &text, &id, Some(&model), None);
            prop_assert_eq!(&event(&out)["error"]["message"], &json!(text));
        }
    }
}
