//! What the machine can do so that a thread wakes up in time, and waiting until an instant.

use std::time::Duration;

use nix::poll::{PollFd, ppoll};
use nix::sys::prctl;
use nix::sys::time::TimeSpec;
use underload_aqm::time::{Span, Time};

use super::clock::Clock;
use super::sys;

/// Low among the real-time priorities: above every ordinary process is all that is needed.
const PRIORITY: i32 = 10;

/// What was granted. Each refusal is harmless; lateness tells what it cost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Realtime {
    /// The thread runs before every ordinary process. `Err`: why not.
    pub priority: Option<Result<(), String>>,
    /// Memory stays resident. `Err`: why not.
    pub memory_locked: Option<Result<(), String>>,
}

impl Realtime {
    /// Asks for timers without slack and, where `wanted`, for real-time priority and resident
    /// memory, for the calling thread.
    pub fn request(wanted: bool) -> Self {
        // One microsecond: the default of 50 would be added to every wait.
        let _ = prctl::set_timerslack(1_000);
        if !wanted {
            return Self::default();
        }
        Self {
            priority: Some(sys::set_realtime_priority(PRIORITY).map_err(|error| error.to_string())),
            memory_locked: Some(sys::lock_memory().map_err(|error| error.to_string())),
        }
    }
}

/// Waits for an instant: asleep until shortly before it, then spinning, but spinning no more than
/// a share of the time, because a thread that always spins is preempted for long when it matters.
#[derive(Debug)]
pub struct Waiter {
    margin: Span,
    /// Nanoseconds of spinning still allowed.
    budget_ns: u64,
    asked: Time,
    is_spinning: bool,
    sleeps: u64,
    spun: Span,
}

/// At most a quarter of the time is spun.
const SPIN_DIVISOR: u64 = 4;
/// At most so much of it in one go.
const BUDGET_MAX_NS: u64 = 2_000_000;
/// Asleep no longer than this.
const SLEEP_MAX: Span = Span::from_millis(100);

impl Waiter {
    /// Spins for the last `margin` before a deadline. Zero: never.
    pub fn new(margin: Span, now: Time) -> Self {
        Self {
            margin,
            budget_ns: BUDGET_MAX_NS,
            asked: now,
            is_spinning: false,
            sleeps: 0,
            spun: Span::ZERO,
        }
    }

    /// How often it slept.
    pub fn sleeps(&self) -> u64 {
        self.sleeps
    }

    /// How long it spun in all.
    pub fn spun(&self) -> Span {
        self.spun
    }

    /// Waits for `deadline`, or for `alarm` with less care, or until one of `inputs` can be read,
    /// or (spinning) not at all: the caller then looks at its inputs and asks again.
    pub fn wait(
        &mut self,
        clock: &Clock,
        deadline: Option<Time>,
        alarm: Option<Time>,
        inputs: &mut [PollFd<'_>],
    ) {
        let now = clock.now();
        let elapsed = now.since(self.asked);
        self.asked = now;
        if self.is_spinning {
            self.budget_ns = self.budget_ns.saturating_sub(elapsed.as_nanos());
            self.spun = self.spun + elapsed;
        } else {
            let refilled = self.budget_ns + elapsed.as_nanos() / SPIN_DIVISOR;
            self.budget_ns = refilled.min(BUDGET_MAX_NS);
        }
        let left = deadline.map_or(SLEEP_MAX, |deadline| deadline.since(now)).min(SLEEP_MAX);
        self.is_spinning = left <= self.margin && self.budget_ns > 0;
        if self.is_spinning || left == Span::ZERO {
            std::hint::spin_loop();
            return;
        }
        let may_spin = self.budget_ns >= self.margin.as_nanos();
        let sleep = if may_spin { left.saturating_sub(self.margin) } else { left };
        let sleep = alarm.map_or(sleep, |alarm| sleep.min(alarm.since(now)));
        self.sleeps += 1;
        let limit = TimeSpec::from(Duration::from_nanos(sleep.as_nanos()));
        // An interrupted wait is a short wait: the caller looks again.
        let _ = ppoll(inputs, Some(limit), None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spinning_is_bounded_to_its_share() {
        let clock = Clock::start();
        let mut waiter = Waiter::new(Span::from_micros(200), clock.now());
        // Deadlines every 150 us: without a bound the thread would never sleep.
        let end = Time::from_millis(60);
        let mut deadline = Time::ZERO;
        while clock.now() < end {
            if deadline <= clock.now() {
                deadline = clock.now() + Span::from_micros(150);
            }
            waiter.wait(&clock, Some(deadline), None, &mut []);
        }
        let total = clock.now().as_nanos();
        let allowed = BUDGET_MAX_NS + total / SPIN_DIVISOR;
        // One look may overrun the budget, by as long as the machine takes the thread away.
        assert!(waiter.spun().as_nanos() < allowed + total / 4, "{:?} of {total}", waiter.spun());
        assert!(waiter.sleeps() > 0);
    }
}
