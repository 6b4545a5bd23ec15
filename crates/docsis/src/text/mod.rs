//! The two text forms: TOML ([`to_toml`], [`from_toml`]) and the `Main { ... }` form of the open
//! `docsis` encoder ([`to_main`], [`from_main`]).
//!
//! TOML carries the whole file: reading it back gives the same bytes. The `Main` form carries all
//! settings in their order, without pads, end marker and MICs, which its encoder adds.

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

pub const MAX_TEXT_BYTES: usize = 4 * 1024 * 1024;

/// The result of reading a text.
type Result<T, E = TextError> = std::result::Result<T, E>;

#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TextError {
    #[error("the text has {bytes} bytes; at most {MAX_TEXT_BYTES} are read")]
    TooLarge { bytes: usize },
    #[error("{place}: {problem}")]
    At {
        /// The line, and in TOML the key path.
        place: String,
        problem: String,
    },
    #[error(transparent)]
    Encode(#[from] EncodeError),
    #[error(transparent)]
    Decode(#[from] DecodeError),
}

impl TextError {
    fn at(place: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::At { place: place.into(), problem: problem.into() }
    }
}

/// Parses a text of either form.
pub fn read(text: &str) -> Result<Config> {
    let start = text.trim_start();
    let is_main = start.get(..4).is_some_and(|word| word.eq_ignore_ascii_case("main"))
        || start.starts_with("/*");
    if is_main { from_main(text) } else { from_toml(text) }
}

fn check_size(text: &str) -> Result<()> {
    match text.len() {
        bytes if bytes > MAX_TEXT_BYTES => Err(TextError::TooLarge { bytes }),
        _ => Ok(()),
    }
}

/// Encodes and decodes the model, so that aggregates given as raw bytes become settings.
fn normalise(config: &Config) -> Result<Config> {
    let bytes = config.encode()?;
    Ok(Config::decode_lenient(&bytes, &Limits::default())?.0)
}

/// Returns the name closest to `wanted`, if it is close enough to be a suggestion.
fn closest<'a>(wanted: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    // Names are shorter than 64 characters; a hostile text is not.
    let start = |name: &str| name.to_lowercase().chars().take(64).collect::<String>();
    let distance = |name: &str| strsim::damerau_levenshtein(&start(wanted), &start(name));
    let best = names.map(|name| (distance(name), name)).min_by_key(|(distance, _)| *distance)?;
    (best.0 <= 2 + wanted.len() / 4).then_some(best.1)
}
