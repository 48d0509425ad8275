//! The tokenizer inside a GGUF file. Immutable; shared by every thread.

use std::sync::Arc;

use llama_cpp_2::model::LlamaModel;
use llama_cpp_2::token::LlamaToken;
use llama_cpp_2::token_type::LlamaTokenAttr;
use llgtrt_core::{
    EmbedText, EncodeOptions, Error, ErrorKind, Result, TokenId, Tokenizer, Vocabulary, VocabularyBuilder,
    room_for_text,
};

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
    /// How a query and a document are put to a model that scores them, where the file says.
    rerank_template: Option<String>,
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
        // Not by the binding's `chat_template`, which asks for a name in memory that it has given back.
        let rerank_template = model.meta_val_str("tokenizer.chat_template.rerank").ok();
        Self { vocabulary: builder.build(bos, eos), special_texts, add_bos, rerank_template, model }
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

    /// [`Self::tokenize`], with as much stack as the text may need.
    fn tokenize_anywhere(&self, text: &str, parse_special: bool) -> Result<Vec<LlamaToken>> {
        if text.len() <= MAX_BYTES_ON_THIS_STACK {
            return Ok(self.tokenize(text, parse_special));
        }
        let stack = (4 << 20) + text.len() * STACK_PER_BYTE;
        let thread = std::thread::Builder::new().name("tokenize".into()).stack_size(stack);
        std::thread::scope(|scope| {
            thread.spawn_scoped(scope, || self.tokenize(text, parse_special)).ok()?.join().ok()
        })
        .ok_or_else(|| Error::internal("no thread could be started to tokenize the text"))
    }

    /// The tokens of an input to an embedder, with what the model file puts around it. Names of control tokens
    /// in the texts stay text. With `most` the end of the text, or of the document, is left out until there are
    /// at most so many.
    pub(crate) fn embed_tokens(&self, text: &EmbedText, most: Option<usize>) -> Result<Vec<TokenId>> {
        let bytes = match text {
            EmbedText::Single(text) => text.len(),
            EmbedText::Pair(query, document) => query.len() + document.len(),
        };
        if bytes > MAX_TEXT_BYTES {
            return Err(too_long());
        }
        let tokens = match text {
            EmbedText::Single(text) => {
                let mut tokens = self.tokenize_anywhere(text, false)?;
                if let Some(most) = most {
                    tokens.truncate(room_for_text(most, self.wrapped(Vec::new()).len())?);
                }
                self.wrapped(tokens)
            }
            EmbedText::Pair(query, document) => match &self.rerank_template {
                Some(template) => self.in_template(template, query, document, most)?,
                None => self.joined(query, document, most)?,
            },
        };
        Ok(tokens.iter().map(|token| token.0 as TokenId).collect())
    }

    /// Tokens with what the file's tokenizer puts before and after a text.
    fn wrapped(&self, mut tokens: Vec<LlamaToken>) -> Vec<LlamaToken> {
        let vocab = self.model.vocab();
        let around = vocab.tokenize(b"", true, false);
        let front = match around.len() {
            1 => usize::from(vocab.should_add_bos()),
            count => count / 2,
        };
        let (front, back) = around.split_at(front);
        tokens.splice(0..0, front.iter().copied());
        tokens.extend(back);
        tokens
    }

    /// Query and document as models with a classifier on top of both were trained on.
    fn joined(&self, query: &str, document: &str, most: Option<usize>) -> Result<Vec<LlamaToken>> {
        let vocab = self.model.vocab();
        let known = |token: LlamaToken| (0..vocab.n_tokens()).contains(&token.0).then_some(token);
        let bos = known(vocab.bos()).filter(|_| vocab.should_add_bos());
        let end = known(vocab.eos()).or_else(|| known(vocab.sep())).filter(|_| vocab.should_add_eos());
        let sep = known(vocab.sep()).filter(|_| vocab.should_add_sep());
        let mut tokens: Vec<LlamaToken> = bos.into_iter().collect();
        tokens.extend(self.tokenize_anywhere(query, false)?);
        tokens.extend(end.into_iter().chain(sep));
        // BERT's has no end token, and was trained with its separator there.
        let is_bert = self.model.meta_val_str("tokenizer.ggml.model").is_ok_and(|model| model == "bert");
        let last = end.or(sep.filter(|_| is_bert));
        let others = tokens.len() + usize::from(last.is_some());
        let room = most.map_or(Ok(usize::MAX), |most| room_for_text(most, others))?;
        tokens.extend(self.tokenize_anywhere(document, false)?.into_iter().take(room));
        tokens.extend(last);
        Ok(tokens)
    }

    /// Query and document in a template, the document as long as it may be.
    fn in_template(
        &self,
        template: &str,
        query: &str,
        document: &str,
        most: Option<usize>,
    ) -> Result<Vec<LlamaToken>> {
        let mut document = document;
        loop {
            let tokens = self.wrapped(self.template_tokens(template, query, document)?);
            let Some(most) = most.filter(|&most| tokens.len() > most) else { return Ok(tokens) };
            // A document has other tokens between the texts of the template than alone: it may take a few turns.
            let alone = self.tokenize_anywhere(document, false)?.len();
            let kept = room_for_text(most, tokens.len().saturating_sub(alone))?;
            let mut end = document.len() * kept / alone;
            while !document.is_char_boundary(end) {
                end -= 1;
            }
            document = &document[..end];
        }
    }

    /// Query and document in the places that a template has for them. Only the template's own control tokens are
    /// control tokens.
    fn template_tokens(&self, template: &str, query: &str, document: &str) -> Result<Vec<LlamaToken>> {
        let mut tokens = Vec::new();
        let mut rest = template;
        while !rest.is_empty() {
            let first = self.special_texts.iter().filter(|text| !text.is_empty());
            let first = first.filter_map(|text| Some((rest.find(text.as_str())?, text.len())));
            let (at, length) =
                first.min_by_key(|&(at, length)| (at, usize::MAX - length)).unwrap_or((rest.len(), 0));
            tokens.extend(self.tokenize_anywhere(&filled(&rest[..at], query, document), false)?);
            tokens.extend(self.tokenize_anywhere(&rest[at..at + length], true)?);
            rest = &rest[at + length..];
        }
        Ok(tokens)
    }
}

fn too_long() -> Error {
    Error::new(ErrorKind::InvalidRequest, "the text is too long to tokenize")
}

/// The part of a template with its places filled, each in one go: what a document holds is no place.
fn filled(part: &str, query: &str, document: &str) -> String {
    let mut text = String::new();
    let mut rest = part;
    while let Some((before, after)) = rest.split_once('{') {
        text.push_str(before);
        let places = [("query}", query), ("document}", document)];
        let place = places.iter().find_map(|(name, value)| Some((after.strip_prefix(name)?, value)));
        rest = if let Some((after, value)) = place {
            text.push_str(value);
            after
        } else {
            text.push('{');
            after
        };
    }
    text + rest
}

impl Tokenizer for GgufTokenizer {
    fn vocabulary(&self) -> &Vocabulary {
        &self.vocabulary
    }

    fn encode(&self, text: &str, options: EncodeOptions) -> Result<Vec<TokenId>> {
        if text.len() > MAX_TEXT_BYTES {
            return Err(too_long().with_param("prompt"));
        }
        let buffer = self.tokenize_anywhere(text, options.parse_special)?;
        let bos = self.vocabulary.bos().filter(|_| options.add_special && self.add_bos);
        let missing = bos.filter(|&bos| buffer.first().map(|token| token.0 as TokenId) != Some(bos));
        Ok(missing.into_iter().chain(buffer.iter().map(|token| token.0 as TokenId)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_places_of_a_template_are_filled_once() {
        let part = "<Q>: {query}\n{other} {document}";
        assert_eq!(filled(part, "{document}", "d {query}"), "<Q>: {document}\n{other} d {query}");
        assert_eq!(filled("{", "q", "d"), "{");
    }
}
