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

/// Requests timers without slack for the calling thread and, if `is_realtime`, real-time priority
/// and resident memory. Refusals are harmless; the measured lateness shows their cost.
pub fn schedule(is_realtime: bool) {
    // Sets the timer slack to one microsecond. The default of 50 would lengthen every wait.
    let _ = prctl::set_timerslack(1_000);
    if is_realtime {
        let _ = sys::set_realtime_priority(PRIORITY);
        let _ = sys::lock_memory();
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
        Self { margin, budget_ns: BUDGET_MAX_NS, asked: now, is_spinning: false, spun: Span::ZERO }
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
        let Some(sleep) = self.next_sleep(clock.now(), deadline, alarm) else {
            std::hint::spin_loop();
            return;
        };
        let limit = TimeSpec::from(Duration::from_nanos(sleep.as_nanos()));
        // An interrupted wait is only shorter: the caller checks again.
        let _ = ppoll(inputs, Some(limit), None);
    }

    /// Returns how long to sleep at `now`; `None` to spin.
    fn next_sleep(
        &mut self,
        now: Time,
        deadline: Option<Time>,
        alarm: Option<Time>,
    ) -> Option<Span> {
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
            return None;
        }
        let may_spin = self.budget_ns >= self.margin.as_nanos();
        let sleep = if may_spin { left.saturating_sub(self.margin) } else { left };
        Some(alarm.map_or(sleep, |alarm| sleep.min(alarm.since(now))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spinning_is_bounded_to_its_share() {
        let mut now = Time::ZERO;
        let mut waiter = Waiter::new(Span::from_micros(200), now);
        // Deadlines every 150 us: without a bound on spinning the thread would never sleep.
        let mut deadline = Time::ZERO;
        let mut sleeps = 0;
        while now < Time::from_millis(600) {
            if deadline <= now {
                deadline = now + Span::from_micros(150);
            }
            let sleep = waiter.next_sleep(now, Some(deadline), None);
            sleeps += u32::from(sleep.is_some());
            now += sleep.unwrap_or(Span::from_micros(1));
        }
        let allowed = BUDGET_MAX_NS + now.as_nanos() / SPIN_DIVISOR;
        let spun = waiter.spun.as_nanos();
        assert!(spun <= allowed && spun > allowed / 2, "{spun} of {allowed}");
        assert!(sleeps > 1_000, "{sleeps}");
    }
}
