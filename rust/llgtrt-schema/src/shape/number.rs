//! Numbers: an interval, multiples, and what is cut out.

use serde_json::{Map, Value};

use crate::formula::{Lit, Num, Ratio};

/// Whole numbers listed one by one where multiples are excluded.
const MAX_LISTED: i128 = 2000;

/// A conjunction of constraints on numbers.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Number {
    /// The bound, and whether it is excluded.
    pub(super) least: Option<(Num, bool)>,
    pub(super) most: Option<(Num, bool)>,
    pub(super) integer: bool,
    pub(super) fraction: bool,
    pub(super) multiple: Option<Ratio>,
    pub(super) not_multiple: Vec<Ratio>,
    /// Multiples whose common multiple is too large to write.
    pub(super) overflow: bool,
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

    /// The number keywords of a schema, if they are well-formed.
    pub(crate) fn of_keywords(object: &Map<String, Value>) -> Option<Self> {
        let mut number = Self::default();
        let names = object.get("type").map_or(&[][..], |names| match names {
            Value::Array(names) => names.as_slice(),
            one => std::slice::from_ref(one),
        });
        number.integer = names.contains(&Value::from("integer")) && !names.contains(&Value::from("number"));
        let strict = |name: &str| object.get(name) == Some(&Value::Bool(true));
        for (name, lit) in [
            ("minimum", (|num, strict| Lit::Least(num, strict)) as fn(Num, bool) -> Lit),
            ("exclusiveMinimum", |num, _| Lit::Least(num, true)),
            ("maximum", |num, strict| Lit::Most(num, strict)),
            ("exclusiveMaximum", |num, _| Lit::Most(num, true)),
        ] {
            match object.get(name) {
                None | Some(Value::Bool(_)) => {}
                Some(value) => {
                    let num = Num::new(value.as_number()?)?;
                    let exclusive = if name == "minimum" { "exclusiveMinimum" } else { "exclusiveMaximum" };
                    number = number.meet(&Self::of(&lit(num, strict(exclusive)), false)?)?;
                }
            }
        }
        if let Some(step) = object.get("multipleOf") {
            number.multiple = Some(Ratio::new(step.as_number()?)?);
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
    pub(super) fn step(&self) -> Option<Ratio> {
        match (self.multiple, self.integer) {
            (Some(step), true) => step.lcm(Ratio::ONE),
            (Some(step), false) => Some(step),
            (None, true) => Some(Ratio::ONE),
            (None, false) => None,
        }
    }

    /// Which multiples of the step lie inside the bounds: the first and the last one. A bound that is too
    /// long to tell counts as none.
    pub(super) fn multiples(&self) -> (Option<i128>, Option<i128>) {
        let Some(step) = self.step() else { return (None, None) };
        let first = self.least.and_then(|(num, above)| {
            let (below, exact) = step.quotient(num)?;
            Some(below + i128::from(!exact || above))
        });
        let last = self.most.and_then(|(num, below)| {
            let (last, exact) = step.quotient(num)?;
            Some(last - i128::from(exact && below))
        });
        (first, last)
    }

    pub(super) fn single(&self) -> Option<Num> {
        match (self.least, self.most) {
            (Some((a, false)), Some((b, false))) if a == b => Some(a),
            _ => None,
        }
    }

    /// The smallest and the largest whole number inside the bounds.
    pub(super) fn whole_bounds(&self) -> (Option<i128>, Option<i128>) {
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
        let (Some(first), Some(last)) = self.multiples() else { return false };
        let excluded = |count: i128| step.times(count).is_some_and(|num| !self.allows(num));
        first > last || (last - first <= MAX_LISTED && (first..=last).all(excluded))
    }

    /// All numbers, if they are whole and at most `MAX_LISTED` multiples are in the bounds. Stops
    /// after `enough`.
    pub(super) fn listed(&self, enough: usize) -> Option<Vec<i128>> {
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

    pub(crate) fn is_whole(&self) -> bool {
        self.integer
    }

    /// Whether its digits have an end.
    pub(crate) fn is_bounded_whole(&self) -> bool {
        self.integer && self.least.is_some() && self.most.is_some()
    }

    pub(crate) fn is_any(&self) -> bool {
        *self == Self::default()
    }
}
