//! Errors of SPECs, which name the fault and what is accepted.

use alloc::format;
use alloc::string::String;
use core::fmt::{self, Display};

/// Why a SPEC was refused. Its text names the place and what would be accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConfigError {
    /// No queue or link has this name.
    UnknownName {
        /// Either `queue` or `link`.
        what: &'static str,
        /// The name as written.
        name: String,
        /// Names that exist, separated by commas.
        known: String,
        /// The existing name that was probably meant; `None` if none is close.
        suggestion: Option<String>,
    },
    /// The queue or link has no such parameter.
    UnknownKey {
        /// The queue or link.
        name: String,
        /// The key as written.
        key: String,
        /// Keys that exist, separated by commas.
        known: String,
        /// The existing key that was probably meant; `None` if none is close.
        suggestion: Option<String>,
    },
    /// The message of any other fault.
    Refused(String),
}

impl ConfigError {
    /// Refuses a value that cannot be read, is out of range, or contradicts another.
    pub fn value(name: &str, key: &str, value: &str, expected: impl Display) -> Self {
        Self::Refused(format!("`{name}`: `{key}={value}`: expected {expected}"))
    }

    /// Refuses a SPEC without a parameter that it needs.
    pub fn missing(name: &str, key: &str, expected: &str) -> Self {
        Self::Refused(format!("`{name}` needs `{key}=`: {expected}"))
    }

    /// Refuses a parameter that is given twice.
    pub fn repeated(name: &str, key: &str) -> Self {
        Self::Refused(format!("`{name}`: `{key}` is given twice"))
    }

    /// Refuses a nested or referenced part.
    pub fn inside(name: &str, key: &str, problem: impl Display) -> Self {
        Self::Refused(format!("`{name}`: in `{key}`: {problem}"))
    }
}

impl Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (suggestion, known) = match self {
            Self::UnknownName { what, name, known, suggestion } => {
                write!(f, "there is no {what} `{name}`")?;
                (suggestion, known)
            }
            Self::UnknownKey { name, key, known, suggestion } => {
                write!(f, "`{name}` has no parameter `{key}`")?;
                (suggestion, known)
            }
            Self::Refused(message) => return f.write_str(message),
        };
        match suggestion {
            Some(suggestion) => write!(f, "; did you mean `{suggestion}`? (known: {known})"),
            None => write!(f, "; known: {known}"),
        }
    }
}

impl core::error::Error for ConfigError {}
