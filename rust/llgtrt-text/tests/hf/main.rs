//! Hugging Face tokenizers, against the `tokenizers` and `toktrie_hf_tokenizers` crates as references.

mod encoding;
mod fixtures;
mod loading;
