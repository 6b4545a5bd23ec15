//! The model of a configuration file: an ordered list of type-length-value elements.
//!
//! The model keeps everything that the bytes carry (order, pads, unknown and vendor elements,
//! whether the end marker is there), so that decoding and encoding are exact inverses.

use std::fmt;

use crate::schema::Field;

/// Whether a top-level type has a length of two bytes (DOCSIS 4.0 types 103 and 104).
pub const fn has_wide_length(code: u8) -> bool {
    matches!(code, 103 | 104)
}

/// A whole configuration file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Config {
    /// Settings, message integrity checks and stray pads, in file order.
    pub items: Vec<Item>,
    /// How the file ends after its last element.
    pub ending: Ending,
}

/// One element at the top level of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    /// A single zero byte before the end marker.
    Pad,
    /// A setting.
    Tlv(Tlv),
}

/// How a file ends after its last element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The end marker (255) and this many zero bytes.
    Marker {
        /// Zero bytes after the marker.
        pads: usize,
    },
    /// No end marker: the file just stops.
    Missing,
}

impl Default for Ending {
    fn default() -> Self {
        Self::Marker { pads: 0 }
    }
}

/// One setting: a type and its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tlv {
    /// The type byte.
    pub code: u8,
    /// The value.
    pub value: Value,
}

/// The value of a setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// A leaf, or anything whose inner structure is not known.
    Bytes(Vec<u8>),
    /// An aggregate of further settings.
    Nested(Vec<Tlv>),
}

impl Config {
    /// A file of these settings, ending with the marker and no pads.
    pub fn new(settings: impl IntoIterator<Item = Tlv>) -> Self {
        Self { items: settings.into_iter().map(Item::Tlv).collect(), ending: Ending::default() }
    }

    /// The settings in file order, pads left out.
    pub fn tlvs(&self) -> impl Iterator<Item = &Tlv> {
        self.items.iter().filter_map(|item| match item {
            Item::Tlv(tlv) => Some(tlv),
            Item::Pad => None,
        })
    }

    /// The settings of one type, in file order.
    pub fn of(&self, code: u8) -> impl Iterator<Item = &Tlv> {
        self.tlvs().filter(move |tlv| tlv.code == code)
    }

    /// Whether the file has a setting of this type.
    pub fn has(&self, code: u8) -> bool {
        self.of(code).next().is_some()
    }
}

impl Tlv {
    /// A leaf.
    pub fn bytes(code: u8, bytes: impl Into<Vec<u8>>) -> Self {
        Self { code, value: Value::Bytes(bytes.into()) }
    }

    /// An aggregate.
    pub fn nested(code: u8, children: impl IntoIterator<Item = Tlv>) -> Self {
        Self { code, value: Value::Nested(children.into_iter().collect()) }
    }

    /// A one-byte number.
    pub fn u8(code: u8, value: u8) -> Self {
        Self::bytes(code, [value])
    }

    /// A two-byte number.
    pub fn u16(code: u8, value: u16) -> Self {
        Self::bytes(code, value.to_be_bytes())
    }

    /// A four-byte number.
    pub fn u32(code: u8, value: u32) -> Self {
        Self::bytes(code, value.to_be_bytes())
    }

    /// The settings inside an aggregate; none for a leaf.
    pub fn children(&self) -> &[Tlv] {
        match &self.value {
            Value::Nested(children) => children,
            Value::Bytes(_) => &[],
        }
    }

    /// The first inner setting of a type.
    pub fn child(&self, code: u8) -> Option<&Tlv> {
        self.children().iter().find(|child| child.code == code)
    }

    /// The bytes of a leaf; none for an aggregate.
    pub fn as_bytes(&self) -> Option<&[u8]> {
        match &self.value {
            Value::Bytes(bytes) => Some(bytes),
            Value::Nested(_) => None,
        }
    }

    /// A leaf of one to eight bytes as a big-endian number.
    pub fn as_number(&self) -> Option<u64> {
        let bytes = self.as_bytes().filter(|bytes| (1..=8).contains(&bytes.len()))?;
        Some(bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    /// The number in the first inner setting of a type.
    pub fn number(&self, code: u8) -> Option<u64> {
        self.child(code)?.as_number()
    }
}

/// Where a setting sits: the types from the top level down to it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Path {
    steps: Vec<Step>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Step {
    code: u8,
    /// Counted from 1 among siblings of the same type.
    ordinal: usize,
    field: Option<&'static Field>,
}

impl Path {
    /// The path one level further down; `ordinal` counts from 1 among siblings of the same type.
    #[must_use]
    pub fn join(&self, code: u8, ordinal: usize, field: Option<&'static Field>) -> Self {
        let mut steps = self.steps.clone();
        steps.push(Step { code, ordinal, field });
        Self { steps }
    }

    /// The schema's entry for the last step of the path.
    pub fn field(&self) -> Option<&'static Field> {
        self.steps.last().and_then(|step| step.field)
    }

    /// Whether its types end with these, below `depth` outer ones.
    pub(crate) fn is(&self, depth: usize, codes: &[u8]) -> bool {
        self.steps.len() == depth + codes.len()
            && self.steps[depth..].iter().map(|step| step.code).eq(codes.iter().copied())
    }

    /// Whether it lies within a setting of this type.
    pub(crate) fn is_within(&self, code: u8) -> bool {
        let outer = self.steps.split_last().map_or(&[][..], |(_, outer)| outer);
        outer.iter().any(|step| step.code == code)
    }

    /// Number of settings that enclose this one.
    pub fn depth(&self) -> usize {
        self.steps.len()
    }

    /// The types alone, as `24.35.2`.
    pub fn codes(&self) -> String {
        let codes: Vec<_> = self.steps.iter().map(|step| step.code.to_string()).collect();
        codes.join(".")
    }
}

/// `UpstreamServiceFlow[2].BufferControl.TargetBuffer (24.35.2)`.
impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.steps.is_empty() {
            return f.write_str("the file");
        }
        for (depth, step) in self.steps.iter().enumerate() {
            if depth > 0 {
                f.write_str(".")?;
            }
            match step.field {
                Some(field) => f.write_str(field.name)?,
                None => write!(f, "Tlv{}", step.code)?,
            }
            if step.ordinal > 1 || step.field.is_some_and(|field| field.repeats) {
                write!(f, "[{}]", step.ordinal)?;
            }
        }
        write!(f, " ({})", self.codes())
    }
}

impl serde::Serialize for Path {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
