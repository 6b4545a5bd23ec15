//! Conversion of numbers in foreign files, which may be anything, to the units used here.

use std::fmt;

use serde::Deserializer;
use serde::de::{IgnoredAny, MapAccess, SeqAccess, Visitor};

/// The longest accepted time, s: thirty years.
const SECONDS_MAX: f64 = 1e9;
/// The value of [`SECONDS_MAX`] in ns.
pub(super) const NANOS_MAX: u64 = 1_000_000_000_000_000_000;

/// Converts seconds to nanoseconds; `None` outside of 0 to [`SECONDS_MAX`].
pub(super) fn nanos(seconds: f64) -> Option<u64> {
    let is_sane = (0.0..=SECONDS_MAX).contains(&seconds);
    is_sane.then(|| (seconds * 1e9).round() as u64)
}

/// Converts Mbit/s to bit/s; `None` if the value is not a possible rate.
pub(super) fn bits(mbit_per_s: f64) -> Option<f64> {
    (0.0..=1e9).contains(&mbit_per_s).then_some(mbit_per_s * 1e6)
}

/// Rounds a rate down to whole bit/s; `None` if the value is not a possible rate.
pub(super) fn rate(bit_per_s: f64) -> Option<u64> {
    (0.0..=1e15).contains(&bit_per_s).then_some(bit_per_s as u64)
}

/// Reads a number; anything else is skipped without storing it and becomes `None`.
pub(super) fn lenient<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    deserializer.deserialize_any(Lenient)
}

struct Lenient;

impl<'de> Visitor<'de> for Lenient {
    type Value = Option<f64>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("anything")
    }

    fn visit_f64<E>(self, value: f64) -> Result<Self::Value, E> {
        Ok(Some(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Self::Value, E> {
        Ok(Some(value as f64))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Self::Value, E> {
        Ok(Some(value as f64))
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_str<E>(self, _: &str) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_none<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(None)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        while entries.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(None)
    }
}

/// Converts the position of a flow to its index in samples; `None` if it is too large.
pub(super) fn flow_index(position: usize) -> Option<u16> {
    u16::try_from(position).ok()
}
