//! A value of a row.

use std::borrow::Cow;
use std::fmt;

#[derive(Debug, Clone, PartialEq)]
pub enum Cell<'a> {
    /// Stored as the nearest number of 64 bits.
    Long(i128),
    OptionalLong(Option<i128>),
    Double(f64),
    OptionalDouble(Option<f64>),
    Boolean(bool),
    Text(Cow<'a, str>),
    OptionalText(Option<Cow<'a, str>>),
    Bytes(&'a [u8]),
    Longs(Vec<i64>),
}

macro_rules! from {
    ($($type:ty as $kind:ident, $optional:ident;)*) => {$(
        impl<'a> From<$type> for Cell<'a> {
            fn from(value: $type) -> Self {
                Self::$kind(value.into())
            }
        }

        impl<'a> From<Option<$type>> for Cell<'a> {
            fn from(value: Option<$type>) -> Self {
                Self::$optional(value.map(Into::into))
            }
        }
    )*};
}

from! {
    u8 as Long, OptionalLong;
    u16 as Long, OptionalLong;
    u32 as Long, OptionalLong;
    u64 as Long, OptionalLong;
    i64 as Long, OptionalLong;
    i128 as Long, OptionalLong;
    f64 as Double, OptionalDouble;
    &'a str as Text, OptionalText;
    &'a String as Text, OptionalText;
    String as Text, OptionalText;
    Cow<'a, str> as Text, OptionalText;
}

impl From<bool> for Cell<'_> {
    fn from(value: bool) -> Self {
        Self::Boolean(value)
    }
}

impl<'a, const N: usize> From<&'a [u8; N]> for Cell<'a> {
    fn from(bytes: &'a [u8; N]) -> Self {
        Self::Bytes(bytes)
    }
}

impl From<Vec<i64>> for Cell<'_> {
    fn from(numbers: Vec<i64>) -> Self {
        Self::Longs(numbers)
    }
}

impl fmt::Display for Cell<'_> {
    /// Writes a field of a CSV file.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Long(value) | Self::OptionalLong(Some(value)) => write!(f, "{value}"),
            Self::Double(value) | Self::OptionalDouble(Some(value)) => write!(f, "{value}"),
            Self::Boolean(value) => write!(f, "{value}"),
            Self::Text(text) | Self::OptionalText(Some(text)) => {
                if text.contains(['"', ',', '\n', '\r']) {
                    write!(f, "\"{}\"", text.replace('"', "\"\""))
                } else {
                    f.write_str(text)
                }
            }
            Self::Bytes(bytes) => bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}")),
            Self::Longs(numbers) => {
                let numbers: Vec<String> = numbers.iter().map(ToString::to_string).collect();
                f.write_str(&numbers.join(" "))
            }
            Self::OptionalLong(None) | Self::OptionalText(None) | Self::OptionalDouble(None) => {
                Ok(())
            }
        }
    }
}
