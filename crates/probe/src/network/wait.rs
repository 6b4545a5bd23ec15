//! Waiting on a descriptor for a limited time.

use std::io;
use std::time::Duration;

use crate::system::{BorrowedFd, PollFlags, poll};

/// Longest sleep of a thread before it checks whether it should stop.
pub const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Waits until one of `flags` holds, at most for `timeout`. Returns the flags that hold; none after
/// a timeout or a signal.
pub fn wait_for(
    descriptor: BorrowedFd<'_>,
    flags: PollFlags,
    timeout: Duration,
) -> io::Result<PollFlags> {
    Ok(poll(&[(descriptor, flags)], timeout)?[0])
}

/// Returns true for errors that do not concern the connection: a socket that would block, or a
/// signal.
pub fn is_temporary(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// Returns true for errors after which a UDP socket may still receive: those of [`is_temporary`],
/// and "connection refused", which concerns an earlier packet.
pub(crate) fn is_transient(error: &io::Error) -> bool {
    is_temporary(error) || error.kind() == io::ErrorKind::ConnectionRefused
}
