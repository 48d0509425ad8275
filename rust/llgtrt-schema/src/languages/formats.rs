//! Formats of the standard: those that llguidance holds by itself, and patterns for the others.
//!
//! The patterns of the first kind are only used where formats are combined or negated.

/// Starts the text of a language that is written as `format`.
pub(crate) const MARK: char = '\u{1}';

pub(crate) struct Format {
    /// Anchored, in the syntax of JSON Schema patterns.
    pub(crate) pattern: &'static str,
    /// Whether llguidance knows the format by name, and means the same.
    pub(crate) native: bool,
    /// Longest string, in characters, where the pattern does not tell.
    pub(crate) max_length: Option<u64>,
}

macro_rules! octet {
    () => {
        "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
    };
}

macro_rules! ipv4 {
    () => {
        concat!("(?:", octet!(), "\\.){3}", octet!())
    };
}

macro_rules! ipv6 {
    () => {
        concat!(
            "(?:(?:[0-9a-fA-F]{1,4}:){7}[0-9a-fA-F]{1,4}|(?:[0-9a-fA-F]{1,4}:){1,7}:|(?:[0-9a-fA-F]{1,4}:){1,6}:[0-9a-fA-F]{1,4}|(?:[0-9a-fA-F]{1,4}:){1,5}(?::[0-9a-fA-F]{1,4}){1,2}|(?:[0-9a-fA-F]{1,4}:){1,4}(?::[0-9a-fA-F]{1,4}){1,3}|",
            "(?:[0-9a-fA-F]{1,4}:){1,3}(?::[0-9a-fA-F]{1,4}){1,4}|(?:[0-9a-fA-F]{1,4}:){1,2}(?::[0-9a-fA-F]{1,4}){1,5}|[0-9a-fA-F]{1,4}:(?::[0-9a-fA-F]{1,4}){1,6}|:(?::[0-9a-fA-F]{1,4}){1,7}|::)"
        )
    };
}

/// A label of a host name. Those with hyphens in the third and fourth place carry an encoding with
/// rules of its own; they are left out.
macro_rules! label {
    () => {
        concat!(
            "(?:[a-zA-Z0-9](?:[a-zA-Z0-9-]?[a-zA-Z0-9])?|[a-zA-Z0-9][a-zA-Z0-9-]{2}[a-zA-Z0-9]|",
            "[a-zA-Z0-9][a-zA-Z0-9-](?:[a-zA-Z0-9][a-zA-Z0-9-]|-[a-zA-Z0-9])[a-zA-Z0-9-]{0,58}[a-zA-Z0-9])"
        )
    };
}

macro_rules! full_date {
    () => {
        concat!(
            "[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|",
            "(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))|",
            "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29"
        )
    };
}

macro_rules! full_time {
    () => {
        concat!(
            "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]+)?",
            "(?:[zZ]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])|",
            // A leap second comes at the end of a day, in UTC.
            "23:59:60(?:\\.[0-9]+)?(?:[zZ]|[+-]00:00)"
        )
    };
}

macro_rules! uri_char {
    () => {
        "(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})"
    };
}

macro_rules! uri_host {
    () => {
        concat!(
            "(?:(?:[A-Za-z0-9._~!$&'()*+,;=:-]|%[0-9A-Fa-f]{2})*@)?",
            "(?:\\[",
            ipv6!(),
            "\\]|\\[v[0-9A-Fa-f]+\\.[A-Za-z0-9._~!$&'()*+,;=:-]+\\]|",
            "(?:[A-Za-z0-9._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*)(?::[0-9]*)?"
        )
    };
}

macro_rules! uri_tail {
    () => {
        concat!("(?:\\?(?:", uri_char!(), "|[/?])*)?(?:#(?:", uri_char!(), "|[/?])*)?")
    };
}

macro_rules! iri_char {
    () => {
        "(?:[A-Za-z0-9._~!$&'()*+,;=:@\\u00A0-\\uD7FF\\uF900-\\uFDCF\\uFDF0-\\uFFEF-]|%[0-9A-Fa-f]{2})"
    };
}

macro_rules! iri_host {
    () => {
        concat!(
            "(?:(?:[A-Za-z0-9._~!$&'()*+,;=:\\u00A0-\\uD7FF\\uF900-\\uFDCF\\uFDF0-\\uFFEF-]|%[0-9A-Fa-f]{2})*@)?",
            "(?:\\[", ipv6!(), "\\]|",
            "(?:[A-Za-z0-9._~!$&'()*+,;=\\u00A0-\\uD7FF\\uF900-\\uFDCF\\uFDF0-\\uFFEF-]|%[0-9A-Fa-f]{2})*)(?::[0-9]*)?"
        )
    };
}

macro_rules! iri_tail {
    () => {
        concat!("(?:\\?(?:", iri_char!(), "|[/?])*)?(?:#(?:", iri_char!(), "|[/?])*)?")
    };
}

macro_rules! uri {
    () => {
        concat!(
            "[A-Za-z][A-Za-z0-9+.-]*:(?://",
            uri_host!(),
            "(?:/",
            uri_char!(),
            "*)*|",
            "/(?:",
            uri_char!(),
            "+(?:/",
            uri_char!(),
            "*)*)?|",
            uri_char!(),
            "+(?:/",
            uri_char!(),
            "*)*|)",
            uri_tail!()
        )
    };
}

macro_rules! relative {
    () => {
        concat!(
            "(?://",
            uri_host!(),
            "(?:/",
            uri_char!(),
            "*)*|",
            "/(?:",
            uri_char!(),
            "+(?:/",
            uri_char!(),
            "*)*)?|",
            "(?:[A-Za-z0-9._~!$&'()*+,;=@-]|%[0-9A-Fa-f]{2})+(?:/",
            uri_char!(),
            "*)*|)",
            uri_tail!()
        )
    };
}

macro_rules! iri {
    () => {
        concat!(
            "[A-Za-z][A-Za-z0-9+.-]*:(?://",
            iri_host!(),
            "(?:/",
            iri_char!(),
            "*)*|",
            "/(?:",
            iri_char!(),
            "+(?:/",
            iri_char!(),
            "*)*)?|",
            iri_char!(),
            "+(?:/",
            iri_char!(),
            "*)*|)",
            iri_tail!()
        )
    };
}

macro_rules! iri_relative {
    () => {
        concat!(
            "(?://",
            iri_host!(),
            "(?:/",
            iri_char!(),
            "*)*|",
            "/(?:",
            iri_char!(),
            "+(?:/",
            iri_char!(),
            "*)*)?|",
            "(?:[A-Za-z0-9._~!$&'()*+,;=@\\u00A0-\\uD7FF\\uF900-\\uFDCF\\uFDF0-\\uFFEF-]|%[0-9A-Fa-f]{2})+",
            "(?:/",
            iri_char!(),
            "*)*|)",
            iri_tail!()
        )
    };
}

macro_rules! atom {
    () => {
        "[a-zA-Z0-9!#$%&'*+/=?^_`{|}~-]+"
    };
}

macro_rules! days {
    () => {
        "(?:[0-9]+D|[0-9]+M(?:[0-9]+D)?|[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?)"
    };
}

macro_rules! hours {
    () => {
        "T(?:[0-9]+S|[0-9]+M(?:[0-9]+S)?|[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?)"
    };
}

macro_rules! variable {
    () => {
        concat!(
            "(?:[A-Za-z0-9_]|%[0-9A-Fa-f]{2})+(?:\\.(?:[A-Za-z0-9_]|%[0-9A-Fa-f]{2})+)*",
            "(?:\\*|:[1-9][0-9]{0,3})?"
        )
    };
}

macro_rules! plain_label {
    () => {
        concat!(
            "[a-z0-9\\u00E0-\\u00F6\\u00F8-\\u00FE\\u03B1-\\u03C9\\u0430-\\u044F",
            "\\u3041-\\u3096\\u4E00-\\u9FA5\\uAC00-\\uD7A3]{1,14}"
        )
    };
}

/// A character, an escape or a character class, perhaps repeated.
macro_rules! regex_unit {
    () => {
        concat!(
            "(?:[^\\\\()\\[\\]{}*+?|^$]|\\\\[dDwWsSnrtfv^$\\\\.*+?()\\[\\]{}|/]|",
            "\\[\\^?(?:[^\\\\\\]\\[^-]|\\\\[dDwWsSnrtfv^$\\\\.*+?()\\[\\]{}|/-]|a-z|A-Z|0-9|a-f|A-F)+-?\\])",
            "(?:(?:[*+?]|\\{[0-9]{1,3},?\\})\\??)?|[$^]"
        )
    };
}

macro_rules! regex0 {
    () => {
        concat!("(?:", regex_unit!(), "|\\|)*")
    };
}

macro_rules! regex1 {
    () => {
        concat!(
            "(?:",
            regex_unit!(),
            "|\\||\\((?:\\?:)?",
            regex0!(),
            "\\)[*+?]?|\\(\\?[=!]",
            regex0!(),
            "\\))*"
        )
    };
}

macro_rules! regex2 {
    () => {
        concat!(
            "(?:",
            regex_unit!(),
            "|\\||\\((?:\\?:)?",
            regex1!(),
            "\\)[*+?]?|\\(\\?[=!]",
            regex1!(),
            "\\))*"
        )
    };
}

/// Regular expressions with groups up to three deep: correct nesting without end is not regular.
macro_rules! regex3 {
    () => {
        concat!("(?:", regex_unit!(), "|\\||\\((?:\\?:)?", regex2!(), "\\)[*+?]?)*")
    };
}

const IPV6: &str = concat!("^", ipv6!(), "$");

/// The formats that [`lookup`] knows.
pub(crate) const NAMES: &[&str] = &[
    "date-time",
    "date",
    "time",
    "duration",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "uuid",
    "uri",
    "uri-reference",
    "iri",
    "iri-reference",
    "uri-template",
    "json-pointer",
    "relative-json-pointer",
    "idn-email",
    "idn-hostname",
    "regex",
    "byte",
];

/// The format, if a draft defines it; or `byte`, base64 in `OpenAPI`, which MCP's schemas use.
pub(crate) fn lookup(name: &str) -> Option<Format> {
    let (pattern, native) = match name {
        "date-time" => (concat!("^(?:", full_date!(), ")[tT](?:", full_time!(), ")$"), false),
        "date" => (concat!("^(?:", full_date!(), ")$"), false),
        "time" => (concat!("^(?:", full_time!(), ")$"), false),
        "duration" => (concat!("^P(?:", days!(), "(?:", hours!(), ")?|", hours!(), "|[0-9]+W)$"), true),
        "email" => (
            concat!(
                "^",
                atom!(),
                "(?:\\.",
                atom!(),
                ")*@(?:",
                "[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?(?:\\.[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?)*|",
                "\\[",
                ipv4!(),
                "\\])$"
            ),
            true,
        ),
        "hostname" => (concat!("^", label!(), "(?:\\.", label!(), ")*$"), false),
        "ipv4" => (concat!("^", ipv4!(), "$"), true),
        "ipv6" => (IPV6, true),
        "uuid" => ("^[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$", true),
        "uri" => (concat!("^", uri!(), "$"), true),
        "uri-reference" => (concat!("^(?:", uri!(), "|", relative!(), ")$"), false),
        "iri" => (concat!("^", iri!(), "$"), false),
        "iri-reference" => (concat!("^(?:", iri!(), "|", iri_relative!(), ")$"), false),
        "uri-template" => (
            concat!(
                "^(?:[!#$&(-;=?-Z_a-z~\\[\\]\\u00A0-\\uD7FF]|%[0-9A-Fa-f]{2}|",
                "\\{[+#./;?&=,!@|]?",
                variable!(),
                "(?:,",
                variable!(),
                ")*\\})*$"
            ),
            false,
        ),
        "byte" => {
            ("^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)?$", false)
        }
        "json-pointer" => ("^(?:/(?:[^~/]|~[01])*)*$", false),
        "relative-json-pointer" => ("^(?:0|[1-9][0-9]*)(?:#|(?:/(?:[^~/]|~[01])*)*)$", false),
        "idn-email" => (
            concat!(
                "^[a-zA-Z0-9!#$%&'*+/=?^_`{|}~.\\u0080-\\uD7FF-]+@",
                "[a-zA-Z0-9\\u0080-\\uD7FF](?:[a-zA-Z0-9.\\u0080-\\uD7FF-]*[a-zA-Z0-9\\u0080-\\uD7FF])?$"
            ),
            false,
        ),
        "idn-hostname" => (
            // Lower-case letters of scripts without rules of context or direction.
            concat!(
                "^(?:",
                label!(),
                "|",
                plain_label!(),
                ")(?:\\.(?:",
                label!(),
                "|",
                plain_label!(),
                "))*$"
            ),
            false,
        ),
        "regex" => (concat!("^", regex3!(), "$"), false),
        _ => return None,
    };
    let max_length = name.ends_with("hostname").then_some(253);
    Some(Format { pattern, native, max_length })
}
