//! Numbers without units: decimals and probabilities, and short forms of texts for errors.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

/// Formats a fraction of 2^32 in millionths, as precisely as the parser reads it.
pub(super) fn millionths_of_q32(f: &mut fmt::Formatter<'_>, q32: u64) -> fmt::Result {
    decimal(f, (q32 * 1_000_000 + (1 << 31)) >> 32)
}

pub(super) fn decimal(f: &mut fmt::Formatter<'_>, millionths: u64) -> fmt::Result {
    write!(f, "{}", millionths / 1_000_000)?;
    let mut fraction = millionths % 1_000_000;
    if fraction == 0 {
        return Ok(());
    }
    let mut width = 6;
    while fraction.is_multiple_of(10) {
        fraction /= 10;
        width -= 1;
    }
    write!(f, ".{fraction:0width$}")
}

/// Parses a decimal number and returns it times `scale`, rounded down. Returns `None` if `text` is
/// not a decimal number, has more than 12 fractional digits, or overflows.
pub(super) fn scaled(text: &str, scale: u64) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(fraction) || fraction.len() > 12 {
        return None;
    }
    if text.ends_with('.') {
        return None;
    }
    let whole = whole.parse::<u64>().ok()?.checked_mul(scale)?;
    let mut rest: u128 = 0;
    if !fraction.is_empty() {
        let denominator = 10_u128.pow(fraction.len() as u32);
        rest = fraction.parse::<u128>().ok()? * u128::from(scale) / denominator;
    }
    whole.checked_add(u64::try_from(rest).ok()?)
}

pub(super) fn probability(text: &str) -> Option<u64> {
    const ONE_Q32: u64 = 1 << 32;
    let (number, divisor) = text.strip_suffix('%').map_or((text, 1), |number| (number, 100));
    // Rounds to the nearest number, because 0.1 % of 2^32 should be printed as 0.1 %.
    let twice = scaled(number, 2 * ONE_Q32)?;
    Some((twice / divisor).div_ceil(2)).filter(|value| *value <= ONE_Q32)
}

/// Returns the start of `text`, so that an error about a huge input stays readable.
pub(super) fn shorten(text: &str) -> String {
    const SHOWN: usize = 120;
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => text[..end].to_string() + "...",
        None => text.to_string(),
    }
}

/// Returns the words, separated by commas.
pub fn join<'a>(words: impl Iterator<Item = &'a str>) -> String {
    words.collect::<Vec<_>>().join(", ")
}
