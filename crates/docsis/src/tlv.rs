//! The model of a configuration file: an ordered list of type-length-value elements.
//!
//! The model stores everything that the bytes carry (order, pads, unknown and vendor elements,
//! presence of the end marker), so decoding and encoding are exact inverses.

use std::fmt;

use crate::schema::{Field, number};

/// Whether a top-level type has a length of two bytes (DOCSIS 4.0 types 103 and 104).
pub const fn has_wide_length(code: u8) -> bool {
    matches!(code, 103 | 104)
}

/// Bytes of a top-level type and its length.
pub(crate) const fn header_bytes(code: u8) -> usize {
    if has_wide_length(code) { 3 } else { 2 }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Config {
    /// Settings, message integrity checks and pads, in file order.
    pub items: Vec<Item>,
    pub ending: Ending,
}

/// An element at the top level of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    /// A single zero byte before the end marker.
    Pad,
    Tlv(Tlv),
}

/// How a file ends after its last element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The end marker (255) and `pads` zero bytes.
    Marker { pads: usize },
    /// The file has no end marker.
    Missing,
}

impl Default for Ending {
    fn default() -> Self {
        Self::Marker { pads: 0 }
    }
}

/// A setting: a type and its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tlv {
    pub code: u8,
    pub value: Value,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// A leaf, or an aggregate of unknown structure.
    Bytes(Vec<u8>),
    Nested(Vec<Tlv>),
}

impl Config {
    /// A file of these settings, ending with the marker and no pads.
    pub fn new(settings: impl IntoIterator<Item = Tlv>) -> Self {
        Self { items: settings.into_iter().map(Item::Tlv).collect(), ending: Ending::default() }
    }

    /// The settings in file order, without pads.
    pub fn tlvs(&self) -> impl Iterator<Item = &Tlv> {
        self.items.iter().filter_map(|item| match item {
            Item::Tlv(tlv) => Some(tlv),
            Item::Pad => None,
        })
    }

    /// The settings of one type, in file order.
    pub fn settings_of_type(&self, code: u8) -> impl Iterator<Item = &Tlv> {
        self.tlvs().filter(move |tlv| tlv.code == code)
    }

    pub fn has(&self, code: u8) -> bool {
        self.settings_of_type(code).next().is_some()
    }
}

impl Tlv {
    pub fn bytes(code: u8, bytes: impl Into<Vec<u8>>) -> Self {
        Self { code, value: Value::Bytes(bytes.into()) }
    }

    pub fn nested(code: u8, children: impl IntoIterator<Item = Tlv>) -> Self {
        Self { code, value: Value::Nested(children.into_iter().collect()) }
    }

    pub fn u8(code: u8, value: u8) -> Self {
        Self::bytes(code, [value])
    }

    pub fn u16(code: u8, value: u16) -> Self {
        Self::bytes(code, value.to_be_bytes())
    }

    pub fn u32(code: u8, value: u32) -> Self {
        Self::bytes(code, value.to_be_bytes())
    }

    /// The settings inside an aggregate. Empty for a leaf.
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

    /// The bytes of a leaf. `None` for an aggregate.
    pub fn as_bytes(&self) -> Option<&[u8]> {
        match &self.value {
            Value::Bytes(bytes) => Some(bytes),
            Value::Nested(_) => None,
        }
    }

    /// A leaf of one to eight bytes as a big-endian number.
    pub fn as_number(&self) -> Option<u64> {
        self.as_bytes().filter(|bytes| (1..=8).contains(&bytes.len())).map(number)
    }

    /// The number in the first inner setting of a type.
    pub fn number(&self, code: u8) -> Option<u64> {
        self.child(code)?.as_number()
    }

    /// As [`Self::number`]; `None` if the number does not fit into `N`.
    pub(crate) fn get<N: TryFrom<u64>>(&self, code: u8) -> Option<N> {
        self.number(code).and_then(|number| N::try_from(number).ok())
    }
}

/// The types from the top level of a file down to a setting.
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
    /// Returns the path of a setting inside this one, number `ordinal` (from 1) of its type.
    #[must_use]
    pub fn join(&self, code: u8, ordinal: usize, field: Option<&'static Field>) -> Self {
        let mut steps = self.steps.clone();
        steps.push(Step { code, ordinal, field });
        Self { steps }
    }

    /// The schema's entry for the setting.
    pub fn field(&self) -> Option<&'static Field> {
        self.steps.last().and_then(|step| step.field)
    }

    /// Whether the path has `depth` outer types and then exactly `codes`, of the specification: in a
    /// vendor's field the same types have no name, because they mean something else.
    pub(crate) fn matches(&self, depth: usize, codes: &[u8]) -> bool {
        self.steps.len() == depth + codes.len()
            && self.steps[depth..].iter().map(|step| step.code).eq(codes.iter().copied())
            && self.steps.iter().all(|step| step.field.is_some())
    }

    /// Whether this path is `outer` or inside it.
    pub(crate) fn starts_with(&self, outer: &Self) -> bool {
        self.steps.starts_with(&outer.steps)
    }

    /// Whether a setting of this type encloses this one.
    pub(crate) fn is_within(&self, code: u8) -> bool {
        self.steps.iter().rev().skip(1).any(|step| step.code == code)
    }

    /// Number of types in the path.
    pub fn depth(&self) -> usize {
        self.steps.len()
    }

    /// The types alone, such as `24.35.2`.
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
