//! Who may read a new file or enter a new folder, and what a disk has to be told, system by system.
//!
//! Where rights are no numbers (Windows), a file has those of the folder that it is in, which for a
//! user's own folders are the user's alone; and names in a folder need no syncing.

use std::fs::{DirBuilder, File, Metadata, OpenOptions};
use std::io;
use std::path::Path;

#[cfg(unix)]
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};

use super::Access;

/// Rights of a file that is there.
#[cfg(unix)]
pub fn of(facts: &Metadata) -> u32 {
    facts.permissions().mode() & 0o777
}

/// Rights that are given to the next file.
#[cfg(unix)]
pub fn give(builder: &mut tempfile::Builder<'_, '_>, mode: u32) {
    builder.permissions(std::fs::Permissions::from_mode(mode));
}

/// Rights of a file that these options make.
#[cfg(unix)]
pub fn give_to(options: &mut OpenOptions, access: Access) {
    options.mode(if access == Access::Owner { 0o600 } else { 0o666 });
}

/// A new folder with rights.
#[cfg(unix)]
pub fn make_folder(path: &Path, mode: u32) -> io::Result<()> {
    DirBuilder::new().mode(mode).create(path)
}

/// Brings the names in a folder to the disk.
#[cfg(unix)]
pub fn sync_names(path: &Path) -> io::Result<()> {
    match File::open(path)?.sync_all() {
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
        done => done,
    }
}

/// Brings a file's bytes to the disk.
#[cfg(unix)]
pub fn sync_bytes(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

#[cfg(not(unix))]
pub fn of(_: &Metadata) -> u32 {
    0
}

#[cfg(not(unix))]
pub fn give(_: &mut tempfile::Builder<'_, '_>, _: u32) {}

#[cfg(not(unix))]
pub fn give_to(_: &mut OpenOptions, _: Access) {}

#[cfg(not(unix))]
pub fn make_folder(path: &Path, _: u32) -> io::Result<()> {
    DirBuilder::new().create(path)
}

#[cfg(not(unix))]
pub fn sync_names(_: &Path) -> io::Result<()> {
    Ok(())
}

#[cfg(not(unix))]
pub fn sync_bytes(path: &Path) -> io::Result<()> {
    // There only who may write a file may sync it.
    File::options().write(true).open(path)?.sync_all()
}
