//! One search for a way out: which styles are tried, in which order, and with how much work.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use llgtrt_core::TokenId;
use llguidance::ParserFactory;
use llguidance::api::TopLevelGrammar;
use serde_json::Value;
use toktrie::TokenizerEnv;

use super::quoting::Quoting;
use super::{Checked, Found, Hints, MAX_POSITIONS_AHEAD, Search, Style, parts};
use crate::TokenEnv;
use crate::lexer_guard::create_parser;
use crate::matcher::Matcher;

/// What a search may spend.
#[derive(Clone, Copy)]
pub(super) struct Effort {
    /// Masks.
    most: usize,
    /// Of the attempts that never go back, each.
    direct: usize,
    /// All work, by [`Search::spend`]; about 0.2 us each.
    cost: u64,
}

impl Effort {
    /// Between two tokens of an answer: others wait for it.
    const STEP: Self = Self { most: 1600, direct: 600, cost: 100_000 };
    /// Once for each grammar.
    const ONCE: Self = Self { cost: 10 * Self::STEP.cost, ..Self::STEP };
    /// For a value on the way: all of a grammar's together cost as much as one step.
    pub(super) const PART: Self =
        Self { most: 200, direct: 100, cost: Self::STEP.cost / parts::MAX_PARTS as u64 };
}

/// Tokens beyond those of a run up to which it is known that there is one, though it is too long.
const BEYOND: usize = 4096;

/// Length of the first runs among which the search goes back; it doubles.
const FIRST_DEPTH: usize = 16;

/// Tokens of the value of a part.
const MAX_VALUE: usize = 128;

/// A search for a run that completes the answer.
pub(crate) struct Query<'a, 'c> {
    pub(crate) matcher: &'a Matcher,
    pub(crate) env: &'a Arc<TokenEnv>,
    pub(crate) hints: &'a Hints,
    /// Where the answer stands.
    pub(crate) quoting: Quoting,
    pub(crate) checked: Option<&'a mut Checked<'c>>,
    /// Tokens of the run.
    pub(crate) most: usize,
    /// How the search before this one went: the same may lead to the end again.
    pub(crate) first: Style,
}

/// What a search led to.
pub(crate) struct Answer {
    pub(crate) found: Found,
    /// How it was found.
    pub(crate) style: Style,
    /// What the search has spent, in units of about 0.2 us.
    pub(crate) cost: u64,
}

impl<'a, 'c> Query<'a, 'c> {
    pub(crate) fn find(self) -> Answer {
        self.search(Effort::STEP)
    }

    /// The same with more work, where nobody waits for the next token.
    pub(crate) fn find_first(self) -> Answer {
        self.search(Effort::ONCE)
    }

    pub(super) fn search(self, effort: Effort) -> Answer {
        let (quoting, most, first) = (self.quoting, self.most, self.first);
        let mut search = self.begin(effort);
        let (found, style) = search.find(quoting, most, effort, first);
        Answer { found, style, cost: effort.cost - search.cost_left }
    }

    fn begin(self, effort: Effort) -> Search<'a, 'c> {
        let Self { matcher, env, hints, checked, .. } = self;
        let (trial, strings) = checked.map(|checked| (&mut checked.trial, &checked.strings)).unzip();
        Search {
            matcher: matcher.clone(),
            env,
            closers: env.closers(),
            hints,
            trial,
            is_wrong: false,
            strings,
            path: Vec::new(),
            masks_left: effort.most,
            cost_left: effort.cost,
            run_left: effort.cost,
            counted: matcher.work(),
            positions_ahead: MAX_POSITIONS_AHEAD,
            seen: HashSet::new(),
            returns: HashMap::new(),
            last_way: Vec::new(),
            turns: Vec::new(),
            parts_at: 0,
            is_cut: false,
            is_too_long: false,
        }
    }
}

/// A short value that the schema, of llguidance's subset, allows.
pub(super) fn value(schema: &Value, factory: &ParserFactory, env: &Arc<TokenEnv>) -> Option<Vec<TokenId>> {
    let grammar = TopLevelGrammar::from_json_schema(schema.clone());
    let hints = Hints::of(&grammar, true);
    let (parser, _) = create_parser(factory, grammar, true).ok()?;
    let matcher = Matcher::new(parser);
    let query = Query {
        matcher: &matcher,
        env,
        hints: &hints,
        quoting: Quoting::default(),
        checked: None,
        most: MAX_VALUE,
        first: Style::Plain,
    };
    let text: Vec<u8> =
        query.search(Effort::PART).found.way()?.iter().flat_map(|&token| env.bytes(token).to_vec()).collect();
    Some(env.tokenize_bytes(&text))
}

impl Search<'_, '_> {
    /// A run that completes the answer, and by which style.
    fn find(&mut self, quoting: Quoting, most: usize, effort: Effort, first: Style) -> (Found, Style) {
        if self.is_complete() && self.may_end() {
            return (Found::Way(Vec::new()), first);
        }
        let mut is_dead = false;
        if !self.hints.runs(self.env).lexemes.is_empty() {
            self.masks_left += effort.direct;
            if self.run(quoting, most, effort.direct, Style::Lexemes) {
                return (Found::Way(std::mem::take(&mut self.path)), first);
            }
            is_dead = !self.is_cut && !self.hints.has_more;
        }
        let mut direct = [Style::Plain, Style::Novel, Style::InTurns];
        direct.sort_by_key(|&style| style != first);
        let mut too_long = Vec::new();
        let mut is_too_long = false;
        for style in direct {
            if style == Style::InTurns {
                self.masks_left += effort.direct;
            }
            if self.run(quoting, most, effort.direct, style) {
                return (Found::Way(std::mem::take(&mut self.path)), style);
            }
            if self.is_too_long && style == Style::Plain && self.trial.is_none() {
                // Without a check it never goes back, and takes little. The others may spend all that is left.
                self.masks_left += effort.direct;
                is_too_long = self.run(quoting, most + BEYOND, effort.direct, style);
            } else if self.is_too_long {
                too_long.push(style);
            }
        }
        // Before the search that may spend all that is left.
        if !is_too_long && !too_long.is_empty() {
            self.masks_left += effort.direct;
            is_too_long =
                too_long.into_iter().any(|style| self.run(quoting, most + BEYOND, effort.direct, style));
        }
        let mut depth = FIRST_DEPTH.min(most);
        while depth > 0 && self.masks_left > 0 {
            let masks = (self.masks_left / 4).max(1);
            // Where the text is not JSON, what looks like the inside of a string may be the outside.
            for quoting in [quoting, Quoting { inside: !quoting.inside, escaped: false }] {
                if self.run(quoting, depth, masks, Style::Back) {
                    return (Found::Way(std::mem::take(&mut self.path)), Style::Back);
                }
            }
            if depth == most {
                break;
            }
            depth = (2 * depth).min(most);
        }
        let found = match (is_dead, is_too_long) {
            (true, _) => Found::Dead,
            (false, true) => Found::TooLong,
            (false, false) => Found::Unknown,
        };
        (found, first)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use toktrie::InferenceCapabilities;

    use super::*;
    use crate::token_env::tests::Bytes;

    #[test]
    fn what_is_asked_for_is_what_a_mask_allows_first() {
        let words: [&str; 10] = ["\"}", "}}", "]}", "null", "true", "\"]", "na", "12", "\":", "\","];
        let env = TokenEnv::new(Arc::new(Bytes::new(&words)), 256 + words.len() + 1).unwrap();
        let slices = llguidance::earley::SlicedBiasComputer::general_slices();
        let mut factory =
            ParserFactory::new(&env.tok_env(), InferenceCapabilities::default(), &slices).unwrap();
        factory.quiet();
        let schema = json!({
            "type": "object",
            "properties": {
                "name": {"type": "string", "maxLength": 6},
                "code": {"type": "string", "pattern": "^[a-z]{3}[0-9]?$"},
                "age": {"type": "integer", "minimum": -9, "maximum": 120},
                "tags": {"type": "array", "items": {"enum": ["a", "bc", null]}, "minItems": 2},
                "rest": {"type": ["object", "boolean", "number"]},
            },
            "required": ["name", "code", "age", "tags", "rest"],
        });
        let grammar = TopLevelGrammar::from_json_schema(schema);
        let hints = Hints::of(&grammar, true);
        let matcher = Matcher::new(factory.create_parser(grammar).unwrap());
        let (mut state, mut asked, mut other) = (3_u64, 0, 0);
        for _ in 0..40 {
            let mut quoting = Quoting::default();
            let mut search = Query {
                matcher: &matcher,
                env: &env,
                hints: &hints,
                quoting,
                checked: None,
                most: 1000,
                first: Style::Plain,
            }
            .begin(Effort { cost: u64::MAX, ..Effort::ONCE });
            while search.path.len() < 100 && !search.matcher.is_stopped() {
                let mask = search.matcher.compute_mask().unwrap();
                let first = search.tokens(quoting, Style::Plain, &mask).first().copied();
                match search.closer(quoting) {
                    Some(token) => {
                        assert_eq!(Some(token), first, "behind {:?}", search.path);
                        asked += 1;
                    }
                    None => other += 1,
                }
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let allowed: Vec<TokenId> = mask.iter().filter(|&token| !env.is_eos(token)).collect();
                let Some(&next) = allowed.get((state >> 33) as usize % allowed.len().max(1)) else { break };
                search.push(&[next], &mut quoting);
            }
        }
        assert!(asked > 500 && other > 100, "{asked} {other}");
    }
}
