//! What to write instead, for refusals that do not say it themselves.

/// Words of a message, and the advice that goes with them; the first that fits counts.
const ADVICE: &[(&str, &str)] = &[
    ("look-around", "write what the text may be, as alternatives, instead of what must not follow"),
    ("back-reference", "write the possible repetitions as alternatives"),
    ("bad regular expression", "correct it; special characters are escaped with a backslash"),
    ("nested too deeply", "use fewer levels"),
    ("is not in the schema", "define it under `$defs` and refer to it as `#/$defs/NAME`"),
    ("is not JSON", "write one JSON object"),
    ("not compiled within", "use fewer alternatives, shorter patterns and fewer optional properties"),
    ("; the limit is", "write a smaller grammar, or ask the operator to raise the limit"),
    ("more than", "write a smaller grammar, or ask the operator to raise the limit"),
    ("too big", "write a smaller grammar, or ask the operator to raise the limit"),
    ("too complex", "use shorter patterns, and bounds on how often something repeats"),
    ("too large", "use smaller bounds and fewer alternatives"),
    ("only the empty text", "allow at least one character"),
    ("allows nothing", "look for constraints that contradict each other"),
    ("nsatisfiable", "look for constraints that contradict each other"),
    ("empty string cannot be a choice", "leave it out"),
    ("at least one string", "list the texts to choose from"),
    ("the grammar is empty", "write at least one rule named `start`"),
    ("start", "a Lark grammar begins at the rule `start`"),
    ("nknown name", "define every rule and terminal that is used"),
];

/// Advice for a message, or nothing.
pub(super) fn advice(message: &str) -> String {
    if let Some((_, expected)) = message.split_once("` must be ") {
        let expected = expected.split(", not ").next().unwrap_or(expected);
        return format!("write {expected}");
    }
    let found = ADVICE.iter().find(|(words, _)| message.contains(words));
    found.map(|&(_, advice)| advice.to_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::advice;

    #[test]
    fn wrong_types_say_what_is_right() {
        assert_eq!(
            advice("`minLength` must be a whole number of at least 0"),
            "write a whole number of at least 0"
        );
        assert_eq!(advice("`type` must be one of a, b, not \"x\""), "write one of a, b");
        assert_eq!(advice("something else"), "");
        assert!(advice("back-references are not supported").contains("alternatives"));
    }
}
