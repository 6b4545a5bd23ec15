//! DualPI2 as RFC 9332 appendix A describes it; see the [module](super).

use crate::packet::Meta;
use crate::qdisc::{Backlog, MarkReason};
use crate::queue::control::Recur;
use crate::queue::control::{Gains, ONE_Q56, add_clamped_q56, q56_to_f64};
use crate::time::{Span, Time};

use super::{Controller, Decision, DualPi2RfcConfig};

/// The controller of RFC 9332, appendix A.
#[derive(Clone, Debug)]
pub struct DualPi2Rfc {
    config: DualPi2RfcConfig,
    gains: Gains,
    state: State,
    /// `p_CL = k * p'`, which may exceed one.
    coupled_q56: u64,
    /// `p_C = p' * p'` of RFC 9332.
    classic_q56: u64,
    /// `p_Cmax = min(1/k^2, 1)` of RFC 9332.
    classic_limit_q56: u64,
    low_latency: Recur,
    classic: Recur,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct State {
    probability_q56: u64,
    old_delay: Span,
}

impl DualPi2Rfc {
    /// Returns a controller with a probability of zero.
    pub fn new(config: DualPi2RfcConfig) -> Self {
        let million = 1_000_000_u128;
        let coupling = u128::from(config.coupling_millionths.max(1));
        let limit_q56 = u128::from(ONE_Q56) * million * million / (coupling * coupling);
        Self {
            gains: Gains {
                alpha_microhertz: config.alpha_microhertz,
                beta_microhertz: config.beta_microhertz,
            },
            state: State { probability_q56: 0, old_delay: Span::ZERO },
            coupled_q56: 0,
            classic_q56: 0,
            classic_limit_q56: limit_q56.min(u128::from(ONE_Q56)) as u64,
            low_latency: Recur::default(),
            classic: Recur::default(),
            config,
        }
    }

    /// Returns the probability of the low latency queue's own AQM: a ramp over its sojourn.
    fn native_q56(&self, sojourn: Span) -> u64 {
        let over = sojourn.saturating_sub(self.config.ramp_start);
        if over >= self.config.ramp_range {
            return if sojourn > self.config.ramp_start { ONE_Q56 } else { 0 };
        }
        let (over, range) = (over.as_nanos(), self.config.ramp_range.as_nanos());
        (u128::from(ONE_Q56) * u128::from(over) / u128::from(range)) as u64
    }
}

impl Controller for DualPi2Rfc {
    fn update(&mut self, delay: Span) -> bool {
        let before = self.state.clone();
        let state = &mut self.state;
        let step_q56 = self.gains.step_q56(delay, state.old_delay, self.config.target);
        state.probability_q56 = add_clamped_q56(state.probability_q56, step_q56, ONE_Q56);
        state.old_delay = delay;
        let p = u128::from(state.probability_q56);
        let coupled = p * u128::from(self.config.coupling_millionths) / 1_000_000;
        self.coupled_q56 = coupled.min(u128::from(u64::MAX)) as u64;
        self.classic_q56 = ((p * p) >> 56) as u64;
        let at_most = state.probability_q56 == ONE_Q56 && before.probability_q56 == ONE_Q56;
        *state == before || at_most && delay >= self.config.target && delay >= before.old_delay
    }

    fn judge_low_latency(
        &mut self,
        now: Time,
        meta: &Meta,
        queued: u32,
        _stored: Backlog,
    ) -> Decision {
        if self.coupled_q56 >= ONE_Q56 {
            // Saturated: the low latency queue shares the classic losses.
            let drops = self.low_latency.signals(self.classic_q56);
            return if drops { Decision::Drop } else { Decision::Mark(MarkReason::ControlLaw) };
        }
        let native_q56 = if queued > 1 { self.native_q56(now.since(meta.arrived)) } else { 0 };
        if !self.low_latency.signals(native_q56.max(self.coupled_q56)) {
            return Decision::Pass;
        }
        let native = native_q56 > self.coupled_q56;
        Decision::Mark(if native { MarkReason::Threshold } else { MarkReason::ControlLaw })
    }

    fn judge_classic(&mut self, _meta: &Meta, _stored: Backlog) -> Decision {
        if !self.classic.signals(self.classic_q56) {
            return Decision::Pass;
        }
        let saturated = self.classic_q56 >= self.classic_limit_q56;
        if saturated { Decision::Drop } else { Decision::Signal }
    }

    fn admits(&self, stored: Backlog, len: u32) -> bool {
        let room = u64::from(self.config.mtu_bytes.max(len));
        stored.bytes + room <= self.config.limit_bytes
    }

    fn probability(&self) -> f64 {
        q56_to_f64(self.state.probability_q56)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::Ecn;
    use crate::queue::control::ratio_q56;

    pub(crate) fn config() -> DualPi2RfcConfig {
        DualPi2RfcConfig {
            target: Span::from_millis(15),
            update_interval: Span::from_millis(15),
            alpha_microhertz: 150_000,
            beta_microhertz: 3_000_000,
            coupling_millionths: 2_000_000,
            ramp_start: Span::from_micros(800),
            ramp_range: Span::from_micros(400),
            limit_bytes: 1_000_000,
            mtu_bytes: 1_500,
        }
    }

    const STORED: Backlog = Backlog { packets: 100, bytes: 150_000 };

    fn controller_at(percent: u64) -> DualPi2Rfc {
        let mut controller = DualPi2Rfc::new(config());
        controller.state.probability_q56 = ratio_q56(percent, 100);
        controller.state.old_delay = Span::from_millis(15);
        controller.update(Span::from_millis(15));
        controller
    }

    #[test]
    fn an_update_moves_p_by_both_gains_and_couples_it() {
        let mut controller = controller_at(10);
        // 20 ms after 15 ms: 0.15 * 0.005 + 3 * 0.005 = 0.01575.
        controller.update(Span::from_millis(20));
        let near = |value_q56: u64, expected: f64| {
            let value = q56_to_f64(value_q56);
            assert!((value - expected).abs() < 1e-12, "{value} is not {expected}");
        };
        near(controller.state.probability_q56, 0.115_75);
        near(controller.coupled_q56, 0.2315);
        near(controller.classic_q56, 0.115_75 * 0.115_75);
    }

    #[test]
    fn the_ramp_runs_from_800_to_1200_microseconds() {
        let controller = controller_at(0);
        for (sojourn_us, expected) in [(800, 0), (900, 25), (1_000, 50), (1_199, 99), (1_200, 100)]
        {
            let percent = q56_to_f64(controller.native_q56(Span::from_micros(sojourn_us))) * 100.0;
            assert!((percent - f64::from(expected)).abs() < 1.0, "{sojourn_us}: {percent}");
        }
    }

    fn share(decisions: impl Iterator<Item = Decision>, of: Decision) -> f64 {
        let all: alloc::vec::Vec<_> = decisions.collect();
        all.iter().filter(|decision| **decision == of).count() as f64 / all.len() as f64
    }

    #[test]
    fn classic_packets_are_signalled_with_the_square_and_low_latency_ones_with_k_times_p() {
        let mut controller = controller_at(10);
        let meta = Meta { ecn: Ecn::Ect1, ..Meta::new(1_500, 0) };
        let classic = (0..10_000).map(|_| controller.judge_classic(&meta, STORED));
        assert!((share(classic, Decision::Signal) - 0.01).abs() < 0.000_2);
        let marks = (0..10_000).map(|_| controller.judge_low_latency(Time::ZERO, &meta, 9, STORED));
        let marked = share(marks, Decision::Mark(MarkReason::ControlLaw));
        assert!((marked - 0.2).abs() < 0.000_2, "marked {marked}");
    }

    #[test]
    fn a_lone_packet_of_the_low_latency_queue_is_not_marked_for_its_sojourn() {
        let mut controller = controller_at(0);
        let now = Time::from_millis(50);
        let meta = Meta::new(1_500, 0);
        controller.judge_low_latency(now, &meta, 2, STORED);
        let two = controller.judge_low_latency(now, &meta, 2, STORED);
        assert_eq!(two, Decision::Mark(MarkReason::Threshold));
        assert_eq!(controller.judge_low_latency(now, &meta, 1, STORED), Decision::Pass);
    }

    /// Appendix A requires space for a largest packet, however short the arrival is.
    #[test]
    fn an_arrival_needs_room_for_a_largest_packet() {
        let admits = |bytes, len| controller_at(0).admits(Backlog { packets: 9, bytes }, len);
        assert!(admits(998_500, 100) && !admits(998_501, 100));
        assert!(admits(998_000, 2_000) && !admits(998_001, 2_000));
    }

    #[test]
    fn a_ramp_without_a_range_is_a_step_above_its_start() {
        let config = DualPi2RfcConfig { ramp_range: Span::ZERO, ..config() };
        let native = |us| DualPi2Rfc::new(config.clone()).native_q56(Span::from_micros(us));
        assert_eq!((native(799), native(800), native(801)), (0, 0, ONE_Q56));
    }

    /// Updates may be skipped if each would change nothing but the remembered delay.
    #[test]
    fn an_update_reports_whether_later_updates_can_change_the_state() {
        for (percent, old_ms, new_ms, nothing_more) in [
            (0, 0, 0, true),
            (0, 10, 10, true),
            (0, 5, 0, false),
            (10, 15, 15, true),
            (10, 16, 16, false),
            (100, 20, 20, true),
            (100, 20, 25, true),
            (100, 30, 29, false),
            // The probability stays at its maximum only until the delay is below the target.
            (100, 10, 12, false),
            (100, 14, 15, true),
            (99, 20, 40, false),
        ] {
            let mut controller = DualPi2Rfc::new(config());
            controller.state.probability_q56 = ratio_q56(percent, 100);
            controller.state.old_delay = Span::from_millis(old_ms);
            let said = controller.update(Span::from_millis(new_ms));
            assert_eq!(said, nothing_more, "{percent} {old_ms} {new_ms}");
        }
    }

    #[test]
    fn in_overload_both_queues_drop_by_the_squared_probability_including_ect() {
        let mut controller = controller_at(60);
        let meta = Meta { ecn: Ecn::Ect1, ..Meta::new(1_500, 0) };
        let low = (0..10_000).map(|_| controller.judge_low_latency(Time::ZERO, &meta, 9, STORED));
        assert!((share(low, Decision::Drop) - 0.36).abs() < 0.000_2);
        let classic = (0..10_000).map(|_| controller.judge_classic(&meta, STORED));
        assert!((share(classic, Decision::Drop) - 0.36).abs() < 0.000_2);
    }
}
