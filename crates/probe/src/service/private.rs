//! Files that hold secrets: who may read them, and that they are written whole or not at all.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use nix::unistd::Uid;
use underload_disk::{self as disk, Access};

use super::ServiceError;

/// Bytes of such a file that are read at most.
const BYTES_MAX: u64 = 1 << 20;

/// Reads a file that belongs to this user or to root and that nobody else can open.
///
/// # Errors
/// [`ServiceError::File`] for what the file system says, [`ServiceError::Keys`] if others have
/// access to it.
pub fn read_secret(path: &Path) -> Result<Vec<u8>, ServiceError> {
    let file = open(path, 0o077)?;
    let mut bytes = Vec::new();
    let read = file.take(BYTES_MAX).read_to_end(&mut bytes);
    read.map_err(|source| ServiceError::File { path: path.to_owned(), source })?;
    Ok(bytes)
}

/// Refuses a file that belongs to another user, or whose mode has one of the bits `forbidden`.
///
/// # Errors
/// As [`read_secret`].
pub(super) fn check(path: &Path, forbidden: u32) -> Result<(), ServiceError> {
    open(path, forbidden).map(drop)
}

/// Writes a file that only its owner can open, see [`disk::write_whole`].
///
/// # Errors
/// [`ServiceError::File`] for what the file system says; the old file is unchanged then.
pub(super) fn write(path: &Path, bytes: &[u8]) -> Result<(), ServiceError> {
    disk::write_whole(path, bytes, Access::Owner)
        .map_err(|source| ServiceError::File { path: path.to_owned(), source })
}

fn open(path: &Path, forbidden: u32) -> Result<File, ServiceError> {
    let failed = |source| ServiceError::File { path: path.to_owned(), source };
    let wrong = |what: String| ServiceError::Keys { path: path.to_owned(), what };
    let file = File::open(path).map_err(failed)?;
    // Of the open file: a name may mean another one by now.
    let facts = file.metadata().map_err(failed)?;
    if facts.mode() & forbidden != 0 {
        return Err(wrong(format!("others can read it: chmod 600 {}", path.display())));
    }
    if !is_trusted(facts.uid(), Uid::effective().as_raw()) {
        let owner = facts.uid();
        return Err(wrong(format!("it belongs to user {owner}: chown it to the server's user")));
    }
    Ok(file)
}

/// Whoever owns a file can give himself access to it.
fn is_trusted(owner: u32, user: u32) -> bool {
    owner == user || owner == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_belongs_to_its_user_or_to_root() {
        assert!(is_trusted(1000, 1000) && is_trusted(0, 1000) && is_trusted(0, 0));
        assert!(!is_trusted(1001, 1000) && !is_trusted(1000, 0));
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("keys");
        write(&path, b"a").unwrap();
        assert_eq!(read_secret(&path).unwrap(), b"a");
        if !Uid::effective().is_root() {
            eprintln!("SKIPPED the file of another user: giving one away needs root");
            return;
        }
        std::os::unix::fs::chown(&path, Some(4242), None).unwrap();
        let error = read_secret(&path).unwrap_err().to_string();
        assert!(error.contains("belongs to user 4242"), "{error}");
    }
}
