//! Sets of Unicode scalar values, as sorted ranges. Pure data.

use std::fmt::Write;

const MAX: u32 = 0x10_FFFF;
const SURROGATES: (u32, u32) = (0xD800, 0xDFFF);

/// Sorted, disjoint, not adjacent, without surrogates.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Chars(Vec<(u32, u32)>);

impl Chars {
    pub(crate) fn new(ranges: impl IntoIterator<Item = (u32, u32)>) -> Self {
        let mut list: Vec<(u32, u32)> = Vec::new();
        for (from, to) in ranges {
            // Surrogates are not characters.
            let parts = [(from, to.min(SURROGATES.0 - 1)), (from.max(SURROGATES.1 + 1), to.min(MAX))];
            list.extend(parts.into_iter().filter(|(from, to)| from <= to));
        }
        list.sort_unstable();
        let mut merged: Vec<(u32, u32)> = Vec::with_capacity(list.len());
        for (from, to) in list {
            match merged.last_mut() {
                Some(last) if from <= next(last.1) => last.1 = last.1.max(to),
                _ => merged.push((from, to)),
            }
        }
        Self(merged)
    }

    pub(crate) fn one(c: char) -> Self {
        Self(vec![(c as u32, c as u32)])
    }

    pub(crate) fn any() -> Self {
        Self::new([(0, MAX)])
    }

    pub(crate) fn ranges(&self) -> &[(u32, u32)] {
        &self.0
    }

    /// The bytes that a character of the set begins with in UTF-8.
    pub(crate) fn first_bytes(&self) -> [bool; 256] {
        let first = |c: u32| match c {
            0..0x80 => c,
            0x80..0x800 => 0xC0 | c >> 6,
            0x800..0x1_0000 => 0xE0 | c >> 12,
            _ => 0xF0 | c >> 18,
        };
        let mut bytes = [false; 256];
        for &(low, high) in self.ranges() {
            bytes[first(low) as usize..=first(high) as usize].fill(true);
        }
        bytes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn contains(&self, c: u32) -> bool {
        let index = self.0.partition_point(|&(_, to)| to < c);
        self.0.get(index).is_some_and(|&(from, _)| from <= c)
    }

    pub(crate) fn negate(&self) -> Self {
        let mut gaps = Vec::new();
        let mut from = 0;
        for &(start, end) in &self.0 {
            if start > from {
                gaps.push((from, start - 1));
            }
            from = end + 1;
        }
        if from <= MAX {
            gaps.push((from, MAX));
        }
        Self::new(gaps)
    }

    pub(crate) fn union(&self, other: &Self) -> Self {
        Self::new(self.0.iter().chain(&other.0).copied())
    }

    pub(crate) fn intersection(&self, other: &Self) -> Self {
        let (mut a, mut b) = (self.0.iter().peekable(), other.0.iter().peekable());
        let mut both = Vec::new();
        while let (Some(&&(from, to)), Some(&&(start, end))) = (a.peek(), b.peek()) {
            if from.max(start) <= to.min(end) {
                both.push((from.max(start), to.min(end)));
            }
            if to < end { _ = a.next() } else { _ = b.next() }
        }
        Self(both)
    }

    /// The set with all characters that differ only in case, one by one (Unicode's simple case folding).
    pub(crate) fn fold_case(&self) -> Self {
        use regex_syntax::hir::{ClassUnicode, ClassUnicodeRange};
        let ranges = self.0.iter().filter_map(|&(from, to)| {
            Some(ClassUnicodeRange::new(char::from_u32(from)?, char::from_u32(to)?))
        });
        let mut class = ClassUnicode::new(ranges);
        class.case_fold_simple();
        Self::new(class.ranges().iter().map(|range| (range.start() as u32, range.end() as u32)))
    }

    /// Whether llguidance's quoting of strings gets the set wrong: for a set with all control
    /// characters it allows `\\"` and `\\\\` even if quote and backslash are not in the set.
    pub(crate) fn is_misquoted(&self) -> bool {
        let controls = (0..32).all(|c| c == 10 || self.contains(c));
        controls && !(self.contains('"' as u32) && self.contains('\\' as u32))
    }

    /// Writes the set in the syntax of the regex crates. U+0000 is left out of sets that would be
    /// misquoted with it.
    pub(crate) fn write(&self, out: &mut String) {
        if self.is_misquoted() {
            let without = self.negate().union(&Self::one('\0')).negate();
            return without.write(out);
        }
        if let [(from, to)] = self.0[..] {
            if from == to {
                write_char(from, out);
                return;
            }
        }
        if self.0.is_empty() {
            out.push_str("[^\\x{0}-\\x{10FFFF}]");
            return;
        }
        out.push('[');
        let negated = self.negate();
        let shown = if negated.0.len() < self.0.len() && !negated.is_empty() {
            out.push('^');
            &negated
        } else {
            self
        };
        for &(from, to) in &shown.0 {
            write_char(from, out);
            if to > from {
                if to > from + 1 {
                    out.push('-');
                }
                write_char(to, out);
            }
        }
        out.push(']');
    }
}

/// The next scalar value: ranges on both sides of the surrogates are adjacent.
fn next(c: u32) -> u32 {
    if c + 1 == SURROGATES.0 { SURROGATES.1 + 1 } else { c + 1 }
}

fn write_char(c: u32, out: &mut String) {
    match char::from_u32(c) {
        Some(c)
            if c.is_ascii_alphanumeric()
                || matches!(
                    c,
                    '_' | ' ' | ',' | ':' | ';' | '@' | '=' | '<' | '>' | '\'' | '"' | '%' | '!'
                ) =>
        {
            out.push(c);
        }
        Some(c) if c.is_ascii_punctuation() => {
            out.push('\\');
            out.push(c);
        }
        _ => {
            let _ = write!(out, "\\x{{{c:X}}}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_boolean() {
        let digits = Chars::new([(48, 57)]);
        assert!(digits.contains(50) && !digits.contains(58));
        assert_eq!(digits.negate().negate(), digits);
        assert_eq!(digits.union(&digits.negate()), Chars::any());
        assert!(digits.intersection(&digits.negate()).is_empty());
        let some = Chars::new([(40, 49), (55, 55), (57, 90)]);
        assert_eq!(some.intersection(&digits), Chars::new([(48, 49), (55, 55), (57, 57)]));
        assert_eq!(digits.intersection(&some), some.intersection(&digits));
        let mut text = String::new();
        digits.negate().write(&mut text);
        assert_eq!(text, "[^0-9]");
    }
}
