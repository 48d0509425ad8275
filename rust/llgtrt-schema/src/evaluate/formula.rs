//! Formulas decided on values.

use serde_json::Value;

use crate::budget::weight;
use crate::error::SchemaError;
use crate::formula::{FormulaId, Lit, Node, Num, Others, Type, canonical};
use crate::normalizer::Normalizer;

impl Normalizer<'_> {
    /// Whether the value satisfies the formula.
    pub(crate) fn eval(&mut self, f: FormulaId, value: &Value) -> Result<bool, SchemaError> {
        self.step(f)?;
        if let Some(&known) = self.memo.as_ref().and_then(|memo| memo.get(&(f, &raw const *value))) {
            return Ok(known);
        }
        let level = self.enter()?;
        let result = self.eval_node(f, value);
        drop(level);
        self.remember(f, value, &result);
        result
    }

    /// Keeps what was found out about a formula that has parts.
    fn remember(&mut self, f: FormulaId, value: &Value, result: &Result<bool, SchemaError>) {
        if let (Some(memo), Ok(accepted)) = (&mut self.memo, result)
            && !matches!(self.forms.node(f), Node::True | Node::False | Node::Lit(_))
        {
            self.budget.charge_bytes(64);
            memo.insert((f, &raw const *value), *accepted);
        }
    }

    fn eval_node(&mut self, f: FormulaId, value: &Value) -> Result<bool, SchemaError> {
        match self.forms.node(f).clone() {
            Node::True => Ok(true),
            Node::False => Ok(false),
            Node::Not(inner) => Ok(!self.eval(inner, value)?),
            Node::And(list) => {
                for &g in list.iter() {
                    if !self.eval(g, value)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            Node::Or(list) => {
                for &g in list.iter() {
                    if self.eval(g, value)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            Node::One(list) => {
                let mut count = 0;
                for &g in list.iter() {
                    count += usize::from(self.eval(g, value)?);
                }
                Ok(count == 1)
            }
            Node::Def(number) => {
                let body = self.def_body(number)?;
                self.eval(body, value)
            }
            Node::Lit(lit) => self.eval_lit(&lit, value),
        }
    }

    fn eval_lit(&mut self, lit: &Lit, value: &Value) -> Result<bool, SchemaError> {
        match (lit, value) {
            (Lit::Unknown(bits, path), value) if bits & Type::of(value).bit() != 0 => {
                Err(self.left.unknown(path))
            }
            (Lit::Types(bits), value) => Ok(bits & Type::of(value).bit() != 0),
            (Lit::Values(values), value) => {
                self.budget.charge(weight(value));
                Ok(values.contains(&canonical(value)))
            }
            (_, Value::Number(number)) => {
                let Some(num) = Num::new(number) else { return Ok(true) };
                Ok(match lit {
                    Lit::Integer => num.is_int(),
                    Lit::Least(bound, above) => num > *bound || (num == *bound && !above),
                    Lit::Most(bound, below) => num < *bound || (num == *bound && !below),
                    Lit::Multiple(step) => step.divides(num).unwrap_or(true),
                    _ => true,
                })
            }
            (Lit::MinLength(_) | Lit::MaxLength(_) | Lit::Match(..), Value::String(text)) => {
                self.budget.charge(text.len() as u64 / 64);
                Ok(match lit {
                    Lit::MinLength(n) => text.chars().count() as u64 >= *n,
                    Lit::MaxLength(n) => text.chars().count() as u64 <= *n,
                    Lit::Match(language, _) => self.langs.matches(*language, text),
                    _ => true,
                })
            }
            (_, Value::Array(items)) => self.eval_array(lit, items),
            (_, Value::Object(members)) => self.eval_object(lit, members),
            _ => Ok(true),
        }
    }

    fn eval_array(&mut self, lit: &Lit, items: &[Value]) -> Result<bool, SchemaError> {
        Ok(match lit {
            Lit::Items { prefix, rest } => {
                for (i, item) in items.iter().enumerate() {
                    let f = prefix.get(i).copied().unwrap_or(*rest);
                    if !self.eval(f, item)? {
                        return Ok(false);
                    }
                }
                true
            }
            Lit::MinItems(n) => items.len() as u64 >= *n,
            Lit::MaxItems(n) => items.len() as u64 <= *n,
            Lit::Contains(f, min, max) => {
                let mut count = 0;
                for item in items {
                    count += u64::from(self.eval(*f, item)?);
                }
                count >= *min && max.is_none_or(|max| count <= max)
            }
            Lit::Unique => {
                self.budget.charge(items.iter().map(weight).sum());
                let mut texts: Vec<String> = items.iter().map(canonical).collect();
                texts.sort_unstable();
                texts.windows(2).all(|pair| pair[0] != pair[1])
            }
            _ => true,
        })
    }

    fn eval_object(
        &mut self,
        lit: &Lit,
        members: &serde_json::Map<String, Value>,
    ) -> Result<bool, SchemaError> {
        match lit {
            Lit::Key(key, f) => members.get(&**key).map_or(Ok(true), |value| self.eval(*f, value)),
            Lit::Keys(language, _, f) => {
                for (key, value) in members {
                    if self.langs.matches(*language, key) && !self.eval(*f, value)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            Lit::Rest(others, f) => {
                for (key, value) in members {
                    if self.is_other(others, key) && !self.eval(*f, value)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            Lit::Names(f) => {
                // The keys are values only here, and the next one is where the last one was.
                let memo = self.memo.take();
                let mut all = Ok(true);
                for key in members.keys() {
                    all = self.eval(*f, &Value::String(key.clone()));
                    if !matches!(all, Ok(true)) {
                        break;
                    }
                }
                self.memo = memo;
                all
            }
            Lit::Required(key) => Ok(members.contains_key(&**key)),
            Lit::MinProps(n) => Ok(members.len() as u64 >= *n),
            Lit::MaxProps(n) => Ok(members.len() as u64 <= *n),
            Lit::Open => Ok(true),
            _ => Ok(true),
        }
    }

    /// Whether a key is outside of the listed names and languages.
    pub(crate) fn is_other(&mut self, others: &Others, key: &str) -> bool {
        self.budget.charge(others.names.len() as u64 / 16);
        !others.names.iter().any(|name| &**name == key)
            && !others.languages.iter().any(|&language| self.langs.matches(language, key))
    }
}
