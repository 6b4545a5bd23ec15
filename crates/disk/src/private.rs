//! Files and folders with secrets, which only their owner may open.
//!
//! A folder that others can enter is refused, because a database chooses the permissions of the
//! files in it. A single file, such as a key, is checked by its mode and owner. Systems without
//! numeric modes (Windows) refuse nothing.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;

#[cfg(unix)]
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};

use super::{Access, create_directory, read_at_most};

/// Access to a file for users other than its owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Others {
    /// None. A group may read a file of root's, so that an administrator can give a secret to a
    /// service.
    Nobody,
    /// A group may read it, such as the group of all servers that use a certificate.
    GroupReads,
    /// All users may read it.
    AllRead,
}

/// Creates a folder with mode 700. An existing one must be as private and belong to this user.
///
/// # Errors
/// [`io::ErrorKind::PermissionDenied`] with the remedy, if others own the folder or can enter it.
pub fn private_directory(path: &Path) -> io::Result<()> {
    create_directory(path, Access::Owner)?;
    #[cfg(unix)]
    if let Some(what) = foreign(std::fs::metadata(path)?.uid(), user()) {
        // Root enters any folder; its owner can replace every file in it.
        return Err(refused(format!("{what}, or name a folder that does not exist yet")));
    }
    check_directory(path)
}

/// Refuses a folder that users other than its owner can read, change or enter. Root may use the
/// folders of other users, such as that of a service.
#[cfg_attr(not(unix), expect(unused_variables, reason = "other systems have no such modes"))]
pub fn check_directory(path: &Path) -> io::Result<()> {
    #[cfg(unix)]
    if std::fs::metadata(path)?.mode() & 0o077 != 0 {
        let folder = path.display();
        return Err(refused(format!(
            "others can read or change what is in it: chmod 700 {folder}, or name a folder that \
             does not exist yet"
        )));
    }
    Ok(())
}

/// Opens a file of this user or root that others can access at most as `others` allows.
///
/// # Errors
/// [`io::ErrorKind::PermissionDenied`] with the command that repairs it.
pub fn open_private(path: &Path, others: Others) -> io::Result<File> {
    let file = File::open(path)?;
    #[cfg(unix)]
    {
        // The open file, because the name may refer to another file by now.
        let facts = file.metadata()?;
        if let Some(what) = complaint((facts.mode(), facts.uid()), user(), others, path) {
            return Err(refused(what));
        }
    }
    #[cfg(not(unix))]
    let _ = others;
    Ok(file)
}

/// Reads a file that [`open_private`] accepts with [`Others::Nobody`].
///
/// # Errors
/// See [`open_private`]; [`io::ErrorKind::FileTooLarge`] if it has more than `bytes_max` bytes.
pub fn read_private(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    read_at_most(open_private(path, Others::Nobody)?, bytes_max)
}

/// Creates an empty file with mode 600 if it is missing, and removes the permissions of others from
/// an existing one of this user. For files that a library writes.
pub fn make_private(path: &Path) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false);
    #[cfg(unix)]
    options.mode(0o600);
    close_to_others(&options.open(path)?)
}

/// Removes the permissions of others from a regular file of this user, and of no other file.
pub fn close_to_others(file: &File) -> io::Result<()> {
    #[cfg(unix)]
    {
        let facts = file.metadata()?;
        let is_ours = facts.uid() == user();
        if facts.is_file() && is_ours && facts.mode() & 0o077 != 0 {
            let mode = facts.mode() & 0o700;
            file.set_permissions(std::fs::Permissions::from_mode(mode))?;
        }
    }
    #[cfg(not(unix))]
    let _ = file;
    Ok(())
}

#[cfg(unix)]
fn refused(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, what)
}

#[cfg(unix)]
fn user() -> u32 {
    nix::unistd::Uid::effective().as_raw()
}

#[cfg(unix)]
fn foreign(owner: u32, user: u32) -> Option<String> {
    let is_foreign = owner != user;
    is_foreign.then(|| format!("it belongs to user {owner}: chown it to the user of this program"))
}

/// Returns why a file with this mode and owner is refused to a user.
#[cfg(unix)]
fn complaint((mode, owner): (u32, u32), user: u32, others: Others, path: &Path) -> Option<String> {
    // The owner of a file can change its mode.
    if owner != 0
        && let Some(what) = foreign(owner, user)
    {
        return Some(what);
    }
    let is_handed_over = owner == 0 && user != 0;
    let (forbidden, wanted) = match others {
        Others::Nobody if !is_handed_over => (0o077, "600"),
        Others::Nobody | Others::GroupReads => (0o037, "640"),
        Others::AllRead => (0o022, "644"),
    };
    let verb = if mode & forbidden & 0o044 == 0 { "change" } else { "read" };
    let path = path.display();
    (mode & forbidden != 0).then(|| format!("others can {verb} it: chmod {wanted} {path}"))
}

#[cfg(all(test, unix))]
#[path = "private_tests.rs"]
mod tests;
