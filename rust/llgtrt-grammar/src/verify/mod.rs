//! The check of what a grammar leaves open, while an answer grows (`residual: verify`).
//!
//! The grammar of a schema with [`Residual`](llgtrt_schema::Residual) holds a superset. A [`Verifier`] follows
//! the text of one sequence, judges values as they end, and knows up to where the text is certain. When the text
//! is found wrong, it bans what is wrong and says how many tokens may stay; the sequence goes on from there, and
//! takes another way. Search is chronological and bounded in attempts.
//!
//! Used by [`Slot`](crate::slot) under the slot's lock, on a big stack.

mod bans;
mod items;
mod judge;
mod plan;
mod scan;
mod size;
mod trial;

use std::sync::Arc;

use llgtrt_core::{Error, ErrorKind, TokenId};
use serde_json::Value;
use toktrie::SimpleVob;

pub(crate) use self::judge::Allowance;
pub(crate) use self::plan::Plan;
pub(crate) use self::trial::Trial;

use self::bans::Bans;
use self::items::Items;
use self::judge::{Judge, Ruling};
use self::plan::Check;
use self::scan::{Event, Scanner};
use crate::TokenEnv;

/// Bytes that may end a number.
const DELIMITERS: [u8; 7] = *b",]} \n\r\t";

/// Tokens that may be taken back, as a multiple of the attempts at one place and of the answer's length: what a request
/// may take of the engine is in proportion to what it asked for.
const TIMES_ATTEMPTS: usize = 10;
const TIMES_LENGTH: usize = 4;

/// Why the text cannot go on like this.
#[derive(Debug)]
pub(crate) enum Wrong {
    /// Another way may be right.
    Here,
    /// Perhaps not: what the caller may wait for is used up. The check is made when the last token comes again.
    PutOff,
    /// Nobody can say.
    Failed(Error),
}

/// The check of one sequence.
#[derive(Clone)]
pub(crate) struct Verifier {
    plan: Arc<Plan>,
    env: Arc<TokenEnv>,
    text: Vec<u8>,
    /// Every token taken, and where its text begins.
    tokens: Vec<(TokenId, usize)>,
    scanner: Scanner,
    /// Items seen, of each open array whose items are to differ; by depth.
    items: Vec<Option<Items>>,
    /// Starts of the open values that are judged at their end.
    open: Vec<usize>,
    /// Start of the first value on which the answer as a whole depends.
    waiting: Option<usize>,
    /// The answer was judged as a whole.
    passed: bool,
    /// Tokens that are certain.
    certain: usize,
    bans: Bans,
    /// Ways given up since the text got further than ever.
    attempts: usize,
    max_attempts: usize,
    /// Bytes up to which the text was ever found right.
    furthest: usize,
    events: Vec<Event>,
}

impl Verifier {
    pub(crate) fn new(plan: Arc<Plan>, env: Arc<TokenEnv>) -> Self {
        Self {
            max_attempts: plan.max_attempts,
            plan,
            env,
            text: Vec::new(),
            tokens: Vec::new(),
            scanner: Scanner::new(),
            items: Vec::new(),
            open: Vec::new(),
            waiting: None,
            passed: false,
            certain: 0,
            bans: Bans::default(),
            attempts: 0,
            furthest: 0,
            events: Vec::new(),
        }
    }

    /// Tokens taken so far.
    pub(crate) fn tokens(&self) -> impl Iterator<Item = TokenId> {
        self.tokens.iter().map(|&(token, _)| token)
    }

    /// How many of the tokens taken are certain to stay.
    pub(crate) fn certain(&self) -> usize {
        self.certain
    }

    /// How many tokens may be taken back of an answer that is `len` long, altogether.
    pub(crate) fn most_withdrawn(&self, len: usize) -> usize {
        TIMES_ATTEMPTS * self.max_attempts + TIMES_LENGTH * len
    }

    /// Takes a token that the grammar allows.
    pub(crate) fn push(&mut self, token: TokenId, allowance: &mut Allowance) -> Result<(), Wrong> {
        let start = self.text.len();
        self.tokens.push((token, start));
        let env = Arc::clone(&self.env);
        if env.is_eos(token) {
            self.end(allowance)?;
        } else {
            for &byte in env.bytes(token) {
                self.push_byte(byte, Some(&mut *allowance))?;
            }
        }
        self.note_certain();
        Ok(())
    }

    /// The answer ends here.
    pub(crate) fn end(&mut self, allowance: &mut Allowance) -> Result<(), Wrong> {
        let mut events = std::mem::take(&mut self.events);
        self.scanner.finish(&self.text, &mut events);
        let wrong = events.drain(..).find_map(|event| self.check(&event, Some(&mut *allowance)).err());
        self.events = events;
        match wrong {
            None => {}
            Some(Wrong::Here) => {
                self.bans.whole(&self.text, self.last());
                self.ban_delimiters();
                return Err(Wrong::Here);
            }
            Some(other) => return Err(other),
        }
        self.note_certain();
        Ok(())
    }

    /// Takes a byte. Without an allowance nothing is judged: it was right before.
    fn push_byte(&mut self, byte: u8, mut allowance: Option<&mut Allowance>) -> Result<(), Wrong> {
        self.text.push(byte);
        let plan = Arc::clone(&self.plan);
        let mut events = std::mem::take(&mut self.events);
        self.scanner.push(&self.text, &plan.places, &mut events);
        let mut wrong = None;
        for event in events.drain(..) {
            // A value that ended before this byte would end at any other delimiter as well.
            let late = matches!(&event, Event::End { span, .. } if span.1 < self.text.len());
            if let Err(error) = self.check(&event, allowance.as_deref_mut()) {
                match &error {
                    Wrong::Here if late => {
                        self.text.pop();
                        self.bans.whole(&self.text, self.last());
                        self.ban_delimiters();
                    }
                    // This byte closed the value: an event within a string has none of them.
                    Wrong::Here if b"]}".contains(&byte) => {
                        self.bans.closing(&self.text, self.last());
                    }
                    Wrong::Here => self.bans.beginning(&self.text, self.last()),
                    Wrong::PutOff | Wrong::Failed(_) => {}
                }
                wrong = Some(error);
                break;
            }
        }
        self.events = events;
        self.events.clear();
        wrong.map_or(Ok(()), Err)
    }

    fn ban_delimiters(&mut self) {
        for delimiter in DELIMITERS {
            self.text.push(delimiter);
            self.bans.beginning(&self.text, self.last());
            self.text.pop();
        }
    }

    /// Follows an event; with an allowance, values that end are judged.
    fn check(&mut self, event: &Event, allowance: Option<&mut Allowance>) -> Result<(), Wrong> {
        match event {
            Event::Begin { depth, places } => {
                let start = self.text.len() - 1;
                for &place in places {
                    let unique = match self.plan.checks[place] {
                        Check::Unique => {
                            self.open.push(start);
                            true
                        }
                        Check::Value(_) => {
                            self.open.push(start);
                            false
                        }
                        Check::Wait { unique } => {
                            self.waiting.get_or_insert(start);
                            unique
                        }
                    };
                    if unique && self.text.last() == Some(&b'[') {
                        self.items.resize(depth + 1, None);
                        self.items[*depth] = Some(Items::default());
                    }
                }
                Ok(())
            }
            Event::End { span, depth, places } => self.check_value(*span, *depth, places, allowance),
        }
    }

    fn check_value(
        &mut self,
        (start, end): (usize, usize),
        depth: usize,
        places: &[usize],
        mut allowance: Option<&mut Allowance>,
    ) -> Result<(), Wrong> {
        let text = &self.text[start..end];
        if let Some(Some(items)) = depth.checked_sub(1).and_then(|around| self.items.get_mut(around)) {
            let item = serde_json::from_slice(text).map_or_else(|_| String::new(), |value| canonical(&value));
            if !items.add(item) {
                return Err(Wrong::Here);
            }
            if allowance.is_some() {
                (self.furthest, self.attempts) = further(end, self.furthest, self.attempts);
            }
        }
        self.items.truncate(depth);
        for &place in places {
            match &self.plan.checks[place] {
                Check::Unique => drop(self.open.pop()),
                Check::Value(judge) => {
                    self.open.pop();
                    if let Some(allowance) = allowance.as_deref_mut() {
                        ask(judge, text, allowance)?;
                        (self.furthest, self.attempts) = further(end, self.furthest, self.attempts);
                    }
                }
                Check::Wait { .. } => {}
            }
        }
        if depth == 0 && !self.passed {
            // Without a place that waits for the whole, everything that is left open was judged by itself.
            if let (Some(judge), Some(_), Some(allowance)) = (&self.plan.whole, self.waiting, allowance) {
                ask(judge, text, allowance)?;
            }
            self.passed = true;
        }
        Ok(())
    }

    /// Moves the bound of what is certain.
    fn note_certain(&mut self) {
        let mut bytes = self.text.len();
        if !self.passed {
            bytes = self.open.first().copied().into_iter().chain(self.waiting).fold(bytes, usize::min);
        }
        while self.certain < self.tokens.len() {
            let end = self.tokens.get(self.certain + 1).map_or(self.text.len(), |&(_, start)| start);
            if end > bytes {
                break;
            }
            self.certain += 1;
        }
    }

    /// After something was found wrong: takes back the last token, and those before it that leave no other way.
    /// `mask` answers the mask after so many of the tokens. Answers the mask of the position that is left.
    pub(crate) fn step_back(
        &mut self,
        mut mask: impl FnMut(usize) -> Result<SimpleVob, Error>,
    ) -> Result<SimpleVob, Error> {
        loop {
            self.attempts += 1;
            let Some(keep) = self.tokens.len().checked_sub(1).filter(|&keep| keep >= self.certain) else {
                return Err(failure("no answer from here on satisfies the schema"));
            };
            if self.attempts > self.max_attempts {
                let tried = self.max_attempts;
                return Err(failure(format!(
                    "no answer that satisfies the schema was found from here in {tried} attempts"
                )));
            }
            self.rewind(keep);
            let mut mask = mask(keep)?;
            if self.bans.apply(&self.text, &mut mask, &self.env) {
                return Ok(mask);
            }
            self.bans.beginning(&self.text, self.last());
        }
    }

    /// Takes back the last token, whose check was put off; answers how many are left.
    pub(crate) fn put_off(&mut self) -> Result<usize, Error> {
        match self.tokens.len().checked_sub(1).filter(|&keep| keep >= self.certain) {
            Some(keep) => {
                self.rewind(keep);
                Ok(keep)
            }
            None => Err(Error::internal("a check of what is certain was put off")),
        }
    }

    /// Nothing may follow the tokens taken: everything that begins like this is wrong.
    pub(crate) fn give_up_here(&mut self) {
        self.bans.beginning(&self.text, self.last());
    }

    /// Where the text of the last token begins: what is found wrong with it, the text before may go on otherwise.
    fn last(&self) -> usize {
        self.tokens.last().map_or(0, |&(_, start)| start)
    }

    /// Bans that a question after them goes through.
    fn bans(&self) -> usize {
        self.bans.len()
    }

    /// Whether the mask of this position has to be changed, and forced tokens cannot be trusted.
    pub(crate) fn is_banned_here(&self) -> bool {
        self.bans.concern(&self.text)
    }

    /// Whether a ban concerns everything that begins with the text, or the text `as_a_whole`.
    fn is_banned(&self, as_a_whole: bool) -> bool {
        self.bans.has(&self.text, as_a_whole)
    }

    /// Removes what must not follow; false if nothing is left.
    pub(crate) fn restrict(&self, mask: &mut SimpleVob) -> bool {
        self.bans.apply(&self.text, mask, &self.env)
    }

    /// Goes back to the first `keep` tokens: another way is taken from there.
    pub(crate) fn back_to(&mut self, keep: usize) {
        self.rewind(keep);
        self.certain = self.certain.min(keep);
    }

    /// Goes back to the first `keep` tokens.
    fn rewind(&mut self, keep: usize) {
        let kept: Vec<(TokenId, usize)> = self.tokens[..keep].to_vec();
        self.text.clear();
        self.scanner = Scanner::new();
        self.items.clear();
        self.open.clear();
        self.waiting = None;
        self.passed = false;
        self.tokens.clear();
        for (token, _) in kept {
            self.follow(token);
        }
        self.bans.back_to(self.text.len());
    }

    /// Takes a token that was found right before.
    fn follow(&mut self, token: TokenId) {
        self.tokens.push((token, self.text.len()));
        let env = Arc::clone(&self.env);
        for &byte in env.bytes(token) {
            let _ = self.push_byte(byte, None);
        }
    }
}

/// The furthest that a text got, and the attempts since.
fn further(end: usize, furthest: usize, attempts: usize) -> (usize, usize) {
    if end > furthest { (end, 0) } else { (furthest, attempts) }
}

/// What a judge says.
fn ask(judge: &Judge, text: &[u8], allowance: &mut Allowance) -> Result<(), Wrong> {
    match judge.judge(text, allowance) {
        Ruling::Valid => Ok(()),
        Ruling::Invalid => Err(Wrong::Here),
        Ruling::PutOff => Err(Wrong::PutOff),
        Ruling::TooCostly => {
            Err(Wrong::Failed(failure("checking the answer takes more steps than the limit allows")))
        }
    }
}

/// See [`Verifier::most_withdrawn`].
pub(crate) fn too_many_withdrawn(count: usize) -> Error {
    failure(format!("no answer that satisfies the schema was found, though {count} tokens were taken back"))
}

fn failure(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Constraint, message)
}

/// The same text for values that are equal in JSON Schema: keys sorted, 1.0 like 1.
fn canonical(value: &Value) -> String {
    fn write(value: &Value, out: &mut String) {
        match value {
            Value::Number(number) => match number.as_f64() {
                #[expect(clippy::cast_possible_truncation, reason = "it is a whole number in range")]
                Some(whole) if number.is_f64() && whole.fract() == 0.0 && whole.abs() < 9e15 => {
                    out.push_str(&(whole as i64).to_string());
                }
                _ => out.push_str(&number.to_string()),
            },
            Value::Array(items) => {
                out.push('[');
                for item in items {
                    write(item, out);
                    out.push(',');
                }
                out.push(']');
            }
            Value::Object(members) => {
                let mut keys: Vec<_> = members.iter().collect();
                keys.sort_unstable_by_key(|(key, _)| *key);
                out.push('{');
                for (key, value) in keys {
                    out.push_str(&Value::String(key.clone()).to_string());
                    out.push(':');
                    write(value, out);
                    out.push(',');
                }
                out.push('}');
            }
            other => out.push_str(&other.to_string()),
        }
    }
    let mut out = String::new();
    write(value, &mut out);
    out
}
