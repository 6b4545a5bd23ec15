//! Numbers with units on the command line, read as the SPEC strings read them.

use std::time::Duration;

use underload_aqm::config::{Kind, Value};

/// A time with its unit, `5s` or `4h`: as in SPEC strings.
pub fn duration(text: &str) -> Result<Duration, String> {
    match Kind::Span.read(text) {
        Some(Value::Span(span)) => Ok(Duration::from_nanos(span.as_nanos())),
        _ => Err("expected a time with a unit (us, ms, s, min, h, d), such as 5s".to_owned()),
    }
}

/// A rate with its unit, `20mbit`, in bit/s.
pub fn rate(text: &str) -> Result<u64, String> {
    match Kind::Rate.read(text) {
        Some(Value::Rate(rate)) if rate.bits_per_second() > 0 => Ok(rate.bits_per_second()),
        _ => Err(format!("expected {}, above 0", Kind::Rate.expectation())),
    }
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
        for wrong in ["5", "", "h", "-1s", "1e99d"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
        for wrong in ["5", "0mbit", "fast"] {
            assert!(rate(wrong).is_err(), "{wrong}");
        }
    }
}
