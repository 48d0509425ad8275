//! How numbers are written: as the ranges and steps that llguidance reads exactly, as regular expressions
//! where a grammar is written, or as the nearest range inside that a schema can say.
//!
//! llguidance reads bounds as doubles and writes the expression of a range itself. It is exact for bounds
//! that a double holds, with few digits; a bound that is left out must not be a whole number beside
//! another bound in the same unit; and a step is met in one spelling only.

use serde_json::{Map, Value, json};

use super::decimal;
use super::multiples::multiples;
use super::number::Number;
use crate::formula::{Num, Ratio};

/// A range and step with up to this many numbers is written as a list.
const MAX_LISTED: i128 = 8;

/// The largest number of type float32. Bounds from here on are a type's limit and no choice of the author.
const FLOAT_LIMIT: f64 = 3.402_823_466_385_288e38;

/// What a bound at the limit of a type becomes: numbers of up to 18 digits.
const WIDE: i128 = 1_000_000_000_000_000_000;

/// The least and the greatest whole number that llguidance takes as a bound.
const LEAST_WHOLE: i128 = -((1 << 63) - 1024);
const MOST_WHOLE: i128 = i64::MAX as i128;

/// What numbers may be written as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Means {
    /// A schema of the same numbers.
    Schema,
    /// Also regular expressions.
    Grammar,
    /// A schema of fewer numbers, where none says the same.
    Narrowed,
}

/// A condition on how a number is written, in regular expressions.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Digits {
    Match(String),
    /// At least one of these does not match.
    NotAll(Vec<String>),
}

/// A terminal of a grammar for numbers of whose digits all of this holds.
pub(crate) fn terminal(digits: &[Digits]) -> String {
    let all = |patterns: &[String]| {
        patterns.iter().map(|pattern| format!("/{pattern}/")).collect::<Vec<_>>().join(" & ")
    };
    let parts = digits.iter().map(|digits| match digits {
        Digits::Match(pattern) => format!("/{pattern}/"),
        Digits::NotAll(patterns) => format!("~({})", all(patterns)),
    });
    parts.collect::<Vec<_>>().join(" & ")
}

/// Numbers, as alternatives.
#[derive(Debug, Default)]
pub(crate) struct Written {
    pub(crate) options: Vec<Value>,
    /// What holds of the digits of one more alternative; empty if there is none.
    pub(crate) digits: Vec<Digits>,
    /// The rule by which there are fewer of them.
    pub(crate) rule: Option<&'static str>,
}

/// Why numbers cannot be written.
#[derive(Debug)]
pub(crate) struct Cannot {
    pub(crate) keyword: &'static str,
    pub(crate) why: &'static str,
    /// A grammar, or fewer numbers, may do.
    pub(crate) is_wide: bool,
}

const fn cannot(keyword: &'static str, why: &'static str) -> Cannot {
    Cannot { keyword, why, is_wide: false }
}

impl Number {
    /// Writes the shape.
    pub(crate) fn write(&self, means: Means) -> Result<Written, Cannot> {
        let excludes = !self.not_multiple.is_empty();
        if excludes {
            let list = self.listed(usize::MAX).filter(|list| list.iter().all(|&n| Num::Int(n).is_double()));
            if let Some(list) = list {
                let list: Vec<Value> = list.iter().map(|&n| Num::Int(n).to_value()).collect();
                return Ok(Written { options: vec![json!({ "enum": list })], ..Written::default() });
            }
        }
        if self.overflow {
            return Err(cannot("multipleOf", "the common multiple is too large"));
        }
        let (bounded, rule) = match self.within_float_limits() {
            Some(bounded) => (bounded, Some("float-limits")),
            None => (self.clone(), None),
        };
        if let Some(options) = bounded.native().filter(|_| !excludes) {
            return Ok(Written { options, rule, ..Written::default() });
        }
        let keyword = if self.fraction {
            "not"
        } else if self.single().is_some() {
            "const"
        } else if self.multiple.is_some() {
            "multipleOf"
        } else if self.least.is_some() {
            "minimum"
        } else {
            "maximum"
        };
        let steps = if means == Means::Grammar { bounded.steps() } else { None };
        match (means, steps) {
            (Means::Grammar, Some(steps)) => {
                let Some(range) = decimal::range(bounded.least, bounded.most, bounded.integer) else {
                    return Ok(Written::default());
                };
                let mut digits = vec![Digits::Match(range)];
                if self.fraction {
                    digits.push(Digits::Match(decimal::FRACTION.to_owned()));
                }
                digits.extend(steps);
                Ok(Written { options: Vec::new(), digits, rule: rule.or(Some("large-bounds")) })
            }
            _ if excludes => Err(cannot("not", "all numbers but the multiples of one cannot be described")),
            (Means::Narrowed, _) if !self.fraction => {
                match bounded.narrowed().and_then(|number| number.native()) {
                    Some(options) => Ok(Written { options, rule: Some("narrowed"), ..Written::default() }),
                    None => Err(cannot(keyword, "numbers of so many digits cannot be described")),
                }
            }
            _ => {
                let why = if self.fraction {
                    "numbers that are not whole cannot be told apart from whole ones"
                } else {
                    "numbers of so many digits, or in so small a range, are not exact"
                };
                Err(Cannot { keyword, why, is_wide: true })
            }
        }
    }

    /// What its steps say of digits, if that can be said and there are any numbers.
    fn steps(&self) -> Option<Vec<Digits>> {
        let mut all = Vec::new();
        if self.multiple.is_some() {
            let (first, last) = self.multiples();
            if (first.is_none() && self.least.is_some()) || (last.is_none() && self.most.is_some()) {
                return None;
            }
            all.extend(multiples(self.step()?)?.into_iter().map(Digits::Match));
        }
        for &step in &self.not_multiple {
            all.push(Digits::NotAll(multiples(step)?));
        }
        Some(all)
    }

    /// The numbers, if they are written as a list.
    pub(crate) fn values(&self) -> Option<Vec<Value>> {
        let written = self.write(Means::Schema).ok()?;
        let [one] = written.options.as_slice() else { return None };
        one.get("enum")?.as_array().cloned()
    }

    /// Whether llguidance reads the keywords exactly as they are.
    pub(crate) fn is_native(&self) -> bool {
        let is_whole = self.multiple.is_none_or(|step| step.bottom == 1);
        self.single().is_none()
            && (is_whole || !self.integer)
            && self.within_float_limits().is_none()
            // What is written in place of a bound that is left out may be exact where the bound itself is not.
            && [self.least, self.most].into_iter().flatten().all(|(num, excluded)| !excluded || num.is_double())
            && self.native().is_some_and(|options| match options.as_slice() {
                [one] => one.get("enum").is_none() && (self.multiple.is_none() || self.is_inclusive()),
                _ => false,
            })
    }

    /// The bounds are multiples themselves.
    fn is_inclusive(&self) -> bool {
        let step = self.step().unwrap_or(Ratio::ONE);
        [self.least, self.most].into_iter().flatten().all(|(num, open)| {
            // Of whole numbers llguidance knows the next one.
            self.integer || (!open && step.quotient(num).is_some_and(|(_, exact)| exact))
        })
    }

    /// The numbers without those near the limits of a type, which no application means.
    fn within_float_limits(&self) -> Option<Self> {
        let is_limit = |bound: Option<(Num, bool)>, sign: f64| {
            bound.is_some_and(|(num, _)| num.as_f64() * sign >= FLOAT_LIMIT)
        };
        let is_small = |bound: Option<(Num, bool)>| bound.is_none_or(|(num, _)| num.as_f64().abs() < 1e17);
        let mut bounded = self.clone();
        let least = is_limit(self.least, -1.0) && (is_small(self.most) || is_limit(self.most, 1.0));
        let most = is_limit(self.most, 1.0) && (is_small(self.least) || is_limit(self.least, -1.0));
        if least {
            bounded.least = Some((Num::Int(-WIDE), true));
        }
        if most {
            bounded.most = Some((Num::Int(WIDE), true));
        }
        (least || most).then_some(bounded)
    }

    /// Schemas that llguidance reads exactly, if there are any.
    fn native(&self) -> Option<Vec<Value>> {
        if let Some(num) = self.single() {
            return num.is_double().then(|| vec![json!({ "enum": [num.to_value()] })]);
        }
        if self.fraction {
            return None;
        }
        if self.integer {
            return self.native_integer().map(|value| vec![value]);
        }
        match self.multiple {
            Some(step) => self.native_multiples(step),
            None => self.native_range().map(|range| {
                let mut options = vec![range];
                let shorter = self.shorter();
                if !shorter.is_empty() {
                    options.push(json!({ "enum": shorter }));
                }
                options
            }),
        }
    }

    fn native_integer(&self) -> Option<Value> {
        let (least, most) = self.whole_bounds();
        if (self.least.is_some() && least.is_none()) || (self.most.is_some() && most.is_none()) {
            return None;
        }
        let is_exact =
            |n: i128| n.unsigned_abs() <= 1 << 53 || (n.abs() < 1 << 63 && (n as f64) as i128 == n);
        let is_fine = match (least, most) {
            (Some(least), None) => is_exact(least) && least < WIDE,
            (None, Some(most)) => (is_exact(most) || most == MOST_WHOLE) && most > -WIDE,
            (Some(least), Some(most)) => is_exact(least) && (is_exact(most) || most == MOST_WHOLE),
            (None, None) => true,
        };
        if !is_fine {
            return None;
        }
        let mut object = Map::new();
        object.insert("type".to_owned(), json!("integer"));
        for (name, bound) in [("minimum", least), ("maximum", most)] {
            if let Some(n) = bound {
                object.insert(name.to_owned(), Num::Int(n).to_value());
            }
        }
        let step = if self.multiple.is_some() { self.step()? } else { Ratio::ONE };
        if step != Ratio::ONE {
            object.insert("multipleOf".to_owned(), step.to_value()?);
        }
        Some(Value::Object(object))
    }

    /// Numbers with fewer digits than the bound that is farther from 0, and the same ones otherwise:
    /// below 0.53, llguidance takes 0.50, but not 0.5.
    fn shorter(&self) -> Vec<Value> {
        let zero = Num::Int(0);
        let most = self.most.map(|(num, _)| num).filter(|num| *num > zero);
        let least = self.least.map(|(num, _)| num).filter(|num| *num < zero);
        let mut list = Vec::new();
        for bound in [least, most].into_iter().flatten() {
            let Num::Float(bound) = bound else { continue };
            let text = format!("{bound}");
            let point = text.find('.').map_or(text.len(), |at| at + 1);
            let ends = (point + 1..text.len()).filter(|&end| !text[..end].ends_with('0'));
            let numbers = ends.filter_map(|end| text[..end].parse().ok()).map(Num::from_f64);
            list.extend(numbers.filter(|num| self.spans(*num) && num.is_double()).map(Num::to_value));
        }
        list
    }

    /// Whether the number lies inside the bounds.
    fn spans(&self, num: Num) -> bool {
        self.least.is_none_or(|(least, above)| num > least || (num == least && !above))
            && self.most.is_none_or(|(most, below)| num < most || (num == most && !below))
    }

    fn native_range(&self) -> Option<Value> {
        if let (Some((least, above)), Some((most, below))) = (self.least, self.most) {
            // In one unit, llguidance takes a whole number without fraction for granted.
            let next = |num: Num, by: i128| match num {
                Num::Int(n) => Some(Num::Int(n + by)),
                Num::Float(_) => None,
            };
            let zero = Num::Int(0);
            let up = above && least >= zero && next(least, 1).is_some_and(|next| most < next);
            let down = below && most <= zero && next(most, -1).is_some_and(|next| least > next);
            if up || down {
                return None;
            }
        }
        let mut object = Map::new();
        object.insert("type".to_owned(), json!("number"));
        for (name, strict, bound) in
            [("minimum", "exclusiveMinimum", self.least), ("maximum", "exclusiveMaximum", self.most)]
        {
            if let Some((num, excluded)) = bound {
                if !is_native_bound(num) {
                    return None;
                }
                object.insert(if excluded { strict } else { name }.to_owned(), num.to_value());
            }
        }
        Some(Value::Object(object))
    }

    /// Multiples in a range. One schema for each number of digits behind the point, since llguidance
    /// takes a multiple of 0.25 only with both digits.
    fn native_multiples(&self, step: Ratio) -> Option<Vec<Value>> {
        let digits = step.digits()?;
        if let (Some(first), Some(last)) = self.multiples() {
            if last - first < MAX_LISTED {
                let list: Option<Vec<Value>> = (first..=last)
                    .map(|n| step.times(n).filter(|num| num.is_double()).map(Num::to_value))
                    .collect();
                return list.map(|list| vec![json!({ "enum": list })]);
            }
        }
        // The bounds as they are written below: 0.2 that is left out becomes 0.19.
        let (first, last) = self.multiples();
        let has_long_bound = [first, last]
            .into_iter()
            .flatten()
            .map(|count| step.times(count).and_then(Ratio::of).and_then(Ratio::digits))
            .any(|digits| digits.is_none_or(|digits| digits > 1));
        let is_power = step.top == 1 && 10_u64.pow(digits) == step.bottom;
        let from = if digits == 0 || (is_power && !has_long_bound) { digits } else { 1 };
        let mut options: Vec<Value> = Vec::new();
        for digits in from..=digits {
            let unit = Ratio { top: 1, bottom: 10_u64.pow(digits) };
            let step = step.lcm(unit)?;
            if step.digits() != Some(digits) {
                continue;
            }
            let mut piece = Self { multiple: Some(step), ..self.clone() };
            let (first, last) = piece.multiples();
            for (bound, count) in [(&mut piece.least, first), (&mut piece.most, last)] {
                if bound.is_some() {
                    *bound = Some((step.times(count?)?, false));
                }
            }
            if piece.least.zip(piece.most).is_some_and(|(least, most)| least.0 > most.0) {
                continue;
            }
            if let Some(num) = piece.single() {
                options.push(json!({ "enum": [num.to_value()] }));
                continue;
            }
            let mut value = piece.native_range()?;
            value.as_object_mut()?.insert("multipleOf".to_owned(), step.to_value()?);
            options.push(value);
        }
        Some(options)
    }

    /// The nearest range inside that llguidance reads exactly.
    fn narrowed(&self) -> Option<Self> {
        let mut inside = self.clone();
        if self.integer {
            let (least, most) = self.whole_bounds();
            inside.least = match (self.least, least) {
                (None, _) => None,
                (Some(_), Some(least)) => Some((Num::Int(inward(least, 1)?), false)),
                (Some((num, _)), None) if num < Num::Int(0) => Some((Num::Int(LEAST_WHOLE), false)),
                _ => return None,
            };
            inside.most = match (self.most, most) {
                (None, _) => None,
                (Some(_), Some(most)) if most >= MOST_WHOLE => Some((Num::Int(MOST_WHOLE), false)),
                (Some(_), Some(most)) => Some((Num::Int(inward(most, -1)?), false)),
                (Some((num, _)), None) if num > Num::Int(0) => Some((Num::Int(MOST_WHOLE), false)),
                _ => return None,
            };
            if inside.most.is_none() && least.is_some_and(|least| least >= WIDE) {
                inside.most = Some((Num::Int(MOST_WHOLE), false));
            }
            if inside.least.is_none() && most.is_some_and(|most| most <= -WIDE) {
                inside.least = Some((Num::Int(LEAST_WHOLE), false));
            }
        } else {
            inside.least = match self.least {
                Some((num, above)) => Some(real_inward(num, above, 1)?),
                None => None,
            };
            inside.most = match self.most {
                Some((num, below)) => Some(real_inward(num, below, -1)?),
                None => None,
            };
            if inside.native().is_none() {
                // An end that is left out, next to the other one.
                let shift = |(num, open): (Num, bool), sign: f64| match num {
                    Num::Int(n) if open && n.unsigned_abs() < 1 << 20 => {
                        (Num::from_f64((n as f64 * 1e9 + sign) / 1e9), false)
                    }
                    _ => (num, open),
                };
                inside.least = inside.least.map(|end| shift(end, 1.0));
                inside.most = inside.most.map(|end| shift(end, -1.0));
            }
        }
        (!inside.is_empty()).then_some(inside)
    }
}

/// Whether llguidance reads the bound of a number that need not be whole exactly.
fn is_native_bound(num: Num) -> bool {
    match num {
        Num::Int(n) => n.unsigned_abs() <= WIDE.unsigned_abs() && format!("{}", n as f64) == n.to_string(),
        Num::Float(_) => num.is_double() && Ratio::of(num).and_then(Ratio::digits).is_some(),
    }
}

/// The nearest whole number in this direction that a double holds.
fn inward(n: i128, direction: i128) -> Option<i128> {
    if n < LEAST_WHOLE {
        return (direction > 0).then_some(LEAST_WHOLE);
    }
    let mut double = n as f64;
    if (double as i128 - n) * direction < 0 {
        double = if direction > 0 { double.next_up() } else { double.next_down() };
    }
    let near = double as i128;
    (near.unsigned_abs() < 1 << 63).then_some(near)
}

/// The nearest bound in this direction that is read exactly, and whether it is left out.
fn real_inward(num: Num, open: bool, direction: i128) -> Option<(Num, bool)> {
    if is_native_bound(num) {
        return Some((num, open));
    }
    let size = num.as_f64();
    if size.abs() <= 1e-15 {
        let tiny =
            if (size > 0.0) == (direction > 0) { Num::Float(1e-14 * direction as f64) } else { Num::Int(0) };
        return Some((tiny, false));
    }
    if size.abs() >= WIDE as f64 {
        return ((size < 0.0) == (direction > 0)).then_some((Num::Int(-direction * WIDE), false));
    }
    let whole = match num {
        // A double may be nearer to zero.
        Num::Int(n) => n,
        Num::Float(n) => (if direction > 0 { n.ceil() } else { n.floor() }) as i128,
    };
    (0..18).map(|digits| 10_i128.pow(digits)).find_map(|unit| {
        let count = whole.div_euclid(unit) + i128::from(direction > 0 && whole.rem_euclid(unit) != 0);
        Some((Num::Int(count * unit), false)).filter(|(num, _)| is_native_bound(*num))
    })
}
