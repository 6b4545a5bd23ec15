//! A session's rate in one direction, and how much of it goes unused, so that others may have it.

/// A rate that is held, and what became of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    /// The rate as granted at first, bit/s.
    pub granted_bit_per_s: u64,
    /// The rate now: as granted, or less if it went unused and others needed it, bit/s.
    pub bit_per_s: u64,
    /// Moved when last looked at, bytes.
    moved: u64,
    /// The most that was used in a second, which is remembered for [`UNUSED_MAX_NS`], bit/s.
    used_bit_per_s: u64,
    used_at_ns: u64,
    /// When at least half of the rate was used last, ns.
    needed_at_ns: u64,
}

/// A rate that went unused for so long is given to others when they need it.
pub(crate) const UNUSED_MAX_NS: u64 = 15_000_000_000;
/// Of a rate that goes to others this part stays.
pub(crate) const KEPT_SHARE: u64 = 16;

impl Held {
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

    /// The part of a session's rate that others may have, because it goes unused, bit/s.
    pub(crate) fn spare(&self, now_ns: u64) -> u64 {
        if now_ns.saturating_sub(self.needed_at_ns) < UNUSED_MAX_NS {
            return 0;
        }
        let kept = self.used_bit_per_s.saturating_mul(2).max(self.granted_bit_per_s / KEPT_SHARE);
        self.bit_per_s.saturating_sub(kept)
    }

    /// Notes what was moved until now, and whether that is half of what is held.
    pub(crate) fn look(&mut self, now_ns: u64, elapsed_ns: u64, moved: u64) -> bool {
        let bits = u128::from(moved.saturating_sub(self.moved)) * 8_000_000_000;
        let bit_per_s = u64::try_from(bits / u128::from(elapsed_ns.max(1))).unwrap_or(u64::MAX);
        self.moved = moved;
        let is_old = now_ns.saturating_sub(self.used_at_ns) >= UNUSED_MAX_NS;
        if is_old || bit_per_s >= self.used_bit_per_s {
            (self.used_bit_per_s, self.used_at_ns) = (bit_per_s, now_ns);
        }
        // Less than half of it is as good as unused: the clock of what is needed runs on.
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

    /// Looks every second at what was moved in it; whether that was half of the rate.
    struct Watch {
        held: Held,
        now_ns: u64,
        moved: u64,
    }

    impl Watch {
        fn new(bit_per_s: u64) -> Self {
            Self { held: Held::new(0, bit_per_s), now_ns: 0, moved: 0 }
        }

        fn second(&mut self, bytes: u64) -> bool {
            self.now_ns += SECOND;
            self.moved += bytes;
            self.held.look(self.now_ns, SECOND, self.moved)
        }

        fn seconds(&mut self, count: u64, bytes: u64) {
            for _ in 0..count {
                self.second(bytes);
            }
        }

        fn spare(&self) -> u64 {
            self.held.spare(self.now_ns)
        }
    }

    #[test]
    fn half_of_a_rate_keeps_the_whole_for_fifteen_seconds() {
        let mut watch = Watch::new(1_600);
        assert!(!watch.second(99), "792 bit/s");
        assert!(watch.second(100), "800 bit/s");
        assert!(!watch.second(0));
        assert_eq!(watch.held.spare(17 * SECOND - 1), 0);
        assert_eq!(watch.held.spare(17 * SECOND), 0, "twice what was used stays, too");
        watch.seconds(14, 0);
        assert_eq!((watch.now_ns, watch.spare()), (17 * SECOND, 1_500), "a sixteenth stays");
        assert!(watch.second(100));
        assert_eq!(watch.spare(), 0);
    }

    #[test]
    fn what_was_never_used_is_free_after_fifteen_seconds() {
        let held = Held::new(SECOND, 1_600);
        assert_eq!(held.spare(16 * SECOND - 1), 0);
        assert_eq!(held.spare(16 * SECOND), 1_500);
    }

    #[test]
    fn twice_the_most_of_the_last_fifteen_seconds_stays() {
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
        // The same again is remembered as long again.
        watch.seconds(14, 20);
        watch.seconds(14, 1);
        assert_eq!(watch.spare(), 1_600 - 2 * 160);
        watch.second(1);
        assert_eq!(watch.spare(), 1_500);
    }

    #[test]
    fn a_rate_is_what_was_moved_since_the_last_look_in_the_time_between() {
        let mut held = Held::new(0, 1_600);
        assert!(held.look(SECOND / 2, SECOND / 2, 50), "800 bit/s");
        assert!(!held.look(2 * SECOND, 3 * SECOND / 2, 50 + 149), "795 bit/s");
        assert!(held.look(2 * SECOND, 0, 250), "no time is no fault");
        assert!(held.look(3 * SECOND, 1, u64::MAX), "more than a number holds");
        assert!(!held.look(4 * SECOND, SECOND, 0), "a count that fell");
    }
}
