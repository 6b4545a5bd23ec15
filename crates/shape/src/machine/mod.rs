//! Executes plans: `tc`, `ip` and `bpftool`, the directory of records, the lock, the watcher.
#![expect(clippy::disallowed_methods, reason = "this module has the clock, files and processes")]

mod error;
mod folder;
mod follow;
mod followed;
pub mod hours;
pub mod kernel_queues;
mod offload;
pub mod search;
mod session;
mod show;
mod snapshot;
mod temporary;
mod watcher;

pub use error::{ApplyError, ChangeError, TemporaryError, UndoError};
pub use folder::FolderError;
pub use follow::follow;
pub use followed::FollowedLine;
pub use offload::OffloadError;
pub use session::{Confirmation, Lasts, Session, Settings, Shaped, Standing, sent_bytes};
pub use show::Overview;
pub use snapshot::{Snapshot, SnapshotError};
pub use temporary::Temporary;
pub use watcher::Watcher;

use nix::time::{ClockId, clock_gettime};

/// Returns the milliseconds since the machine's start, sleep included. No change of the time of day
/// moves this clock, and all processes see the same.
pub fn now_ms() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_BOOTTIME).map(std::time::Duration::from);
    now.map_or(0, |now| now.as_millis() as u64)
}

/// Whether this process may change the queues of devices (`CAP_NET_ADMIN`).
pub fn may_change_queues() -> bool {
    const NET_ADMIN: u64 = 1 << 12;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let rights = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let rights = rights.and_then(|text| u64::from_str_radix(text.trim(), 16).ok());
    // Without /proc the kernel itself refuses.
    rights.is_none_or(|rights| rights & NET_ADMIN != 0)
}
