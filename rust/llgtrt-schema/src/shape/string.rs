//! Strings: lengths, languages, and lists.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;

use serde_json::{Map, Value, json};

use crate::formula::Lit;
use crate::languages::{ALL, LanguageId, Languages, MAX_PATTERN, NOTHING, formats};
use crate::width::MOST_WIDTH;

/// Lengths up to this are part of the search for strings that satisfy everything.
const SEARCH_LENGTH: u64 = 64;

/// A conjunction of constraints on strings.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Text {
    min: u64,
    max: Option<u64>,
    /// Sorted by language.
    all: Vec<(LanguageId, Option<Rc<str>>)>,
    none: Vec<LanguageId>,
    /// Only these. Then nothing else is set.
    set: Option<BTreeSet<Rc<str>>>,
    /// What is offered of it, where that leaves any; everything else is said of what is valid.
    offer: Option<(LanguageId, Rc<str>)>,
}

/// A keyword that cannot be held, and why.
type Cannot = (&'static str, &'static str);

impl Text {
    pub(crate) fn listed(set: BTreeSet<Rc<str>>) -> Self {
        Self { set: Some(set), ..Self::default() }
    }

    /// Number of entries.
    pub(crate) fn len(&self) -> usize {
        self.all.len() + self.none.len() + self.set.as_ref().map_or(0, BTreeSet::len)
    }

    /// The same for texts that are equal.
    pub(crate) fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.min, self.max, &self.all, &self.none, &self.set, &self.offer).hash(&mut hasher);
        hasher.finish()
    }

    pub(crate) fn outside(language: LanguageId) -> Self {
        Self { none: vec![language], ..Self::default() }
    }

    pub(crate) fn of(lit: &Lit, negated: bool, _: &mut Languages) -> Vec<Self> {
        let any = Self::default();
        match (lit, negated) {
            (Lit::MinLength(n), false) => vec![Self { min: *n, ..any }],
            (Lit::MinLength(0), true) => Vec::new(),
            (Lit::MinLength(n), true) => vec![Self { max: Some(n - 1), ..any }],
            (Lit::MaxLength(n), false) => vec![Self { max: Some(*n), ..any }],
            (Lit::MaxLength(n), true) => {
                n.checked_add(1).map(|min| Self { min, ..any }).into_iter().collect()
            }
            (Lit::Match(ALL | NOTHING, _), _) => {
                let all = matches!(lit, Lit::Match(ALL, _));
                if all == negated { Vec::new() } else { vec![any] }
            }
            (Lit::Match(x, text), false) => vec![Self { all: vec![(*x, text.clone())], ..any }],
            (Lit::Match(x, _), true) => vec![Self::outside(*x)],
            (Lit::Offer(x, text), false) => {
                vec![Self { offer: text.clone().map(|text| (*x, text)), ..any }]
            }
            (Lit::Offer(..), true) => Vec::new(),
            _ => vec![any],
        }
    }

    pub(crate) fn meet(mut self, other: &Self, langs: &mut Languages) -> Option<Self> {
        match (self.set.take(), &other.set) {
            (None, None) => {}
            (Some(set), None) => return keep(set, other, langs),
            (None, Some(set)) => return keep(set.clone(), &self, langs),
            (Some(a), Some(b)) => return keep(a.intersection(b).cloned().collect(), &Self::default(), langs),
        }
        self.min = self.min.max(other.min);
        self.max = match (self.max, other.max) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        for (x, text) in &other.all {
            if !self.all.iter().any(|(known, _)| known == x) {
                self.all.push((*x, text.clone()));
            }
        }
        self.all.sort_by_key(|(x, _)| *x);
        for &x in &other.none {
            if !self.none.contains(&x) {
                self.none.push(x);
            }
        }
        self.none.sort_unstable();
        self.offer = self.offer.or_else(|| other.offer.clone());
        let clash = self.none.iter().any(|x| self.all.iter().any(|(y, _)| x == y));
        (!clash && self.max.is_none_or(|max| self.min <= max)).then_some(self)
    }

    fn fits(&self, text: &str, langs: &mut Languages) -> bool {
        let length = text.chars().count() as u64;
        length >= self.min
            && self.max.is_none_or(|max| length <= max)
            && self.all.iter().all(|(x, _)| langs.matches(*x, text))
            && !self.none.iter().any(|x| langs.matches(*x, text))
            && self.set.as_ref().is_none_or(|set| set.contains(text))
    }

    /// Drops the shape if no string fits, as far as that is found out.
    pub(crate) fn prune(self, langs: &mut Languages) -> Option<Self> {
        let lengths = self.min > 0 || self.max.is_some();
        let count = self.all.len() + self.none.len();
        if self.set.is_some() || count == 0 || (count == 1 && !lengths && self.none.is_empty()) {
            return Some(self);
        }
        let language = self.language(langs, SEARCH_LENGTH);
        if langs.is_empty(language) == Some(true) { None } else { Some(self) }
    }

    /// The language; lengths beyond `most` are left out.
    pub(crate) fn language(&self, langs: &mut Languages, most: u64) -> LanguageId {
        if let Some(set) = &self.set {
            let words: Vec<LanguageId> = set.iter().map(|word| langs.literal(word)).collect();
            return langs.or(words);
        }
        let mut parts: Vec<LanguageId> = self.all.iter().map(|(x, _)| *x).collect();
        for &x in &self.none {
            parts.push(langs.not(x));
        }
        let (min, max) = (if self.min > most { 0 } else { self.min }, self.max.filter(|&max| max <= most));
        if min > 0 || max.is_some() {
            parts.push(langs.lengths(min, max));
        }
        langs.and(parts)
    }

    pub(crate) fn words(&self) -> Option<&BTreeSet<Rc<str>>> {
        self.set.as_ref()
    }

    pub(crate) fn is_any(&self) -> bool {
        *self == Self::default()
    }

    /// One pattern for all of it, if that is easy.
    pub(crate) fn pattern(&self, langs: &mut Languages) -> Option<String> {
        if self.set.is_none() && self.none.is_empty() {
            match (&self.all[..], self.min, self.max) {
                ([(_, Some(text))], 0, None) if !text.starts_with(formats::MARK) => {
                    return Some(text.to_string());
                }
                ([], min, max) => {
                    let max = max.map_or(String::new(), |max| max.to_string());
                    return Some(format!("^[\\x{{0}}-\\x{{10FFFF}}]{{{min},{max}}}$"));
                }
                _ => {}
            }
        }
        let language = self.language(langs, u64::MAX);
        langs.print(language, MAX_PATTERN)
    }

    /// Writes the shape. `intersects` tells whether the engine is to intersect several patterns, or a pattern with
    /// a length; they become one pattern otherwise. An error names the keyword that cannot be held and why.
    pub(crate) fn write(&self, langs: &mut Languages, intersects: bool) -> Result<Value, Cannot> {
        if let Some(narrower) = self.offered(langs)
            && let Ok(value) = narrower.write(langs, intersects)
        {
            return Ok(value);
        }
        if self.is_joint() && !(intersects && self.is_narrow(langs)) {
            return self.write_joined(langs);
        }
        if let Some(set) = &self.set {
            return Ok(json!({ "enum": set.iter().map(|s| Value::from(&**s)).collect::<Vec<_>>() }));
        }
        let mut object = Map::new();
        object.insert("type".to_owned(), json!("string"));
        if self.min > 0 {
            object.insert("minLength".to_owned(), json!(self.min));
        }
        if let Some(max) = self.max {
            object.insert("maxLength".to_owned(), json!(max));
        }
        let mut patterns = Vec::new();
        let mut hidden = Vec::new();
        for (x, text) in &self.all {
            match text {
                Some(text) => patterns.push(pattern_of(text)),
                None => hidden.push(*x),
            }
        }
        for &x in &self.none {
            hidden.push(langs.not(x));
        }
        if !hidden.is_empty() {
            let together = langs.and(hidden);
            let printed = langs.print(together, MAX_PATTERN).or_else(|| {
                // What the patterns allow may be simpler than what is cut out of everything.
                let whole = self.language(langs, SEARCH_LENGTH);
                langs.print(whole, MAX_PATTERN)
            });
            let Some(text) = printed else {
                let keyword = if self.none.is_empty() { "pattern" } else { "not" };
                return Err((keyword, "the pattern without look-ahead or complement would be too long"));
            };
            patterns.push(("pattern", text));
        }
        let mut more = Vec::new();
        for (keyword, text) in patterns {
            if object.contains_key(keyword) {
                more.push(json!({ "type": "string", keyword: text }));
            } else {
                object.insert(keyword.to_owned(), Value::String(text));
            }
        }
        if !more.is_empty() {
            object.insert("allOf".to_owned(), Value::Array(more));
        }
        Ok(Value::Object(object))
    }

    /// The strings that are offered, if there is such a choice and some are left.
    fn offered(&self, langs: &mut Languages) -> Option<Self> {
        let offer = self.offer.clone()?;
        let mut narrower = Self { offer: None, ..self.clone() };
        narrower.all.push((offer.0, Some(offer.1)));
        let language = narrower.language(langs, u64::MAX);
        (langs.is_empty(language) == Some(false)).then_some(narrower)
    }

    /// Whether an engine would have to intersect.
    fn is_joint(&self) -> bool {
        let count = self.all.len() + self.none.len();
        count > 1 || (count == 1 && (self.min > 0 || self.max.is_some()))
    }

    /// Whether an engine may search what the patterns have in common.
    fn is_narrow(&self, langs: &Languages) -> bool {
        let parts: Vec<LanguageId> = self.all.iter().map(|(x, _)| *x).collect();
        parts.len() < 2 || langs.width(&parts).is_some_and(|width| width <= MOST_WIDTH)
    }

    /// One pattern, beside which lengths are counted only where that takes few steps.
    fn write_joined(&self, langs: &mut Languages) -> Result<Value, Cannot> {
        let whole = self.language(langs, u64::MAX);
        if let Some(text) = langs.print(whole, MAX_PATTERN) {
            return Ok(json!({ "type": "string", "pattern": text }));
        }
        let of_any_length = Self { min: 0, max: None, ..self.clone() };
        let language = of_any_length.language(langs, u64::MAX);
        let (keyword, text) = match (&self.all[..], &self.none[..]) {
            ([(_, Some(text))], []) => pattern_of(text),
            _ => match langs.print(language, MAX_PATTERN) {
                Some(text) => ("pattern", text),
                None if self.none.is_empty() => {
                    return Err(("pattern", "what it has in common with other patterns would be too long"));
                }
                None => return Err(("not", "the pattern without complement would be too long")),
            },
        };
        if !langs.can_count(language, self.min, self.max) {
            let keyword = if self.max.is_some() { "maxLength" } else { "minLength" };
            return Err((keyword, "the characters of so long a pattern cannot be counted"));
        }
        let mut object = Map::from_iter([("type".to_owned(), json!("string"))]);
        if self.min > 0 {
            object.insert("minLength".to_owned(), json!(self.min));
        }
        if let Some(max) = self.max {
            object.insert("maxLength".to_owned(), json!(max));
        }
        object.insert(keyword.to_owned(), Value::String(text));
        Ok(Value::Object(object))
    }

    /// What can be held of a shape that cannot be written: all that it says but what it excludes, then its patterns
    /// without lengths, then one of them.
    pub(crate) fn write_part(&self, langs: &mut Languages, intersects: bool) -> Value {
        let all: Vec<_> = self.all.iter().filter(|(_, text)| text.is_some()).cloned().collect();
        let shortest = all.iter().min_by_key(|(_, text)| text.as_ref().map_or(0, |text| text.len()));
        let one: Vec<_> = shortest.into_iter().cloned().collect();
        let parts = [
            Self { none: Vec::new(), all: all.clone(), ..self.clone() },
            Self { all, ..Self::default() },
            Self { all: one, ..Self::default() },
        ];
        let written = parts.iter().find_map(|part| part.write(langs, intersects).ok());
        written.unwrap_or_else(|| json!({ "type": "string" }))
    }
}

fn pattern_of(text: &str) -> (&'static str, String) {
    match text.strip_prefix(formats::MARK) {
        Some(format) => ("format", format.to_owned()),
        None => ("pattern", text.to_owned()),
    }
}

fn keep(set: BTreeSet<Rc<str>>, other: &Text, langs: &mut Languages) -> Option<Text> {
    let set: BTreeSet<Rc<str>> = set.into_iter().filter(|word| other.fits(word, langs)).collect();
    (!set.is_empty()).then(|| Text::listed(set))
}
