//! Texts that no answer may begin with, and the tokens that each of them excludes.
//!
//! A check found that everything that begins with such a text is wrong. Banning texts, not tokens, excludes
//! at once every token that leads to the same text. Plain data, used under the lock of its sequence.

use llgtrt_core::TokenId;

use crate::TokenEnv;

/// A beginning that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Ban {
    text: Vec<u8>,
    /// Wrong only if the text ends there.
    at_end: bool,
}

/// The bans of one sequence.
#[derive(Debug, Clone, Default)]
pub(super) struct Bans {
    list: Vec<Ban>,
}

impl Bans {
    /// Everything that begins with `text` is wrong.
    pub(super) fn beginning(&mut self, text: &[u8]) {
        self.list.retain(|ban| !ban.text.starts_with(text));
        self.list.push(Ban { text: text.to_vec(), at_end: false });
    }

    /// `text` as a whole is wrong.
    pub(super) fn whole(&mut self, text: &[u8]) {
        self.list.push(Ban { text: text.to_vec(), at_end: true });
    }

    /// Whether a ban concerns what follows `text`.
    pub(super) fn concern(&self, text: &[u8]) -> bool {
        self.list.iter().any(|ban| ban.text.starts_with(text))
    }

    /// Whether `text`, as a whole or as a beginning, is wrong.
    pub(super) fn has(&self, text: &[u8], as_a_whole: bool) -> bool {
        self.list
            .iter()
            .any(|ban| if ban.at_end { as_a_whole && ban.text == text } else { text.starts_with(&ban.text) })
    }

    /// Clears the bits of the tokens that must not follow `text`; false if none is left.
    pub(super) fn apply(&self, text: &[u8], mask: &mut toktrie::SimpleVob, env: &TokenEnv) -> bool {
        let mut rests: Vec<&[u8]> = Vec::new();
        let mut no_end = false;
        for ban in &self.list {
            match ban.text.strip_prefix(text) {
                Some([]) if ban.at_end => no_end = true,
                Some(rest) if !ban.at_end => rests.push(rest),
                _ => {}
            }
        }
        let tokens: Vec<TokenId> = mask.iter().collect();
        let mut left = 0;
        for token in tokens {
            let banned = if env.is_eos(token) {
                no_end
            } else {
                let bytes = env.bytes(token);
                rests.iter().any(|rest| bytes.starts_with(rest))
            };
            if banned {
                mask.disallow_token(token);
            } else {
                left += 1;
            }
        }
        left > 0
    }
}
