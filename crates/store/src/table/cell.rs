//! A value of a row.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};
use underload_record::text::csv_field;

/// A value of a column, whether the column may lack values or not. In JSON it is a value of the same
/// kind; bytes have none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Cell<'a> {
    Long(i64),
    Double(f64),
    Boolean(bool),
    Text(Cow<'a, str>),
    #[serde(skip)]
    Bytes(Cow<'a, [u8]>),
    Longs(Vec<i64>),
    Absent,
}

macro_rules! from {
    ($($type:ty as $kind:ident;)*) => {$(
        impl<'a> From<$type> for Cell<'a> {
            fn from(value: $type) -> Self {
                Self::$kind(value.into())
            }
        }
    )*};
}

from! {
    u8 as Long;
    u16 as Long;
    u32 as Long;
    i64 as Long;
    f64 as Double;
    bool as Boolean;
    &'a str as Text;
    &'a String as Text;
    String as Text;
    Cow<'a, str> as Text;
    Vec<i64> as Longs;
}

/// The nearest number of 63 bits.
impl From<u64> for Cell<'_> {
    fn from(number: u64) -> Self {
        Self::Long(number.try_into().unwrap_or(i64::MAX))
    }
}

impl<'a, T: Into<Cell<'a>>> From<Option<T>> for Cell<'a> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Absent, Into::into)
    }
}

impl<'a, const N: usize> From<&'a [u8; N]> for Cell<'a> {
    fn from(bytes: &'a [u8; N]) -> Self {
        Self::Bytes(bytes.as_slice().into())
    }
}

impl Cell<'_> {
    pub fn into_owned(self) -> Cell<'static> {
        match self {
            Self::Long(number) => Cell::Long(number),
            Self::Double(number) => Cell::Double(number),
            Self::Boolean(value) => Cell::Boolean(value),
            Self::Text(text) => Cell::Text(text.into_owned().into()),
            Self::Longs(numbers) => Cell::Longs(numbers),
            Self::Bytes(bytes) => Cell::Bytes(bytes.into_owned().into()),
            Self::Absent => Cell::Absent,
        }
    }
}

impl fmt::Display for Cell<'_> {
    /// Writes a field of a CSV file.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Long(value) => write!(f, "{value}"),
            Self::Double(value) => write!(f, "{value}"),
            Self::Boolean(value) => write!(f, "{value}"),
            Self::Text(text) => f.write_str(&csv_field(text)),
            Self::Bytes(bytes) => bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}")),
            Self::Longs(numbers) => {
                let numbers: Vec<String> = numbers.iter().map(ToString::to_string).collect();
                f.write_str(&numbers.join(" "))
            }
            Self::Absent => Ok(()),
        }
    }
}
