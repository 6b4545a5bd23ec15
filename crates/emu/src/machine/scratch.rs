//! A folder in memory that only this process sees and that ends with it.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

/// Why the folder could not be created.
#[derive(Debug, thiserror::Error)]
#[error("a folder in memory at {}", at.display())]
pub struct ScratchError {
    at: PathBuf,
    source: io::Error,
}

/// Mounts `megabytes` of memory over the folder of temporary files, for this process alone, and
/// returns a new folder in it. Call it before other threads start, because they would still see the
/// old folder, and after [`super::privilege::enter`].
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
