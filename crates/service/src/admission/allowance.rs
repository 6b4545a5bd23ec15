//! A rate that many threads share without a lock. Before a thread transfers bytes, it subtracts
//! them from what the rate allows.
//!
//! The generic cell rate algorithm (ITU-T I.371 annex A): the only state is the instant up to which
//! the rate is spent. Time is an argument.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// A rate, and the bytes that it allows now.
#[derive(Debug)]
pub(crate) struct Allowance {
    bytes_per_s: AtomicU64,
    spent_until_ns: AtomicU64,
    has_limited: AtomicBool,
}

/// Bytes of a burst, in addition to [`BURST`].
const BURST_BYTES: u64 = 128 << 10;
/// Length of a burst, as time at the rate.
const BURST: Duration = Duration::from_millis(60);
/// Size of one take, as time at the rate: a few thousand takes per second are enough.
const TAKE: Duration = Duration::from_micros(500);
/// Smallest and largest take: at least a packet, at most what one call transfers.
const TAKE_BYTES: (u64, u64) = (2 << 10, 256 << 10);
/// Interval between attempts at a rate of zero.
const NEVER: Duration = Duration::from_secs(1);
const SECOND_NS: u128 = 1_000_000_000;

impl Allowance {
    pub(crate) fn new(bit_per_s: u64) -> Self {
        Self {
            bytes_per_s: AtomicU64::new(bit_per_s / 8),
            spent_until_ns: AtomicU64::new(0),
            has_limited: AtomicBool::new(false),
        }
    }

    /// Subtracts `bytes` from what the rate allows now. The caller does so before it transfers
    /// them. `bytes` is the length of one packet, or up to [`Allowance::take_bytes`]. If the rate
    /// does not allow all of them now, subtracts nothing and returns how long to wait.
    pub(crate) fn take(&self, now_ns: u64, bytes: u64) -> Result<(), Duration> {
        let rate = self.bytes_per_s.load(Ordering::Relaxed);
        if rate == 0 {
            self.note_limited();
            return Err(NEVER);
        }
        let most_ns = now_ns.saturating_add(burst_ns(rate));
        let cost_ns = cost_ns(rate, bytes);
        let spent = |until_ns: u64| until_ns.max(now_ns).saturating_add(cost_ns);
        let allowed = |until_ns| Some(spent(until_ns)).filter(|after_ns| *after_ns <= most_ns);
        let order = Ordering::Relaxed;
        self.spent_until_ns.fetch_update(order, order, allowed).map(|_| ()).map_err(|until_ns| {
            self.note_limited();
            Duration::from_nanos(spent(until_ns) - most_ns)
        })
    }

    /// Adds back bytes that [`Allowance::take`] subtracted and the caller did not transfer.
    pub(crate) fn give_back(&self, bytes: u64) {
        let rate = self.bytes_per_s.load(Ordering::Relaxed).max(1);
        // Rounded down, because the cost of taking is rounded up.
        let cost_ns = cost_ns(rate, bytes).saturating_sub(1);
        let order = Ordering::Relaxed;
        let less = |until_ns: u64| Some(until_ns.saturating_sub(cost_ns));
        let _ = self.spent_until_ns.fetch_update(order, order, less);
    }

    /// Subtracts bytes that were transferred already. Returns how much earlier they came than the
    /// rate allows; zero if it allowed them.
    pub(crate) fn charge(&self, now_ns: u64, bytes: u64) -> Duration {
        let rate = self.bytes_per_s.load(Ordering::Relaxed).max(1);
        let cost_ns = cost_ns(rate, bytes);
        let spent = |until_ns: u64| until_ns.max(now_ns).saturating_add(cost_ns);
        let order = Ordering::Relaxed;
        let before = self.spent_until_ns.fetch_update(order, order, |it| Some(spent(it)));
        let before_ns = before.unwrap_or(now_ns);
        let ahead_ns = spent(before_ns).saturating_sub(now_ns.saturating_add(burst_ns(rate)));
        if ahead_ns > 0 {
            self.note_limited();
        }
        Duration::from_nanos(ahead_ns)
    }

    /// Changes the rate; the debt stays the same in bytes.
    pub(crate) fn set_bit_per_s(&self, now_ns: u64, bit_per_s: u64) {
        let new = bit_per_s / 8;
        let old = self.bytes_per_s.swap(new, Ordering::Relaxed);
        if old == new {
            return;
        }
        let rescaled = |until_ns: u64| {
            let owed_ns = u128::from(until_ns.saturating_sub(now_ns));
            let owed_ns = owed_ns * u128::from(old) / u128::from(new.max(1));
            Some(now_ns.saturating_add(u64::try_from(owed_ns).unwrap_or(u64::MAX)))
        };
        let order = Ordering::Relaxed;
        let _ = self.spent_until_ns.fetch_update(order, order, rescaled);
    }

    pub(crate) fn bit_per_s(&self) -> u64 {
        self.bytes_per_s.load(Ordering::Relaxed).saturating_mul(8)
    }

    /// Returns how many bytes to request from [`Allowance::take`] at a time.
    pub(crate) fn take_bytes(&self) -> u64 {
        let rate = u128::from(self.bytes_per_s.load(Ordering::Relaxed));
        let bytes = rate * TAKE.as_nanos() / SECOND_NS;
        u64::try_from(bytes).unwrap_or(u64::MAX).clamp(TAKE_BYTES.0, TAKE_BYTES.1)
    }

    /// Returns true if the rate has ever delayed a transfer.
    pub(crate) fn has_limited(&self) -> bool {
        self.has_limited.load(Ordering::Relaxed)
    }

    pub(crate) fn note_limited(&self) {
        self.has_limited.store(true, Ordering::Relaxed);
    }
}

/// Returns the upper limit of the bytes that `takers` threads together transfer within `window` at
/// a constant rate, if each calls [`Allowance::take`] before it transfers. Tests check this limit.
#[cfg(test)]
pub(crate) fn most_bytes(bit_per_s: u64, takers: u64, window: Duration) -> u64 {
    let rate = u128::from(bit_per_s / 8);
    let over = |time: Duration| rate * time.as_nanos() / SECOND_NS;
    let held = u128::from(Allowance::new(bit_per_s).take_bytes()) * u128::from(takers);
    let most = over(window) + over(BURST) + u128::from(BURST_BYTES) + held + 1;
    u64::try_from(most).unwrap_or(u64::MAX)
}

fn cost_ns(bytes_per_s: u64, bytes: u64) -> u64 {
    let ns = (u128::from(bytes) * SECOND_NS).div_ceil(u128::from(bytes_per_s));
    u64::try_from(ns).unwrap_or(u64::MAX)
}

fn burst_ns(bytes_per_s: u64) -> u64 {
    cost_ns(bytes_per_s, BURST_BYTES).saturating_add(BURST.as_nanos() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_burst_passes_and_then_the_rate() {
        let allowance = Allowance::new(8_000_000);
        let takes = |now_ns| (0..10_000).filter(|_| allowance.take(now_ns, 1_000).is_ok()).count();
        // 60 ms of 1 MB per second, and 128 KiB.
        assert_eq!(takes(0), 191);
        assert!(allowance.has_limited());
        let wait = allowance.take(0, 1_000).unwrap_err();
        assert!(wait <= Duration::from_millis(1), "{wait:?}");
        assert!(allowance.take(wait.as_nanos() as u64, 1_000).is_ok());
        assert!((99..=100).contains(&takes(SECOND / 10)));
        allowance.give_back(5_000);
        assert!((4..=5).contains(&takes(SECOND / 10)));
    }

    #[test]
    fn received_bytes_beyond_the_rate_count_as_limited() {
        let allowance = Allowance::new(8_000);
        assert_eq!(allowance.charge(0, BURST_BYTES), Duration::ZERO);
        assert!(!allowance.has_limited());
        let ahead = allowance.charge(0, 1_000);
        assert_eq!(ahead, Duration::from_millis(940));
        assert!(allowance.has_limited() && allowance.take(0, 1).is_err());
    }

    #[test]
    fn without_a_grant_no_byte_is_transferred() {
        let allowance = Allowance::new(0);
        for second in 0..1_000 {
            assert_eq!(allowance.take(second * SECOND, 1), Err(NEVER));
        }
    }

    #[test]
    fn a_rate_that_grows_does_not_stay_in_debt_at_the_old_one() {
        let allowance = Allowance::new(8_000);
        while allowance.take(0, 1_000).is_ok() {}
        allowance.set_bit_per_s(0, 80_000_000);
        let wait = allowance.take(0, 1_000).err().unwrap_or_default();
        assert!(wait < Duration::from_millis(1), "{wait:?}");
        allowance.set_bit_per_s(0, 8_000);
        let free = (0..1_000).filter(|_| allowance.take(0, 1_000).is_ok()).count();
        assert!(free < 132, "{free}");
    }
}
