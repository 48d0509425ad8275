//! Log-probabilities that look like a model's: made up, but deterministic, sorted and of mass at most 1. Pure.

use llgtrt_core::{SequenceSpec, TokenId, TokenLogprobs, Vocabulary};

use crate::hash::{index, mix, unit};

/// Those of a token with the `count` likeliest, of which it is the first.
pub(crate) fn of_token(hash: u64, token: TokenId, count: u32, vocabulary: &Vocabulary) -> TokenLogprobs {
    let best = best(hash);
    let count = (count as usize).min(vocabulary.len());
    let mut top = Vec::with_capacity(count);
    if count > 0 {
        top.push((token, best.ln()));
    }
    let mut next = index(mix(hash, 3), vocabulary.len().max(1)) as TokenId;
    let mut mass = 1.0 - best;
    while top.len() < count {
        if next != token {
            mass *= 0.5;
            top.push((next, mass.ln()));
        }
        next = (next + 1) % vocabulary.len() as TokenId;
    }
    TokenLogprobs { logprob: best.ln(), top }
}

/// The probability of the likeliest token, which is the one that is said.
fn best(hash: u64) -> f32 {
    0.5 + 0.45 * unit(mix(hash, 2))
}

/// The mass that a mask removes: what is not the token's own is spread evenly over the others. Without a mask
/// nothing is removed; where there was no choice, all but the token's own.
pub(crate) fn removed_mass(hash: u64, choice: Choice<'_>, vocabulary: &Vocabulary) -> f32 {
    let share = match choice {
        Choice::Free => 0.0,
        Choice::Forced => 1.0,
        Choice::Masked(mask) => {
            let allowed: u32 = mask.iter().map(|word| word.count_ones()).sum();
            let others = vocabulary.len().max(2) as f32 - 1.0;
            1.0 - (allowed.max(1) - 1) as f32 / others
        }
    };
    (1.0 - best(hash)) * share
}

/// How a token came about.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Choice<'a> {
    Free,
    Masked(&'a [u32]),
    Forced,
}

/// One entry per prompt token; the first has none, because nothing comes before it.
pub(crate) fn of_prompt(spec: &SequenceSpec, vocabulary: &Vocabulary) -> Vec<Option<TokenLogprobs>> {
    let count = spec.sampling.logprobs.unwrap_or(0);
    let mut hash = 0;
    let entry = |(position, token): (usize, &TokenId)| {
        let entry = (position > 0).then(|| of_token(hash, *token, count, vocabulary));
        hash = mix(hash, u64::from(*token));
        entry
    };
    spec.prompt.iter().enumerate().map(entry).collect()
}
