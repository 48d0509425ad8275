//! Decides which tokens of which texts go into the next pass of the embedder. Pure functions.

/// What one text has to be evaluated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pending {
    /// Its tokens.
    pub(crate) tokens: usize,
    /// Those that were evaluated before.
    pub(crate) evaluated: usize,
}

/// How many tokens of each text take part, oldest first, within `limit`. A model that reads texts in one go gets
/// whole ones; the first of these takes part even if it alone is longer than `limit`.
pub(crate) fn shares(texts: &[Pending], limit: usize, whole: bool) -> Vec<usize> {
    let mut left = limit.max(1);
    let mut first = true;
    texts
        .iter()
        .map(|text| {
            let pending = text.tokens - text.evaluated;
            let share = match whole {
                true if first || pending <= left => pending,
                // A short one behind it may not go first for ever: the order stays.
                true => {
                    left = 0;
                    0
                }
                false => pending.min(left),
            };
            first = false;
            left = left.saturating_sub(share);
            share
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(lengths: &[(usize, usize)]) -> Vec<Pending> {
        lengths.iter().map(|&(tokens, evaluated)| Pending { tokens, evaluated }).collect()
    }

    #[test]
    fn long_texts_come_in_parts_and_short_ones_go_along() {
        let two = texts(&[(100, 90), (100, 0), (5, 0)]);
        assert_eq!(shares(&two, 64, false), [10, 54, 0]);
        assert_eq!(shares(&two, 200, false), [10, 100, 5]);
        assert_eq!(shares(&two, 0, false), [1, 0, 0]);
    }

    #[test]
    fn whole_texts_stay_whole_and_in_order() {
        let three = texts(&[(100, 0), (60, 0), (5, 0)]);
        assert_eq!(shares(&three, 64, true), [100, 0, 0]);
        assert_eq!(shares(&three, 163, true), [100, 60, 0]);
        assert_eq!(shares(&three, 165, true), [100, 60, 5]);
        assert_eq!(shares(&three[1..], 64, true), [60, 0]);
        assert_eq!(shares(&[], 64, true), Vec::<usize>::new());
    }
}
