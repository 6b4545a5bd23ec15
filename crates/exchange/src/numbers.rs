//! Conversion of numbers in foreign files, which may be anything, to the units used here.

use std::fmt;

use serde::Deserializer;
use serde::de::{IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use underload_record::schema::SeriesPoint;

use super::imported::ImportError;

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

/// Largest file that is read as a tree of values, which takes up to 16 times as much memory.
const TREE_BYTES_MAX: usize = 8 << 20;

/// Returns the JSON documents of a small file, at least one.
pub(super) fn trees(text: &[u8], tool: &'static str) -> Result<Vec<Value>, ImportError> {
    if text.len() > TREE_BYTES_MAX {
        return Err(ImportError::content(tool, "more than 8 MiB are not read"));
    }
    let documents = serde_json::Deserializer::from_slice(text).into_iter();
    documents.collect::<Result<_, _>>().map_err(|source| ImportError::Json { tool, source })
}

/// Returns the number at a path of keys, such as `/ping/latency`.
pub(super) fn number(tree: &Value, path: &str) -> Option<f64> {
    tree.pointer(path)?.as_f64()
}

/// Converts the position of a flow to its index in samples; `None` if it is too large.
pub(super) fn flow_index(position: usize) -> Option<u16> {
    u16::try_from(position).ok()
}

const STEP_NS: u64 = 100_000_000;

/// Converts bytes per time to bit/s per tenth of a second; tenths without bytes between two others
/// are 0.
pub(super) fn rates(steps: &[(u64, u64)]) -> Vec<SeriesPoint> {
    let Some((first, last)) = steps.first().zip(steps.last()) else { return Vec::new() };
    let start_ns = first.0;
    // A file may claim years; a test takes minutes.
    let bins = ((last.0 - start_ns) / STEP_NS + 1).min(100_000) as usize;
    let mut bytes = vec![0u64; bins];
    for (time_ns, moved) in steps {
        if let Some(bin) = bytes.get_mut(((time_ns - start_ns) / STEP_NS) as usize) {
            *bin = bin.saturating_add(*moved);
        }
    }
    let rate = |bytes: u64| bytes as f64 * 8e9 / STEP_NS as f64;
    let point = |(bin, bytes): (usize, &u64)| SeriesPoint {
        time_ns: start_ns + (bin as u64 + 1) * STEP_NS,
        value: rate(*bytes),
    };
    bytes.iter().enumerate().map(point).collect()
}
