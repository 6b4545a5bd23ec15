//! The records of changes, one file for each device, and the lock against other processes.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use underload_disk::lock::{self, Lock};
use underload_disk::{Access, write_whole};

use crate::record::{Record, RecordError};

/// How long this process waits for the lock of another.
const PATIENCE: Duration = Duration::from_secs(20);
/// Prefix of the names of locks and records.
const NAME: &str = "shape";
/// The name of the lock of all kernel queues, and prefix of the names of their records.
const KERNEL_QUEUES: &str = "kernel-queue";

/// Why records cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    #[error(
        "no directory for the record of changes: expected /run to be writable for root, or \
         XDG_RUNTIME_DIR to name a directory of this user"
    )]
    NoDirectory,
    #[error("another underload changes queues, or /run is full (waited {} s)", PATIENCE.as_secs())]
    Busy,
    #[error("{}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error(
        "{} cannot be read: compare the queues (`tc qdisc show`), then remove it", path.display()
    )]
    Record { path: PathBuf, source: RecordError },
}

/// The records of the network that this process is in.
#[derive(Debug, Clone)]
pub struct Folder {
    directory: PathBuf,
    network: u64,
}

impl Folder {
    /// Opens the directory of this user's records.
    ///
    /// # Errors
    /// Returns [`FolderError::NoDirectory`] if no directory is safe from other users.
    pub fn open() -> Result<Self, FolderError> {
        let directory = lock::directory().ok_or(FolderError::NoDirectory)?;
        let network = std::fs::metadata("/proc/self/ns/net").map_or(0, |facts| facts.ino());
        Ok(Self { directory, network })
    }

    /// Waits for the lock, which is released when dropped or when this process ends.
    ///
    /// # Errors
    /// Returns [`FolderError::Busy`] if another process does not release it.
    pub fn lock(&self) -> Result<Lock, FolderError> {
        wait_for(&format!("{NAME}-{}", self.network))
    }

    /// Waits for the lock of kernel queues, whose programs all networks share, and for that of this
    /// network.
    ///
    /// # Errors
    /// Returns [`FolderError::Busy`] if another process does not release one.
    pub fn lock_kernel_queues(&self) -> Result<(Lock, Lock), FolderError> {
        Ok((wait_for(KERNEL_QUEUES)?, self.lock()?))
    }

    /// Returns the path of the record of a device.
    pub fn path(&self, index: u64) -> PathBuf {
        self.directory.join(format!("{NAME}-{}-{index}.json", self.network))
    }

    /// Returns the path of the super-packets that a device allowed before a kernel queue.
    pub fn offload_path(&self, index: u64) -> PathBuf {
        self.directory.join(format!("{KERNEL_QUEUES}-{}-{index}", self.network))
    }

    /// Writes the record of a device, whole or not at all.
    ///
    /// # Errors
    /// Returns the file that could not be written.
    pub fn write(&self, record: &Record) -> Result<(), FolderError> {
        let path = self.path(record.index);
        let text = record.to_text().map_err(io::Error::from);
        let written = text.and_then(|text| write_whole(&path, text.as_bytes(), Access::Owner));
        written.map_err(|source| FolderError::File { path, source })
    }

    /// Removes the record of a device.
    ///
    /// # Errors
    /// Returns the file that could not be removed.
    pub fn remove(&self, index: u64) -> Result<(), FolderError> {
        let path = self.path(index);
        underload_disk::remove(&path).map_err(|source| FolderError::File { path, source })
    }

    /// Returns all records of this network, by the number of the device, and the errors of those
    /// that cannot be read.
    ///
    /// # Errors
    /// Returns the directory if it cannot be read.
    pub fn records(&self) -> Result<(Vec<Record>, Vec<FolderError>), FolderError> {
        let prefix = format!("{NAME}-{}-", self.network);
        let error = |source| FolderError::File { path: self.directory.clone(), source };
        let (mut records, mut unreadable) = (Vec::new(), Vec::new());
        for entry in std::fs::read_dir(&self.directory).map_err(error)? {
            let path = entry.map_err(error)?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if name.starts_with(&prefix) && name.ends_with(".json") {
                match read(&path) {
                    Ok(record) => records.extend(record),
                    Err(error) => unreadable.push(error),
                }
            }
        }
        records.sort_by_key(|record| record.index);
        Ok((records, unreadable))
    }
}

fn wait_for(name: &str) -> Result<Lock, FolderError> {
    let start = Instant::now();
    loop {
        if let Some(lock) = Lock::take(name) {
            return Ok(lock);
        }
        if start.elapsed() > PATIENCE {
            return Err(FolderError::Busy);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Reads a record; `None` if it was removed.
///
/// # Errors
/// Returns the file that could not be read.
pub fn read(path: &Path) -> Result<Option<Record>, FolderError> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(FolderError::File { path: path.to_owned(), source }),
    };
    let record = Record::parse(&text);
    record.map(Some).map_err(|source| FolderError::Record { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_queues_of_all_networks_share_a_lock() {
        let folder = Folder::open().expect("a directory");
        let other = Folder { network: folder.network + 1, ..folder.clone() };
        let held = folder.lock_kernel_queues().expect("free soon");
        assert!(Lock::take(KERNEL_QUEUES).is_none());
        drop(other.lock().expect("shapers of another network do not wait"));
        drop(held);
        other.lock_kernel_queues().expect("free");
    }
}
