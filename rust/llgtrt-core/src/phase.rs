//! A sequence divided between two engines: one evaluates the prompt, the other generates. Plain data.

use std::sync::Arc;

use serde::Deserialize;

use crate::{Capabilities, Error, Result, SequenceSpec, TokenId};

/// The field of an API's request that says how it is divided.
const FIELD: &str = "disaggregated_params";

/// Which part of a sequence an engine is asked for. Other parts than the whole are only for engines with
/// [`Capabilities::handover`](crate::Capabilities::handover).
#[derive(Debug, Clone, Default)]
pub enum Phase {
    /// All of it.
    #[default]
    Whole,
    /// The prompt and what is sampled right behind it. The sequence ends with
    /// [`Finish::HandedOver`](crate::Finish::HandedOver), unless it is over by then.
    Context,
    /// What comes behind that. The first tokens are reported like those that this engine samples, and count like them.
    Generation(Arc<Handover>),
}

/// What one engine hands over to another of the same model.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Handover {
    /// Under which the first engine knows the sequence.
    pub request_id: u64,
    /// The tokens that it generated.
    pub first_tokens: Vec<TokenId>,
    /// Its guesses at the next ones.
    #[serde(default)]
    pub draft_tokens: Vec<TokenId>,
    /// Where the KV cache is, in the engine's own form. The engine trusts it.
    #[serde(skip)]
    pub state: Arc<[u8]>,
}

impl SequenceSpec {
    /// The tokens that another engine has generated.
    pub fn first_tokens(&self) -> &[TokenId] {
        match &self.phase {
            Phase::Generation(handover) => &handover.first_tokens,
            Phase::Whole | Phase::Context => &[],
        }
    }
}

impl Phase {
    /// Checks what is asked of an engine that hands sequences over, or does not, for a sequence of so many tokens.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidRequest`](crate::ErrorKind::InvalidRequest), naming the field.
    pub fn check(&self, engine: &Capabilities, max_tokens: u32) -> Result<()> {
        if !(engine.handover || matches!(self, Self::Whole)) {
            let message = format!("the {} engine cannot divide an answer with another server", engine.name);
            return Err(Error::invalid(FIELD, message));
        }
        let Self::Generation(handover) = self else { return Ok(()) };
        let of_vocabulary = |tokens: &[TokenId]| tokens.iter().all(|token| *token < engine.vocab_size);
        if handover.first_tokens.is_empty() {
            return Err(Error::invalid(format!("{FIELD}.first_gen_tokens"), "there is no first token"));
        }
        if !of_vocabulary(&handover.first_tokens) {
            let message = "a token outside the vocabulary";
            return Err(Error::invalid(format!("{FIELD}.first_gen_tokens"), message));
        }
        if !of_vocabulary(&handover.draft_tokens) {
            return Err(Error::invalid(format!("{FIELD}.draft_tokens"), "a token outside the vocabulary"));
        }
        if handover.first_tokens.len() > max_tokens as usize {
            let message = "fewer tokens are allowed than were generated before";
            return Err(Error::invalid("max_tokens", message));
        }
        Ok(())
    }
}
