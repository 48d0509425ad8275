//! Log-probabilities that look like a model's: made up, but deterministic, sorted and of mass at most 1. Pure.

use std::f32::consts::LN_2;
use std::sync::Arc;

use llgtrt_core::{SequenceSpec, TokenId, TokenLogprobs, Vocabulary};

use crate::hash::{index, mix, unit};

/// The made-up distribution at one position, every token once, best first: the one that is said, then each of the others
/// with half of what is left. Log-probabilities, which are the logits as well.
fn ranked(hash: u64, token: TokenId, vocabulary: &Vocabulary) -> impl Iterator<Item = (TokenId, f32)> {
    let best = best(hash);
    let len = vocabulary.len().max(1);
    let start = index(mix(hash, 3), len);
    let others =
        (0..len).map(move |place| ((start + place) % len) as TokenId).filter(move |next| *next != token);
    let rest = (1.0 - best).ln();
    let others = others.zip(1_u32..).map(move |(next, halvings)| (next, rest - halvings as f32 * LN_2));
    std::iter::once((token, best.ln())).chain(others)
}

/// Those of a token with the `count` likeliest, of which it is the first.
pub(crate) fn of_token(hash: u64, token: TokenId, count: u32, vocabulary: &Vocabulary) -> TokenLogprobs {
    let top = ranked(hash, token, vocabulary).take(count as usize).collect();
    TokenLogprobs { logprob: best(hash).ln(), top, row: None }
}

/// Those of a token among what a mask allows, which it is the best of.
pub(crate) fn among(
    hash: u64,
    token: TokenId,
    count: u32,
    mask: Option<&[u32]>,
    vocabulary: &Vocabulary,
) -> TokenLogprobs {
    let allowed = |(other, _): &(TokenId, f32)| {
        mask.is_none_or(|mask| {
            mask.get(*other as usize / 32).is_some_and(|word| word >> (other % 32) & 1 == 1)
        })
    };
    let sum: f64 = ranked(hash, token, vocabulary).filter(allowed).map(|(_, own)| f64::from(own).exp()).sum();
    let sum = sum.ln() as f32;
    let top = ranked(hash, token, vocabulary).filter(allowed).take(count as usize);
    TokenLogprobs {
        logprob: best(hash).ln() - sum,
        top: top.map(|(token, own)| (token, own - sum)).collect(),
        row: None,
    }
}

/// Those of a token without another choice.
pub(crate) fn of_forced(token: TokenId, count: u32) -> TokenLogprobs {
    TokenLogprobs { logprob: 0.0, top: (count > 0).then_some((token, 0.0)).into_iter().collect(), row: None }
}

/// The logits at one position: their log-softmax are the log-probabilities.
pub(crate) fn row(hash: u64, token: TokenId, vocabulary: &Vocabulary) -> Arc<[f32]> {
    let mut row = vec![f32::NEG_INFINITY; vocabulary.len()];
    for (token, logit) in ranked(hash, token, vocabulary) {
        row[token as usize] = logit;
    }
    row.into()
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
    let wanted = spec.sampling.prompt_logits;
    let mut hash = 0;
    let entry = |(position, token): (usize, &TokenId)| {
        let entry = (position > 0).then(|| TokenLogprobs {
            row: wanted.then(|| row(hash, *token, vocabulary)),
            ..of_token(hash, *token, count, vocabulary)
        });
        hash = mix(hash, u64::from(*token));
        entry
    };
    spec.prompt.iter().enumerate().map(entry).collect()
}
