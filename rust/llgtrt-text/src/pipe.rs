//! Tokens of one sequence to the text that may be sent: detokenizer, then stop strings.
//!
//! Runs on the output thread, one value per sequence. Log-probability entries travel with the text: a
//! token's entry is released when the last character it touches is, so that text and entries match
//! wherever a client stops reading.

use std::collections::VecDeque;

use llgtrt_core::{TokenOutput, Vocabulary};

use crate::{Detokenizer, LogprobEntry, MayEnd, StopMatcher};

/// What a pipe released. Reused from step to step.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TextOutput {
    /// Text that may be sent.
    pub text: String,
    /// Entries of the tokens that this text completes, if the pipe keeps them.
    pub logprobs: Vec<LogprobEntry>,
}

impl TextOutput {
    /// Empties both, keeping their memory.
    pub fn clear(&mut self) {
        self.text.clear();
        self.logprobs.clear();
    }
}

#[derive(Debug)]
struct Waiting {
    entry: LogprobEntry,
    /// First byte of its text, counted from the beginning of the sequence.
    start: u64,
    /// One past its last byte; unknown while its last character is incomplete.
    end: Option<u64>,
}

/// Detokenizer and stop matcher of one sequence.
#[derive(Debug)]
pub struct TextPipe {
    detokenizer: Detokenizer,
    stops: StopMatcher,
    /// Text of the token at hand, where the stop matcher stands between it and the output.
    scratch: String,
    /// Tokens whose text is not searched for stop strings.
    unsearched: u32,
    keeps_logprobs: bool,
    /// Bytes out of the detokenizer, and bytes released.
    produced: u64,
    released: u64,
    waiting: VecDeque<Waiting>,
    finished: bool,
}

impl TextPipe {
    /// A pipe for one sequence. `include_stop` keeps the stop string in the text; `logprobs` makes an entry
    /// for every token.
    pub fn new(stops: &[String], include_stop: bool, logprobs: bool) -> Self {
        Self {
            detokenizer: Detokenizer::new(),
            stops: StopMatcher::new(stops, include_stop),
            scratch: String::new(),
            unsearched: 0,
            keeps_logprobs: logprobs,
            produced: 0,
            released: 0,
            waiting: VecDeque::new(),
            finished: false,
        }
    }

    /// Control tokens are shown by name (see [`crate::CONTROL_MARKS`]).
    #[must_use]
    pub fn naming_control(mut self, names: bool) -> Self {
        self.detokenizer = self.detokenizer.naming_control(names);
        self
    }

    /// A stop string ends the text only where `judge` allows it.
    #[must_use]
    pub fn ending_where(mut self, judge: Box<dyn MayEnd>) -> Self {
        self.stops = self.stops.only_where(judge);
        self
    }

    /// The text of the first `tokens` tokens is not searched for stop strings (`min_tokens`).
    #[must_use]
    pub fn search_after(mut self, tokens: u32) -> Self {
        self.unsearched = tokens;
        self
    }

    /// Takes the next token and adds to `out` what may be sent now.
    ///
    /// `is_text` is false for the token that ended the sequence (end of sequence, stop token): its bytes are
    /// not text and it has no entry, as in OpenAI's answers. Returns the index of the stop string once one was found; what comes later is ignored.
    /// Tokens that begin at or after the end of the text then have no entry.
    pub fn push(
        &mut self,
        vocabulary: &Vocabulary,
        token: &TokenOutput,
        is_text: bool,
        out: &mut TextOutput,
    ) -> Option<usize> {
        if self.finished || self.stops.found().is_some() {
            return self.stops.found();
        }
        let start = self.produced;
        let before = out.text.len();
        let mut characters = 0;
        if is_text {
            let token = token.token;
            if self.stops.is_empty() || self.unsearched > 0 {
                self.unsearched = self.unsearched.saturating_sub(1);
                self.detokenizer.push(vocabulary, token, &mut out.text);
                if !self.stops.is_empty() {
                    self.stops.skip(&out.text[before..]);
                }
                characters = self.count(&out.text[before..]);
            } else {
                let mut scratch = std::mem::take(&mut self.scratch);
                scratch.clear();
                self.detokenizer.push(vocabulary, token, &mut scratch);
                characters = self.count(&scratch);
                self.stops.push(&scratch, &mut out.text);
                self.scratch = scratch;
            }
        }
        self.released += (out.text.len() - before) as u64;
        if self.keeps_logprobs && is_text {
            let end = (!self.detokenizer.has_tail()).then_some(self.produced);
            if self.produced > start || end.is_some() {
                // What was incomplete before this token ended within it.
                for waiting in self.waiting.iter_mut().rev().take_while(|waiting| waiting.end.is_none()) {
                    waiting.end = Some(self.produced);
                }
            }
            let entry = LogprobEntry {
                token: token.token,
                characters,
                removed_mass: token.removed_mass,
                logprobs: token.logprobs.clone(),
            };
            self.waiting.push_back(Waiting { entry, start, end });
            self.release(&mut out.logprobs);
        }
        self.stops.found()
    }

    /// Ends the text: releases what was held back and every entry that has none of its text cut off, and
    /// drops an incomplete character. Returns the stop string that ended the text, if one did.
    pub fn finish(&mut self, out: &mut TextOutput) -> Option<usize> {
        let before = out.text.len();
        self.detokenizer.finish();
        self.stops.finish(&mut out.text);
        self.released += (out.text.len() - before) as u64;
        self.finished = true;
        self.release(&mut out.logprobs);
        self.stops.found()
    }

    /// The stop string that ended the text, as an index into the request's list.
    pub fn found(&self) -> Option<usize> {
        self.stops.found()
    }

    fn release(&mut self, out: &mut Vec<LogprobEntry>) {
        let stopped = self.stops.found().is_some();
        while let Some(front) = self.waiting.front() {
            let ready = if stopped {
                front.start < self.released
            } else {
                self.finished || front.end.is_some_and(|end| end <= self.released)
            };
            if !ready {
                break;
            }
            out.extend(self.waiting.pop_front().map(|waiting| waiting.entry));
        }
    }

    /// Characters are counted only where entries need them.
    fn count(&mut self, text: &str) -> u32 {
        self.produced += text.len() as u64;
        if self.keeps_logprobs { text.chars().count() as u32 } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use llgtrt_core::{TokenId, TokenLogprobs, Tokenizer};
    use proptest::prelude::*;

    use super::*;
    use crate::ByteTokenizer;

    fn output(token: TokenId) -> TokenOutput {
        let logprobs = Some(Box::new(TokenLogprobs { logprob: -0.5, top: Vec::new(), row: None }));
        TokenOutput { token, forced: false, removed_mass: None, logprobs }
    }

    fn pipe(stops: &[&str]) -> TextPipe {
        let stops: Vec<String> = stops.iter().map(ToString::to_string).collect();
        TextPipe::new(&stops, false, true)
    }

    fn plain(out: &TextOutput) -> (String, Vec<TokenId>) {
        (out.text.clone(), out.logprobs.iter().map(|entry| entry.token).collect())
    }

    /// Feeds bytes as tokens; gives text and entries released after each.
    fn feed(pipe: &mut TextPipe, bytes: &[u8]) -> Vec<(String, Vec<TokenId>)> {
        let tokenizer = ByteTokenizer::new();
        let mut out = TextOutput::default();
        bytes
            .iter()
            .map(|&byte| {
                out.clear();
                pipe.push(tokenizer.vocabulary(), &output(byte.into()), true, &mut out);
                plain(&out)
            })
            .collect()
    }

    fn finish(pipe: &mut TextPipe) -> (String, Vec<TokenId>) {
        let mut out = TextOutput::default();
        pipe.finish(&mut out);
        plain(&out)
    }

    fn steps<const N: usize>(expected: [(&str, Vec<TokenId>); N]) -> Vec<(String, Vec<TokenId>)> {
        expected.into_iter().map(|(text, tokens)| (text.to_owned(), tokens)).collect()
    }

    #[test]
    fn p1_entries_of_held_back_tokens_wait() {
        let mut pipe = pipe(&["bcd"]);
        let expected = steps([("a", vec![97]), ("", vec![]), ("", vec![]), ("bcx", vec![98, 99, 120])]);
        assert_eq!(feed(&mut pipe, b"abcx"), expected);
    }

    #[test]
    fn p2_entries_of_an_incomplete_character_wait_for_it() {
        let mut pipe = pipe(&[]);
        let expected = steps([("a", vec![97]), ("", vec![]), ("é", vec![0xC3, 0xA9])]);
        assert_eq!(feed(&mut pipe, "aé".as_bytes()), expected);
    }

    #[test]
    fn entries_of_the_stop_string_are_dropped() {
        let mut pipe = pipe(&["bc"]);
        let expected = steps([("a", vec![97]), ("", vec![]), ("", vec![]), ("", vec![])]);
        assert_eq!(feed(&mut pipe, b"abcd"), expected);
        assert_eq!(pipe.found(), Some(0));
        assert_eq!(finish(&mut pipe), (String::new(), vec![]));
    }

    #[test]
    fn finish_flushes_text_and_entries() {
        let mut pipe = pipe(&["bc"]);
        feed(&mut pipe, b"ab\xC3");
        assert_eq!(finish(&mut pipe), ("b".to_owned(), vec![98, 0xC3]), "half a character has no text");
    }

    #[test]
    fn the_token_that_ends_the_sequence_has_neither_text_nor_entry() {
        let tokenizer = ByteTokenizer::new();
        let mut pipe = pipe(&[]);
        let mut out = TextOutput::default();
        pipe.push(tokenizer.vocabulary(), &output(97), true, &mut out);
        pipe.push(tokenizer.vocabulary(), &output(98), false, &mut out);
        assert_eq!(plain(&out), ("a".to_owned(), vec![97]));
    }

    #[test]
    fn no_entries_unless_asked_for() {
        let mut pipe = TextPipe::new(&[], false, false);
        assert_eq!(feed(&mut pipe, b"a"), steps([("a", vec![])]));
    }

    #[test]
    fn the_first_tokens_are_not_searched() {
        let mut pipe = pipe(&["b"]).search_after(2);
        let texts: Vec<String> = feed(&mut pipe, b"abab").into_iter().map(|(text, _)| text).collect();
        assert_eq!((texts.concat().as_str(), pipe.found()), ("aba", Some(0)));
    }

    proptest! {
        #[test]
        fn entries_never_overtake_their_text_and_end_with_it(
            text in "[ab é😀]{0,30}",
            stops in proptest::collection::vec("[ab é😀]{1,3}", 0..3),
        ) {
            let mut pipe = TextPipe::new(&stops, false, true);
            let tokenizer = ByteTokenizer::new();
            let mut out = TextOutput::default();
            for byte in text.bytes() {
                pipe.push(tokenizer.vocabulary(), &output(byte.into()), true, &mut out);
                prop_assert!(out.logprobs.len() <= out.text.len());
            }
            pipe.finish(&mut out);
            let bytes: Vec<u8> = out.logprobs.iter().map(|entry| entry.token as u8).collect();
            let characters: u32 = out.logprobs.iter().map(|entry| entry.characters).sum();
            prop_assert_eq!(characters as usize, out.text.chars().count());
            prop_assert_eq!(String::from_utf8(bytes).unwrap(), out.text);
        }
    }
}
