//! Files of limited size, and sizes.

use std::path::Path;

use anyhow::Context;
use underload_disk as disk;
use underload_docsis::text::MAX_TEXT_BYTES;
use underload_terminal::exit::{OrBadInput, refuse};
use underload_terminal::quantity;

/// Reads a file of at most `limit` bytes.
pub fn read(path: &Path, limit: usize) -> anyhow::Result<Vec<u8>> {
    let bytes = disk::read_file(path, limit as u64);
    bytes.with_context(|| path.display().to_string()).or_bad_input()
}

pub fn read_text(path: &Path) -> anyhow::Result<String> {
    let Ok(text) = String::from_utf8(read(path, MAX_TEXT_BYTES)?) else {
        refuse!(
            "{}: not text; accepted: TOML or Main {{ ... }} (for a configuration file see \
             `underload docsis decode`)",
            path.display()
        )
    };
    Ok(text)
}

/// Parses a size such as `1024`, `24KiB` or `1MB`.
pub fn size(text: &str) -> Result<u64, String> {
    let text = text.replace(' ', "");
    let size = text.parse().or_else(|_| quantity::size(&text));
    let size = size.ok().filter(|size| *size <= 1 << 40);
    size.ok_or_else(|| "accepted: a size such as 24576, 24KiB or 1MB".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units_or_are_bytes() {
        assert_eq!(size("24576"), Ok(24_576));
        assert_eq!(size("24KiB"), Ok(24_576));
        assert_eq!(size("1 MiB"), Ok(1_048_576));
        assert_eq!(size("10MB"), Ok(10_000_000));
        assert!(size("24k").is_err());
        assert!(size("-1").is_err());
    }

    #[test]
    fn a_file_past_the_limit_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("big");
        std::fs::write(&path, [0; 11]).unwrap();
        assert!(read(&path, 10).is_err());
        assert_eq!(read(&path, 11).unwrap().len(), 11);
    }
}
