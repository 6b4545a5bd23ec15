//! Delay-based over-use detection of Google congestion control: packet groups, the trend of their
//! queuing delay, and an adaptive threshold.
//!
//! Grouping, detector and adaptive threshold follow draft-ietf-rmcat-gcc-02, sections 5.2 and 5.4.
//! The draft's Kalman filter is replaced by the trendline of WebRTC: a least-squares slope over 20
//! groups of the smoothed, accumulated delay variation, with WebRTC's gains for the threshold.

use std::collections::VecDeque;

use underload_aqm::time::{Span, Time};

/// Trend of the queue at the bottleneck.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Usage {
    /// The queue is constant.
    #[default]
    Normal,
    Over,
    Under,
}

/// Packets sent within [`BURST`].
#[derive(Clone, Copy, Debug)]
struct Group {
    first_sent: Time,
    last_sent: Time,
    last_arrival: Time,
}

#[derive(Debug, Default)]
pub(super) struct Detector {
    current: Option<Group>,
    previous: Option<Group>,
    first_arrival: Time,
    /// Sum of the delay variations, and the smoothed sum, in milliseconds.
    accumulated: f64,
    smoothed: f64,
    /// Arrival and smoothed delay of the last groups, in milliseconds.
    points: VecDeque<(f64, f64)>,
    deltas: u32,
    threshold: f64,
    threshold_updated: Option<Time>,
    over_for_ms: f64,
    over_groups: u32,
    last_trend: f64,
    pub(super) usage: Usage,
}

impl Detector {
    pub(super) fn new() -> Self {
        let points = VecDeque::with_capacity(WINDOW + 1);
        Self { points, threshold: FIRST_THRESHOLD, ..Self::default() }
    }

    /// Adds a packet that arrived; packets are added in order of sending.
    pub(super) fn on_packet(&mut self, sent: Time, arrival: Time) {
        let Some(group) = &mut self.current else {
            self.first_arrival = arrival;
            self.current = Some(Group { first_sent: sent, last_sent: sent, last_arrival: arrival });
            return;
        };
        if sent.since(group.first_sent) <= BURST {
            group.last_sent = sent;
            group.last_arrival = group.last_arrival.max(arrival);
            return;
        }
        let finished = *group;
        *group = Group { first_sent: sent, last_sent: sent, last_arrival: arrival };
        if let Some(previous) = self.previous.replace(finished) {
            self.on_groups(&previous, &finished);
        }
    }

    fn on_groups(&mut self, before: &Group, group: &Group) {
        let sending = millis(group.last_sent) - millis(before.last_sent);
        let variation = millis(group.last_arrival) - millis(before.last_arrival) - sending;
        self.deltas += 1;
        self.accumulated += variation;
        self.smoothed = SMOOTHING * self.smoothed + (1.0 - SMOOTHING) * self.accumulated;
        let arrival = millis(group.last_arrival) - millis(self.first_arrival);
        self.points.push_back((arrival, self.smoothed));
        if self.points.len() > WINDOW {
            self.points.pop_front();
        }
        if self.points.len() == WINDOW {
            let trend = slope(&self.points).unwrap_or(self.last_trend);
            self.detect(trend, sending, group.last_arrival);
        }
    }

    fn detect(&mut self, trend: f64, sending_ms: f64, now: Time) {
        let signal = f64::from(self.deltas.min(MAX_DELTAS)) * trend * GAIN;
        if signal > self.threshold {
            self.over_for_ms += if self.over_groups == 0 { sending_ms / 2.0 } else { sending_ms };
            self.over_groups += 1;
            let lasts = self.over_for_ms > OVER_USE_MS && self.over_groups > 1;
            if lasts && trend >= self.last_trend {
                self.over_for_ms = 0.0;
                self.over_groups = 0;
                self.usage = Usage::Over;
            }
        } else {
            self.over_for_ms = 0.0;
            self.over_groups = 0;
            self.usage = if signal < -self.threshold { Usage::Under } else { Usage::Normal };
        }
        self.last_trend = trend;
        self.adapt_threshold(libm::fabs(signal), now);
    }

    /// Moves the threshold slowly towards the signal, so that competing flows that fill the queue
    /// do not starve this one, and ignores spikes.
    fn adapt_threshold(&mut self, signal: f64, now: Time) {
        let last = self.threshold_updated.replace(now).unwrap_or(now);
        if signal > self.threshold + SPIKE {
            return;
        }
        let gain = if signal < self.threshold { GAIN_DOWN } else { GAIN_UP };
        let passed = (now.since(last).as_nanos() as f64 / 1e6).min(100.0);
        self.threshold += gain * (signal - self.threshold) * passed;
        self.threshold = self.threshold.clamp(6.0, 600.0);
    }
}

/// Returns the least-squares slope; `None` if all points arrived at once.
fn slope(points: &VecDeque<(f64, f64)>) -> Option<f64> {
    let count = points.len() as f64;
    let mean_x = points.iter().map(|point| point.0).sum::<f64>() / count;
    let mean_y = points.iter().map(|point| point.1).sum::<f64>() / count;
    let covariance: f64 = points.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
    let variance: f64 = points.iter().map(|(x, _)| (x - mean_x) * (x - mean_x)).sum();
    (variance > 0.0).then(|| covariance / variance)
}

fn millis(time: Time) -> f64 {
    time.as_nanos() as f64 / 1e6
}

/// Packets sent within this time are a group.
const BURST: Span = Span::from_millis(5);
const WINDOW: usize = 20;
const SMOOTHING: f64 = 0.9;
const GAIN: f64 = 4.0;
const MAX_DELTAS: u32 = 60;
const FIRST_THRESHOLD: f64 = 12.5;
const OVER_USE_MS: f64 = 10.0;
const SPIKE: f64 = 15.0;
const GAIN_UP: f64 = 0.0087;
const GAIN_DOWN: f64 = 0.039;

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the usage after packets every 10 ms, whose delay changes by `change_us` from one to
    /// the next.
    fn usage(packets: u64, first_delay_us: i64, change_us: i64) -> Usage {
        let mut detector = Detector::new();
        for packet in 0..packets {
            let sent = Time::from_millis(10 * packet);
            let delay = first_delay_us + change_us * packet as i64;
            detector.on_packet(sent, sent + Span::from_micros(delay as u64));
        }
        detector.usage
    }

    #[test]
    fn a_steady_queue_is_normal_a_growing_one_over_use_and_a_shrinking_one_under_use() {
        assert_eq!(usage(100, 50_000, 0), Usage::Normal);
        assert_eq!(usage(60, 50_000, 1_000), Usage::Over);
        assert_eq!(usage(60, 150_000, -1_000), Usage::Under);
    }

    #[test]
    fn a_slope_is_exact_on_a_line() {
        let points = (0..20).map(|x| (f64::from(x), 3.0 - 0.5 * f64::from(x))).collect();
        assert!((slope(&points).unwrap() + 0.5).abs() < 1e-12);
        assert_eq!(slope(&VecDeque::from([(1.0, 1.0), (1.0, 2.0)])), None);
    }
}
