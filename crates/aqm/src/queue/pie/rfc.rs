//! PIE as RFC 8033 describes it; see the [module](super) for how the profiles differ.

use crate::aqm::{Aqm, Store, Verdict};
use crate::packet::{Meta, Packet};
use crate::qdisc::Backlog;
use crate::rng::Rng;
use crate::time::{Span, Time};

use super::PieRfcConfig;
use crate::queue::control::{
    Gains, ONE_Q56, UpdateTimer, add_clamped_q56, low_probability_shift, q56_to_f64, ratio_q56,
};

/// PIE as in RFC 8033.
#[derive(Clone, Debug)]
pub struct PieRfc {
    config: PieRfcConfig,
    gains: Gains,
    ecn_threshold_q56: u64,
    half_target: Span,
    timer: UpdateTimer,
    state: State,
    /// Sum of the probabilities since the last signal (section 5.4).
    accumulated_q56: u64,
    rng: Rng,
}

/// The state that an update reads and writes.
#[derive(Clone, Debug, PartialEq, Eq)]
struct State {
    probability_q56: u64,
    delay: Span,
    old_delay: Span,
    burst_left: Span,
}

impl PieRfc {
    /// Returns an idle controller that draws from `rng`.
    pub fn new(config: PieRfcConfig, rng: Rng) -> Self {
        let state = State {
            probability_q56: 0,
            delay: Span::ZERO,
            old_delay: Span::ZERO,
            burst_left: config.max_burst,
        };
        Self {
            gains: Gains {
                alpha_microhertz: config.alpha_microhertz,
                beta_microhertz: config.beta_microhertz,
            },
            ecn_threshold_q56: config.ecn_threshold_q32 << 24,
            half_target: Span::from_nanos(config.target.as_nanos() / 2),
            timer: UpdateTimer::new(Time::ZERO + config.update_interval, config.update_interval),
            state,
            accumulated_q56: 0,
            rng,
            config,
        }
    }

    fn advance(&mut self, now: Time) {
        while self.timer.take_due(now).is_some() {
            self.replay_update(now);
        }
    }

    #[cold]
    fn replay_update(&mut self, now: Time) {
        let before = self.state.clone();
        self.update();
        if self.state == before {
            self.timer.skip_due(now);
        }
    }

    /// Makes the update of section 4.2, with the limit on steps of section 5.5.
    fn update(&mut self) {
        let state = &mut self.state;
        let shift = low_probability_shift(state.probability_q56);
        let mut step_q56 = self.gains.step_q56(state.delay, state.old_delay, self.config.target);
        step_q56 /= 1 << shift;
        if state.probability_q56 >= TEN_PERCENT_Q56 {
            step_q56 = step_q56.min(i128::from(TWO_PERCENT_Q56));
        }
        state.probability_q56 = add_clamped_q56(state.probability_q56, step_q56, ONE_Q56);
        if state.delay == Span::ZERO && state.old_delay == Span::ZERO {
            state.probability_q56 -= state.probability_q56 / 50;
        }
        state.old_delay = state.delay;
        state.burst_left = state.burst_left.saturating_sub(self.config.update_interval);
    }

    /// Whether this arrival is to signal congestion (appendix A, `drop_early`).
    // Not inlined, so that the code for a packet that passes stays small enough to be inlined.
    #[inline(never)]
    fn signals(&mut self, backlog: Backlog) -> bool {
        let state = &self.state;
        let delay_is_low = state.old_delay < self.half_target;
        if delay_is_low && state.probability_q56 < TWENTY_PERCENT_Q56 {
            return false;
        }
        if backlog.bytes <= 2 * u64::from(self.config.mean_packet_bytes) {
            return false;
        }
        if self.config.derandomize {
            if state.probability_q56 == 0 {
                self.accumulated_q56 = 0;
            }
            self.accumulated_q56 += state.probability_q56;
            if self.accumulated_q56 < SPREAD_LOW_Q56 {
                return false;
            }
            if self.accumulated_q56 >= SPREAD_HIGH_Q56 {
                return true;
            }
        }
        self.rng.next_u64() >> 8 < state.probability_q56
    }
}

impl Aqm for PieRfc {
    #[inline]
    fn on_enqueue(&mut self, now: Time, _meta: &Meta, backlog: Backlog) -> Verdict {
        self.advance(now);
        let state = &mut self.state;
        if state.probability_q56 == 0
            && state.delay < self.half_target
            && state.old_delay < self.half_target
        {
            state.burst_left = self.config.max_burst;
        }
        if state.burst_left > Span::ZERO || !self.signals(backlog) {
            return Verdict::Pass;
        }
        self.accumulated_q56 = 0;
        if self.config.ecn && self.state.probability_q56 < self.ecn_threshold_q56 {
            Verdict::Signal
        } else {
            Verdict::Drop
        }
    }

    #[inline]
    fn dequeue<P>(&mut self, now: Time, store: &mut impl Store<P>) -> Option<Packet<P>> {
        self.advance(now);
        let head = store.head()?;
        let is_last = store.backlog().packets == 1;
        self.state.delay = if is_last { Span::ZERO } else { now.since(head.arrived) };
        store.pop()
    }

    fn gauges(&self, visit: &mut dyn FnMut(&'static str, f64)) {
        visit("pie.probability", q56_to_f64(self.state.probability_q56));
        visit("pie.delay_ns", self.state.delay.as_nanos() as f64);
        visit("pie.burst_left_ns", self.state.burst_left.as_nanos() as f64);
    }
}

const TWO_PERCENT_Q56: u64 = ratio_q56(2, 100);
const TEN_PERCENT_Q56: u64 = ratio_q56(10, 100);
const TWENTY_PERCENT_Q56: u64 = ratio_q56(20, 100);
/// No packet is signalled before the probabilities add up to this (section 5.4).
const SPREAD_LOW_Q56: u64 = ratio_q56(85, 100);
/// A packet is signalled when they add up to this (section 5.4).
const SPREAD_HIGH_Q56: u64 = ratio_q56(85, 10);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::qdisc::{Dequeue, Qdisc};
    use crate::queue::store::{Limit, Overflow, Single};

    const FULL: Backlog = Backlog { packets: 100, bytes: 150_000 };

    fn at_probability(percent: u64, derandomize: bool) -> PieRfc {
        let config = PieRfcConfig { derandomize, ..PieRfcConfig::default() };
        let mut pie = PieRfc::new(config, Rng::new(5).child("pie"));
        pie.state = State {
            probability_q56: ratio_q56(percent, 100),
            delay: Span::from_millis(30),
            old_delay: Span::from_millis(30),
            burst_left: Span::ZERO,
        };
        pie
    }

    fn signals_among(pie: &mut PieRfc, arrivals: u32) -> u32 {
        let meta = Meta::new(1_500, 0);
        let count = |_: &u32| pie.on_enqueue(Time::ZERO, &meta, FULL) != Verdict::Pass;
        (0..arrivals).filter(count).count() as u32
    }

    #[test]
    fn drops_at_its_probability_within_three_standard_deviations() {
        for percent in [1, 5, 20, 60] {
            let arrivals = 200_000.0;
            let expected = f64::from(percent as u32) / 100.0;
            let signals = f64::from(signals_among(&mut at_probability(percent, false), 200_000));
            let deviation = (expected * (1.0 - expected) / arrivals).sqrt();
            let rate = signals / arrivals;
            assert!((rate - expected).abs() < 3.0 * deviation, "{rate} is not {expected}");
        }
    }

    #[test]
    fn the_interval_between_derandomised_drops_has_the_computed_mean() {
        // At p = 0.04, 21 arrivals pass, and then each signals with p: one signal in 21 + 1/p = 46
        // arrivals. The variance per signal is that of the second part, (1 - p) / p^2 = 600.
        let signals = f64::from(signals_among(&mut at_probability(4, true), 920_000));
        let deviation = (20_000.0_f64 * 600.0).sqrt() / 46.0;
        assert!((signals - 20_000.0).abs() < 3.0 * deviation, "{signals} is not 20000");
    }

    /// Sections 4.1, 4.4 and 5.4, with an accumulated probability so large that the result is
    /// certain.
    #[test]
    fn exemptions_from_dropping_end_exactly_at_their_thresholds() {
        let signals = |percent: u64, old_delay_ns, bytes, burst_ns| {
            let mut pie = at_probability(percent, true);
            pie.accumulated_q56 = SPREAD_HIGH_Q56;
            pie.state.old_delay = Span::from_nanos(old_delay_ns);
            pie.state.burst_left = Span::from_nanos(burst_ns);
            let backlog = Backlog { packets: 3, bytes };
            pie.on_enqueue(Time::ZERO, &Meta::new(1_500, 0), backlog) != Verdict::Pass
        };
        let half_target_ns = 7_500_000;
        assert!(signals(19, half_target_ns, 3_001, 0));
        assert!(!signals(19, half_target_ns - 1, 3_001, 0), "half of the target");
        assert!(signals(20, 0, 3_001, 0), "a fifth, whatever the delay");
        assert!(!signals(20, half_target_ns, 3_000, 0), "two packets");
        assert!(!signals(20, half_target_ns, 3_001, 1), "a burst");
    }

    #[test]
    fn drops_begin_at_an_accumulated_probability_of_85_percent_and_are_certain_at_850() {
        let one = ratio_q56(1, 100);
        let mut silent = at_probability(84, true);
        assert_eq!(signals_among(&mut silent, 1), 0);
        assert_eq!(silent.accumulated_q56, ratio_q56(84, 100));
        assert_eq!(signals_among(&mut at_probability(100, true), 9), 9);
        let signals_at = |accumulated_q56| {
            let mut pie = at_probability(1, true);
            let again = |_: &u32| {
                pie.accumulated_q56 = accumulated_q56;
                signals_among(&mut pie, 1) == 1
            };
            (0..50).filter(again).count()
        };
        assert_eq!(signals_at(SPREAD_HIGH_Q56 - one), 50);
        assert!(signals_at(SPREAD_HIGH_Q56 - one - 1) < 25);
    }

    #[test]
    fn from_a_probability_of_a_tenth_packets_are_dropped_and_a_quiet_queue_gets_a_new_burst() {
        let verdict = |below_q56: u64| {
            let mut pie = at_probability(10, true);
            pie.state.probability_q56 = pie.ecn_threshold_q56 - below_q56;
            (pie.config.ecn, pie.accumulated_q56) = (true, SPREAD_HIGH_Q56);
            pie.on_enqueue(Time::ZERO, &Meta::new(1_500, 0), FULL)
        };
        assert_eq!((verdict(1), verdict(0)), (Verdict::Signal, Verdict::Drop));
        let burst_left = |percent: u64, delay_ns, old_delay_ns| {
            let mut pie = at_probability(percent, true);
            pie.state.delay = Span::from_nanos(delay_ns);
            pie.state.old_delay = Span::from_nanos(old_delay_ns);
            pie.on_enqueue(Time::ZERO, &Meta::new(1_500, 0), FULL);
            pie.state.burst_left.as_millis()
        };
        assert_eq!(burst_left(0, 7_499_999, 7_499_999), 150);
        assert_eq!(burst_left(0, 7_500_000, 7_499_999), 0);
        assert_eq!(burst_left(0, 7_499_999, 7_500_000), 0);
        assert_eq!(burst_left(1, 0, 0), 0);
    }

    /// Section 4.2, computed by hand: 0.125 Hz and 1.25 Hz, a target of 15 ms.
    #[test]
    fn an_update_scales_its_step_and_decays_when_all_is_quiet() {
        let updated = |per_mille: u64, delay_ms, old_delay_ms| {
            let mut pie = at_probability(0, true);
            pie.state.probability_q56 = ratio_q56(per_mille, 1_000);
            pie.state.delay = Span::from_millis(delay_ms);
            pie.state.old_delay = Span::from_millis(old_delay_ms);
            pie.update();
            let mut told = 0.0;
            pie.gauges(&mut |name, value| told += f64::from(name == "pie.probability") * value);
            (told * 1e9).round() as u64
        };
        assert_eq!(updated(5, 30, 30), 5_234_375, "an eighth of the step");
        assert_eq!(updated(50, 30, 30), 50_937_500, "half of it");
        assert_eq!(updated(500, 30, 30), 501_875_000);
        assert_eq!(updated(500, 1, 0), 499_500_000);
        assert_eq!(updated(500, 0, 1), 496_875_000);
        assert_eq!(updated(500, 0, 0), 488_162_500, "498125000 less a fiftieth");
    }

    #[test]
    fn probability_stays_in_its_bounds_whatever_the_delay() {
        let mut pie = PieRfc::new(PieRfcConfig::default(), Rng::new(1));
        for seconds in [1, 0, 100, 3, 0, 0, 4_000] {
            pie.state.delay = Span::from_secs(seconds);
            for _ in 0..200 {
                let before = pie.state.probability_q56;
                pie.update();
                let after = pie.state.probability_q56;
                assert!(after <= ONE_Q56);
                assert!(before < TEN_PERCENT_Q56 || after <= before + TWO_PERCENT_Q56);
            }
        }
    }

    #[test]
    fn updates_of_an_idle_year_are_skipped_in_one_step() {
        let mut pie = at_probability(90, true);
        pie.state.delay = Span::ZERO;
        pie.advance(Time::from_secs(3_600 * 24 * 365));
        assert_eq!(pie.state.probability_q56, 0);
        assert_eq!(pie.state.burst_left, Span::ZERO);
    }

    #[test]
    fn an_overloaded_queue_is_held_near_its_target() {
        // 1500 B arrive every 0.8 ms and one packet leaves per ms, for 60 s: 20 % must be dropped.
        let pie = PieRfc::new(PieRfcConfig::default(), Rng::new(3));
        let mut queue: Single<PieRfc, ()> = Single::new(pie, Limit::packets(1_000), Overflow::Tail);
        let (mut arrival, mut late, mut sojourn_ms) = (Time::ZERO, 0, 0);
        for slot_ms in 0..60_000 {
            let now = Time::from_millis(slot_ms);
            while arrival <= now {
                let packet = Packet { meta: Meta::new(1_500, 0), payload: () };
                queue.enqueue(arrival, packet, &mut ());
                arrival += Span::from_micros(800);
            }
            let Dequeue::Packet(packet) = queue.dequeue(now, &mut ()) else { continue };
            if slot_ms >= 30_000 {
                late += 1;
                sojourn_ms += now.since(packet.meta.arrived).as_millis();
            }
        }
        assert_eq!(late, 30_000, "PIE must keep the link busy");
        let mean_ms = sojourn_ms / 30_000;
        assert!((10..=20).contains(&mean_ms), "held {mean_ms} ms, not 15 ms");
    }
}
