//! Asks a validator about a value, within a deadline.
//!
//! How long a validator takes depends on the schema in ways that nobody bounds (references that double at
//! every level, for instance), and it cannot be interrupted. So it runs on a `residual-judge` thread; the
//! caller waits for it, not longer than [`PATIENCE`]. A judge that takes longer is left to end by
//! itself, and the next question goes to a new one, as long as there are not too many.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use jsonschema::Validator;
use parking_lot::Mutex;
use serde_json::Value;

use crate::spawn_big_stack;

/// The caller waits at most this long; if it is the engine's thread, so does every sequence.
const PATIENCE: Duration = Duration::from_millis(250);

/// Judges that may be late at the same time.
const MAX_LATE: usize = 4;

/// What a judge said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Judgement {
    Valid,
    Invalid,
    /// Not in time.
    Unknown,
}

struct Question {
    validator: Arc<Validator>,
    text: Vec<u8>,
    answer: Sender<bool>,
}

/// One judge at a time, for one kind of caller: those who wait for each other.
pub(super) struct Court {
    judge: Mutex<Option<Sender<Question>>>,
    /// Questions that were asked and are not answered.
    busy: AtomicUsize,
}

/// Asked by the engine's thread, about answers.
pub(super) static ANSWERS: Court = Court::new();

/// Asked by compile slots, about the instances of reports: whatever they are, no answer waits for them.
pub(super) static REPORTS: Court = Court::new();

impl Court {
    const fn new() -> Self {
        Self { judge: Mutex::new(None), busy: AtomicUsize::new(0) }
    }

    /// Whether the JSON text satisfies the schema.
    pub(super) fn judge(&'static self, validator: &Arc<Validator>, text: &[u8]) -> Judgement {
        let (answer, heard) = channel();
        let mut judge = self.judge.lock();
        let question = Question { validator: Arc::clone(validator), text: text.to_vec(), answer };
        let sender = match judge.take() {
            Some(sender) => sender,
            None if self.busy.load(Ordering::Acquire) >= MAX_LATE => return Judgement::Unknown,
            None => {
                let (sender, questions) = channel();
                let thread = spawn_big_stack("residual-judge", move || self.serve(&questions));
                if let Err(error) = thread {
                    tracing::error!(%error, "no thread for a validator");
                    return Judgement::Unknown;
                }
                sender
            }
        };
        self.busy.fetch_add(1, Ordering::AcqRel);
        if sender.send(question).is_err() {
            self.busy.fetch_sub(1, Ordering::AcqRel);
            return Judgement::Unknown;
        }
        match heard.recv_timeout(PATIENCE) {
            Ok(valid) => {
                *judge = Some(sender);
                if valid { Judgement::Valid } else { Judgement::Invalid }
            }
            Err(_) => Judgement::Unknown,
        }
    }

    fn serve(&self, questions: &Receiver<Question>) {
        for Question { validator, text, answer } in questions {
            let ask = || serde_json::from_slice::<Value>(&text).is_ok_and(|value| validator.is_valid(&value));
            let valid = std::panic::catch_unwind(std::panic::AssertUnwindSafe(ask)).unwrap_or(false);
            self.busy.fetch_sub(1, Ordering::AcqRel);
            // Whoever asked may have lost patience.
            let _ = answer.send(valid);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_are_judged() {
        let validator = Arc::new(jsonschema::validator_for(&json!({"uniqueItems": true})).unwrap());
        assert_eq!(ANSWERS.judge(&validator, b"[1, 2]"), Judgement::Valid);
        assert_eq!(ANSWERS.judge(&validator, b"[1, 1.0]"), Judgement::Invalid);
        assert_eq!(ANSWERS.judge(&validator, b"[1,"), Judgement::Invalid);
    }

    #[test]
    fn patience_ends() {
        // Each level asks twice about the next.
        let mut schema = json!({"$ref": "#/$defs/0"});
        for level in 0..40 {
            let next = json!({"$ref": format!("#/$defs/{}", level + 1)});
            schema["$defs"][level.to_string()] = json!({"allOf": [next, next]});
        }
        schema["$defs"]["40"] = json!({"type": "integer"});
        let slow = Arc::new(jsonschema::validator_for(&schema).unwrap());
        let quick = Arc::new(jsonschema::validator_for(&json!({"type": "integer"})).unwrap());
        assert_eq!(ANSWERS.judge(&slow, b"1"), Judgement::Unknown);
        assert_eq!(ANSWERS.judge(&quick, b"1"), Judgement::Valid);
    }
}
