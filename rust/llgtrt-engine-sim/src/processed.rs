//! Sequences with a logits processor: a row is made up around what the voice says, and the likeliest token of what the
//! processor makes of it comes next. Runs in `poll`.

use llgtrt_core::sampler::Sampler;
use llgtrt_core::{Error, ErrorKind, Finish, Processed, Result, SamplingParams, TokenId};

use crate::engine::SimEngine;
use crate::sequence::Sequence;

/// What the voice says, and the row of the mask that it was said under.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Said {
    pub(crate) token: TokenId,
    pub(crate) mask_row: Option<usize>,
}

impl SimEngine {
    /// Lets the processors of a step run, and takes the tokens that they lead to.
    pub(crate) fn sample_processed(&mut self) {
        let running = &self.running;
        self.processed.run(|index| {
            let spec = &running[index].spec;
            let processor = spec.processor.as_deref()?;
            Some(Processed { processor, prompt: &spec.prompt, generated: &running[index].tokens })
        });
        let vocabulary = self.tokenizer.vocabulary();
        for (index, sequence) in self.running.iter_mut().enumerate() {
            let (Some(said), Some(row)) = (sequence.said.take(), self.processed.get(index)) else { continue };
            let mask = said.mask_row.map(|row| self.mask_batch.row(row));
            match row.and_then(|row| likeliest(sequence, row, mask, vocabulary.eos(), said.token)) {
                Ok(token) => sequence.push_sampled(token, mask, vocabulary),
                Err(error) => sequence.finish = Some(Finish::Failed(error)),
            }
        }
    }
}

/// The likeliest token of a row that the mask allows; where it allows none that the processor left, what was said.
fn likeliest(
    sequence: &Sequence,
    row: &[f32],
    mask: Option<&[u32]>,
    eos: &[TokenId],
    said: TokenId,
) -> Result<TokenId, Error> {
    let spec = &sequence.spec;
    let params = SamplingParams {
        temperature: 0.0,
        min_tokens: spec.sampling.min_tokens.saturating_sub(sequence.tokens.len() as u32),
        ignore_eos: spec.sampling.ignore_eos,
        ..SamplingParams::default()
    };
    match Sampler::new(params, &[], eos, &spec.stop_token_ids).sample(row, mask) {
        Ok(sampled) => Ok(sampled.token),
        Err(error) if error.kind == ErrorKind::NotFinite && mask.is_some() => Ok(said),
        Err(error) => Err(error),
    }
}
