//! Round trips of a loaded TCP connection, read at equal intervals from its sender's kernel.
//!
//! A reading is `tcpi_rtt`: the kernel's round trip, smoothed over about the last eight
//! acknowledgements (RFC 6298, weight 1/8). A full connection receives hundreds of them per second,
//! so a reading follows the queue within some ten milliseconds; a shorter peak is flattened. The
//! raw samples are not available: `tcpi_min_rtt` forgets every peak, and a probe inside the stream
//! would wait in the sender's own buffer, which is no part of the path.

use std::time::Duration;

/// Interval of readings; of those in a [`RoundTripLog`] until it is full.
pub const READ_INTERVAL: Duration = Duration::from_millis(10);

/// A reading may follow the last one sooner than the interval by this: readers are not punctual.
const TOLERANCE_NS: u64 = READ_INTERVAL.as_nanos() as u64 / 2;

/// The smoothed round trip of a TCP sender at one instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoundTrip {
    /// When the round trip was read, on the clock of [`super::Delivered::time_ns`].
    pub time_ns: u64,
    /// At least 1.
    pub rtt_us: u32,
}

/// Readings of one connection in bounded memory: when the log is full it drops every second reading
/// and accepts half as many from then on, so that readings remain evenly spaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoundTripLog {
    pub readings: Vec<RoundTrip>,
    capacity: usize,
    interval_ns: u64,
}

impl RoundTripLog {
    /// Maximum number of readings of a flow: 164 s without a gap.
    pub const CAPACITY: usize = 1 << 14;

    pub(crate) fn with_capacity(capacity: usize) -> Self {
        let interval_ns = READ_INTERVAL.as_nanos() as u64;
        Self { readings: Vec::new(), capacity, interval_ns }
    }

    /// Appends a reading. Ignores 0, which means unknown, and a reading that follows the last one
    /// sooner than the interval allows.
    pub fn note(&mut self, time_ns: u64, rtt_us: u32) {
        if rtt_us == 0 || !self.is_due(time_ns) {
            return;
        }
        if self.readings.len() >= self.capacity {
            let mut position = 0;
            self.readings.retain(|_| {
                position += 1;
                position % 2 == 1
            });
            self.interval_ns = self.interval_ns.saturating_mul(2);
            if !self.is_due(time_ns) {
                return;
            }
        }
        self.readings.push(RoundTrip { time_ns, rtt_us });
    }

    fn is_due(&self, time_ns: u64) -> bool {
        let least_ns = self.interval_ns - TOLERANCE_NS;
        let Some(last) = self.readings.last() else { return true };
        time_ns.checked_sub(last.time_ns).is_some_and(|since_ns| since_ns >= least_ns)
    }

    /// Removes all readings and returns to the shortest interval.
    pub(crate) fn clear(&mut self) {
        self.readings.clear();
        self.interval_ns = READ_INTERVAL.as_nanos() as u64;
    }
}

impl Default for RoundTripLog {
    fn default() -> Self {
        Self::with_capacity(Self::CAPACITY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_full_log_halves_its_readings_and_stays_even() {
        let mut log = RoundTripLog::with_capacity(8);
        for number in 0..100_u64 {
            log.note(number * 10 * MS, number as u32 + 1);
        }
        let times: Vec<u64> = log.readings.iter().map(|it| it.time_ns / MS).collect();
        assert!(times.len() <= 8 && times.len() >= 4, "{times:?}");
        assert_eq!(times[0], 0);
        let steps: Vec<u64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(steps.iter().all(|step| *step == steps[0]), "{times:?}");
        assert!(*times.last().unwrap() > 800, "the end is covered: {times:?}");
        log.clear();
        log.note(1, 1);
        log.note(10 * MS + 1, 1);
        assert_eq!(log.readings.len(), 2, "the first interval applies again");
    }

    #[test]
    fn unknown_early_and_repeated_readings_are_ignored() {
        let mut log = RoundTripLog::default();
        for (time_ns, rtt_us) in
            [(50 * MS, 7), (50 * MS, 8), (40 * MS, 9), (54 * MS, 9), (70 * MS, 0)]
        {
            log.note(time_ns, rtt_us);
        }
        assert_eq!(log.readings, [RoundTrip { time_ns: 50 * MS, rtt_us: 7 }]);
        log.note(u64::MAX, u32::MAX);
        log.note(u64::MAX, 1);
        assert_eq!(log.readings.len(), 2);
    }
}
