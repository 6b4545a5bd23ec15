//! The two text forms: TOML ([`to_toml`], [`from_toml`]) and the `Main { ... }` form of the open
//! `docsis` encoder ([`to_main`], [`from_main`]).
//!
//! TOML carries everything: reading it back gives the same bytes. The `Main` form has no place
//! for pads, the end marker and the MICs, which its encoder makes itself; it carries all settings
//! in their order.

mod lexer;
mod main_read;
mod main_write;
mod toml_place;
mod toml_read;
mod toml_write;

use thiserror::Error;

pub use main_read::from_main;
pub use main_write::to_main;
pub use toml_read::from_toml;
pub use toml_write::to_toml;

use crate::decode::{DecodeError, Limits};
use crate::encode::EncodeError;
use crate::tlv::Config;

/// Longest text that is read, bytes.
pub const MAX_TEXT_BYTES: usize = 4 * 1024 * 1024;

/// Why a text is not a configuration, and where.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TextError {
    /// More than [`MAX_TEXT_BYTES`].
    #[error("the text has {bytes} bytes; at most {MAX_TEXT_BYTES} are read")]
    TooLarge {
        /// Length of the text, bytes.
        bytes: usize,
    },
    /// The text is not valid TOML.
    #[error("{0}")]
    Toml(String),
    /// A setting, or the text around it.
    #[error("{place}: {problem}")]
    At {
        /// The line, and in TOML the key path.
        place: String,
        /// What is wrong in that line, and what would be accepted.
        problem: String,
    },
    /// The settings are clear but have no bytes.
    #[error(transparent)]
    Encode(#[from] EncodeError),
    /// The settings together are not a file.
    #[error(transparent)]
    Decode(#[from] DecodeError),
}

impl TextError {
    fn at(place: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::At { place: place.into(), problem: problem.into() }
    }
}

/// Reads a text of either form.
///
/// # Errors
/// As [`from_main`] or [`from_toml`].
pub fn read(text: &str) -> Result<Config, TextError> {
    let start = text.trim_start();
    let is_main = start.get(..4).is_some_and(|word| word.eq_ignore_ascii_case("main"))
        || start.starts_with("/*");
    if is_main { from_main(text) } else { from_toml(text) }
}

fn check_size(text: &str) -> Result<(), TextError> {
    match text.len() {
        bytes if bytes > MAX_TEXT_BYTES => Err(TextError::TooLarge { bytes }),
        _ => Ok(()),
    }
}

/// The model that the same file's bytes would give: raw bytes of aggregates become settings.
fn normalise(config: &Config) -> Result<Config, TextError> {
    let bytes = config.encode()?;
    Ok(Config::decode_lenient(&bytes, &Limits::default())?.0)
}

/// The closest of some names, if one is close enough to have been meant.
fn closest<'a>(wanted: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    // No name is longer; what a hostile text has in place of one may be.
    let start = |name: &str| name.to_lowercase().chars().take(64).collect::<String>();
    let distance = |name: &str| strsim::damerau_levenshtein(&start(wanted), &start(name));
    let best = names.map(|name| (distance(name), name)).min_by_key(|(distance, _)| *distance)?;
    (best.0 <= 2 + wanted.len() / 4).then_some(best.1)
}
