//! CoDel as in Linux 6.12 (`include/net/codel_impl.h`): its clock, its reciprocal square root and
//! its re-entry, bit for bit.
//!
//! A consequence of the 32-bit clock is retained on purpose: on re-entry, a next drop that is 36 to
//! 73 minutes old seems to be ahead, so the law resumes at the old rate.

use super::law::{Arithmetic, Codel};
use crate::aqm::Store;
use crate::qdisc::Backlog;
use crate::time::{Span, Time};

/// CoDel with the arithmetic of `codel_impl.h` of Linux 6.12.
pub type Linux = Codel<Kernel>;

/// Ticks of 1024 ns in 32 bits. Instants wrap every 73 minutes, so they are compared through their
/// difference. The root is 1 / sqrt(count) as a fraction of 2^16.
#[derive(Clone, Debug)]
pub struct Kernel;

type Ticks = u32;

impl Arithmetic for Kernel {
    type Instant = Ticks;
    type Length = Ticks;
    type Root = u16;

    #[inline]
    fn instant(time: Time) -> Ticks {
        (time.as_nanos() >> 10) as Ticks
    }

    fn length(span: Span) -> Ticks {
        (span.as_nanos() >> 10) as Ticks
    }

    #[inline]
    fn since(now: Ticks, earlier: Ticks) -> Ticks {
        now.wrapping_sub(earlier)
    }

    #[inline]
    fn after(from: Ticks, length: Ticks) -> Ticks {
        from.wrapping_add(length)
    }

    #[inline]
    fn is_shorter(a: Ticks, b: Ticks) -> bool {
        is_before(a, b)
    }

    #[inline]
    fn is_over(now: Ticks, end: Ticks) -> bool {
        is_before(end, now)
    }

    fn is_due(now: Ticks, next: Ticks) -> bool {
        !is_before(now, next)
    }

    /// A step of Newton's method from the reciprocal of the previous count: good where count grew
    /// by one from a large value, and off by 40 % at count 2.
    fn root(last: u16, count: u32) -> u16 {
        if count == 1 {
            return u16::MAX;
        }
        let inverse = u64::from(last) << 16;
        let inverse_squared = (inverse * inverse) >> 32;
        let value = (3_u64 << 32).wrapping_sub(u64::from(count).wrapping_mul(inverse_squared));
        let value = (value >> 2).wrapping_mul(inverse) >> 31;
        (value >> 16) as u16
    }

    fn spacing(interval: Ticks, _count: u32, root: u16) -> Ticks {
        ((u64::from(interval) * u64::from(root)) >> 16) as Ticks
    }

    fn sixteen_times(interval: Ticks) -> Ticks {
        interval.wrapping_mul(16)
    }

    #[inline]
    fn guarded<P>(store: &impl Store<P>) -> Backlog {
        store.total_backlog()
    }

    fn gauge_ns(sojourn: Ticks) -> Option<f64> {
        Some(f64::from(sojourn) * 1_024.0)
    }
}

/// Whether `a` is earlier (or shorter) than `b`, for instants less than 36 minutes apart.
const fn is_before(a: Ticks, b: Ticks) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::codel::CodelConfig;
    use alloc::vec::Vec;

    #[test]
    fn reciprocal_and_spacing_follow_the_kernel() {
        let mut codel = Linux::new(CodelConfig::default());
        codel.enter(0);
        let mut reciprocals = Vec::new();
        let mut spacings_us = Vec::new();
        for _ in 0..8 {
            reciprocals.push(codel.root);
            spacings_us.push((u64::from(codel.control_law(0)) * 1_024 + 500) / 1_000);
            codel.set_count(codel.count + 1);
        }
        assert_eq!(reciprocals, [65535, 32769, 36864, 31968, 28935, 26481, 24588, 23037]);
        // Measured from the kernel's code: 99.998, 50.001, 56.249, 48.778, 44.151, 40.406, ... ms.
        assert_eq!(spacings_us, [99_998, 50_001, 56_249, 48_778, 44_151, 40_406, 37_517, 35_151]);
    }

    #[test]
    fn default_target_and_interval_in_ticks() {
        let CodelConfig { target, interval, .. } = CodelConfig::default();
        assert_eq!([target, interval].map(Kernel::length), [4_882, 97_656]);
    }

    #[test]
    fn re_entry_restarts_the_drop_rate_except_after_half_a_clock_wrap() {
        let resumed = |idle: Span| {
            let mut codel = Linux::new(CodelConfig::default());
            (codel.count, codel.last_count) = (40, 1);
            codel.enter(Kernel::length(idle));
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
