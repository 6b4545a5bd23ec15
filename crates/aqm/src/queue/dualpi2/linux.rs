//! DualPI2 as Linux has it; see the [module](super).

use alloc::collections::VecDeque;

use crate::packet::{Ecn, Meta};
use crate::qdisc::{Backlog, MarkReason};
use crate::rng::Rng;
use crate::service_flow::Side;
use crate::time::{Span, Time};

use super::{Controller, Decision, DualPi2LinuxConfig, side_of};

/// The step above which the low latency queue marks natively.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Marks packets that waited for longer than this time.
    Sojourn(Span),
    /// Marks packets that leave more than this number of packets behind.
    Packets(u32),
}

/// When the coupled AQM judges a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropAt {
    /// When it leaves, by its own sojourn.
    Dequeue,
    /// When a packet arrives.
    Enqueue,
}

/// The action of the low latency queue in overload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overload {
    /// Drops as the classic queue does, which bounds its delay.
    Drop,
    /// Marks all packets and drops none until the queue is full: `p` is at most `1/k`.
    Overflow,
}

/// The codepoints of the low latency queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LowLatencyEcn {
    /// ECT(1) and CE.
    L4s,
    /// ECT(0), ECT(1) and CE.
    Any,
}

/// The controller of `sch_dualpi2.c`.
#[derive(Clone, Debug)]
pub struct DualPi2Linux {
    config: DualPi2LinuxConfig,
    alpha: u32,
    beta: u32,
    /// The probability as a fraction of `u32::MAX`.
    probability: u32,
    /// The largest value of the probability.
    most: u32,
    old_delay: Span,
    /// Whether the step may mark each low latency packet, oldest first; empty if it may mark all.
    may_step: VecDeque<bool>,
    rng: Rng,
}

impl DualPi2Linux {
    /// Returns an idle controller that draws from `rng`.
    pub fn new(config: DualPi2LinuxConfig, rng: Rng) -> Self {
        Self {
            alpha: scaled_gain(config.alpha_256ths),
            beta: scaled_gain(config.beta_256ths),
            probability: 0,
            most: match config.overload {
                Overload::Drop => u32::MAX,
                Overload::Overflow => u32::MAX / u32::from(config.coupling.max(1)),
            },
            old_delay: Span::ZERO,
            may_step: VecDeque::new(),
            rng,
            config,
        }
    }

    fn roll(&mut self, probability: u32) -> bool {
        self.rng.next_u32() <= probability
    }

    fn coupled(&self) -> u64 {
        u64::from(self.probability) * u64::from(self.config.coupling)
    }

    fn is_short(&self, stored: Backlog) -> bool {
        stored.bytes < 2 * u64::from(self.config.mtu_bytes)
    }

    /// Judges a packet of the low latency queue by the coupled AQM (`dualpi2_scalable_marking`).
    fn judge_coupled(&mut self) -> Decision {
        let coupled = self.coupled();
        if coupled > u64::from(u32::MAX) {
            let p = self.probability;
            return if self.roll(p) && self.roll(p) { Decision::Drop } else { MARK };
        }
        if self.roll(coupled as u32) { MARK } else { Decision::Pass }
    }

    /// Judges a packet of either queue by the coupled AQM (`must_drop`).
    fn judge(&mut self, side: Side, meta: &Meta, stored: Backlog) -> Decision {
        if self.is_short(stored) {
            return Decision::Pass;
        }
        match side {
            Side::LowLatency => self.judge_coupled(),
            Side::Classic => self.judge_squared(meta),
        }
    }

    /// Judges a packet of the classic queue by the coupled AQM (`dualpi2_classic_marking`).
    fn judge_squared(&mut self, meta: &Meta) -> Decision {
        let p = self.probability;
        if !(self.roll(p) && self.roll(p)) {
            return Decision::Pass;
        }
        let overload = self.coupled() > u64::from(u32::MAX);
        let drops = overload || meta.ecn == Ecn::NotEct;
        if drops { Decision::Drop } else { MARK }
    }

    /// Whether the step marks a low latency packet with `behind` behind it (`do_step_aqm`).
    fn is_past_step(&self, now: Time, meta: &Meta, behind: u32) -> bool {
        match self.config.step {
            Step::Sojourn(most) => now.since(meta.arrived) > most,
            Step::Packets(most) => behind > most,
        }
    }
}

const MARK: Decision = Decision::Mark(MarkReason::ControlLaw);
const EARLY: Decision = Decision::Mark(MarkReason::Early);

/// Converts a gain of 1/256 Hz to probability per 64 ns (`dualpi2_scale_alpha_beta`).
const fn scaled_gain(gain_256ths: u32) -> u32 {
    (((gain_256ths as u64 * u32::MAX as u64) >> 2) / 1_000_000_000) as u32
}

impl Controller for DualPi2Linux {
    fn update(&mut self, delay: Span) -> bool {
        let nanos = |span: Span| i128::from(span.as_nanos());
        let delta = (nanos(delay) - nanos(self.config.target)) * i128::from(self.alpha)
            + (nanos(delay) - nanos(self.old_delay)) * i128::from(self.beta);
        let before = (self.probability, self.old_delay);
        // The kernel keeps 32 bits of the step: beyond a change of 312 ms of delay it wraps.
        let step = (delta.unsigned_abs() / 64) as u32;
        self.probability = if delta > 0 {
            self.probability.saturating_add(step)
        } else {
            self.probability.saturating_sub(step)
        };
        self.probability = self.probability.min(self.most);
        self.old_delay = delay;
        let at_most = self.probability == self.most && before.0 == self.most;
        before == (self.probability, delay)
            || at_most && delay >= self.config.target && delay >= before.1
    }

    fn side_of(&self, ecn: Ecn) -> Side {
        match (self.config.ecn, ecn) {
            (LowLatencyEcn::Any, Ecn::Ect0) => Side::LowLatency,
            (_, ecn) => side_of(ecn),
        }
    }

    fn judge_arrival(
        &mut self,
        side: Side,
        meta: &Meta,
        low_latency_packets: u32,
        stored: Backlog,
    ) -> Decision {
        let decision = match self.config.drop {
            DropAt::Dequeue => Decision::Pass,
            DropAt::Enqueue => match self.judge(side, meta, stored) {
                Decision::Mark(_) => EARLY,
                decision => decision,
            },
        };
        let is_stored = decision != Decision::Drop && side == Side::LowLatency;
        if is_stored && self.config.step_min_packets > 0 {
            self.may_step.push_back(low_latency_packets >= self.config.step_min_packets);
        }
        decision
    }

    fn judge_low_latency(
        &mut self,
        now: Time,
        meta: &Meta,
        queued: u32,
        stored: Backlog,
    ) -> Decision {
        let may_step = self.config.step_min_packets == 0 || self.may_step.pop_front() == Some(true);
        let coupled = match self.config.drop {
            DropAt::Dequeue => self.judge(Side::LowLatency, meta, stored),
            DropAt::Enqueue => Decision::Pass,
        };
        if coupled == Decision::Pass && may_step && self.is_past_step(now, meta, queued - 1) {
            return Decision::Mark(MarkReason::Threshold);
        }
        coupled
    }

    fn judge_classic(&mut self, meta: &Meta, stored: Backlog) -> Decision {
        match self.config.drop {
            DropAt::Dequeue => self.judge(Side::Classic, meta, stored),
            DropAt::Enqueue => Decision::Pass,
        }
    }

    fn admits(&self, stored: Backlog, len: u32) -> bool {
        let memory = self.config.memory_bytes.unwrap_or(u64::MAX);
        self.config.limit.admits(stored, len) && stored.bytes + u64::from(len) <= memory
    }

    fn probability(&self) -> f64 {
        f64::from(self.probability) / f64::from(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use crate::queue::store::Limit;

    fn config() -> DualPi2LinuxConfig {
        DualPi2LinuxConfig {
            target: Span::from_millis(15),
            update_interval: Span::from_millis(16),
            alpha_256ths: 41,
            beta_256ths: 819,
            coupling: 2,
            step: Step::Sojourn(Span::from_millis(1)),
            step_min_packets: 0,
            drop: DropAt::Dequeue,
            overload: Overload::Drop,
            ecn: LowLatencyEcn::L4s,
            limit: Limit::packets(10_000),
            memory_bytes: None,
            mtu_bytes: 1_514,
        }
    }

    const STORED: Backlog = Backlog { packets: 100, bytes: 150_000 };

    #[test]
    fn gains_are_rounded_to_the_kernels_units() {
        // floor(41 * (2^32 - 1) / 4 / 10^9) and floor(819 * (2^32 - 1) / 4 / 10^9).
        assert_eq!((scaled_gain(41), scaled_gain(819)), (44, 879));
    }

    #[test]
    fn an_update_adds_whole_steps_of_64_nanoseconds() {
        let mut controller = DualPi2Linux::new(config(), Rng::new(1));
        controller.update(Span::from_millis(20));
        // (5e6 ns * 44 + 20e6 ns * 879) / 64 = 278,125,000.
        assert_eq!(controller.probability, 278_125_000);
        controller.update(Span::from_millis(20));
        assert_eq!(controller.probability, 278_125_000 + 3_437_500);
        controller.update(Span::ZERO);
        // (-15e6 * 44 - 20e6 * 879) / 64 = -285,000,000: more than p, which ends at zero.
        assert_eq!(controller.probability, 0);
    }

    #[test]
    fn a_step_beyond_32_bits_wraps() {
        let after = |ms| {
            let mut controller = DualPi2Linux::new(config(), Rng::new(1));
            controller.probability = u32::MAX;
            controller.old_delay = Span::from_millis(ms);
            controller.update(Span::from_millis(15));
            u64::from(u32::MAX - controller.probability)
        };
        // A fall by 312 ms: 312e6 ns * 879 / 64, below 2^32. By 1 s: 2^32 three times less.
        assert_eq!(after(15 + 312), 4_285_125_000);
        assert_eq!(after(15 + 1_000), 13_734_375_000 - 3 * (1 << 32));
    }

    #[test]
    fn below_two_packets_only_the_step_threshold_signals() {
        let mut controller = DualPi2Linux::new(config(), Rng::new(1));
        controller.probability = u32::MAX;
        let short = Backlog { packets: 2, bytes: 3_027 };
        let meta = Meta { ecn: Ecn::Ect1, ..Meta::new(1_500, 0) };
        let at = |us| Time::from_micros(us);
        assert_eq!(controller.judge_classic(&meta, short), Decision::Pass);
        assert_eq!(controller.judge_low_latency(at(1_000), &meta, 2, short), Decision::Pass);
        assert_eq!(
            controller.judge_low_latency(at(1_001), &meta, 2, short),
            Decision::Mark(MarkReason::Threshold)
        );
        assert_eq!(controller.judge_classic(&meta, STORED), Decision::Drop);
    }

    fn coupled_at(probability: u32, coupling: u8) -> DualPi2Linux {
        let mut controller =
            DualPi2Linux::new(DualPi2LinuxConfig { coupling, ..config() }, Rng::new(7));
        controller.probability = probability;
        controller
    }

    /// Returns the shares of drops and marks among a hundred thousand packets of each queue: L,
    /// then C.
    fn shares(probability: u32, coupling: u8) -> [(f64, f64); 2] {
        let meta = Meta { ecn: Ecn::Ect0, ..Meta::new(1_500, 0) };
        let mut controller = coupled_at(probability, coupling);
        let mut of = |classic: bool| {
            let (mut drops, mut marks) = (0.0, 0.0);
            for _ in 0..100_000 {
                let decision = if classic {
                    controller.judge_classic(&meta, STORED)
                } else {
                    controller.judge_low_latency(Time::ZERO, &meta, 9, STORED)
                };
                drops += f64::from(u8::from(decision == Decision::Drop));
                marks += f64::from(u8::from(decision == MARK));
            }
            (drops / 1e5, marks / 1e5)
        };
        [of(false), of(true)]
    }

    /// `must_drop` and `dualpi2_scalable_marking`: while the coupled probability fits in 32 bits, L
    /// is marked with it and C with the square. Beyond that, both lose packets with the square, and
    /// the rest of L is marked.
    #[test]
    fn overload_begins_where_the_coupled_probability_exceeds_32_bits() {
        let near = |shares: [(f64, f64); 2], expected: [(f64, f64); 2]| {
            for (share, expected) in shares.into_iter().zip(expected) {
                let off = (share.0 - expected.0).abs().max((share.1 - expected.1).abs());
                assert!(off < 0.005, "{shares:?}, not {expected:?}");
            }
        };
        near(shares(u32::MAX / 10, 3), [(0.0, 0.3), (0.0, 0.01)]);
        // 3 * 0x5555_5555 is the largest value of 32 bits.
        near(shares(u32::MAX / 3, 3), [(0.0, 1.0), (0.0, 1.0 / 9.0)]);
        near(shares(u32::MAX / 3 + 1, 3), [(1.0 / 9.0, 8.0 / 9.0), (1.0 / 9.0, 0.0)]);
        near(shares(u32::MAX / 2, 3), [(0.25, 0.75), (0.25, 0.0)]);
    }

    #[test]
    fn two_packets_of_the_largest_size_are_not_short() {
        let meta = Meta::new(1_500, 0);
        let decision =
            |bytes| coupled_at(u32::MAX, 2).judge_classic(&meta, Backlog { packets: 2, bytes });
        assert_eq!((decision(3_027), decision(3_028)), (Decision::Pass, Decision::Drop));
    }

    #[test]
    fn the_limit_counts_all_packets_and_the_gauge_shows_probability_as_a_share() {
        let controller = coupled_at(1 << 31, 2);
        assert!((controller.probability() - 0.5).abs() < 1e-9);
        assert!(controller.admits(Backlog { packets: 9_999, bytes: 1 }, 1_500));
        assert!(!controller.admits(Backlog { packets: 10_000, bytes: 1 }, 1_500));
    }

    /// Updates may be skipped if each would change nothing but the remembered delay.
    #[test]
    fn an_update_reports_whether_later_updates_can_change_the_state() {
        for (probability, old_ms, new_ms, nothing_more) in [
            (0, 0, 0, true),
            (0, 10, 10, true),
            (0, 5, 0, false),
            (500_000_000, 15, 15, true),
            (500_000_000, 16, 16, false),
            (u32::MAX, 20, 20, true),
            (u32::MAX, 20, 25, true),
            (u32::MAX, 30, 29, false),
            // The probability stays at its maximum only until the delay is below the target.
            (u32::MAX, 10, 12, false),
            (u32::MAX, 14, 15, true),
            (u32::MAX - 1, 20, 40, false),
        ] {
            let mut controller = coupled_at(probability, 2);
            controller.old_delay = Span::from_millis(old_ms);
            let said = controller.update(Span::from_millis(new_ms));
            assert_eq!(said, nothing_more, "{probability} {old_ms} {new_ms}");
        }
    }

    #[test]
    fn classic_packets_are_signalled_with_the_square() {
        let mut controller = DualPi2Linux::new(config(), Rng::new(7));
        controller.probability = u32::MAX / 10;
        let meta = Meta { ecn: Ecn::Ect0, ..Meta::new(1_500, 0) };
        let marks = (0..1_000_000).filter(|_| controller.judge_classic(&meta, STORED) == MARK);
        let share = marks.count() as f64 / 1e6;
        assert!((share - 0.01).abs() < 0.000_4, "marked {share}");
    }

    /// A controller at `probability`, and an ECT(1) packet that arrived at 0.
    fn controller_at(probability: u32, config: DualPi2LinuxConfig) -> (DualPi2Linux, Meta) {
        let mut controller = DualPi2Linux::new(config, Rng::new(3));
        controller.probability = probability;
        (controller, Meta { ecn: Ecn::Ect1, ..Meta::new(1_500, 0) })
    }

    const LATE: Time = Time::from_millis(50);
    const BY_STEP: Decision = Decision::Mark(MarkReason::Threshold);

    #[test]
    fn the_step_in_packets_records_the_backlog_at_arrival() {
        for (step_min_packets, side, noted) in
            [(2, Side::LowLatency, 1), (2, Side::Classic, 0), (0, Side::LowLatency, 0)]
        {
            let (mut controller, l4s) =
                controller_at(0, DualPi2LinuxConfig { step_min_packets, ..config() });
            controller.judge_arrival(side, &l4s, 1, STORED);
            assert_eq!(controller.may_step.len(), noted, "{step_min_packets} {side:?}");
        }
    }

    #[test]
    fn early_dropping_decides_at_arrival_and_the_step_at_departure() {
        let config = DualPi2LinuxConfig { drop: DropAt::Enqueue, ..config() };
        let (mut early, l4s) = controller_at(u32::MAX, config);
        let plain = Meta::new(1_500, 1);
        assert_eq!(early.judge_arrival(Side::Classic, &plain, 0, STORED), Decision::Drop);
        assert_eq!(early.judge_classic(&plain, STORED), Decision::Pass);
        // k * p is above one, so that L shares the drops of p * p, which is one.
        assert_eq!(early.judge_arrival(Side::LowLatency, &l4s, 0, STORED), Decision::Drop);
        early.probability = u32::MAX / 2;
        assert_eq!(early.judge_arrival(Side::LowLatency, &l4s, 0, STORED), EARLY);
        assert_eq!(early.judge_low_latency(Time::from_millis(1), &l4s, 9, STORED), Decision::Pass);
        assert_eq!(early.judge_low_latency(LATE, &l4s, 9, STORED), BY_STEP);
        let short = Backlog { packets: 2, bytes: 3_027 };
        assert_eq!(early.judge_arrival(Side::Classic, &plain, 0, short), Decision::Pass);
        let (mut late, _) = controller_at(u32::MAX, self::config());
        assert_eq!(late.judge_arrival(Side::Classic, &plain, 0, STORED), Decision::Pass);
    }

    #[test]
    fn overflowing_holds_p_at_one_over_k_and_drops_no_packet_that_can_be_marked() {
        for (coupling, most) in [(1, u32::MAX), (2, 2_147_483_647), (3, 1_431_655_765)] {
            let overload = Overload::Overflow;
            let config = DualPi2LinuxConfig { coupling, overload, ..config() };
            let (mut full, l4s) = controller_at(0, config);
            // Far above the target for at least 20 updates of 278,125,000.
            let delay = |update: u64| Span::from_millis(20 * update);
            let is_settled: Vec<bool> = (1..=20).map(|update| full.update(delay(update))).collect();
            assert_eq!(full.probability, most);
            assert_eq!((is_settled[0], is_settled[19]), (false, true));
            let classic = Meta { ecn: Ecn::Ect0, ..l4s };
            let decisions = (0..1_000).flat_map(|_| {
                [
                    full.judge_low_latency(Time::ZERO, &l4s, 9, STORED),
                    full.judge_classic(&classic, STORED),
                ]
            });
            let decisions: Vec<Decision> = decisions.collect();
            assert!(!decisions.contains(&Decision::Drop), "k {coupling}");
            let of_l = decisions.iter().step_by(2).filter(|decision| **decision == MARK);
            assert_eq!(of_l.count(), 1_000, "k * p is one");
        }
    }

    #[test]
    fn a_step_in_packets_counts_those_left_behind() {
        let config = DualPi2LinuxConfig { step: Step::Packets(5), ..config() };
        let (mut controller, l4s) = controller_at(0, config);
        assert_eq!(controller.judge_low_latency(LATE, &l4s, 6, STORED), Decision::Pass);
        assert_eq!(controller.judge_low_latency(Time::ZERO, &l4s, 7, STORED), BY_STEP);
    }

    #[test]
    fn the_step_ignores_packets_that_arrived_to_a_short_queue() {
        let drop = DropAt::Enqueue;
        let config = DualPi2LinuxConfig { step_min_packets: 2, drop, ..config() };
        let (mut controller, l4s) = controller_at(0, config);
        for found in 0..3 {
            controller.judge_arrival(Side::LowLatency, &l4s, found, STORED);
            // A packet that is dropped, or that waits in the other queue, does not use up an entry
            // of `may_step`.
            controller.judge_arrival(Side::Classic, &l4s, found, STORED);
            controller.probability = u32::MAX;
            let dropped = controller.judge_arrival(Side::LowLatency, &l4s, 3, STORED);
            assert_eq!(dropped, Decision::Drop);
            controller.probability = 0;
        }
        let found: Vec<Decision> =
            (0..3).map(|_| controller.judge_low_latency(LATE, &l4s, 9, STORED)).collect();
        assert_eq!(found, [Decision::Pass, Decision::Pass, BY_STEP]);
        assert!(controller.may_step.is_empty());
    }

    #[test]
    fn the_ecn_mask_selects_the_low_latency_queue() {
        let sides = |ecn| {
            let (controller, _) = controller_at(0, DualPi2LinuxConfig { ecn, ..config() });
            [Ecn::NotEct, Ecn::Ect0, Ecn::Ect1, Ecn::Ce].map(|of| controller.side_of(of))
        };
        let (l, c) = (Side::LowLatency, Side::Classic);
        assert_eq!(sides(LowLatencyEcn::L4s), [c, c, l, l]);
        assert_eq!(sides(LowLatencyEcn::Any), [c, l, l, l]);
    }

    #[test]
    fn memory_is_a_separate_limit() {
        let limit = Limit::packets(3);
        let (controller, _) =
            controller_at(0, DualPi2LinuxConfig { limit, memory_bytes: Some(3_000), ..config() });
        let stored = |packets, bytes| Backlog { packets, bytes };
        assert!(controller.admits(stored(2, 1_500), 1_500));
        assert!(!controller.admits(stored(2, 1_501), 1_500));
        assert!(!controller.admits(stored(3, 100), 100));
    }
}
