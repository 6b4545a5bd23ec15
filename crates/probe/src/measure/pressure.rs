//! How long this process's threads waited for a processor.
//!
//! The system's pressure (`/proc/pressure/cpu`) also counts other processes: a waiting compiler
//! does not disturb a prober and an emulator at real-time priority. The scheduler counts, for each
//! thread, the time in which it was runnable but did not run.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// The time that each thread of this process has waited for a processor, ns.
pub(super) struct Waiting(BTreeMap<u32, u64>);

impl Waiting {
    /// Reads the counters of all threads; `None` if the kernel has none.
    pub(super) fn now() -> Option<Self> {
        let tasks = fs::read_dir("/proc/self/task").ok()?;
        let mut waited_ns = BTreeMap::new();
        for task in tasks.flatten() {
            // Ignore a thread that ends meanwhile.
            if let Some((thread, waited)) = read(&task.path()) {
                waited_ns.insert(thread, waited);
            }
        }
        (!waited_ns.is_empty()).then_some(Self(waited_ns))
    }

    /// Returns the share of `span_ns`, in percent, that one thread has waited since `before`: the
    /// thread that waited most. Threads that have ended are ignored; new threads count from zero.
    pub(super) fn worst_percent_since(&self, before: &Self, span_ns: u64) -> f64 {
        let waited = |(thread, now): (&u32, &u64)| {
            now.saturating_sub(before.0.get(thread).copied().unwrap_or(0))
        };
        let worst = self.0.iter().map(waited).max().unwrap_or(0);
        worst as f64 * 100.0 / span_ns.max(1) as f64
    }
}

/// The share of a recent second that one thread of this process waited for a processor, for a live
/// view. It is that of the thread that waited most.
#[derive(Default)]
pub(super) struct RecentPressure {
    last: Option<(Waiting, u64)>,
    percent: Option<f64>,
}

/// Interval between reads: each one opens a file per thread.
const LOOK_INTERVAL_NS: u64 = 1_000_000_000;

impl RecentPressure {
    /// Returns the share, percent. Reads the counters again if the last read is at least a second
    /// old. `None` before the second read, or if the kernel has no counters.
    pub(super) fn percent(&mut self, now_ns: u64) -> Option<f64> {
        let is_due = self.last.as_ref().is_none_or(|(_, at)| now_ns - at >= LOOK_INTERVAL_NS);
        if is_due && let Some(waiting) = Waiting::now() {
            let since = |(before, at): &(Waiting, u64)| {
                waiting.worst_percent_since(before, now_ns.saturating_sub(*at))
            };
            self.percent = self.last.as_ref().map(since);
            self.last = Some((waiting, now_ns));
        }
        self.percent
    }
}

fn read(task: &Path) -> Option<(u32, u64)> {
    let thread = task.file_name()?.to_str()?.parse().ok()?;
    Some((thread, waited_ns(&fs::read_to_string(task.join("schedstat")).ok()?)?))
}

/// Returns the second of the three numbers: time spent waiting on a run queue, ns
/// (Documentation/scheduler/sched-stats.rst).
fn waited_ns(schedstat: &str) -> Option<u64> {
    schedstat.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_field_of_schedstat_is_the_waiting_time() {
        assert_eq!(waited_ns("146597 6284598 2\n"), Some(6_284_598));
        assert_eq!(waited_ns("none"), None);
    }

    #[test]
    fn the_thread_that_waited_most_counts() {
        let before = Waiting(BTreeMap::from([(1, 100), (2, 5_000)]));
        let after = Waiting(BTreeMap::from([(1, 400), (2, 5_100), (3, 250)]));
        assert!((after.worst_percent_since(&before, 1_000) - 30.0).abs() < 1e-9);
    }
}
