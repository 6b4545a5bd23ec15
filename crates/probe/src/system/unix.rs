//! POSIX, as Linux and macOS have it.

use std::io;
use std::time::Duration;

use nix::poll::{PollFd, PollTimeout};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_gettime};
use socket2::{SockRef, Socket};

pub use nix::poll::PollFlags;
pub use std::os::fd::{AsFd, BorrowedFd};

/// Waits until flags of a socket hold, at most for `timeout`, and returns those that hold of each;
/// none after a timeout or a signal.
pub(crate) fn poll(
    sockets: &[(BorrowedFd<'_>, PollFlags)],
    timeout: Duration,
) -> io::Result<Vec<PollFlags>> {
    let mut sockets: Vec<PollFd<'_>> =
        sockets.iter().map(|(socket, flags)| PollFd::new(*socket, *flags)).collect();
    // Rounded up: a wait of 0.3 ms must not become a busy loop.
    let millis = u16::try_from(timeout.as_micros().div_ceil(1_000)).unwrap_or(u16::MAX);
    match nix::poll::poll(&mut sockets, PollTimeout::from(millis)) {
        Ok(_) => {
            let flags = |socket: &PollFd<'_>| socket.revents().unwrap_or(PollFlags::empty());
            Ok(sockets.iter().map(flags).collect())
        }
        Err(nix::errno::Errno::EINTR) => Ok(vec![PollFlags::empty(); sockets.len()]),
        Err(errno) => Err(errno.into()),
    }
}

/// Whether `connect` of a non-blocking socket has begun.
pub(crate) fn is_connecting(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EINPROGRESS)
}

/// Lets other sockets of this user have the port of `socket`.
pub(crate) fn share_port(socket: &Socket) -> io::Result<()> {
    socket.set_reuse_port(true)
}

/// Sets DSCP and ECN of the IPv6 packets that a socket sends.
pub(crate) fn set_class_v6(socket: &SockRef<'_>, class: u32) -> io::Result<()> {
    socket.set_tclass_v6(class)
}

/// Raises the soft limit of open descriptors (`RLIMIT_NOFILE`) to `wanted`, at most to the hard
/// limit. Returns the resulting limit.
pub(crate) fn raise_descriptor_limit(wanted: u64) -> u64 {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return wanted };
    let raised = wanted.min(hard);
    if raised > soft && setrlimit(Resource::RLIMIT_NOFILE, raised, hard).is_ok() {
        return raised;
    }
    soft
}

/// Returns `CLOCK_MONOTONIC`, in nanoseconds.
pub(crate) fn monotonic_ns() -> u64 {
    read(ClockId::CLOCK_MONOTONIC)
}

/// Returns the wall clock, in nanoseconds since 1970.
pub(crate) fn unix_ns() -> u64 {
    read(ClockId::CLOCK_REALTIME)
}

fn read(clock: ClockId) -> u64 {
    // Both clocks exist and are after their epoch. If not, 0 is better than a panic in a measuring
    // thread.
    let now = clock_gettime(clock).unwrap_or_else(|_| TimeSpec::new(0, 0));
    now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64
}
