//! Writes a value along a matcher.

use std::rc::Rc;

use anyhow::{Result, ensure};
use serde_json::{Map, Value};
use toktrie::TokEnv;

use super::{Judgement, OutOfFuel, place};
use crate::matcher::Matcher;

/// Work for the value in the order given, in units of [`Matcher::work`]: seconds, which only a long value in a grammar of
/// many alternatives needs.
const GIVEN_WORK: u64 = 10_000_000;

/// Work for putting keys in order.
const ORDER_WORK: u64 = 1_000_000;

/// Work for trying all orders after that.
const SEARCH_WORK: u64 = 100_000;

/// Work for a token, besides what its matcher counts.
const TOKEN_WORK: u64 = 5;

/// Tokens between two masks, for a lexer that ran out of fuel without any: a mask gives it new fuel.
const TOKENS_PER_MASK: usize = 16;

/// Separators between items and after keys, tried in this order.
const STYLES: [(&str, &str); 2] = [(",", ":"), (", ", ": ")];

/// What went wrong: the text, and the byte of it.
struct Failure {
    text: String,
    at: usize,
}

pub(super) struct Writer {
    matcher: Matcher,
    env: TokEnv,
    text: String,
    /// Tokens consumed for `text`.
    tokens: usize,
    /// Work that may still be done.
    budget: u64,
    /// Tokens up to the next mask, if there are to be any.
    until_mask: Option<usize>,
    style: (&'static str, &'static str),
    failure: Option<Failure>,
    /// Whether failures are noted.
    noting: bool,
    /// Whether 1.0 may be written as 1.
    whole: bool,
}

/// A state to go back to.
#[derive(Clone, Copy)]
struct Mark {
    tokens: usize,
    text: usize,
}

type Member<'v> = (&'v String, &'v Value);

/// What is still to be written, as a list that shares its tail.
#[derive(Clone)]
struct Agenda<'v>(Option<Rc<(Task<'v>, Agenda<'v>)>>);

#[derive(Clone)]
enum Task<'v> {
    Value(&'v Value),
    Items(&'v [Value], bool),
    Members(Rc<Vec<Member<'v>>>, bool),
    Close(&'static str),
}

impl<'v> Agenda<'v> {
    fn then(self, task: Task<'v>) -> Self {
        Self(Some(Rc::new((task, self))))
    }
}

/// A point at which another key may be written.
struct Choice<'v> {
    mark: Mark,
    members: Rc<Vec<Member<'v>>>,
    first: bool,
    next: usize,
    after: Agenda<'v>,
}

impl Writer {
    pub(super) fn new(matcher: Matcher) -> Result<Self> {
        let env = matcher.tok_env()?;
        Ok(Self {
            matcher,
            env,
            text: String::new(),
            tokens: 0,
            budget: GIVEN_WORK,
            until_mask: None,
            style: STYLES[0],
            failure: None,
            noting: true,
            whole: true,
        })
    }

    /// Numbers keep their point.
    pub(super) fn exact(self) -> Self {
        Self { whole: false, ..self }
    }

    /// With masks on the way, which take more time and keep the lexer in fuel.
    pub(super) fn with_masks(self, masks: bool) -> Self {
        Self { until_mask: masks.then_some(0), ..self }
    }

    pub(super) fn judge_text(mut self, text: &str) -> Result<Judgement> {
        let tokens = self.env.tokenize_bytes(text.as_bytes());
        let accepted = self.put_tokens(text, &tokens)? && self.ends()?;
        let exhaustive = self.budget > 0;
        self.answer(accepted, exhaustive)
    }

    pub(super) fn judge_value(mut self, value: &Value) -> Result<Judgement> {
        for style in STYLES {
            self.style = style;
            // Reasons are about the first style.
            self.noting = style == STYLES[0];
            if self.given(value)? {
                return self.answer(true, true);
            }
        }
        let mut exhaustive = self.budget > 0;
        if !exhaustive || !has_orders(value) {
            return self.answer(false, exhaustive);
        }
        for style in STYLES {
            self.style = style;
            self.noting = style == STYLES[0];
            self.budget = ORDER_WORK;
            if self.fresh()? && self.ordered(value)? && self.ends()? {
                return self.answer(true, true);
            }
            self.noting = false;
            self.budget = SEARCH_WORK;
            if self.fresh()? && self.search(value, true)? {
                return self.answer(true, true);
            }
            exhaustive &= self.budget > 0;
        }
        self.answer(false, exhaustive)
    }

    fn answer(self, accepted: bool, exhaustive: bool) -> Result<Judgement> {
        ensure!(accepted || !self.matcher.is_spoilt(), OutOfFuel);
        Ok(self.judgement(accepted, exhaustive))
    }

    fn judgement(mut self, accepted: bool, exhaustive: bool) -> Judgement {
        if accepted {
            let reason = String::new();
            return Judgement { accepted, text: self.text, rejected_at: None, reason, exhaustive };
        }
        let known = self.failure.take();
        if known.is_none() && !exhaustive {
            let at = self.text.len();
            let reason = "to follow the value takes more work than a check may take".to_owned();
            return Judgement { accepted, text: self.text, rejected_at: Some(at), reason, exhaustive };
        }
        let failure =
            known.unwrap_or_else(|| Failure { at: self.text.len(), text: std::mem::take(&mut self.text) });
        let mut reason = place::reason(&failure.text, failure.at);
        if let Some(forced) = self.forced(&failure) {
            reason = format!("{reason}; `{forced}` has to follow");
        }
        Judgement { accepted, rejected_at: Some(failure.at), text: failure.text, reason, exhaustive }
    }

    /// What alone may follow where it went wrong.
    fn forced(&mut self, failure: &Failure) -> Option<String> {
        self.fresh().ok()?;
        let tokens = self.env.tok_trie().greedy_tokenize(failure.text.get(..failure.at)?.as_bytes());
        if self.matcher.try_consume_tokens(&tokens).ok()? < tokens.len() {
            return None;
        }
        let forced = String::from_utf8_lossy(&self.matcher.compute_ff_bytes()).into_owned();
        (!forced.is_empty()).then(|| crate::text::truncate(&forced, place::SHOWN))
    }

    fn mark(&self) -> Mark {
        Mark { tokens: self.tokens, text: self.text.len() }
    }

    fn back(&mut self, mark: Mark) -> Result<()> {
        self.matcher.rollback(self.tokens - mark.tokens)?;
        self.tokens = mark.tokens;
        self.text.truncate(mark.text);
        Ok(())
    }

    /// Goes back to the start; always `true`.
    fn fresh(&mut self) -> Result<bool> {
        self.back(Mark { tokens: 0, text: 0 })?;
        Ok(true)
    }

    /// Keeps the failure that is furthest in its text.
    fn note(&mut self, piece: &str, at: usize) {
        let at = self.text.len() + at;
        if self.noting && self.failure.as_ref().is_none_or(|known| at > known.at) {
            self.failure = Some(Failure { text: format!("{}{piece}", self.text), at });
        }
    }

    /// Writes a piece, if it is allowed.
    fn put(&mut self, piece: &str) -> Result<bool> {
        let tokens = self.env.tok_trie().greedy_tokenize(piece.as_bytes());
        self.put_tokens(piece, &tokens)
    }

    fn put_tokens(&mut self, piece: &str, tokens: &[u32]) -> Result<bool> {
        let trie = self.env.tok_trie();
        let bytes: usize = tokens.iter().map(|&token| trie.token_len(token)).sum();
        if self.budget == 0 {
            return Ok(false);
        }
        if bytes != piece.len() {
            // A byte without a token cannot be written at all.
            self.note(piece, 0);
            return Ok(false);
        }
        let mut before = self.matcher.work();
        let mut taken = 0;
        while taken < tokens.len() && self.budget > 0 {
            self.refuel()?;
            if self.matcher.try_consume_tokens(&tokens[taken..=taken])? == 0 {
                break;
            }
            taken += 1;
            self.budget = self.budget.saturating_sub(TOKEN_WORK + self.matcher.work() - before);
            before = self.matcher.work();
        }
        if taken == tokens.len() {
            self.tokens += taken;
            self.text.push_str(piece);
            return Ok(true);
        }
        let trie = self.env.tok_trie();
        let mut at: usize = tokens[..taken].iter().map(|&token| trie.token_len(token)).sum();
        // Some bytes of the token that was refused may be allowed.
        let single: Option<Vec<u32>> =
            trie.token(tokens[taken]).iter().map(|&byte| trie.token_id_at_bytes(&[byte])).collect();
        if let (true, Some(single)) = (self.noting, single) {
            at += self.matcher.validate_tokens(&single)?;
        }
        self.matcher.rollback(taken)?;
        if self.budget > 0 {
            self.note(piece, at);
        }
        Ok(false)
    }

    fn refuel(&mut self) -> Result<()> {
        match &mut self.until_mask {
            Some(0) if !self.matcher.is_stopped() => {
                self.until_mask = Some(TOKENS_PER_MASK);
                self.matcher.compute_mask()?;
            }
            Some(left) => *left = left.saturating_sub(1),
            None => {}
        }
        Ok(())
    }

    /// Whether the text may end here.
    fn ends(&mut self) -> Result<bool> {
        let ends = if self.matcher.is_stopped() {
            self.matcher.stop_reason().is_ok()
        } else {
            self.matcher.is_accepting()?
        };
        if !ends {
            self.note("", 0);
        }
        Ok(ends)
    }

    fn put_scalar(&mut self, value: &Value) -> Result<bool> {
        let text = value.to_string();
        let Value::Number(_) = value else { return self.put(&text) };
        let mut forms = vec![text.clone()];
        // The same number with other zeros, or without its exponent: some grammars hold only one of these.
        if let Some(number) = value.as_f64().filter(|_| value.is_f64()) {
            let whole = number.fract() == 0.0;
            let spelled = if number == 0.0 { vec![number, 0.0] } else { vec![number] };
            for number in spelled {
                // First, so that a whole number is where a grammar looks for one.
                if whole && self.whole {
                    forms.insert(0, number.to_string());
                }
                let point = if whole { format!("{number:.1}") } else { number.to_string() };
                forms.extend([format!("{point}0"), format!("{point}00"), point]);
            }
        }
        let mark = self.mark();
        for form in &forms {
            if self.put(form)? && self.number_ends()? {
                return Ok(true);
            }
            self.back(mark)?;
        }
        // So that the failure is found behind it.
        self.put(&text)
    }

    /// Whether the number before may be complete.
    fn number_ends(&mut self) -> Result<bool> {
        if self.matcher.is_stopped() || self.matcher.is_accepting()? {
            return Ok(true);
        }
        for next in [",", "]", "}", " "] {
            let tokens = self.env.tok_trie().greedy_tokenize(next.as_bytes());
            if self.matcher.validate_tokens(&tokens)? > 0 {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn put_key(&mut self, key: &str, first: bool) -> Result<bool> {
        let comma = if first { "" } else { self.style.0 };
        self.put(&format!("{comma}{}{}", Value::from(key), self.style.1))
    }

    /// Writes the value in the order given.
    fn given(&mut self, value: &Value) -> Result<bool> {
        self.fresh()?;
        self.search(value, false)
    }

    /// Writes the value and its end; with `all`, in any order that is possible within the budget.
    fn search(&mut self, value: &Value, all: bool) -> Result<bool> {
        let mut agenda = Agenda(None).then(Task::Value(value));
        let mut choices: Vec<Choice> = Vec::new();
        loop {
            let mut fine = true;
            while fine {
                let Some(link) = agenda.0.clone() else { break };
                let rest = link.1.clone();
                match &link.0 {
                    Task::Close(text) => {
                        agenda = rest;
                        fine = self.put(text)?;
                    }
                    Task::Value(Value::Array(items)) => {
                        agenda = rest.then(Task::Close("]")).then(Task::Items(items, true));
                        fine = self.put("[")?;
                    }
                    Task::Value(Value::Object(members)) => {
                        let list = Rc::new(members.iter().collect());
                        agenda = rest.then(Task::Close("}")).then(Task::Members(list, true));
                        fine = self.put("{")?;
                    }
                    Task::Value(scalar) => {
                        agenda = rest;
                        fine = self.put_scalar(scalar)?;
                    }
                    Task::Items([], _) => agenda = rest,
                    Task::Items([item, items @ ..], first) => {
                        agenda = rest.then(Task::Items(items, false)).then(Task::Value(item));
                        fine = *first || self.put(self.style.0)?;
                    }
                    Task::Members(members, _) if members.is_empty() => agenda = rest,
                    Task::Members(members, first) if all => {
                        let (mark, members, first) = (self.mark(), Rc::clone(members), *first);
                        choices.push(Choice { mark, members, first, next: 0, after: rest });
                        // The choice is made below.
                        fine = false;
                    }
                    Task::Members(members, first) => {
                        let (key, value) = members[0];
                        let left = Rc::new(members[1..].to_vec());
                        agenda = rest.then(Task::Members(left, false)).then(Task::Value(value));
                        fine = self.put_key(key, *first)?;
                    }
                }
            }
            if fine && self.ends()? {
                return Ok(true);
            }
            match self.next_choice(&mut choices)? {
                Some(next) => agenda = next,
                None => return Ok(false),
            }
        }
    }

    /// Goes back to the last choice that has another key to offer, and writes that.
    fn next_choice<'v>(&mut self, choices: &mut Vec<Choice<'v>>) -> Result<Option<Agenda<'v>>> {
        while let Some(choice) = choices.last_mut() {
            if self.budget == 0 {
                return Ok(None);
            }
            let mark = choice.mark;
            let Some(&(key, value)) = choice.members.get(choice.next) else {
                choices.pop();
                continue;
            };
            let mut left = (*choice.members).clone();
            left.remove(choice.next);
            choice.next += 1;
            let (first, after) = (choice.first, choice.after.clone());
            self.back(mark)?;
            if self.put_key(key, first)? {
                return Ok(Some(after.then(Task::Members(Rc::new(left), false)).then(Task::Value(value))));
            }
        }
        Ok(None)
    }

    /// Writes the value with each key where it shuts out no other one, without going back further.
    fn ordered(&mut self, value: &Value) -> Result<bool> {
        match value {
            Value::Array(items) => {
                let mut fine = self.put("[")?;
                for (i, item) in items.iter().enumerate() {
                    fine = fine && (i == 0 || self.put(self.style.0)?) && self.ordered(item)?;
                }
                Ok(fine && self.put("]")?)
            }
            Value::Object(members) => {
                Ok(self.put("{")? && self.ordered_members(members)? && self.put("}")?)
            }
            scalar => self.put_scalar(scalar),
        }
    }

    fn ordered_members(&mut self, members: &Map<String, Value>) -> Result<bool> {
        let mut left: Vec<Member> = members.iter().collect();
        let mut open = self.allowed(&left, true)?;
        while !left.is_empty() {
            let first = left.len() == members.len();
            // Those that an earlier try shut out come first.
            let mut queue: Vec<usize> = (0..left.len()).filter(|&i| open[i]).collect();
            let mut tried = vec![false; left.len()];
            let mut done = None;
            while let (Some(i), None) = (pop_front(&mut queue), &done) {
                if std::mem::replace(&mut tried[i], true) {
                    continue;
                }
                let mark = self.mark();
                if self.put_key(left[i].0, first)? && self.ordered(left[i].1)? {
                    let mut rest = left.clone();
                    rest.remove(i);
                    let now = self.allowed(&rest, false)?;
                    let shut: Vec<usize> = (0..left.len())
                        .filter(|&j| j != i && open[j] && !now[if j > i { j - 1 } else { j }])
                        .collect();
                    if shut.is_empty() {
                        done = Some((rest, now));
                        break;
                    }
                    queue.splice(0..0, shut);
                }
                self.back(mark)?;
            }
            let Some((rest, now)) = done else {
                // Says what is wrong with the first of them.
                self.put_key(left[0].0, first)?;
                return Ok(false);
            };
            (left, open) = (rest, now);
        }
        Ok(true)
    }

    /// Which of the keys may come next.
    fn allowed(&mut self, members: &[Member], first: bool) -> Result<Vec<bool>> {
        let noting = std::mem::replace(&mut self.noting, false);
        let mut list = Vec::with_capacity(members.len());
        for (key, _) in members {
            let mark = self.mark();
            let fine = self.put_key(key, first)?;
            self.back(mark)?;
            list.push(fine);
        }
        self.noting = noting;
        Ok(list)
    }
}

fn pop_front(queue: &mut Vec<usize>) -> Option<usize> {
    (!queue.is_empty()).then(|| queue.remove(0))
}

/// Whether some object has two keys or more.
fn has_orders(value: &Value) -> bool {
    let mut open = vec![value];
    while let Some(value) = open.pop() {
        match value {
            Value::Object(members) if members.len() > 1 => return true,
            Value::Object(members) => open.extend(members.values()),
            Value::Array(items) => open.extend(items),
            _ => {}
        }
    }
    false
}
