//! Acts out the configured failures. Runs on the polling thread; must not fail anything that the
//! configuration does not name.

use llgtrt_core::{Error, ErrorKind, Finish, Result, TokenId, Vocabulary};

use crate::config::{Fault, FaultKind};
use crate::sequence::Sequence;

/// The configured failures.
pub(crate) struct Faults {
    faults: Vec<Fault>,
}

impl Faults {
    pub(crate) fn new(faults: &[Fault]) -> Self {
        Self { faults: faults.to_vec() }
    }

    /// The faults that concern one sequence, by index: the `number`-th submitted, with this prompt.
    pub(crate) fn aimed_at(&self, number: u64, prompt: &[TokenId], vocabulary: &Vocabulary) -> Vec<usize> {
        if self.faults.is_empty() {
            return Vec::new();
        }
        let mut text = Vec::new();
        for &token in prompt {
            text.extend_from_slice(vocabulary.bytes(token));
        }
        let text = String::from_utf8_lossy(&text);
        let concerns = |fault: &Fault| {
            is_aimed(fault)
                && fault.prompt_contains.as_ref().is_none_or(|part| text.contains(part))
                && fault.every.is_none_or(|every| number.is_multiple_of(every))
        };
        (0..self.faults.len()).filter(|index| concerns(&self.faults[*index])).collect()
    }

    /// Acts out what is due at the end of forward pass number `pass`.
    pub(crate) fn act(&self, pass: u64, running: &mut [Sequence]) -> Result<()> {
        for fault in self.faults.iter().filter(|fault| !is_aimed(fault) && pass >= fault.at_step) {
            end(fault.kind)?;
        }
        for sequence in running.iter_mut().filter(|sequence| sequence.is_ready()) {
            let step = sequence.tokens.len() as u64;
            let Some(&due) = sequence.faults.iter().find(|index| step >= self.faults[**index].at_step) else {
                continue;
            };
            let error = match self.faults[due].kind {
                FaultKind::FailSequence => Error::internal("the sim engine was told to fail this sequence"),
                FaultKind::NanRow => {
                    Error::new(ErrorKind::NotFinite, "the model produced a logit that is not a number")
                }
                kind => return end(kind),
            };
            sequence.finish.get_or_insert(Finish::Failed(error));
        }
        Ok(())
    }
}

/// Whether the fault concerns single sequences, at their own steps.
fn is_aimed(fault: &Fault) -> bool {
    matches!(fault.kind, FaultKind::FailSequence | FaultKind::NanRow)
        || fault.prompt_contains.is_some()
        || fault.every.is_some()
}

/// The failures of the whole engine.
fn end(kind: FaultKind) -> Result<()> {
    match kind {
        FaultKind::FailSequence | FaultKind::NanRow => Ok(()),
        FaultKind::FailEngine => Err(Error::engine("the sim engine was told to fail")),
        FaultKind::Abort => std::process::abort(),
        FaultKind::Panic => panic!("the sim engine was told to panic"),
        FaultKind::Hang => loop {
            std::thread::park();
        },
    }
}
