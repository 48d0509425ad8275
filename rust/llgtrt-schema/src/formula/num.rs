//! Exact numbers: bounds compare as numbers, whatever way they were written, and multiples are
//! ratios. Pure data.

use std::cmp::Ordering;

use serde_json::{Number, Value};

/// A JSON number.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Num {
    Int(i128),
    /// Finite and not a whole number, or beyond the whole numbers above.
    Float(f64),
}

impl Num {
    pub(crate) fn new(number: &Number) -> Option<Self> {
        if let Some(n) = number.as_i64() {
            return Some(Num::Int(n.into()));
        }
        if let Some(n) = number.as_u64() {
            return Some(Num::Int(n.into()));
        }
        number.as_f64().filter(|n| n.is_finite()).map(Self::from_f64)
    }

    pub(crate) fn from_f64(n: f64) -> Self {
        if n.fract() == 0.0 && n.abs() < 1e30 { Num::Int(n as i128) } else { Num::Float(n) }
    }

    pub(crate) fn is_int(self) -> bool {
        matches!(self, Num::Int(_))
    }

    pub(crate) fn as_f64(self) -> f64 {
        match self {
            Num::Int(n) => n as f64,
            Num::Float(n) => n,
        }
    }

    /// Whether llguidance, which computes with doubles, writes the number as it is.
    pub(crate) fn is_double(self) -> bool {
        match self {
            Num::Int(n) => n.unsigned_abs() <= 1 << 53,
            Num::Float(n) => n.abs() < 1e15 && n.abs() > 1e-15,
        }
    }

    /// Whether all numbers inside the value are written as they are.
    pub(crate) fn all_doubles(value: &Value) -> bool {
        match value {
            Value::Number(number) => Num::new(number).is_some_and(Num::is_double),
            Value::Array(list) => list.iter().all(Self::all_doubles),
            Value::Object(members) => members.values().all(Self::all_doubles),
            _ => true,
        }
    }

    pub(crate) fn to_value(self) -> Value {
        match self {
            Num::Int(n) => i64::try_from(n)
                .map(Value::from)
                .or_else(|_| u64::try_from(n).map(Value::from))
                .unwrap_or_else(|_| Value::from(n as f64)),
            Num::Float(n) => Value::from(n),
        }
    }
}

impl PartialEq for Num {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Num {}

impl PartialOrd for Num {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Num {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Num::Int(a), Num::Int(b)) => a.cmp(b),
            // One of them is not whole (or huge): doubles tell them apart, since a whole number is
            // compared with a fraction.
            _ => self.as_f64().total_cmp(&other.as_f64()),
        }
    }
}

impl std::hash::Hash for Num {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.as_f64().to_bits().hash(state);
    }
}

/// A positive ratio of whole numbers, reduced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Ratio {
    pub(crate) top: u64,
    pub(crate) bottom: u64,
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

impl Ratio {
    pub(crate) const ONE: Ratio = Ratio { top: 1, bottom: 1 };

    fn reduced(top: u64, bottom: u64) -> Self {
        let common = gcd(top, bottom).max(1);
        Self { top: top / common, bottom: bottom / common }
    }

    /// The decimal number as written, if it is positive and not too long.
    pub(crate) fn new(number: &Number) -> Option<Self> {
        Self::of(Num::new(number)?).filter(|r| r.top > 0)
    }

    /// The absolute value.
    pub(crate) fn of(num: Num) -> Option<Self> {
        match num {
            Num::Int(n) => u64::try_from(n.unsigned_abs()).ok().map(|top| Self { top, bottom: 1 }),
            Num::Float(n) => {
                let text = format!("{}", n.abs());
                let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
                let bottom = 10_u64.checked_pow(u32::try_from(fraction.len()).ok()?)?;
                let top = whole.parse::<u64>().ok()?.checked_mul(bottom)?;
                let top = top.checked_add(if fraction.is_empty() { 0 } else { fraction.parse().ok()? })?;
                Some(Self::reduced(top, bottom))
            }
        }
    }

    /// The least common multiple, if it is not too large.
    pub(crate) fn lcm(self, other: Self) -> Option<Self> {
        let top = (self.top / gcd(self.top, other.top)).checked_mul(other.top)?;
        Some(Self::reduced(top, gcd(self.bottom, other.bottom)))
    }

    /// Whether every multiple of `self` is a multiple of `other`.
    pub(crate) fn is_multiple_of(self, other: Self) -> bool {
        let top = u128::from(self.top) * u128::from(other.bottom);
        let bottom = u128::from(self.bottom) * u128::from(other.top);
        bottom != 0 && top % bottom == 0
    }

    /// Whether the number is a multiple; `None` if it is too long to tell.
    pub(crate) fn divides(self, num: Num) -> Option<bool> {
        let Some(size) = Self::of(num) else { return self.is_too_coarse_for(num).then_some(false) };
        Some(size.top == 0 || size.is_multiple_of(self))
    }

    /// Whether the number has more digits behind the point than any multiple.
    fn is_too_coarse_for(self, num: Num) -> bool {
        let Num::Float(n) = num else { return false };
        let text = n.to_string();
        let digits = text.split_once('.').map_or(0, |(_, fraction)| fraction.len());
        self.digits().is_some_and(|most| digits > most as usize)
    }

    /// How many times the ratio goes into the number, rounded down, and whether nothing is left; `None`
    /// if the numbers are too long to tell.
    pub(crate) fn quotient(self, num: Num) -> Option<(i128, bool)> {
        let size = Self::of(num)?;
        let top = i128::from(size.top).checked_mul(i128::from(self.bottom))?;
        let bottom = i128::from(size.bottom).checked_mul(i128::from(self.top))?;
        let top = if num < Num::Int(0) { -top } else { top };
        (bottom > 0).then(|| (top.div_euclid(bottom), top.rem_euclid(bottom) == 0))
    }

    /// So many times the ratio, if that is a number that a double tells apart.
    pub(crate) fn times(self, count: i128) -> Option<Num> {
        let bottom = i128::from(self.bottom);
        let top = count.checked_mul(i128::from(self.top))?;
        if top % bottom == 0 {
            return Some(Num::Int(top / bottom));
        }
        let num = Num::Float(top as f64 / self.bottom as f64);
        let size = Self::reduced(u64::try_from(top.unsigned_abs()).ok()?, self.bottom);
        (Self::of(num) == Some(size)).then_some(num)
    }

    /// Digits behind the point that its multiples may need; `None` if there is no end to them.
    pub(crate) fn digits(self) -> Option<u32> {
        (0..=18).find(|&digits| 10_u64.pow(digits).is_multiple_of(self.bottom))
    }

    /// Whether the automaton of its multiples, which has a state per remainder, stays small.
    fn is_light(digits: u64) -> bool {
        let mut rest = digits;
        for factor in [2, 5] {
            while rest > 0 && rest.is_multiple_of(factor) {
                rest /= factor;
            }
        }
        digits <= 50_000 || (rest == 1 && u32::try_from(digits).is_ok())
    }

    /// As llguidance reads it: a double of few digits.
    pub(crate) fn to_value(self) -> Option<Value> {
        if self.bottom == 1 {
            return Self::is_light(self.top).then(|| Value::from(self.top));
        }
        let number = self.top as f64 / self.bottom as f64;
        // What llguidance does to get the digits back.
        let (mut scaled, mut digits) = (number, 0);
        while scaled.fract() != 0.0 && digits < 12 {
            scaled *= 10.0;
            digits += 1;
        }
        let exact = Self::of(Num::from_f64(number)) == Some(self)
            && scaled.fract() == 0.0
            && scaled <= f64::from(u32::MAX)
            && Self::is_light(scaled as u64)
            && Self::reduced(scaled as u64, 10_u64.pow(digits)) == self;
        exact.then(|| Value::from(number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn num(text: &str) -> Num {
        Num::new(&serde_json::from_str(text).unwrap()).unwrap()
    }

    #[test]
    fn numbers_compare_by_value() {
        assert_eq!(num("1.0"), num("1"));
        assert!(num("1.5") > num("1") && num("-2") < num("-1.5"));
        assert!(num("9007199254740993") > num("9007199254740992"));
    }

    #[test]
    fn a_number_with_more_digits_than_a_multiple_is_none() {
        let half = Ratio::of(num("0.5")).unwrap();
        assert_eq!(half.divides(num("1.221e-188")), Some(false));
        assert_eq!(half.divides(num("-3.5e-20")), Some(false));
        assert_eq!(half.divides(num("1e300")), None);
    }

    #[test]
    fn ratios_are_exact() {
        let ratio = |text: &str| Ratio::of(num(text)).unwrap();
        assert_eq!(ratio("0.01").divides(num("0.07")), Some(true));
        assert_eq!(ratio("0.3").divides(num("1")), Some(false));
        assert_eq!(ratio("2.5").lcm(ratio("4")), Some(ratio("20")));
        assert_eq!(ratio("6").lcm(ratio("4")), Some(ratio("12")));
        assert_eq!(ratio("0.5").lcm(Ratio::ONE), Some(Ratio::ONE));
        assert!(ratio("0.07").to_value().is_none() || ratio("0.07").to_value() == Some(Value::from(0.07)));
    }
}
