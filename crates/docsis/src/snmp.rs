//! The part of SNMP's BER that configuration files use: object identifiers and variable bindings.
//!
//! Decoding accepts only the shortest encodings, and the long form that net-snmp writes for
//! sequences of more than 127 bytes. Any other encoding stays raw bytes, so encoding a decoded
//! value returns the same bytes.

use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

use crate::hexadecimal;

const SEQUENCE: u8 = 0x30;
const OID: u8 = 0x06;
const INTEGER: u8 = 0x02;
const OCTETS: u8 = 0x04;
const IP_ADDRESS: u8 = 0x40;
const COUNTER: u8 = 0x41;
const GAUGE: u8 = 0x42;
const TIME_TICKS: u8 = 0x43;

/// Largest accepted number of arcs in an object identifier.
const MAX_ARCS: usize = 128;

/// Names whose numbers are fixed (RFC 2578), so that no MIB is needed for what begins with them.
const ROOTS: [(&str, &[u32]); 7] = [
    ("iso", &[1]),
    ("internet", &[1, 3, 6, 1]),
    ("mgmt", &[1, 3, 6, 1, 2]),
    ("mib-2", &[1, 3, 6, 1, 2, 1]),
    ("private", &[1, 3, 6, 1, 4]),
    ("enterprises", &[1, 3, 6, 1, 4, 1]),
    ("snmpV2", &[1, 3, 6, 1, 6]),
];

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Oid(Vec<u32>);

/// An object and the value that the modem gives it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VarBind {
    oid: Oid,
    value: Data,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Data {
    Integer(i32),
    Unsigned(u8, u32),
    Address(Ipv4Addr),
    Object(Oid),
    Octets(Vec<u8>),
}

/// Text that is not numeric SNMP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotSnmp;

impl Oid {
    /// Decodes the element with its tag and length.
    pub fn from_ber(bytes: &[u8]) -> Option<Self> {
        let (content, rest) = element(bytes, OID)?;
        if rest.is_empty() { Self::from_content(content) } else { None }
    }

    /// Encodes the element with its tag and length. `None` for arcs that BER cannot encode.
    pub fn to_ber(&self) -> Option<Vec<u8>> {
        let [first, second, arcs @ ..] = self.0.as_slice() else { return None };
        if *first > 2 || (*first < 2 && *second > 39) || *second > u32::MAX - 80 {
            return None;
        }
        let mut content = Vec::new();
        base128(first * 40 + second, &mut content);
        for arc in arcs {
            base128(*arc, &mut content);
        }
        Some(tagged(OID, &content))
    }

    fn from_content(content: &[u8]) -> Option<Self> {
        let mut arcs = Vec::new();
        let mut arc = 0_u32;
        for byte in content {
            arc = arc.checked_mul(128)?.checked_add(u32::from(byte & 0x7f))?;
            if byte & 0x80 == 0 {
                if arcs.is_empty() {
                    let first = (arc / 40).min(2);
                    arcs.extend([first, arc - first * 40]);
                } else {
                    arcs.push(arc);
                }
                arc = 0;
            }
        }
        let complete = content.last().is_some_and(|byte| byte & 0x80 == 0);
        (complete && arcs.len() <= MAX_ARCS).then_some(Self(arcs))
    }
}

impl fmt::Display for Oid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|arc| write!(f, ".{arc}"))
    }
}

impl FromStr for Oid {
    type Err = NotSnmp;

    fn from_str(text: &str) -> Result<Self, NotSnmp> {
        let text = text.strip_prefix("SNMPv2-SMI::").unwrap_or(text);
        let text = text.strip_prefix('.').unwrap_or(text);
        let (first, rest) = text.split_once('.').unwrap_or((text, ""));
        let (root, rest) = match ROOTS.iter().find(|(name, _)| *name == first) {
            Some((_, root)) => (*root, rest),
            None => ([].as_slice(), text),
        };
        let arcs = rest.split('.').map(|arc| arc.parse().map_err(|_| NotSnmp));
        let arcs: Vec<u32> =
            root.iter().map(|arc| Ok(*arc)).chain(arcs).collect::<Result<_, _>>()?;
        if (2..=MAX_ARCS).contains(&arcs.len()) { Ok(Self(arcs)) } else { Err(NotSnmp) }
    }
}

impl VarBind {
    pub const ACCEPTED: &str = "a numeric object identifier, then one of Integer, Unsigned32, \
        Gauge32, Counter32, TimeTicks, IPAddress, ObjectID, String, HexString, then the value";

    pub fn from_ber(bytes: &[u8]) -> Option<Self> {
        let (content, rest) = element(bytes, SEQUENCE)?;
        let (oid, _) = element(content, OID)?;
        let (_, value) = content.split_at_checked(tagged(OID, oid).len())?;
        let tag = *value.first()?;
        let (data, after) = element(value, tag)?;
        if !rest.is_empty() || !after.is_empty() {
            return None;
        }
        let value = match tag {
            INTEGER => Data::Integer(signed(data)?),
            COUNTER | GAUGE | TIME_TICKS => Data::Unsigned(tag, unsigned(data)?),
            IP_ADDRESS => Data::Address(Ipv4Addr::from(<[u8; 4]>::try_from(data).ok()?)),
            OID => Data::Object(Oid::from_content(data)?),
            OCTETS => Data::Octets(data.to_vec()),
            _ => return None,
        };
        Some(Self { oid: Oid::from_content(oid)?, value })
    }

    /// `None` for an object identifier that BER cannot encode.
    pub fn to_ber(&self) -> Option<Vec<u8>> {
        let mut content = self.oid.to_ber()?;
        content.extend(match &self.value {
            Data::Integer(number) => tagged(INTEGER, &shortest(i64::from(*number))),
            Data::Unsigned(tag, number) => tagged(*tag, &shortest(i64::from(*number))),
            Data::Address(address) => tagged(IP_ADDRESS, &address.octets()),
            Data::Object(oid) => oid.to_ber()?,
            Data::Octets(octets) => tagged(OCTETS, octets),
        });
        if content.len() < 0x80 {
            return Some(tagged(SEQUENCE, &content));
        }
        let length = u16::try_from(content.len()).ok()?.to_be_bytes();
        Some([&[SEQUENCE, 0x82], length.as_slice(), &content].concat())
    }
}

/// Such as `.1.3.6.1.2.1.69.1.3.1.0 Integer 1`.
impl fmt::Display for VarBind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.oid)?;
        match &self.value {
            Data::Integer(number) => write!(f, "Integer {number}"),
            Data::Unsigned(COUNTER, number) => write!(f, "Counter32 {number}"),
            Data::Unsigned(TIME_TICKS, number) => write!(f, "TimeTicks {number}"),
            Data::Unsigned(_, number) => write!(f, "Gauge32 {number}"),
            Data::Address(address) => write!(f, "IPAddress {address}"),
            Data::Object(oid) => write!(f, "ObjectID {oid}"),
            Data::Octets(octets) => match std::str::from_utf8(octets) {
                Ok(text) if !text.is_empty() && !text.chars().any(char::is_control) => {
                    write!(f, "String {text}")
                }
                _ => write!(f, "HexString {}", hexadecimal::hex(octets)),
            },
        }
    }
}

impl FromStr for VarBind {
    type Err = NotSnmp;

    fn from_str(text: &str) -> Result<Self, NotSnmp> {
        let mut parts = text.splitn(3, ' ');
        let mut next = || parts.next().ok_or(NotSnmp);
        let (oid, kind, text) = (next()?.parse()?, next()?, next()?);
        let unsigned = |tag| text.parse().map(|number| Data::Unsigned(tag, number));
        let number = |parsed: Result<Data, std::num::ParseIntError>| parsed.map_err(|_| NotSnmp);
        let value = match kind {
            "Integer" => number(text.parse().map(Data::Integer))?,
            "Unsigned32" | "Gauge" | "Gauge32" => number(unsigned(GAUGE))?,
            "Counter32" => number(unsigned(COUNTER))?,
            "TimeTicks" => number(unsigned(TIME_TICKS))?,
            "IPAddress" => Data::Address(text.parse().map_err(|_| NotSnmp)?),
            "ObjectID" => Data::Object(text.parse()?),
            "String" => Data::Octets(text.as_bytes().to_vec()),
            "HexString" => Data::Octets(hexadecimal::read(text).ok_or(NotSnmp)?),
            _ => return Err(NotSnmp),
        };
        Ok(Self { oid, value })
    }
}

fn base128(arc: u32, out: &mut Vec<u8>) {
    let digits = (1..5).rev().filter(|digit| arc >> (7 * digit) != 0);
    out.extend(digits.map(|digit| (arc >> (7 * digit)) as u8 | 0x80));
    out.push(arc as u8 & 0x7f);
}

fn tagged(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = content.len();
    let header: &[u8] = match length {
        0..=0x7f => &[tag, length as u8],
        0x80..=0xff => &[tag, 0x81, length as u8],
        _ => &[tag, 0x82, (length >> 8) as u8, length as u8],
    };
    [header, content].concat()
}

/// Returns the content of the first element, if it has this tag, and the bytes after the element.
fn element(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (found, rest) = bytes.split_first()?;
    let (first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(*first), rest),
        0x81 => (usize::from(*rest.first()?), &rest[1..]),
        0x82 => {
            let (length, rest) = rest.split_first_chunk::<2>()?;
            (usize::from(u16::from_be_bytes(*length)), rest)
        }
        _ => return None,
    };
    (*found == tag).then(|| rest.split_at_checked(length)).flatten()
}

fn signed(content: &[u8]) -> Option<i32> {
    let first = *content.first()? as i8;
    if content.len() > 4 {
        return None;
    }
    Some(content[1..].iter().fold(i32::from(first), |sum, byte| sum << 8 | i32::from(*byte)))
}

fn unsigned(content: &[u8]) -> Option<u32> {
    if content.is_empty() || content[0] & 0x80 != 0 {
        return None;
    }
    content.iter().try_fold(0_u32, |sum, byte| Some(sum.checked_mul(256)? | u32::from(*byte)))
}

/// The shortest two's complement encoding.
fn shortest(number: i64) -> Vec<u8> {
    let bytes = number.to_be_bytes();
    let redundant = |pair: &[u8]| match pair[0] {
        0 => pair[1] & 0x80 == 0,
        0xff => pair[1] & 0x80 != 0,
        _ => false,
    };
    let skip = bytes.windows(2).take_while(|pair| redundant(pair)).count();
    bytes[skip..].to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes that net-snmp writes for the same bindings.
    #[test]
    fn bindings_match_the_common_library() {
        let cases = [
            ("Integer 1", "300f060a2b060102014501030100020101"),
            ("Integer -129", "3010060a2b0601020145010301000202ff7f"),
            ("Gauge32 3000000000", "3013060a2b060102014501030100420500b2d05e00"),
            ("Gauge32 200", "3010060a2b060102014501030100420200c8"),
            ("TimeTicks 5", "300f060a2b060102014501030100430105"),
            ("IPAddress 10.0.0.1", "3012060a2b06010201450103010040040a000001"),
            ("ObjectID .1.3.6.1.4.1.4491", "3015060a2b06010201450103010006072b06010401a30b"),
            ("String abc", "3011060a2b0601020145010301000403616263"),
            ("HexString 0x00ff", "3010060a2b060102014501030100040200ff"),
        ];
        for (text, hex) in cases {
            let binding: VarBind = format!(".1.3.6.1.2.1.69.1.3.1.0 {text}").parse().unwrap();
            let bytes = binding.to_ber().unwrap();
            assert_eq!(hexadecimal::hex(&bytes), format!("0x{hex}"), "{text}");
            assert_eq!(VarBind::from_ber(&bytes).unwrap(), binding, "{text}");
        }
    }

    #[test]
    fn long_sequences_have_a_two_byte_length() {
        let text = format!(".1.3.6.1.2.1.69.1.3.1.0 String {}", "a".repeat(183));
        let bytes = text.parse::<VarBind>().unwrap().to_ber().unwrap();
        assert_eq!(bytes[..4], [0x30, 0x82, 0x00, 0xc6]);
        assert_eq!(bytes[16..19], [0x04, 0x81, 0xb7]);
        assert_eq!(VarBind::from_ber(&bytes).unwrap().to_string(), text);
    }

    #[test]
    fn object_names_and_malformed_ber_are_rejected() {
        assert!("sysContact.0".parse::<Oid>().is_err());
        assert!(Oid::from_ber(&[0x06, 0x02, 0x2b, 0x86]).is_none(), "unfinished arc");
        assert!(Oid::from_ber(&[0x06, 0x06, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]).is_none());
        assert!(VarBind::from_ber(&[0x30, 0x84, 0xff, 0xff, 0xff, 0xff]).is_none());
        assert!(VarBind::from_ber(&[]).is_none());
    }
}
