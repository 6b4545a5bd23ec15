//! A session's rate in one direction, and the unused part that others may have.

#[derive(Clone, Copy, Debug)]
pub(crate) struct SessionRate {
    /// The rate as granted at first, bit/s.
    pub granted_bit_per_s: u64,
    /// The current rate, bit/s: as granted, or less if it went unused and others needed it.
    pub bit_per_s: u64,
    /// Bytes transferred by the last observation.
    moved: u64,
    /// Highest use in one second, remembered for [`UNUSED_MAX_NS`], bit/s.
    used_bit_per_s: u64,
    used_at_ns: u64,
    /// When at least half of the rate was last used.
    needed_at_ns: u64,
}

/// A rate that went unused for this long is lent to others when they need it.
pub(crate) const UNUSED_MAX_NS: u64 = 15_000_000_000;
/// Divisor of the granted rate: a session keeps at least this fraction of its rate.
pub(crate) const KEPT_SHARE: u64 = 16;

impl SessionRate {
    pub(crate) fn new(now_ns: u64, bit_per_s: u64) -> Self {
        Self {
            granted_bit_per_s: bit_per_s,
            bit_per_s,
            moved: 0,
            used_bit_per_s: 0,
            used_at_ns: now_ns,
            needed_at_ns: now_ns,
        }
    }

    /// Returns the unused part of the rate, which others may have, bit/s.
    pub(crate) fn spare(&self, now_ns: u64) -> u64 {
        if now_ns.saturating_sub(self.needed_at_ns) < UNUSED_MAX_NS {
            return 0;
        }
        let kept = self.used_bit_per_s.saturating_mul(2).max(self.granted_bit_per_s / KEPT_SHARE);
        self.bit_per_s.saturating_sub(kept)
    }

    /// Records the bytes transferred until now; returns true if at least half of the rate was used.
    pub(crate) fn observe(&mut self, now_ns: u64, elapsed_ns: u64, moved: u64) -> bool {
        let bits = u128::from(moved.saturating_sub(self.moved)) * 8_000_000_000;
        let bit_per_s = u64::try_from(bits / u128::from(elapsed_ns.max(1))).unwrap_or(u64::MAX);
        self.moved = moved;
        let is_old = now_ns.saturating_sub(self.used_at_ns) >= UNUSED_MAX_NS;
        if is_old || bit_per_s >= self.used_bit_per_s {
            (self.used_bit_per_s, self.used_at_ns) = (bit_per_s, now_ns);
        }
        // Use of less than half of the rate does not count as need.
        let is_needed = bit_per_s >= self.bit_per_s / 2;
        if is_needed {
            self.needed_at_ns = now_ns;
        }
        is_needed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// A session whose transferred bytes are recorded once a second.
    struct Watch {
        rate: SessionRate,
        now_ns: u64,
        moved: u64,
    }

    impl Watch {
        fn new(bit_per_s: u64) -> Self {
            Self { rate: SessionRate::new(0, bit_per_s), now_ns: 0, moved: 0 }
        }

        fn second(&mut self, bytes: u64) -> bool {
            self.now_ns += SECOND;
            self.moved += bytes;
            self.rate.observe(self.now_ns, SECOND, self.moved)
        }

        fn seconds(&mut self, count: u64, bytes: u64) {
            for _ in 0..count {
                self.second(bytes);
            }
        }

        fn spare(&self) -> u64 {
            self.rate.spare(self.now_ns)
        }
    }

    #[test]
    fn using_half_of_a_rate_reserves_all_of_it_for_fifteen_seconds() {
        let mut watch = Watch::new(1_600);
        assert!(!watch.second(99), "792 bit/s");
        assert!(watch.second(100), "800 bit/s");
        assert!(!watch.second(0));
        assert_eq!(watch.rate.spare(17 * SECOND - 1), 0);
        assert_eq!(watch.rate.spare(17 * SECOND), 0, "twice what was used stays, too");
        watch.seconds(14, 0);
        assert_eq!((watch.now_ns, watch.spare()), (17 * SECOND, 1_500), "a sixteenth stays");
        assert!(watch.second(100));
        assert_eq!(watch.spare(), 0);
    }

    #[test]
    fn an_unused_rate_is_freed_after_fifteen_seconds() {
        let rate = SessionRate::new(SECOND, 1_600);
        assert_eq!(rate.spare(16 * SECOND - 1), 0);
        assert_eq!(rate.spare(16 * SECOND), 1_500);
    }

    #[test]
    fn twice_the_peak_of_fifteen_seconds_stays_reserved() {
        let mut watch = Watch::new(1_600);
        watch.seconds(13, 10);
        watch.second(50);
        watch.second(10);
        assert_eq!(watch.spare(), 1_600 - 2 * 400);
        watch.second(60);
        assert_eq!(watch.spare(), 1_600 - 2 * 480);
        watch.seconds(14, 20);
        assert_eq!(watch.spare(), 1_600 - 2 * 480, "14 s ago");
        watch.second(20);
        assert_eq!(watch.spare(), 1_600 - 2 * 160);
        // An equal use is remembered for the same time again.
        watch.seconds(14, 20);
        watch.seconds(14, 1);
        assert_eq!(watch.spare(), 1_600 - 2 * 160);
        watch.second(1);
        assert_eq!(watch.spare(), 1_500);
    }

    #[test]
    fn a_rate_is_bytes_since_the_last_reading_over_the_time() {
        let mut rate = SessionRate::new(0, 1_600);
        assert!(rate.observe(SECOND / 2, SECOND / 2, 50), "800 bit/s");
        assert!(!rate.observe(2 * SECOND, 3 * SECOND / 2, 50 + 149), "795 bit/s");
        assert!(rate.observe(2 * SECOND, 0, 250), "no time is no fault");
        assert!(rate.observe(3 * SECOND, 1, u64::MAX), "more than a number holds");
        assert!(!rate.observe(4 * SECOND, SECOND, 0), "a count that fell");
    }
}
