//! The single tokens that a search tries at one position.

use llgtrt_core::TokenId;
use toktrie::SimpleVob;

use super::quoting::{Behind, Quoting};
use super::{MAX_BRANCHES, MAX_BYTES_AHEAD, MAX_TOKENS_AHEAD, Search, Style, digest, query};

impl Search<'_, '_> {
    /// The first of [`Self::tokens`], if it closes something, separates, or is a short value: without a mask, and without
    /// a check beside the grammar.
    pub(super) fn closer(&mut self, quoting: Quoting) -> Option<TokenId> {
        let closers = self.closers;
        let quote = &closers.quotes[closers.quotes.len().saturating_sub(1)..];
        let lists: &[&[TokenId]] = match quoting {
            Quoting { inside: true, escaped: false } => &[&closers.quotes],
            Quoting { inside: true, .. } => &[],
            _ => &[&closers.brackets, &closers.separators, &closers.values, quote, &closers.openers],
        };
        lists.iter().flat_map(|list| list.iter().copied()).find(|&token| self.takes(&[token]))
    }

    /// The tokens to try here, the best one first.
    pub(super) fn tokens(&mut self, quoting: Quoting, style: Style, mask: &SimpleVob) -> Vec<TokenId> {
        let mut ways = Vec::with_capacity(MAX_BRANCHES);
        let closers = self.closers;
        let behind = self.behind();
        let repeats = behind.as_ref().is_some_and(|behind| behind.has_string(b""));
        if style == Style::Back && self.positions_ahead > 0 {
            ways.extend(self.one_before(self.env.first_eos(), mask, None));
        }
        if quoting.inside && !quoting.escaped {
            if !repeats {
                take(&mut ways, mask, &closers.quotes, 3);
            }
            if ways.is_empty() {
                let quote = closers.quotes.last().copied();
                ways.extend(self.one_before(quote, mask, behind.as_ref()));
                if ways.is_empty() && style != Style::Plain {
                    ways.extend(self.novel(mask));
                }
            }
            take(&mut ways, mask, &closers.ellipses, 1);
            take(&mut ways, mask, &closers.words, 2);
        } else if !quoting.inside {
            take(&mut ways, mask, &closers.brackets, 2);
            take(&mut ways, mask, &closers.separators, 2);
            if self.trial.is_some() {
                // Items may have to differ.
                take(&mut ways, mask, &self.least_used(&closers.values), 3);
            } else {
                take(&mut ways, mask, &closers.values, 3);
            }
            ways.retain(|&token| !repeats || self.env.bytes(token) != b"\"\"");
            take(&mut ways, mask, &closers.quotes[closers.quotes.len().saturating_sub(1)..], 1);
            take(&mut ways, mask, &closers.openers, 2);
        }
        let room = MAX_BRANCHES.saturating_sub(ways.len());
        take(&mut ways, mask, &closers.bytes, room.min(4));
        let room = MAX_BRANCHES.saturating_sub(ways.len());
        ways.extend(mask.iter().filter(|&token| !self.env.is_eos(token)).take(room));
        if style == Style::Lexemes {
            ways.truncate(MAX_BRANCHES / 2);
        }
        ways
    }

    /// The same `tokens`, and values that the grammar's parts lead to: what the run took least here comes first. Within a text
    /// that may be anything, and within a number, there is nothing to choose.
    pub(super) fn in_turns(
        &mut self,
        mut tokens: Vec<TokenId>,
        quoting: Quoting,
        mask: &SimpleVob,
        allowed: u64,
    ) -> Vec<Vec<TokenId>> {
        let (env, closers) = (self.env, self.closers);
        let mut ways = Vec::new();
        if !quoting.inside {
            let text = |token: TokenId| env.bytes(token);
            let is_space = |&token: &TokenId| text(token).first().is_some_and(u8::is_ascii_whitespace);
            if !tokens.iter().all(is_space) {
                tokens.retain(|token| !is_space(token));
            }
            if tokens
                .iter()
                .any(|token| closers.separators.contains(token) || closers.brackets.contains(token))
            {
                tokens.retain(|&token| text(token).iter().any(|byte| b"\"}],:".contains(byte)));
            } else {
                let values = self.hints.parts.values(|schema, factory| query::value(schema, factory, env));
                ways.extend(values.iter().filter(|value| self.takes(value)).cloned());
            }
        }
        ways.extend(tokens.into_iter().map(|token| vec![token]));
        if !quoting.inside || mask.num_set() <= MAX_CHOICES {
            let taken = |way: &Vec<TokenId>| {
                self.turns.iter().filter(|(_, at, other)| *at == Some(allowed) && other == way).count()
            };
            ways.sort_by_cached_key(taken);
        }
        ways
    }

    /// Values, those first that the run has the fewest of; at the end what only begins one.
    fn least_used(&self, values: &[TokenId]) -> Vec<TokenId> {
        let begins = |token: TokenId| matches!(self.env.bytes(token), b"n" | b"t" | b"f");
        let used = |token: TokenId| self.path.iter().filter(|&&other| other == token).count();
        let mut values = values.to_vec();
        values.sort_by_cached_key(|&token| (begins(token), used(token)));
        values
    }

    /// A byte that leads from one set of allowed tokens to another as no byte did before: one digit, one letter of each case and
    /// every other character is tried.
    fn novel(&mut self, mask: &SimpleVob) -> Option<TokenId> {
        let here = digest(mask);
        let allowed = |token: &TokenId| (*token as usize) < mask.len() && mask.is_allowed(*token);
        let mut classes = [false; 3];
        let closers = self.closers;
        for token in closers.bytes.iter().copied().filter(allowed) {
            let byte = self.env.bytes(token)[0];
            let class = match byte {
                b'0'..=b'9' => Some(0),
                b'a'..=b'z' => Some(1),
                b'A'..=b'Z' => Some(2),
                b'\\' | 0x80.. => continue,
                _ => None,
            };
            if class.is_some_and(|class: usize| std::mem::replace(&mut classes[class], true)) {
                continue;
            }
            if self.masks_left == 0 || self.run_left == 0 {
                return None;
            }
            if self.matcher.consume_token(token).is_err() {
                return None;
            }
            let after = self.matcher.compute_mask();
            self.spend_mask();
            if self.matcher.rollback(1).is_err() {
                return None;
            }
            if after.is_ok_and(|after| self.seen.insert((here, digest(&after)))) {
                return Some(token);
            }
        }
        None
    }

    /// A token after which `end` may follow at once. A quote behind a backslash ends nothing, and one that ends a string
    /// which has been there is not wanted.
    fn one_before(
        &mut self,
        end: Option<TokenId>,
        mask: &SimpleVob,
        behind: Option<&Behind>,
    ) -> Option<TokenId> {
        let end = end?;
        let escapes = |token: TokenId| !self.env.is_eos(end) && self.env.bytes(token).ends_with(b"\\");
        let allowed =
            |token: &TokenId| (*token as usize) < mask.len() && mask.is_allowed(*token) && !escapes(*token);
        let bytes = self.closers.bytes.iter().copied().filter(allowed).take(MAX_BYTES_AHEAD);
        // The shortest that is long enough.
        let [dots, words] =
            [&self.closers.dots, &self.closers.words].map(|list| list.iter().rev().copied().filter(allowed));
        let mut tried: Vec<TokenId> = dots.chain(bytes).chain(words).collect();
        if self.positions_ahead > 0 {
            self.positions_ahead -= 1;
            let others = mask.iter().filter(|&token| !self.env.is_eos(token) && !escapes(token));
            tried.extend(others.take(MAX_TOKENS_AHEAD));
        }
        let env = self.env;
        // The strings last: what is open may be long, and few tokens come as far as this.
        tried.into_iter().find(|&token| {
            self.takes(&[token, end]) && behind.is_none_or(|behind| !behind.has_string(env.bytes(token)))
        })
    }
}

/// Tokens up to which the inside of a string is one of a few texts.
const MAX_CHOICES: usize = 64;

/// Adds the first `most` tokens of `from` that the mask allows.
fn take(ways: &mut Vec<TokenId>, mask: &SimpleVob, from: &[TokenId], most: usize) {
    let allowed = |token: &&TokenId| (**token as usize) < mask.len() && mask.is_allowed(**token);
    ways.extend(from.iter().filter(allowed).take(most));
}
