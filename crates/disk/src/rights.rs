//! Permissions of new files and folders, and syncing, for each system.
//!
//! A file on Windows inherits the permissions of its folder, which for a user's own folders are the
//! user's alone, and names in a folder need no syncing.

use std::fs::{DirBuilder, File, Metadata, OpenOptions};
use std::io;
use std::path::Path;

#[cfg(unix)]
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};

use super::Access;

/// Returns the mode of an existing file.
#[cfg(unix)]
pub fn mode(facts: &Metadata) -> u32 {
    facts.permissions().mode() & 0o777
}

/// Sets the mode of the next file.
#[cfg(unix)]
pub fn set_mode(builder: &mut tempfile::Builder<'_, '_>, mode: u32) {
    builder.permissions(std::fs::Permissions::from_mode(mode));
}

/// Sets the mode of a file that these options create.
#[cfg(unix)]
pub fn set_access(options: &mut OpenOptions, access: Access) {
    options.mode(if access == Access::Owner { 0o600 } else { 0o666 });
}

#[cfg(unix)]
pub fn create_folder(path: &Path, mode: u32) -> io::Result<()> {
    DirBuilder::new().mode(mode).create(path)
}

#[cfg(unix)]
pub fn sync_names(path: &Path) -> io::Result<()> {
    match File::open(path)?.sync_all() {
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
        done => done,
    }
}

#[cfg(unix)]
pub fn sync_bytes(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

#[cfg(not(unix))]
pub fn mode(_: &Metadata) -> u32 {
    0
}

#[cfg(not(unix))]
pub fn set_mode(_: &mut tempfile::Builder<'_, '_>, _: u32) {}

#[cfg(not(unix))]
pub fn set_access(_: &mut OpenOptions, _: Access) {}

#[cfg(not(unix))]
pub fn create_folder(path: &Path, _: u32) -> io::Result<()> {
    DirBuilder::new().create(path)
}

#[cfg(not(unix))]
pub fn sync_names(_: &Path) -> io::Result<()> {
    Ok(())
}

#[cfg(not(unix))]
pub fn sync_bytes(path: &Path) -> io::Result<()> {
    // Windows only syncs files that are open for writing.
    File::options().write(true).open(path)?.sync_all()
}
