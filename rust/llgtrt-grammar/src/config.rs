//! The configuration of grammars and masks. Plain data; read once at start.

use llgtrt_schema::ResidualMode;
use llguidance::api::ParserLimits;
use serde::Deserialize;

/// Whitespace allowed at each place between JSON tokens: at most one blank, so that answers are one line.
/// Bounded, because models under a grammar that allows endless whitespace sometimes write it until
/// the token limit; and small, because indentation is tokens (11 to 16 % of the demo model's answers).
pub const DEFAULT_WHITESPACE_PATTERN: &str = r"\x20";

/// Limits of llguidance's parser and lexer; the meaning and the units are llguidance's.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GrammarLimits {
    /// Earley items in one row: about the branching factor of the grammar. Objects with many
    /// optional properties need four items for each. The time of a token grows with the square of it, at this default
    /// to about 10 ms.
    pub max_items_in_row: usize,
    /// Lexer fuel for building the first regular expressions (about 50 000 a millisecond).
    pub initial_lexer_fuel: u64,
    /// Lexer fuel for one mask (about 14 000 a millisecond).
    pub step_lexer_fuel: u64,
    /// Earley items for one mask (about 20 000 a millisecond).
    pub step_max_items: usize,
    /// Lexer states, 1 to 2 kB each.
    pub max_lexer_states: usize,
    /// Symbols in the productions of a grammar.
    pub max_grammar_size: usize,
    /// Runs very large regular expressions over the whole vocabulary when the grammar is compiled.
    pub precompute_large_lexemes: bool,
    /// Adds the parser's state and the grammar to error messages. Never on for clients.
    pub verbose_errors: bool,
}

impl Default for GrammarLimits {
    fn default() -> Self {
        let limits = ParserLimits::default();
        Self {
            // llguidance's 2000 refuses objects with 520 optional properties at the first mask.
            max_items_in_row: 8_000,
            initial_lexer_fuel: limits.initial_lexer_fuel,
            // With llguidance's 200 000, long patterns with a length fail in mid-answer.
            step_lexer_fuel: 1_000_000,
            step_max_items: limits.step_max_items,
            max_lexer_states: limits.max_lexer_states,
            max_grammar_size: limits.max_grammar_size,
            precompute_large_lexemes: limits.precompute_large_lexemes,
            verbose_errors: false,
        }
    }
}

impl From<&GrammarLimits> for ParserLimits {
    fn from(limits: &GrammarLimits) -> Self {
        Self {
            max_items_in_row: limits.max_items_in_row,
            initial_lexer_fuel: limits.initial_lexer_fuel,
            step_lexer_fuel: limits.step_lexer_fuel,
            step_max_items: limits.step_max_items,
            max_lexer_states: limits.max_lexer_states,
            max_grammar_size: limits.max_grammar_size,
            precompute_large_lexemes: limits.precompute_large_lexemes,
            verbose_errors: limits.verbose_errors,
        }
    }
}

/// What to do with what a schema asks and no grammar can hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Residual {
    /// Check it while the answer grows.
    Verify,
    /// Refuse the schema.
    Refuse,
}

impl From<Residual> for ResidualMode {
    fn from(residual: Residual) -> Self {
        match residual {
            Residual::Verify => Self::Verify,
            Residual::Refuse => Self::Refuse,
        }
    }
}

/// Configuration of the grammar compiler and the mask pool.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GrammarConfig {
    /// Limits of llguidance's parser and lexer.
    pub limits: GrammarLimits,
    /// What llguidance prints on standard error: 0 nothing, 1 warnings, 2 and more details.
    pub log_level: u32,
    /// Grammars compiled at the same time, one thread each.
    pub compile_slots: usize,
    /// Grammars that may wait for a slot; more are refused as overload.
    pub compile_queue_size: usize,
    /// A request waits at most this long for its grammar, in milliseconds.
    pub compile_deadline_ms: u64,
    /// Memory that compilations may take together, in MiB: each is bounded to 256 MiB, and so many may be in
    /// progress, those included that run past their deadline. Never fewer than `compile_slots`.
    pub compile_memory_megabytes: u64,
    /// Estimated memory of the grammars kept for reuse, in MiB.
    pub cache_megabytes: u64,
    /// Estimated memory that the lexers of all running sequences may grow to, in MiB. Beyond it a sequence with more
    /// than its share begins with a fresh lexer, which costs it time.
    pub lexer_memory_megabytes: u64,
    /// Threads that compute masks beside the engine's; absent means the cores less one, at least 1.
    pub mask_threads: Option<usize>,
    /// Longest grammar text, in bytes; for a choice, the sum of its strings.
    pub max_source_bytes: usize,
    /// Deepest nesting of a JSON text, and of a schema through `$ref`.
    pub max_depth: usize,
    /// Longest regular expression, in bytes.
    pub max_regex_bytes: usize,
    /// `enum` and `const` values of a whole schema, nested ones included; also strings of a choice.
    pub max_enum_values: usize,
    /// Properties of a whole schema.
    pub max_properties: usize,
    /// What to do with what no grammar can hold, where a request does not say it.
    pub residual: Residual,
    /// Ways that an answer under `residual: verify` may give up, without getting any further, before its request
    /// fails.
    pub residual_attempts: usize,
    /// JSON schemas mean what the standard says to the letter: objects that name properties and say nothing
    /// of others take any others, and numbers have any number of digits. A schema's `x-guidance` wins.
    pub standard: bool,
    /// Regular expression of the whitespace between JSON tokens. A request's `x-guidance` wins.
    pub whitespace_pattern: Option<String>,
    /// Allows whitespace between JSON tokens at all. A request's `x-guidance` wins.
    pub whitespace_flexible: bool,
    /// Regular expression between items, instead of a comma. A request's `x-guidance` wins.
    pub item_separator: Option<String>,
    /// Regular expression between key and value, instead of a colon. A request's `x-guidance` wins.
    pub key_separator: Option<String>,
}

impl Default for GrammarConfig {
    fn default() -> Self {
        Self {
            limits: GrammarLimits::default(),
            log_level: 0,
            compile_slots: 2,
            compile_queue_size: 64,
            compile_deadline_ms: 5000,
            compile_memory_megabytes: 1536,
            cache_megabytes: 256,
            lexer_memory_megabytes: 1024,
            mask_threads: None,
            max_source_bytes: 1 << 20,
            max_depth: 100,
            max_regex_bytes: 8192,
            max_enum_values: 10_000,
            max_properties: 5000,
            residual: Residual::Verify,
            residual_attempts: 200,
            standard: false,
            whitespace_pattern: Some(DEFAULT_WHITESPACE_PATTERN.to_owned()),
            whitespace_flexible: true,
            item_separator: None,
            key_separator: None,
        }
    }
}

/// What one compilation may take, in MiB.
const COMPILE_MEGABYTES: u64 = 256;

impl GrammarConfig {
    /// Compilations that may be in progress, overrun ones included.
    pub(crate) fn most_compiles(&self) -> usize {
        let fit = self.compile_memory_megabytes / COMPILE_MEGABYTES;
        usize::try_from(fit).unwrap_or(usize::MAX).max(self.compile_slots).max(1)
    }

    /// Mask threads to start beside the engine's own thread.
    pub(crate) fn mask_workers(&self) -> usize {
        self.mask_threads
            .unwrap_or_else(|| {
                std::thread::available_parallelism().map_or(1, std::num::NonZero::get).saturating_sub(1)
            })
            .max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_left_out_take_their_defaults() {
        let config: GrammarConfig =
            serde_json::from_str(r#"{"compile_slots": 3, "limits": {"step_max_items": 7}}"#).unwrap();
        assert_eq!(config.compile_slots, 3);
        assert_eq!(config.limits.step_max_items, 7);
        assert_eq!(config.limits.max_items_in_row, 8_000);
        assert!(!config.limits.verbose_errors);
    }

    #[test]
    fn unknown_fields_are_refused() {
        assert!(serde_json::from_str::<GrammarConfig>(r#"{"compile_slot": 3}"#).is_err());
        assert!(serde_json::from_str::<GrammarConfig>(r#"{"limits": {"x": 3}}"#).is_err());
    }
}
