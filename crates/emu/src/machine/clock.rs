//! The clock of real time.

use std::time::Instant;

use underload_aqm::time::Time;

/// A monotonic clock (`CLOCK_MONOTONIC`) in nanoseconds since its creation. Reading it costs no
/// system call, except in a guest kernel.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Instant,
    stopped_at: Option<Time>,
}

impl Clock {
    /// A clock that reads zero now.
    pub fn start() -> Self {
        Self { origin: Instant::now(), stopped_at: None }
    }

    pub fn now(&self) -> Time {
        let elapsed = || Time::from_nanos(self.origin.elapsed().as_nanos() as u64);
        self.stopped_at.unwrap_or_else(elapsed)
    }

    /// Returns a copy that shows the present time from now on.
    #[must_use]
    pub fn stopped(&self) -> Self {
        Self { stopped_at: Some(self.now()), ..*self }
    }
}
