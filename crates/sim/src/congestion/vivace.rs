//! PCC Vivace (Dong et al., NSDI 2018): a sender that tries two rates and follows the gradient of
//! its utility.
//!
//! Utility of a monitor interval at x Mbit/s: x^0.9 - 900 x max(0, dRTT/dt) - 11.35 x loss. In
//! start-up the rate doubles while utility grows. Then pairs of intervals at (1 + 0.05) and
//! (1 - 0.05) of the rate determine a gradient. The rate changes by the gradient times a step that
//! grows while the sign is constant (confidence amplifier), bounded by a change boundary that grows
//! from 5 % by 10 % per bounded change; the minimum change is 0.5 Mbit/s, as in the authors' code.
//!
//! An interval lasts a smoothed round trip (at least 10 ms and ten segments); its utility is
//! computed from the acknowledgements and losses of the next round trip. Deviations from the
//! authors' user-space code: one pair decides, while theirs repeats the pair and requires both to
//! agree; acknowledgements are assigned to intervals by time, not by packet number; slopes of the
//! round trip below 1 % count as noise (their latency filter is more elaborate).

use underload_aqm::rng::Rng;
use underload_aqm::time::{Span, Time};

use super::{
    Ack, Cause, CongestionControl, Loss, MAX_WINDOW, PacketRate, PayloadRate, SegmentSizes, Setup,
    Window,
};

#[derive(Debug)]
pub struct Vivace {
    rng: Rng,
    sizes: SegmentSizes,
    /// Base rate in Mbit/s of payload.
    rate: f64,
    phase: Phase,
    /// The interval being sent, and the one that current acknowledgements belong to.
    sending: Option<Interval>,
    judged: Option<Interval>,
    amplifier: i32,
    boundary: u32,
    last_utility: Option<(f64, f64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Doubling the rate while the utility grows.
    Starting,
    /// Trying pairs of rates; `high_first`: the first of the pair is the higher one.
    Probing { high_first: bool, second: bool },
}

/// A monitor interval with the sums of its acknowledgements.
#[derive(Clone, Copy, Debug, Default)]
struct Interval {
    /// Rate of sending, Mbit/s of payload.
    rate: f64,
    ends: Time,
    delivered: u32,
    lost: u32,
    /// Count and sums for a least squares slope of the round trips over time, in seconds.
    samples: f64,
    sum_time: f64,
    sum_rtt: f64,
    sum_time_time: f64,
    sum_time_rtt: f64,
    starts: Time,
}

impl Vivace {
    pub fn new(setup: Setup) -> Self {
        Self {
            sizes: SegmentSizes::from(&setup),
            rng: setup.rng,
            rate: 0.0,
            phase: Phase::Starting,
            sending: None,
            judged: None,
            amplifier: 0,
            boundary: 0,
            last_utility: None,
        }
    }

    fn segment_bits(&self) -> f64 {
        f64::from(self.sizes.segment_bytes) * 8.0
    }

    /// Returns the rate of the interval that starts now.
    fn next_rate(&mut self) -> f64 {
        match &mut self.phase {
            Phase::Starting => self.rate,
            Phase::Probing { high_first, second } => {
                if !*second {
                    *high_first = self.rng.below(2) == 0;
                }
                let high = *high_first != *second;
                self.rate * if high { 1.0 + PROBE_STEP } else { 1.0 - PROBE_STEP }
            }
        }
    }

    fn begin(&mut self, ack: &Ack) {
        let rate = self.next_rate();
        let ten_segments = 10.0 * self.segment_bits() / (rate * 1e6);
        let length = ack.smoothed_rtt.max(MIN_INTERVAL);
        let length = length.max(Span::from_nanos((ten_segments * 1e9) as u64));
        self.judged = self.sending.take();
        let (starts, ends) = (ack.now, ack.now + length);
        self.sending = Some(Interval { rate, ends, starts, ..Interval::default() });
    }

    /// Updates the rate by the utility of a completed interval.
    fn learn(&mut self, interval: &Interval) {
        let utility = interval.utility();
        match self.phase {
            Phase::Starting => self.learn_starting(interval.rate, utility),
            Phase::Probing { high_first, second } => {
                let previous = self.last_utility.replace((interval.rate, utility));
                self.phase = Phase::Probing { high_first, second: !second };
                if let (true, Some((rate, before))) = (second, previous) {
                    let gradient = (utility - before) / (interval.rate - rate);
                    self.step(gradient);
                    self.last_utility = None;
                }
            }
        }
    }

    fn learn_starting(&mut self, rate: f64, utility: f64) {
        match self.last_utility {
            Some((before_rate, before)) if utility < before => {
                self.rate = before_rate;
                self.phase = Phase::Probing { high_first: true, second: false };
                self.last_utility = None;
            }
            _ => {
                self.last_utility = Some((rate, utility));
                self.rate = (rate * 2.0).min(MAX_RATE);
            }
        }
    }

    /// Section 4.2 of the paper: confidence amplifier and dynamic change boundary.
    fn step(&mut self, gradient: f64) {
        if gradient * f64::from(self.amplifier) < 0.0 {
            self.amplifier = 0;
            self.boundary = 0;
        }
        self.amplifier += if gradient >= 0.0 { 1 } else { -1 };
        let confidence = f64::from(self.amplifier.abs());
        let amplified = if confidence <= 3.0 { confidence } else { 2.0 * confidence - 3.0 };
        let mut change = gradient * amplified * STEP_SCALE;
        let bound = self.rate * (FIRST_BOUNDARY + BOUNDARY_STEP * f64::from(self.boundary));
        if change.abs() > bound {
            change = if change > 0.0 { bound } else { -bound };
            self.boundary += 1;
        } else {
            self.boundary = 0;
        }
        if change.abs() < MIN_CHANGE {
            change = if gradient >= 0.0 { MIN_CHANGE } else { -MIN_CHANGE };
        }
        self.rate = (self.rate + change).clamp(MIN_RATE, MAX_RATE);
    }
}

impl Interval {
    fn add(&mut self, ack: &Ack) {
        self.delivered += ack.delivered;
        self.lost += ack.lost;
        if let Some(rtt) = ack.rtt {
            let time = ack.now.since(self.starts).as_secs_f64();
            let rtt = rtt.as_secs_f64();
            self.samples += 1.0;
            self.sum_time += time;
            self.sum_rtt += rtt;
            self.sum_time_time += time * time;
            self.sum_time_rtt += time * rtt;
        }
    }

    fn utility(&self) -> f64 {
        let sent = f64::from(self.delivered + self.lost).max(1.0);
        let loss = f64::from(self.lost) / sent;
        let spread = self.samples * self.sum_time_time - self.sum_time * self.sum_time;
        let slope = if spread > 0.0 {
            (self.samples * self.sum_time_rtt - self.sum_time * self.sum_rtt) / spread
        } else {
            0.0
        };
        let slope = if slope.abs() < NOISE { 0.0 } else { slope.max(0.0) };
        libm::pow(self.rate, 0.9) - 900.0 * self.rate * slope - 11.35 * self.rate * loss
    }
}

impl CongestionControl for Vivace {
    fn on_ack(&mut self, ack: &Ack, window: &mut Window) {
        if ack.smoothed_rtt == Span::ZERO {
            return;
        }
        if self.rate == 0.0 {
            let bits = f64::from(window.size) * self.segment_bits();
            let rtt = ack.smoothed_rtt.as_secs_f64();
            self.rate = (bits / rtt / 1e6).max(MIN_RATE);
            self.begin(ack);
        }
        if let Some(judged) = &mut self.judged {
            judged.add(ack);
        }
        if self.sending.is_some_and(|sending| ack.now >= sending.ends) {
            if let Some(judged) = self.judged.take() {
                self.learn(&judged);
            }
            self.begin(ack);
        }
        // Two bandwidth-delay products, so that the rate limits, not the window.
        let sending = self.sending.map_or(self.rate, |interval| interval.rate);
        let rtt = ack.smoothed_rtt.as_secs_f64();
        let product = sending * 1e6 * rtt / self.segment_bits();
        window.size = ((2.0 * product) as u32).clamp(10, MAX_WINDOW);
    }

    /// Loss is a term of the utility; only a timeout restarts, at half the rate.
    fn on_loss(&mut self, loss: &Loss, window: &mut Window) {
        if loss.cause == Cause::Timeout {
            self.rate = (self.rate / 2.0).max(MIN_RATE);
            self.phase = Phase::Probing { high_first: true, second: false };
            (self.sending, self.judged, self.last_utility) = (None, None, None);
            window.threshold = window.size;
        }
    }

    fn pacing(&self) -> Option<PacketRate> {
        let rate = self.sending.map_or(self.rate, |interval| interval.rate);
        let payload = PayloadRate::from_bytes_per_s((rate * 1e6 / 8.0) as u64);
        (rate > 0.0).then(|| payload.to_packet_rate(self.sizes))
    }

    fn owns_window(&self) -> bool {
        true
    }
}

/// Epsilon of the paper.
const PROBE_STEP: f64 = 0.05;
/// Theta_0 of the paper: Mbit/s per unit of gradient.
const STEP_SCALE: f64 = 1.0;
/// Omega and delta of the paper.
const FIRST_BOUNDARY: f64 = 0.05;
const BOUNDARY_STEP: f64 = 0.1;
/// The authors' least change, Mbit/s.
const MIN_CHANGE: f64 = 0.5;
const MIN_RATE: f64 = 0.3;
const MAX_RATE: f64 = 100_000.0;
const MIN_INTERVAL: Span = Span::from_millis(10);
/// Slopes of the round trip below this count as 0.
const NOISE: f64 = 0.01;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::tests::{ack, setup};

    #[test]
    fn ten_segments_per_round_trip_are_paced_as_ten_packets() {
        let mut vivace = Vivace::new(setup());
        vivace.on_ack(&ack(1), &mut Window::new(10));
        let gap = vivace.pacing().unwrap().time_for(1_500).as_nanos();
        assert!(gap.abs_diff(2_000_000) < 100, "20 ms / 10, but {gap} ns");
    }
}
