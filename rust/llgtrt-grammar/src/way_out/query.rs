//! One search for a way out: which styles are tried, in which order, and with how much work.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use llguidance::Matcher;

use super::quoting::Quoting;
use super::{Checked, Found, Hints, MAX_HINTS, MAX_POSITIONS_AHEAD, MAX_RETURNING, Search, Style};
use crate::TokenEnv;

/// What a search may spend.
#[derive(Clone, Copy)]
pub(super) struct Effort {
    /// Masks.
    most: usize,
    /// Of the attempts that never go back, each.
    direct: usize,
    /// What masks cost, by [`Search::cost`]; about 150 ns each.
    cost: u64,
}

impl Effort {
    /// Between two tokens of an answer: others wait for it.
    const STEP: Self = Self { most: 1600, direct: 600, cost: 400_000 };
    /// Once for each grammar.
    const ONCE: Self = Self { cost: 4 * Self::STEP.cost, ..Self::STEP };
    /// For a value on the way.
    pub(super) const PART: Self = Self { most: 200, direct: 100, cost: 100_000 };
}

/// Length of the first runs among which the search goes back; it doubles.
const FIRST_DEPTH: usize = 16;

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

impl Query<'_, '_> {
    /// What is found, and by which style.
    pub(crate) fn find(self) -> (Found, Style) {
        self.search(Effort::STEP)
    }

    /// The same with more work, where nobody waits for the next token.
    pub(crate) fn find_first(self) -> (Found, Style) {
        self.search(Effort::ONCE)
    }

    pub(super) fn search(self, effort: Effort) -> (Found, Style) {
        let Self { matcher, env, hints, quoting, checked, most, first } = self;
        let (trial, strings) = checked.map(|checked| (&mut checked.trial, &checked.strings)).unzip();
        let mut search = Search {
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
            hints_left: MAX_HINTS,
            returning_left: MAX_RETURNING,
            positions_ahead: MAX_POSITIONS_AHEAD,
            seen: HashSet::new(),
            returns: HashMap::new(),
            last_way: Vec::new(),
            turns: Vec::new(),
            is_cut: false,
        };
        if search.is_complete() && search.may_end() {
            return (Found::Way(Vec::new()), first);
        }
        let mut is_dead = false;
        if !hints.runs(env).lexemes.is_empty() {
            search.masks_left += effort.direct;
            if search.run(quoting, most, effort.direct, Style::Lexemes) {
                return (Found::Way(search.path), first);
            }
            is_dead = !search.is_cut && !hints.has_more;
        }
        let mut direct = [Style::Plain, Style::Novel, Style::InTurns];
        direct.sort_by_key(|&style| style != first);
        for style in direct {
            if style == Style::InTurns {
                search.masks_left += effort.direct;
            }
            if search.run(quoting, most, effort.direct, style) {
                return (Found::Way(search.path), style);
            }
        }
        let mut depth = FIRST_DEPTH.min(most);
        while depth > 0 && search.masks_left > 0 {
            let masks = (search.masks_left / 4).max(1);
            // Where the text is not JSON, what looks like the inside of a string may be the outside.
            for quoting in [quoting, Quoting { inside: !quoting.inside, escaped: false }] {
                if search.run(quoting, depth, masks, Style::Back) {
                    return (Found::Way(search.path), Style::Back);
                }
            }
            if depth == most {
                break;
            }
            depth = (2 * depth).min(most);
        }
        (if is_dead { Found::Dead } else { Found::Unknown }, first)
    }
}
