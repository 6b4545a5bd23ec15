//! A guest: a Linux kernel in virtual time, as an ordinary process.
//!
//! User-Mode Linux with time travel (`time-travel=inf-cpu`) runs as a child process without any
//! privilege. Its clock moves only when all of its processes wait, so the machine's speed and load
//! have no effect on what a guest measures: the same seed gives the same bytes.
//!
//! [`Image`] finds and checks the kernel, [`Guest`] starts and ends one, [`init`] is the first
//! process inside it. The guest's root is the host's root directory, read-only; the host and the
//! guest share one directory, the guest's [`init::SHARED`].

mod host;
mod image;
pub mod init;

pub use host::{Guest, GuestError, PROGRAM};
pub use image::{Image, ImageError};
