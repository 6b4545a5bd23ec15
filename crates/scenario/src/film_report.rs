//! A film that dash.js played in a real browser: its chunks, and the metrics that follow.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use underload_aqm::time::Span;
use underload_record::schema::{Metric, Quantile};
use underload_sim::application::metric;
use underload_sim::application::video::{LADDER, Viewing};

use crate::call_stats::{nanos, quantile};

/// The report of the page at the end of its flow. Times are in ms since the flow began.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct FilmReport {
    /// The version of dash.js.
    pub player: String,
    /// When the first picture was shown; `None` before it.
    pub startup: Option<f64>,
    /// How often playback stood still.
    pub stalls: u32,
    /// Length of all stalls together, ms.
    pub stalled: f64,
    /// The first error of the player; `None` without an error.
    pub error: Option<String>,
    /// Loaded chunks in the order of their arrival. A chunk can be loaded again at a higher rate.
    pub chunks: Vec<Chunk>,
    /// States of the player, one a second.
    pub states: Vec<PlayerState>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Chunk {
    pub number: usize,
    /// Position of its bit rate in [`LADDER`].
    pub level: usize,
    pub bytes: u64,
    pub requested: f64,
    pub arrived: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlayerState {
    pub at: f64,
    /// Video in the buffer, s.
    pub buffer: f64,
    /// The player's estimate of the path's throughput, kbit/s; `None` before the first chunk.
    pub throughput: Option<f64>,
}

impl FilmReport {
    /// Returns the metrics of the model `video`, and those that only the real player has.
    pub fn metrics(&self) -> Vec<Metric> {
        let last: BTreeMap<usize, usize> =
            self.chunks.iter().map(|chunk| (chunk.number, chunk.level)).collect();
        let rate = |level: &usize| LADDER.get(*level).copied().unwrap_or_default();
        let span = |millis: f64| Span::from_nanos((millis * 1e6) as u64);
        let viewing = Viewing {
            rates: last.values().map(rate).collect(),
            highest: LADDER.last().copied().unwrap_or_default(),
            startup: self.startup.map(span),
            stalled: span(self.stalled),
        };
        let estimates = nanos(self.states.iter().filter_map(|state| Some(state.throughput? / 1e6)));
        let replaced = self.chunks.len() - last.len();
        let own = [
            ("stalls", "", Some(f64::from(self.stalls))),
            ("chunks_replaced", "", Some(replaced as f64)),
            ("throughput_estimate", "Mbit/s", quantile(&estimates, Quantile::P50, 1e6)),
        ];
        let own = own.map(|(name, unit, value)| metric(name, unit, value));
        viewing.metrics().into_iter().chain(own).collect()
    }
}

#[cfg(test)]
mod tests {
    use underload_sim::application::video::CHUNKS;

    use super::*;

    fn chunk(number: usize, level: usize) -> Chunk {
        Chunk { number, level, bytes: 1, requested: 0.0, arrived: 1.0 }
    }

    #[test]
    fn a_chunk_that_was_loaded_again_counts_with_its_last_rate() {
        let text = r#"{"startup": 500.0, "stalls": 1, "stalled": 1500.0,
            "states": [{"at": 1000.0, "buffer": 4.0, "throughput": 8500.0},
                       {"at": 0.0, "buffer": 0.0, "throughput": null}]}"#;
        let mut report: FilmReport = serde_json::from_str(text).expect("a report");
        report.chunks = (0..CHUNKS).map(|number| chunk(number, 1)).collect();
        report.chunks.extend([chunk(0, 2), chunk(1, 2)]);
        let of = |report: &FilmReport, name: &str| {
            let metrics = report.metrics();
            metrics.iter().find(|metric| metric.name == name).expect("a metric").value
        };
        let known = [
            // 46 chunks at 0.75 and two at 1.2 Mbit/s, 2 s without a picture, one change.
            ("qoe", 36.9 - 4.3 * 2.0 - 0.45),
            ("bit_rate", 36.9 / 48.0),
            ("rebuffering", 1.5),
            ("startup", 0.5),
            ("switches", 1.0),
            ("chunks_loaded", 48.0),
            ("stalls", 1.0),
            ("chunks_replaced", 2.0),
            ("throughput_estimate", 8.5),
        ];
        for (name, value) in known {
            let measured = of(&report, name).unwrap_or(f64::NAN);
            assert!((measured - value).abs() < 1e-9, "{name}: {measured}");
        }
        assert_eq!(report.metrics().len(), known.len());
        report.chunks.truncate(3);
        assert_eq!((of(&report, "qoe"), of(&report, "chunks_loaded")), (None, Some(3.0)));
        let none = FilmReport::default();
        assert_eq!((of(&none, "startup"), of(&none, "bit_rate")), (None, None));
    }
}
