//! What each setting is called, holds and means.
//!
//! Names follow the DOCSIS specifications (MULPI Annex C); the name that the open `docsis`
//! encoder's text form uses stands beside each, or is the only name where the setting has nothing
//! to do with latency. Ranges are the specification's; a value outside is reported by the checks,
//! never refused by the decoder. Types without an entry are kept as bytes.

mod capabilities;
mod classifiers;
mod device;
mod embedded;
mod extension;
mod flows;
mod l2vpn;
mod services;
mod settings;
mod snmp_access;

pub use settings::TOP;

/// The settings that may stand inside one aggregate.
pub type Scope = &'static [Field];

/// Type of the vendor identifier inside an extension field (43.8).
pub const VENDOR_ID: u8 = 8;
/// The vendor identifier that marks an extension field as the specification's own.
pub const GENERAL_VENDOR: [u8; 3] = [0xff; 3];

/// One setting of the schema.
#[derive(Debug)]
pub struct Field {
    /// Type byte inside its aggregate.
    pub code: u8,
    /// Name after the specification.
    pub name: &'static str,
    /// Name in the `Main { ... }` form; empty where its encoder has no usable name.
    pub main_name: &'static str,
    /// Layout of the value.
    pub kind: Kind,
    /// Unit of a number; empty where it has none.
    pub unit: &'static str,
    /// The setting's effect on the modem, in one line.
    pub meaning: &'static str,
    /// Whether it may stand several times in its aggregate.
    pub repeats: bool,
    /// Numbers (or bytes of a [`Kind::Hex`]) that the encoder of the `Main { ... }` form takes
    /// under this name, where it takes fewer than the specification allows.
    pub main_range: Option<(u32, u32)>,
}

impl PartialEq for Field {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for Field {}

/// Layout of a value.
#[derive(Debug)]
pub enum Kind {
    /// A big-endian number of this many bytes, within a range.
    Number {
        /// Bytes: 1 to 4.
        width: usize,
        /// Smallest value that the specification allows.
        low: u32,
        /// Largest value that the specification allows.
        high: u32,
    },
    /// Characters without a terminator.
    Text {
        /// Fewest characters.
        low: usize,
        /// Most characters.
        high: usize,
    },
    /// Characters and a zero byte, which is not counted.
    TextNul {
        /// Fewest characters.
        low: usize,
        /// Most characters.
        high: usize,
    },
    /// Bytes, written as hexadecimal.
    Hex {
        /// Fewest bytes.
        low: usize,
        /// Most bytes.
        high: usize,
    },
    /// A list of one- or two-byte numbers.
    List {
        /// Bytes of one number: 1 or 2.
        width: usize,
        /// Fewest numbers.
        low: usize,
        /// Most numbers.
        high: usize,
    },
    /// An IPv4 address.
    Ipv4,
    /// IPv4 addresses, one after the other.
    Ipv4List,
    /// An IPv6 address.
    Ipv6,
    /// IPv6 addresses, one after the other.
    Ipv6List,
    /// IPv6 prefixes, one after the other: each an address and the bits of it that count.
    Ipv6PrefixList,
    /// An address of either version of IP.
    Ip,
    /// An address after a byte that tells its version: 1 is IPv4, 2 is IPv6.
    TaggedIp,
    /// An IP address and a UDP port (SNMP transport address).
    Transport,
    /// An Ethernet address.
    Mac,
    /// An Ethernet address and its mask.
    MacMask,
    /// An SNMP object identifier in BER.
    Oid,
    /// An object identifier and whether writing below it is denied.
    WriteControl,
    /// An SNMP variable binding in BER.
    VarBind,
    /// No bytes: that the setting is there says it all.
    Empty,
    /// Settings inside a setting.
    Aggregate(Scope),
    /// An extension field: the specification's own when its vendor identifier is `ff:ff:ff`,
    /// otherwise a vendor's, of which only the identifier is known.
    Extension(Scope),
}

impl Kind {
    /// Whether the value holds settings.
    pub fn is_aggregate(&self) -> bool {
        matches!(self, Self::Aggregate(_) | Self::Extension(_))
    }

    /// The settings inside an aggregate, given the vendor identifier found in it.
    pub fn scope(&self, vendor: Option<&[u8]>) -> Scope {
        match self {
            _ if self.is_foreign(vendor) => VENDOR,
            Self::Aggregate(scope) | Self::Extension(scope) => scope,
            _ => &[],
        }
    }

    /// Whether this is an extension field of some vendor, whose layout is the vendor's affair.
    pub fn is_foreign(&self, vendor: Option<&[u8]>) -> bool {
        matches!(self, Self::Extension(_)) && vendor != Some(&GENERAL_VENDOR)
    }

    /// The lengths accepted, in words, when the value's length is not one of them.
    pub fn length_problem(&self, value: &[u8]) -> Option<String> {
        let length = value.len();
        let (ok, accepted) = match self {
            Self::Number { width, .. } => (length == *width, format!("{width}")),
            Self::List { width, .. } => {
                (length > 0 && length.is_multiple_of(*width), format!("a multiple of {width}"))
            }
            Self::Ipv4 => (length == 4, "4".into()),
            Self::Ipv4List => (length > 0 && length.is_multiple_of(4), "a multiple of 4".into()),
            Self::Ipv6 => (length == 16, "16".into()),
            Self::Ipv6List => (length > 0 && length.is_multiple_of(16), "a multiple of 16".into()),
            Self::Ipv6PrefixList => {
                (length > 0 && length.is_multiple_of(17), "a multiple of 17".into())
            }
            Self::Ip => (matches!(length, 4 | 16), "4 (IPv4) or 16 (IPv6)".into()),
            Self::TaggedIp => {
                let tag = value.first();
                let ok = matches!((tag, length), (Some(1), 5) | (Some(2), 17));
                (ok, "1 and an IPv4 address, or 2 and an IPv6 address: 5 or 17".into())
            }
            Self::Empty => (length == 0, "0".into()),
            Self::Transport => (matches!(length, 6 | 18), "6 (IPv4) or 18 (IPv6)".into()),
            Self::Mac => (length == 6, "6".into()),
            Self::MacMask => (length == 12, "12".into()),
            Self::TextNul { .. } => {
                let terminated = value.last() == Some(&0);
                (terminated, "characters and a zero byte at the end".into())
            }
            _ => (true, String::new()),
        };
        (!ok).then_some(accepted)
    }

    /// What is counted of a value that has a range, and whether that lies in it: the number
    /// itself, or how many characters, bytes or numbers there are.
    pub fn range_problem(&self, value: &[u8]) -> Option<String> {
        let length = value.len();
        let (fits, found) = match *self {
            Self::Number { low, high, .. } => {
                let number = value.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
                ((u64::from(low)..=u64::from(high)).contains(&number), format!("is {number}"))
            }
            Self::Text { low, high } => {
                ((low..=high).contains(&length), format!("has {length} characters"))
            }
            Self::TextNul { low, high } => {
                let length = length.saturating_sub(1);
                ((low..=high).contains(&length), format!("has {length} characters"))
            }
            Self::Hex { low, high } => {
                ((low..=high).contains(&length), format!("has {length} bytes"))
            }
            Self::List { width, low, high } => {
                let count = length / width;
                ((low..=high).contains(&count), format!("has {count} numbers"))
            }
            _ => (true, String::new()),
        };
        (!fits).then_some(found)
    }
}

/// The setting of a type inside an aggregate.
pub fn find(scope: Scope, code: u8) -> Option<&'static Field> {
    scope.iter().find(|field| field.code == code)
}

/// The names that apply inside an aggregate of this type, given its vendor identifier.
pub fn inside(field: Option<&'static Field>, vendor: Option<&[u8]>) -> Scope {
    field.map_or(&[], |field| field.kind.scope(vendor))
}

impl Field {
    const fn new(code: u8, name: &'static str, kind: Kind, meaning: &'static str) -> Self {
        let (unit, repeats, main_range) = ("", false, None);
        Self { code, name, main_name: name, kind, unit, meaning, repeats, main_range }
    }

    /// Whether the encoder of the `Main { ... }` form takes this value under the setting's name.
    pub fn fits_main(&self, value: &[u8]) -> bool {
        let narrower = self.main_range.map(|(low, high)| match self.kind {
            Kind::Number { width, .. } => Kind::Number { width, low, high },
            _ => Kind::Hex { low: low as usize, high: high as usize },
        });
        narrower.as_ref().unwrap_or(&self.kind).range_problem(value).is_none()
    }

    const fn main(mut self, main_name: &'static str) -> Self {
        self.main_name = main_name;
        self
    }

    const fn unit(mut self, unit: &'static str) -> Self {
        self.unit = unit;
        self
    }

    const fn repeats(mut self) -> Self {
        self.repeats = true;
        self
    }

    const fn main_range(mut self, low: u32, high: u32) -> Self {
        self.main_range = Some((low, high));
        self
    }
}

const fn u8(code: u8, name: &'static str, low: u32, high: u32, meaning: &'static str) -> Field {
    Field::new(code, name, Kind::Number { width: 1, low, high }, meaning)
}

const fn u16(code: u8, name: &'static str, low: u32, high: u32, meaning: &'static str) -> Field {
    Field::new(code, name, Kind::Number { width: 2, low, high }, meaning)
}

const fn u32(code: u8, name: &'static str, low: u32, high: u32, meaning: &'static str) -> Field {
    Field::new(code, name, Kind::Number { width: 4, low, high }, meaning)
}

const fn hex(
    code: u8,
    name: &'static str,
    low: usize,
    high: usize,
    meaning: &'static str,
) -> Field {
    Field::new(code, name, Kind::Hex { low, high }, meaning)
}

const fn text(
    code: u8,
    name: &'static str,
    low: usize,
    high: usize,
    meaning: &'static str,
) -> Field {
    Field::new(code, name, Kind::Text { low, high }, meaning)
}

/// A name of a class, profile or template: 2 to 16 characters in all of the specification.
const fn class_name(code: u8, name: &'static str, meaning: &'static str) -> Field {
    Field::new(code, name, Kind::TextNul { low: 2, high: 16 }, meaning)
}

const fn nested(code: u8, name: &'static str, scope: Scope, meaning: &'static str) -> Field {
    Field::new(code, name, Kind::Aggregate(scope), meaning)
}

const fn vendor_identifier() -> Field {
    hex(VENDOR_ID, "VendorIdentifier", 3, 3, "organization; ffffff is the specification")
}

/// An extension field of a vendor.
const VENDOR: Scope = &[vendor_identifier()];
const MAX16: u32 = u16::MAX as u32;
const MAX32: u32 = u32::MAX;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn walk(scope: Scope, visit: &mut dyn FnMut(Scope)) {
        visit(scope);
        for field in scope {
            if let Kind::Aggregate(inner) | Kind::Extension(inner) = &field.kind {
                walk(inner, visit);
            }
        }
    }

    #[test]
    fn types_and_names_are_unique_in_each_aggregate() {
        let mut scopes = 0;
        walk(TOP, &mut |scope| {
            scopes += 1;
            let codes: BTreeSet<_> = scope.iter().map(|field| field.code).collect();
            assert_eq!(codes.len(), scope.len(), "types in {:?}", scope[0].name);
            let names: BTreeSet<_> = scope.iter().map(|field| field.name).collect();
            assert_eq!(names.len(), scope.len(), "names in {:?}", scope[0].name);
            let main: Vec<_> =
                scope.iter().map(|field| field.main_name).filter(|name| !name.is_empty()).collect();
            let distinct: BTreeSet<_> = main.iter().collect();
            assert_eq!(distinct.len(), main.len(), "Main names in {:?}", scope[0].name);
        });
        assert!(scopes > 30, "only {scopes} aggregates were visited");
    }

    #[test]
    fn no_name_is_mistaken_for_an_unnamed_type_or_a_keyword() {
        walk(TOP, &mut |scope| {
            for field in scope {
                assert!(!field.name.starts_with("Tlv"), "{}", field.name);
                assert!(!["Bytes", "Order", "EndOfData", "EndPads"].contains(&field.name));
                assert!(!field.meaning.is_empty(), "{} has no meaning", field.name);
            }
        });
    }
}
