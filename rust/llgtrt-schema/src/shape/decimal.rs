//! Ranges of decimal numbers as regular expressions, digit by digit: exact for numbers of any size, as
//! JSON writes them without an exponent.
//!
//! Pure functions; the expression is linear in the digits of the bounds.

use crate::formula::Num;

/// A number as it is written: no zeros that could be left out.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Decimal {
    negative: bool,
    whole: String,
    fraction: String,
}

impl Decimal {
    fn of(num: Num) -> Self {
        let text = match num {
            Num::Int(n) => n.to_string(),
            // All digits of a large double; those that tell a fraction apart from its neighbours.
            Num::Float(n) if n.fract() == 0.0 => format!("{n:.0}"),
            Num::Float(n) => format!("{n}"),
        };
        let (negative, text) = match text.strip_prefix('-') {
            Some(text) => (true, text),
            None => (false, text.as_str()),
        };
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        Self { negative, whole: whole.to_owned(), fraction: fraction.trim_end_matches('0').to_owned() }
    }

    fn is_zero(&self) -> bool {
        self.whole == "0" && self.fraction.is_empty()
    }
}

/// An end of an interval: where, and whether it is left out.
type End = Option<(Num, bool)>;

/// What numbers that are not whole look like.
pub(super) const FRACTION: &str = r"-?[0-9]+\.[0-9]*[1-9][0-9]*";

/// The numbers between two ends, whole ones or all; `None` if there are none.
pub(super) fn range(least: End, most: End, integer: bool) -> Option<String> {
    if least.zip(most).is_some_and(|(least, most)| least.0 > most.0) {
        return None;
    }
    let least = least.map(|(num, open)| (Decimal::of(num), open));
    let most = most.map(|(num, open)| (Decimal::of(num), open));
    let zero = Decimal { negative: false, whole: "0".to_owned(), fraction: String::new() };
    // Zero itself, with either sign, unless it is the end that is left out.
    let without_zero = [&least, &most].iter().any(|end| matches!(end, Some((n, true)) if n.is_zero()));
    let is_above = least.as_ref().is_some_and(|(n, _)| !n.negative && !n.is_zero());
    let is_below = most.as_ref().is_some_and(|(n, _)| n.negative);
    let has_zero = !without_zero && !is_above && !is_below;
    let magnitude = |end: &Option<(Decimal, bool)>| end.clone();
    let mut parts = Vec::new();
    let positive = most.as_ref().is_none_or(|(n, _)| !n.negative && (!n.is_zero() || has_zero));
    if positive {
        let from = match &least {
            Some((n, open)) if !n.negative => (n.clone(), *open),
            _ => (zero.clone(), !has_zero),
        };
        parts.extend(magnitudes(&from, magnitude(&most).as_ref(), integer));
    }
    let negative = least.as_ref().is_none_or(|(n, _)| n.negative || (n.is_zero() && has_zero));
    if negative {
        let from = match &most {
            Some((n, open)) if n.negative => (n.clone(), *open),
            _ => (zero, !has_zero),
        };
        parts.extend(magnitudes(&from, magnitude(&least).as_ref(), integer).map(|text| format!("-{text}")));
    }
    (!parts.is_empty()).then(|| any(parts))
}

/// One of the alternatives, in a group of its own if there are several.
fn any(mut parts: Vec<String>) -> String {
    if parts.len() == 1 { parts.swap_remove(0) } else { format!("(?:{})", parts.join("|")) }
}

fn digits(from: u8, to: u8) -> String {
    match (from, to) {
        (from, to) if from == to => char::from(from).to_string(),
        (from, to) => format!("[{}-{}]", char::from(from), char::from(to)),
    }
}

/// This many digits.
fn many(count: usize) -> String {
    match count {
        0 => String::new(),
        1 => "[0-9]".to_owned(),
        count => format!("[0-9]{{{count}}}"),
    }
}

/// Numbers without a sign from one to another, or without end.
fn magnitudes(from: &(Decimal, bool), to: Option<&(Decimal, bool)>, integer: bool) -> Option<String> {
    if integer {
        return whole_magnitudes(from, to);
    }
    let (least, above) = (&from.0, from.1);
    if let Some((most, below)) = to {
        if least.whole == most.whole {
            let tail = tail_between(&least.fraction, above, &most.fraction, *below)?;
            return Some(format!("{}{tail}", least.whole));
        }
    }
    let mut parts = Vec::new();
    let mut first = least.whole.clone();
    if above || !least.fraction.is_empty() {
        parts.push(format!("{}{}", least.whole, tail_least(&least.fraction, above)));
        first = successor(&first);
    }
    let last = to.map(|(most, _)| predecessor(&most.whole));
    if let Some(whole) = integers(&first, last.as_deref()) {
        parts.push(format!(r"{whole}(?:\.[0-9]+)?"));
    }
    if let Some((most, below)) = to {
        parts.extend(tail_most(&most.fraction, *below).map(|tail| format!("{}{tail}", most.whole)));
    }
    (!parts.is_empty()).then(|| any(parts))
}

fn whole_magnitudes(from: &(Decimal, bool), to: Option<&(Decimal, bool)>) -> Option<String> {
    let first =
        if from.1 || !from.0.fraction.is_empty() { successor(&from.0.whole) } else { from.0.whole.clone() };
    let Some((most, below)) = to else { return integers(&first, None) };
    if *below && most.fraction.is_empty() {
        if most.whole == "0" {
            return None;
        }
        return integers(&first, Some(&predecessor(&most.whole)));
    }
    integers(&first, Some(&most.whole))
}

/// The next whole number.
fn successor(digits: &str) -> String {
    let kept = digits.trim_end_matches('9');
    let zeros = "0".repeat(digits.len() - kept.len());
    match kept.as_bytes().split_last() {
        Some((last, head)) => {
            format!("{}{}{zeros}", String::from_utf8_lossy(head), char::from(last + 1))
        }
        None => format!("1{zeros}"),
    }
}

/// The whole number before one that is not 0.
fn predecessor(digits: &str) -> String {
    let kept = digits.trim_end_matches('0');
    let nines = "9".repeat(digits.len() - kept.len());
    let Some((last, head)) = kept.as_bytes().split_last() else { return "0".to_owned() };
    let text = format!("{}{}{nines}", String::from_utf8_lossy(head), char::from(last - 1));
    let short = text.trim_start_matches('0');
    if short.is_empty() { "0".to_owned() } else { short.to_owned() }
}

/// Whole numbers from one to another, or without end; `None` if there are none.
fn integers(first: &str, last: Option<&str>) -> Option<String> {
    let mut parts = Vec::new();
    let nines = "9".repeat(first.len());
    let Some(last) = last else {
        parts.push(same_length(first.as_bytes(), nines.as_bytes()));
        parts.push(format!("[1-9][0-9]{{{},}}", first.len()));
        return Some(any(parts));
    };
    if (first.len(), first) > (last.len(), last) {
        return None;
    }
    if first.len() == last.len() {
        return Some(same_length(first.as_bytes(), last.as_bytes()));
    }
    parts.push(same_length(first.as_bytes(), nines.as_bytes()));
    if last.len() > first.len() + 1 {
        parts.push(format!("[1-9][0-9]{{{},{}}}", first.len(), last.len() - 2));
    }
    let least = format!("1{}", "0".repeat(last.len() - 1));
    parts.push(same_length(least.as_bytes(), last.as_bytes()));
    Some(any(parts))
}

/// Runs of digits as long as both, from one to the other.
fn same_length(first: &[u8], last: &[u8]) -> String {
    let common = first.iter().zip(last).take_while(|(a, b)| a == b).count();
    let head = String::from_utf8_lossy(&first[..common]).into_owned();
    let (Some((&a, low)), Some((&b, high))) = (first[common..].split_first(), last[common..].split_first())
    else {
        return head;
    };
    let mut parts = Vec::new();
    let (mut from, mut to) = (a, b);
    let mut above = None;
    if low.iter().any(|&digit| digit != b'0') {
        parts.push(format!("{}{}", char::from(a), same_length(low, &vec![b'9'; low.len()])));
        from += 1;
    }
    if high.iter().any(|&digit| digit != b'9') {
        above = Some(format!("{}{}", char::from(b), same_length(&vec![b'0'; high.len()], high)));
        to -= 1;
    }
    if from <= to {
        parts.push(format!("{}{}", digits(from, to), many(low.len())));
    }
    parts.extend(above);
    format!("{head}{}", any(parts))
}

/// What follows the whole part of the least number: this fraction or more.
fn tail_least(fraction: &str, above: bool) -> String {
    match (fraction, above) {
        ("", false) => r"(?:\.[0-9]+)?".to_owned(),
        ("", true) => r"\.[0-9]*[1-9][0-9]*".to_owned(),
        (fraction, above) => format!(r"\.{}", fraction_least(fraction.as_bytes(), above)),
    }
}

/// What follows the whole part of the greatest number: this fraction or less.
fn tail_most(fraction: &str, below: bool) -> Option<String> {
    match (fraction, below) {
        ("", false) => Some(r"(?:\.0+)?".to_owned()),
        ("", true) => None,
        (fraction, below) => Some(match fraction_most(fraction.as_bytes(), below) {
            Some(text) => format!(r"(?:\.{text})?"),
            None => String::new(),
        }),
    }
}

fn tail_between(low: &str, above: bool, high: &str, below: bool) -> Option<String> {
    let bare = low.is_empty() && !above && (!high.is_empty() || !below);
    let some = if high.is_empty() {
        bare.then(|| "0+".to_owned())
    } else {
        fraction_between(low.as_bytes(), above, high.as_bytes(), below)
    };
    match (some, bare) {
        (Some(text), true) => Some(format!(r"(?:\.{text})?")),
        (Some(text), false) => Some(format!(r"\.{text}")),
        (None, true) => Some(String::new()),
        (None, false) => None,
    }
}

/// Digits of a fraction that is at least, or above, this one, which is not 0.
fn fraction_least(low: &[u8], above: bool) -> String {
    let Some((&digit, rest)) = low.split_first() else {
        return if above { "[0-9]*[1-9][0-9]*" } else { "[0-9]*" }.to_owned();
    };
    let mut parts = vec![format!("{}{}", char::from(digit), fraction_least(rest, above))];
    if digit < b'9' {
        parts.push(format!("{}[0-9]*", digits(digit + 1, b'9')));
    }
    any(parts)
}

/// Digits, at least one, of a fraction that is at most, or below, this one, which is not 0.
fn fraction_most(high: &[u8], below: bool) -> Option<String> {
    let (&digit, rest) = high.split_first()?;
    let mut parts = Vec::new();
    if digit > b'0' {
        parts.push(format!("{}[0-9]*", digits(b'0', digit - 1)));
    }
    parts.extend(up_to(digit, rest, below));
    (!parts.is_empty()).then(|| any(parts))
}

/// The digit, and then digits up to the rest.
fn up_to(digit: u8, rest: &[u8], below: bool) -> Option<String> {
    let digit = char::from(digit);
    if rest.is_empty() {
        return (!below).then(|| format!("{digit}0*"));
    }
    Some(match fraction_most(rest, below) {
        Some(text) => format!("{digit}(?:{text})?"),
        None => digit.to_string(),
    })
}

/// Digits, at least one, of a fraction between two; the second one is not 0.
fn fraction_between(low: &[u8], above: bool, high: &[u8], below: bool) -> Option<String> {
    if low.is_empty() && !above {
        return fraction_most(high, below);
    }
    let (&b, high) = high.split_first()?;
    let (&a, low) = low.split_first().unwrap_or((&b'0', &[]));
    let mut parts = Vec::new();
    if a == b {
        let stop = low.is_empty() && !above && (!high.is_empty() || !below);
        match (fraction_between(low, above, high, below), stop) {
            (Some(text), true) => parts.push(format!("{}(?:{text})?", char::from(a))),
            (Some(text), false) => parts.push(format!("{}{text}", char::from(a))),
            (None, true) => parts.push(format!("{}0*", char::from(a))),
            (None, false) => {}
        }
    } else {
        parts.push(format!("{}{}", char::from(a), fraction_least(low, above)));
        if b > a + 1 {
            parts.push(format!("{}[0-9]*", digits(a + 1, b - 1)));
        }
        parts.extend(up_to(b, high, below));
    }
    (!parts.is_empty()).then(|| any(parts))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::languages::{LanguageId, Languages};

    fn num(text: &str) -> Num {
        Num::new(&serde_json::from_str(text).unwrap()).unwrap()
    }

    /// The language of a range in which numbers may be written in any way.
    fn language(langs: &mut Languages, least: End, most: End, integer: bool) -> Option<LanguageId> {
        let text = range(least, most, integer)?;
        Some(langs.pattern(&format!("^(?:{text})$")).unwrap().language)
    }

    #[test]
    fn ranges_hold_what_lies_between_their_ends() {
        let ends = [
            "-12", "-1.25", "-1", "-0.53", "-0.5", "-0.05", "0", "0.05", "0.5", "0.53", "0.99", "1", "1.25",
            "9", "10", "12",
        ];
        let mut texts: Vec<String> = Vec::new();
        for whole in ["0", "1", "2", "8", "9", "10", "11", "12", "13", "99", "100"] {
            for fraction in [
                "", ".0", ".00", ".04", ".05", ".050", ".06", ".1", ".25", ".250", ".26", ".4", ".5", ".50",
                ".52", ".53", ".530", ".54", ".9", ".98", ".99", ".991",
            ] {
                texts.push(format!("{whole}{fraction}"));
                texts.push(format!("-{whole}{fraction}"));
            }
        }
        let mut langs = crate::languages::tests::languages();
        let open = [false, true];
        let all: Vec<End> = std::iter::once(None)
            .chain(ends.iter().flat_map(|end| open.map(|open| Some((num(end), open)))))
            .collect();
        for &least in &all {
            for &most in &all {
                for integer in open {
                    let language = language(&mut langs, least, most, integer);
                    for text in &texts {
                        if integer && text.contains('.') {
                            continue;
                        }
                        let n = num(text);
                        let inside = least.is_none_or(|(end, open)| n > end || (n == end && !open))
                            && most.is_none_or(|(end, open)| n < end || (n == end && !open));
                        let held = language.is_some_and(|language| langs.matches(language, text));
                        assert_eq!(held, inside, "{text} from {least:?} to {most:?}, whole: {integer}");
                    }
                }
            }
        }
    }

    #[test]
    fn ranges_are_exact_at_any_size() {
        let mut langs = crate::languages::tests::languages();
        let cases = [
            ("-9223372036854775808", "9223372036854775807", "-9223372036854775809", "9223372036854775808"),
            ("0", "18446744073709551615", "-1", "18446744073709551616"),
            ("9007199254740993", "9007199254740993", "9007199254740992", "9007199254740994"),
            (
                "-1e30",
                "1e40",
                "-1000000000000000019884624838657",
                "10000000000000000303786028427003666890753",
            ),
        ];
        for (least, most, under, over) in cases {
            let ends = (Some((num(least), false)), Some((num(most), false)));
            let language = language(&mut langs, ends.0, ends.1, true).unwrap();
            let inside = [least, most].map(|text| Decimal::of(num(text)));
            for Decimal { negative, whole, .. } in inside {
                let text = format!("{}{whole}", if negative { "-" } else { "" });
                assert!(langs.matches(language, &text), "{text} in {least} to {most}");
            }
            for text in [under, over, "", "-", "00", "01"] {
                assert!(!langs.matches(language, text), "{text} in {least} to {most}");
            }
        }
    }
}
