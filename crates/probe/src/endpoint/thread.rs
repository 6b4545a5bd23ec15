//! How punctual a measuring thread is.

use crate::clock::RunClock;
use crate::sys::set_real_time_priority;

/// Scheduling of a thread: how it keeps its deadlines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadTiming {
    /// First-in-first-out priority to ask for, 1 to 99; `None` leaves the scheduling alone. Where
    /// the kernel refuses, the thread works without: its lateness is recorded either way.
    pub real_time_priority: Option<u8>,
    /// How long before a deadline the thread stops sleeping and spins. Bounds what a wake-up from
    /// sleep may cost without lateness, and what the spinning costs: this, once per deadline.
    pub spin_ns: u64,
}

impl Default for ThreadTiming {
    fn default() -> Self {
        Self { real_time_priority: Some(20), spin_ns: 60_000 }
    }
}

/// The longest sleep, so that a changed end or a cancelled run is noticed.
const SLEEP_MAX_NS: u64 = 50_000_000;
/// The smallest timer slack there is (0 would mean the default of 50 us).
#[cfg(target_os = "linux")]
const TIMER_SLACK_NS: std::ffi::c_ulong = 1;

impl ThreadTiming {
    /// Applies it to the calling thread.
    pub fn apply(self) {
        // Both are improvements, not conditions: what they would have given shows in the lateness.
        #[cfg(target_os = "linux")]
        let _ = nix::sys::prctl::set_timerslack(TIMER_SLACK_NS);
        if let Some(priority) = self.real_time_priority {
            let _ = set_real_time_priority(priority);
        }
    }

    /// Sleeps and then spins until `deadline_ns` of `clock`, or for 50 ms if that is sooner: the
    /// caller is to notice when it should stop. Returns the time.
    pub fn wait_until(self, clock: RunClock, deadline_ns: u64) -> u64 {
        let now_ns = clock.now_ns();
        let wake_ns = deadline_ns.saturating_sub(self.spin_ns);
        if wake_ns > now_ns.saturating_add(SLEEP_MAX_NS) {
            clock.sleep_until(now_ns + SLEEP_MAX_NS);
            return clock.now_ns();
        }
        if wake_ns > now_ns {
            clock.sleep_until(wake_ns);
        }
        // No pause instruction in this loop: a hypervisor may take many of them for a sign that the
        // processor is better given to somebody else.
        loop {
            let now_ns = clock.now_ns();
            // A sleep cut short by a signal must not turn into a long spin.
            if now_ns >= deadline_ns || deadline_ns - now_ns > self.spin_ns {
                return now_ns;
            }
        }
    }
}
