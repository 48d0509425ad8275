//! Numbers: an interval, multiples, and what is cut out.

use serde_json::{Map, Value, json};

use crate::formula::Lit;
use crate::formula::{Num, Ratio};

/// Whole numbers listed one by one where multiples are excluded.
const MAX_LISTED: i128 = 2000;

/// A conjunction of constraints on numbers.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Number {
    /// The bound, and whether it is excluded.
    least: Option<(Num, bool)>,
    most: Option<(Num, bool)>,
    integer: bool,
    fraction: bool,
    multiple: Option<Ratio>,
    not_multiple: Vec<Ratio>,
    /// Multiples whose common multiple is too large to write.
    overflow: bool,
}

impl Number {
    pub(crate) fn point(num: Num) -> Self {
        Self { least: Some((num, false)), most: Some((num, false)), ..Self::default() }
    }

    /// What lies between and outside of sorted points.
    pub(crate) fn between(points: &[Num]) -> Vec<Self> {
        let mut out = Vec::new();
        let mut least = None;
        for &point in points {
            out.push(Self { least, most: Some((point, true)), ..Self::default() });
            least = Some((point, true));
        }
        out.push(Self { least, ..Self::default() });
        out
    }

    pub(crate) fn of(lit: &Lit, negated: bool) -> Option<Self> {
        let mut number = Self::default();
        match (lit, negated) {
            (Lit::Integer, false) => number.integer = true,
            (Lit::Integer, true) => number.fraction = true,
            (Lit::Least(num, above), false) => number.least = Some((*num, *above)),
            (Lit::Least(num, above), true) => number.most = Some((*num, !above)),
            (Lit::Most(num, below), false) => number.most = Some((*num, *below)),
            (Lit::Most(num, below), true) => number.least = Some((*num, !below)),
            (Lit::Multiple(step), false) => number.multiple = Some(*step),
            (Lit::Multiple(step), true) => number.not_multiple.push(*step),
            _ => return None,
        }
        Some(number)
    }

    pub(crate) fn meet(mut self, other: &Self) -> Option<Self> {
        self.least = match (self.least, other.least) {
            (Some(a), Some(b)) => Some(if a.0 > b.0 || (a.0 == b.0 && a.1) { a } else { b }),
            (a, b) => a.or(b),
        };
        self.most = match (self.most, other.most) {
            (Some(a), Some(b)) => Some(if a.0 < b.0 || (a.0 == b.0 && a.1) { a } else { b }),
            (a, b) => a.or(b),
        };
        self.integer |= other.integer;
        self.fraction |= other.fraction;
        self.overflow |= other.overflow;
        self.multiple = match (self.multiple, other.multiple) {
            (Some(a), Some(b)) => {
                let common = a.lcm(b);
                self.overflow |= common.is_none();
                common.or(Some(a))
            }
            (a, b) => a.or(b),
        };
        for &step in &other.not_multiple {
            if !self.not_multiple.contains(&step) {
                self.not_multiple.push(step);
            }
        }
        self.not_multiple.sort_unstable();
        (!self.is_empty()).then_some(self)
    }

    /// Every number here is a multiple of this.
    fn step(&self) -> Option<Ratio> {
        match (self.multiple, self.integer) {
            (Some(step), true) => step.lcm(Ratio::ONE),
            (Some(step), false) => Some(step),
            (None, true) => Some(Ratio::ONE),
            (None, false) => None,
        }
    }

    fn single(&self) -> Option<Num> {
        match (self.least, self.most) {
            (Some((a, false)), Some((b, false))) if a == b => Some(a),
            _ => None,
        }
    }

    /// The smallest and the largest whole number inside the bounds.
    fn whole_bounds(&self) -> (Option<i128>, Option<i128>) {
        let up = |num: Num, above: bool| match num {
            Num::Int(n) => Some(n + i128::from(above)),
            Num::Float(n) if n.abs() < 1e30 => Some(n.ceil() as i128),
            Num::Float(_) => None,
        };
        let down = |num: Num, below: bool| match num {
            Num::Int(n) => Some(n - i128::from(below)),
            Num::Float(n) if n.abs() < 1e30 => Some(n.floor() as i128),
            Num::Float(_) => None,
        };
        (
            self.least.and_then(|(num, above)| up(num, above)),
            self.most.and_then(|(num, below)| down(num, below)),
        )
    }

    fn allows(&self, num: Num) -> bool {
        (!self.integer || num.is_int())
            && (!self.fraction || !num.is_int())
            && self.multiple.is_none_or(|step| step.divides(num) == Some(true))
            && self.not_multiple.iter().all(|step| step.divides(num) == Some(false))
    }

    pub(crate) fn is_empty(&self) -> bool {
        if let (Some((least, above)), Some((most, below))) = (self.least, self.most) {
            if least > most || (least == most && (above || below)) {
                return true;
            }
        }
        if let Some(num) = self.single() {
            return !self.allows(num);
        }
        if self.integer && self.fraction {
            return true;
        }
        let Some(step) = self.step() else { return false };
        if self.fraction && step.is_multiple_of(Ratio::ONE) {
            return true;
        }
        if self.not_multiple.iter().any(|&other| step.is_multiple_of(other)) {
            return true;
        }
        step.bottom == 1 && self.listed(1).is_some_and(|list| list.is_empty())
    }

    /// All numbers, if they are whole and at most `MAX_LISTED` multiples are in the bounds. Stops
    /// after `enough`.
    fn listed(&self, enough: usize) -> Option<Vec<i128>> {
        let step = i128::from(self.step().filter(|step| step.bottom == 1)?.top);
        let (Some(least), Some(most)) = self.whole_bounds() else { return None };
        if step == 0 || most - least > MAX_LISTED * step {
            return None;
        }
        let mut list = Vec::new();
        let mut n = least.div_euclid(step) * step;
        while n <= most && list.len() < enough {
            if n >= least && self.allows(Num::Int(n)) {
                list.push(n);
            }
            n += step;
        }
        Some(list)
    }

    /// The same without the steps that are excluded, if any are.
    pub(crate) fn with_multiples(&self) -> Option<Self> {
        (!self.not_multiple.is_empty()).then(|| Self { not_multiple: Vec::new(), ..self.clone() })
    }

    /// Writes the shape; an error names the keyword that cannot be held and why.
    pub(crate) fn write(&self) -> Result<Value, (&'static str, &'static str)> {
        if let Some(num) = self.single() {
            if !num.is_exact() {
                return Err(("const", "numbers of more than 15 digits are not exact"));
            }
            return Ok(json!({ "enum": [num.to_value()] }));
        }
        let mut object = Map::new();
        if !self.not_multiple.is_empty() {
            let Some(list) = self.listed(usize::MAX) else {
                return Err(("not", "all numbers but the multiples of one cannot be described"));
            };
            return Ok(json!({ "enum": list.iter().map(|&n| Num::Int(n).to_value()).collect::<Vec<_>>() }));
        }
        if self.fraction {
            return Err(("not", "numbers that are not whole cannot be told apart from whole ones"));
        }
        if self.overflow {
            return Err(("multipleOf", "the common multiple is too large"));
        }
        object.insert("type".to_owned(), json!(if self.integer { "integer" } else { "number" }));
        let step = if self.multiple.is_some() { self.step() } else { None };
        if self.integer {
            let (least, most) = self.whole_bounds();
            for (name, bound) in [("minimum", least), ("maximum", most)] {
                if let Some(n) = bound {
                    let num = Num::Int(n);
                    if !num.is_exact() {
                        // Beyond what a 64-bit number holds, a bound is no bound.
                        if n.unsigned_abs() > 1 << 63 && (n > 0) == (name == "maximum") {
                            continue;
                        }
                        return Err((name, "bounds of more than 15 digits are not exact"));
                    }
                    object.insert(name.to_owned(), num.to_value());
                }
            }
        } else {
            for (name, strict, bound) in
                [("minimum", "exclusiveMinimum", self.least), ("maximum", "exclusiveMaximum", self.most)]
            {
                if let Some((num, excluded)) = bound {
                    if !num.is_double() {
                        return Err((name, "bounds of more than 15 digits are not exact"));
                    }
                    object.insert(if excluded { strict } else { name }.to_owned(), num.to_value());
                }
            }
        }
        if let Some(step) = step {
            if self.integer && step == Ratio::ONE {
                return Ok(Value::Object(object));
            }
            let Some(value) = step.to_value() else {
                return Err(("multipleOf", "the step has too many digits"));
            };
            object.insert("multipleOf".to_owned(), value);
        }
        Ok(Value::Object(object))
    }

    pub(crate) fn is_any(&self) -> bool {
        *self == Self::default()
    }
}
