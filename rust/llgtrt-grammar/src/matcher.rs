//! The parser of one sequence, with a count of the work that it does.
//!
//! In what it does it is llguidance's own `Matcher`: what fails once fails from then on, and a panic is an error. That one
//! counts the work of masks alone; where an object has a thousand keys, each of its tokens costs as much as a mask.

use anyhow::{Result, anyhow, ensure};
use llgtrt_core::TokenId;
use llguidance::TokenParser;
use llguidance::api::StopReason;
use llguidance::earley::ParserStats;
use llguidance::panic_utils::catch_unwind;
use std::panic::AssertUnwindSafe;
use toktrie::{SimpleVob, TokEnv};

/// Nodes of the token trie, and items, that take as long as a unit of work.
const NODES_PER_UNIT: u64 = 32;
const ITEMS_PER_UNIT: u64 = 4;

/// Comparisons that take as long: llguidance looks for each new item among those of its row, which are compared many at a
/// time, and for each that is complete among those of the row where it began, one by one. A step has some of both.
const COMPARISONS_PER_UNIT: u64 = 400;

/// Moves along the tokens of one sequence. A clone shares the states of its lexer.
#[derive(Clone)]
pub struct Matcher {
    parser: std::result::Result<TokenParser, String>,
    work: u64,
    /// Items of the widest row so far: of those that one operation made, the average.
    widest: u64,
}

impl Matcher {
    /// A matcher where the parser stands.
    pub fn new(mut parser: TokenParser) -> Self {
        if parser.is_fresh() {
            parser.start_without_prompt();
        }
        Self { parser: Ok(parser), work: 0, widest: 0 }
    }

    /// A copy with a lexer of its own.
    #[must_use]
    pub fn deep_clone(&self) -> Self {
        Self {
            parser: self.parser.as_ref().map(TokenParser::deep_clone).map_err(Clone::clone),
            work: self.work,
            widest: self.widest,
        }
    }

    /// What all operations together cost, in units of about 0.2 us.
    pub(crate) fn work(&self) -> u64 {
        self.work
    }

    fn with<T>(&mut self, f: impl FnOnce(&mut TokenParser) -> Result<T>) -> Result<T> {
        let parser = self.parser.as_mut().map_err(|error| anyhow!("{error}"))?;
        let before = parser.parser_stats().clone();
        let result = catch_unwind(AssertUnwindSafe(|| f(parser)));
        let stats = parser.parser_stats().delta(&before);
        self.widest = self.widest.max((stats.all_items / stats.rows.max(1)) as u64);
        self.work += units(&stats, self.widest);
        let failed = match result {
            Ok(value) => return Ok(value),
            Err(error) => parser.augment_err(error),
        };
        self.parser = Err(failed.clone());
        Err(anyhow!(failed))
    }

    /// Moves over the tokens.
    pub fn consume_tokens(&mut self, tokens: &[TokenId]) -> Result<()> {
        for &token in tokens {
            self.with(|parser| {
                ensure!(parser.consume_token(token)? == 0, "unexpected backtracking");
                Ok(())
            })?;
        }
        self.with(|parser| parser.check_stop().map(drop))
    }

    /// Moves over the token.
    pub fn consume_token(&mut self, token: TokenId) -> Result<()> {
        self.consume_tokens(&[token])
    }

    /// Moves over the tokens up to the first that may not follow, and tells how many those are.
    pub(crate) fn try_consume_tokens(&mut self, tokens: &[TokenId]) -> Result<usize> {
        for (taken, &token) in tokens.iter().enumerate() {
            if !self.with(|parser| parser.validate_token(token))? {
                return Ok(taken);
            }
            self.consume_token(token)?;
        }
        Ok(tokens.len())
    }

    /// Goes back by so many tokens.
    pub(crate) fn rollback(&mut self, tokens: usize) -> Result<()> {
        self.with(|parser| parser.rollback(tokens))
    }

    /// The tokens that may follow.
    pub fn compute_mask(&mut self) -> Result<SimpleVob> {
        self.with(TokenParser::compute_mask)
    }

    /// Whether the text may end here.
    pub fn is_accepting(&mut self) -> Result<bool> {
        self.with(|parser| Ok(parser.is_accepting()))
    }

    /// How many of the tokens may follow, one after the other.
    pub(crate) fn validate_tokens(&mut self, tokens: &[TokenId]) -> Result<usize> {
        self.with(|parser| parser.validate_tokens_raw(tokens))
    }

    /// The tokens that are the only ones to follow; none after a failure.
    pub(crate) fn compute_ff_tokens(&mut self) -> Vec<TokenId> {
        self.with(|parser| Ok(parser.compute_ff_tokens())).unwrap_or_default()
    }

    /// The bytes that are the only ones to follow; none after a failure.
    pub(crate) fn compute_ff_bytes(&mut self) -> Vec<u8> {
        self.with(|parser| Ok(parser.force_bytes())).unwrap_or_default()
    }

    /// Whether nothing may follow.
    pub fn is_stopped(&self) -> bool {
        self.stop_reason() != StopReason::NotStopped
    }

    pub(crate) fn stop_reason(&self) -> StopReason {
        self.parser.as_ref().map_or(StopReason::InternalError, TokenParser::stop_reason)
    }

    pub(crate) fn is_error(&self) -> bool {
        self.parser.is_err()
    }

    /// Whether the lexer has reached one of its limits: from then on it takes nothing.
    pub(crate) fn is_spoilt(&self) -> bool {
        self.parser.as_ref().is_ok_and(|parser| parser.parser.lexer_stats().error)
    }

    /// What failed.
    pub fn get_error(&self) -> Option<&str> {
        self.parser.as_ref().err().map(String::as_str)
    }

    pub(crate) fn tok_env(&self) -> Result<TokEnv> {
        self.parser.as_ref().map(|parser| parser.token_env.clone()).map_err(|error| anyhow!("{error}"))
    }
}

/// What one operation cost, in units of about 0.2 us: bytes that the lexer had to build states for, nodes of the trie, items
/// of the parser, and comparisons of each item with those of the `widest` row: its own, or one where it began.
fn units(stats: &ParserStats, widest: u64) -> u64 {
    let items = stats.all_items as u64;
    let comparisons = items * widest;
    stats.lexer_cost
        + stats.trie_nodes_walked as u64 / NODES_PER_UNIT
        + items / ITEMS_PER_UNIT
        + comparisons / COMPARISONS_PER_UNIT
}

#[cfg(test)]
mod tests {
    use super::*;

    /// For an object with so many optional keys.
    fn matcher(keys: usize) -> Matcher {
        let env = toktrie::ApproximateTokEnv::single_byte_env();
        let slices = llguidance::earley::SlicedBiasComputer::general_slices();
        let mut factory =
            llguidance::ParserFactory::new(&env, toktrie::InferenceCapabilities::default(), &slices).unwrap();
        factory.quiet();
        let properties: serde_json::Map<_, _> = (0..keys)
            .map(|i| (format!("k{i}"), serde_json::json!({"maximum": i, "type": "integer"})))
            .collect();
        let schema = serde_json::json!({"type": "object", "properties": properties});
        let grammar = llguidance::api::TopLevelGrammar::from_json_schema(schema);
        Matcher::new(factory.create_parser(grammar).unwrap())
    }

    /// The work for `{` of an object with so many optional keys.
    fn work_to_open(keys: usize) -> u64 {
        let mut matcher = matcher(keys);
        matcher.consume_token(u32::from(b'{')).unwrap();
        let work = matcher.work();
        matcher.rollback(1).unwrap();
        assert_eq!(matcher.work(), work, "what was done stays done");
        work
    }

    #[test]
    fn the_work_of_a_token_grows_with_the_square_of_the_keys() {
        let (few, many) = (work_to_open(20), work_to_open(400));
        assert!(few > 0);
        assert!(many > 40 * few, "{many} of {few}");
    }

    #[test]
    fn what_completes_is_looked_for_in_the_wide_row_where_it_began() {
        // A row of a few items, whichever object it closes.
        let work_to_close = |keys: usize| {
            let mut matcher = matcher(keys);
            for byte in br#"{"k0":0"# {
                matcher.consume_token(u32::from(*byte)).unwrap();
            }
            let before = matcher.work();
            matcher.consume_token(u32::from(b'}')).unwrap();
            matcher.work() - before
        };
        let (few, many) = (work_to_close(20), work_to_close(400));
        assert!(many > 2 * few, "{many} of {few}");
    }

    #[test]
    fn what_failed_stays_failed() {
        let env = toktrie::ApproximateTokEnv::single_byte_env();
        let mut factory =
            llguidance::ParserFactory::new(&env, toktrie::InferenceCapabilities::default(), &[]).unwrap();
        factory.quiet();
        let grammar = llguidance::api::TopLevelGrammar::from_regex("ab");
        let mut matcher = Matcher::new(factory.create_parser(grammar).unwrap());
        assert_eq!(matcher.try_consume_tokens(&[u32::from(b'a'), u32::from(b'x')]).unwrap(), 1);
        assert!(matcher.consume_token(u32::from(b'x')).is_err());
        assert!(matcher.is_error() && matcher.is_stopped());
        assert!(matcher.compute_mask().is_err() && matcher.rollback(1).is_err());
    }
}
