//! Compiled grammars and refusals by the hash of their source, least recently used last.
//!
//! Both are bounded in estimated bytes, each by itself: refusals cost nothing to cause, and cannot push out
//! what was expensive to compile. A grammar reports its growth to the [`Account`] of the cache that holds it, so
//! that nothing is counted again. Plain data behind the compiler's lock.

use std::num::NonZeroUsize;
use std::sync::atomic::Ordering;

use llgtrt_core::{Error, GrammarSpec};
use lru::LruCache;

use crate::compiled::{Account, CompiledGrammar, WeakGrammar};

/// Memory of all remembered refusals, in bytes.
const REFUSALS_BYTES: usize = 1 << 20;

/// A refusal with a longer text is not remembered.
const MAX_REFUSAL_BYTES: usize = REFUSALS_BYTES / 64;

/// Estimated memory of an entry beside its texts, in bytes.
const ENTRY_BYTES: usize = 256;

/// Rewritten texts that are remembered. An entry holds no grammar, only where it is.
const MAX_SAME: NonZeroUsize = NonZeroUsize::new(8192).expect("not zero");

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

pub(crate) struct Cache {
    grammars: LruCache<Key, CompiledGrammar>,
    /// Grammars by their rewritten text: schemas that differ only in what has no meaning have one.
    same: LruCache<Key, WeakGrammar>,
    /// The grammars, and what is kept for each key beside its grammar.
    account: Account,
    keys_bytes: usize,
    capacity_bytes: usize,
    refusals: Refusals,
}

impl Cache {
    /// A cache for grammars of `capacity_bytes` together.
    pub(crate) fn new(capacity_bytes: usize) -> Self {
        Self {
            grammars: LruCache::unbounded(),
            same: LruCache::new(MAX_SAME),
            account: Account::default(),
            keys_bytes: 0,
            capacity_bytes,
            refusals: Refusals::default(),
        }
    }

    pub(crate) fn get(&mut self, key: &Key) -> Option<Outcome> {
        if let Some(grammar) = self.grammars.get(key).map(CompiledGrammar::as_cached) {
            // Grammars have grown since the last insertion, this one perhaps.
            self.shrink();
            return Some(Ok(grammar));
        }
        self.refusals.get(key).map(Err)
    }

    /// The grammar of a rewritten text, while it is in the cache or in use.
    pub(crate) fn same(&mut self, key: &Key) -> Option<CompiledGrammar> {
        self.same.get(key).and_then(WeakGrammar::upgrade)
    }

    /// Notes that `grammar` is the one of a rewritten text.
    pub(crate) fn share(&mut self, key: Key, grammar: &CompiledGrammar) {
        self.same.put(key, grammar.downgrade());
    }

    /// Adds an outcome and forgets the least recently used until everything fits. What is larger
    /// than the whole cache is not kept.
    pub(crate) fn insert(&mut self, key: Key, outcome: &Outcome) {
        match outcome {
            Ok(grammar) => {
                if grammar.bytes() > self.capacity_bytes {
                    return;
                }
                grammar.enter(&self.account);
                self.keys_bytes += key_bytes(grammar);
                if let Some(old) = self.grammars.put(key, grammar.clone()) {
                    self.forget(&old);
                }
                self.shrink();
            }
            Err(error) => self.refusals.insert(key, error),
        }
    }

    fn shrink(&mut self) {
        while self.bytes() > self.capacity_bytes {
            let Some((_, old)) = self.grammars.pop_lru() else { break };
            self.forget(&old);
        }
    }

    fn forget(&mut self, old: &CompiledGrammar) {
        old.leave();
        self.keys_bytes -= key_bytes(old);
    }

    /// Estimated memory of the grammars, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.account.load(Ordering::Relaxed) + self.keys_bytes
    }
}

/// What a key takes beside its grammar: texts of one meaning share that, and an endless number of them has none of
/// its own.
fn key_bytes(grammar: &CompiledGrammar) -> usize {
    ENTRY_BYTES + grammar.facts().bytes()
}

/// Refusals, least recently used last.
struct Refusals {
    errors: LruCache<Key, Error>,
    bytes: usize,
}

impl Default for Refusals {
    fn default() -> Self {
        Self { errors: LruCache::unbounded(), bytes: 0 }
    }
}

impl Refusals {
    fn get(&mut self, key: &Key) -> Option<Error> {
        self.errors.get(key).cloned()
    }

    fn insert(&mut self, key: Key, error: &Error) {
        let bytes = size(error);
        if bytes > MAX_REFUSAL_BYTES {
            return;
        }
        self.bytes += bytes;
        if let Some(old) = self.errors.put(key, error.clone()) {
            self.bytes -= size(&old);
        }
        while self.bytes > REFUSALS_BYTES {
            let Some((_, old)) = self.errors.pop_lru() else { break };
            self.bytes -= size(&old);
        }
    }
}

fn size(error: &Error) -> usize {
    ENTRY_BYTES + error.message.len() + error.param.as_ref().map_or(0, String::len)
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
    fn the_least_recently_used_refusal_is_forgotten() {
        let mut refusals = Refusals::default();
        let error = grammar_error("x".repeat(4096 - ENTRY_BYTES));
        let fit = REFUSALS_BYTES / 4096;
        let keys: Vec<Key> = (0..=fit).map(|i| blake3::hash(&i.to_le_bytes())).collect();
        for key in &keys[..fit] {
            refusals.insert(*key, &error);
        }
        assert!(refusals.get(&keys[0]).is_some());
        refusals.insert(keys[fit], &error);
        assert_eq!(refusals.bytes, REFUSALS_BYTES);
        assert!(refusals.get(&keys[1]).is_none());
        assert!(refusals.get(&keys[0]).is_some() && refusals.get(&keys[2]).is_some());
        // Replacing an entry does not count it twice.
        refusals.insert(keys[fit], &error);
        assert_eq!(refusals.bytes, REFUSALS_BYTES);
        // A text of the size of a schema is not kept at all.
        let long = error.with_param("x".repeat(MAX_REFUSAL_BYTES));
        refusals.insert(keys[1], &long);
        assert!(refusals.get(&keys[1]).is_none());
    }
}
