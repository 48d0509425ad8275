//! Keeps JSON numbers short that the schema does not bound: a small model that begins to write digits often goes on
//! until its limit of tokens.
//!
//! A grammar that said so would be compiled several times as slowly, so it is a matter of masks: beyond so many digits,
//! a token that begins with one is not offered, as long as another one is. Where the schema asks for more digits, they
//! are all that is left, and come. Used under the slot's lock.

use llgtrt_core::TokenId;
use toktrie::SimpleVob;

use super::Slot;
use crate::TokenEnv;

/// Digits behind the point, and of an exponent. Before it, what the grammar was admitted with counts.
const MAX_FRACTION: usize = 17;
const MAX_EXPONENT: usize = 2;

/// Where in a JSON text the answer stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Outside,
    String,
    /// Behind a backslash.
    Escape,
    /// Behind so many digits of a part of a number.
    Whole(usize),
    Fraction(usize),
    Exponent(usize),
}

impl Place {
    #[expect(clippy::match_same_arms, reason = "one line for each transition")]
    fn after(self, byte: u8) -> Self {
        match (self, byte) {
            (Self::Escape, _) => Self::String,
            (Self::String, b'\\') => Self::Escape,
            (Self::String, b'"') => Self::Outside,
            (Self::String, _) => Self::String,
            (_, b'"') => Self::String,
            (Self::Outside, b'0'..=b'9') => Self::Whole(1),
            (Self::Whole(count), b'0'..=b'9') => Self::Whole(count + 1),
            (Self::Fraction(count), b'0'..=b'9') => Self::Fraction(count + 1),
            (Self::Exponent(count), b'0'..=b'9') => Self::Exponent(count + 1),
            (Self::Whole(_), b'.') => Self::Fraction(0),
            (Self::Whole(_) | Self::Fraction(_), b'e' | b'E') => Self::Exponent(0),
            (Self::Exponent(0), b'+' | b'-') => Self::Exponent(0),
            _ => Self::Outside,
        }
    }

    /// How many digits may follow, if the place is in a number.
    fn left(self, most_digits: usize) -> Option<usize> {
        match self {
            Self::Whole(count) => Some(most_digits.saturating_sub(count)),
            Self::Fraction(count) => Some(MAX_FRACTION.saturating_sub(count)),
            Self::Exponent(count) => Some(MAX_EXPONENT.saturating_sub(count)),
            Self::Outside | Self::String | Self::Escape => None,
        }
    }
}

/// The digits of one sequence.
#[derive(Debug)]
pub(super) struct Digits {
    place: Place,
    /// Tokens that `place` is behind.
    read: usize,
    /// Before the point.
    most: usize,
}

impl Digits {
    pub(super) fn new(most: usize) -> Self {
        Self { place: Place::Outside, read: 0, most }
    }

    fn read(&mut self, taken: &[TokenId], env: &TokenEnv) {
        let new = taken.get(self.read..).unwrap_or_default();
        for byte in new.iter().flat_map(|&token| env.bytes(token)) {
            self.place = self.place.after(*byte);
        }
        self.read = taken.len();
    }

    /// Reads the answer again from its beginning.
    pub(super) fn restart(&mut self) {
        *self = Self::new(self.most);
    }

    /// Tokens behind the first `kept` were taken back.
    fn truncate(&mut self, kept: usize) {
        if kept < self.read {
            self.restart();
        }
    }
}

impl Slot {
    /// The mask of the present position without tokens that make a number too long.
    pub(super) fn bound_digits(&mut self, mut mask: SimpleVob) -> SimpleVob {
        if let Some(digits) = &mut self.digits {
            digits.read(&self.taken, &self.env);
            if let Some(left) = digits.place.left(digits.most) {
                self.env.digit_tokens().restrict(left, &mut mask);
            }
        }
        mask
    }

    /// Whether a number that is open becomes too long by the digits that `run` begins with.
    pub(super) fn lengthens_number(&mut self, run: &[TokenId]) -> bool {
        let Some(digits) = &mut self.digits else { return false };
        digits.read(&self.taken, &self.env);
        let text = run.iter().flat_map(|&token| self.env.bytes(token));
        let more = text.take_while(|byte| byte.is_ascii_digit()).count();
        more > 0 && digits.place.left(digits.most).is_some_and(|left| more > left)
    }

    /// Forgets the tokens behind the first `kept`.
    pub(super) fn truncate_taken(&mut self, kept: usize) {
        self.taken.truncate(kept);
        if let Some(digits) = &mut self.digits {
            digits.truncate(kept);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(text: &str) -> Place {
        text.bytes().fold(Place::Outside, Place::after)
    }

    #[test]
    fn digits_are_counted_in_numbers_alone() {
        for (text, place) in [
            ("", Place::Outside),
            ("-12", Place::Whole(2)),
            ("[1,23", Place::Whole(2)),
            ("{\"a1\":0.250", Place::Fraction(3)),
            ("1e", Place::Exponent(0)),
            ("1.5E-07", Place::Exponent(2)),
            ("12 ", Place::Outside),
            ("\"12", Place::String),
            ("\"a\\\"12", Place::String),
            ("\"a\\", Place::Escape),
            ("true", Place::Outside),
            ("{\"e\":false", Place::Outside),
        ] {
            assert_eq!(after(text), place, "{text}");
        }
    }
}
