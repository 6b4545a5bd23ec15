//! Bytes as `0x` and hexadecimal digits.

use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};

/// Formats bytes as `0x0102`.
pub fn hex(bytes: &[u8]) -> String {
    let mut text = String::from("0x");
    HEXLOWER.encode_append(bytes, &mut text);
    text
}

/// Parses `0x` and an even number of digits.
pub(crate) fn read(text: &str) -> Option<Vec<u8>> {
    let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"))?;
    HEXLOWER_PERMISSIVE.decode(digits.as_bytes()).ok()
}
