//! COBALT: CoDel and BLUE together, one of each per flow.
//!
//! CoDel controls flows that respond to signals. BLUE randomly drops packets of a flow that fills
//! the memory nevertheless: with a probability that rises with every overflow and falls whenever
//! the flow's queue becomes empty. This CoDel does not store since when the delay is above target:
//! `drop_next` is both the end of the first interval and the schedule of signals. When the delay is
//! below target again, the count decreases along the same schedule instead of being reset.
//!
//! Two properties of Linux are retained on purpose:
//! * a queue that has never signalled has a reciprocal of zero, so its first signal comes with the
//!   second packet above target and not an interval later;
//! * spacings are computed from 32 bits of nanoseconds, so an interval counts modulo 4.29 s.

use crate::rng::Rng;
use crate::time::{Span, Time};

/// COBALT's parameters, equal for all flows of a tin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Law {
    /// The acceptable standing delay, and the time between two steps of BLUE.
    pub target: Span,
    /// From the first delay above target to the first signal.
    pub interval: Span,
    /// The transmission time of the largest packet.
    pub mtu_time: Span,
}

impl Law {
    /// Whether a packet waited too long. Each of `turns` flows may have two packets before it, and
    /// a lone flow four.
    fn is_exceeded(&self, sojourn: Span, turns: u32) -> bool {
        sojourn > self.target
            && sojourn > self.mtu_time * u64::from(turns) * 2
            && sojourn > self.mtu_time * 4
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Cobalt {
    /// When the next signal is due; while none is due, the time until which the flow is remembered.
    drop_next: Time,
    /// When BLUE may move again; at first at once, as in a kernel that started long ago.
    blue_next: Time,
    /// Signals since the delay was below target; the spacing is the interval over its square root.
    count: u32,
    /// 1 / sqrt(count) as a fraction of 2^32.
    reciprocal_sqrt_q32: u32,
    /// BLUE's drop probability, as a fraction of 2^32.
    blue_q32: u32,
    dropping: bool,
}

/// The verdict on a packet that is about to leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Judgement {
    /// Drop the packet, unless it is the last of its flow.
    pub drop: bool,
    /// Mark the packet, unless it is dropped.
    pub mark: bool,
}

/// The change that a step of BLUE made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Blue {
    /// The probability rose from zero.
    Woke,
    Slept,
    Same,
}

/// BLUE's steps, 1/256 up and 1/4096 down.
const BLUE_UP_Q32: u32 = 1 << 24;
const BLUE_DOWN_Q32: u32 = 1 << 20;

impl Cobalt {
    /// Called when a packet of the flow was dropped because of the memory limit.
    #[cold]
    pub fn on_overflow(&mut self, now: Time, law: &Law) -> Blue {
        let mut blue = Blue::Same;
        if now >= self.blue_next {
            if self.blue_q32 == 0 {
                blue = Blue::Woke;
            }
            self.blue_q32 = self.blue_q32.saturating_add(BLUE_UP_Q32);
            self.blue_next = now + law.target + Span::from_nanos(1);
        }
        self.dropping = true;
        self.drop_next = now;
        self.count = self.count.max(1);
        blue
    }

    /// Called when the flow's turn came and it had no packet.
    pub fn on_empty(&mut self, now: Time, law: &Law) -> Blue {
        let mut blue = Blue::Same;
        if self.blue_q32 > 0 && now >= self.blue_next {
            self.blue_q32 = self.blue_q32.saturating_sub(BLUE_DOWN_Q32);
            self.blue_next = now + law.target + Span::from_nanos(1);
            if self.blue_q32 == 0 {
                blue = Blue::Slept;
            }
        }
        self.dropping = false;
        if self.is_due(now) {
            self.step_down(law);
        }
        blue
    }

    /// Judges a packet that waited for `sojourn`; `is_capable` if it is ECN-capable. While BLUE
    /// sleeps, no random number is drawn.
    #[inline]
    pub fn judge(
        &mut self,
        now: Time,
        sojourn: Span,
        is_capable: bool,
        turns: u32,
        law: &Law,
        rng: &mut Rng,
    ) -> Judgement {
        let due = self.is_due(now);
        let mut is_late = now > self.drop_next;
        self.dropping = if law.is_exceeded(sojourn, turns) {
            self.enter(now, law);
            true
        } else {
            false
        };
        let signal = due && self.dropping;
        if signal {
            self.set_count(self.count.saturating_add(1));
            self.drop_next = self.after(self.drop_next, law);
            is_late = now > self.drop_next;
        } else if due {
            is_late = self.settle(now, law);
        }
        let blue = self.blue_q32 > 0 && rng.next_u32() < self.blue_q32;
        let drop = blue || (signal && !is_capable);
        if self.count == 0 {
            self.drop_next = now + law.interval;
        } else if is_late && !drop {
            self.drop_next = now;
        }
        Judgement { drop, mark: signal && is_capable }
    }

    /// Whether no state of the flow is left to remember.
    pub fn is_at_rest(&self, now: Time) -> bool {
        self.blue_q32 == 0 && self.count == 0 && now >= self.drop_next
    }

    /// Enters the signalling state, unless it is active already.
    fn enter(&mut self, now: Time, law: &Law) {
        if !self.dropping {
            self.drop_next = self.after(now, law);
        }
        self.count = self.count.max(1);
    }

    fn is_due(&self, now: Time) -> bool {
        self.count > 0 && now >= self.drop_next
    }

    /// Decreases the count by every step that was due. Returns whether the next step is before
    /// `now`.
    fn settle(&mut self, now: Time, law: &Law) -> bool {
        while self.is_due(now) {
            self.step_down(law);
        }
        now > self.drop_next
    }

    fn step_down(&mut self, law: &Law) {
        self.set_count(self.count - 1);
        self.drop_next = self.after(self.drop_next, law);
    }

    /// Returns the next time of the schedule after `from`.
    fn after(&self, from: Time, law: &Law) -> Time {
        let interval = law.interval.as_nanos() & u64::from(u32::MAX);
        from + Span::from_nanos((interval * u64::from(self.reciprocal_sqrt_q32)) >> 32)
    }

    /// Sets the count and the reciprocal of its square root. The reciprocal is exact for small
    /// counts; from 16 on, one step of Newton's method from the previous reciprocal is accurate
    /// enough.
    fn set_count(&mut self, count: u32) {
        self.count = count;
        if let Some(exact) = RECIPROCAL_SQRT_Q32.get(count as usize) {
            self.reciprocal_sqrt_q32 = *exact;
            return;
        }
        let old = u64::from(self.reciprocal_sqrt_q32);
        let squared = (old * old) >> 32;
        let rest = (3_u64 << 32).wrapping_sub(u64::from(count).wrapping_mul(squared));
        self.reciprocal_sqrt_q32 = ((rest >> 2).wrapping_mul(old) >> 31) as u32;
    }
}

/// 1 / sqrt(n) as a fraction of 2^32, for n from 0 (which counts as 1) to 15. Linux's values; those
/// for 4, 10 and 15 are off by one.
const RECIPROCAL_SQRT_Q32: [u32; 16] = [
    4_294_967_295, 4_294_967_295, 3_037_000_500, 2_479_700_525, 2_147_483_647, 1_920_767_767,
    1_753_413_056, 1_623_345_051, 1_518_500_250, 1_431_655_765, 1_358_187_914, 1_294_981_364,
    1_239_850_263, 1_191_209_601, 1_147_878_294, 1_108_955_788,
];

#[cfg(test)]
mod tests {
    use super::*;

    const LAW: Law = Law {
        target: Span::from_millis(5),
        interval: Span::from_millis(100),
        mtu_time: Span::from_micros(500),
    };

    fn at(millis: u64) -> Time {
        Time::from_millis(millis)
    }

    /// A flow that has signalled and was forgotten: its first interval is a full one.
    fn seasoned() -> Cobalt {
        let mut cobalt = Cobalt::default();
        cobalt.set_count(0);
        cobalt
    }

    fn judge(cobalt: &mut Cobalt, now: Time, sojourn: Span, is_capable: bool) -> Judgement {
        cobalt.judge(now, sojourn, is_capable, 0, &LAW, &mut Rng::new(0))
    }

    const LATE: Span = Span::from_millis(6);
    const NOTHING: Judgement = Judgement { drop: false, mark: false };

    #[test]
    fn the_threshold_is_the_largest_of_target_flow_turns_and_four_packets() {
        let exceeded = |micros, turns| LAW.is_exceeded(Span::from_micros(micros), turns);
        assert!(!exceeded(5_000, 0) && exceeded(5_001, 0));
        assert!(exceeded(6_001, 6) && !exceeded(6_000, 6));
        let slow = Law { mtu_time: Span::from_millis(2), ..LAW };
        assert!(!slow.is_exceeded(Span::from_millis(8), 0));
        assert!(slow.is_exceeded(Span::from_micros(8_001), 0));
    }

    /// The kernel compares with a time long ago; here nothing happened before time zero.
    #[test]
    fn the_first_overflow_wakes_blue_and_the_next_waits_for_the_target() {
        let mut cobalt = Cobalt::default();
        assert_eq!(cobalt.on_overflow(at(0), &LAW), Blue::Woke);
        cobalt.on_overflow(at(5), &LAW);
        assert_eq!(cobalt.blue_q32, BLUE_UP_Q32);
        cobalt.on_overflow(at(5) + Span::from_nanos(1), &LAW);
        assert_eq!(cobalt.blue_q32, 2 * BLUE_UP_Q32);
    }

    #[test]
    fn a_delay_above_target_signals_after_an_interval_and_then_faster() {
        let mut cobalt = seasoned();
        let signals: alloc::vec::Vec<u64> =
            (0..400).filter(|ms| judge(&mut cobalt, at(*ms), LATE, false).drop).collect();
        // Signals at 100 ms and then 100 / sqrt(2), 100 / sqrt(3), ... later, each rounded up to a
        // whole millisecond.
        assert_eq!(signals, [100, 171, 229, 279, 324, 364]);
    }

    #[test]
    fn a_new_flow_signals_with_its_second_late_packet() {
        let mut cobalt = Cobalt::default();
        assert_eq!(judge(&mut cobalt, at(1_000), LATE, false), NOTHING);
        assert!(judge(&mut cobalt, at(1_001), LATE, false).drop);
    }

    #[test]
    fn an_ecn_capable_packet_is_marked_instead() {
        let mut cobalt = Cobalt::default();
        judge(&mut cobalt, at(1_000), LATE, true);
        let judgement = judge(&mut cobalt, at(1_001), LATE, true);
        assert_eq!(judgement, Judgement { drop: false, mark: true });
    }

    #[test]
    fn the_count_falls_in_the_same_steps_as_it_rises() {
        let mut cobalt = seasoned();
        (0..400).for_each(|ms| {
            judge(&mut cobalt, at(ms), LATE, false);
        });
        // The next signal was due at 401 ms.
        assert_eq!(cobalt.count, 7);
        assert_eq!(judge(&mut cobalt, at(400), Span::ZERO, false), NOTHING);
        assert_eq!((cobalt.count, cobalt.dropping), (7, false));
        judge(&mut cobalt, at(410), Span::ZERO, false);
        assert_eq!(cobalt.count, 6);
        // The count falls to zero after 41, 45, 50, 58, 71 and 100 ms.
        judge(&mut cobalt, at(800), Span::ZERO, false);
        assert_eq!((cobalt.count, cobalt.drop_next), (0, at(900)));
        assert!(!cobalt.is_at_rest(at(899)) && cobalt.is_at_rest(at(900)));
    }

    #[test]
    fn an_empty_queue_lowers_the_count_by_one_step_at_a_time() {
        let mut cobalt = seasoned();
        (0..400).for_each(|ms| {
            judge(&mut cobalt, at(ms), LATE, false);
        });
        for count in (0..7).rev() {
            assert_eq!(cobalt.on_empty(at(5_000), &LAW), Blue::Same);
            assert_eq!(cobalt.count, count);
        }
        cobalt.on_empty(at(5_000), &LAW);
        assert!(cobalt.count == 0 && cobalt.is_at_rest(at(5_000)));
    }

    #[test]
    fn blue_rises_on_overflow_and_falls_when_idle_once_per_target() {
        let mut cobalt = Cobalt::default();
        assert_eq!(cobalt.on_overflow(at(10), &LAW), Blue::Woke);
        assert_eq!(cobalt.on_overflow(at(15), &LAW), Blue::Same);
        assert_eq!(cobalt.blue_q32, BLUE_UP_Q32);
        assert_eq!(cobalt.on_overflow(at(16), &LAW), Blue::Same);
        assert_eq!(cobalt.blue_q32, 2 * BLUE_UP_Q32);
        assert_eq!((cobalt.count, cobalt.drop_next, cobalt.dropping), (1, at(16), true));
        let mut steps = 0;
        while cobalt.on_empty(at(22 + 6 * steps), &LAW) != Blue::Slept {
            // BLUE makes no second step within a target.
            let before = cobalt.blue_q32;
            cobalt.on_empty(at(24 + 6 * steps), &LAW);
            assert_eq!(cobalt.blue_q32, before);
            steps += 1;
        }
        assert_eq!((steps, cobalt.blue_q32), (31, 0));
    }

    #[test]
    fn blue_never_wraps() {
        let mut cobalt = Cobalt { blue_q32: u32::MAX - 1, ..Cobalt::default() };
        cobalt.on_overflow(at(10), &LAW);
        assert_eq!(cobalt.blue_q32, u32::MAX);
        cobalt.blue_q32 = 1;
        assert_eq!(cobalt.on_empty(at(20), &LAW), Blue::Slept);
    }

    #[test]
    fn blue_drops_by_its_probability_with_and_without_ecn() {
        let mut cobalt = Cobalt { blue_q32: 1 << 30, ..Cobalt::default() };
        let mut rng = Rng::new(1);
        let mut judge = |ms| cobalt.judge(at(ms), Span::ZERO, true, 0, &LAW, &mut rng);
        let dropped = (0..4_000).filter(|ms| judge(*ms).drop).count();
        // A quarter of the draws; three standard deviations are 82.
        assert!((918..=1_082).contains(&dropped), "{dropped}");
    }

    #[test]
    fn the_reciprocal_is_close_on_its_way_up_and_down() {
        let mut cobalt = seasoned();
        let counts = (1..3_000_u32).chain((1..3_000).rev());
        for count in counts {
            cobalt.set_count(count);
            let square = u128::from(cobalt.reciprocal_sqrt_q32).pow(2) * u128::from(count);
            let error = square.abs_diff(1 << 64);
            // Half of that error in the root. The steps down to 16 are the least accurate.
            assert!(error < (1 << 64) / 100, "{count}: {}", cobalt.reciprocal_sqrt_q32);
        }
    }

    #[test]
    fn an_interval_beyond_32_bits_of_nanoseconds_is_cut_as_in_linux() {
        let slow = Law { interval: Span::from_nanos((1 << 32) + 7_000), ..LAW };
        assert_eq!(seasoned().after(at(1), &slow), at(1) + Span::from_nanos(6_999));
    }

    #[test]
    fn the_count_saturates_at_its_maximum() {
        let mut cobalt = Cobalt { count: u32::MAX, dropping: true, ..Cobalt::default() };
        assert!(judge(&mut cobalt, at(1), LATE, false).drop);
        assert_eq!(cobalt.count, u32::MAX);
    }
}
