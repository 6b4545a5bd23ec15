//! Files with secrets: `underload_disk` has the rules, this module converts the errors.

use std::fs::File;
use std::io;
use std::path::Path;
use std::time::Duration;

use underload_disk::{self as disk, Access, Others};

use super::error::ServiceError;

/// Longest wait for another program that writes a line of known servers, or an identity.
pub const LOCK_PATIENCE: Duration = Duration::from_secs(20);

/// Reads a file that belongs to this user or to root and that no other user can open.
///
/// # Errors
/// Returns [`ServiceError::Keys`] if others have access to it, [`ServiceError::File`] if reading
/// fails.
pub fn read_secret(path: &Path) -> Result<Vec<u8>, ServiceError> {
    disk::read_private(path, BYTES_MAX).map_err(failed(path))
}

/// Opens a file that belongs to this user or to root. `others` is what other users may do with it.
pub fn open(path: &Path, others: Others) -> Result<File, ServiceError> {
    disk::open_private(path, others).map_err(failed(path))
}

/// Creates a folder of secrets if it is missing; rejects one that other users can enter.
pub fn directory(path: &Path) -> Result<(), ServiceError> {
    disk::private_directory(path).map_err(failed(path))
}

/// Writes a file that only its owner can open, see [`disk::write_whole`].
///
/// # Errors
/// Returns [`ServiceError::File`] if writing fails; the old file is unchanged then.
pub fn write(path: &Path, bytes: &[u8]) -> Result<(), ServiceError> {
    disk::write_whole(path, bytes, Access::Owner).map_err(failed(path))
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> ServiceError {
    let path = path.to_owned();
    // An error of the system call has no inner error; one of `underload_disk` has.
    |source| match source.get_ref() {
        Some(_) => ServiceError::Keys { path, what: source.to_string() },
        None => ServiceError::File { path, source },
    }
}

/// Largest secret in bytes.
const BYTES_MAX: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_belongs_to_its_user_or_to_root() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("keys");
        write(&path, b"a").unwrap();
        assert_eq!(read_secret(&path).unwrap(), b"a");
        if std::os::unix::fs::chown(&path, Some(4242), None).is_err() {
            eprintln!("SKIPPED the file of another user: giving one away needs root");
            return;
        }
        let error = read_secret(&path).unwrap_err().to_string();
        assert!(error.contains("belongs to user 4242"), "{error}");
    }
}
