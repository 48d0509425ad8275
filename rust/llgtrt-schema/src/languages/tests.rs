//! Tests of patterns: matching, algebra, and writing them back.

use super::*;
use crate::limits::NormalizeLimits;

pub(crate) fn languages() -> Languages {
    Languages::new(&Budget::new(&NormalizeLimits::default()))
}

fn finds(pattern: &str, text: &str) -> bool {
    let mut langs = languages();
    let language = langs.pattern(pattern).unwrap().language;
    langs.matches(language, text)
}

#[test]
fn patterns_search() {
    for (pattern, yes, no) in [
        ("a|b", "xbx", "xyz"),
        ("^a", "ab", "ba"),
        ("^a$|b", "xxb", "aa"),
        (r"^\d{2,3}$", "12", "1"),
        (r"^[\w.-]+$", "a-b.c", "a b"),
        ("^(?!foo).*$", "bar", "foobar"),
        ("^(?=.*x)(?=.*y)", "ayx", "ax"),
        ("^(?!.*--)[a-z-]+$", "a-b", "a--b"),
        ("a{,2}", "a{,2}", "aa"),
        (r"^\u00e9\/$", "é/", "e/"),
        (r"^[^]$", "\n", ""),
        ("^([^,]+(,|$)){3,}$", "a,b,c", "a,b"),
        ("^(a($|/))*$", "a/a", "aa"),
        ("(a|$){2}b", "aab", "a"),
    ] {
        assert!(finds(pattern, yes), "{pattern} finds {yes}");
        assert!(!finds(pattern, no), "{pattern} does not find {no}");
    }
}

#[test]
fn unsupported_patterns_say_why() {
    for (pattern, word) in [
        (r"(\bx)*", "repetition"),
        (r"(a)\1", "back-references"),
        ("(?<=a)b", "look-behind"),
        ("(", "unclosed"),
        ("[a", "unclosed"),
        ("a)", "unopened"),
        ("*a", "nothing to repeat"),
        ("a**", "nothing to repeat"),
        ("{{...}}", "nothing to repeat"),
        ("(?:(?=a)b)*", "repetition"),
    ] {
        let error = languages().pattern(pattern).map(|_| ()).unwrap_err();
        assert!(error.message.contains(word), "{pattern}: {error:?}");
    }
}

#[test]
fn ignored_case_folds_characters_and_ranges() {
    for (pattern, yes, no) in [
        ("(?i)^[a-z]+$", "aBc", "-"),
        (r"(?i)^\u0041$", "a", "b"),
        (r"(?i)^\x41$", "a", "b"),
        ("(?i)^ß$", "\u{1E9E}", "S"),
        ("(?i)^[^a-c]$", "d", "B"),
        ("(?i)^[à-é]$", "É", "z"),
        ("^(?i)abc$", "ABC", "abd"),
        ("^(?i:a)b$", "Ab", "AB"),
        ("^((?i)a)b$", "Ab", "AB"),
        ("^(?i-s:a.)b$", "A b", "A\nb"),
        ("^(?s)a.b$", "a\nb", "ab"),
    ] {
        assert!(finds(pattern, yes), "{pattern} finds {yes}");
        assert!(!finds(pattern, no), "{pattern} does not find {no}");
    }
    for bad in ["(?)a", "(?x)a", "(?i", "(?--i)a"] {
        assert!(languages().pattern(bad).is_err(), "{bad}");
    }
}

#[test]
fn word_boundaries_see_the_characters_around_them() {
    let cases: [(&str, &[&str], &[&str]); 10] = [
        (r"\bfoo\b", &["a foo.", "foo", "éfoo"], &["foox", "xfoo", "_foo"]),
        (r"^\bfoo\b$", &["foo"], &["foo ", " foo"]),
        (r"^\w+\b.\b\w+$", &["a-b", "ab c"], &["a--b", "abc"]),
        (r"^\B", &["", " x"], &["x"]),
        (r"a\Bb", &["ab", "xabx"], &["a b"]),
        (r"^(\bno|yes)\b", &["yes!", "no"], &["yesno", "now"]),
        (r"^(?:\bab\b ?){2}$", &["ab ab", "ab ab "], &["abab", "ab"]),
        (r"^a*\b", &["aa", "_", "x"], &["-a", ""]),
        (r"^(?!.*\bbad\b).*$", &["badly", ""], &["so bad", "bad"]),
        (r"(?:x\b)?y", &["y", "xy", "x y"], &["x"]),
    ];
    for (pattern, yes, no) in cases {
        for text in yes {
            assert!(finds(pattern, text), "{pattern} finds {text}");
        }
        for text in no {
            assert!(!finds(pattern, text), "{pattern} does not find {text}");
        }
    }
}

#[test]
fn what_is_printed_means_the_same() {
    let samples = ["", "a", "b", "ab", "ba", "aab", "foo", "foobar", "xfoo", "é", "a\n", "12", "--", "a-b"];
    for pattern in ["^a*b?$", "^(?!foo)", "a|^b", "^[a-z]{1,3}$", "^(a|b)*ab$", "o{2}", "^(?!.*a).*$"] {
        let mut langs = languages();
        let language = langs.pattern(pattern).unwrap().language;
        let negated = langs.not(language);
        for (x, expect) in [(language, true), (negated, false)] {
            let text = langs.print(x, 10_000).unwrap();
            let again = langs.pattern(&text).unwrap().language;
            for sample in samples {
                assert_eq!(
                    langs.matches(again, sample),
                    finds(pattern, sample) == expect,
                    "{pattern} as {text} on {sample:?}"
                );
            }
        }
    }
}

#[test]
fn disjoint_patterns_are_found() {
    let mut langs = languages();
    let a = langs.pattern("^x-").unwrap().language;
    let b = langs.pattern("^[a-w]").unwrap().language;
    let both = langs.and([a, b]);
    assert_eq!(langs.is_empty(both), Some(true));
    let c = langs.pattern("y$").unwrap().language;
    let both = langs.and([a, c]);
    assert_eq!(langs.is_empty(both), Some(false));
}

#[test]
fn questions_stay_open_when_their_part_of_the_budget_is_spent() {
    let budget = Budget::new(&NormalizeLimits { max_steps: 3000, ..NormalizeLimits::default() });
    let mut langs = Languages::new(&budget);
    let hard = langs.pattern("^(a|b)*a(a|b){18}$").unwrap().language;
    let hard = langs.not(hard);
    assert_eq!(langs.print(hard, 10_000), None);
    let word = langs.pattern("^a[bc]+$").unwrap().language;
    assert_eq!(langs.is_empty(word), None);
    assert!(langs.matches(word, "abc") && !budget.is_spent());
}

#[test]
fn matching_is_bounded() {
    let budget = Budget::new(&NormalizeLimits::default());
    let mut langs = Languages::new(&budget);
    let language = langs.pattern("^[ab]*a[ab]{100000}$").unwrap().language;
    langs.matches(language, &"a".repeat(20_000));
    assert!(budget.is_spent());
}

#[test]
fn rows_of_optional_parts_are_linear() {
    let budget = Budget::new(&NormalizeLimits::default());
    let mut langs = Languages::new(&budget);
    let language = langs.pattern(&format!("^{}$", "(a?|b?)".repeat(60))).unwrap().language;
    assert_eq!(langs.is_empty(language), Some(false));
    assert!(langs.matches(language, &"ab".repeat(30)) && !langs.matches(language, &"a".repeat(61)));
    let long = langs.pattern(&"a?".repeat(20_000)).unwrap().language;
    assert!(langs.matches(long, "aaa"));
}

#[test]
fn repetitions_of_ends_inside_each_other_are_bounded() {
    let budget = Budget::new(&NormalizeLimits::default());
    let mut langs = Languages::new(&budget);
    let deep = format!("{}a${}", "(".repeat(50), ")*".repeat(50));
    assert!(langs.pattern(&deep).is_err());
    assert!(budget.is_spent());
}

#[test]
fn every_beginning_of_a_string_has_a_completion() {
    let beginnings: [(&str, &[&str]); 5] = [
        (r".*\.x$", &["", "abc", "a.", "a.xy", "\n"]),
        ("^[a-z]+-[0-9]{2}$", &["", "ab", "ab-", "ab-1"]),
        ("^(?=.*[A-Z])(?=.*[0-9]).{8,}$", &["", "abc", "aB", "a1", "abcdefghijk", "aB1"]),
        ("^<a>[^>]*</a>$", &["<", "<a>", "<a>text", "<a>x</", "<a>x<y"]),
        ("^é{3}$", &["", "é", "éé"]),
    ];
    for (pattern, starts) in beginnings {
        let mut langs = languages();
        let language = langs.pattern(pattern).unwrap().language;
        let texts = langs.completions(language);
        assert!(langs.matches(language, &texts[0]), "{pattern}: {texts:?}");
        for start in starts {
            let found = texts.iter().any(|text| langs.matches(language, &format!("{start}{text}")));
            assert!(found, "{start:?} of {pattern}: {texts:?}");
        }
    }
    let mut langs = languages();
    let large = langs.pattern("^[ab]*a[ab]{5000}$").unwrap().language;
    assert!(langs.completions(large).is_empty());
}

#[test]
fn look_ahead_at_the_start_is_told_apart() {
    let mut langs = languages();
    let parts = langs.conjuncts(r"^(?=.*\d)(?!.*--)[a-z\d-]{3,}$").unwrap();
    assert_eq!(parts.iter().map(|(_, negated)| *negated).collect::<Vec<_>>(), [false, true, false]);
    for (text, expected) in [("ab1", true), ("abc", false), ("a--1", false), ("a1", false), ("1-ab", true)] {
        let all = parts.iter().all(|(part, negated)| langs.matches(part.language, text) != *negated);
        assert_eq!(all, expected, "{text}");
    }
    for other in ["^a(?=b)", "(?=a)b", "^(?=a)b|c", "^(?=a(?!b))a", "^(a(?=b))+"] {
        assert!(langs.conjuncts(other).is_none(), "{other}");
    }
}

#[test]
fn intersections_are_put_together_of_small_automata() {
    let hostname = formats::lookup("hostname").unwrap().pattern;
    for (pattern, yes, no) in [("x y|^c$", "c", "x y"), (r"^[ab]{1,40}\.b$", "ab.b", "-a.b")] {
        let mut langs = languages();
        let parts = [hostname, pattern].map(|source| langs.pattern(source).unwrap().language);
        let both = langs.and(parts);
        let text = langs.print(both, MAX_PATTERN).expect(pattern);
        let written = langs.pattern(&text).unwrap().language;
        assert!(langs.matches(written, yes) && !langs.matches(written, no), "{pattern}: {text}");
    }
}

#[test]
fn the_width_of_intersections_is_known_beforehand() {
    let width = |patterns: &[String]| {
        let mut langs = languages();
        let parts: Vec<_> = patterns.iter().map(|source| langs.pattern(source).unwrap().language).collect();
        langs.width(&parts).unwrap()
    };
    // Each goes on with itself or with its tail at every letter.
    for count in 1..10_u32 {
        let patterns: Vec<String> = (0..count).map(|i| format!("[a-z].{{{i}}}[0-9]")).collect();
        let found = width(&patterns);
        assert!((2_u64.pow(count)..=3_u64.pow(count)).contains(&found), "{count}: {found}");
    }
    let list = |patterns: &[&str]| -> Vec<String> { patterns.iter().map(ToString::to_string).collect() };
    assert_eq!(width(&list(&["^[a-z]{3}-[0-9]{4}$", "^.{1,20}$", "^[^_]*$"])), 1);
    assert_eq!(width(&list(&["^(?:red|green|blue)$", "^(?:grey|green)$"])), 2, "two begin with a g");
    // However late it is, and however it is said.
    for late in ["^x{30}(?:.*[a-z].[0-9])$", "^(?:x|y(?:.*[a-z]|.*[b-y]z))$", "^(?:ab?c?b?c?){2,9}$"] {
        let one = width(&list(&[late]));
        assert!(one >= 2, "{late}: {one}");
        assert_eq!(width(&list(&[late, &format!("{late}|^$")])), one * one, "{late}");
    }
    assert_eq!(width(&list(&["^(?:é|èa|çb)$", "^[^_]"])), 3, "by their first bytes");
}
