//! The tokenizer as llguidance sees it: a trie over the token bytes, and a way to split text.
//!
//! Immutable and shared by all threads. Built once; takes a few hundred milliseconds for 128k tokens.

mod closers;
mod digits;

use std::num::NonZeroUsize;
use std::sync::{Arc, OnceLock};

use llgtrt_core::{EncodeOptions, Error, Result, TokenId, Tokenizer};
use lru::LruCache;
use parking_lot::Mutex;
use toktrie::{INVALID_TOKEN, TokEnv, TokRxInfo, TokTrie, TokenizerEnv};

pub(crate) use self::closers::Closers;
pub(crate) use self::digits::DigitTokens;

/// Longest token that the trie can hold, in bytes. Longer ones are never allowed by a mask.
const MAX_TOKEN_BYTES: usize = 1000;

/// Token ids that the trie can hold.
const MAX_VOCAB_SIZE: usize = 1 << 24;

/// Texts whose tokens are kept, and the longest of them, in bytes: a few MB at most.
const KEPT_TEXTS: NonZeroUsize = NonZeroUsize::new(1024).unwrap();
const LONGEST_KEPT_TEXT: usize = 256;

/// A tokenizer and its token trie.
pub struct TokenEnv {
    trie: TokTrie,
    tokenizer: Arc<dyn Tokenizer>,
    canonical: bool,
    closers: OnceLock<Closers>,
    digits: OnceLock<DigitTokens>,
    single: OnceLock<Vec<TokenId>>,
    /// What grammars force is the same again and again, as a schema's keys, and a tokenizer may take 0.2 ms for it.
    encoded: Mutex<LruCache<Box<str>, Vec<TokenId>>>,
}

impl TokenEnv {
    /// Builds the trie. `vocab_size` is the width of a logits row, which may exceed the vocabulary.
    ///
    /// # Errors
    /// The vocabulary does not fit `vocab_size`, or has end-of-sequence tokens outside of itself.
    pub fn new(tokenizer: Arc<dyn Tokenizer>, vocab_size: usize) -> Result<Arc<Self>> {
        let vocabulary = tokenizer.vocabulary();
        if vocabulary.is_empty() || vocabulary.len() > vocab_size || vocab_size >= MAX_VOCAB_SIZE {
            return Err(Error::configuration(format!(
                "a vocabulary of {} tokens does not fit logits of {vocab_size}",
                vocabulary.len()
            )));
        }
        if let Some(eos) = vocabulary.eos().iter().find(|&&eos| eos as usize >= vocab_size) {
            return Err(Error::configuration(format!(
                "end-of-sequence token {eos} is not in the vocabulary"
            )));
        }
        let mut too_long = 0_usize;
        let words: Vec<Vec<u8>> = (0..vocab_size as TokenId)
            .map(|token| {
                let bytes = vocabulary.bytes(token);
                if bytes.len() > MAX_TOKEN_BYTES {
                    too_long += 1;
                    return Vec::new();
                }
                if bytes.is_empty() || !vocabulary.is_special(token) {
                    return bytes.to_vec();
                }
                let mut word = vec![TokTrie::SPECIAL_TOKEN_MARKER];
                word.extend_from_slice(bytes);
                word
            })
            .collect();
        if too_long > 0 {
            tracing::warn!(
                too_long,
                "tokens of more than {MAX_TOKEN_BYTES} bytes are never allowed by masks"
            );
        }
        let eos = vocabulary.eos().first().copied().unwrap_or(INVALID_TOKEN);
        let mut info = TokRxInfo::new(vocab_size as u32, eos);
        info.tok_bos = vocabulary.bos();
        let mut trie = TokTrie::from(&info, &words);
        if vocabulary.eos().len() > 1 {
            trie = trie.with_eos_tokens(vocabulary.eos());
        }
        let canonical = tokenizer.is_canonical();
        Ok(Arc::new(Self {
            trie,
            tokenizer,
            canonical,
            closers: OnceLock::new(),
            digits: OnceLock::new(),
            single: OnceLock::new(),
            encoded: Mutex::new(LruCache::new(KEPT_TEXTS)),
        }))
    }

    /// The environment in llguidance's own type.
    pub(crate) fn tok_env(self: &Arc<Self>) -> TokEnv {
        Arc::<Self>::clone(self)
    }

    /// Whether the token ends a generation.
    pub fn is_eos(&self, token: TokenId) -> bool {
        self.tokenizer.vocabulary().is_eos(token)
    }

    /// The main token that ends a generation.
    pub(crate) fn first_eos(&self) -> Option<TokenId> {
        self.tokenizer.vocabulary().eos().first().copied()
    }

    /// What answers are completed with.
    pub(crate) fn closers(&self) -> &Closers {
        self.closers.get_or_init(|| Closers::new(self.tokenizer.vocabulary()))
    }

    /// Tokens of one byte.
    pub(crate) fn bytes_tokens(&self) -> &[TokenId] {
        self.single.get_or_init(|| {
            let vocabulary = self.tokenizer.vocabulary();
            (0..vocabulary.len() as TokenId)
                .filter(|&token| !vocabulary.is_special(token) && vocabulary.bytes(token).len() == 1)
                .collect()
        })
    }

    /// Tokens that begin with digits.
    pub(crate) fn digit_tokens(&self) -> &DigitTokens {
        self.digits.get_or_init(|| {
            let vocabulary = self.tokenizer.vocabulary();
            let words = (0..vocabulary.len() as TokenId).filter(|&token| !vocabulary.is_special(token));
            DigitTokens::new(words.map(|token| (token, vocabulary.bytes(token))))
        })
    }

    /// The text of a token.
    pub(crate) fn bytes(&self, token: TokenId) -> &[u8] {
        self.tokenizer.vocabulary().bytes(token)
    }

    /// Tokens in the table; rows may be wider.
    pub fn vocabulary_len(&self) -> usize {
        self.tokenizer.vocabulary().len()
    }

    /// Width of a logits row, in tokens.
    pub fn vocab_size(&self) -> usize {
        self.trie.vocab_size()
    }

    /// Tokens of `text`, whose bytes are exactly those of `text`.
    fn encode(&self, text: &str) -> Vec<TokenId> {
        if text.len() > LONGEST_KEPT_TEXT {
            return self.encode_anew(text);
        }
        if let Some(tokens) = self.encoded.lock().get(text) {
            return tokens.clone();
        }
        let tokens = self.encode_anew(text);
        self.encoded.lock().put(text.into(), tokens.clone());
        tokens
    }

    fn encode_anew(&self, text: &str) -> Vec<TokenId> {
        let options = EncodeOptions { add_special: false, parse_special: false };
        let Ok(mut tokens) = self.tokenizer.encode(text, options) else {
            return self.trie.greedy_tokenize(text.as_bytes());
        };
        let vocabulary = self.tokenizer.vocabulary();
        // Some tokenizers put a blank before every text.
        if !text.starts_with(' ') && tokens.first().is_some_and(|&first| vocabulary.bytes(first) == b" ") {
            tokens.remove(0);
        }
        // Forced tokens must spell the forced text: a tokenizer that normalizes does not count.
        let mut rest = text.as_bytes();
        for &token in &tokens {
            match rest.strip_prefix(vocabulary.bytes(token)) {
                Some(tail) if !vocabulary.is_special(token) => rest = tail,
                _ => return self.trie.greedy_tokenize(text.as_bytes()),
            }
        }
        if rest.is_empty() { tokens } else { self.trie.greedy_tokenize(text.as_bytes()) }
    }
}

impl TokenizerEnv for TokenEnv {
    fn tok_trie(&self) -> &TokTrie {
        &self.trie
    }

    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<TokenId> {
        self.trie.tokenize_with_greedy_fallback(bytes, |text| self.encode(text))
    }

    fn tokenize_is_canonical(&self) -> bool {
        self.canonical
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use llgtrt_core::{Vocabulary, VocabularyBuilder};

    use super::*;

    /// A token for each byte, then words that no text is split into, then an end.
    pub(crate) struct Bytes {
        vocabulary: Vocabulary,
        encoded: AtomicUsize,
    }

    impl Bytes {
        pub(crate) fn new(words: &[&str]) -> Self {
            let mut builder = VocabularyBuilder::default();
            for byte in 0..=255_u8 {
                builder.push(&[byte], false);
            }
            for word in words {
                builder.push(word.as_bytes(), false);
            }
            let end = builder.len() as TokenId;
            builder.push(b"<|end|>", true);
            Self { vocabulary: builder.build(None, vec![end]), encoded: AtomicUsize::new(0) }
        }
    }

    impl Tokenizer for Bytes {
        fn vocabulary(&self) -> &Vocabulary {
            &self.vocabulary
        }

        fn encode(&self, text: &str, _: EncodeOptions) -> Result<Vec<TokenId>> {
            self.encoded.fetch_add(1, Ordering::Relaxed);
            Ok(text.bytes().map(TokenId::from).collect())
        }

        fn is_canonical(&self) -> bool {
            true
        }
    }

    #[test]
    fn a_text_is_split_once_unless_it_is_long() {
        let tokenizer = Arc::new(Bytes::new(&[]));
        let env = TokenEnv::new(Arc::<Bytes>::clone(&tokenizer), 257).unwrap();
        let long = "a".repeat(LONGEST_KEPT_TEXT + 1);
        for text in ["name", "name", "age", "name", &long, &long] {
            let expected: Vec<TokenId> = text.bytes().map(TokenId::from).collect();
            assert_eq!(env.tokenize_bytes(text.as_bytes()), expected);
        }
        assert_eq!(tokenizer.encoded.load(Ordering::Relaxed), 4);
        for number in 0..2 * KEPT_TEXTS.get() {
            env.encode(&number.to_string());
        }
        assert_eq!(env.encoded.lock().len(), KEPT_TEXTS.get(), "bounded");
    }
}
