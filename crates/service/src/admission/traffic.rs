//! Byte counters of the load of all sessions of a server, and the sessions' clock.

use std::sync::atomic::{AtomicU64, Ordering};

use underload_probe::RunClock;
use underload_record::schema::Direction;

#[derive(Debug)]
pub(crate) struct Traffic {
    clock: RunClock,
    moved: [AtomicU64; 2],
}

impl Traffic {
    pub(crate) fn start() -> Self {
        Self { clock: RunClock::start(), moved: Default::default() }
    }

    pub(crate) fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }

    pub(crate) fn add(&self, direction: Direction, bytes: u64) {
        self.moved[direction as usize].fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn subtract(&self, direction: Direction, bytes: u64) {
        self.moved[direction as usize].fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Returns the bytes of load since the start, up and down.
    pub(crate) fn moved(&self) -> (u64, u64) {
        let read = |direction: Direction| self.moved[direction as usize].load(Ordering::Relaxed);
        (read(Direction::Up), read(Direction::Down))
    }
}
