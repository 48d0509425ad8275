//! Formats: those of the standard, and those that the schema generators of programming languages write
//! and that say exactly what they mean. Some are held by llguidance itself, the others are patterns.
//!
//! The patterns of the first kind are only used where formats are combined or negated.

#[macro_use]
mod syntax;

mod identifiers;
mod networks;

use crate::keyword::Draft;

/// Starts the text of a language that is written as `format`.
pub(crate) const MARK: char = '\u{1}';

#[derive(Debug, Clone, Copy)]
pub(crate) struct Format {
    /// Anchored, in the syntax of JSON Schema patterns.
    pub(crate) pattern: &'static str,
    /// Fewer strings, all of which common programs can read, and the only ones that are offered.
    pub(crate) common: Option<&'static str>,
    /// Whether llguidance knows the format by name, and means the same.
    pub(crate) native: bool,
    /// Longest string, in characters, where the pattern does not tell.
    pub(crate) max_length: Option<u64>,
    /// The first draft of JSON Schema that defines it. A `pattern` beside any other says what is meant.
    pub(crate) since: Option<Draft>,
}

impl Format {
    const fn standard(pattern: &'static str) -> Self {
        Self { pattern, common: None, native: false, max_length: None, since: Some(Draft::D4) }
    }

    const fn of_a_language(pattern: &'static str) -> Self {
        Self { since: None, ..Self::standard(pattern) }
    }

    const fn native(pattern: &'static str) -> Self {
        Self { native: true, ..Self::standard(pattern) }
    }

    const fn common(self, pattern: &'static str) -> Self {
        Self { common: Some(pattern), ..self }
    }

    const fn since(self, draft: Draft) -> Self {
        Self { since: Some(draft), ..self }
    }

    const fn at_most(self, characters: u64) -> Self {
        Self { max_length: Some(characters), ..self }
    }
}

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
    "date-time-local",
    "time-local",
    "byte",
    "base64",
    "base64url",
    "uuid1",
    "uuid3",
    "uuid4",
    "uuid5",
    "uuid6",
    "uuid7",
    "uuid8",
    "guid",
    "ipv4network",
    "ipv6network",
    "ipvanyaddress",
    "ipvanynetwork",
    "ipv4interface",
    "ipv6interface",
    "ipvanyinterface",
    "cidrv4",
    "cidrv6",
    "cuid",
    "cuid2",
    "ulid",
    "nanoid",
    "xid",
    "ksuid",
    "e164",
    "jwt",
    "emoji",
];

/// What `contentEncoding` says, where it is one of the encodings of RFC 4648.
pub(crate) fn encoding(name: &str) -> Option<Format> {
    let name = match name {
        "base64" | "base64url" => name,
        "base16" => return Some(Format::of_a_language("^(?:[0-9A-F]{2})*$")),
        _ => return None,
    };
    lookup(name)
}

/// The least and the greatest number of a format of whole numbers, both ones that a double holds.
pub(crate) fn integer_range(name: &str) -> Option<(i64, i64)> {
    let least = |bits: u32| -(1_i64 << (bits - 1));
    Some(match name {
        "int8" => (least(8), 127),
        "int16" => (least(16), 32_767),
        "int32" => (least(32), 2_147_483_647),
        "uint8" => (0, 255),
        "uint16" => (0, 65_535),
        "uint32" => (0, 4_294_967_295),
        "int64" | "int" => (-9_223_372_036_854_774_784, i64::MAX),
        "uint64" | "uint" => (0, i64::MAX),
        _ => return None,
    })
}

/// The format, if its strings are well defined.
pub(crate) fn lookup(name: &str) -> Option<Format> {
    standard(name).or_else(|| identifiers::lookup(name)).or_else(|| networks::lookup(name))
}

/// What completes strings of a format for which [`completions`](crate::completions) finds nothing: llguidance holds
/// it, or its automaton is too large. From within, then from the start.
pub(crate) fn ends(name: &str) -> &'static [&'static str] {
    match name {
        "email" | "idn-email" => &["@a.co", "a@a.co", "a.co"],
        "uri" | "iri" => &["://a.co", "https://a.co"],
        _ => &[],
    }
}

/// The same for what a format is written as.
pub(crate) fn ends_of_pattern(pattern: &str) -> &'static [&'static str] {
    let is_meant = |format: Format| format.pattern == pattern || format.common == Some(pattern);
    let name =
        ["email", "idn-email", "uri", "iri"].into_iter().find(|name| lookup(name).is_some_and(is_meant));
    name.map_or(&[], ends)
}

/// The first draft that has a format of the standard, where it is not the first of all.
fn since(name: &str) -> Option<Draft> {
    Some(match name {
        "uri-reference" | "uri-template" | "json-pointer" => Draft::D6,
        "iri" | "iri-reference" | "idn-hostname" | "relative-json-pointer" => Draft::D7,
        "duration" | "uuid" => Draft::D2019,
        _ => return None,
    })
}

fn standard(name: &str) -> Option<Format> {
    let format = defined(name)?;
    Some(match since(name) {
        Some(draft) => format.since(draft),
        None => format,
    })
}

fn defined(name: &str) -> Option<Format> {
    Some(match name {
        "date-time" => Format::standard(concat!("^(?:", full_date!(), ")[tT](?:", full_time!(), ")$"))
            .common(concat!("^(?:", common_date!(), ")T", common_clock!(), zone!(), "$")),
        "date" => Format::standard(concat!("^(?:", full_date!(), ")$")).common(concat!("^(?:", common_date!(), ")$")),
        "time" => Format::standard(concat!("^(?:", full_time!(), ")$")).common(concat!("^", common_clock!(), zone!(), "$")),
        "date-time-local" => {
            Format::of_a_language(concat!("^(?:", common_date!(), ")T", common_clock!(), "$"))
        }
        "time-local" => Format::of_a_language(concat!("^", common_clock!(), "$")),
        "duration" => Format::standard(concat!("^P(?:", days!(), "(?:", hours!(), ")?|", hours!(), "|[0-9]+W)$")).common(concat!(
            "^P(?:(?:[0-9]{1,6}D|[0-9]{1,4}M(?:[0-9]{1,6}D)?|[0-9]{1,4}Y(?:[0-9]{1,4}M(?:[0-9]{1,6}D)?)?)",
            "(?:T(?:[0-9]{1,6}S|[0-9]{1,6}M(?:[0-9]{1,6}S)?|[0-9]{1,6}H(?:[0-9]{1,6}M(?:[0-9]{1,6}S)?)?))?|",
            "T(?:[0-9]{1,6}S|[0-9]{1,6}M(?:[0-9]{1,6}S)?|[0-9]{1,6}H(?:[0-9]{1,6}M(?:[0-9]{1,6}S)?)?)|[0-9]{1,5}W)$"
        )),
        "email" => Format::standard(concat!(
                "^",
                atom!(),
                "(?:\\.",
                atom!(),
                ")*@(?:",
                "[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?(?:\\.[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?)*|",
                "\\[",
                ipv4!(),
                "\\])$"
            ))
            .common(concat!("^", local_part!(), "@(?:", domain!(), "|\\[", ipv4!(), "\\])$")),
        "hostname" => Format::standard(concat!("^", label!(), "(?:\\.", label!(), ")*$")).at_most(253),
        "ipv4" => Format::native(concat!("^", ipv4!(), "$")),
        "ipv6" => Format::standard(concat!("^", ipv6!(), "$")),
        "uuid" => Format::native("^[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"),
        "uri" => Format::native(concat!("^", uri!(), "$")),
        "uri-reference" => Format::standard(concat!("^(?:", uri!(), "|", relative!(), ")$")),
        "iri" => Format::standard(concat!("^", iri!(), "$")),
        "iri-reference" => Format::standard(concat!("^(?:", iri!(), "|", iri_relative!(), ")$")),
        "uri-template" => Format::standard(concat!(
                "^(?:[!#$&(-;=?-Z_a-z~\\[\\]\\u00A0-\\uD7FF]|%[0-9A-Fa-f]{2}|",
                "\\{[+#./;?&=,!@|]?",
                variable!(),
                "(?:,",
                variable!(),
                ")*\\})*$"
            )),
        "json-pointer" => Format::standard("^(?:/(?:[^~/]|~[01])*)*$"),
        "relative-json-pointer" => Format::standard("^(?:0|[1-9][0-9]*)(?:#|(?:/(?:[^~/]|~[01])*)*)$"),
        "idn-email" => Format::standard(concat!(
                "^[a-zA-Z0-9!#$%&'*+/=?^_`{|}~.\\u0080-\\uD7FF-]+@",
                "[a-zA-Z0-9\\u0080-\\uD7FF](?:[a-zA-Z0-9.\\u0080-\\uD7FF-]*[a-zA-Z0-9\\u0080-\\uD7FF])?$"
            ))
            // Of the part before the `@` the bytes count, of which a character here has up to three.
            .common(concat!("^(?:", local_part!(), "|(?:", idn_atom!(), "\\.?){0,10}", idn_atom!(), ")@", idn_domain!(), "$")),
        "idn-hostname" => Format::standard(concat!("^", idn_label!(), "(?:\\.", idn_label!(), ")*$"))
            .common(concat!("^", idn_domain!(), "$"))
            .at_most(253),
        "regex" => Format::standard(concat!("^", regex3!("|[pP]\\{(?:L|Lu|Ll|N|Nd|P|S|Z)\\}"), "$"))
            .common(concat!("^", regex3!(""), "$")),
        _ => return None,
    })
}
