//! The tokens of a vocabulary that begin with digits.

use llgtrt_core::TokenId;
use toktrie::SimpleVob;

/// Tokens that begin with digits, and with how many.
#[derive(Debug)]
pub(crate) struct DigitTokens(Vec<(TokenId, usize)>);

impl DigitTokens {
    pub(crate) fn new<'a>(tokens: impl Iterator<Item = (TokenId, &'a [u8])>) -> Self {
        let digits = |bytes: &[u8]| bytes.iter().take_while(|byte| byte.is_ascii_digit()).count();
        Self(tokens.map(|(token, bytes)| (token, digits(bytes))).filter(|&(_, count)| count > 0).collect())
    }

    /// Takes out the tokens that begin with more digits, unless nothing would be left.
    pub(crate) fn restrict(&self, most: usize, mask: &mut SimpleVob) {
        let banned = || self.0.iter().filter(|&&(token, count)| count > most && mask.is_allowed(token));
        let count = banned().count();
        if count == 0 || count == mask.num_set() {
            return;
        }
        let banned: Vec<TokenId> = banned().map(|&(token, _)| token).collect();
        for token in banned {
            mask.disallow_token(token);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn something_is_always_left() {
        let texts = ["1", "12", "x", ""];
        let tokens =
            DigitTokens::new(texts.iter().enumerate().map(|(i, text)| (i as TokenId, text.as_bytes())));
        let restricted = |most: usize, allowed: &[TokenId]| {
            let mut mask = SimpleVob::alloc(4);
            for &token in allowed {
                mask.allow_token(token);
            }
            tokens.restrict(most, &mut mask);
            mask.to_list()
        };
        assert_eq!(restricted(1, &[0, 1, 2]), [0, 2]);
        assert_eq!(restricted(0, &[0, 1, 2]), [2]);
        assert_eq!(restricted(0, &[0, 1]), [0, 1]);
        assert_eq!(restricted(1, &[1]), [1]);
        assert_eq!(restricted(2, &[0, 1]), [0, 1]);
    }
}
