//! Where a constrained text may end: follows the text of one sequence through its grammar.
//!
//! For stop strings, on the output thread: it is asked for few places, and each byte is followed once.

use std::sync::Arc;

use toktrie::TokenizerEnv;

use crate::TokenEnv;
use crate::matcher::Matcher;

/// Follows a text through a grammar.
pub struct EndCheck {
    matcher: Matcher,
    env: Arc<TokenEnv>,
    /// What the grammar alone does not decide, or the text left it.
    unknown: bool,
}

impl EndCheck {
    /// Of a matcher at the start. With a check beside the grammar nothing is known.
    pub(crate) fn new(matcher: Matcher, env: Arc<TokenEnv>, is_verified: bool) -> Self {
        Self { matcher, env, unknown: is_verified }
    }

    /// Whether the grammar allows the end after `more`, which follows what was given before. False where that is
    /// not known: with a check beside the grammar, or after control tokens, which are no text.
    pub fn may_end_after(&mut self, more: &str) -> bool {
        if self.unknown {
            return false;
        }
        let tokens = self.env.tokenize_bytes(more.as_bytes());
        if !tokens.is_empty() && self.matcher.consume_tokens(&tokens).is_err() {
            self.unknown = true;
            return false;
        }
        self.matcher.is_stopped() || self.matcher.is_accepting().unwrap_or(false)
    }
}
