//! Quantities with units on the command line, as in SPEC strings.

use std::num::NonZeroUsize;
use std::time::Duration;

use underload_aqm::config::{Kind, Value};

/// Parses a time such as `5s` or `4h`.
pub fn duration(text: &str) -> Result<Duration, String> {
    match Kind::Span.read(text) {
        Some(Value::Span(span)) => Ok(Duration::from_nanos(span.as_nanos())),
        _ => Err(Kind::Span.refusal(text)),
    }
}

/// Returns a parser of times from `low` to `high`, such as from `1s` to `1h`.
pub fn from_to(
    low: &'static str,
    high: &'static str,
) -> impl Fn(&str) -> Result<Duration, String> + Clone + Send + Sync + 'static {
    move |text| match duration(text)? {
        time if duration(low)? <= time && time <= duration(high)? => Ok(time),
        _ => Err(format!("expected {low} to {high}")),
    }
}

/// Parses a rate such as `20mbit`, in bit/s.
pub fn rate(text: &str) -> Result<u64, String> {
    match Kind::Rate.read(text) {
        Some(Value::Rate(rate)) if rate.bits_per_second() > 0 => Ok(rate.bits_per_second()),
        Some(_) => Err("expected more than 0".to_owned()),
        None => Err(Kind::Rate.refusal(text)),
    }
}

/// Parses the rates of an access line, `DOWN/UP` such as `40mbit/10mbit`, in bit/s.
pub fn down_and_up(text: &str) -> Result<(u64, u64), String> {
    let (down, up) = text.split_once('/').ok_or("expected DOWN/UP, such as 40mbit/10mbit")?;
    Ok((rate(down)?, rate(up)?))
}

/// Parses a size such as `256KiB` or `2GB`, in bytes.
pub fn size(text: &str) -> Result<u64, String> {
    let large = [("GiB", "MiB", 1 << 10), ("GB", "MB", 1_000)];
    let large = large.into_iter().find_map(|(unit, smaller, scale)| {
        let number = text.strip_suffix(unit)?;
        Some((format!("{number}{smaller}"), scale))
    });
    let (text, scale) = large.unwrap_or((text.to_owned(), 1));
    match Kind::Bytes.read(&text) {
        Some(Value::Bytes(bytes)) => Ok(bytes.saturating_mul(scale)),
        _ => Err(format!("{}, or GB and GiB", Kind::Bytes.refusal(&text))),
    }
}

/// Parses a number of threads.
pub fn threads(text: &str) -> Result<NonZeroUsize, String> {
    text.parse().map_err(|_| "expected 1 or more".to_owned())
}

/// Parses a percentage, with or without the sign.
pub fn percent(text: &str) -> Result<f64, String> {
    let value = text.trim_end_matches('%').parse::<f64>().ok();
    value.filter(|value| (0.0..=100.0).contains(value)).ok_or("expected 0 to 100".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_needed_and_understood() {
        assert_eq!(duration("250ms").unwrap(), Duration::from_millis(250));
        assert_eq!(duration("4h").unwrap(), Duration::from_hours(4));
        assert_eq!(duration("30min").unwrap(), Duration::from_mins(30));
        assert_eq!(rate("40mbit").unwrap(), 40_000_000);
        assert_eq!((size("2GB").unwrap(), size("1GiB").unwrap()), (2_000_000_000, 1 << 30));
        assert_eq!(size("256KiB").unwrap(), 262_144);
        assert!(size("5").is_err() && size("GB").is_err());
        let minutes = from_to("1min", "1h");
        assert_eq!(minutes("60s"), Ok(Duration::from_mins(1)));
        assert_eq!(minutes("59s"), Err("expected 1min to 1h".to_owned()));
        assert!(minutes("2h").is_err() && minutes("5").is_err());
        assert_eq!((percent("12.5").unwrap(), percent("12.5%").unwrap()), (12.5, 12.5));
        assert_eq!(threads("2").map(NonZeroUsize::get), Ok(2));
        assert_eq!(threads("0"), Err("expected 1 or more".to_owned()));
        assert!(percent("nan").is_err() && percent("101").is_err());
        for wrong in ["5", "", "h", "-1s", "1e99d"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
        assert_eq!(down_and_up("40mbit/10mbit"), Ok((40_000_000, 10_000_000)));
        assert!(down_and_up("40mbit").is_err() && down_and_up("40/10").is_err());
        for wrong in ["5", "0mbit", "fast"] {
            assert!(rate(wrong).is_err(), "{wrong}");
        }
    }
}
