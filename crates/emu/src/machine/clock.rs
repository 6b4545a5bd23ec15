//! The clock that real time is read from.

use std::time::Instant;

use underload_aqm::time::Time;

/// `CLOCK_MONOTONIC` in nanoseconds since the clock was made.
///
/// `std::time::Instant` is that clock on Linux: it does not jump when the time of day is set, and
/// reading it costs no system call.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Instant,
}

impl Clock {
    /// A clock that reads zero now.
    pub fn start() -> Self {
        Self { origin: Instant::now() }
    }

    /// The present instant.
    pub fn now(&self) -> Time {
        Time::from_nanos(self.origin.elapsed().as_nanos() as u64)
    }

    /// The instant of `CLOCK_MONOTONIC` at which this clock read zero, so that others can convert.
    pub fn origin(&self) -> Instant {
        self.origin
    }
}
