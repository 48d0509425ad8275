//! Texts that no answer may begin with, and the tokens that each of them excludes.
//!
//! A check found that everything that begins with such a text is wrong. Banning texts, not tokens, excludes
//! at once every token that leads to the same text. The search is chronological: what a ban says concerns the text before it
//! as long as that stays, so that no more is kept of it than what follows there. Plain data, used under the lock of its
//! sequence.

use std::collections::VecDeque;
use std::sync::Arc;

use llgtrt_core::TokenId;

use crate::TokenEnv;

/// The most that are kept; more than are made while the text gets no further. One that is dropped, the oldest, is found
/// wrong again.
const MAX_BANS: usize = 4096;

/// A beginning that is wrong.
#[derive(Debug, Clone)]
struct Ban {
    /// Bytes of the text before it.
    from: usize,
    /// What follows there.
    tail: Box<[u8]>,
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    /// Everything that begins so.
    Beginning,
    /// The same with any blanks before the last byte.
    Closing,
    /// The text that ends there.
    Whole,
}

impl Ban {
    /// What is wrong behind `text`, if that is a part of it.
    fn behind<'a>(&'a self, text: &[u8]) -> Option<&'a [u8]> {
        let rest = text.get(self.from..)?;
        self.tail.strip_prefix(rest).or_else(|| {
            let (closer, value) = self.tail.split_last().filter(|_| self.kind == Kind::Closing)?;
            let blanks = rest.strip_prefix(value)?;
            blanks.iter().all(|&byte| is_json_blank(byte)).then_some(std::slice::from_ref(closer))
        })
    }
}

impl Kind {
    /// Whether `text` begins with what is wrong.
    fn begins(self, text: &[u8], wrong: &[u8]) -> bool {
        match (self, wrong.split_last()) {
            (Kind::Closing, Some((closer, value))) => text
                .strip_prefix(value)
                .and_then(|rest| rest.iter().find(|byte| !is_json_blank(**byte)))
                .is_some_and(|byte| byte == closer),
            _ => text.starts_with(wrong),
        }
    }
}

fn is_json_blank(byte: u8) -> bool {
    b" \t\n\r".contains(&byte)
}

/// The bans of one sequence. A copy shares them, and keeps what it adds apart.
#[derive(Debug, Clone, Default)]
pub(super) struct Bans {
    shared: Arc<VecDeque<Ban>>,
    own: Vec<Ban>,
}

impl Bans {
    fn all(&self) -> impl Iterator<Item = &Ban> {
        self.shared.iter().chain(&self.own)
    }

    pub(super) fn len(&self) -> usize {
        self.shared.len() + self.own.len()
    }

    /// Everything that begins with `text` is wrong, of which the first `from` bytes may stay.
    pub(super) fn beginning(&mut self, text: &[u8], from: usize) {
        self.retain(|ban| ban.from <= text.len() && ban.behind(text).is_none());
        self.add(text, from, Kind::Beginning);
    }

    /// Everything that begins with `text` is wrong, also with other blanks before its last byte, which closes a list or an
    /// object.
    pub(super) fn closing(&mut self, text: &[u8], from: usize) {
        let Some((closer, before)) = text.split_last() else { return };
        let blanks = before.iter().rev().take_while(|byte| is_json_blank(**byte)).count();
        let value = &before[..before.len() - blanks];
        self.add(&[value, &[*closer]].concat(), from.min(value.len()), Kind::Closing);
    }

    /// `text` as a whole is wrong, of which the first `from` bytes may stay.
    pub(super) fn whole(&mut self, text: &[u8], from: usize) {
        self.add(text, from, Kind::Whole);
    }

    /// No more than `len` bytes of the text are left.
    pub(super) fn back_to(&mut self, len: usize) {
        self.retain(|ban| ban.from <= len);
    }

    fn add(&mut self, text: &[u8], from: usize, kind: Kind) {
        let from = from.min(text.len());
        let ban = Ban { from, tail: text[from..].into(), kind };
        match Arc::get_mut(&mut self.shared) {
            Some(bans) => {
                if bans.len() == MAX_BANS {
                    bans.pop_front();
                }
                bans.push_back(ban);
            }
            None => self.own.push(ban),
        }
    }

    fn retain(&mut self, keeps: impl Fn(&Ban) -> bool) {
        self.own.retain(&keeps);
        if let Some(bans) = Arc::get_mut(&mut self.shared) {
            bans.retain(&keeps);
        }
    }

    /// Whether a ban concerns what follows `text`.
    pub(super) fn concern(&self, text: &[u8]) -> bool {
        self.all().any(|ban| ban.behind(text).is_some())
    }

    /// Whether `text`, as a whole or as a beginning, is wrong.
    pub(super) fn has(&self, text: &[u8], as_a_whole: bool) -> bool {
        self.all().any(|ban| {
            text.get(ban.from..).is_some_and(|rest| match ban.kind {
                Kind::Whole => as_a_whole && *ban.tail == *rest,
                kind => kind.begins(rest, &ban.tail),
            })
        })
    }

    /// Clears the bits of the tokens that must not follow `text`; false if none is left.
    pub(super) fn apply(&self, text: &[u8], mask: &mut toktrie::SimpleVob, env: &TokenEnv) -> bool {
        let mut rests: Vec<(Kind, &[u8])> = Vec::new();
        let mut no_end = false;
        for ban in self.all() {
            match ban.behind(text) {
                Some([]) if ban.kind == Kind::Whole => no_end = true,
                Some(rest) if ban.kind != Kind::Whole => rests.push((ban.kind, rest)),
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
                rests.iter().any(|(kind, rest)| kind.begins(bytes, rest))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ban_says_what_may_not_follow() {
        let mut bans = Bans::default();
        bans.beginning(b"[1,22", 3);
        bans.whole(b"[1,3", 3);
        assert!(bans.concern(b"[1,") && bans.concern(b"[1,2") && !bans.concern(b"[1,4"));
        assert!(bans.has(b"[1,22", false) && bans.has(b"[1,223", false) && !bans.has(b"[1,2", false));
        assert!(bans.has(b"[1,3", true) && !bans.has(b"[1,3", false) && !bans.has(b"[1,33", true));
        // Everything behind it is wrong: what was known of that is not needed any more.
        bans.beginning(b"[1,", 1);
        assert_eq!(bans.len(), 1);
        assert!(bans.has(b"[1,22", false) && bans.concern(b"[") && !bans.concern(b"[2"));
    }

    #[test]
    fn blanks_before_a_closing_bracket_make_no_difference() {
        let mut bans = Bans::default();
        bans.closing(b"[1,2 ]", 4);
        assert!(bans.has(b"[1,2]", false) && bans.has(b"[1,2\n ],", false) && !bans.has(b"[1,2 ,", false));
        assert!(bans.concern(b"[1,2") && bans.concern(b"[1,2 \t") && !bans.concern(b"[1,2 ,"));
        bans.back_to(4);
        assert!(bans.has(b"[1,2]", false));
        bans.back_to(3);
        assert_eq!(bans.len(), 0);
        // Within a value they do.
        bans.closing(b"[\"a b\"]", 1);
        assert!(bans.has(b"[\"a b\" ]", false) && !bans.has(b"[\"a  b\"]", false));
    }

    #[test]
    fn what_is_behind_the_text_that_is_left_is_forgotten() {
        let mut bans = Bans::default();
        bans.beginning(b"[1,2", 3);
        bans.beginning(b"[2", 1);
        bans.back_to(2);
        assert_eq!(bans.len(), 1);
        assert!(bans.has(b"[2", false) && !bans.has(b"[1,2", false));
    }

    #[test]
    fn a_copy_adds_apart_and_their_number_is_bounded() {
        let mut bans = Bans::default();
        for i in 0..2 * MAX_BANS {
            bans.beginning(format!("x{i:06}").as_bytes(), 1);
        }
        assert_eq!(bans.len(), MAX_BANS);
        assert!(
            bans.has(format!("x{:06}", 2 * MAX_BANS - 1).as_bytes(), false) && !bans.has(b"x000000", false)
        );
        let mut copy = bans.clone();
        copy.beginning(b"y", 0);
        assert!(copy.has(b"y", false) && !bans.has(b"y", false));
        assert!(Arc::ptr_eq(&bans.shared, &copy.shared));
    }
}
