//! Compiled grammars and refusals by the hash of their source, least recently used last, bounded
//! in estimated bytes. Plain data behind the compiler's lock.

use llgtrt_core::{Error, GrammarSpec};
use lru::LruCache;

use crate::CompiledGrammar;

/// Estimated memory of a remembered refusal, in bytes.
const REFUSAL_BYTES: usize = 1024;

/// Hash of a grammar's kind and text.
pub(crate) type Key = blake3::Hash;

/// The key of a specification.
pub(crate) fn key(spec: &GrammarSpec) -> Key {
    let mut hasher = blake3::Hasher::new();
    hasher.update(spec.kind().as_bytes());
    hasher.update(&[0]);
    match spec {
        GrammarSpec::JsonObject => {}
        GrammarSpec::JsonSchema(text)
        | GrammarSpec::Regex(text)
        | GrammarSpec::Lark(text)
        | GrammarSpec::Llguidance(text) => {
            hasher.update(text.as_bytes());
        }
        GrammarSpec::Choice(choices) => {
            for choice in choices {
                // The length keeps ["ab"] and ["a", "b"] apart.
                hasher.update(&(choice.len() as u64).to_le_bytes());
                hasher.update(choice.as_bytes());
            }
        }
    }
    hasher.finalize()
}

/// The key of a grammar after rewriting.
pub(crate) fn text_key(text: &str) -> Key {
    let mut hasher = blake3::Hasher::new();
    hasher.update(b"rewritten\0");
    hasher.update(text.as_bytes());
    hasher.finalize()
}

pub(crate) type Outcome = Result<CompiledGrammar, Error>;

struct Entry {
    outcome: Outcome,
    /// Bytes counted for it. Grammars grow while they learn, so that is repeated at every insert.
    bytes: usize,
}

pub(crate) struct Cache {
    entries: LruCache<Key, Entry>,
    bytes: usize,
    capacity_bytes: usize,
}

impl Cache {
    pub(crate) fn new(capacity_bytes: usize) -> Self {
        Self { entries: LruCache::unbounded(), bytes: 0, capacity_bytes }
    }

    pub(crate) fn get(&mut self, key: &Key) -> Option<Outcome> {
        self.entries.get(key).map(|entry| entry.outcome.clone())
    }

    /// Adds an outcome and forgets the least recently used until everything fits. What is larger
    /// than the whole cache is not kept.
    pub(crate) fn insert(&mut self, key: Key, outcome: Outcome) {
        let bytes = size(&outcome);
        if bytes > self.capacity_bytes {
            return;
        }
        self.recount();
        if let Some(old) = self.entries.put(key, Entry { outcome, bytes }) {
            self.bytes -= old.bytes;
        }
        self.bytes += bytes;
        self.shrink();
    }

    fn recount(&mut self) {
        self.bytes = 0;
        for (_, entry) in &mut self.entries {
            entry.bytes = size(&entry.outcome);
            self.bytes += entry.bytes;
        }
    }

    fn shrink(&mut self) {
        while self.bytes > self.capacity_bytes {
            let Some((_, old)) = self.entries.pop_lru() else { break };
            self.bytes -= old.bytes;
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

fn size(outcome: &Outcome) -> usize {
    outcome.as_ref().map_or(REFUSAL_BYTES, CompiledGrammar::bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::grammar_error;

    #[test]
    fn keys_tell_kinds_and_lists_apart() {
        let choice = |list: &[&str]| GrammarSpec::Choice(list.iter().map(|s| (*s).to_owned()).collect());
        let specs = [
            GrammarSpec::Regex("a".to_owned()),
            GrammarSpec::Lark("a".to_owned()),
            GrammarSpec::JsonSchema("a".to_owned()),
            GrammarSpec::Llguidance("a".to_owned()),
            GrammarSpec::JsonObject,
            choice(&["ab"]),
            choice(&["a", "b"]),
        ];
        let keys: std::collections::HashSet<Key> = specs.iter().map(key).collect();
        assert_eq!(keys.len(), specs.len());
        assert_eq!(key(&specs[0]), key(&specs[0].clone()));
    }

    #[test]
    fn the_least_recently_used_is_forgotten() {
        let mut cache = Cache::new(3 * REFUSAL_BYTES);
        let keys: Vec<Key> = (0..4).map(|i| blake3::hash(&[i])).collect();
        for key in &keys[..3] {
            cache.insert(*key, Err(grammar_error("no")));
        }
        assert!(cache.get(&keys[0]).is_some());
        cache.insert(keys[3], Err(grammar_error("no")));
        assert_eq!(cache.bytes(), 3 * REFUSAL_BYTES);
        assert!(cache.get(&keys[1]).is_none());
        assert!(cache.get(&keys[0]).is_some() && cache.get(&keys[2]).is_some());
        // Replacing an entry does not count it twice.
        cache.insert(keys[3], Err(grammar_error("no")));
        assert_eq!(cache.bytes(), 3 * REFUSAL_BYTES);
    }
}
