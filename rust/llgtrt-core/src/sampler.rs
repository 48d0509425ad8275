//! Draws one token from a row of logits. Owns the generator, the penalties' counts and the bans of one
//! sequence; runs on the engine's thread; must not allocate per token nor keep a row between calls.
//!
//! The working buffers belong to the thread, not to the sequence: one row of a large vocabulary is half a
//! megabyte, and all sequences of a step are sampled one after the other.
//!
//! The same seed, parameters and logits give the same tokens on every machine: every sum has a fixed order
//! that does not depend on the width of the vector registers, and `exp` is our own.

#![expect(clippy::float_cmp, reason = "a parameter is off at one exact value, a maximum equals itself")]

mod adjust;
mod flat;
mod row;
mod select;
#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::sync::Arc;

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{RngCore as _, SeedableRng as _};

use crate::{Error, ErrorKind, SamplingParams, TokenId, TokenLogprobs};
use adjust::Adjustments;
use row::{Cutoff, Peak, Row, scale};
use select::Candidates;

/// Below this temperature sampling is greedy, as in vLLM: dividing by it would overflow.
const MIN_TEMPERATURE: f32 = 1e-5;

/// [`scale`] at temperature 1.
const UNSCALED: f32 = std::f32::consts::LOG2_E;

/// What [`Sampler::sample`] chose.
#[derive(Debug, Clone, PartialEq)]
pub struct Sampled {
    /// The token.
    pub token: TokenId,
    /// Probability that the mask took away, 0 without a mask; present if [`SamplingParams::removed_mass`] asks for
    /// it.
    pub removed_mass: Option<f32>,
    /// Present if [`SamplingParams::logprobs`] asks for it.
    pub logprobs: Option<Box<TokenLogprobs>>,
}

/// The sampler of one sequence.
///
/// A row goes through these stages, each defined as in vLLM:
/// 1. log-softmax of the raw row, for log-probabilities and for the mass that the mask removes; of what the mask
///    leaves of it, with `allowed_logprobs`;
/// 2. `logit_bias`, then the repetition penalty (prompt and answer), then the frequency and presence
///    penalties (answer);
/// 3. bans: every end token before `min_tokens`, end-of-sequence tokens with `ignore_eos`; a ban that would
///    leave no candidate is dropped;
/// 4. the mask;
/// 5. temperature 0: the most likely token, the lowest id among equals. Otherwise temperature, `min_p`,
///    `top_k` (all tokens equal to the k-th stay), `top_p` (the most likely tokens until their mass reaches
///    `top_p`), and a draw from what is left.
#[derive(Debug, Clone)]
pub struct Sampler {
    params: SamplingParams,
    generator: Xoshiro256PlusPlus,
    adjustments: Adjustments,
    /// End-of-sequence tokens, then stop tokens.
    ends: Box<[TokenId]>,
    eos_count: usize,
    generated: u32,
}

/// Working memory of a thread.
#[derive(Default)]
struct Scratch {
    row: Row,
    candidates: Candidates,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// Log-probabilities of a raw row, before the token is known.
struct RowLogprobs {
    log_sum: f32,
    top: Vec<(TokenId, f32)>,
}

impl RowLogprobs {
    fn of(self, logits: &[f32], token: TokenId) -> TokenLogprobs {
        let logit = logits.get(token as usize).copied().unwrap_or(f32::NEG_INFINITY);
        TokenLogprobs { logprob: logit - self.log_sum, top: self.top, row: None }
    }
}

impl Sampler {
    /// A sampler for a sequence that starts with `prompt`. `eos` are the vocabulary's end-of-sequence
    /// tokens, `stop_tokens` the request's own.
    pub fn new(params: SamplingParams, prompt: &[TokenId], eos: &[TokenId], stop_tokens: &[TokenId]) -> Self {
        Self {
            generator: Xoshiro256PlusPlus::seed_from_u64(params.seed),
            adjustments: Adjustments::new(&params, prompt),
            ends: eos.iter().chain(stop_tokens).copied().collect(),
            eos_count: eos.len(),
            generated: 0,
            params,
        }
    }

    /// The parameters this sampler was made with.
    pub fn params(&self) -> &SamplingParams {
        &self.params
    }

    /// Draws a token from `logits`, among those whose bit is set in `mask`, and records it.
    /// With a mask only the logits of allowed tokens are looked at (all of them, with logprobs or the removed mass).
    ///
    /// # Errors
    /// [`ErrorKind::NotFinite`]: the row holds NaN or plus infinity, or no candidate is finite.
    /// [`ErrorKind::Grammar`]: the mask has no bit set. The sampler is unchanged.
    pub fn sample(&mut self, logits: &[f32], mask: Option<&[u32]>) -> Result<Sampled, Error> {
        self.sample_changed(logits, None, mask)
    }

    /// The same, where a processor has made another row of the model's `logits`: tokens are drawn from that one;
    /// log-probabilities and the removed mass stay the model's. Where the mask allows nothing of what the
    /// processor left, it is laid over the model's own row.
    ///
    /// # Errors
    /// As [`Self::sample`] has them.
    pub fn sample_changed(
        &mut self,
        logits: &[f32],
        changed: Option<&[f32]>,
        mask: Option<&[u32]>,
    ) -> Result<Sampled, Error> {
        SCRATCH.with_borrow_mut(|scratch| {
            let among = mask.filter(|_| self.params.allowed_logprobs);
            let logprobs = match self.params.logprobs {
                Some(count) => Some(row_logprobs(scratch, logits, among, count as usize)?),
                None => None,
            };
            let removed_mass = match mask {
                _ if !self.params.removed_mass => None,
                None => Some(0.0),
                Some(mask) => {
                    let known = logprobs.as_ref().filter(|_| among.is_none()).map(|row| row.log_sum);
                    Some(removed_mass(&mut scratch.row, logits, mask, known)?)
                }
            };
            let mut row = changed.unwrap_or(logits);
            let peak = match self.prepare(&mut scratch.row, row, mask) {
                Err(error) if error.kind == ErrorKind::NotFinite && changed.is_some() && mask.is_some() => {
                    row = logits;
                    self.prepare(&mut scratch.row, row, mask)?
                }
                peak => peak?,
            };
            let token = self.choose(scratch, row, peak);
            let kept = self.row(logits, self.generated);
            self.accept(token);
            let logprobs = logprobs.map(|row| Box::new(TokenLogprobs { row: kept, ..row.of(logits, token) }));
            Ok(Sampled { token, removed_mass, logprobs })
        })
    }

    /// Records a token that was not sampled here, such as a forced one.
    pub fn accept(&mut self, token: TokenId) {
        self.generated = self.generated.saturating_add(1);
        self.adjustments.record(token);
    }

    /// Takes back tokens recorded before. The generator goes on from where it is.
    pub fn retract(&mut self, tokens: &[TokenId]) {
        self.generated = self.generated.saturating_sub(tokens.len() as u32);
        for &token in tokens {
            self.adjustments.forget(token);
        }
    }

    /// The log-probabilities of a token that was not sampled from this row, if the sequence asks for
    /// them and the row is finite. `index` counts the generated tokens before it.
    pub fn logprobs_of(&self, logits: &[f32], token: TokenId, index: u32) -> Option<Box<TokenLogprobs>> {
        let count = self.params.logprobs? as usize;
        let row = self.row(logits, index);
        if self.params.allowed_logprobs {
            let top = if count > 0 { vec![(token, 0.0)] } else { Vec::new() };
            return Some(Box::new(TokenLogprobs { logprob: 0.0, top, row }));
        }
        let logprobs = token_logprobs(logits, token, count).ok()?;
        Some(Box::new(TokenLogprobs { row, ..logprobs }))
    }

    /// The row of a generated token, if it is asked for.
    fn row(&self, logits: &[f32], index: u32) -> Option<Arc<[f32]>> {
        (self.params.logprobs.is_some() && index < self.params.logits_rows).then(|| logits.into())
    }

    /// The row with everything applied that comes before temperature.
    fn prepare(&self, row: &mut Row, logits: &[f32], mask: Option<&[u32]>) -> Result<Peak, Error> {
        let bans = if self.generated < self.params.min_tokens {
            &self.ends[..]
        } else if self.params.ignore_eos {
            &self.ends[..self.eos_count]
        } else {
            &[]
        };
        self.load(row, logits, mask);
        for &token in bans {
            row.set(logits, token, f32::NEG_INFINITY);
        }
        match row.find_peak(logits) {
            Err(error) if error.kind == ErrorKind::NotFinite && !bans.is_empty() => {
                self.load(row, logits, mask);
                row.find_peak(logits)
            }
            result => result,
        }
    }

    fn load(&self, row: &mut Row, logits: &[f32], mask: Option<&[u32]>) {
        // With top-k or min-p a few candidates are weighed, as a rule.
        let (greedy, p) = (self.params.temperature < MIN_TEMPERATURE, &self.params);
        row.load(logits, mask, (!greedy && p.top_k == 0 && p.min_p <= 0.0).then(|| scale(p.temperature)));
        self.adjustments.apply(logits, |token, value| row.set(logits, token, value));
    }

    fn choose(&mut self, scratch: &mut Scratch, logits: &[f32], peak: Peak) -> TokenId {
        let Scratch { row, candidates } = scratch;
        let index = if self.params.temperature < MIN_TEMPERATURE {
            row.argmax(logits, peak)
        } else {
            // 53 random bits: every multiple of 2^-53 in [0, 1).
            let unit = (self.generator.next_u64() >> 11) as f64 * f64::exp2(-53.0);
            let p = &self.params;
            let all = (p.top_k == 0 || p.top_k as usize >= row.len()) && p.top_p >= 1.0 && p.min_p <= 0.0;
            if all {
                row.draw(logits, peak, scale(p.temperature), Cutoff::NONE, unit)
            } else {
                candidates.draw(row, logits, peak, &self.params, unit)
            }
        };
        row.token(index)
    }
}

/// The log-probability of `token` in a raw row and those of the `count` most likely tokens.
///
/// # Errors
/// [`ErrorKind::NotFinite`]: the row holds NaN or plus infinity, or nothing finite.
pub fn token_logprobs(logits: &[f32], token: TokenId, count: usize) -> Result<TokenLogprobs, Error> {
    SCRATCH.with_borrow_mut(|scratch| Ok(row_logprobs(scratch, logits, None, count)?.of(logits, token)))
}

/// Among the tokens of the mask, if there is one.
fn row_logprobs(
    scratch: &mut Scratch,
    logits: &[f32],
    mask: Option<&[u32]>,
    count: usize,
) -> Result<RowLogprobs, Error> {
    let Scratch { row, candidates } = scratch;
    row.load(logits, mask, Some(UNSCALED));
    let log_sum = log_sum(row, logits)?;
    // What the mask excludes is at minus infinity, and last.
    let exists = |(_, logit): &(TokenId, f32)| mask.is_none() || *logit > f32::NEG_INFINITY;
    let top = candidates.top(row, logits, count).filter(exists);
    let top = top.map(|(token, logit)| (token, logit - log_sum)).collect();
    Ok(RowLogprobs { log_sum, top })
}

/// Logarithm of the sum of the exponentials of what was loaded, [`UNSCALED`].
fn log_sum(row: &mut Row, logits: &[f32]) -> Result<f32, Error> {
    let peak = row.find_peak(logits)?;
    Ok(peak.max + row.sum(logits, peak, UNSCALED, Cutoff::NONE).ln() as f32)
}

/// Probability in the raw row of the tokens that the mask excludes. `all` is the logarithm of the row's sum, where
/// it is known.
fn removed_mass(row: &mut Row, logits: &[f32], mask: &[u32], all: Option<f32>) -> Result<f32, Error> {
    let all = if let Some(all) = all {
        all
    } else {
        row.load(logits, None, Some(UNSCALED));
        log_sum(row, logits)?
    };
    row.load(logits, Some(mask), Some(UNSCALED));
    let allowed = log_sum(row, logits)?;
    // Rounding may make the part larger than the whole.
    Ok((1.0 - (allowed - all).exp()).clamp(0.0, 1.0))
}
