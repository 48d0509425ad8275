//! The tokenizer inside a GGUF file. Immutable; shared by every thread.

use std::sync::Arc;

use llama_cpp_2::model::LlamaModel;
use llama_cpp_2::token::LlamaToken;
use llama_cpp_2::token_type::LlamaTokenAttr;
use llgtrt_core::{EncodeOptions, Error, Result, TokenId, Tokenizer, Vocabulary, VocabularyBuilder};

use crate::pieces::pieces;

/// Texts beyond this are refused: no context holds them, and their tokenization would take half a minute.
const MAX_TEXT_BYTES: usize = 16 << 20;

/// Texts up to this are tokenized on the caller's stack, which may be 2 MB.
const MAX_BYTES_ON_THIS_STACK: usize = 2 << 10;

/// Stack per byte of text, for a match that covers all of it. `std::regex` was measured to take 318 bytes
/// per character (tekken, gpt-4o, falcon). Address space only: cut runs keep the part that is used small.
const STACK_PER_BYTE: usize = 1 << 10;

pub(crate) struct GgufTokenizer {
    model: Arc<LlamaModel>,
    vocabulary: Vocabulary,
    /// Texts that `parse_special` reads as one token.
    special_texts: Vec<String>,
    add_bos: bool,
}

impl GgufTokenizer {
    pub(crate) fn new(model: Arc<LlamaModel>) -> Self {
        let vocab = model.vocab();
        let valid =
            |token: LlamaToken| (0..vocab.n_tokens()).contains(&token.0).then_some(token.0 as TokenId);
        let mut builder = VocabularyBuilder::default();
        let mut special_texts = Vec::new();
        let mut eos: Vec<TokenId> = valid(vocab.eos()).into_iter().collect();
        let mut bytes = Vec::new();
        for token in vocab.tokens() {
            bytes.clear();
            vocab.token_to_piece_into(token, &mut bytes, true, None);
            let attr = vocab.attr(token);
            let end = vocab.is_eog(token);
            // llama.cpp, too, leaves the names of unknown tokens out of the text.
            let special = end || attr.intersects(LlamaTokenAttr::Control | LlamaTokenAttr::Unknown);
            builder.push(&bytes, special);
            if special || attr.contains(LlamaTokenAttr::UserDefined) {
                special_texts.push(String::from_utf8_lossy(&bytes).into_owned());
            }
            if end && !eos.contains(&(token.0 as TokenId)) {
                eos.push(token.0 as TokenId);
            }
        }
        let bos = valid(vocab.bos());
        let add_bos = vocab.should_add_bos() && bos.is_some();
        Self { vocabulary: builder.build(bos, eos), special_texts, add_bos, model }
    }
}

impl GgufTokenizer {
    /// The text's tokens and nothing else: BOS is the caller's business, and EOS is never added, because
    /// the text is there to be continued.
    fn tokenize(&self, text: &str, parse_special: bool) -> Vec<LlamaToken> {
        let vocab = self.model.vocab();
        let whole = if parse_special { self.special_texts.as_slice() } else { &[] };
        let mut tokens = Vec::with_capacity(text.len() / 2 + 16);
        for piece in pieces(text, whole) {
            vocab.tokenize_into(piece.as_bytes(), &mut tokens, false, parse_special);
        }
        tokens
    }
}

impl Tokenizer for GgufTokenizer {
    fn vocabulary(&self) -> &Vocabulary {
        &self.vocabulary
    }

    fn encode(&self, text: &str, options: EncodeOptions) -> Result<Vec<TokenId>> {
        if text.len() > MAX_TEXT_BYTES {
            return Err(Error::invalid("prompt", "the text is too long to tokenize"));
        }
        let buffer = if text.len() <= MAX_BYTES_ON_THIS_STACK {
            self.tokenize(text, options.parse_special)
        } else {
            let stack = (4 << 20) + text.len() * STACK_PER_BYTE;
            let thread = std::thread::Builder::new().name("tokenize".into()).stack_size(stack);
            std::thread::scope(|scope| {
                let tokens =
                    thread.spawn_scoped(scope, || self.tokenize(text, options.parse_special)).ok()?;
                tokens.join().ok()
            })
            .ok_or_else(|| Error::internal("no thread could be started to tokenize the text"))?
        };
        let bos = self.vocabulary.bos().filter(|_| options.add_special && self.add_bos);
        let missing = bos.filter(|&bos| buffer.first().map(|token| token.0 as TokenId) != Some(bos));
        Ok(missing.into_iter().chain(buffer.iter().map(|token| token.0 as TokenId)).collect())
    }
}
