//! Chooses tokens in place of a model: words, a script, or something that a mask allows.
//! Owned by the engine's thread. A choice depends on the sequence's own hash, position and text only, never on
//! its neighbours or the clock.
//!
//! Random text under a mask is drawn from the allowed tokens, with a bias that lets answers end. At position
//! `i` the choice is *urgent* with probability `1/4 + i / target`, where `target` is the sequence's
//! seeded length between `min_answer_tokens` and `max_answer_tokens`. An urgent choice takes, in this order,
//! what the mask allows of:
//! 1. end of sequence;
//! 2. where a letter is allowed (inside a string) a token such as `"` or `"}`, then closing brackets;
//!    elsewhere closing brackets first, so that no further key, item or value is begun;
//! 3. a comma, which ends a number.
//!
//! Each group is passed over one time in eight, because a pattern may allow `}` as text for ever. All other
//! choices prefer words and readable tokens.

use std::collections::HashMap;

use llgtrt_core::{EncodeOptions, Result, TokenId, Tokenizer, Vocabulary};

use crate::config::{ScriptEnd, SimConfig, SimText};
use crate::hash::{index, mix, unit};
use crate::lexicon::Lexicon;
use crate::sequence::Sequence;

/// The likeliest token's pretended logit; the others are between -8 and 0. A bias competes with these.
const PEAK_LOGIT: f32 = 12.0;
/// A token with less bias than this is not chosen.
const BANNING_BIAS: f32 = -20.0;
/// Longest token that a script is split into under a mask, in bytes.
const MAX_SCRIPT_TOKEN: usize = 32;

/// Whatever the configuration makes sequences say.
pub(crate) struct Voice {
    lexicon: Lexicon,
    eos: Vec<TokenId>,
    vocabulary_len: usize,
    min_tokens: u32,
    max_tokens: u32,
    script: Option<Script>,
}

struct Script {
    text: Vec<u8>,
    tokens: Vec<TokenId>,
    end: ScriptEnd,
    /// Tokens by their bytes, to follow the script under a mask, where runs are forced and the text is
    /// not split as the tokenizer would.
    by_bytes: HashMap<Box<[u8]>, TokenId>,
}

impl Voice {
    pub(crate) fn new(config: &SimConfig, tokenizer: &dyn Tokenizer) -> Result<Self> {
        let vocabulary = tokenizer.vocabulary();
        let script = match (&config.script, config.text) {
            (Some(text), SimText::Script) => Some(Script::new(text, config.script_end, tokenizer)?),
            _ => None,
        };
        Ok(Self {
            lexicon: Lexicon::new(vocabulary),
            eos: vocabulary.eos().to_vec(),
            vocabulary_len: vocabulary.len(),
            min_tokens: config.min_answer_tokens,
            max_tokens: config.max_answer_tokens,
            script,
        })
    }

    /// The next token, or `None` if the mask allows nothing.
    pub(crate) fn next(
        &self,
        sequence: &Sequence,
        vocabulary: &Vocabulary,
        mask: Option<&[u32]>,
    ) -> Option<TokenId> {
        let hash = mix(sequence.key, sequence.tokens.len() as u64);
        let open =
            |token: TokenId| mask.is_none_or(|mask| is_set(mask, token)) && !self.is_banned(sequence, token);
        let natural = match &self.script {
            Some(script) => script.next(sequence, vocabulary, mask, &self.eos, &open),
            None => None,
        };
        let natural = natural.or_else(|| match mask {
            Some(mask) => self.under_mask(sequence, hash, mask, &open),
            None => Some(self.free(sequence, hash, &open)),
        });
        self.biased(sequence, hash, natural, &open).or_else(|| first_set(mask?))
    }

    /// Bans as a sampler has them: end tokens before `min_tokens`, end-of-sequence with `ignore_eos`.
    fn is_banned(&self, sequence: &Sequence, token: TokenId) -> bool {
        let params = &sequence.spec.sampling;
        let early = (sequence.tokens.len() as u32) < params.min_tokens;
        ((early || params.ignore_eos) && self.eos.contains(&token))
            || (early && sequence.spec.stop_token_ids.contains(&token))
            || params.logit_bias.iter().any(|(biased, bias)| *biased == token && *bias < BANNING_BIAS)
    }

    fn target(&self, sequence: &Sequence) -> usize {
        let spread = (self.max_tokens - self.min_tokens) as usize + 1;
        self.min_tokens as usize + index(mix(sequence.key, u64::MAX), spread)
    }

    fn free(&self, sequence: &Sequence, hash: u64, open: &impl Fn(TokenId) -> bool) -> TokenId {
        if sequence.tokens.len() >= self.target(sequence)
            && let Some(&eos) = self.eos.iter().find(|eos| open(**eos))
        {
            return eos;
        }
        let words = &self.lexicon.words;
        (0..64)
            .map(|attempt| words[index(mix(hash, attempt), words.len())])
            .find(|word| open(*word))
            .or_else(|| (0..self.vocabulary_len as TokenId).find(|token| open(*token)))
            .unwrap_or(words[0])
    }

    fn under_mask(
        &self,
        sequence: &Sequence,
        hash: u64,
        mask: &[u32],
        open: &impl Fn(TokenId) -> bool,
    ) -> Option<TokenId> {
        let urgency = 0.25 + sequence.tokens.len() as f32 / self.target(sequence) as f32;
        if unit(hash) < urgency
            && let Some(token) = self.closing(hash, open)
        {
            return Some(token);
        }
        let words = &self.lexicon.words;
        let word =
            (0..8).map(|attempt| words[index(mix(hash, attempt), words.len())]).find(|word| open(*word));
        if word.is_some() {
            return word;
        }
        let mut any = None;
        for attempt in 8..24 {
            let token = random_set(mask, mix(hash, attempt))?;
            if open(token) {
                if self.lexicon.is_readable(token) {
                    return Some(token);
                }
                any = any.or(Some(token));
            }
        }
        any.or_else(|| (0..mask.len() as TokenId * 32).find(|token| open(*token)))
    }

    fn closing(&self, hash: u64, open: &impl Fn(TokenId) -> bool) -> Option<TokenId> {
        if let Some(&eos) = self.eos.iter().find(|eos| open(**eos)) {
            return Some(eos);
        }
        let Lexicon { brackets, quotes, commas, letters, .. } = &self.lexicon;
        let text = letters.iter().any(|letter| open(*letter));
        let groups = if text { [quotes, brackets, commas] } else { [brackets, quotes, commas] };
        for (number, group) in groups.into_iter().enumerate() {
            let hash = mix(hash, 100 + number as u64);
            let count = group.iter().filter(|token| open(**token)).count();
            if count > 0 && hash & 7 != 0 {
                return group.iter().copied().filter(|token| open(*token)).nth(index(hash, count));
            }
        }
        None
    }

    /// The natural choice, unless `logit_bias` lifts another token above it.
    fn biased(
        &self,
        sequence: &Sequence,
        hash: u64,
        natural: Option<TokenId>,
        open: &impl Fn(TokenId) -> bool,
    ) -> Option<TokenId> {
        let bias = &sequence.spec.sampling.logit_bias;
        let own = bias.iter().find(|(token, _)| Some(*token) == natural).map_or(0.0, |(_, bias)| *bias);
        let floor = natural.map_or(f32::NEG_INFINITY, |_| PEAK_LOGIT + own);
        bias.iter()
            .filter(|(token, _)| (*token as usize) < self.vocabulary_len && open(*token))
            .map(|&(token, bias)| (token, bias - 8.0 * unit(mix(hash, u64::from(token)))))
            .filter(|(_, logit)| *logit > floor)
            .max_by(|a, b| a.1.total_cmp(&b.1))
            .map_or(natural, |(token, _)| Some(token))
    }
}

impl Script {
    fn new(text: &str, end: ScriptEnd, tokenizer: &dyn Tokenizer) -> Result<Self> {
        let tokens = tokenizer.encode(text, EncodeOptions { add_special: false, parse_special: false })?;
        let vocabulary = tokenizer.vocabulary();
        let by_bytes = (0..vocabulary.len() as TokenId)
            .filter(|token| !vocabulary.is_special(*token))
            .map(|token| (vocabulary.bytes(token), token))
            .filter(|(bytes, _)| (1..=MAX_SCRIPT_TOKEN).contains(&bytes.len()))
            .map(|(bytes, token)| (bytes.into(), token))
            .collect();
        Ok(Self { text: text.as_bytes().to_vec(), tokens, end, by_bytes })
    }

    /// The script's next token, if it is allowed and the sequence has followed the script so far.
    fn next(
        &self,
        sequence: &Sequence,
        vocabulary: &Vocabulary,
        mask: Option<&[u32]>,
        eos: &[TokenId],
        open: &impl Fn(TokenId) -> bool,
    ) -> Option<TokenId> {
        let position = sequence.tokens.len();
        if mask.is_none() {
            let len = self.tokens.len();
            if position >= len
                && self.end == ScriptEnd::Eos
                && let Some(&eos) = eos.iter().find(|eos| open(**eos))
            {
                return Some(eos);
            }
            return self.tokens.get(position % len.max(1)).copied().filter(|token| open(*token));
        }
        let mut rest = &self.text[..];
        for &token in &sequence.tokens {
            rest = rest.strip_prefix(vocabulary.bytes(token))?;
        }
        if rest.is_empty() {
            return eos.iter().copied().find(|eos| open(*eos));
        }
        (1..=rest.len().min(MAX_SCRIPT_TOKEN))
            .rev()
            .filter_map(|len| self.by_bytes.get(&rest[..len]).copied())
            .find(|token| open(*token))
    }
}

fn is_set(mask: &[u32], token: TokenId) -> bool {
    mask.get(token as usize / 32).is_some_and(|word| word >> (token % 32) & 1 == 1)
}

fn first_set(mask: &[u32]) -> Option<TokenId> {
    let word = mask.iter().position(|word| *word != 0)?;
    Some(word as TokenId * 32 + mask[word].trailing_zeros())
}

/// A set bit near a random place.
fn random_set(mask: &[u32], hash: u64) -> Option<TokenId> {
    let start = index(hash, mask.len().max(1));
    let (before, after) = mask.split_at_checked(start)?;
    let word = match after.iter().position(|word| *word != 0) {
        Some(offset) => start + offset,
        None => before.iter().position(|word| *word != 0)?,
    };
    let mut rest = mask[word];
    for _ in 0..index(mix(hash, 1), rest.count_ones() as usize) {
        rest &= rest - 1;
    }
    Some(word as TokenId * 32 + rest.trailing_zeros())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_bits_are_set_bits() {
        let mask = [0, 0x8000_0001, 0, 6];
        let mut seen: Vec<_> = (0..200).map(|i| random_set(&mask, mix(i, i)).unwrap()).collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen, [32, 63, 97, 98]);
        assert_eq!(first_set(&mask), Some(32));
        assert_eq!(random_set(&[0, 0], 7), None);
        assert_eq!(random_set(&[], 7), None);
        assert_eq!(first_set(&[]), None);
    }
}
