//! Name, layout and meaning of each setting.
//!
//! Names follow the DOCSIS specifications (MULPI Annex C). Beside each is the name in the text form
//! of the open `docsis` encoder; settings that do not affect latency have only that name. Ranges
//! are the specification's: the checks report a value outside, the decoder accepts it. Types
//! without an entry stay bytes. The settings themselves are rows of `settings.txt`.

mod table;

pub use table::top;

/// The settings that one aggregate may contain.
pub type Scope = &'static [Field];

/// Type of the vendor identifier inside an extension field (43.8).
pub const VENDOR_ID: u8 = 8;
/// The vendor identifier that marks an extension field as the specification's own.
pub const GENERAL_VENDOR: [u8; 3] = [0xff; 3];

#[derive(Debug, Clone, Copy)]
pub struct Field {
    /// Type byte inside its aggregate.
    pub code: u8,
    pub name: &'static str,
    /// Name in the `Main { ... }` form; empty if its encoder has no usable name.
    pub main_name: &'static str,
    pub kind: Kind,
    /// Empty if the value has no unit.
    pub unit: &'static str,
    /// The setting's effect on the modem, in one line.
    pub meaning: &'static str,
    /// Whether an aggregate may contain the setting several times.
    pub repeats: bool,
    /// Numbers (or lengths of a [`Kind::Hex`]) that the encoder of the `Main { ... }` form accepts
    /// under this name; `None` if it accepts all that the specification allows.
    pub main_range: Option<(u32, u32)>,
}

impl PartialEq for Field {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for Field {}

/// Layout of a value.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    /// A big-endian number of `width` bytes (1 to 4). The specification allows `low` to `high`.
    Number { width: usize, low: u32, high: u32 },
    /// `low` to `high` characters without a terminator.
    Text { low: usize, high: usize },
    /// `low` to `high` characters, then a zero byte.
    TextNul { low: usize, high: usize },
    /// `low` to `high` bytes, written as hexadecimal.
    Hex { low: usize, high: usize },
    /// `low` to `high` numbers of `width` bytes (1 or 2).
    List { width: usize, low: usize, high: usize },
    /// 4 bytes.
    Ipv4,
    /// A multiple of 4 bytes.
    Ipv4List,
    /// 16 bytes.
    Ipv6,
    /// A multiple of 16 bytes.
    Ipv6List,
    /// IPv6 prefixes: each an address, then a byte with the prefix length.
    Ipv6PrefixList,
    /// An IPv4 or IPv6 address.
    Ip,
    /// A byte with the version (1 is IPv4, 2 is IPv6), then the address.
    TaggedIp,
    /// An IP address and a UDP port (SNMP transport address).
    Transport,
    /// 6 bytes.
    Mac,
    /// An address and a mask, 6 bytes each.
    MacMask,
    /// An SNMP object identifier in BER.
    Oid,
    /// An object identifier, then 1 if writing below it is denied and 0 if it is allowed.
    WriteControl,
    /// An SNMP variable binding in BER.
    VarBind,
    /// No bytes: the presence of the setting is its value.
    Empty,
    /// Settings inside a setting.
    Aggregate(Scope),
    /// An extension field: the specification's own if its vendor identifier is `ff:ff:ff`,
    /// otherwise a vendor's, of which only the identifier is known.
    Extension(Scope),
}

impl Kind {
    pub fn is_aggregate(&self) -> bool {
        matches!(self, Self::Aggregate(_) | Self::Extension(_))
    }

    /// The settings that an aggregate with this vendor identifier may contain.
    pub fn scope(&self, vendor: Option<&[u8]>) -> Scope {
        match self {
            Self::Extension(scope) if self.is_foreign(vendor) => {
                let identifier = scope.iter().position(|field| field.code == VENDOR_ID);
                identifier.map_or(&[], |index| &scope[index..=index])
            }
            Self::Aggregate(scope) | Self::Extension(scope) => scope,
            _ => &[],
        }
    }

    /// Whether this is an extension field of a vendor, whose layout only the vendor knows.
    pub fn is_foreign(&self, vendor: Option<&[u8]>) -> bool {
        matches!(self, Self::Extension(_)) && vendor != Some(&GENERAL_VENDOR)
    }

    /// Returns the accepted lengths, in words, if the value has another length.
    pub fn length_problem(&self, value: &[u8]) -> Option<String> {
        let length = value.len();
        let exactly = |bytes: usize| (length == bytes, bytes.to_string());
        let multiple = |bytes: usize| {
            (length > 0 && length.is_multiple_of(bytes), format!("a multiple of {bytes}"))
        };
        let (ok, accepted) = match self {
            Self::Number { width, .. } => exactly(*width),
            Self::List { width, .. } => multiple(*width),
            Self::Ipv4 => exactly(4),
            Self::Ipv4List => multiple(4),
            Self::Ipv6 => exactly(16),
            Self::Ipv6List => multiple(16),
            Self::Ipv6PrefixList => multiple(17),
            Self::Ip => (matches!(length, 4 | 16), "4 (IPv4) or 16 (IPv6)".into()),
            Self::TaggedIp => {
                let ok = matches!((value.first(), length), (Some(1), 5) | (Some(2), 17));
                (ok, "1 and an IPv4 address, or 2 and an IPv6 address: 5 or 17".into())
            }
            Self::Empty => exactly(0),
            Self::Transport => (matches!(length, 6 | 18), "6 (IPv4) or 18 (IPv6)".into()),
            Self::Mac => exactly(6),
            Self::MacMask => exactly(12),
            Self::TextNul { .. } => {
                (value.last() == Some(&0), "characters and a zero byte at the end".into())
            }
            _ => return None,
        };
        (!ok).then_some(accepted)
    }

    /// Returns the number, or the count of characters, bytes or numbers, if it is out of range.
    pub fn range_problem(&self, value: &[u8]) -> Option<String> {
        let length = value.len();
        let (low, high, found, words) = match *self {
            Self::Number { low, high, .. } => {
                let number = number(value);
                let fits = (u64::from(low)..=u64::from(high)).contains(&number);
                return (!fits).then(|| format!("is {number}"));
            }
            Self::Text { low, high } => (low, high, length, "characters"),
            Self::TextNul { low, high } => (low, high, length.saturating_sub(1), "characters"),
            Self::Hex { low, high } => (low, high, length, "bytes"),
            Self::List { width, low, high } => (low, high, length / width, "numbers"),
            _ => return None,
        };
        (!(low..=high).contains(&found)).then(|| format!("has {found} {words}"))
    }
}

pub fn find(scope: Scope, code: u8) -> Option<&'static Field> {
    scope.iter().find(|field| field.code == code)
}

/// The settings that an aggregate of this type and vendor identifier may contain.
pub fn inside(field: Option<&'static Field>, vendor: Option<&[u8]>) -> Scope {
    field.map_or(&[], |field| field.kind.scope(vendor))
}

impl Field {
    /// Whether the encoder of the `Main { ... }` form accepts this value under the setting's name.
    pub fn fits_main(&self, value: &[u8]) -> bool {
        let narrower = self.main_range.map(|(low, high)| match self.kind {
            Kind::Number { width, .. } => Kind::Number { width, low, high },
            _ => Kind::Hex { low: low as usize, high: high as usize },
        });
        narrower.as_ref().unwrap_or(&self.kind).range_problem(value).is_none()
    }

    /// Returns `, in` and the unit, or an empty text if the value has no unit.
    pub(crate) fn in_unit(&self) -> String {
        if self.unit.is_empty() { String::new() } else { format!(", in {}", self.unit) }
    }
}

/// A big-endian number of at most eight bytes.
pub(crate) fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

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
        walk(top(), &mut |scope| {
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
        walk(top(), &mut |scope| {
            for field in scope {
                assert!(!field.name.starts_with("Tlv"), "{}", field.name);
                assert!(!["Bytes", "Order", "EndOfData", "EndPads"].contains(&field.name));
                assert!(!field.meaning.is_empty(), "{} has no meaning", field.name);
            }
        });
    }
}
