//! Which tokens begin and end a text, and what is put before a prompt.
//!
//! Runs once, at loading. Options win over `tokenizer_config.json`, that over `special_tokens_map.json`, that
//! over `generation_config.json`; the latter's end tokens are added to whatever the others name, because
//! models of several turns end a turn with a token of its own.

use llgtrt_core::{Error, Result, TokenId};
use serde_json::Value;

use super::files::TokenizerFiles;
use super::options::TokenizerOptions;
use super::token_bytes::TokenTable;

/// Names to look for where no file names an end token, best first.
const COMMON_EOS: [&str; 8] = [
    "<|im_end|>",
    "<|eot_id|>",
    "<|end|>",
    "</s>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<end_of_turn>",
    "<eos>",
];

/// The answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Roles {
    pub bos: Option<TokenId>,
    /// The main one first.
    pub eos: Vec<TokenId>,
    pub prefix: Vec<TokenId>,
}

impl Roles {
    /// Finds them. `added` is what the tokenizer's post-processor puts before a text.
    pub(super) fn find(
        files: &TokenizerFiles,
        options: &TokenizerOptions,
        table: &TokenTable,
        added: &[TokenId],
    ) -> Result<Self> {
        let own_bos = in_files(files, "bos_token", table)
            .or_else(|| ids(&files.generation_config["bos_token_id"], table).first().copied());
        let bos = match &options.bos_token {
            Some(name) => Some(required("bos_token", name, table)?),
            None => own_bos,
        };
        let mut eos: Vec<TokenId> = match &options.eos_token {
            Some(name) => vec![required("eos_token", name, table)?],
            None => in_files(files, "eos_token", table).into_iter().collect(),
        };
        eos.extend(ids(&files.generation_config["eos_token_id"], table));
        if eos.is_empty() {
            eos.extend(COMMON_EOS.iter().find_map(|name| table.id(name)));
        }
        let mut seen = std::collections::HashSet::new();
        eos.retain(|token| seen.insert(*token));

        let add_bos = options.add_bos_token.or_else(|| files.tokenizer_config["add_bos_token"].as_bool());
        let has_bos = added.iter().any(|&token| Some(token) == own_bos || Some(token) == bos);
        let mut prefix: Vec<TokenId> =
            added.iter().copied().filter(|&token| Some(token) != own_bos && Some(token) != bos).collect();
        if add_bos.unwrap_or(has_bos) {
            match bos {
                Some(bos) => prefix.insert(0, bos),
                None if options.add_bos_token == Some(true) => {
                    return Err(Error::configuration("add_bos_token is true, but there is no bos_token"));
                }
                None => {}
            }
        }
        Ok(Self { bos, eos, prefix })
    }
}

fn required(option: &str, name: &str, table: &TokenTable) -> Result<TokenId> {
    table
        .id(name)
        .ok_or_else(|| Error::configuration(format!("{option} is {name:?}, which is not in the vocabulary")))
}

/// A role by name: `"<s>"` or `{"content": "<s>"}`.
fn in_files(files: &TokenizerFiles, role: &str, table: &TokenTable) -> Option<TokenId> {
    [&files.tokenizer_config, &files.special_tokens_map].into_iter().find_map(|file| {
        let name = file[role].as_str().or_else(|| file[role]["content"].as_str())?;
        table.id(name)
    })
}

/// A role by id: `2` or `[2, 3]`; ids outside the table are left out.
fn ids(value: &Value, table: &TokenTable) -> Vec<TokenId> {
    let one = std::slice::from_ref(value);
    value
        .as_array()
        .map_or(one, Vec::as_slice)
        .iter()
        .filter_map(Value::as_u64)
        .filter(|&id| id < table.tokens().len() as u64)
        .map(|id| id as TokenId)
        .collect()
}
