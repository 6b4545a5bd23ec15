//! Predefined steps, which measure like the presets of `underload`.
//!
//! A plan's step loads one direction at a time, so presets that load both, or that compare numbers
//! of flows, are missing. The warm-up is as long as a preset waits for a steady state at most.

use underload_aqm::time::Span;

use super::{Kind, Step};

/// The presets that a plan may name.
pub const PRESETS: [&str; 3] = ["npms-lul", "quick", "ull"];

const WARM_UP: Span = Span::from_secs(5);
const INTERVAL: Span = Span::from_millis(10);
const PROBE_BYTES: u32 = 100;

/// Returns the steps of a preset; `None` if the name is unknown.
pub fn preset(name: &str) -> Option<Vec<Step>> {
    let step = |name: &str, kind, seconds, classes: &[u8]| Step {
        name: name.to_owned(),
        kind,
        duration: Span::from_secs(seconds),
        warm_up: if kind == Kind::Latency { Span::ZERO } else { WARM_UP },
        classes: classes.to_vec(),
        interval: INTERVAL,
        probe_bytes: PROBE_BYTES,
    };
    let both_ways = |down, up, classes: &[u8]| {
        vec![
            step("idle", Kind::Latency, 2, classes),
            step("down", Kind::Download, down, classes),
            step("up", Kind::Upload, up, classes),
        ]
    };
    Some(match name {
        "quick" => both_ways(5, 5, &[0, 45]),
        "npms-lul" => both_ways(11, 7, &[0]),
        "ull" => vec![
            step("idle-dscp8", Kind::Latency, 10, &[8]),
            step("idle-dscp45", Kind::Latency, 10, &[45]),
            step("loaded", Kind::Upload, 10, &[8, 45, 0]),
        ],
        _ => return None,
    })
}
