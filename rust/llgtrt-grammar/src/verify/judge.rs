//! Asks a validator about a value, within a deadline.
//!
//! How long a validator takes depends on the schema in ways that nobody bounds (references that double at
//! every level, for instance), and it cannot be interrupted. So it runs on a `residue-judge` thread; the
//! engine's thread waits for it, not longer than [`PATIENCE`]. A judge that takes longer is left to end by
//! itself, and the next question goes to a new one, as long as there are not too many.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use jsonschema::Validator;
use parking_lot::Mutex;
use serde_json::Value;

use crate::spawn_big_stack;

/// The engine's thread, and with it every sequence, waits at most this long.
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

static JUDGE: Mutex<Option<Sender<Question>>> = Mutex::new(None);
/// Questions that were asked and are not answered.
static BUSY: AtomicUsize = AtomicUsize::new(0);

/// Whether the JSON text satisfies the schema.
pub(super) fn judge(validator: &Arc<Validator>, text: &[u8]) -> Judgement {
    let (answer, heard) = channel();
    let mut judge = JUDGE.lock();
    let question = Question { validator: Arc::clone(validator), text: text.to_vec(), answer };
    let sender = match judge.take() {
        Some(sender) => sender,
        None if BUSY.load(Ordering::Acquire) >= MAX_LATE => return Judgement::Unknown,
        None => {
            let (sender, questions) = channel();
            let thread = spawn_big_stack("residue-judge", move || serve(&questions));
            if let Err(error) = thread {
                tracing::error!(%error, "no thread for a validator");
                return Judgement::Unknown;
            }
            sender
        }
    };
    BUSY.fetch_add(1, Ordering::AcqRel);
    if sender.send(question).is_err() {
        BUSY.fetch_sub(1, Ordering::AcqRel);
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

fn serve(questions: &Receiver<Question>) {
    for Question { validator, text, answer } in questions {
        let ask = || serde_json::from_slice::<Value>(&text).is_ok_and(|value| validator.is_valid(&value));
        let valid = std::panic::catch_unwind(std::panic::AssertUnwindSafe(ask)).unwrap_or(false);
        BUSY.fetch_sub(1, Ordering::AcqRel);
        // Whoever asked may have lost patience.
        let _ = answer.send(valid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_are_judged() {
        let validator = Arc::new(jsonschema::validator_for(&json!({"uniqueItems": true})).unwrap());
        assert_eq!(judge(&validator, b"[1, 2]"), Judgement::Valid);
        assert_eq!(judge(&validator, b"[1, 1.0]"), Judgement::Invalid);
        assert_eq!(judge(&validator, b"[1,"), Judgement::Invalid);
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
        assert_eq!(judge(&slow, b"1"), Judgement::Unknown);
        assert_eq!(judge(&quick, b"1"), Judgement::Valid);
    }
}
