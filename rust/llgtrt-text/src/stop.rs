//! Finds stop strings in a text that arrives in pieces.
//!
//! Runs on the output thread, one value per sequence; clones share the patterns. It keeps back only
//! the longest end of the text that may still become a stop string, and no copy of it: such an end
//! *is* a beginning of a stop string. The time is linear in the text times the number of stop
//! strings, also for `"a" * 1000` in `"a" * 100_000`.

use std::cmp::Reverse;
use std::sync::Arc;

/// One stop string with its Knuth-Morris-Pratt table.
#[derive(Debug)]
struct Pattern {
    /// Position in the request's list.
    index: usize,
    text: Box<str>,
    /// `fallback[n]`: the longest proper prefix of the pattern that ends its first `n + 1` bytes.
    fallback: Box<[u32]>,
}

impl Pattern {
    fn new(index: usize, text: &str) -> Self {
        let bytes = text.as_bytes();
        let mut fallback = vec![0_u32; bytes.len()];
        let mut matched = 0;
        for at in 1..bytes.len() {
            while matched > 0 && bytes[at] != bytes[matched] {
                matched = fallback[matched - 1] as usize;
            }
            if bytes[at] == bytes[matched] {
                matched += 1;
            }
            fallback[at] = matched as u32;
        }
        Self { index, text: text.into(), fallback: fallback.into() }
    }

    /// How much of the pattern ends the text once `byte` follows, given how much did before.
    #[inline]
    fn step(&self, mut matched: usize, byte: u8) -> usize {
        let bytes = self.text.as_bytes();
        while matched > 0 && bytes[matched] != byte {
            matched = self.fallback[matched - 1] as usize;
        }
        matched + usize::from(bytes[matched] == byte)
    }
}

/// Knows where a text may end: under a constraint, a stop string counts only there.
pub trait MayEnd: Send {
    /// Whether the text may end after `more`, which follows what was given before.
    fn may_end_after(&mut self, more: &str) -> bool;
}

/// The part of a text that a [`MayEnd`] has not seen.
struct Ends {
    judge: Box<dyn MayEnd>,
    unseen: String,
    /// Bytes that it has seen.
    seen: usize,
}

impl std::fmt::Debug for Ends {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ends").field("seen", &self.seen).finish_non_exhaustive()
    }
}

impl Ends {
    /// Whether the text may end at byte `at`. The first of several overlapping stop strings is asked for
    /// first; a place before it cannot be asked for any more.
    fn allow(&mut self, at: usize) -> bool {
        let Some(more) = at.checked_sub(self.seen).and_then(|length| self.unseen.get(..length)) else {
            return false;
        };
        let allowed = self.judge.may_end_after(more);
        self.unseen.drain(..at - self.seen);
        self.seen = at;
        allowed
    }
}

/// Holds back what may become a stop string and ends the text at the first one.
///
/// The first is the one that is complete first, because that is when generation ends. If several are
/// complete at the same character, the longest wins, so that most is cut off; equal strings: the
/// first in the list. Empty stop strings never match.
#[derive(Debug)]
pub struct StopMatcher {
    patterns: Arc<[Pattern]>,
    /// Per pattern, how many of its bytes end the text so far; always a proper prefix.
    matched: Box<[u32]>,
    /// The pattern whose beginning is held back (the one with the longest), and its length.
    held_pattern: usize,
    held: usize,
    include_stop: bool,
    found: Option<usize>,
    /// Where the text may end, if not anywhere.
    ends: Option<Box<Ends>>,
    /// Bytes of text taken.
    taken: usize,
    /// Patterns that are complete at the byte at hand.
    complete: Vec<usize>,
}

impl StopMatcher {
    /// A matcher for a request's stop strings. `include_stop` keeps the stop string in the text.
    pub fn new(stops: &[String], include_stop: bool) -> Self {
        let patterns: Arc<[Pattern]> = stops
            .iter()
            .enumerate()
            .filter(|(_, stop)| !stop.is_empty())
            .map(|(index, stop)| Pattern::new(index, stop))
            .collect();
        let matched = vec![0; patterns.len()].into();
        Self {
            patterns,
            matched,
            held_pattern: 0,
            held: 0,
            include_stop,
            found: None,
            ends: None,
            taken: 0,
            complete: Vec::new(),
        }
    }

    /// A stop string ends the text only where `judge` allows it; elsewhere it is text.
    #[must_use]
    pub fn only_where(mut self, judge: Box<dyn MayEnd>) -> Self {
        if !self.patterns.is_empty() {
            self.ends = Some(Box::new(Ends { judge, unseen: String::new(), seen: 0 }));
        }
        self
    }

    /// Whether there is nothing to look for.
    pub fn is_empty(&self) -> bool {
        self.patterns.is_empty()
    }

    /// Bytes that wait for a decision.
    pub fn held_len(&self) -> usize {
        self.held
    }

    /// The stop string that ended the text, as an index into the request's list.
    pub fn found(&self) -> Option<usize> {
        self.found
    }

    /// Takes the next piece and appends what is certain. Returns the index of the stop string once one
    /// was found; from then on nothing is appended.
    pub fn push(&mut self, text: &str, out: &mut String) -> Option<usize> {
        if self.found.is_some() {
            return self.found;
        }
        if self.patterns.is_empty() {
            out.push_str(text);
            return None;
        }
        if let Some(ends) = &mut self.ends {
            ends.unseen.push_str(text);
        }
        let before = self.taken;
        self.taken += text.len();
        for (at, &byte) in text.as_bytes().iter().enumerate() {
            self.complete.clear();
            for (number, (pattern, matched)) in self.patterns.iter().zip(&mut self.matched).enumerate() {
                let now = pattern.step(*matched as usize, byte);
                *matched = now as u32;
                if now == pattern.text.len() {
                    self.complete.push(number);
                }
            }
            if self.complete.is_empty() {
                continue;
            }
            // The longest first; of equal ones the first.
            self.complete.sort_by_key(|&number| Reverse(self.patterns[number].text.len()));
            let start = |number: usize| before + at + 1 - self.patterns[number].text.len();
            let ends = &mut self.ends;
            let mut allowed = |number: usize| ends.as_mut().is_none_or(|ends| ends.allow(start(number)));
            if let Some(number) = self.complete.iter().copied().find(|&number| allowed(number)) {
                let pattern = &self.patterns[number];
                let end = self.held + at + 1;
                let cut = if self.include_stop { end } else { end - pattern.text.len() };
                self.emit(text, cut, out);
                self.held = 0;
                self.found = Some(pattern.index);
                return self.found;
            }
            // It is text. A full match must not be stepped again.
            for &number in &self.complete {
                let pattern = &self.patterns[number];
                self.matched[number] = pattern.fallback[pattern.text.len() - 1];
            }
        }
        let (number, held) = self
            .matched
            .iter()
            .enumerate()
            .max_by_key(|(_, matched)| **matched)
            .map_or((0, 0), |(number, matched)| (number, *matched as usize));
        self.emit(text, self.held + text.len() - held, out);
        (self.held_pattern, self.held) = (number, held);
        None
    }

    /// Takes text that is not searched.
    pub fn skip(&mut self, text: &str) {
        if let Some(ends) = &mut self.ends {
            ends.unseen.push_str(text);
        }
        self.taken += text.len();
    }

    /// Ends the text: what was held back is no stop string after all.
    pub fn finish(&mut self, out: &mut String) {
        if self.found.is_none() && self.held > 0 {
            out.push_str(&self.patterns[self.held_pattern].text[..self.held]);
        }
        self.held = 0;
        self.matched.fill(0);
    }

    /// Appends the first `length` bytes of what was held followed by `text`.
    fn emit(&self, text: &str, length: usize, out: &mut String) {
        if self.held > 0 {
            let held = &self.patterns[self.held_pattern].text[..self.held.min(length)];
            out.push_str(held);
        }
        out.push_str(&text[..length.saturating_sub(self.held)]);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn stops(stops: &[&str]) -> Vec<String> {
        stops.iter().map(ToString::to_string).collect()
    }

    fn run(mut matcher: StopMatcher, pieces: &[&str]) -> (String, Option<usize>) {
        let mut out = String::new();
        for piece in pieces {
            matcher.push(piece, &mut out);
        }
        matcher.finish(&mut out);
        (out, matcher.found())
    }

    /// The definition: the match that ends first; of those that end there, the longest.
    fn naive(text: &str, stops: &[String], include_stop: bool) -> (String, Option<usize>) {
        let best = stops
            .iter()
            .enumerate()
            .filter(|(_, stop)| !stop.is_empty())
            .filter_map(|(index, stop)| {
                text.find(stop.as_str()).map(|start| (start + stop.len(), start, index))
            })
            .min();
        match best {
            Some((end, start, index)) => {
                (text[..if include_stop { end } else { start }].to_owned(), Some(index))
            }
            None => (text.to_owned(), None),
        }
    }

    #[test]
    fn p1_only_a_possible_beginning_is_held_back() {
        let mut matcher = StopMatcher::new(&stops(&["\nUser:", "END"]), false);
        let mut out = String::new();
        for (piece, expected) in [
            ("Hello", "Hello"),
            (" E", "Hello "),
            ("N", "Hello "),
            ("x", "Hello ENx"),
            ("\nUs", "Hello ENx"),
            ("\nUser", "Hello ENx\nUs"),
        ] {
            assert_eq!(matcher.push(piece, &mut out), None);
            assert_eq!(out, expected, "after {piece:?}");
        }
        assert_eq!(matcher.held_len(), 5);
        assert_eq!(matcher.push(": hi", &mut out), Some(0));
        assert_eq!(out, "Hello ENx\nUs");
        assert_eq!(matcher.push("more", &mut out), Some(0));
        matcher.finish(&mut out);
        assert_eq!(out, "Hello ENx\nUs");
    }

    #[test]
    fn p1_what_was_held_is_flushed_at_the_end() {
        assert_eq!(run(StopMatcher::new(&stops(&["END"]), false), &["a E", "N"]), ("a EN".to_owned(), None));
    }

    #[test]
    fn the_stop_string_is_kept_on_request() {
        let matcher = StopMatcher::new(&stops(&["END"]), true);
        assert_eq!(run(matcher, &["a E", "ND b"]), ("a END".to_owned(), Some(0)));
    }

    #[test]
    fn the_first_complete_match_wins_and_the_longest_of_equals() {
        let matcher = StopMatcher::new(&stops(&["abcd", "bc"]), false);
        assert_eq!(run(matcher, &["xabcd"]), ("xa".to_owned(), Some(1)), "bc is complete before abcd");
        let matcher = StopMatcher::new(&stops(&["c", "bc", "abc", "abc"]), false);
        assert_eq!(run(matcher, &["xabc"]), ("x".to_owned(), Some(2)));
    }

    /// The text may end where brackets are closed.
    struct Closed {
        open: i32,
    }

    impl MayEnd for Closed {
        fn may_end_after(&mut self, more: &str) -> bool {
            for byte in more.bytes() {
                self.open += i32::from(byte == b'(') - i32::from(byte == b')');
            }
            self.open == 0
        }
    }

    #[test]
    fn where_the_text_must_not_end_a_stop_string_is_text() {
        let matcher =
            |list: &[&str]| StopMatcher::new(&stops(list), false).only_where(Box::new(Closed { open: 0 }));
        assert_eq!(run(matcher(&["END"]), &["(a E", "ND b) E", "ND c"]), ("(a END b) ".to_owned(), Some(0)));
        assert_eq!(
            run(matcher(&["x", ")x"]), &["(a)xb"]),
            ("(a)".to_owned(), Some(0)),
            "the longer one is refused"
        );
        assert_eq!(run(matcher(&["aa"]), &["(aaa", ")aa"]), ("(aaa)".to_owned(), Some(0)));
        assert_eq!(run(matcher(&["a"]), &["(aaa"]), ("(aaa".to_owned(), None));
        let mut skipping = matcher(&["a"]);
        skipping.skip("(");
        assert_eq!(run(skipping, &["a)a"]), ("a)".to_owned(), Some(0)));
    }

    #[test]
    fn empty_stop_strings_never_match() {
        assert_eq!(run(StopMatcher::new(&stops(&["", "b"]), false), &["ab"]), ("a".to_owned(), Some(1)));
        assert!(StopMatcher::new(&stops(&[""]), false).is_empty());
    }

    #[test]
    fn hostile_repetition_stays_linear() {
        // Quadratic work would be 10^10 steps here and never end.
        let text = "a".repeat(1_000_000);
        let matcher = StopMatcher::new(&stops(&[&format!("{}b", "a".repeat(100_000))]), false);
        let pieces: Vec<&str> = (0..text.len()).map(|at| &text[at..=at]).collect();
        assert_eq!(run(matcher, &pieces), (text.clone(), None));
        let matcher = StopMatcher::new(&stops(&[&"a".repeat(1000)]), false);
        assert_eq!(run(matcher, &pieces), (String::new(), Some(0)));
    }

    proptest! {
        #[test]
        fn any_chunking_equals_the_whole_text_search(
            text in "[ab é😀]{0,40}",
            stops in proptest::collection::vec("[ab é😀]{0,4}", 0..5),
            sizes in proptest::collection::vec(1_usize..5, 40),
            include_stop: bool,
        ) {
            let expected = naive(&text, &stops, include_stop);
            let matcher = StopMatcher::new(&stops, include_stop);
            prop_assert_eq!(&run(matcher, &[&text]), &expected);
            let matcher = StopMatcher::new(&stops, include_stop);
            let characters: Vec<(usize, char)> = text.char_indices().collect();
            let mut pieces = Vec::new();
            let mut at = 0;
            for size in sizes {
                let end = (at + size).min(characters.len());
                let byte = |n: usize| characters.get(n).map_or(text.len(), |(byte, _)| *byte);
                pieces.push(&text[byte(at)..byte(end)]);
                at = end;
            }
            prop_assert_eq!(&run(matcher, &pieces), &expected);
        }

        #[test]
        fn no_more_is_held_than_a_proper_prefix_of_a_stop(text in "[ab]{0,30}", stops in proptest::collection::vec("[ab]{1,5}", 1..4)) {
            let mut matcher = StopMatcher::new(&stops, false);
            let mut out = String::new();
            if matcher.push(&text, &mut out).is_none() {
                let longest = (0..=text.len())
                    .rev()
                    .find(|n| stops.iter().any(|s| s.len() > *n && s.starts_with(&text[text.len() - n..])));
                prop_assert_eq!(Some(matcher.held_len()), longest);
            }
        }
    }
}
