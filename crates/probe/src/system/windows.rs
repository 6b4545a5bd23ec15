//! Windows: `WSAPoll` instead of `poll`, and the clocks of the standard library.

#![expect(unsafe_code, reason = "a system call: its block states why it is sound")]

use std::io;
use std::ops::BitOr;
use std::os::windows::io::{AsRawSocket as _, AsSocket, BorrowedSocket};
use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime};

use socket2::{SockRef, Socket};
use windows_sys::Win32::Networking::WinSock::{
    POLLERR, POLLHUP, POLLRDNORM, POLLWRNORM, SOCKET, WSAPOLLFD, WSAPoll,
};

pub type BorrowedFd<'a> = BorrowedSocket<'a>;

/// A socket, by the name that its trait has on other systems.
pub trait AsFd {
    /// Borrows the socket for the time of a system call.
    fn as_fd(&self) -> BorrowedFd<'_>;
}

impl<T: AsSocket> AsFd for T {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.as_socket()
    }
}

/// The socket states that a poll waits for and those that it found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PollFlags(i16);

impl PollFlags {
    pub const POLLIN: Self = Self(POLLRDNORM);
    pub const POLLOUT: Self = Self(POLLWRNORM);
    pub const POLLERR: Self = Self(POLLERR);
    pub const POLLHUP: Self = Self(POLLHUP);

    pub const fn empty() -> Self {
        Self(0)
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub fn contains(self, flags: Self) -> bool {
        self.0 & flags.0 == flags.0
    }

    pub fn intersects(self, flags: Self) -> bool {
        self.0 & flags.0 != 0
    }
}

impl BitOr for PollFlags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Waits until flags of a socket hold, at most for `timeout`, and returns those that hold of each.
pub(crate) fn poll(
    sockets: &[(BorrowedFd<'_>, PollFlags)],
    timeout: Duration,
) -> io::Result<Vec<PollFlags>> {
    // `WSAPoll` rejects the flags that it only returns.
    let asked = POLLRDNORM | POLLWRNORM;
    let of = |(socket, flags): &(BorrowedFd<'_>, PollFlags)| WSAPOLLFD {
        fd: socket.as_raw_socket() as SOCKET,
        events: flags.0 & asked,
        revents: 0,
    };
    let mut polled: Vec<WSAPOLLFD> = sockets.iter().map(of).collect();
    // Rounded up: a wait of 0.3 ms must not become a busy loop.
    let millis = i32::try_from(timeout.as_micros().div_ceil(1_000)).unwrap_or(i32::MAX);
    let count = u32::try_from(polled.len()).map_err(io::Error::other)?;
    // SAFETY: the pointer is valid for `count` entries, which outlive the call, and every socket is
    // borrowed, so it is open.
    match unsafe { WSAPoll(polled.as_mut_ptr(), count, millis) } {
        0.. => Ok(polled.iter().map(|it| PollFlags(it.revents)).collect()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Whether `connect` of a non-blocking socket has begun.
pub(crate) fn is_connecting(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
}

/// Windows delivers the datagrams of a shared port to any of its sockets.
pub(crate) fn share_port(_: &Socket) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Windows ignores the marking that a program requests; IPv6 sockets have no option for it.
pub(crate) fn set_class_v6(_: &SockRef<'_>, _: u32) -> io::Result<()> {
    Ok(())
}

/// Returns `wanted`: Windows limits handles by memory alone.
pub(crate) fn raise_descriptor_limit(wanted: u64) -> u64 {
    wanted
}

/// Returns the time since this process first read the clock, in nanoseconds.
pub(crate) fn monotonic_ns() -> u64 {
    static FIRST: OnceLock<Instant> = OnceLock::new();
    FIRST.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// Returns the wall clock, in nanoseconds since 1970; Windows counts in steps of 100.
pub(crate) fn unix_ns() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.map_or(0, |now| now.as_nanos() as u64)
}
