//! Logit bias and penalties of one sequence: the few tokens of a row whose logit changes.
//! Owned by the sequence's sampler; must not look at tokens that no parameter touches.

use std::collections::HashMap;

use crate::{SamplingParams, TokenId};

/// A token whose logit is not the model's.
#[derive(Debug, Clone)]
struct Entry {
    token: TokenId,
    bias: f32,
    /// In the prompt.
    prompted: bool,
    /// Times generated.
    count: u32,
}

/// The tokens to adjust, with what is known of each.
#[derive(Debug, Clone)]
pub(super) struct Adjustments {
    entries: Vec<Entry>,
    positions: HashMap<TokenId, usize>,
    repetition: f32,
    frequency: f32,
    presence: f32,
    /// Whether generated tokens matter at all.
    penalized: bool,
}

impl Adjustments {
    pub(super) fn new(params: &SamplingParams, prompt: &[TokenId]) -> Self {
        let repeats = params.repetition_penalty != 1.0;
        let mut adjustments = Self {
            entries: Vec::new(),
            positions: HashMap::new(),
            repetition: params.repetition_penalty,
            frequency: params.frequency_penalty,
            presence: params.presence_penalty,
            penalized: repeats || params.frequency_penalty != 0.0 || params.presence_penalty != 0.0,
        };
        for &(token, bias) in &params.logit_bias {
            adjustments.entry(token).bias += bias;
        }
        if repeats {
            for &token in prompt {
                adjustments.entry(token).prompted = true;
            }
        }
        adjustments
    }

    fn entry(&mut self, token: TokenId) -> &mut Entry {
        let entries = &mut self.entries;
        let position = *self.positions.entry(token).or_insert_with(|| {
            entries.push(Entry { token, bias: 0.0, prompted: false, count: 0 });
            entries.len() - 1
        });
        &mut entries[position]
    }

    /// Counts a generated token.
    pub(super) fn record(&mut self, token: TokenId) {
        if self.penalized {
            self.entry(token).count += 1;
        }
    }

    /// Takes back one [`record`](Self::record) of a token.
    pub(super) fn forget(&mut self, token: TokenId) {
        if self.penalized {
            let entry = self.entry(token);
            entry.count = entry.count.saturating_sub(1);
        }
    }

    /// Calls `set` with every adjusted logit.
    pub(super) fn apply(&self, logits: &[f32], mut set: impl FnMut(TokenId, f32)) {
        for entry in &self.entries {
            if let Some(&logit) = logits.get(entry.token as usize) {
                set(entry.token, self.adjust(entry, logit));
            }
        }
    }

    fn adjust(&self, entry: &Entry, logit: f32) -> f32 {
        // NaN comes from the model only: the caller reports it.
        if logit.is_nan() || logit == f32::INFINITY {
            return logit;
        }
        let mut value = logit + entry.bias;
        if entry.prompted || entry.count > 0 {
            value = if value > 0.0 { value / self.repetition } else { value * self.repetition };
        }
        if entry.count > 0 {
            value -= self.frequency * entry.count as f32;
            value -= self.presence;
        }
        // Extreme parameters must not look like a broken model.
        if value.is_nan() { f32::NEG_INFINITY } else { value.min(f32::MAX) }
    }
}
