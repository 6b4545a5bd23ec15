//! DualPI2 as Linux has it; see the [module](super).

use crate::packet::{Ecn, Meta};
use crate::qdisc::{Backlog, MarkReason};
use crate::queue::store::Limit;
use crate::rng::Rng;
use crate::time::{Span, Time};

use super::{Controller, Decision};

/// Parameters of [`DualPi2Linux`], in the units of `sch_dualpi2.c`.
#[derive(Clone, Debug)]
pub struct DualPi2LinuxConfig {
    /// Delay to hold in the classic queue.
    pub target: Span,
    /// Time between updates of the base probability; not zero.
    pub update_interval: Span,
    /// Weight of the delay's distance from its target, in 1/256 Hz.
    pub alpha_256ths: u32,
    /// Weight of the delay's change, in 1/256 Hz.
    pub beta_256ths: u32,
    /// Coupling factor `k`, a whole number.
    pub coupling: u8,
    /// Packets of the low latency queue that waited longer are marked.
    pub step: Span,
    /// Both queues together hold at most this much.
    pub limit: Limit,
    /// Nothing is signalled while less than two of these are stored.
    pub mtu_bytes: u32,
}

/// The controller.
#[derive(Clone, Debug)]
pub struct DualPi2Linux {
    config: DualPi2LinuxConfig,
    alpha: u32,
    beta: u32,
    /// As a fraction of `u32::MAX`.
    probability: u32,
    old_delay: Span,
    rng: Rng,
}

impl DualPi2Linux {
    /// An idle controller that draws from `rng`.
    pub fn new(config: DualPi2LinuxConfig, rng: Rng) -> Self {
        Self {
            alpha: scaled_gain(config.alpha_256ths),
            beta: scaled_gain(config.beta_256ths),
            probability: 0,
            old_delay: Span::ZERO,
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

    /// The coupled AQM on a packet of the low latency queue (`dualpi2_scalable_marking`).
    fn judge_coupled(&mut self) -> Decision {
        let coupled = self.coupled();
        if coupled > u64::from(u32::MAX) {
            let p = self.probability;
            return if self.roll(p) && self.roll(p) { Decision::Drop } else { MARK };
        }
        if self.roll(coupled as u32) { MARK } else { Decision::Pass }
    }
}

const MARK: Decision = Decision::Mark(MarkReason::ControlLaw);

/// A gain of 1/256 Hz as a step of probability per 64 ns of delay (`dualpi2_scale_alpha_beta`).
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
        self.old_delay = delay;
        let at_most = self.probability == u32::MAX && before.0 == u32::MAX;
        before == (self.probability, delay)
            || at_most && delay >= self.config.target && delay >= before.1
    }

    fn judge_low_latency(
        &mut self,
        now: Time,
        meta: &Meta,
        _queued: u32,
        stored: Backlog,
    ) -> Decision {
        let coupled = if self.is_short(stored) { Decision::Pass } else { self.judge_coupled() };
        if coupled == Decision::Pass && now.since(meta.arrived) > self.config.step {
            return Decision::Mark(MarkReason::Threshold);
        }
        coupled
    }

    fn judge_classic(&mut self, meta: &Meta, stored: Backlog) -> Decision {
        let p = self.probability;
        if self.is_short(stored) || !(self.roll(p) && self.roll(p)) {
            return Decision::Pass;
        }
        let overload = self.coupled() > u64::from(u32::MAX);
        let drops = overload || meta.ecn == Ecn::NotEct;
        if drops { Decision::Drop } else { MARK }
    }

    fn admits(&self, stored: Backlog, len: u32) -> bool {
        self.config.limit.admits(stored, len)
    }

    fn probability(&self) -> f64 {
        f64::from(self.probability) / f64::from(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> DualPi2LinuxConfig {
        DualPi2LinuxConfig {
            target: Span::from_millis(15),
            update_interval: Span::from_millis(16),
            alpha_256ths: 41,
            beta_256ths: 819,
            coupling: 2,
            step: Span::from_millis(1),
            limit: Limit::packets(10_000),
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
        // (-15e6 * 44 - 20e6 * 879) / 64 = -285,000,000, and no lower than zero.
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
    fn nothing_is_signalled_below_two_packets_but_the_step() {
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

    #[test]
    fn classic_packets_are_signalled_with_the_square() {
        let mut controller = DualPi2Linux::new(config(), Rng::new(7));
        controller.probability = u32::MAX / 10;
        let meta = Meta { ecn: Ecn::Ect0, ..Meta::new(1_500, 0) };
        let marks = (0..1_000_000).filter(|_| controller.judge_classic(&meta, STORED) == MARK);
        let share = marks.count() as f64 / 1e6;
        assert!((share - 0.01).abs() < 0.000_4, "marked {share}");
    }
}
