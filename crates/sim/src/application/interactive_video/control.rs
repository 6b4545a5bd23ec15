//! Rate control of an interactive sender: Google congestion control, or its loss-based half alone.
//!
//! Source: draft-ietf-rmcat-gcc-02. The delay-based rate (section 5.5) rises by 8 % a second, or by
//! about half a packet per response time near the rate at which the queue last grew, and falls to
//! 0.85 of the received rate when the queue grows. The loss-based rate (section 6) falls by half
//! the loss above 10 %, and rises by 5 % below 2 %, once a second. The sender uses the lower one.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use underload_aqm::time::{Span, Time};

use super::trend::{Detector, Usage};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RateControl {
    /// Google congestion control: delay-based and loss-based.
    #[default]
    Gcc,
    /// Only the loss-based part of Google congestion control.
    Loss,
}

/// State of the delay-based rate controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Increase,
    Decrease,
    Hold,
}

/// A packet as feedback describes it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fate {
    pub(super) sent: Time,
    pub(super) arrival: Option<Time>,
    pub(super) bytes: u32,
}

pub(super) struct Controller {
    max: f64,
    delay: Option<DelayBased>,
    loss: LossBased,
    /// Packets of the last half second of arrivals.
    arrived: VecDeque<(Time, u32)>,
    arrived_bytes: u64,
}

impl Controller {
    pub(super) fn new(control: RateControl, max_bit_per_s: f64) -> Self {
        Self {
            max: max_bit_per_s,
            delay: (control == RateControl::Gcc).then(DelayBased::new),
            loss: LossBased { rate: FIRST_RATE, sent: 0, lost: 0, updated: None },
            arrived: VecDeque::with_capacity(1 << 10),
            arrived_bytes: 0,
        }
    }

    /// Returns the rate of the media, bit/s.
    pub(super) fn rate(&self) -> f64 {
        self.delay.as_ref().map_or(self.loss.rate, |delay| delay.rate.min(self.loss.rate))
    }

    pub(super) fn on_packet(&mut self, fate: &Fate) {
        self.loss.sent += 1;
        let Some(arrival) = fate.arrival else {
            self.loss.lost += 1;
            return;
        };
        if let Some(delay) = &mut self.delay {
            delay.detector.on_packet(fate.sent, arrival);
        }
        self.arrived.push_back((arrival, fate.bytes));
        self.arrived_bytes += u64::from(fate.bytes);
        while let Some(&(oldest, bytes)) = self.arrived.front() {
            if arrival.since(oldest) <= RATE_WINDOW {
                break;
            }
            self.arrived.pop_front();
            self.arrived_bytes -= u64::from(bytes);
        }
    }

    /// Updates the rate after all packets of a report were read.
    pub(super) fn on_report(&mut self, now: Time, rtt: Span) {
        let received = self.arrived_bytes as f64 * 8e9 / RATE_WINDOW.as_nanos() as f64;
        if let Some(delay) = &mut self.delay {
            delay.update(now, rtt, received);
            delay.rate = delay.rate.clamp(MIN_RATE, self.max);
        }
        self.loss.update(now);
        self.loss.rate = self.loss.rate.clamp(MIN_RATE, self.max);
    }
}

/// Section 5 of the draft.
struct DelayBased {
    detector: Detector,
    state: State,
    rate: f64,
    updated: Option<Time>,
    /// Mean and variance of the rate received when the queue grew, in kbit/s; 0 while unknown.
    mean_kbit: f64,
    variance: f64,
}

impl DelayBased {
    fn new() -> Self {
        Self {
            detector: Detector::new(),
            state: State::Hold,
            rate: FIRST_RATE,
            updated: None,
            mean_kbit: 0.0,
            variance: FIRST_VARIANCE,
        }
    }

    fn update(&mut self, now: Time, rtt: Span, received: f64) {
        let passed_ms = now.since(self.updated.replace(now).unwrap_or(now)).as_nanos() as f64 / 1e6;
        let usage = self.detector.usage;
        self.state = match (usage, self.state) {
            (Usage::Over, _) => State::Decrease,
            (Usage::Under, _) | (Usage::Normal, State::Decrease) => State::Hold,
            (Usage::Normal, _) => State::Increase,
        };
        match self.state {
            State::Hold => {}
            State::Increase => self.increase(passed_ms, rtt, received),
            State::Decrease => {
                self.note_convergence(received / 1e3);
                self.rate = self.rate.min(BETA * received);
            }
        }
    }

    fn increase(&mut self, passed_ms: f64, rtt: Span, received: f64) {
        let margin = 3.0 * libm::sqrt(self.variance * self.mean_kbit);
        if received / 1e3 > self.mean_kbit + margin {
            // The path has become faster: discard the mean.
            self.mean_kbit = 0.0;
        }
        if self.mean_kbit > 0.0 {
            let response_ms = 100.0 + rtt.as_nanos() as f64 / 1e6;
            let frame_bits = self.rate / 30.0;
            let packet_bits = frame_bits / libm::ceil(frame_bits / 9_600.0).max(1.0);
            let share = 0.5 * (passed_ms / response_ms).min(1.0);
            self.rate += (share * packet_bits).max(1_000.0);
        } else {
            self.rate *= libm::pow(1.08, (passed_ms / 1e3).min(1.0));
        }
        self.rate = self.rate.min((1.5 * received).max(FIRST_RATE));
    }

    /// Updates mean and relative variance with the draft's weight of 0.95 for the past.
    fn note_convergence(&mut self, received_kbit: f64) {
        if self.mean_kbit <= 0.0 {
            self.mean_kbit = received_kbit;
        }
        self.mean_kbit = 0.95 * self.mean_kbit + 0.05 * received_kbit;
        let error = self.mean_kbit - received_kbit;
        let normalised = error * error / self.mean_kbit.max(1.0);
        self.variance = (0.95 * self.variance + 0.05 * normalised).clamp(0.4, 2.5);
    }
}

/// Section 6 of the draft.
struct LossBased {
    rate: f64,
    /// Since the last update.
    sent: u32,
    lost: u32,
    updated: Option<Time>,
}

impl LossBased {
    fn update(&mut self, now: Time) {
        let due = *self.updated.get_or_insert(now) + LOSS_INTERVAL <= now;
        if !due || self.sent == 0 {
            return;
        }
        let loss = f64::from(self.lost) / f64::from(self.sent);
        if loss > 0.10 {
            self.rate *= 1.0 - 0.5 * loss;
        } else if loss < 0.02 {
            self.rate *= 1.05;
        }
        self.sent = 0;
        self.lost = 0;
        self.updated = Some(now);
    }
}

const FIRST_RATE: f64 = 300_000.0;
pub(super) const MIN_RATE: f64 = 50_000.0;
const BETA: f64 = 0.85;
/// Period of the loss-based update; the draft recommends 0.5 to 1 s.
const RATE_WINDOW: Span = Span::from_millis(500);
/// Between two receiver reports.
const LOSS_INTERVAL: Span = Span::from_secs(1);
/// WebRTC's start value of the relative variance.
const FIRST_VARIANCE: f64 = 0.4;

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the rate after `seconds` of 100 packets of 1250 bytes per second. Every `lost`th
    /// packet is lost, and each is delayed by `growth` more than the one before.
    fn rate(control: RateControl, seconds: u64, lost: u64, growth: Span) -> f64 {
        let mut controller = Controller::new(control, 10e6);
        for packet in 1..=100 * seconds {
            let sent = Time::from_millis(10 * packet);
            let arrival = sent + Span::from_millis(20) + growth * packet;
            let arrives = lost == 0 || packet % lost != 0;
            let fate = Fate { sent, arrival: arrives.then_some(arrival), bytes: 1_250 };
            controller.on_packet(&fate);
            if packet % 5 == 0 {
                controller.on_report(arrival, Span::from_millis(40));
            }
        }
        controller.rate()
    }

    #[test]
    fn the_loss_based_rate_follows_the_drafts_three_ranges() {
        // Starts at 300 kbit/s. Ten seconds have nine updates, because the first report only starts
        // the first period.
        let clean = rate(RateControl::Loss, 10, 0, Span::ZERO);
        assert!((clean / 300e3 - libm::pow(1.05, 9.0)).abs() < 1e-9, "{clean}");
        let between = rate(RateControl::Loss, 10, 20, Span::ZERO);
        assert!((between - 300e3).abs() < 1.0, "{between}");
        let heavy = rate(RateControl::Loss, 2, 5, Span::ZERO);
        assert!((heavy / 300e3 - 0.9).abs() < 0.005, "{heavy}");
    }

    #[test]
    fn the_delay_based_rate_rises_by_eight_per_cent_a_second_and_falls_below_what_arrives() {
        let mut delay = DelayBased::new();
        delay.state = State::Increase;
        delay.updated = Some(Time::ZERO);
        delay.update(Time::from_secs(1), Span::from_millis(40), 1e6);
        assert!((delay.rate / 300e3 - 1.08).abs() < 1e-9, "{}", delay.rate);
        // 1 Mbit/s is sent and the queue grows by a millisecond per packet: 0.91 Mbit/s arrive.
        let growing = rate(RateControl::Gcc, 20, 0, Span::from_millis(1));
        assert!(growing < 330e3, "{growing}");
        let steady = rate(RateControl::Gcc, 20, 0, Span::ZERO);
        assert!(steady > 700e3, "{steady}");
    }
}
