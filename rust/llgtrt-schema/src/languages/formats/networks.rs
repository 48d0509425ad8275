//! Addresses, networks and interfaces of the Internet protocol, as Python's `ipaddress` reads them.

use super::Format;

macro_rules! bits4 {
    () => {
        "/(?:3[0-2]|[12]?[0-9])"
    };
}

macro_rules! bits6 {
    () => {
        "/(?:12[0-8]|1[01][0-9]|[1-9]?[0-9])"
    };
}

/// Networks whose prefix ends with an octet: no bit behind the prefix may be set.
macro_rules! network4 {
    () => {
        concat!(
            "(?:",
            ipv4!(),
            "(?:/32)?|(?:",
            octet!(),
            "\\.){3}0/24|(?:",
            octet!(),
            "\\.){2}0\\.0/16|",
            octet!(),
            "\\.0\\.0\\.0/8|0\\.0\\.0\\.0/0)"
        )
    };
}

/// Networks whose prefix ends with a group.
macro_rules! network6 {
    () => {
        concat!(
            "(?:",
            ipv6!(),
            "(?:/128)?|::/0|[0-9a-fA-F]{1,4}::/16|(?:[0-9a-fA-F]{1,4}:){2}:/32|(?:[0-9a-fA-F]{1,4}:){3}:/48|",
            "(?:[0-9a-fA-F]{1,4}:){4}:/64|(?:[0-9a-fA-F]{1,4}:){5}:/80|(?:[0-9a-fA-F]{1,4}:){6}:/96)"
        )
    };
}

pub(super) fn lookup(name: &str) -> Option<Format> {
    Some(Format::of_a_language(match name {
        "ipvanyaddress" => concat!("^(?:", ipv4!(), "|", ipv6!(), ")$"),
        "ipv4network" => concat!("^", network4!(), "$"),
        "ipv6network" => concat!("^", network6!(), "$"),
        "ipvanynetwork" => concat!("^(?:", network4!(), "|", network6!(), ")$"),
        "ipv4interface" => concat!("^", ipv4!(), "(?:", bits4!(), ")?$"),
        "ipv6interface" => concat!("^", ipv6!(), "(?:", bits6!(), ")?$"),
        "ipvanyinterface" => {
            concat!("^(?:", ipv4!(), "(?:", bits4!(), ")?|", ipv6!(), "(?:", bits6!(), ")?)$")
        }
        "cidrv4" => concat!("^", ipv4!(), bits4!(), "$"),
        "cidrv6" => concat!("^", ipv6!(), bits6!(), "$"),
        _ => return None,
    }))
}
