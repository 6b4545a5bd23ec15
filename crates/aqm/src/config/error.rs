//! Errors of SPECs, which name the fault and what is accepted.

use alloc::string::String;
use core::fmt;

/// Why a SPEC was refused. Its text names the place and what would be accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConfigError {
    Syntax {
        text: String,
        problem: &'static str,
    },
    UnknownName {
        /// Either `queue` or `link`.
        what: &'static str,
        name: String,
        /// Names that exist, separated by commas.
        known: String,
        suggestion: Option<String>,
    },
    UnknownKey {
        name: String,
        key: String,
        /// Keys that exist, separated by commas.
        known: String,
        suggestion: Option<String>,
    },
    /// A key is given twice.
    Repeated {
        name: String,
        key: String,
    },
    Missing {
        name: String,
        key: String,
        expected: String,
    },
    /// A value cannot be read: wrong or missing unit, not a number, not one of the choices.
    BadValue {
        name: String,
        key: String,
        value: String,
        expected: String,
    },
    /// A text outside a SPEC cannot be parsed as a quantity.
    BadQuantity {
        /// The text as written, and what is accepted.
        refusal: String,
    },
    /// A value can be parsed, but is out of range or contradicts another.
    OutOfRange {
        name: String,
        key: String,
        value: String,
        /// The range or relation that it breaks.
        expected: String,
    },
    /// A nested or referenced part is refused.
    Inside {
        name: String,
        key: String,
        problem: String,
    },
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Syntax { text, problem } => write!(f, "`{text}`: {problem}"),
            Self::UnknownName { what, name, known, suggestion } => {
                write!(f, "there is no {what} `{name}`")?;
                hint(f, suggestion.as_deref(), known)
            }
            Self::UnknownKey { name, key, known, suggestion } => {
                write!(f, "`{name}` has no parameter `{key}`")?;
                hint(f, suggestion.as_deref(), known)
            }
            Self::Repeated { name, key } => write!(f, "`{name}`: `{key}` is given twice"),
            Self::Missing { name, key, expected } => {
                write!(f, "`{name}` needs `{key}=`: {expected}")
            }
            Self::BadValue { name, key, value, expected }
            | Self::OutOfRange { name, key, value, expected } => {
                write!(f, "`{name}`: `{key}={value}`: expected {expected}")
            }
            Self::BadQuantity { refusal } => f.write_str(refusal),
            Self::Inside { name, key, problem } => write!(f, "`{name}`: in `{key}`: {problem}"),
        }
    }
}

fn hint(f: &mut fmt::Formatter<'_>, suggestion: Option<&str>, known: &str) -> fmt::Result {
    match suggestion {
        Some(suggestion) => write!(f, "; did you mean `{suggestion}`? (known: {known})"),
        None => write!(f, "; known: {known}"),
    }
}

impl core::error::Error for ConfigError {}
