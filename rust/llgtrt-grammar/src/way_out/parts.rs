//! Short values of the schemas that a grammar of rules refers to, one of each: the item that a list has to contain
//! may be one that nothing else leads to.

use std::sync::{Arc, OnceLock};

use llgtrt_core::TokenId;
use llguidance::ParserFactory;
use llguidance::api::TopLevelGrammar;
use serde_json::Value;
use toktrie::TokenizerEnv;

use super::query::Effort;
use super::{Hints, Query, Quoting, Style};
use crate::TokenEnv;
use crate::lexer_guard::create_parser;
use crate::matcher::Matcher;

/// Schemas that are read of one grammar, and their bytes together.
pub(super) const MAX_PARTS: usize = 16;
const MAX_PART_BYTES: usize = 16 << 10;

/// Tokens of one value.
const MAX_VALUE: usize = 128;

/// The schemas of one grammar.
#[derive(Default)]
pub(super) struct Parts {
    schemas: Vec<Value>,
    bytes: usize,
    /// What compiles them; none is known without it.
    pub(super) factory: Option<Arc<ParserFactory>>,
    pub(super) values: OnceLock<Vec<Vec<TokenId>>>,
}

impl Parts {
    /// Adds a schema, given with its text, as far as there is room.
    pub(super) fn keep(&mut self, schema: &Value, text: &str) {
        let bytes = self.bytes + text.len();
        if self.schemas.len() < MAX_PARTS && bytes <= MAX_PART_BYTES && !self.schemas.contains(schema) {
            self.schemas.push(schema.clone());
            self.bytes = bytes;
        }
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Memory, roughly.
    pub(super) fn bytes(&self) -> usize {
        4 * self.bytes
    }

    /// A value of each schema for which one was found. Compiles them at the first call.
    pub(super) fn values(&self, env: &Arc<TokenEnv>) -> &[Vec<TokenId>] {
        let values =
            |factory: &Arc<_>| self.schemas.iter().filter_map(|schema| value(schema, factory, env)).collect();
        self.values.get_or_init(|| self.factory.as_ref().map(values).unwrap_or_default())
    }
}

/// A short value that the schema, of llguidance's subset, allows.
fn value(schema: &Value, factory: &ParserFactory, env: &Arc<TokenEnv>) -> Option<Vec<TokenId>> {
    let grammar = TopLevelGrammar::from_json_schema(schema.clone());
    let hints = Hints::of(&grammar, true);
    let (parser, _) = create_parser(factory, grammar, true).ok()?;
    let matcher = Matcher::new(parser);
    let query = Query {
        matcher: &matcher,
        env,
        hints: &hints,
        quoting: Quoting::default(),
        checked: None,
        most: MAX_VALUE,
        first: Style::Plain,
    };
    let text: Vec<u8> =
        query.search(Effort::PART).found.way()?.iter().flat_map(|&token| env.bytes(token).to_vec()).collect();
    Some(env.tokenize_bytes(&text))
}
