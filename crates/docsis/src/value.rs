//! Leaf values as text and back.
//!
//! Both text forms write a kind of value alike: decimal numbers, `0x` bytes, dotted addresses.
//! [`render`] returns a spelling only if [`parse`] returns the same bytes for it; any other value
//! is written as raw bytes, so nothing is lost.

use std::net::{Ipv4Addr, Ipv6Addr};

use thiserror::Error;

use crate::hexadecimal;
pub use crate::hexadecimal::hex;
use crate::schema::{Kind, number};
use crate::snmp;

/// Text that does not spell a value of the wanted kind.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{text}` is not accepted here; accepted: {accepted}")]
pub struct ValueError {
    pub text: String,
    /// The accepted values, in words.
    pub accepted: String,
}

/// Returns the spelling of a value. `None` if it can only be written as raw bytes.
pub fn render(kind: &Kind, bytes: &[u8]) -> Option<String> {
    let text = spell(kind, bytes)?;
    (parse(kind, &text).ok().as_deref() == Some(bytes)).then_some(text)
}

/// Returns the bytes of a spelling.
pub fn parse(kind: &Kind, text: &str) -> Result<Vec<u8>, ValueError> {
    read(kind, text).ok_or_else(|| ValueError { text: text.into(), accepted: accepted(kind) })
}

/// Parses `0x` and an even number of hexadecimal digits.
pub fn unhex(text: &str) -> Result<Vec<u8>, ValueError> {
    parse(&Kind::Hex { low: 0, high: usize::MAX }, text)
}

fn spell(kind: &Kind, bytes: &[u8]) -> Option<String> {
    Some(match kind {
        Kind::Number { .. } => number(bytes).to_string(),
        Kind::Text { .. } => plain(bytes)?,
        Kind::TextNul { .. } => plain(bytes.strip_suffix(&[0])?)?,
        Kind::Hex { .. } => hex(bytes),
        Kind::List { width, .. } => join(bytes, *width, |part| Some(number(part).to_string()))?,
        Kind::Ipv4 => ipv4(bytes)?,
        Kind::Ipv4List => join(bytes, 4, ipv4)?,
        Kind::Ipv6 => ipv6(bytes)?,
        Kind::Ipv6List => join(bytes, 16, ipv6)?,
        Kind::Ipv6PrefixList => join(bytes, 17, ipv6_prefix)?,
        Kind::Ip => address(bytes)?,
        Kind::TaggedIp => address(bytes.get(1..)?)?,
        Kind::Transport => {
            let (host, port) = bytes.split_last_chunk::<2>()?;
            let address = address(host)?;
            format!("{address}/{}", u16::from_be_bytes(*port))
        }
        Kind::Mac => mac(bytes)?,
        Kind::MacMask => {
            let (address, mask) = bytes.split_at_checked(6)?;
            format!("{}/{}", mac(address)?, mac(mask)?)
        }
        Kind::Oid => snmp::Oid::from_ber(bytes)?.to_string(),
        Kind::WriteControl => {
            let (denied, oid) = bytes.split_last()?;
            format!("{} {denied}", snmp::Oid::from_ber(oid)?)
        }
        Kind::VarBind => snmp::VarBind::from_ber(bytes)?.to_string(),
        Kind::Empty => String::new(),
        Kind::Aggregate(_) | Kind::Extension(_) => return None,
    })
}

fn read(kind: &Kind, text: &str) -> Option<Vec<u8>> {
    match kind {
        Kind::Number { width, .. } => read_number(text, *width),
        Kind::Text { .. } => printable(text).then(|| text.as_bytes().to_vec()),
        Kind::TextNul { .. } => printable(text).then(|| text.bytes().chain([0]).collect()),
        Kind::Hex { .. } => hexadecimal::read(text),
        Kind::List { width, .. } => read_list(text, |part| read_number(part, *width)),
        Kind::Ipv4 => read_ipv4(text),
        Kind::Ipv4List => read_list(text, read_ipv4),
        Kind::Ipv6 => read_ipv6(text),
        Kind::Ipv6List => read_list(text, read_ipv6),
        Kind::Ipv6PrefixList => read_list(text, read_ipv6_prefix),
        Kind::Ip => read_address(text),
        Kind::TaggedIp => {
            let address = read_address(text)?;
            let tag = if address.len() == 4 { 1 } else { 2 };
            Some([&[tag], address.as_slice()].concat())
        }
        Kind::Transport => {
            let (address, port) = text.split_once('/')?;
            let mut bytes = read_address(address)?;
            bytes.extend(port.parse::<u16>().ok()?.to_be_bytes());
            Some(bytes)
        }
        Kind::Mac => read_mac(text),
        Kind::MacMask => {
            let (address, mask) = text.split_once('/')?;
            Some([read_mac(address)?, read_mac(mask)?].concat())
        }
        Kind::Oid => text.parse::<snmp::Oid>().ok()?.to_ber(),
        Kind::WriteControl => {
            let (oid, denied) = text.split_once(' ')?;
            let mut bytes = oid.parse::<snmp::Oid>().ok()?.to_ber()?;
            bytes.push(denied.trim().parse().ok()?);
            Some(bytes)
        }
        Kind::VarBind => text.parse::<snmp::VarBind>().ok()?.to_ber(),
        Kind::Empty => text.is_empty().then(Vec::new),
        Kind::Aggregate(_) | Kind::Extension(_) => None,
    }
}

/// Returns the accepted values, in words.
pub fn accepted(kind: &Kind) -> String {
    match kind {
        Kind::Number { width, low, high } => {
            let most = u32::MAX >> (32 - 8 * width);
            if (*low, *high) == (0, most) {
                format!("a whole number from 0 to {most}")
            } else {
                format!("a whole number from {low} to {high} (0 to {most} can be encoded)")
            }
        }
        Kind::Text { low, high } | Kind::TextNul { low, high } => {
            format!("{low} to {high} characters without control characters")
        }
        Kind::Hex { low, high } if low == high => format!("0x and {} digits", 2 * low),
        Kind::Hex { .. } => "0x and an even number of hexadecimal digits".into(),
        Kind::List { width, low, high } => {
            let most = u32::MAX >> (32 - 8 * width);
            format!("{low} to {high} whole numbers from 0 to {most}, separated by commas")
        }
        Kind::Ipv4 => "an IPv4 address such as 192.0.2.1".into(),
        Kind::Ipv4List => "IPv4 addresses separated by commas".into(),
        Kind::Ipv6 => "an IPv6 address such as 2001:db8::1".into(),
        Kind::Ipv6List => "IPv6 addresses separated by commas".into(),
        Kind::Ipv6PrefixList => "IPv6 prefixes such as 2001:db8::/32, separated by commas".into(),
        Kind::Ip | Kind::TaggedIp => "an address such as 192.0.2.1 or 2001:db8::1".into(),
        Kind::Empty => "the name with empty quotes".into(),
        Kind::Transport => "an address and a port such as 192.0.2.1/161".into(),
        Kind::Mac => "an Ethernet address such as 00:00:5e:00:53:01".into(),
        Kind::MacMask => "an Ethernet address and a mask, separated by a slash".into(),
        Kind::Oid => "a numeric object identifier such as .1.3.6.1.2.1".into(),
        Kind::WriteControl => "a numeric object identifier, a space, then 0 or 1".into(),
        Kind::VarBind => snmp::VarBind::ACCEPTED.into(),
        Kind::Aggregate(_) | Kind::Extension(_) => "a table of settings".into(),
    }
}

fn plain(bytes: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(bytes).ok()?;
    printable(text).then(|| text.to_owned())
}

fn printable(text: &str) -> bool {
    !text.chars().any(char::is_control)
}

fn join(bytes: &[u8], width: usize, one: impl Fn(&[u8]) -> Option<String>) -> Option<String> {
    let parts: Option<Vec<_>> = bytes.chunks(width).map(one).collect();
    Some(parts?.join(","))
}

fn ipv4(bytes: &[u8]) -> Option<String> {
    Some(Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?).to_string())
}

/// Formats IPv4-mapped addresses without dots: the encoder of the `Main` form does not read
/// `::ffff:192.0.2.1`.
fn ipv6(bytes: &[u8]) -> Option<String> {
    let address = Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?);
    Some(match address.segments() {
        [0, 0, 0, 0, 0, 0xffff, high, low] => format!("::ffff:{high:x}:{low:x}"),
        _ => address.to_string(),
    })
}

fn ipv6_prefix(bytes: &[u8]) -> Option<String> {
    let (length, prefix) = bytes.split_last()?;
    Some(format!("{}/{length}", ipv6(prefix)?))
}

fn address(bytes: &[u8]) -> Option<String> {
    ipv4(bytes).or_else(|| ipv6(bytes))
}

fn mac(bytes: &[u8]) -> Option<String> {
    let [a, b, c, d, e, f] = <[u8; 6]>::try_from(bytes).ok()?;
    Some(format!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}"))
}

fn read_number(text: &str, width: usize) -> Option<Vec<u8>> {
    let number: u64 = text.parse().ok()?;
    let bytes = number.to_be_bytes();
    let (zeros, kept) = bytes.split_at(8 - width);
    zeros.iter().all(|byte| *byte == 0).then(|| kept.to_vec())
}

fn read_list(text: &str, one: impl Fn(&str) -> Option<Vec<u8>>) -> Option<Vec<u8>> {
    let parts: Option<Vec<_>> = text.split(',').map(|part| one(part.trim())).collect();
    Some(parts?.concat())
}

fn read_ipv4(text: &str) -> Option<Vec<u8>> {
    Some(text.parse::<Ipv4Addr>().ok()?.octets().to_vec())
}

fn read_ipv6(text: &str) -> Option<Vec<u8>> {
    Some(text.parse::<Ipv6Addr>().ok()?.octets().to_vec())
}

fn read_ipv6_prefix(text: &str) -> Option<Vec<u8>> {
    let (prefix, length) = text.split_once('/')?;
    let mut bytes = read_ipv6(prefix)?;
    bytes.push(length.parse().ok()?);
    Some(bytes)
}

fn read_address(text: &str) -> Option<Vec<u8>> {
    read_ipv4(text).or_else(|| read_ipv6(text))
}

fn read_mac(text: &str) -> Option<Vec<u8>> {
    let parts: Vec<_> = text.split(':').collect();
    let byte = |part: &&str| match part.len() {
        1..=2 => u8::from_str_radix(part, 16).ok(),
        _ => None,
    };
    if parts.len() == 6 { parts.iter().map(byte).collect() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    const U32: Kind = Kind::Number { width: 4, low: 0, high: u32::MAX };

    #[test]
    fn a_number_that_does_not_fit_is_refused_with_what_would_fit() {
        assert_eq!(parse(&U32, "4294967295").unwrap(), [0xff; 4]);
        let error = parse(&U32, "4294967296").unwrap_err();
        assert!(error.to_string().contains("0 to 4294967295"), "{error}");
        assert!(parse(&U32, "-1").is_err());
        assert!(parse(&U32, "+1").is_ok_and(|bytes| bytes == [0, 0, 0, 1]));
    }

    #[test]
    fn a_list_of_one_number_is_a_list() {
        let kind = Kind::List { width: 2, low: 1, high: 15 };
        assert_eq!(parse(&kind, "20").unwrap(), [0, 20]);
        assert_eq!(parse(&kind, "20,40").unwrap(), [0, 20, 0, 40]);
        assert!(parse(&kind, "").is_err());
        assert!(parse(&kind, "65536").is_err());
    }

    #[test]
    fn values_without_a_spelling_are_left_to_raw_bytes() {
        assert_eq!(render(&U32, &[1, 2]), None);
        assert_eq!(render(&Kind::TextNul { low: 2, high: 16 }, b"no end"), None);
        assert_eq!(render(&Kind::Text { low: 1, high: 16 }, b"\x01\x02"), None);
        assert_eq!(render(&Kind::Ipv4, &[1, 2, 3]), None);
        assert_eq!(render(&Kind::TaggedIp, &[2, 192, 0, 2, 1]), None, "the tag of the other kind");
        assert_eq!(render(&Kind::Empty, &[0]), None);
    }

    #[test]
    fn addresses_of_both_versions_have_one_spelling() {
        let mut mapped = [0; 16];
        mapped[10..].copy_from_slice(&[0xff, 0xff, 192, 0, 2, 1]);
        assert_eq!(render(&Kind::Ipv6, &mapped).unwrap(), "::ffff:c000:201");
        assert_eq!(parse(&Kind::Ipv6, "::ffff:192.0.2.1").unwrap(), mapped);
        assert_eq!(render(&Kind::Ip, &[192, 0, 2, 1]).unwrap(), "192.0.2.1");
        assert_eq!(render(&Kind::Ip, &mapped).unwrap(), "::ffff:c000:201");
        assert_eq!(parse(&Kind::TaggedIp, "192.0.2.1").unwrap(), [1, 192, 0, 2, 1]);
        let tagged = [[2].as_slice(), &mapped].concat();
        assert_eq!(render(&Kind::TaggedIp, &tagged).unwrap(), "::ffff:c000:201");
        let prefixes = "2001:db8::/32,::ffff:c000:201/128";
        let bytes = parse(&Kind::Ipv6PrefixList, prefixes).unwrap();
        assert_eq!((bytes.len(), bytes[16], bytes[33]), (34, 32, 128));
        assert_eq!(render(&Kind::Ipv6PrefixList, &bytes).unwrap(), prefixes);
    }
}
