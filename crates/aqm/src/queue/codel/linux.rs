//! CoDel as in Linux 6.12 (`include/net/codel_impl.h`): its clock, its reciprocal square root and
//! its re-entry, bit for bit.
//!
//! A consequence of the 32-bit clock is retained on purpose: on re-entry, a next drop that is 36 to
//! 73 minutes old seems to be ahead, so the law resumes at the old rate.

use super::CodelConfig;
use crate::aqm::{Aqm, Marking, Store, mark_if_capable, signal};
use crate::packet::Packet;
use crate::qdisc::MarkReason;
use crate::time::{Span, Time};

/// 1024 ns. Instants wrap every 73 minutes, so they are compared through their difference.
type Ticks = u32;

/// CoDel, profile `linux`; small, because a fair queue has one per flow.
#[derive(Clone, Debug)]
pub struct Linux {
    target: Ticks,
    interval: Ticks,
    guard_bytes: u32,
    ce_threshold: Option<Ticks>,
    /// When the sojourn will have been above target for an interval; 0 while it is below.
    first_above: Ticks,
    drop_next: Ticks,
    /// The sojourn of the last packet that was examined.
    sojourn: Ticks,
    count: u32,
    last_count: u32,
    /// 1 / sqrt(count) as a fraction of 2^16.
    reciprocal_sqrt_q16: u16,
    dropping: bool,
    ecn: bool,
}

impl Linux {
    /// Returns CoDel in its initial state.
    pub const fn new(config: CodelConfig) -> Self {
        Self {
            target: ticks_in(config.target),
            interval: ticks_in(config.interval),
            guard_bytes: config.guard_bytes,
            ce_threshold: None,
            first_above: 0,
            drop_next: 0,
            sojourn: 0,
            count: 0,
            last_count: 0,
            reciprocal_sqrt_q16: 0,
            dropping: false,
            ecn: config.ecn,
        }
    }

    /// Also marks every ECN-capable packet that waited longer than `threshold`, apart from the
    /// control law and even if ECN is off for it.
    #[must_use]
    pub fn with_ce_threshold(mut self, threshold: Option<Span>) -> Self {
        self.ce_threshold = threshold.map(ticks_in);
        self
    }

    /// `codel_should_drop` for a packet that leaves `left_bytes` behind it.
    #[inline]
    fn may_signal(&mut self, now: Ticks, arrived: Time, left_bytes: u64) -> bool {
        self.sojourn = now.wrapping_sub(ticks_at(arrived));
        if is_before(self.sojourn, self.target) || left_bytes <= u64::from(self.guard_bytes) {
            self.first_above = 0;
            return false;
        }
        if self.first_above == 0 {
            self.first_above = now.wrapping_add(self.interval);
            return false;
        }
        is_before(self.first_above, now)
    }

    /// Takes the next packet; returns also whether it may be signalled.
    fn take<P>(&mut self, now: Ticks, store: &mut impl Store<P>) -> Option<(Packet<P>, bool)> {
        let Some(packet) = store.pop() else {
            self.first_above = 0;
            return None;
        };
        let may_signal = self.may_signal(now, packet.meta.arrived, store.total_backlog().bytes);
        Some((packet, may_signal))
    }

    /// A step of Newton's method from the reciprocal of the previous count: good where count grew
    /// by one from a large value, and off by 40 % at count 2.
    fn newton_step(&mut self) {
        let inverse = u64::from(self.reciprocal_sqrt_q16) << 16;
        let inverse_squared = (inverse * inverse) >> 32;
        let value = (3_u64 << 32).wrapping_sub(u64::from(self.count).wrapping_mul(inverse_squared));
        let value = (value >> 2).wrapping_mul(inverse) >> 31;
        self.reciprocal_sqrt_q16 = (value >> 16) as u16;
    }

    fn control_law(&self, from: Ticks) -> Ticks {
        let spacing = (u64::from(self.interval) * u64::from(self.reciprocal_sqrt_q16)) >> 16;
        from.wrapping_add(spacing as Ticks)
    }

    /// Finishes a dequeue that may signal. Returns the packet to transmit.
    #[cold]
    fn act<P>(
        &mut self,
        now: Time,
        head: Packet<P>,
        may_signal: bool,
        store: &mut impl Store<P>,
    ) -> Option<Packet<P>> {
        let mut packet = if may_signal {
            self.apply_law(now, head, store)?
        } else {
            self.dropping = false;
            head
        };
        if self.ce_threshold.is_some_and(|threshold| is_before(threshold, self.sojourn))
            && mark_if_capable(&mut packet.meta) == Marking::Marked
        {
            store.marked(&packet, MarkReason::Threshold);
        }
        Some(packet)
    }

    /// Applies the law to a `head` that it may signal. Returns the packet to transmit.
    fn apply_law<P>(
        &mut self,
        now: Time,
        head: Packet<P>,
        store: &mut impl Store<P>,
    ) -> Option<Packet<P>> {
        if self.dropping {
            return self.catch_up(now, head, store);
        }
        let next = match signal(self.ecn, head, store) {
            Some(marked) => Some(marked),
            None => self.take(ticks_at(now), store).map(|(next, _)| next),
        };
        self.enter(ticks_at(now));
        next
    }

    /// The loop of the dropping state: several drops may be due at once, but only one mark.
    fn catch_up<P>(
        &mut self,
        time: Time,
        mut head: Packet<P>,
        store: &mut impl Store<P>,
    ) -> Option<Packet<P>> {
        let now = ticks_at(time);
        while self.dropping && !is_before(now, self.drop_next) {
            self.count = self.count.wrapping_add(1);
            self.newton_step();
            if let Some(marked) = signal(self.ecn, head, store) {
                self.drop_next = self.control_law(self.drop_next);
                return Some(marked);
            }
            let next = self.take(now, store);
            if let Some((_, true)) = next {
                self.drop_next = self.control_law(self.drop_next);
            } else {
                self.dropping = false;
            }
            head = next?.0;
        }
        Some(head)
    }

    fn enter(&mut self, now: Ticks) {
        self.dropping = true;
        let delta = self.count.wrapping_sub(self.last_count);
        let since_last = now.wrapping_sub(self.drop_next);
        if delta > 1 && is_before(since_last, self.interval.wrapping_mul(16)) {
            self.count = delta;
            self.newton_step();
        } else {
            self.count = 1;
            self.reciprocal_sqrt_q16 = u16::MAX;
        }
        self.last_count = self.count;
        self.drop_next = self.control_law(now);
    }
}

impl Aqm for Linux {
    #[inline]
    fn dequeue<P>(&mut self, now: Time, store: &mut impl Store<P>) -> Option<Packet<P>> {
        let Some(head) = store.head() else {
            self.first_above = 0;
            self.dropping = false;
            return None;
        };
        let left_bytes = store.total_backlog().bytes - u64::from(head.len);
        let may_signal = self.may_signal(ticks_at(now), head.arrived, left_bytes);
        if may_signal || self.ce_threshold.is_some() {
            let head = store.pop()?;
            return self.act(now, head, may_signal, store);
        }
        self.dropping = false;
        store.pop()
    }

    /// Packets that an overflow drops count as signals, too, so that the law signals more often.
    fn on_overlimit(&mut self, _now: Time, packets: u32) {
        self.count = self.count.wrapping_add(packets);
    }

    fn gauges(&self, visit: &mut dyn FnMut(&'static str, f64)) {
        visit("codel.count", f64::from(self.count));
        visit("codel.dropping", f64::from(u8::from(self.dropping)));
        visit("codel.sojourn_ns", f64::from(self.sojourn) * 1_024.0);
    }
}

const fn ticks_in(span: Span) -> Ticks {
    (span.as_nanos() >> 10) as Ticks
}

const fn ticks_at(time: Time) -> Ticks {
    (time.as_nanos() >> 10) as Ticks
}

/// Whether `a` is earlier (or shorter) than `b`, for instants less than 36 minutes apart.
const fn is_before(a: Ticks, b: Ticks) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn reciprocal_and_spacing_follow_the_kernel() {
        let mut codel = Linux::new(CodelConfig::default());
        codel.enter(0);
        let mut reciprocals = Vec::new();
        let mut spacings_us = Vec::new();
        for _ in 0..8 {
            reciprocals.push(codel.reciprocal_sqrt_q16);
            spacings_us.push((u64::from(codel.control_law(0)) * 1_024 + 500) / 1_000);
            codel.count += 1;
            codel.newton_step();
        }
        assert_eq!(reciprocals, [65535, 32769, 36864, 31968, 28935, 26481, 24588, 23037]);
        // Measured from the kernel's code: 99.998, 50.001, 56.249, 48.778, 44.151, 40.406, ... ms.
        assert_eq!(spacings_us, [99_998, 50_001, 56_249, 48_778, 44_151, 40_406, 37_517, 35_151]);
    }

    #[test]
    fn default_target_and_interval_in_ticks() {
        let codel = Linux::new(CodelConfig::default());
        assert_eq!((codel.target, codel.interval), (4_882, 97_656));
    }

    #[test]
    fn re_entry_forgets_the_old_rate_except_on_the_far_side_of_the_clock() {
        let resumed = |idle: Span| {
            let mut codel = Linux::new(CodelConfig::default());
            (codel.count, codel.last_count) = (40, 1);
            codel.enter(ticks_in(idle));
            codel.count > 1
        };
        assert!(resumed(Span::from_millis(1_500)) && !resumed(Span::from_millis(1_700)));
        assert!(!resumed(Span::from_secs(36 * 60)) && resumed(Span::from_secs(37 * 60)));
    }

    #[test]
    fn comparisons_survive_the_wrap_of_the_tick() {
        assert!(is_before(u32::MAX, 0) && !is_before(0, u32::MAX));
        assert!(is_before(u32::MAX - 5, 10) && !is_before(7, 7));
    }
}
