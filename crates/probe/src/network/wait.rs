//! Waiting on a descriptor for a limited time.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// Longest sleep of a thread before it checks whether it should stop.
pub const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Waits until one of `flags` holds, at most for `timeout`. Returns the flags that hold; none after
/// a timeout or a signal.
pub fn wait_for(
    descriptor: BorrowedFd<'_>,
    flags: PollFlags,
    timeout: Duration,
) -> io::Result<PollFlags> {
    let mut descriptors = [PollFd::new(descriptor, flags)];
    // Rounded up: a wait of 0.3 ms must not become a busy loop.
    let millis = u16::try_from(timeout.as_micros().div_ceil(1_000)).unwrap_or(u16::MAX);
    match poll(&mut descriptors, PollTimeout::from(millis)) {
        Ok(_) => Ok(descriptors[0].revents().unwrap_or(PollFlags::empty())),
        Err(nix::errno::Errno::EINTR) => Ok(PollFlags::empty()),
        Err(errno) => Err(errno.into()),
    }
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
