//! A folder in memory that nobody else sees and that goes with this process, however it ends.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

/// Why there is no such folder.
#[derive(Debug, thiserror::Error)]
#[error("a folder in memory at {}", at.display())]
pub struct ScratchError {
    /// Where it would have been.
    at: PathBuf,
    /// The error of the system call.
    source: io::Error,
}

/// Lays `megabytes` of memory over the folder for temporary files, for this process alone, and
/// returns a new folder in it. Call it before other threads start, after
/// [`super::privilege::enter`]: threads that run already go on seeing what was there.
///
/// # Errors
/// Where the machine refuses mounts.
pub fn scratch(megabytes: u32) -> Result<PathBuf, ScratchError> {
    let at = std::env::temp_dir();
    let made = cover(&at, megabytes).and_then(|()| {
        let folder = at.join("underload");
        DirBuilder::new().mode(0o700).create(&folder).map(|()| folder)
    });
    made.map_err(|source| ScratchError { at, source })
}

fn cover(at: &std::path::Path, megabytes: u32) -> io::Result<()> {
    unshare(CloneFlags::CLONE_NEWNS)?;
    let none = None::<&str>;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_SLAVE, none)?;
    let options = format!("size={megabytes}m,mode=1777");
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount(Some("underload"), at, Some("tmpfs"), flags, Some(options.as_str()))?;
    Ok(())
}
