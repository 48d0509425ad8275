//! Patterns of the formats' grammars, out of parts: RFC 3339, 3986, 3987, 4291, 5321, 6570, ISO 8601.
//!
//! Macros, because `concat!` takes nothing else that is constant.

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
            "(?:[0-9a-fA-F]{1,4}:){6}", ipv4!(), "|::(?:[0-9a-fA-F]{1,4}:){0,5}", ipv4!(), "|",
            "[0-9a-fA-F]{1,4}::(?:[0-9a-fA-F]{1,4}:){0,4}", ipv4!(), "|",
            "(?:[0-9a-fA-F]{1,4}:){2}:(?:[0-9a-fA-F]{1,4}:){0,3}", ipv4!(), "|",
            "(?:[0-9a-fA-F]{1,4}:){3}:(?:[0-9a-fA-F]{1,4}:){0,2}", ipv4!(), "|",
            "(?:[0-9a-fA-F]{1,4}:){4}:(?:[0-9a-fA-F]{1,4}:)?", ipv4!(), "|",
            "(?:[0-9a-fA-F]{1,4}:){5}:", ipv4!(), "|",
            "(?:[0-9a-fA-F]{1,4}:){1,3}(?::[0-9a-fA-F]{1,4}){1,4}|(?:[0-9a-fA-F]{1,4}:){1,2}(?::[0-9a-fA-F]{1,4}){1,5}|[0-9a-fA-F]{1,4}:(?::[0-9a-fA-F]{1,4}){1,6}|:(?::[0-9a-fA-F]{1,4}){1,7}|::)"
        )
    };
}

/// A label of a host name. Those with hyphens in the third and fourth place carry an encoding with
/// rules of its own; they are left out.
macro_rules! label {
    () => {
        label!("58")
    };
    // The most characters, less five.
    ($more:literal) => {
        concat!(
            "(?:[a-zA-Z0-9](?:[a-zA-Z0-9-]?[a-zA-Z0-9])?|[a-zA-Z0-9][a-zA-Z0-9-]{2}[a-zA-Z0-9]|",
            "[a-zA-Z0-9][a-zA-Z0-9-](?:[a-zA-Z0-9][a-zA-Z0-9-]|-[a-zA-Z0-9])[a-zA-Z0-9-]{0,",
            $more,
            "}[a-zA-Z0-9])"
        )
    };
}

/// Names of at most 253 characters, without counting them all: three labels of any length, a label of any length
/// before eleven short ones, or eleven of medium length.
macro_rules! domain {
    () => {
        concat!(
            "(?:",
            label!(),
            "(?:\\.",
            label!(),
            "){0,2}|",
            label!(),
            "(?:\\.",
            label!("10"),
            "){0,11}|",
            label!("17"),
            "(?:\\.",
            label!("17"),
            "){0,10})"
        )
    };
}

/// What stands before the `@`: at most 64 characters, without counting them and the dots together. Of those with
/// more than 32 characters beside dots, the ones with up to two dots in about equal parts.
macro_rules! local_part {
    () => {
        concat!(
            "(?:",
            atom_char!(),
            "{1,64}|",
            atom_char!(),
            "{1,32}\\.",
            atom_char!(),
            "{1,31}|",
            atom_char!(),
            "{1,22}(?:\\.",
            atom_char!(),
            "{1,20}){0,2}|(?:",
            atom_char!(),
            "\\.?){0,31}",
            atom_char!(),
            ")"
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

/// Dates that programs can read: from year 1 on.
macro_rules! common_date {
    () => {
        concat!(
            "(?:[1-9][0-9]{3}|0[1-9][0-9]{2}|00[1-9][0-9]|000[1-9])-",
            "(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|",
            "(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))|",
            "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)-02-29"
        )
    };
}

/// A time of day without leap second, with at most six digits behind the point.
macro_rules! common_clock {
    () => {
        "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,6})?"
    };
}

macro_rules! zone {
    () => {
        "(?:[zZ]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
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
        "(?:[A-Za-z0-9._~!$&'()*+,;=:@\\u00A0-\\uD7FF\\uF900-\\uFDCF\\uFDF0-\\uFFEF\\u{10000}-\\u{1FFFD}\\u{20000}-\\u{2FFFD}\\u{30000}-\\u{3FFFD}-]|%[0-9A-Fa-f]{2})"
    };
}

macro_rules! iri_host {
    () => {
        concat!(
            "(?:(?:[A-Za-z0-9._~!$&'()*+,;=:\\u00A0-\\uD7FF\\uF900-\\uFDCF\\uFDF0-\\uFFEF\\u{10000}-\\u{1FFFD}\\u{20000}-\\u{2FFFD}\\u{30000}-\\u{3FFFD}-]|%[0-9A-Fa-f]{2})*@)?",
            "(?:\\[", ipv6!(), "\\]|",
            "(?:[A-Za-z0-9._~!$&'()*+,;=\\u00A0-\\uD7FF\\uF900-\\uFDCF\\uFDF0-\\uFFEF\\u{10000}-\\u{1FFFD}\\u{20000}-\\u{2FFFD}\\u{30000}-\\u{3FFFD}-]|%[0-9A-Fa-f]{2})*)(?::[0-9]*)?"
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
            "(?:[A-Za-z0-9._~!$&'()*+,;=@\\u00A0-\\uD7FF\\uF900-\\uFDCF\\uFDF0-\\uFFEF\\u{10000}-\\u{1FFFD}\\u{20000}-\\u{2FFFD}\\u{30000}-\\u{3FFFD}-]|%[0-9A-Fa-f]{2})+",
            "(?:/",
            iri_char!(),
            "*)*|)",
            iri_tail!()
        )
    };
}

macro_rules! atom_char {
    () => {
        "[a-zA-Z0-9!#$%&'*+/=?^_`{|}~-]"
    };
}

macro_rules! atom {
    () => {
        concat!(atom_char!(), "+")
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

/// Lower-case letters of scripts without rules of context or direction, few enough for 63 bytes in Punycode.
macro_rules! plain_label {
    () => {
        concat!(
            "[a-z0-9\\u00E0-\\u00F6\\u00F8-\\u00FE\\u03B1-\\u03C9\\u0430-\\u044F",
            "\\u3041-\\u3096\\u4E00-\\u9FA5\\uAC00-\\uD7A3]{1,14}"
        )
    };
}

macro_rules! idn_label {
    () => {
        concat!("(?:", label!(), "|", plain_label!(), ")")
    };
}

/// At most 253 bytes in their ASCII form, of which a label has up to 63.
macro_rules! idn_domain {
    () => {
        concat!("(?:", domain!(), "|", idn_label!(), "(?:\\.", idn_label!(), "){0,2})")
    };
}

macro_rules! idn_atom {
    () => {
        "[a-zA-Z0-9!#$%&'*+/=?^_`{|}~\\u00A1-\\uD7FF-]"
    };
}

/// A character, an escape or a character class, perhaps repeated. `$more` are escapes that not every program reads.
macro_rules! regex_unit {
    ($more:literal) => {
        concat!(
            "(?:[^\\\\()\\[\\]{}*+?|^$]|", regex_escape!($more), "|",
            "\\[\\^?(?:[^\\\\\\]\\[^-]|", regex_escape!($more), "|\\\\-|a-z|A-Z|0-9|a-f|A-F)+-?\\])",
            "(?:(?:[*+?]|\\{[0-9]{1,3},?\\}|\\{[0-9],[1-9][0-9]{1,2}\\}|\\{[0-9]{2},[1-9][0-9]{2}\\})\\??)?|[$^]|\\\\[bB]"
        )
    };
}

macro_rules! regex_escape {
    ($more:literal) => {
        concat!(
            "\\\\(?:[dDwWsSnrtfv^$\\\\.*+?()\\[\\]{}|/]|x[0-9A-Fa-f]{2}|",
            "u(?:[0-9A-Ca-ce-fE-F][0-9A-Fa-f]{3}|[dD][0-7][0-9A-Fa-f]{2})",
            $more,
            ")"
        )
    };
}

macro_rules! regex0 {
    ($more:literal) => {
        concat!("(?:", regex_unit!($more), "|\\|)*")
    };
}

macro_rules! regex1 {
    ($more:literal) => {
        concat!(
            "(?:",
            regex_unit!($more),
            "|\\||\\((?:\\?:)?",
            regex0!($more),
            "\\)[*+?]?|\\(\\?[=!]",
            regex0!($more),
            "\\))*"
        )
    };
}

macro_rules! regex2 {
    ($more:literal) => {
        concat!(
            "(?:",
            regex_unit!($more),
            "|\\||\\((?:\\?:)?",
            regex1!($more),
            "\\)[*+?]?|\\(\\?[=!]",
            regex1!($more),
            "\\))*"
        )
    };
}

/// Regular expressions with groups up to three deep: correct nesting without end is not regular.
macro_rules! regex3 {
    ($more:literal) => {
        concat!("(?:", regex_unit!($more), "|\\||\\((?:\\?:)?", regex2!($more), "\\)[*+?]?)*")
    };
}
