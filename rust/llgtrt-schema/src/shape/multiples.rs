//! Multiples of a step as regular expressions over decimal digits: exact for numbers of any size, as JSON writes them
//! without an exponent.
//!
//! Whether a number is a multiple of 2 and of 5, its last digits tell; of 3, the sum of its digits. Other primes take
//! expressions too long to be of use.

use crate::formula::Ratio;

/// Endings that are listed for one number of digits behind the point.
const MAX_ENDINGS: u64 = 200;

/// Expressions that all multiples of the step match, and that nothing else does which is a number; `None` where there
/// are none of a reasonable length.
pub(super) fn multiples(step: Ratio) -> Option<Vec<String>> {
    let behind = step.digits()?;
    // In units of the last digit.
    let mut count = step.top.checked_mul(10_u64.checked_pow(behind)? / step.bottom)?;
    let (twos, fives) = (divide_out(&mut count, 2), divide_out(&mut count, 5));
    let mut patterns = vec![endings(behind, twos, fives)?];
    match count {
        1 => {}
        3 => patterns.push(multiples_of_three()),
        _ => return None,
    }
    Some(patterns)
}

/// How often the number can be divided by the prime, which it then is.
fn divide_out(number: &mut u64, prime: u64) -> u32 {
    let mut times = 0;
    while number.is_multiple_of(prime) {
        *number /= prime;
        times += 1;
    }
    times
}

/// Numbers of at most this many digits behind the point, and zeros, that are multiples of 2 and 5 so many times, counted
/// in units of the last of these digits.
fn endings(behind: u32, twos: u32, fives: u32) -> Option<String> {
    let mut parts = Vec::new();
    for written in 0..=behind {
        // The digits that are not written are zeros.
        let left_out = behind - written;
        let zeros = if written == behind { if written == 0 { r"(?:\.0+)?" } else { "0*" } } else { "" };
        let (twos, fives) = (twos.saturating_sub(left_out), fives.saturating_sub(left_out));
        parts.push(format!("{}{zeros}", of_length(written as usize, twos, fives)?));
    }
    Some(format!("-?(?:{})", parts.join("|")))
}

/// The same with exactly so many digits behind the point.
fn of_length(behind: usize, twos: u32, fives: u32) -> Option<String> {
    let deciding = twos.max(fives) as usize;
    let step = 2_u64.checked_pow(twos)?.checked_mul(5_u64.checked_pow(fives)?)?;
    let all = 10_u64.checked_pow(deciding as u32)?;
    if all / step > MAX_ENDINGS {
        return None;
    }
    let endings = |width: usize| (0..all / step).map(move |n| format!("{:0width$}", n * step)).collect();
    let whole = "(?:0|[1-9][0-9]*)";
    if deciding <= behind {
        let free = behind - deciding;
        let endings: Vec<String> = if deciding == 0 { vec![String::new()] } else { endings(deciding) };
        let point = if behind == 0 { "" } else { r"\." };
        return Some(format!("{whole}{point}[0-9]{{{free}}}(?:{})", endings.join("|")));
    }
    let with_point = |digits: &String| match digits.split_at(digits.len() - behind) {
        (whole, "") => whole.to_owned(),
        (whole, fraction) => format!(r"{whole}\.{fraction}"),
    };
    // With no more digits than those that decide there is one way to write each.
    let short: Vec<String> = endings(behind + 1).iter().map(with_point).collect();
    let long: Vec<String> = endings(deciding).iter().map(with_point).collect();
    Some(format!("(?:{}|[1-9][0-9]*(?:{}))", short.join("|"), long.join("|")))
}

/// Texts whose digits have a sum that 3 divides: an automaton of the remainders, with those other than 0 worked in.
fn multiples_of_three() -> String {
    let (none, one, two) = ("[-.0369]", "[147]", "[258]");
    let by_one = |from: &str, to: &str| format!("{from}{none}*{to}");
    let (round, out) = (by_one(one, two), format!("(?:{two}|{})", by_one(one, one)));
    let (stay, back) =
        (format!("(?:{none}|{})", by_one(two, one)), format!("(?:{one}|{})", by_one(two, two)));
    format!("(?:{none}|{round}|{out}{stay}*{back})*")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::languages::tests::languages;
    use crate::languages::{LanguageId, Languages};

    /// The languages of which a multiple has to be in each.
    fn patterns(langs: &mut Languages, step: &str) -> Option<Vec<LanguageId>> {
        let step = Ratio::new(&serde_json::from_str(step).unwrap()).unwrap();
        let patterns = multiples(step)?;
        Some(patterns.iter().map(|text| langs.pattern(&format!("^(?:{text})$")).unwrap().language).collect())
    }

    #[test]
    fn they_hold_the_multiples_and_no_others() {
        let steps = [
            "1", "2", "5", "8", "10", "25", "60", "0.5", "0.25", "0.2", "0.02", "1.5", "0.01", "7.5", "0.75",
        ];
        let mut langs = languages();
        for step in steps {
            let patterns = patterns(&mut langs, step).unwrap();
            let (whole, fraction) = step.split_once('.').unwrap_or((step, ""));
            let thousandths: u64 = format!("{whole}{fraction:0<3}").parse().unwrap();
            for n in (0..3000).chain((3000..130_000_u64).step_by(50)) {
                let full = format!("{}.{:03}", n / 1000, n % 1000);
                let short = full.trim_end_matches('0').trim_end_matches('.').to_owned();
                for text in [format!("-{full}0"), full, short] {
                    let taken = patterns.iter().all(|&language| langs.matches(language, &text));
                    assert_eq!(taken, n % thousandths == 0, "{text} of {step}");
                }
            }
        }
    }

    #[test]
    fn they_are_exact_at_any_size() {
        let mut langs = languages();
        let mut takes = |step: &str, text: &str| {
            let patterns = patterns(&mut langs, step).unwrap();
            patterns.iter().all(|&language| langs.matches(language, text))
        };
        assert!(takes("12", "123456789012345678901234567896"));
        assert!(!takes("12", "123456789012345678901234567890"));
        assert!(takes("0.3", "-100000000000000000000000.2"));
        assert!(!takes("0.3", "-100000000000000000000000.1"));
        for text in ["", "-", ".5", "5.", "01", "1e5"] {
            assert!(!takes("0.5", text), "{text}");
        }
    }

    #[test]
    fn other_primes_and_long_lists_of_endings_are_left_out() {
        let mut langs = languages();
        for step in ["7", "9", "0.7", "4096", "0.0016"] {
            assert!(patterns(&mut langs, step).is_none(), "{step}");
        }
    }
}
