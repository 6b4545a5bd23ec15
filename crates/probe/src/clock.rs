//! The clock of a run, and its relation to the wall clock of packet time stamps.

use std::time::Duration;

use crate::system::{monotonic_ns, unix_ns};

/// Nanoseconds since a trial began, on the machine's monotonic clock.
///
/// All parts of a trial (prober, load, emulator) use a copy of the same clock, so that their
/// records share one time line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunClock {
    start_monotonic_ns: u64,
}

/// One instant on both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instants {
    /// Nanoseconds since the trial began.
    pub run_ns: u64,
    /// Nanoseconds since 1970, which kernel and packet time stamps count.
    pub unix_ns: u64,
}

impl RunClock {
    pub fn start() -> Self {
        Self { start_monotonic_ns: monotonic_ns() }
    }

    /// Returns the nanoseconds since the trial began; 0 before.
    pub fn now_ns(self) -> u64 {
        monotonic_ns().saturating_sub(self.start_monotonic_ns)
    }

    pub fn now_on_both(self) -> Instants {
        let unix_ns = unix_ns();
        Instants { run_ns: self.now_ns(), unix_ns }
    }

    /// Sleeps until `deadline_ns` of the run. Returns early only if a signal arrives.
    pub fn sleep_until(self, deadline_ns: u64) {
        #[cfg(target_os = "linux")]
        {
            use nix::time::{ClockId, ClockNanosleepFlags, clock_nanosleep};
            let monotonic_ns = self.start_monotonic_ns.saturating_add(deadline_ns);
            let deadline = nix::sys::time::TimeSpec::from(Duration::from_nanos(monotonic_ns));
            let absolute = ClockNanosleepFlags::TIMER_ABSTIME;
            // Fails only after a signal, which the caller's loop tolerates: the arguments are
            // valid.
            let _ = clock_nanosleep(ClockId::CLOCK_MONOTONIC, absolute, &deadline);
        }
        #[cfg(not(target_os = "linux"))]
        std::thread::sleep(Duration::from_nanos(deadline_ns.saturating_sub(self.now_ns())));
    }
}

impl Instants {
    /// Converts a wall-clock time near this instant to the run's time; negative before the trial.
    pub fn run_from_unix(self, unix_ns: u64) -> i64 {
        let since_then = self.unix_ns as i64 - unix_ns as i64;
        (self.run_ns as i64).saturating_sub(since_then)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleeping_never_ends_before_the_deadline() {
        let clock = RunClock::start();
        let deadline_ns = clock.now_ns() + 2_000_000;
        clock.sleep_until(deadline_ns);
        assert!(clock.now_ns() >= deadline_ns);
        clock.sleep_until(0);
    }

    #[test]
    fn wall_clock_times_convert_around_the_instant_they_were_read() {
        let now = Instants { run_ns: 5_000, unix_ns: 1_700_000_000_000_000_000 };
        assert_eq!(now.run_from_unix(1_700_000_000_000_000_000), 5_000);
        assert_eq!(now.run_from_unix(1_699_999_999_999_999_000), 4_000);
        assert_eq!(now.run_from_unix(1_699_999_999_999_990_000), -5_000);
    }
}
