//! Short values of the schemas that a grammar of rules refers to, one of each: the item that a list has to contain
//! may be one that nothing else leads to.

use std::sync::{Arc, OnceLock};

use llgtrt_core::TokenId;
use llguidance::ParserFactory;
use serde_json::Value;

/// Schemas that are read of one grammar, and their bytes together.
pub(super) const MAX_PARTS: usize = 16;
const MAX_PART_BYTES: usize = 16 << 10;

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

    /// A value of each schema for which `find` finds one. It is asked at the first call.
    pub(super) fn values(
        &self,
        find: impl Fn(&Value, &ParserFactory) -> Option<Vec<TokenId>>,
    ) -> &[Vec<TokenId>] {
        let values =
            |factory: &Arc<_>| self.schemas.iter().filter_map(|schema| find(schema, factory)).collect();
        self.values.get_or_init(|| self.factory.as_ref().map(values).unwrap_or_default())
    }
}
