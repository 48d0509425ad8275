//! Identifiers and encodings: RFC 4648, RFC 9562, E.164 and what libraries of identifiers define.

use super::Format;

macro_rules! uuid {
    ($version:literal) => {
        concat!(
            "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-",
            $version,
            "[0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-[0-9a-fA-F]{12}$"
        )
    };
}

pub(super) fn lookup(name: &str) -> Option<Format> {
    Some(Format::of_a_language(match name {
        // Characters that fill up are zero bits.
        "byte" | "base64" => {
            "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)?$"
        }
        "base64url" => {
            "^(?:[A-Za-z0-9_-]{4})*(?:[A-Za-z0-9_-][AQgw]==|[A-Za-z0-9_-]{2}[AEIMQUYcgkosw048]=)?$"
        }
        "uuid1" => uuid!("1"),
        "uuid3" => uuid!("3"),
        "uuid4" => uuid!("4"),
        "uuid5" => uuid!("5"),
        "uuid6" => uuid!("6"),
        "uuid7" => uuid!("7"),
        "uuid8" => uuid!("8"),
        "guid" => "^[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$",
        "cuid" => "^c[a-z0-9]{24}$",
        "cuid2" => "^[a-z][a-z0-9]{1,31}$",
        "ulid" => "^[0-7][0-9A-HJKMNP-TV-Z]{25}$",
        "nanoid" => "^[a-zA-Z0-9_-]{21}$",
        "xid" => "^[0-9a-v]{19}[0g]$",
        "ksuid" => "^[01][A-Za-z0-9]{26}$",
        "e164" => "^\\+[1-9][0-9]{6,14}$",
        // The header is an object.
        "jwt" => "^eyJ[A-Za-z0-9_-]+\\.eyJ[A-Za-z0-9_-]+\\.[A-Za-z0-9_-]*$",
        "emoji" => {
            "^[\\u{1F300}-\\u{1F5FF}\\u{1F600}-\\u{1F64F}\\u{1F680}-\\u{1F6C5}\\u{1F900}-\\u{1F9FF}]+$"
        }
        _ => return None,
    }))
}
