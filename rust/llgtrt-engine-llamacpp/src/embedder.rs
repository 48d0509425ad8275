//! The embedder: vectors of texts and scores of pairs, from a context of its own.
//!
//! One thread makes every call. llama.cpp gives the vectors of tokens; they are pooled here, so that a long
//! text may come in parts. While the engine generates, a pass is as short as a part of a prompt is (models
//! that read a text in one go: one text). What computes elsewhere in the process takes turns with it (`turns`).

use std::sync::Arc;

use llama_cpp_2::model::LlamaModel;
use llgtrt_core::{EmbedText, Embedder, EmbedderTraits, Error, ErrorKind, Result, TokenId, Tokenizer};
use serde::Deserialize;

use crate::config::LlamaCppConfig;
use crate::context::DecodeError;
use crate::embed_context::{EmbedContext, Shape};
use crate::embed_pack::{Pending, shares};
use crate::model::LlamaCppModel;
use crate::pace::FIRST_TOKENS;
use crate::tokenizer::GgufTokenizer;
use crate::turns::Turns;

/// Texts that are computed side by side.
const SEQUENCES: u32 = 16;

/// Longest input where neither the configuration nor the model has a smaller number.
const DEFAULT_MAX_TOKENS: u32 = 2048;

/// How the vectors of a text's tokens become one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pooling {
    /// As the model file says; the mean where it says nothing.
    #[default]
    Auto,
    /// The mean of all.
    Mean,
    /// That of the first token.
    Cls,
    /// That of the last token.
    Last,
}

/// Settings of the embedder.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EmbedderConfig {
    /// How the vectors of a text's tokens become one.
    pub pooling: Pooling,
    /// Most tokens of an input; `None`: what the model was trained for, at most 2048.
    pub max_tokens: Option<u32>,
    /// Most tokens of a pass while nothing is generated.
    pub batch_tokens: u32,
}

/// What the model makes of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Output {
    Mean,
    Cls,
    Last,
    Rank,
}

/// A text that is being computed.
struct Text {
    id: u64,
    tokens: Vec<TokenId>,
    evaluated: usize,
    /// Its number in llama.cpp.
    sequence: usize,
    vector: Vec<f32>,
}

/// The embedder over a GGUF model. See [`Embedder`] for the contract.
pub struct LlamaCppEmbedder {
    weights: Arc<LlamaModel>,
    config: LlamaCppConfig,
    tokenizer: Arc<GgufTokenizer>,
    turns: Arc<Turns>,
    /// Made by the first step: a server whose clients never ask for vectors needs no memory for them.
    context: Option<EmbedContext>,
    shape: Shape,
    /// The model reads a text in one go.
    whole: bool,
    /// Tokens of a pass while the engine generates.
    chunk: usize,
    output: Output,
    traits: EmbedderTraits,
    /// Oldest first.
    texts: Vec<Text>,
    waiting: Vec<(u64, Vec<TokenId>)>,
    free: Vec<usize>,
}

impl LlamaCppEmbedder {
    /// An embedder over a loaded model, which takes turns with what runs over `beside`.
    ///
    /// # Errors
    /// [`ErrorKind::Configuration`]: the model cannot be used so.
    pub fn new(model: &LlamaCppModel, beside: &LlamaCppModel, config: &EmbedderConfig) -> Result<Self> {
        let weights = Arc::clone(&model.weights);
        let says = |key: &str| {
            let architecture = weights.meta_val_str("general.architecture").ok()?;
            weights.meta_val_str(&format!("{architecture}.{key}")).ok()
        };
        let output = output_of(config.pooling, says("pooling_type").as_deref());
        let trained = weights.n_ctx_train().max(1);
        let max_tokens = config.max_tokens.unwrap_or(trained.min(DEFAULT_MAX_TOKENS));
        if max_tokens > trained {
            return Err(Error::configuration(format!(
                "embedding.max_tokens is {max_tokens}; the model was trained for {trained}"
            ))
            .with_param("embedding.max_tokens"));
        }
        let whole =
            output == Output::Rank || says("attention.causal").is_some_and(|causal| causal == "false");
        let capacity = if whole { max_tokens.max(config.batch_tokens) } else { config.batch_tokens.max(1) };
        let traits = EmbedderTraits {
            dimensions: (output != Output::Rank).then(|| weights.n_embd_out().max(0) as u32),
            ranks: output == Output::Rank,
            max_tokens,
            vocab_size: weights.n_vocab().max(0) as u32,
            max_token_bytes: model.tokenizer.vocabulary().max_token_bytes(),
            max_inputs: SEQUENCES as usize,
            pooling: match output {
                Output::Mean => "mean",
                Output::Cls => "cls",
                Output::Last => "last",
                Output::Rank => "rank",
            },
        };
        Ok(Self {
            config: model.config.clone(),
            tokenizer: Arc::clone(&model.tokenizer),
            turns: Arc::clone(&beside.turns),
            context: None,
            shape: Shape {
                capacity,
                cells: max_tokens.max(capacity).next_multiple_of(256),
                sequences: SEQUENCES,
                rank: output == Output::Rank,
            },
            whole,
            chunk: model.config.prefill_chunk_tokens.map_or(FIRST_TOKENS, |tokens| tokens as usize),
            output,
            traits,
            texts: Vec::new(),
            waiting: Vec::new(),
            free: (0..SEQUENCES as usize).rev().collect(),
            weights,
        })
    }

    /// Makes the context, if there is none yet.
    ///
    /// # Errors
    /// [`ErrorKind::Configuration`]: there is not enough memory, or llama.cpp cannot run the model so.
    pub fn prepare(&mut self) -> Result<()> {
        if self.context.is_some() {
            return Ok(());
        }
        let mut context = EmbedContext::new(&self.weights, &self.config, self.shape)?;
        if context.forgets_batches() && !self.whole {
            self.whole = true;
            self.shape.capacity = self.shape.cells;
            drop(context);
            context = EmbedContext::new(&self.weights, &self.config, self.shape)?;
        }
        self.context = Some(context);
        Ok(())
    }

    /// Gives waiting texts a sequence, in order, while there are cells for all of their tokens.
    fn admit(&mut self) {
        let mut cells: usize = self.texts.iter().map(|text| text.tokens.len()).sum();
        let mut admitted = 0;
        for (_, tokens) in &self.waiting {
            cells += tokens.len();
            if cells > self.shape.cells as usize || admitted == self.free.len() {
                break;
            }
            admitted += 1;
        }
        for (id, tokens) in self.waiting.drain(..admitted) {
            let Some(sequence) = self.free.pop() else { break };
            self.texts.push(Text { id, tokens, evaluated: 0, sequence, vector: Vec::new() });
        }
    }

    fn remove(&mut self, index: usize) -> Text {
        let text = self.texts.remove(index);
        if let Some(context) = &mut self.context {
            context.forget(text.sequence);
        }
        self.free.push(text.sequence);
        text
    }

    /// Takes what the last pass says about a text: `rows` are the places of its tokens in the batch.
    fn read(
        context: &mut EmbedContext,
        output: Output,
        text: &mut Text,
        rows: std::ops::Range<usize>,
    ) -> Option<()> {
        let start = text.evaluated;
        text.evaluated += rows.len();
        let complete = text.evaluated == text.tokens.len();
        match output {
            Output::Mean => {
                for row in rows {
                    let vector = context.vector(row)?;
                    text.vector.resize(vector.len(), 0.0);
                    for (sum, value) in text.vector.iter_mut().zip(vector) {
                        *sum += value;
                    }
                }
                if complete {
                    let count = text.tokens.len() as f32;
                    for sum in &mut text.vector {
                        *sum /= count;
                    }
                }
            }
            Output::Cls if start == 0 => text.vector = context.vector(rows.start)?.to_vec(),
            Output::Last if complete => text.vector = context.vector(rows.end - 1)?.to_vec(),
            Output::Rank if complete => text.vector = context.scores(text.sequence)?.to_vec(),
            Output::Cls | Output::Last | Output::Rank => {}
        }
        Some(())
    }
}

impl Embedder for LlamaCppEmbedder {
    fn traits(&self) -> &EmbedderTraits {
        &self.traits
    }

    fn tokenize(&self, text: &EmbedText, most: Option<usize>) -> Result<Vec<TokenId>> {
        self.tokenizer.embed_tokens(text, most)
    }

    fn submit(&mut self, id: u64, tokens: Vec<TokenId>, _rank: bool) {
        self.waiting.push((id, tokens));
    }

    fn cancel(&mut self, id: u64) {
        self.waiting.retain(|(waiting, _)| *waiting != id);
        if let Some(index) = self.texts.iter().position(|text| text.id == id) {
            self.remove(index);
        }
    }

    fn step(&mut self, done: &mut Vec<(u64, Result<Vec<f32>>)>) -> Result<()> {
        self.admit();
        if self.texts.is_empty() {
            return Ok(());
        }
        self.prepare()?;
        let Some(context) = &mut self.context else { return Ok(()) };
        let limit = if self.turns.generating() { self.chunk } else { self.shape.capacity as usize };
        let pending: Vec<Pending> = self
            .texts
            .iter()
            .map(|text| Pending { tokens: text.tokens.len(), evaluated: text.evaluated })
            .collect();
        let shares = shares(&pending, limit.min(self.shape.capacity as usize), self.whole);
        context.clear_batch();
        let mut rows = Vec::with_capacity(shares.len());
        let mut next = 0;
        for (text, share) in self.texts.iter().zip(shares) {
            let start = next;
            for position in text.evaluated..text.evaluated + share {
                let pushed = context.push(text.sequence, position, text.tokens[position]);
                next = pushed.ok_or_else(|| Error::internal("a batch of texts is too long"))? + 1;
            }
            rows.push(start..next);
        }
        let turn = self.turns.take();
        let result = context.compute();
        drop(turn);
        let failure = match result {
            Ok(()) => None,
            Err(DecodeError::NoRoom) => {
                Some(Error::new(ErrorKind::Overloaded, "there is no room for the text"))
            }
            Err(DecodeError::Refused) => Some(Error::internal("llama.cpp refused the texts")),
            Err(DecodeError::Fatal(code)) => {
                return Err(Error::engine(format!("embedding failed with code {code}")));
            }
        };
        let mut ended = Vec::new();
        for (index, (text, rows)) in self.texts.iter_mut().zip(rows).enumerate() {
            if rows.is_empty() {
                continue;
            }
            let read = match &failure {
                Some(error) => Err(error.clone()),
                None => Self::read(context, self.output, text, rows)
                    .ok_or_else(|| Error::internal("llama.cpp gave no vector of a token")),
            };
            match read {
                Err(error) => ended.push((index, Err(error))),
                Ok(()) if text.evaluated == text.tokens.len() => {
                    ended.push((index, finite(std::mem::take(&mut text.vector))));
                }
                Ok(()) => {}
            }
        }
        for (index, result) in ended.into_iter().rev() {
            done.push((self.remove(index).id, result));
        }
        Ok(())
    }
}

/// A vector without numbers that are none.
fn finite(vector: Vec<f32>) -> Result<Vec<f32>> {
    if vector.iter().all(|value| value.is_finite()) {
        Ok(vector)
    } else {
        Err(Error::new(ErrorKind::NotFinite, "the model computed a number that is not finite"))
    }
}

/// What the model makes of a text, by the configuration and by llama.cpp's number in the file.
fn output_of(pooling: Pooling, file: Option<&str>) -> Output {
    match (pooling, file) {
        // It has a head for scores; its vectors were not trained to mean anything.
        (Pooling::Auto, Some("4")) => Output::Rank,
        (Pooling::Cls, _) | (Pooling::Auto, Some("2")) => Output::Cls,
        (Pooling::Last, _) | (Pooling::Auto, Some("3")) => Output::Last,
        (Pooling::Mean | Pooling::Auto, _) => Output::Mean,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_decides_unless_the_configuration_does() {
        assert_eq!(output_of(Pooling::Auto, None), Output::Mean);
        assert_eq!(output_of(Pooling::Auto, Some("0")), Output::Mean);
        assert_eq!(output_of(Pooling::Auto, Some("2")), Output::Cls);
        assert_eq!(output_of(Pooling::Auto, Some("3")), Output::Last);
        assert_eq!(output_of(Pooling::Auto, Some("4")), Output::Rank);
        assert_eq!(output_of(Pooling::Last, Some("2")), Output::Last);
    }
}
