//! A run's directory, and the files in it that the run created: no others are ever removed.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use underload_disk::{self as disk, Access, GrowingFile};

use crate::error::{Result, StoreError};
use crate::files::{JOURNAL, RECORD};

/// Checks that a directory is empty or missing.
///
/// # Errors
/// Returns [`StoreError::Exists`] if it has a run, and [`StoreError::Foreign`] if it has anything
/// else.
pub(crate) fn check_vacant(path: &Path) -> Result<()> {
    let entries = match fs::read_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        read => read.map_err(StoreError::io(path, "use as a directory"))?,
    };
    for entry in entries {
        let name = entry.map_err(StoreError::io(path, "read"))?.file_name();
        // Such a file is left if a program was killed before its run began.
        if name.to_string_lossy().starts_with(disk::UNFINISHED) {
            continue;
        }
        let holds_run = [RECORD, JOURNAL].iter().any(|name| path.join(name).exists());
        let path = path.to_owned();
        return Err(if holds_run {
            StoreError::Exists { path }
        } else {
            StoreError::Foreign { path }
        });
    }
    Ok(())
}

/// Locks a directory until the file is dropped or the program ends.
///
/// # Errors
/// Returns [`StoreError::Busy`] if another program has the lock.
pub(crate) fn lock(path: &Path) -> Result<File> {
    disk::lock_directory(path, Duration::ZERO).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => StoreError::Busy { path: path.to_owned() },
        _ => StoreError::io(path, "lock")(error),
    })
}

/// The directory of a run. Threads may add files concurrently.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    /// Whether the directory itself was created for this run.
    is_made: bool,
    made: Mutex<CreatedPaths>,
}

#[derive(Debug, Default)]
struct CreatedPaths {
    files: BTreeSet<PathBuf>,
    folders: Vec<PathBuf>,
}

impl Folder {
    pub(crate) fn create(path: PathBuf) -> Result<Folder> {
        check_vacant(&path)?;
        let made = disk::create_directory(&path, Access::Usual);
        let is_made = made.map_err(StoreError::io(&path, "create"))?;
        Ok(Folder { path, is_made, made: Mutex::default() })
    }

    /// Returns the directory of an earlier run, with the files and folders that it created.
    pub(crate) fn resume(path: PathBuf, files: BTreeSet<PathBuf>, folders: Vec<PathBuf>) -> Folder {
        Folder { path, is_made: false, made: Mutex::new(CreatedPaths { files, folders }) }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path of a folder in the directory, which is created if it is missing.
    pub(crate) fn folder(&self, name: &str) -> Result<PathBuf> {
        let path = self.path.join(name);
        disk::refuse_links(&self.path, &path).map_err(StoreError::io(&path, "create"))?;
        let is_new = disk::create_directory(&path, Access::Usual);
        if is_new.map_err(StoreError::io(&path, "create"))? {
            self.made().folders.push(path.clone());
        }
        Ok(path)
    }

    /// Writes a file that must not exist, completely or not at all.
    pub(crate) fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        disk::write_new(path, bytes, Access::Usual)?;
        self.made().files.insert(path.to_owned());
        Ok(())
    }

    /// Creates a file that must not exist, and grows.
    pub(crate) fn begin(&self, path: &Path) -> Result<GrowingFile> {
        let file = disk::create_new(path, Access::Usual).map_err(StoreError::io(path, "create"))?;
        self.made().files.insert(path.to_owned());
        Ok(file)
    }

    /// Removes a file that could not be written completely, to free a full disk.
    pub(crate) fn or_remove<T>(&self, path: &Path, written: Result<T>) -> Result<T> {
        if written.is_err() && self.made().files.remove(path) {
            // This error is ignored: the caller needs the first one.
            let _ = disk::remove(path);
        }
        written
    }

    /// Removes the run's files that `wanted` accepts, and the run's folders that are empty then.
    pub(crate) fn remove(&self, wanted: impl Fn(&Path) -> bool) -> Result<()> {
        let mut made = self.made();
        let files: Vec<PathBuf> = made.files.iter().filter(|path| wanted(path)).cloned().collect();
        let mut removed = Ok(());
        for path in files {
            made.files.remove(&path);
            // After an error, the other files are still removed.
            removed = removed.and(disk::remove(&path).map_err(StoreError::io(&path, "remove")));
        }
        for path in made.folders.iter().rev() {
            let gone = disk::remove_empty_directory(path);
            removed = removed.and(gone.map_err(StoreError::io(path, "remove")));
        }
        removed
    }

    /// Removes everything that was created for the run.
    pub(crate) fn remove_all(&self) -> Result<()> {
        self.remove(|_| true)?;
        if self.is_made {
            let gone = disk::remove_empty_directory(&self.path);
            gone.map_err(StoreError::io(&self.path, "remove"))?;
        }
        Ok(())
    }

    fn made(&self) -> MutexGuard<'_, CreatedPaths> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
