//! A compiled grammar: the matcher that sequences start from, and its first mask.
//!
//! Built on a compile thread; shared and immutable afterwards.

use std::sync::Arc;
use std::time::{Duration, Instant};

use llgtrt_core::{Error, GrammarSpec, Result};
use llguidance::{CancellationHandle, Matcher, ParserFactory};
use parking_lot::Mutex;
use toktrie::SimpleVob;

use crate::TokenEnv;
use crate::admission::{self, Clues};
use crate::config::GrammarConfig;
use crate::text::{first_line, grammar_error};

/// A first mask slower than this is not computed a second time to warm the shared matcher.
const WARM_LIMIT: Duration = Duration::from_millis(20);

/// Patterns tried one by one to find the one that llguidance refused.
const MAX_PROBES: usize = 200;

/// A grammar that is ready for use. Cloning copies a pointer.
#[derive(Clone)]
pub struct CompiledGrammar {
    inner: Arc<Inner>,
}

struct Inner {
    /// Never advanced. Behind a lock only because a matcher cannot be shared between threads.
    matcher: Mutex<Matcher>,
    first_mask: SimpleVob,
    env: Arc<TokenEnv>,
    kind: &'static str,
    bytes: usize,
    warnings: Vec<String>,
}

impl std::fmt::Debug for CompiledGrammar {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CompiledGrammar").field("kind", &self.kind()).field("bytes", &self.bytes()).finish()
    }
}

impl CompiledGrammar {
    /// The kind of the specification, such as `json_schema`.
    pub fn kind(&self) -> &'static str {
        self.inner.kind
    }

    /// Estimated memory, in bytes.
    pub fn bytes(&self) -> usize {
        self.inner.bytes
    }

    /// What llguidance only approximates (an `x-guidance` with `lenient`, for instance).
    pub fn warnings(&self) -> &[String] {
        &self.inner.warnings
    }

    /// A matcher at the start of the grammar, independent of all others.
    pub(crate) fn matcher(&self) -> Matcher {
        // `clone()` would share the lexer, and its lock, with every other sequence.
        self.inner.matcher.lock().deep_clone()
    }

    /// The mask of the first token.
    pub(crate) fn first_mask(&self) -> &SimpleVob {
        &self.inner.first_mask
    }

    /// The tokenizer it was compiled for.
    pub(crate) fn env(&self) -> &Arc<TokenEnv> {
        &self.inner.env
    }
}

/// What a compilation ended with, beside success.
pub(crate) enum Failure {
    /// The grammar is not usable.
    Refused(Error),
    /// The computation of the first mask was cancelled.
    Cancelled,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

/// Checks and compiles a grammar and computes its first mask. `on_cancellable` receives the handle
/// that stops the mask; the compilation itself cannot be stopped.
pub(crate) fn build(
    factory: &ParserFactory,
    env: &Arc<TokenEnv>,
    config: &GrammarConfig,
    spec: &GrammarSpec,
    on_cancellable: impl FnOnce(CancellationHandle),
) -> Result<CompiledGrammar, Failure> {
    let admitted = admission::admit(spec, config)?;
    let parser = factory
        .create_parser(admitted.grammar)
        .map_err(|error| locate(factory, &admitted.clues, &error.to_string()))?;
    let lexer_bytes = parser.parser.lexer_stats().num_bytes;
    let mut pristine = Matcher::new(Ok(parser));
    let warnings = pristine.grammar_warnings();

    // Limits of the lexer and the parser show at the first mask, not before. It is computed on a
    // copy that can be cancelled, because a matcher with a handle checks it at every mask.
    let mut probe = pristine.deep_clone().into_cancellable();
    if let Some(handle) = probe.cancellation_handle() {
        on_cancellable(handle);
    }
    if probe.is_stopped() {
        return Err(grammar_error("the grammar allows only the empty text").into());
    }
    let started = Instant::now();
    let computed = probe.compute_mask();
    let elapsed = started.elapsed();
    let first_mask = match computed {
        Ok(mask) => mask,
        Err(_) if probe.is_cancelled() => return Err(Failure::Cancelled),
        Err(error) => return Err(grammar_error(mask_error(&error.to_string())).into()),
    };
    if allows_only_eos(&first_mask, env) {
        return Err(grammar_error("the grammar allows only the empty text").into());
    }
    if elapsed < WARM_LIMIT {
        // What the lexer learned here, no sequence has to learn again.
        let _ = pristine.compute_mask();
    }
    let bytes = (128 << 10) + 2 * lexer_bytes + first_mask.len() / 4;
    let inner = Inner {
        matcher: Mutex::new(pristine),
        first_mask,
        env: Arc::clone(env),
        kind: spec.kind(),
        bytes,
        warnings,
    };
    Ok(CompiledGrammar { inner: Arc::new(inner) })
}

fn allows_only_eos(mask: &SimpleVob, env: &TokenEnv) -> bool {
    mask.iter().all(|token| env.is_eos(token))
}

/// The message for a mask that could not be computed.
pub(crate) fn mask_error(message: &str) -> String {
    let message = first_line(message);
    if message == "NoExtensionBias" {
        return "the grammar allows no text at this point".to_owned();
    }
    format!("the grammar is too complex: {message}")
}

/// Turns llguidance's message into an error, with a path where the clues allow one.
fn locate(factory: &ParserFactory, clues: &Clues, message: &str) -> Error {
    let has = |word: &str| message.contains(word);
    let place = if has("oneOf") {
        clues.one_of.clone()
    } else if has("patternProperty") {
        clues.pattern_properties.clone()
    } else if has("min/maxProperties") {
        clues.property_count.clone()
    } else if clues.unresolved_ref.is_some()
        && (has("esource") || has("eference") || has("nchor") || has("://"))
    {
        clues.unresolved_ref.clone()
    } else {
        refused_pattern(factory, clues)
    };
    let error = grammar_error(first_line(message));
    match place {
        Some(path) => error.with_param(path),
        None => error,
    }
}

/// The first pattern that llguidance refuses by itself.
fn refused_pattern(factory: &ParserFactory, clues: &Clues) -> Option<String> {
    clues
        .patterns
        .iter()
        .take(MAX_PROBES)
        .find(|(_, pattern)| {
            let schema = serde_json::json!({"type": "string", "pattern": pattern});
            factory.create_parser(llguidance::api::TopLevelGrammar::from_json_schema(schema)).is_err()
        })
        .map(|(path, _)| path.clone())
}
