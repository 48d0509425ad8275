//! Hugging Face tokenizers (`tokenizer.json`): byte-level BPE and SentencePiece-like vocabularies.
//!
//! Loading reads files and takes about a second for 128k tokens; encoding runs on worker threads. The
//! `tokenizers` crate does the splitting and merging; exact token bytes, the roles of control tokens and
//! the beginning of a prompt are decided here.

mod encode;
mod files;
mod options;
mod roles;
mod token_bytes;

use std::path::Path;

use llgtrt_core::{EncodeOptions, Error, Result, TokenId, Tokenizer, Vocabulary, VocabularyBuilder};

pub use self::options::TokenizerOptions;

use self::encode::Pipeline;
use self::files::TokenizerFiles;
use self::roles::Roles;

/// A tokenizer read from `tokenizer.json` and the files beside it.
pub struct HfTokenizer {
    vocabulary: Vocabulary,
    pipeline: Pipeline,
    /// What `add_special` puts before a prompt.
    prefix: Vec<TokenId>,
}

impl std::fmt::Debug for HfTokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HfTokenizer")
            .field("vocabulary", &self.vocabulary)
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}

impl HfTokenizer {
    /// Reads a `tokenizer.json`, or the one in a folder, with `tokenizer_config.json`,
    /// `special_tokens_map.json` and `generation_config.json` beside it where they exist.
    ///
    /// # Errors
    /// [`Configuration`](llgtrt_core::ErrorKind::Configuration), naming the file: it is missing or not a
    /// tokenizer, its decoder does not tell the bytes of its tokens, or an option does not fit it.
    pub fn from_path(path: &Path, options: &TokenizerOptions) -> Result<Self> {
        let files = TokenizerFiles::read(path)?;
        let file = files.tokenizer_path.display().to_string();
        // The tokenizers crate panics on some malformed files.
        let loaded = std::panic::catch_unwind(|| Self::load(&files, options));
        match loaded {
            Ok(Ok(tokenizer)) => Ok(tokenizer),
            Ok(Err(error)) => Err(Error { message: format!("{file}: {}", error.message), ..error }),
            Err(_) => Err(Error::configuration(format!("{file}: not a tokenizer this program can read"))),
        }
    }

    fn load(files: &TokenizerFiles, options: &TokenizerOptions) -> Result<Self> {
        let parts = files.parts()?;
        let tokenizer = tokenizers::Tokenizer::from_bytes(&files.tokenizer)
            .map_err(|error| Error::configuration(format!("cannot be read as a tokenizer: {error}")))?;
        let table = token_bytes::TokenTable::new(&tokenizer, &parts.decoder, options.n_vocab_override)?;
        let pipeline = Pipeline::new(tokenizer, parts)?;
        let roles = Roles::find(files, options, &table, &pipeline.added_by_post_processor())?;

        let mut builder = VocabularyBuilder::default();
        for (id, token) in table.tokens().iter().enumerate() {
            let id = id as TokenId;
            let has_role = roles.bos == Some(id) || roles.eos.contains(&id);
            if has_role && !token.special {
                // Known by its name in the model's table: from here on it is a control token.
                builder.push(table.name(id).as_bytes(), true);
            } else {
                builder.push(&token.bytes, token.special);
            }
        }
        Ok(Self { vocabulary: builder.build(roles.bos, roles.eos), pipeline, prefix: roles.prefix })
    }

    /// Whether the prompt begins with what would be put before it, or at least with its BOS.
    fn has_prefix(&self, tokens: &[TokenId]) -> bool {
        let doubles_bos = tokens
            .first()
            .is_some_and(|&first| self.vocabulary.bos() == Some(first) && self.prefix.contains(&first));
        tokens.starts_with(&self.prefix) || doubles_bos
    }
}

impl Tokenizer for HfTokenizer {
    fn vocabulary(&self) -> &Vocabulary {
        &self.vocabulary
    }

    /// With neither option set the text continues another: tokenizers that put a blank before a text do
    /// not do so then. A token that the tokenizer would put *after* a text (EOS) is never added: the
    /// model is to go on from there.
    fn encode(&self, text: &str, options: EncodeOptions) -> Result<Vec<TokenId>> {
        let mut tokens = self.pipeline.encode(text, options)?;
        if options.add_special && !self.has_prefix(&tokens) {
            tokens.splice(0..0, self.prefix.iter().copied());
        }
        Ok(tokens)
    }

    fn removes_guard(&self) -> bool {
        true
    }
}
