//! What can be wrong with a SPEC, said so that the reader can mend it.

use alloc::string::String;
use core::fmt;

/// Why a SPEC was refused. Its text names the place and what would be accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConfigError {
    /// The text is not a SPEC at all.
    Syntax {
        /// The whole text.
        text: String,
        /// The fault in the value.
        problem: &'static str,
    },
    /// No discipline or link has this name.
    UnknownName {
        /// `queue` or `link`.
        what: &'static str,
        /// The name as written.
        name: String,
        /// Names that exist, separated by commas.
        known: String,
        /// The name probably meant.
        suggestion: Option<String>,
    },
    /// The discipline or link has no such parameter.
    UnknownKey {
        /// The discipline or link.
        name: String,
        /// The key as written.
        key: String,
        /// Keys that exist, separated by commas.
        known: String,
        /// The key probably meant.
        suggestion: Option<String>,
    },
    /// A key stands twice.
    Repeated {
        /// The discipline or link.
        name: String,
        /// The key.
        key: String,
    },
    /// A parameter without a default is not given.
    Missing {
        /// The discipline or link.
        name: String,
        /// The key.
        key: String,
        /// The form that is accepted.
        expected: String,
    },
    /// A value cannot be read: wrong or missing unit, not a number, not one of the choices.
    BadValue {
        /// The discipline or link.
        name: String,
        /// The key.
        key: String,
        /// The value as written.
        value: String,
        /// The values that are accepted.
        expected: String,
    },
    /// A text that stands alone cannot be read as a quantity.
    BadQuantity {
        /// The text as written, and what is accepted.
        refusal: String,
    },
    /// A value can be read, but makes no sense.
    OutOfRange {
        /// The discipline or link.
        name: String,
        /// The key.
        key: String,
        /// The value as written.
        value: String,
        /// The range or relation that it breaks.
        expected: String,
    },
    /// A nested or referenced part is refused.
    Inside {
        /// The discipline or link.
        name: String,
        /// The key whose value is refused.
        key: String,
        /// The reason, as text.
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
