//! The system calls that no library we use offers safely.

#![expect(unsafe_code, reason = "raw system calls: each block states why it is sound")]

use std::io;

/// Gives the calling thread first-in-first-out real-time scheduling at `priority` (1 to 99). Threads
/// that it starts do not inherit it.
///
/// # Errors
/// What the kernel says; `EPERM` without `CAP_SYS_NICE` or a sufficient `RLIMIT_RTPRIO`.
pub(crate) fn set_real_time_priority(priority: u8) -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: i32::from(priority) };
    let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
    // SAFETY: `parameters` is a valid sched_param that outlives the call; 0 names this thread.
    match unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
