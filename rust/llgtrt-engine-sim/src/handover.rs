//! Sequences divided between two engines. The pretended state is a hash of what the KV cache would hold, so that one that
//! belongs to another prompt or another engine's seed is noticed.

use std::sync::Arc;

use llgtrt_core::{Error, Finish, Handover, Phase, Result, SequenceSpec, TokenId};

use crate::hash::mix;
use crate::sequence::Sequence;

const MAGIC: &[u8] = b"llgtrt-sim-state";

/// Ends a sequence of which only the beginning is asked for, as soon as it has one.
pub(crate) fn hand_over(sequence: &mut Sequence, seed: u64) {
    let asked = matches!(sequence.spec.phase, Phase::Context);
    // At its limit it could end here as well. But an orchestrator takes the reason `length` for a reason to go on.
    let goes_on = matches!(sequence.finish, None | Some(Finish::Length));
    if !asked || !goes_on || !sequence.is_ready() || sequence.tokens.is_empty() {
        return;
    }
    if sequence.finish.is_some() {
        // The other engine has to come to the limit by itself, or it would take the answer for one that ended.
        sequence.retract(1);
    }
    sequence.finish = Some(Finish::HandedOver(Arc::new(Handover {
        request_id: sequence.spec.id.0,
        state: state(&sequence.spec.prompt, &sequence.tokens, seed),
        first_tokens: sequence.tokens.clone(),
        draft_tokens: Vec::new(),
    })));
}

/// Whether the state is that of the sequence.
pub(crate) fn check(handover: &Handover, spec: &SequenceSpec, seed: u64) -> Result<()> {
    if handover.state == state(&spec.prompt, &handover.first_tokens, seed) {
        return Ok(());
    }
    let message = "the state is not one of this model and prompt";
    Err(Error::invalid("disaggregated_params.encoded_opaque_state", message))
}

fn state(prompt: &[TokenId], tokens: &[TokenId], seed: u64) -> Arc<[u8]> {
    let of_prompt = prompt.iter().fold(seed, |hash, token| mix(hash, u64::from(*token)));
    let hash = tokens.iter().fold(mix(of_prompt, u64::MAX), |hash, token| mix(hash, u64::from(*token)));
    [MAGIC, &hash.to_le_bytes()].concat().into()
}
