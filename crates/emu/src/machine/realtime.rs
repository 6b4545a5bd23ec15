//! Real-time scheduling of a thread, and waiting until an instant.

use std::time::Duration;

use nix::poll::{PollFd, ppoll};
use nix::sys::prctl;
use nix::sys::time::TimeSpec;
use underload_aqm::time::{Span, Time};

use super::clock::Clock;
use super::sys;

/// Low among the real-time priorities, because it only has to be above ordinary processes.
const PRIORITY: i32 = 10;

/// The requests that the system granted. Refusals are harmless; the measured lateness shows their
/// cost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Realtime {
    /// Whether the thread runs before every ordinary process; `None` if not requested.
    pub priority: Option<Result<(), String>>,
    /// Whether memory stays resident; `None` if not requested.
    pub memory_locked: Option<Result<(), String>>,
}

impl Realtime {
    /// Requests timers without slack for the calling thread and, if `wanted`, real-time priority
    /// and resident memory.
    pub fn request(wanted: bool) -> Self {
        // Sets the timer slack to one microsecond. The default of 50 would lengthen every wait.
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

/// Waits for an instant: sleeps until shortly before it and then spins, but only for a share of the
/// time, because a thread that always spins is preempted for long when it matters.
#[derive(Debug)]
pub struct Waiter {
    margin: Span,
    /// Nanoseconds of spinning that are still allowed.
    budget_ns: u64,
    asked: Time,
    is_spinning: bool,
    pub sleeps: u64,
    /// Total time of spinning.
    pub spun: Span,
}

/// The thread spins for at most one part in this many of the time.
const SPIN_DIVISOR: u64 = 4;
const BUDGET_MAX_NS: u64 = 2_000_000;
const SLEEP_MAX: Span = Span::from_millis(100);

impl Waiter {
    /// A waiter that spins for the last `margin` before a deadline, or never if it is zero.
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

    /// Waits for `deadline`, less precisely for `alarm`, or until one of `inputs` is readable.
    /// While spinning it returns at once, so that the caller checks its inputs and calls again.
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
        // An interrupted wait is only shorter: the caller checks again.
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
        // The last check may exceed the budget for as long as the thread is preempted.
        assert!(waiter.spun.as_nanos() < allowed + total / 4, "{:?} of {total}", waiter.spun);
        assert!(waiter.sleeps > 0);
    }
}
