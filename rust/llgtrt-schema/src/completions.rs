//! Short texts that complete strings of patterns and formats.

use crate::budget::Budget;
use crate::languages::{Languages, formats};
use crate::limits::NormalizeLimits;

/// Short texts that complete strings: wherever a string that one of the patterns allows may have got, one of them
/// leads to its end. For each pattern a whole string, then the others, shortest first; nothing for a pattern that cannot be read, or whose automaton
/// is beyond the limits. `whole` tells that a pattern speaks of the whole string, as if between `^` and `$`.
pub fn completions<'a>(
    patterns: impl IntoIterator<Item = (&'a str, bool)>,
    limits: &NormalizeLimits,
) -> Vec<String> {
    let mut languages = Languages::new(&Budget::new(limits));
    let mut texts = Vec::new();
    for (pattern, whole) in patterns {
        let anchored = if whole { format!("^(?:{pattern})$") } else { pattern.to_owned() };
        let known = formats::ends_of_pattern(&anchored);
        if !known.is_empty() {
            texts.extend(known.iter().map(|&text| text.to_owned()));
        } else if let Ok(pattern) = languages.pattern(&anchored) {
            texts.extend(languages.completions(pattern.language));
        }
    }
    texts
}

/// The same for a `format` that no pattern takes the place of. Empty for most.
pub fn format_completions(name: &str) -> &'static [&'static str] {
    formats::ends(name)
}
