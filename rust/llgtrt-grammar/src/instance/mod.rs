//! Whether a compiled grammar accepts an instance: a text, or a JSON value in any order of its keys.
//!
//! A grammar fixes the order of the properties it names, a JSON value has none. So a value is written
//! as text, key by key, along a matcher: first in the order given, then with each key where it does not
//! shut out another one, then by trying all orders up to a bound. Runs on any thread with a big stack
//! ([`spawn_big_stack`](crate::spawn_big_stack)); it must not run where masks are computed.

mod place;
mod writer;

use std::panic::{AssertUnwindSafe, catch_unwind};

use serde_json::Value;

use self::writer::Writer;
use crate::CompiledGrammar;
use crate::matcher::Matcher;

/// What is judged.
#[derive(Debug, Clone, Copy)]
pub enum Instance<'a> {
    /// A text, byte by byte as it is.
    Text(&'a str),
    /// A JSON value, however its keys are ordered and with or without blanks.
    Value(&'a Value),
    /// The same, with numbers as they are written: in draft 4, 1.0 is no integer.
    Exact(&'a Value),
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judgement {
    /// Whether the grammar accepts it.
    pub accepted: bool,
    /// The text that was judged: the one given, or the value as it was accepted or got furthest.
    pub text: String,
    /// First byte of `text` that is not allowed; its length if it must not end there.
    pub rejected_at: Option<usize>,
    /// Why it is rejected; empty if it is accepted.
    pub reason: String,
    /// `false` if a value was rejected before all orders of its keys were tried.
    pub exhaustive: bool,
}

impl CompiledGrammar {
    /// Judges an instance. Takes about a microsecond for each byte, ten times as much if keys have to
    /// be put in order, and stops at a bound. Call it on a thread with a big stack.
    pub fn judge(&self, instance: Instance) -> Judgement {
        let result = match run(self.copy().matcher, instance, false) {
            Err(error) if error.is::<OutOfFuel>() => run(self.copy().matcher, instance, true),
            result => result,
        };
        result.unwrap_or_else(|error| unknown(&error))
    }
}

/// Judges an instance with a matcher at the start of its grammar.
pub fn judge(matcher: Matcher, instance: Instance) -> Judgement {
    run(matcher, instance, false).unwrap_or_else(|error| unknown(&error))
}

/// The lexer took nothing any more: without that, the instance may be accepted.
#[derive(Debug, thiserror::Error)]
#[error("too many expressions constructed")]
struct OutOfFuel;

/// Judges an instance; with `masks`, the lexer gets new fuel on the way.
fn run(matcher: Matcher, instance: Instance, masks: bool) -> anyhow::Result<Judgement> {
    let judge = AssertUnwindSafe(|| {
        let writer = Writer::new(matcher)?.with_masks(masks);
        match instance {
            Instance::Text(text) => writer.judge_text(text),
            Instance::Value(value) => writer.judge_value(value),
            Instance::Exact(value) => writer.exact().judge_value(value),
        }
    });
    catch_unwind(judge).unwrap_or_else(|_| Err(anyhow::anyhow!("panic: judge")))
}

/// What the grammar engine failed to judge.
fn unknown(error: &anyhow::Error) -> Judgement {
    Judgement {
        accepted: false,
        text: String::new(),
        rejected_at: Some(0),
        reason: crate::compiled::mask_error(&error.to_string()),
        exhaustive: false,
    }
}
