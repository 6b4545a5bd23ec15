//! Scheduling of a measuring thread.

use crate::clock::RunClock;
use crate::sys::set_real_time_priority;

/// How a thread keeps its deadlines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadTiming {
    /// First-in-first-out priority to request, 1 to 99; `None` leaves the scheduling unchanged. If
    /// the kernel refuses, the thread works without; its lateness is recorded either way.
    pub real_time_priority: Option<u8>,
    /// How long before a deadline the thread stops sleeping and spins. A wake-up from sleep may
    /// take this long without lateness; the cost is this much processor time per deadline.
    pub spin_ns: u64,
}

impl Default for ThreadTiming {
    fn default() -> Self {
        Self { real_time_priority: Some(20), spin_ns: 60_000 }
    }
}

/// The longest sleep, so that the thread notices a changed end or a cancelled run.
const SLEEP_MAX_NS: u64 = 50_000_000;
/// The smallest timer slack (0 would mean the default of 50 us).
#[cfg(target_os = "linux")]
const TIMER_SLACK_NS: std::ffi::c_ulong = 1;

impl ThreadTiming {
    /// Applies the scheduling to the calling thread.
    pub fn apply(self) {
        // Both are optional: without them the recorded lateness is larger.
        #[cfg(target_os = "linux")]
        let _ = nix::sys::prctl::set_timerslack(TIMER_SLACK_NS);
        if let Some(priority) = self.real_time_priority {
            let _ = set_real_time_priority(priority);
        }
    }

    /// Sleeps and then spins until `deadline_ns` of `clock`, but at most 50 ms, so that the caller
    /// can check whether to stop. Returns the time.
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
        // No pause instruction in this loop: a hypervisor may take many of them as a sign that it
        // can give the processor to another machine.
        loop {
            let now_ns = clock.now_ns();
            // A sleep cut short by a signal must not become a long spin.
            if now_ns >= deadline_ns || deadline_ns - now_ns > self.spin_ns {
                return now_ns;
            }
        }
    }
}
