//! The two system calls that no library of ours offers safely.

#![cfg_attr(
    target_os = "linux",
    expect(unsafe_code, reason = "raw system calls: each block states why it is sound")
)]

use std::io;
#[cfg(target_os = "linux")]
use std::mem::size_of_val;
#[cfg(target_os = "linux")]
use std::os::fd::AsRawFd as _;

use crate::system::BorrowedFd;

/// Bytes of `struct tcp_info` that are read: up to and including `tcpi_snd_wnd`.
pub(crate) const TCP_INFO_LEN: usize = 232;

/// Sets first-in-first-out real-time scheduling at `priority` (1 to 99) for the calling thread.
/// Threads that it starts do not inherit it.
///
/// # Errors
/// Returns the kernel's error: `EPERM` without `CAP_SYS_NICE` or a sufficient `RLIMIT_RTPRIO`.
#[cfg(target_os = "linux")]
pub(crate) fn set_real_time_priority(priority: u8) -> io::Result<()> {
    // The kernel's structure has only the priority. The C library's call is not used, because musl
    // refuses it: POSIX applies it to a whole process.
    let parameters = i32::from(priority);
    let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
    // SAFETY: `parameters` outlives the call, which reads an int there; 0 names this thread.
    match unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, policy, &raw const parameters) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Returns the kernel's `struct tcp_info` as bytes; fields that an older kernel lacks are zero.
///
/// # Errors
/// Returns the kernel's error, for example for a socket that is not TCP.
#[cfg(target_os = "linux")]
pub(crate) fn tcp_info(socket: BorrowedFd<'_>) -> io::Result<[u8; TCP_INFO_LEN]> {
    let mut info = [0u8; TCP_INFO_LEN];
    let mut len = size_of_val(&info) as libc::socklen_t;
    // SAFETY: the pointers are valid for the length given, and the kernel writes at most `len`
    // bytes of plain data into `info`.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    match result {
        0 => Ok(info),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Other systems keep the thread's scheduling.
#[cfg(not(target_os = "linux"))]
pub(crate) fn set_real_time_priority(_: u8) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Other systems have no `struct tcp_info`.
#[cfg(not(target_os = "linux"))]
pub(crate) fn tcp_info(_: BorrowedFd<'_>) -> io::Result<[u8; TCP_INFO_LEN]> {
    Err(io::ErrorKind::Unsupported.into())
}
