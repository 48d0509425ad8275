//! The files of a tokenizer.
//!
//! Runs once, on the thread that loads the tokenizer; the only file reads of this crate.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use llgtrt_core::{Error, Result};
use serde::Deserialize;
use serde_json::Value;

/// Contents of a tokenizer's files. The optional ones are null if absent.
pub(super) struct TokenizerFiles {
    pub tokenizer_path: PathBuf,
    pub tokenizer: Vec<u8>,
    pub tokenizer_config: Value,
    pub special_tokens_map: Value,
    pub generation_config: Value,
}

/// The parts of `tokenizer.json` that we read ourselves.
#[derive(Deserialize)]
pub(super) struct TokenizerParts {
    #[serde(default)]
    pub normalizer: Value,
    #[serde(default)]
    pub pre_tokenizer: Value,
    #[serde(default)]
    pub decoder: Value,
}

impl TokenizerFiles {
    /// Reads them; `path` is a folder or a `tokenizer.json`.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let (folder, tokenizer_path) = if path.is_dir() {
            (path.to_owned(), path.join("tokenizer.json"))
        } else {
            (path.parent().map(Path::to_owned).unwrap_or_default(), path.to_owned())
        };
        let tokenizer = fs::read(&tokenizer_path).map_err(|error| unreadable(&tokenizer_path, &error))?;
        let optional = |name: &str| read_json(&folder.join(name));
        Ok(Self {
            tokenizer,
            tokenizer_path,
            tokenizer_config: optional("tokenizer_config.json")?,
            special_tokens_map: optional("special_tokens_map.json")?,
            generation_config: optional("generation_config.json")?,
        })
    }

    /// The parts that we read ourselves.
    pub(super) fn parts(&self) -> Result<TokenizerParts> {
        serde_json::from_slice(&self.tokenizer)
            .map_err(|error| Error::configuration(format!("cannot be read as a tokenizer: {error}")))
    }
}

fn read_json(path: &Path) -> Result<Value> {
    match fs::read(path) {
        Ok(bytes) => serde_json::from_slice(&bytes)
            .map_err(|error| Error::configuration(format!("{}: not valid JSON: {error}", path.display()))),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Value::Null),
        Err(error) => Err(unreadable(path, &error)),
    }
}

fn unreadable(path: &Path, error: &std::io::Error) -> Error {
    Error::configuration(format!("cannot read {}: {error}", path.display()))
}
