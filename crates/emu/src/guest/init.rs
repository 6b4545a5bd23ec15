//! The guest's side: the steps of its first process before and after its work.

use std::fs::{create_dir, read_to_string};
use std::io;
use std::path::{Path, PathBuf};

use nix::mount::{MsFlags, mount};
use nix::sys::reboot::{RebootMode, reboot};

/// The directory that the guest shares with the host.
pub const SHARED: &str = "/run/shared";

/// Mounts the file systems that programs expect, and the shared directory at [`SHARED`].
///
/// # Errors
/// Returns the error of the mount that failed.
pub fn enter() -> io::Result<PathBuf> {
    // Outside of a guest this would cover the machine's own directories.
    let stranger = || io::Error::other("expected to be the first process of a guest kernel");
    if std::process::id() != 1 {
        return Err(stranger());
    }
    place("proc", "/proc", None)?;
    if !read_to_string("/proc/cmdline")?.contains("time-travel=inf-cpu") {
        return Err(stranger());
    }
    place("sysfs", "/sys", None)?;
    place("tmpfs", "/run", None)?;
    create_dir(SHARED)?;
    place("hostfs", SHARED, Some("/proc/self/cwd"))?;
    Ok(PathBuf::from(SHARED))
}

/// Ends the guest. Returns only if the kernel refuses.
pub fn power_off() {
    let Err(_) = reboot(RebootMode::RB_POWER_OFF);
}

fn place(kind: &str, at: &str, options: Option<&str>) -> io::Result<()> {
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount(Some(kind), Path::new(at), Some(kind), flags, options).map_err(Into::into)
}
