//! The clock of real time.

use std::time::Instant;

use underload_aqm::time::Time;

/// A monotonic clock (`CLOCK_MONOTONIC`) in nanoseconds since its creation. Reading it costs no
/// system call.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Instant,
}

impl Clock {
    /// A clock that reads zero now.
    pub fn start() -> Self {
        Self { origin: Instant::now() }
    }

    pub fn now(&self) -> Time {
        Time::from_nanos(self.origin.elapsed().as_nanos() as u64)
    }

    /// The instant at which this clock read zero, for conversions.
    pub fn origin(&self) -> Instant {
        self.origin
    }
}
