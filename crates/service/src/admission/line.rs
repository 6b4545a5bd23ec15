//! Measures the load of the server's line from the counters of its network interfaces, which count
//! the traffic of all programs.
//!
//! Granted rates limit what clients may send; the interface counters show what is sent. While the
//! interfaces carry more than the operator's capacity, because of other programs or a defect, new
//! sessions are refused.

use underload_probe::network::Line;

/// Computes rates from counters that are read from time to time.
pub(crate) struct LineMeter {
    line: Line,
    last: Option<(u64, [u64; 2])>,
}

impl LineMeter {
    pub(crate) fn new(line: Line) -> Self {
        Self { line, last: None }
    }

    /// Returns the rates towards this machine and from it since the last call, bit/s; `None` at the
    /// first call, or if no interface is read.
    pub(crate) fn measure(&mut self, now_ns: u64) -> Option<[u64; 2]> {
        let bytes = self.line.bytes()?;
        self.note(now_ns, bytes)
    }

    fn note(&mut self, now_ns: u64, bytes: [u64; 2]) -> Option<[u64; 2]> {
        let (before_ns, before) = self.last.replace((now_ns, bytes))?;
        let elapsed_ns = u128::from(now_ns.saturating_sub(before_ns)).max(1);
        let rate = |index: usize| {
            // A new interface counts from zero again.
            let moved = u128::from(bytes[index].saturating_sub(before[index]));
            u64::try_from(moved * 8_000_000_000 / elapsed_ns).unwrap_or(u64::MAX)
        };
        Some([rate(0), rate(1)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_needs_two_readings() {
        let mut meter = LineMeter::new(Line::Ignored);
        assert_eq!(meter.note(0, [1_000, 0]), None);
        assert_eq!(meter.note(2_000_000_000, [3_000, 500]), Some([8_000, 2_000]));
        assert_eq!(meter.note(3_000_000_000, [0, 0]), Some([0, 0]), "a new interface");
        assert_eq!(meter.measure(0), None, "no interface is read");
    }

    #[test]
    fn the_interfaces_of_this_machine_can_be_read() {
        let mut meter = LineMeter::new(Line::Named(vec!["lo".to_owned()]));
        assert_eq!(meter.measure(0), None);
        assert!(meter.measure(1_000_000_000).is_some());
    }
}
