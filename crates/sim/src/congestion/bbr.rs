//! BBR version 1 (Cardwell et al. 2016) as in Linux `tcp_bbr.c`: bandwidth as the maximum of ten
//! rounds, minimum round trip of ten seconds, gains 2885/1000, drain, the cycle of eight
//! phases, PROBE_RTT for 200 ms at four segments, 1 % pacing margin, packet conservation in the
//! first round of recovery, the allowance for aggregated acknowledgements, and the long-term
//! bandwidth, by which a policer is detected.
//!
//! Deviation: a timeout ends no interval of the long-term bandwidth.

use underload_aqm::rng::Rng;
use underload_aqm::time::{Span, Time};

use super::{
    Ack, Cause, CongestionControl, Delivered, Loss, MAX_WINDOW, PacketRate, PayloadRate,
    SegmentSizes, Setup, State, Window, max_filter::MaxFilter, pacing::scaled,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// Doubling until the bandwidth stops growing.
    Startup,
    /// Emptying the queue that start-up built.
    Drain,
    /// Cycling around the bandwidth.
    ProbeBandwidth,
    /// Four segments for 200 ms, to measure the empty path.
    ProbeRtt,
}

#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts of a protocol, not one state")]
pub struct Bbr {
    mode: Mode,
    sizes: SegmentSizes,
    initial_window: u32,
    rng: Rng,
    /// Payload bytes per second, over rounds.
    bandwidth: MaxFilter,
    rounds: u64,
    round_start: bool,
    next_round_delivered: u32,
    min_rtt: Span,
    min_rtt_at: Time,
    probe_rtt_done: Option<Time>,
    probe_rtt_round_done: bool,
    full_bandwidth: u64,
    full_rounds: u32,
    pipe_full: bool,
    cycle_index: usize,
    cycle_start: Time,
    pacing_gain: u64,
    window_gain: u64,
    /// The rate `sk_pacing_rate` of Linux.
    pacing: PayloadRate,
    /// The pacing rate in packet bytes; `None` before the first round trip.
    packet_pacing: Option<PacketRate>,
    seen_rtt: bool,
    idle_restart: bool,
    prior_window: u32,
    previous_state: State,
    conserving: bool,
    aggregation: Aggregation,
    long_term: LongTerm,
}

/// The bandwidth of intervals in which a fifth of the segments was lost. If two in a row agree, a
/// policer is assumed: their mean replaces the maximum for 48 rounds, without probing. Queues that
/// drop as much have the same effect.
#[derive(Debug, Default)]
struct LongTerm {
    /// Payload bytes per second of the latest interval, or of both; 0: unknown.
    bandwidth: u64,
    in_use: bool,
    is_sampling: bool,
    /// Rounds since the start of the interval or of the use.
    rounds: u32,
    /// The start of the interval, and the segments delivered and lost until then.
    start: Time,
    delivered: u32,
    lost: u32,
}

impl LongTerm {
    fn begin_interval(&mut self, ack: &Ack) {
        self.rounds = 0;
        (self.start, self.delivered, self.lost) = (ack.now, ack.total_delivered, ack.total_lost);
    }

    /// Processes an acknowledgement outside of the use (Linux `bbr_lt_bw_sampling`).
    fn update(&mut self, ack: &Ack, app_limited: bool, round_start: bool, segment_bytes: u32) {
        if !self.is_sampling {
            if ack.lost == 0 {
                return;
            }
            self.begin_interval(ack);
            self.is_sampling = true;
        }
        self.rounds += u32::from(round_start);
        if app_limited || self.rounds > 4 * INTERVAL_ROUNDS {
            *self = Self::default();
        }
        if self.rounds < INTERVAL_ROUNDS || ack.lost == 0 {
            return;
        }
        let lost = u64::from(ack.total_lost.wrapping_sub(self.lost));
        let delivered = u64::from(ack.total_delivered.wrapping_sub(self.delivered));
        let millis = ack.now.since(self.start).as_millis();
        if millis > 0 && delivered > 0 && lost * UNIT >= POLICED_LOSS * delivered {
            self.end_interval(ack, delivered * u64::from(segment_bytes) * 1_000 / millis);
        }
    }

    fn end_interval(&mut self, ack: &Ack, bandwidth: u64) {
        let apart = bandwidth.abs_diff(self.bandwidth);
        let agree = apart <= self.bandwidth / 8 || apart * 99 / 100 <= SAME_BANDWIDTH;
        if self.bandwidth > 0 && agree {
            self.bandwidth = u64::midpoint(self.bandwidth, bandwidth);
            (self.in_use, self.rounds) = (true, 0);
            return;
        }
        self.bandwidth = bandwidth;
        self.begin_interval(ack);
    }
}

/// Segments acknowledged in excess of the bandwidth: the most of the last two windows.
#[derive(Debug, Default)]
struct Aggregation {
    epoch_start: Time,
    epoch_acknowledged: u64,
    extra: [u32; 2],
    window_rounds: u32,
    window: usize,
}

impl Bbr {
    pub fn new(setup: Setup) -> Self {
        Self {
            mode: Mode::Startup,
            sizes: SegmentSizes::from(&setup),
            initial_window: setup.initial_window,
            rng: setup.rng,
            bandwidth: MaxFilter::default(),
            rounds: 0,
            round_start: false,
            next_round_delivered: 0,
            min_rtt: UNKNOWN,
            min_rtt_at: Time::ZERO,
            probe_rtt_done: None,
            probe_rtt_round_done: false,
            full_bandwidth: 0,
            full_rounds: 0,
            pipe_full: false,
            cycle_index: 0,
            cycle_start: Time::ZERO,
            pacing_gain: HIGH_GAIN,
            window_gain: HIGH_GAIN,
            pacing: PayloadRate::default(),
            packet_pacing: None,
            seen_rtt: false,
            idle_restart: false,
            prior_window: 0,
            previous_state: State::Open,
            conserving: false,
            aggregation: Aggregation::default(),
            long_term: LongTerm::default(),
        }
    }

    /// Returns `gain` times the bandwidth-delay product in segments, with the allowance for
    /// segments bunched in the sender and the receiver.
    fn in_flight_for(&self, gain: u64) -> u32 {
        self.quantised(self.product(self.bandwidth.value(), gain))
    }

    /// Returns the bandwidth in use, payload bytes per second (Linux `bbr_bw`).
    fn bandwidth_in_use(&self) -> u64 {
        if self.long_term.in_use { self.long_term.bandwidth } else { self.bandwidth.value() }
    }

    fn product(&self, bandwidth: u64, gain: u64) -> u32 {
        if self.min_rtt == UNKNOWN {
            return self.initial_window;
        }
        let bytes = scaled(bandwidth, self.min_rtt.as_nanos(), NANOS_PER_SECOND);
        let divisor = u64::from(self.sizes.segment_bytes) * UNIT;
        bytes.saturating_mul(gain).div_ceil(divisor).min(u64::from(MAX_WINDOW)) as u32
    }

    fn quantised(&self, window: u32) -> u32 {
        let mut window = window + 3 * self.burst_segments();
        window = (window + 1) & !1;
        if self.mode == Mode::ProbeBandwidth && self.cycle_index == 0 {
            window += 2;
        }
        window
    }

    /// Linux `bbr_tso_segs_goal`: the segments of a millisecond, at least two from 1.2 Mbit/s on.
    fn burst_segments(&self) -> u32 {
        let least = if self.pacing < SLOW_PACING { 1 } else { 2 };
        let bytes_per_ms = self.pacing.bytes_per_s() >> 10;
        (bytes_per_ms / u64::from(self.sizes.segment_bytes)).clamp(least, 127) as u32
    }

    fn update_bandwidth(&mut self, ack: &Ack, rate: &Delivered) {
        if (rate.prior_delivered as i32).wrapping_sub(self.next_round_delivered as i32) >= 0 {
            self.next_round_delivered = ack.total_delivered;
            self.rounds += 1;
            self.round_start = true;
            self.conserving = false;
        }
        self.update_long_term(ack, rate.app_limited);
        let bytes = u64::from(rate.segments) * u64::from(self.sizes.segment_bytes);
        let sample = scaled(bytes, NANOS_PER_SECOND, rate.interval.as_nanos().max(1));
        if !rate.app_limited || sample >= self.bandwidth.value() {
            self.bandwidth.update(BANDWIDTH_ROUNDS, self.rounds, sample);
        }
    }

    fn update_long_term(&mut self, ack: &Ack, app_limited: bool) {
        let long_term = &mut self.long_term;
        if !long_term.in_use {
            return long_term.update(ack, app_limited, self.round_start, self.sizes.segment_bytes);
        }
        long_term.rounds += u32::from(self.round_start && self.mode == Mode::ProbeBandwidth);
        if long_term.rounds >= POLICED_ROUNDS {
            self.long_term = LongTerm::default();
            self.enter_probe_bandwidth(ack.now);
        }
    }

    fn update_aggregation(&mut self, ack: &Ack, window: &Window) {
        if ack.delivered == 0 || ack.rate.is_none() {
            return;
        }
        let mut expected = self.segments_in(ack.now.since(self.aggregation.epoch_start));
        let aggregation = &mut self.aggregation;
        if self.round_start {
            aggregation.window_rounds = (aggregation.window_rounds + 1).min(0x1f);
            if aggregation.window_rounds >= AGGREGATION_ROUNDS {
                aggregation.window_rounds = 0;
                aggregation.window ^= 1;
                aggregation.extra[aggregation.window] = 0;
            }
        }
        let too_long = aggregation.epoch_acknowledged + u64::from(ack.delivered) >= 1 << 20;
        if aggregation.epoch_acknowledged <= expected || too_long {
            aggregation.epoch_acknowledged = 0;
            aggregation.epoch_start = ack.now;
            expected = 0;
        }
        aggregation.epoch_acknowledged += u64::from(ack.delivered);
        let extra = (aggregation.epoch_acknowledged - expected).min(u64::from(window.size)) as u32;
        let slot = &mut aggregation.extra[aggregation.window];
        *slot = (*slot).max(extra);
    }

    /// Returns the additional segments for aggregation, at most 100 ms of bandwidth.
    fn aggregation_allowance(&self) -> u32 {
        if !self.pipe_full {
            return 0;
        }
        let most = self.bandwidth_in_use() / 10 / u64::from(self.sizes.segment_bytes);
        let extra = self.aggregation.extra[0].max(self.aggregation.extra[1]);
        u64::from(extra).min(most) as u32
    }

    fn update_cycle(&mut self, ack: &Ack) {
        if self.mode == Mode::ProbeBandwidth && self.phase_is_over(ack) {
            self.advance_cycle(ack.now);
        }
    }

    fn phase_is_over(&self, ack: &Ack) -> bool {
        let full_length = ack.now.since(self.cycle_start) > self.min_rtt;
        let in_network = self.in_network_at_departure(ack, ack.prior_in_flight);
        match self.pacing_gain {
            UNIT => full_length,
            gain if gain > UNIT => {
                full_length && (ack.lost > 0 || in_network >= self.in_flight_for(gain))
            }
            _ => full_length || in_network <= self.in_flight_for(UNIT),
        }
    }

    /// Returns the segments of `in_flight` that will be in the network when the pacer releases the
    /// next burst, plus that burst if the flight grows (Linux `bbr_packets_in_net_at_edt`).
    fn in_network_at_departure(&self, ack: &Ack, in_flight: u32) -> u32 {
        let next = if self.pacing_gain > UNIT { self.burst_segments() } else { 0 };
        let delivered = self.segments_in(ack.pacing_wait).min(u64::from(MAX_WINDOW)) as u32;
        (in_flight + next).saturating_sub(delivered)
    }

    /// Returns the whole segments that the bandwidth delivers in `span`.
    fn segments_in(&self, span: Span) -> u64 {
        let bytes = scaled(self.bandwidth_in_use(), span.as_nanos(), NANOS_PER_SECOND);
        bytes / u64::from(self.sizes.segment_bytes)
    }

    fn advance_cycle(&mut self, now: Time) {
        self.cycle_index = (self.cycle_index + 1) % CYCLE.len();
        self.cycle_start = now;
    }

    fn enter_probe_bandwidth(&mut self, now: Time) {
        self.mode = Mode::ProbeBandwidth;
        // A random phase except the draining one.
        self.cycle_index = CYCLE.len() - 1 - self.rng.below(CYCLE.len() as u32 - 1) as usize;
        self.advance_cycle(now);
    }

    fn check_full(&mut self, app_limited: bool) {
        if self.pipe_full || !self.round_start || app_limited {
            return;
        }
        let bandwidth = self.bandwidth.value();
        if bandwidth >= self.full_bandwidth * 5 / 4 {
            self.full_bandwidth = bandwidth;
            self.full_rounds = 0;
            return;
        }
        self.full_rounds += 1;
        self.pipe_full = self.full_rounds >= 3;
    }

    fn check_drain(&mut self, ack: &Ack, window: &mut Window) {
        if self.mode == Mode::Startup && self.pipe_full {
            self.mode = Mode::Drain;
            window.threshold = self.in_flight_for(UNIT);
        }
        let in_network = self.in_network_at_departure(ack, ack.in_flight);
        if self.mode == Mode::Drain && in_network <= self.in_flight_for(UNIT) {
            self.enter_probe_bandwidth(ack.now);
        }
    }

    fn update_min_rtt(&mut self, ack: &Ack, window: &mut Window) {
        let expired = ack.now > self.min_rtt_at + MIN_RTT_WINDOW;
        if let Some(rtt) = ack.rtt.filter(|rtt| *rtt < self.min_rtt || expired) {
            self.min_rtt = rtt;
            self.min_rtt_at = ack.now;
        }
        if expired && !self.idle_restart && self.mode != Mode::ProbeRtt {
            self.mode = Mode::ProbeRtt;
            self.save_window(window);
            self.probe_rtt_done = None;
        }
        if self.mode == Mode::ProbeRtt {
            self.probe_rtt(ack, window);
        }
        if ack.delivered > 0 {
            self.idle_restart = false;
        }
    }

    fn probe_rtt(&mut self, ack: &Ack, window: &mut Window) {
        match self.probe_rtt_done {
            None if ack.in_flight <= MIN_WINDOW => {
                self.probe_rtt_done = Some(ack.now + PROBE_RTT_LENGTH);
                self.probe_rtt_round_done = false;
                self.next_round_delivered = ack.total_delivered;
            }
            None => {}
            Some(done) => {
                self.probe_rtt_round_done |= self.round_start;
                if self.probe_rtt_round_done && ack.now > done {
                    self.min_rtt_at = ack.now;
                    window.size = window.size.max(self.prior_window);
                    if self.pipe_full {
                        self.enter_probe_bandwidth(ack.now);
                    } else {
                        self.mode = Mode::Startup;
                    }
                }
            }
        }
    }

    fn update_gains(&mut self) {
        (self.pacing_gain, self.window_gain) = match self.mode {
            Mode::Startup => (HIGH_GAIN, HIGH_GAIN),
            Mode::Drain => (DRAIN_GAIN, HIGH_GAIN),
            Mode::ProbeBandwidth if self.long_term.in_use => (UNIT, WINDOW_GAIN),
            Mode::ProbeBandwidth => (CYCLE[self.cycle_index], WINDOW_GAIN),
            Mode::ProbeRtt => (UNIT, UNIT),
        };
    }

    fn set_pacing(&mut self, ack: &Ack, window: &Window) {
        if !self.seen_rtt && ack.smoothed_rtt > Span::ZERO {
            self.seen_rtt = true;
            let bytes = u64::from(window.size) * u64::from(self.sizes.segment_bytes);
            let rate = scaled(bytes, NANOS_PER_SECOND, ack.smoothed_rtt.as_nanos());
            self.pace_at(rate * HIGH_GAIN / UNIT * 99 / 100);
        }
        let rate = scaled(self.bandwidth_in_use(), self.pacing_gain * 99, UNIT * 100);
        if self.pipe_full || rate > self.pacing.bytes_per_s() {
            self.pace_at(rate.max(1));
        }
    }

    fn pace_at(&mut self, payload_bytes_per_s: u64) {
        self.pacing = PayloadRate::from_bytes_per_s(payload_bytes_per_s);
        self.packet_pacing = Some(self.pacing.to_packet_rate(self.sizes));
    }

    fn set_window(&mut self, ack: &Ack, window: &mut Window) {
        if ack.delivered > 0 && !self.recover_or_restore(ack, window) {
            let target = self.product(self.bandwidth_in_use(), self.window_gain)
                + self.aggregation_allowance();
            let target = self.quantised(target);
            if self.pipe_full {
                window.size = (window.size + ack.delivered).min(target);
            } else if window.size < target || ack.total_delivered < self.initial_window {
                window.size += ack.delivered;
            }
            window.size = window.size.max(MIN_WINDOW);
        }
        window.size = window.size.min(MAX_WINDOW);
        if self.mode == Mode::ProbeRtt {
            window.size = window.size.min(MIN_WINDOW);
        }
    }

    /// Applies packet conservation in the first round of recovery and restores the window
    /// afterwards. Returns whether conservation determines the window.
    fn recover_or_restore(&mut self, ack: &Ack, window: &mut Window) -> bool {
        if ack.lost > 0 {
            window.size = window.size.saturating_sub(ack.lost).max(1);
        }
        let repairing = |state| matches!(state, State::Recovery | State::Timeout);
        if ack.state == State::Recovery && self.previous_state != State::Recovery {
            self.conserving = true;
            self.next_round_delivered = ack.total_delivered;
            window.size = ack.in_flight + ack.delivered;
        } else if repairing(self.previous_state) && !repairing(ack.state) {
            window.size = window.size.max(self.prior_window);
            self.conserving = false;
        }
        self.previous_state = ack.state;
        if self.conserving {
            window.size = window.size.max(ack.in_flight + ack.delivered);
        }
        self.conserving
    }

    fn save_window(&mut self, window: &Window) {
        let settled = matches!(self.previous_state, State::Open | State::Reducing);
        self.prior_window = if settled && self.mode != Mode::ProbeRtt {
            window.size
        } else {
            self.prior_window.max(window.size)
        };
    }
}

impl CongestionControl for Bbr {
    fn on_ack(&mut self, ack: &Ack, window: &mut Window) {
        self.round_start = false;
        if let Some(rate) = &ack.rate {
            self.update_bandwidth(ack, rate);
        }
        self.update_aggregation(ack, window);
        self.update_cycle(ack);
        self.check_full(ack.rate.is_some_and(|rate| rate.app_limited));
        self.check_drain(ack, window);
        self.update_min_rtt(ack, window);
        self.update_gains();
        self.set_pacing(ack, window);
        self.set_window(ack, window);
    }

    /// A loss only saves the window; a timeout also restarts the search for the full bandwidth.
    fn on_loss(&mut self, loss: &Loss, window: &mut Window) {
        self.save_window(window);
        if loss.cause == Cause::Timeout {
            self.previous_state = State::Timeout;
            self.full_bandwidth = 0;
            self.round_start = true;
            window.size = loss.in_flight + 1;
        }
    }

    /// Restarts the search for the full bandwidth (Linux `bbr_undo_cwnd`).
    fn on_undo(&mut self) {
        self.full_bandwidth = 0;
        self.full_rounds = 0;
        self.long_term = LongTerm::default();
    }

    fn on_restart(&mut self, now: Time, _idle: Span, _window: &mut Window) {
        self.idle_restart = true;
        self.aggregation.epoch_start = now;
        self.aggregation.epoch_acknowledged = 0;
        if self.mode == Mode::ProbeBandwidth {
            let rate = u128::from(self.bandwidth_in_use()) * 99 / 100;
            self.pace_at((rate as u64).max(1));
        }
    }

    fn pacing(&self) -> Option<PacketRate> {
        self.packet_pacing
    }

    fn owns_window(&self) -> bool {
        true
    }

    /// "Ignore low rate samples during this mode" (Linux `bbr_update_min_rtt`).
    fn holds_back(&self) -> bool {
        self.mode == Mode::ProbeRtt
    }
}

const NANOS_PER_SECOND: u64 = 1_000_000_000;
/// 1 as a gain.
const UNIT: u64 = 256;
// 2/ln 2.
const HIGH_GAIN: u64 = UNIT * 2_885 / 1_000 + 1;
const DRAIN_GAIN: u64 = UNIT * 1_000 / 2_885;
const WINDOW_GAIN: u64 = 2 * UNIT;
/// Gains of the eight phases.
const CYCLE: [u64; 8] = [UNIT * 5 / 4, UNIT * 3 / 4, UNIT, UNIT, UNIT, UNIT, UNIT, UNIT];
const BANDWIDTH_ROUNDS: u64 = 10;
const MIN_RTT_WINDOW: Span = Span::from_secs(10);
const PROBE_RTT_LENGTH: Span = Span::from_millis(200);
const MIN_WINDOW: u32 = 4;
const AGGREGATION_ROUNDS: u32 = 5;
/// Fewest rounds of an interval of the long-term bandwidth; four times as many are too many.
const INTERVAL_ROUNDS: u32 = 4;
/// Losses in 1/256 of deliveries from which on an interval counts as policed.
const POLICED_LOSS: u64 = 50;
const POLICED_ROUNDS: u32 = 48;
/// Bandwidths that differ by less agree: 4 kbit/s, in bytes.
const SAME_BANDWIDTH: u64 = 500;
// 1.2 Mbit/s.
const SLOW_PACING: PayloadRate = PayloadRate::from_bytes_per_s(150_000);
const UNKNOWN: Span = Span::from_nanos(u64::MAX);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::tests::{ack, setup};

    /// Acknowledges rounds of 100 segments in 100 ms, in which `lost` are lost.
    fn rounds(bbr: &mut Bbr, total: &mut (u32, u32), count: u32, lost: u32) {
        let mut window = Window::new(200);
        for _ in 0..count {
            let prior_delivered = total.0;
            *total = (total.0 + 100, total.1 + lost);
            let interval = Span::from_millis(100);
            let rate = Delivered { segments: 100, interval, prior_delivered, app_limited: false };
            let step = Ack {
                now: Time::from_millis(u64::from(total.0)),
                lost,
                total_delivered: total.0,
                total_lost: total.1,
                rate: Some(rate),
                ..ack(100)
            };
            bbr.on_ack(&step, &mut window);
        }
    }

    /// `bbr_lt_bw_sampling` of Linux by hand: an interval begins with a loss and ends with the
    /// fourth round in which 50 of 256 were lost; the second such interval begins the use.
    #[test]
    fn two_intervals_with_many_losses_hold_the_bandwidth_for_48_rounds() {
        let (mut bbr, mut total) = (Bbr::new(setup()), (0, 0));
        rounds(&mut bbr, &mut total, 8, 19);
        assert!(!bbr.long_term.in_use, "19 of 100 are too few");
        rounds(&mut bbr, &mut total, 20, 0);
        rounds(&mut bbr, &mut total, 7, 25);
        assert!(!bbr.long_term.in_use);
        rounds(&mut bbr, &mut total, 2, 25);
        assert!(bbr.long_term.in_use);
        assert_eq!(bbr.bandwidth_in_use(), 1_448_000, "1,000 segments a second");
        assert_eq!((bbr.mode, bbr.pacing_gain), (Mode::ProbeBandwidth, UNIT));
        rounds(&mut bbr, &mut total, 46, 0);
        assert!(bbr.long_term.in_use);
        rounds(&mut bbr, &mut total, 1, 0);
        assert!(!bbr.long_term.in_use);
    }
}
