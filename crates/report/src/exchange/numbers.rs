//! Numbers of strangers: floats that may be anything, into units of ours.

use serde::{Deserialize, Deserializer};

/// The longest time that is read, s: thirty years.
const SECONDS_MAX: f64 = 1e9;

/// Seconds as nanoseconds; `None` unless they are a time that a measurement can take.
pub(super) fn nanos(seconds: f64) -> Option<u64> {
    let is_sane = (0.0..=SECONDS_MAX).contains(&seconds);
    is_sane.then(|| (seconds * 1e9).round() as u64)
}

/// A rate in Mbit/s as bit/s; `None` unless it is one.
pub(super) fn bits(mbit_per_s: f64) -> Option<f64> {
    (0.0..=1e9).contains(&mbit_per_s).then_some(mbit_per_s * 1e6)
}

/// A number, or `None` for whatever else stands in its place.
pub(super) fn lenient<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    Ok(serde_json::Value::deserialize(deserializer)?.as_f64())
}

/// An index that fits the position of a flow.
pub(super) fn flow_index(position: usize) -> Option<u16> {
    u16::try_from(position).ok()
}
