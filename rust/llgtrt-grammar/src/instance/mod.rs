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
        judge(self.copy().matcher, instance)
    }
}

/// Judges an instance with a matcher at the start of its grammar.
pub fn judge(matcher: Matcher, instance: Instance) -> Judgement {
    let run = AssertUnwindSafe(|| match instance {
        Instance::Text(text) => Writer::new(matcher)?.judge_text(text),
        Instance::Value(value) => Writer::new(matcher)?.judge_value(value),
        Instance::Exact(value) => Writer::new(matcher)?.exact().judge_value(value),
    });
    let result = catch_unwind(run).unwrap_or_else(|_| Err(anyhow::anyhow!("panic: judge")));
    result.unwrap_or_else(|error| Judgement {
        accepted: false,
        text: String::new(),
        rejected_at: Some(0),
        reason: crate::compiled::mask_error(&error.to_string()),
        exhaustive: false,
    })
}
