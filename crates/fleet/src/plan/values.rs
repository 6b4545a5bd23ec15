//! Deserializing values with units in a plan's file. An error is reported with its line.

use serde::de::{Deserialize, Deserializer, Error};
use underload_aqm::config::{Kind, Value};
use underload_aqm::rate::Rate;
use underload_aqm::time::Span;

use crate::schedule::Window;

/// Reads a rate above 0, such as `35mbit`.
pub(super) fn rate<'de, D: Deserializer<'de>>(from: D) -> Result<Rate, D::Error> {
    let text = String::deserialize(from)?;
    match Kind::Rate.read(&text) {
        Some(Value::Rate(rate)) if !rate.is_zero() => Ok(rate),
        _ => Err(D::Error::custom(format!("`{text}`: expected a rate above 0, such as 35mbit"))),
    }
}

/// As [`rate`], for an optional key.
pub(super) fn some_rate<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Rate>, D::Error> {
    rate(from).map(Some)
}

/// Reads a time such as `10s`, `20ms`, `30min` or `1h`.
pub(super) fn span<'de, D: Deserializer<'de>>(from: D) -> Result<Span, D::Error> {
    let text = String::deserialize(from)?;
    let long = [("min", 60_u64), ("h", 3_600)].into_iter().find_map(|(unit, seconds)| {
        let count: u64 = text.strip_suffix(unit)?.parse().ok()?;
        count.checked_mul(seconds * 1_000_000_000).map(Span::from_nanos)
    });
    match (long, Kind::Span.read(&text)) {
        (Some(span), _) | (None, Some(Value::Span(span))) => Ok(span),
        _ => {
            let expected = "expected a time with its unit: ms, s, min or h";
            Err(D::Error::custom(format!("`{text}`: {expected}")))
        }
    }
}

/// As [`span`], for an optional key.
pub(super) fn some_span<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Span>, D::Error> {
    span(from).map(Some)
}

/// Reads a volume such as `250MB` or `7.9GB`.
pub(super) fn some_bytes<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    let text = String::deserialize(from)?;
    let expected = "expected bytes, such as 500MB or 8GB";
    traffic_bytes(&text).map(Some).ok_or_else(|| D::Error::custom(format!("`{text}`: {expected}")))
}

/// Parses a volume of traffic with its unit, such as `250MB` or `7.9GB`.
pub fn traffic_bytes(text: &str) -> Option<u64> {
    // Traffic volumes have larger units than the limits of queues.
    let (number, scale) = match text.strip_suffix("GB") {
        Some(number) => (format!("{number}MB"), 1_000),
        None => (text.to_owned(), 1),
    };
    match Kind::Bytes.read(&number) {
        Some(Value::Bytes(bytes)) => Some(bytes.saturating_mul(scale)),
        _ => None,
    }
}

/// Reads a part of the day such as `19:00-23:00`.
pub(super) fn some_window<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Window>, D::Error> {
    let text = String::deserialize(from)?;
    let window = text.split_once('-').and_then(|(from, until)| {
        let window = Window { from: time_of_day(from)?, until: time_of_day(until)? };
        (window.from < window.until).then_some(window)
    });
    let expected = "expected a part of the day, such as 19:00-23:00, at most 00:00-24:00";
    window.map(Some).ok_or_else(|| D::Error::custom(format!("`{text}`: {expected}")))
}

/// Reads a day such as `2026-12-31`. Returns its end, milliseconds since 1970 (UTC).
pub(super) fn some_date<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    let text = String::deserialize(from)?;
    let expected = "expected a day from 1970 to 9999, such as 2026-12-31";
    let end_ms = days_since_1970(&text).map(|days| (days + 1) * 86_400_000);
    end_ms.map(Some).ok_or_else(|| D::Error::custom(format!("`{text}`: {expected}")))
}

/// Parses a date as the start of its day.
pub(super) fn some_first_day<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    some_date(from).map(|end| end.map(|end_ms| end_ms - 86_400_000))
}

/// Parses a date and counts its days since 1970 in the Gregorian calendar.
fn days_since_1970(text: &str) -> Option<u64> {
    let parsed: toml::value::Datetime = text.parse().ok()?;
    let date = parsed.date.filter(|date| parsed.time.is_none() && date.year >= 1970)?;
    // The year begins in March, so that a leap day is its last day.
    let years = u64::from(date.year) - u64::from(date.month < 3);
    let months = (u64::from(date.month) + 9) % 12;
    let leap_days = years / 4 - years / 100 + years / 400;
    // Days from the first of March of the year 0 to 1970-01-01: 719,468.
    Some(365 * years + leap_days + (153 * months + 2) / 5 + u64::from(date.day) - 1 - 719_468)
}

fn time_of_day(text: &str) -> Option<Span> {
    let (hours, minutes) = text.trim().split_once(':')?;
    let number = |text: &str| {
        let is_plain = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
        is_plain.then(|| text.parse::<u64>().ok())?
    };
    let (hours, minutes) = (number(hours)?, number(minutes)?);
    let minutes_in_all = hours * 60 + minutes;
    (minutes < 60 && minutes_in_all <= 24 * 60).then(|| Span::from_secs(minutes_in_all * 60))
}
