//! Detects when the load is steady.
//!
//! The paper starts its latency test "as the TCP ramp-up reaches its peak steady state" and does
//! not define that. The rule here: delivered payload is counted in windows of 500 ms. The load is
//! steady at the end of the third consecutive window that is within 10 % of the mean of the three
//! and not empty. The first window, in which flows open, never counts.

/// Detects from delivered payload when the load is steady.
#[derive(Clone, Debug)]
pub struct SteadyDetector {
    start_ns: u64,
    /// Bytes delivered by the end of the last complete window.
    bytes_before: u64,
    windows: u64,
    /// Number of consecutive windows, up to the last one, whose bytes are known.
    seen: usize,
    /// Bytes of the last three windows, oldest first.
    recent: [u64; WINDOWS],
}

const WINDOWS: usize = 3;

impl SteadyDetector {
    pub const WINDOW_NS: u64 = 500_000_000;
    /// Largest deviation of a window from the mean of its three, percent.
    pub const TOLERANCE_PERCENT: u64 = 10;

    pub fn new(start_ns: u64) -> Self {
        Self { start_ns, bytes_before: 0, windows: 0, seen: 0, recent: [0; WINDOWS] }
    }

    /// Observes that `bytes` in total were delivered by `now_ns`; returns true once the load is
    /// steady. Must be called at least once per window: a longer gap restarts the count of windows.
    pub fn observe(&mut self, now_ns: u64, bytes: u64) -> bool {
        let elapsed = now_ns.saturating_sub(self.start_ns) / Self::WINDOW_NS;
        if elapsed <= self.windows {
            return false;
        }
        let in_one_window = elapsed == self.windows + 1;
        let delivered = bytes.saturating_sub(self.bytes_before);
        self.bytes_before = bytes;
        self.windows = elapsed;
        // The bytes of several windows cannot be attributed to each, and the first window does not
        // count: start again.
        if !in_one_window || elapsed == 1 {
            self.seen = 0;
            return false;
        }
        self.recent.rotate_left(1);
        self.recent[WINDOWS - 1] = delivered;
        self.seen += 1;
        self.seen >= WINDOWS && self.is_level()
    }

    fn is_level(&self) -> bool {
        let sum: u64 = self.recent.iter().sum();
        let count = WINDOWS as u64;
        let within =
            |bytes: &u64| (bytes * count).abs_diff(sum) * 100 <= sum * Self::TOLERANCE_PERCENT;
        sum > 0 && self.recent.iter().all(within)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the window (from 1) after which the detector reports a steady load.
    fn steady_after(windows: &[u64]) -> Option<usize> {
        let mut detector = SteadyDetector::new(1_000);
        let mut total = 0;
        for (index, bytes) in windows.iter().enumerate() {
            let start_ns = 1_000 + index as u64 * SteadyDetector::WINDOW_NS;
            assert!(!detector.observe(start_ns + SteadyDetector::WINDOW_NS / 2, total + bytes / 2));
            total += bytes;
            if detector.observe(start_ns + SteadyDetector::WINDOW_NS, total) {
                return Some(index + 1);
            }
        }
        None
    }

    #[test]
    fn three_level_windows_after_the_first_are_steady() {
        assert_eq!(steady_after(&[100; 10]), Some(4));
        assert_eq!(steady_after(&[10, 50, 90, 100, 104, 98]), Some(5));
        assert_eq!(steady_after(&[10, 50, 80, 100, 104, 98]), Some(6), "80 is too far off");
    }

    #[test]
    fn empty_and_changing_series_are_not_steady() {
        assert_eq!(steady_after(&[0; 20]), None);
        assert_eq!(steady_after(&[10, 20, 40, 80, 160, 320]), None);
        assert_eq!(steady_after(&[100, 100, 100, 0, 100, 100, 0, 100, 100]), None);
    }

    #[test]
    fn missing_windows_are_not_level() {
        let mut detector = SteadyDetector::new(0);
        assert!(!detector.observe(10 * SteadyDetector::WINDOW_NS, 1_000));
        assert!(!detector.observe(11 * SteadyDetector::WINDOW_NS, 1_100));
        assert!(!detector.observe(12 * SteadyDetector::WINDOW_NS, 1_200));
        assert!(detector.observe(13 * SteadyDetector::WINDOW_NS, 1_300));
    }
}
