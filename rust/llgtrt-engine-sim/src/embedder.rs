//! Vectors and scores without a model: a function of the tokens alone, so that texts which share tokens are close.
//! Runs on the embedder's thread; takes as long as the configuration says.

use std::sync::Arc;
use std::time::Duration;

use llgtrt_core::{
    EmbedText, Embedder, EmbedderTraits, EncodeOptions, Result, TokenId, Tokenizer, room_for_text,
};

use crate::config::SimConfig;
use crate::hash;

/// Numbers of a vector.
const DIMENSIONS: u32 = 64;

/// Inputs in one step.
const INPUTS: usize = 8;

/// The simulated embedder.
pub struct SimEmbedder {
    tokenizer: Arc<dyn Tokenizer>,
    traits: EmbedderTraits,
    seed: u64,
    step: Duration,
    waiting: Vec<(u64, Vec<TokenId>, bool)>,
}

impl SimEmbedder {
    /// An embedder over a tokenizer; a pair is separated by the vocabulary's first end token, or by token 0.
    pub fn new(config: &SimConfig, tokenizer: Arc<dyn Tokenizer>) -> Self {
        let vocabulary = tokenizer.vocabulary();
        let traits = EmbedderTraits {
            dimensions: Some(DIMENSIONS),
            ranks: true,
            max_tokens: config.max_sequence_tokens,
            vocab_size: vocabulary.len() as u32,
            max_token_bytes: vocabulary.max_token_bytes(),
            max_inputs: INPUTS,
            pooling: "mean",
        };
        let step = Duration::from_micros(config.step_us);
        Self { tokenizer, traits, seed: config.seed, step, waiting: Vec::new() }
    }

    fn separator(&self) -> TokenId {
        self.tokenizer.vocabulary().eos().first().copied().unwrap_or(0)
    }

    /// The mean of one random vector per token.
    fn vector(&self, tokens: &[TokenId]) -> Vec<f32> {
        (0..u64::from(DIMENSIONS))
            .map(|place| {
                let value = |&token: &TokenId| {
                    hash::unit(hash::mix(hash::mix(self.seed, place), u64::from(token))) - 0.5
                };
                tokens.iter().map(value).sum::<f32>() / tokens.len() as f32
            })
            .collect()
    }

    /// How many of the document's tokens the query has, as a logit.
    fn score(&self, tokens: &[TokenId]) -> f32 {
        let separator = self.separator();
        let at = tokens.iter().position(|&token| token == separator).unwrap_or(tokens.len());
        let (query, document) = tokens.split_at(at);
        let shared = document.iter().filter(|token| query.contains(token)).count();
        8.0 * shared as f32 / document.len().max(1) as f32 - 4.0
    }
}

impl Embedder for SimEmbedder {
    fn traits(&self) -> &EmbedderTraits {
        &self.traits
    }

    fn tokenize(&self, text: &EmbedText, most: Option<usize>) -> Result<Vec<TokenId>> {
        let options = EncodeOptions { add_special: false, parse_special: false };
        let (mut tokens, text) = match text {
            EmbedText::Single(text) => (Vec::new(), text),
            EmbedText::Pair(query, document) => {
                let mut tokens = self.tokenizer.encode(query, options)?;
                tokens.push(self.separator());
                (tokens, document)
            }
        };
        let room = most.map_or(Ok(usize::MAX), |most| room_for_text(most, tokens.len()))?;
        tokens.extend(self.tokenizer.encode(text, options)?.into_iter().take(room));
        Ok(tokens)
    }

    fn submit(&mut self, id: u64, tokens: Vec<TokenId>, rank: bool) {
        self.waiting.push((id, tokens, rank));
    }

    fn cancel(&mut self, id: u64) {
        self.waiting.retain(|(waiting, ..)| *waiting != id);
    }

    fn step(&mut self, done: &mut Vec<(u64, Result<Vec<f32>>)>) -> Result<()> {
        if !self.step.is_zero() {
            std::thread::sleep(self.step);
        }
        for (id, tokens, rank) in std::mem::take(&mut self.waiting) {
            let vector = if rank { vec![self.score(&tokens)] } else { self.vector(&tokens) };
            done.push((id, Ok(vector)));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tokenizer of single bytes.
    struct Bytes(llgtrt_core::Vocabulary);

    impl Tokenizer for Bytes {
        fn vocabulary(&self) -> &llgtrt_core::Vocabulary {
            &self.0
        }

        fn encode(&self, text: &str, _: EncodeOptions) -> Result<Vec<TokenId>> {
            Ok(text.bytes().map(TokenId::from).collect())
        }
    }

    fn embedder() -> SimEmbedder {
        let mut builder = llgtrt_core::VocabularyBuilder::default();
        for byte in 0..=255 {
            builder.push(&[byte], byte == 0);
        }
        SimEmbedder::new(&SimConfig::default(), Arc::new(Bytes(builder.build(None, vec![0]))))
    }

    fn answer(texts: &[EmbedText], rank: bool) -> Vec<Vec<f32>> {
        let mut embedder = embedder();
        for (id, text) in texts.iter().enumerate() {
            let tokens = embedder.tokenize(text, None).unwrap();
            embedder.submit(id as u64, tokens, rank);
        }
        let mut done = Vec::new();
        embedder.step(&mut done).unwrap();
        done.into_iter().map(|(_, result)| result.unwrap()).collect()
    }

    #[test]
    fn texts_that_share_tokens_are_close() {
        let single = |text: &str| EmbedText::Single(text.to_owned());
        let vectors = answer(&[single("abcd"), single("abce"), single("wxyz"), single("abcd")], false);
        let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
        assert_eq!(vectors[0], vectors[3]);
        assert!(dot(&vectors[0], &vectors[1]) > dot(&vectors[0], &vectors[2]));
        assert_eq!(vectors[0].len(), DIMENSIONS as usize);
    }

    #[test]
    fn a_document_that_repeats_the_query_scores_best() {
        let pair = |document: &str| EmbedText::Pair("cats".into(), document.into());
        let scores = answer(&[pair("cats"), pair("cogs"), pair("xyz")], true);
        assert!(scores[0][0] > scores[1][0] && scores[1][0] > scores[2][0]);
    }
}
