//! Instances: their limits, and how a text is told from a value.

use llgtrt_core::{Error, GrammarSpec, Result};
use serde::Serialize;
use serde_json::Value;

use super::stop::Stop;
use crate::{CompiledGrammar, Instance, Judgement};

/// Instances of one report.
const MAX_INSTANCES: usize = 256;

/// Size of one instance, in bytes of JSON text.
const MAX_BYTES: usize = 64 << 10;

/// Size of all instances, in bytes of JSON text.
const MAX_TOTAL_BYTES: usize = 1 << 20;

/// Longest text shown, in bytes.
const MAX_SHOWN: usize = 4 << 10;

/// What a grammar says about an instance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// Whether the grammar accepts it; `None` if it was not judged.
    pub accepted: Option<bool>,
    /// The first character that is not allowed, counted from 0; the length if the text must not end there.
    /// `None` as well where what the grammar leaves open rejects it.
    pub rejected_at: Option<usize>,
    /// Why it was rejected, or not judged.
    pub reason: Option<String>,
    /// The text that `rejected_at` counts in, where it is not the instance itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

impl Verdict {
    pub(super) fn unknown(reason: &str) -> Self {
        Self { accepted: None, rejected_at: None, reason: Some(reason.to_owned()), text: None }
    }

    fn accepted() -> Self {
        Self { accepted: Some(true), rejected_at: None, reason: None, text: None }
    }

    fn of(judgement: Judgement, show: bool) -> Self {
        if judgement.accepted {
            return Self::accepted();
        }
        if !judgement.exhaustive {
            let why = if judgement.rejected_at == Some(0) && judgement.text.is_empty() {
                judgement.reason
            } else {
                "not all orders of the keys were tried".to_owned()
            };
            return Self::unknown(&why);
        }
        let text = judgement.text;
        let characters = |at: usize| text.char_indices().take_while(|(start, _)| *start < at).count();
        let inside = |at: usize| at < text.len() && !text.is_char_boundary(at);
        let at = judgement.rejected_at.map(|at| characters(at) - usize::from(inside(at)));
        let text = (show && text.len() <= MAX_SHOWN).then_some(text);
        Self { accepted: Some(false), rejected_at: at, reason: Some(judgement.reason), text }
    }
}

/// Reads the JSON texts of instances within the limits.
pub(super) fn parse(texts: &[String]) -> Result<Vec<Value>> {
    if texts.len() > MAX_INSTANCES {
        let message = format!("{} instances; the limit is {MAX_INSTANCES}", texts.len());
        return Err(Error::invalid("instances", message));
    }
    let mut total = 0;
    texts
        .iter()
        .enumerate()
        .map(|(index, text)| {
            let param = format!("instances[{index}]");
            total += text.len();
            if text.len() > MAX_BYTES {
                let message = format!("an instance of {} bytes; the limit is {MAX_BYTES}", text.len());
                return Err(Error::invalid(param, message));
            }
            if total > MAX_TOTAL_BYTES {
                let message = format!("the instances have more than {MAX_TOTAL_BYTES} bytes together");
                return Err(Error::invalid("instances", message));
            }
            serde_json::from_str(text)
                .map_err(|_| Error::invalid(param, "the instance is nested too deeply, or is not JSON"))
        })
        .collect()
}

/// Judges every instance until the time is over.
pub(super) fn judge_all(
    grammar: &CompiledGrammar,
    spec: &GrammarSpec,
    instances: &[Value],
    stop: &Stop,
) -> Vec<Verdict> {
    let exact = is_draft_4(spec);
    instances
        .iter()
        .map(|instance| {
            if stop.is_set() {
                return Verdict::unknown("the time of the report was over");
            }
            judge(grammar, spec, exact, instance)
        })
        .collect()
}

/// A string is the text of an answer. Where answers are JSON, it may also be a JSON string.
fn judge(grammar: &CompiledGrammar, spec: &GrammarSpec, exact: bool, instance: &Value) -> Verdict {
    let judge_value =
        |value: &Value| grammar.judge(if exact { Instance::Exact(value) } else { Instance::Value(value) });
    let Value::String(text) = instance else {
        let judgement = judge_value(instance);
        return if judgement.accepted { left_open(grammar, instance) } else { Verdict::of(judgement, true) };
    };
    let as_text = grammar.judge(Instance::Text(text));
    if as_text.accepted && grammar.is_verified() {
        return serde_json::from_str(text)
            .map_or_else(|_| Verdict::accepted(), |value| left_open(grammar, &value));
    }
    if as_text.accepted || !matches!(spec, GrammarSpec::JsonSchema(_) | GrammarSpec::JsonObject) {
        return Verdict::of(as_text, false);
    }
    let value = judge_value(instance);
    if value.accepted {
        return left_open(grammar, instance);
    }
    // What it was meant as is where it gets further.
    if value.rejected_at > as_text.rejected_at {
        return Verdict::of(value, true);
    }
    let mut verdict = Verdict::of(as_text, false);
    let inner = serde_json::from_str::<Value>(text).ok();
    if inner.is_some_and(|inner| judge_value(&inner).accepted) {
        let reason = verdict.reason.get_or_insert_default();
        reason.push_str(
            "; it is accepted as a value: an answer has other whitespace, or its keys in another order",
        );
    }
    verdict
}

/// Whether 1.0 is no integer.
fn is_draft_4(spec: &GrammarSpec) -> bool {
    let GrammarSpec::JsonSchema(text) = spec else { return false };
    serde_json::from_str(text).is_ok_and(|schema| llgtrt_schema::is_draft_4(&schema))
}

/// What the check beside the grammar says of a value that the grammar accepts.
fn left_open(grammar: &CompiledGrammar, value: &Value) -> Verdict {
    match grammar.left_open(value) {
        Some(true) => Verdict::accepted(),
        None => Verdict::unknown("checking what the grammar leaves open took too long"),
        Some(false) => Verdict {
            accepted: Some(false),
            rejected_at: None,
            reason: Some("it does not satisfy what the grammar leaves open (see residual)".to_owned()),
            text: None,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_name_the_instance() {
        let param = |texts: &[String]| parse(texts).unwrap_err().param.unwrap();
        assert_eq!(param(&vec!["1".to_owned(); MAX_INSTANCES + 1]), "instances");
        assert_eq!(param(&["1".to_owned(), format!("\"{}\"", "x".repeat(MAX_BYTES))]), "instances[1]");
        assert_eq!(param(&vec![format!("\"{}\"", "x".repeat(MAX_BYTES - 2)); 17]), "instances");
        assert_eq!(param(&[format!("{}{}", "[".repeat(1000), "]".repeat(1000))]), "instances[0]");
        assert_eq!(parse(&["1".to_owned(), "{\"a\":null}".to_owned()]).unwrap().len(), 2);
    }

    #[test]
    fn what_was_not_tried_to_the_end_is_unknown() {
        let judgement = |text: &str, reason: &str| Judgement {
            accepted: false,
            text: text.to_owned(),
            rejected_at: Some(text.len()),
            reason: reason.to_owned(),
            exhaustive: false,
        };
        let verdict = Verdict::of(judgement("{\"b\"", "no such key"), true);
        assert_eq!(verdict, Verdict::unknown("not all orders of the keys were tried"));
        let verdict = Verdict::of(judgement("", "the grammar is too complex"), true);
        assert_eq!(verdict, Verdict::unknown("the grammar is too complex"));
    }

    #[test]
    fn places_are_counted_in_characters() {
        let judgement = |at| Judgement {
            accepted: false,
            text: "aéb".to_owned(),
            rejected_at: Some(at),
            reason: String::new(),
            exhaustive: true,
        };
        for (byte, character) in [(0, 0), (1, 1), (2, 1), (3, 2), (4, 3)] {
            assert_eq!(Verdict::of(judgement(byte), false).rejected_at, Some(character), "{byte}");
        }
    }
}
