//! Functions that each operating system implements in its own way: waiting on sockets, reading
//! clocks, raising the limit of descriptors.
//!
//! `unix` and `windows` offer the same functions. What a datagram reports beside its bytes is in
//! `endpoint::ancillary`, what TCP reports in `sys`.

#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

#[cfg(unix)]
pub use unix::{AsFd, BorrowedFd, PollFlags};
#[cfg(unix)]
pub(crate) use unix::{
    is_connecting, monotonic_ns, poll, raise_descriptor_limit, set_class_v6, share_port, unix_ns,
};
#[cfg(windows)]
pub use windows::{AsFd, BorrowedFd, PollFlags};
#[cfg(windows)]
pub(crate) use windows::{
    is_connecting, monotonic_ns, poll, raise_descriptor_limit, set_class_v6, share_port, unix_ns,
};
