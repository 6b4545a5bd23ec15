//! Values with units in a plan's file; a wrong one is told with its line.

use serde::de::{Deserialize, Deserializer, Error};
use underload_aqm::config::{Kind, Value};
use underload_aqm::rate::Rate;
use underload_aqm::time::Span;

use crate::schedule::Window;

/// `35mbit`, above 0.
pub(super) fn rate<'de, D: Deserializer<'de>>(from: D) -> Result<Rate, D::Error> {
    let text = String::deserialize(from)?;
    match Kind::Rate.read(&text) {
        Some(Value::Rate(rate)) if !rate.is_zero() => Ok(rate),
        _ => Err(D::Error::custom(format!("`{text}`: expected a rate above 0, such as 35mbit"))),
    }
}

/// As [`rate`], where there may be none.
pub(super) fn some_rate<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Rate>, D::Error> {
    rate(from).map(Some)
}

/// `10s`, `20ms`, `30min`, `1h`.
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

/// As [`span`], where there may be none.
pub(super) fn some_span<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Span>, D::Error> {
    span(from).map(Some)
}

/// `250MB`, `7.9GB`.
pub(super) fn some_bytes<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    let text = String::deserialize(from)?;
    let expected = "expected bytes, such as 500MB or 8GB";
    traffic_bytes(&text).map(Some).ok_or_else(|| D::Error::custom(format!("`{text}`: {expected}")))
}

/// Parses a volume of traffic with its unit, such as `250MB` or `7.9GB`.
pub fn traffic_bytes(text: &str) -> Option<u64> {
    // Decimal units in which traffic is sold, beyond those of a queue's limit.
    let (number, scale) = match text.strip_suffix("GB") {
        Some(number) => (format!("{number}MB"), 1_000),
        None => (text.to_owned(), 1),
    };
    match Kind::Bytes.read(&number) {
        Some(Value::Bytes(bytes)) => Some(bytes.saturating_mul(scale)),
        _ => None,
    }
}

/// `19:00-23:00`.
pub(super) fn some_window<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Window>, D::Error> {
    let text = String::deserialize(from)?;
    let window = text.split_once('-').and_then(|(from, until)| {
        let window = Window { from: time_of_day(from)?, until: time_of_day(until)? };
        (window.from < window.until).then_some(window)
    });
    let expected = "expected a part of the day, such as 19:00-23:00, at most 00:00-24:00";
    window.map(Some).ok_or_else(|| D::Error::custom(format!("`{text}`: {expected}")))
}

/// `2026-12-31`: the midnight, UTC, with which that day ends, milliseconds since 1970.
pub(super) fn some_date<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    let text = String::deserialize(from)?;
    let expected = "expected a day from 1970 to 9999, such as 2026-12-31";
    let midnight = midnight_ms(&text).map(|begins| begins + 86_400_000);
    midnight.map(Some).ok_or_else(|| D::Error::custom(format!("`{text}`: {expected}")))
}

/// The midnight with which a day begins.
fn midnight_ms(text: &str) -> Option<u64> {
    let parts: Vec<&str> = text.split('-').collect();
    let [year, month, day] = parts[..] else { return None };
    let number = |text: &str, digits: usize| {
        let is_plain = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit());
        is_plain.then(|| text.parse::<u64>().ok())?
    };
    let (year, month, day) = (number(year, 4)?, number(month, 2)?, number(day, 2)?);
    let is_leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let february = if is_leap { 29 } else { 28 };
    let lengths = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let length = *lengths.get(usize::try_from(month).ok()?.checked_sub(1)?)?;
    if year < 1970 || day < 1 || day > length {
        return None;
    }
    let leap_days = |before: u64| (before - 1) / 4 - (before - 1) / 100 + (before - 1) / 400;
    let of_years = (year - 1970) * 365 + leap_days(year) - leap_days(1970);
    let of_months: u64 = lengths[..month as usize - 1].iter().sum();
    Some((of_years + of_months + day - 1) * 86_400_000)
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
