//! The statistics of a video call between two real browsers, and the metrics that follow.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use underload_record::schema::{Metric, Quantile};
use underload_record::stats::distribution;

/// Once a second, what one page of a call reports. Names and meanings are those of the W3C's
/// Identifiers for WebRTC's Statistics API. Counters begin with the call and are of the video that
/// the page receives.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CallStats {
    /// Since the page was opened, ms.
    pub at: f64,
    /// The last round trip of the video that the page sends, s; `None` before its first report.
    pub round_trip_time: Option<f64>,
    /// The rate that the page's congestion control allows, bit/s.
    pub available_outgoing_bitrate: Option<f64>,
    /// Time in which a busy processor limited the video that the page sends, s.
    pub cpu_limited: f64,
    /// In s; `None` before the first frame.
    pub jitter: Option<f64>,
    pub packets_received: f64,
    pub packets_lost: f64,
    pub bytes_received: f64,
    pub retransmitted_bytes_received: f64,
    pub frames_decoded: f64,
    /// In pixels; `None` before the first frame.
    pub frame_height: Option<f64>,
    pub freeze_count: f64,
    /// Length of all freezes together, s.
    pub total_freezes_duration: f64,
    /// Time in the de-jitter buffer, of all its frames together, s.
    pub jitter_buffer_delay: f64,
    pub jitter_buffer_emitted_count: f64,
    /// Frames since the last report that left the page's encoder.
    #[serde(skip_serializing)]
    pub frames_sent: Vec<CallFrame>,
    /// Frames since the last report of which all packets have arrived.
    #[serde(skip_serializing)]
    pub frames_received: Vec<CallFrame>,
}

/// The RTP timestamp of a frame, and the wall clock, ms. Both browsers read the clock of one host.
type CallFrame = (u32, f64);

/// The statistics of one direction of a call, by the sending and the receiving browser.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct CallDirection<'a> {
    pub sender: &'a [CallStats],
    pub receiver: &'a [CallStats],
}

impl CallDirection<'_> {
    /// Whether a frame of the video was decoded.
    pub fn has_video(&self) -> bool {
        self.receiver.last().is_some_and(|stats| stats.frames_decoded > 0.0)
    }

    /// Returns the metrics of the direction. Those of the receiver have no value without a frame.
    pub fn metrics(&self) -> Vec<Metric> {
        let (delays, millis) = (self.frame_delays(), 1e6);
        let round_trips = nanos(self.sender.iter().filter_map(|stats| stats.round_trip_time));
        let jitters = nanos(self.receiver.iter().filter_map(|stats| stats.jitter));
        let heights = nanos(self.receiver.iter().filter_map(|stats| stats.frame_height));
        let allowed = self.sender.iter().filter_map(|stats| stats.available_outgoing_bitrate);
        let allowed = nanos(allowed.map(|rate| rate / 1e9));
        let last = self.receiver.last().filter(|_| self.has_video());
        let received = |count: fn(&CallStats) -> f64| last.and_then(|_| rate(self.receiver, count));
        let payload = |stats: &CallStats| stats.bytes_received - stats.retransmitted_bytes_received;
        let packets = last.map(|stats| stats.packets_lost.max(0.0) + stats.packets_received);
        let lost = last.zip(packets).filter(|(_, packets)| *packets > 0.0);
        let emitted = last.filter(|stats| stats.jitter_buffer_emitted_count > 0.0);
        let buffer =
            emitted.map(|it| 1_000.0 * it.jitter_buffer_delay / it.jitter_buffer_emitted_count);
        [
            ("frame_delay_p50", "ms", quantile(&delays, Quantile::P50, millis)),
            ("frame_delay_p99", "ms", quantile(&delays, Quantile::P99, millis)),
            ("frame_delay_max", "ms", quantile(&delays, Quantile::Max, millis)),
            ("round_trip_p50", "ms", quantile(&round_trips, Quantile::P50, millis)),
            ("round_trip_max", "ms", quantile(&round_trips, Quantile::Max, millis)),
            ("jitter_p50", "ms", quantile(&jitters, Quantile::P50, millis)),
            ("jitter_buffer", "ms", buffer),
            ("freezes", "", last.map(|stats| stats.freeze_count)),
            ("frozen", "%", received(|stats| 100.0 * stats.total_freezes_duration)),
            ("frame_rate", "Hz", received(|stats| stats.frames_decoded)),
            ("frame_height", "", quantile(&heights, Quantile::P50, 1e9)),
            ("bit_rate", "Mbit/s", received(payload).map(|bytes| 8.0 * bytes / 1e6)),
            ("available_rate", "Mbit/s", quantile(&allowed, Quantile::P50, 1e6)),
            (
                "packets_lost",
                "%",
                lost.map(|(stats, packets)| 100.0 * stats.packets_lost.max(0.0) / packets),
            ),
            ("cpu_limited", "%", rate(self.sender, |stats| 100.0 * stats.cpu_limited)),
        ]
        .map(|(name, unit, value)| Metric { name: name.to_owned(), unit: unit.to_owned(), value })
        .into()
    }

    /// Returns the times from the encoder to the arrival of the last packet of each frame, ns.
    fn frame_delays(&self) -> Vec<i64> {
        let sent: HashMap<u32, f64> =
            self.sender.iter().flat_map(|stats| stats.frames_sent.iter().copied()).collect();
        let received = self.receiver.iter().flat_map(|stats| &stats.frames_received);
        let delays = received.filter_map(|(frame, at)| Some((at - sent.get(frame)?) / 1_000.0));
        nanos(delays)
    }
}

/// Returns the increase per second of a counter that a page reported; `None` without an interval.
fn rate(stats: &[CallStats], counter: fn(&CallStats) -> f64) -> Option<f64> {
    let (first, last) = (stats.first()?, stats.last()?);
    let seconds = (last.at - first.at) / 1_000.0;
    (seconds > 0.0).then(|| (counter(last) - counter(first)) / seconds)
}

pub(crate) fn nanos(seconds: impl Iterator<Item = f64>) -> Vec<i64> {
    seconds.map(|seconds| (seconds * 1e9).round() as i64).collect()
}

/// Returns a quantile divided by `unit`; `None` with too few values.
pub(crate) fn quantile(nanos: &[i64], quantile: Quantile, unit: f64) -> Option<f64> {
    let value = distribution(&mut nanos.to_vec())?.told_ns(quantile)?;
    Some(value as f64 / unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Statistics at `second` of a page that sends and receives 20 frames a second.
    fn stats(second: u32, round_trip_ms: f64) -> CallStats {
        let at = f64::from(second);
        let frames = second.saturating_sub(1) * 20..second * 20;
        let frame = |delay_ms: f64| move |number| (number, f64::from(number) * 50.0 + delay_ms);
        CallStats {
            at: at * 1_000.0,
            round_trip_time: (second > 0).then_some(round_trip_ms / 1_000.0),
            available_outgoing_bitrate: Some(1_500_000.0),
            cpu_limited: at * 0.25,
            jitter: (second > 0).then_some(0.004),
            packets_received: at * 99.0,
            packets_lost: at,
            bytes_received: at * 150_000.0,
            retransmitted_bytes_received: at * 25_000.0,
            frames_decoded: at * 20.0,
            frame_height: Some(360.0),
            freeze_count: f64::from(second / 2),
            total_freezes_duration: at * 0.1,
            jitter_buffer_delay: at * 0.6,
            jitter_buffer_emitted_count: at * 20.0,
            frames_sent: frames.clone().map(frame(0.0)).collect(),
            frames_received: frames.map(frame(35.0)).collect(),
        }
    }

    #[test]
    fn counters_become_rates_and_a_silent_call_has_no_numbers() {
        let round_trips = [0.0, 40.0, 60.0, 45.0, 50.0];
        let all: Vec<_> = (0..5).zip(round_trips).map(|(second, ms)| stats(second, ms)).collect();
        let call = CallDirection { sender: &all, receiver: &all };
        let metrics = call.metrics();
        let value =
            |name: &str| metrics.iter().find(|metric| metric.name == name).expect("a metric").value;
        let known = [
            ("frame_delay_p50", 35.0),
            ("frame_delay_max", 35.0),
            ("round_trip_p50", 45.0),
            ("round_trip_max", 60.0),
            ("jitter_p50", 4.0),
            ("jitter_buffer", 30.0),
            ("freezes", 2.0),
            ("frozen", 10.0),
            ("frame_rate", 20.0),
            ("frame_height", 360.0),
            ("bit_rate", 1.0),
            ("available_rate", 1.5),
            ("packets_lost", 1.0),
            ("cpu_limited", 25.0),
        ];
        assert_eq!(known.map(|(name, _)| (name, value(name))), known.map(|(n, v)| (n, Some(v))));
        assert_eq!((value("frame_delay_p99"), metrics.len()), (None, known.len() + 1));
        let silent = [CallStats::default()];
        for call in [CallDirection::default(), CallDirection { sender: &silent, receiver: &silent }]
        {
            assert!(!call.has_video());
            assert!(call.metrics().iter().all(|metric| metric.value.is_none()));
        }
    }

    #[test]
    fn a_page_without_video_reports_few_of_the_keys() {
        let text = r#"{"at": 12.5, "framesSent": [[4294967295, 1795751122089.8]], "other": {}}"#;
        let stats: CallStats = serde_json::from_str(text).expect("statistics");
        let frames_sent = vec![(u32::MAX, 1_795_751_122_089.8)];
        assert_eq!(stats, CallStats { at: 12.5, frames_sent, ..CallStats::default() });
    }
}
