//! Durable files, which exist whole or not at all, and private files.
//!
//! [`write_whole`] replaces a file and [`write_new`] creates one. Both write a file with an
//! unpredictable name beside it, sync and rename it, and sync its directory: after a kill or a
//! power cut there is the old file or the new one. [`NewFile`] does the same for data that does not
//! fit in memory. [`create_new`] creates a file that grows in place, [`reopen`] continues it, and a
//! [`Journal`] keeps only its complete lines. Secrets go through [`private_directory`] and
//! [`open_private`], which refuse what others can open. Every step on the file system goes through
//! `step`, where tests let it fail, stop, or lose what was not synced (the feature `testkit`,
//! module `faults`).

#[cfg(any(test, feature = "testkit"))]
#[path = "../tests/support/faults.rs"]
pub mod faults;
pub mod folders;
mod journal;
#[cfg(target_os = "linux")]
pub mod lock;
mod private;
mod rights;

pub use journal::{Journal, Lines};
pub use private::{
    Others, check_directory, close_to_others, make_private, open_private, private_directory,
    read_private,
};

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Prefix of the names of unfinished files. A killed program may leave some behind.
pub const UNFINISHED: &str = ".underload-";

/// Users that can read a new file or enter a new directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    Owner,
    /// Users that the umask allows, or that the replaced file allowed.
    Usual,
}

/// A step on the file system, with its path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step<'a> {
    CreateDirectory(&'a Path),
    Create(&'a Path),
    /// Bytes are written to a file.
    Write(&'a Path),
    /// The bytes of a file are synced.
    Sync(&'a Path),
    /// A finished file is renamed to this path.
    Rename(&'a Path),
    SyncDirectory(&'a Path),
    Remove(&'a Path),
    RemoveDirectory(&'a Path),
}

/// Executes a step, unless a test lets it fail.
fn step<T>(step: Step<'_>, take: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    #[cfg(any(test, feature = "testkit"))]
    return faults::pass(step, take);
    #[cfg(not(any(test, feature = "testkit")))]
    {
        let _ = step;
        take()
    }
}

/// Replaces or creates a file whole, or not at all: after an error the old one is unchanged.
pub fn write_whole(path: &Path, bytes: &[u8], access: Access) -> io::Result<()> {
    let mut file = NewFile::beside(path, access)?;
    file.write_all(bytes)?;
    file.replace()
}

/// Writes a file whole or not at all.
///
/// # Errors
/// [`io::ErrorKind::AlreadyExists`] if the file exists.
pub fn write_new(path: &Path, bytes: &[u8], access: Access) -> io::Result<()> {
    let mut file = NewFile::beside(path, access)?;
    file.write_all(bytes)?;
    file.claim()
}

/// A file with a temporary name until it is complete. Dropping an incomplete one removes it.
#[derive(Debug)]
pub struct NewFile {
    file: GrowingFile,
    target: PathBuf,
    is_unfinished: bool,
}

impl NewFile {
    /// Begins a file with the final name `path`. A link is followed; a terminal or a pipe is
    /// written to directly.
    ///
    /// # Errors
    /// [`io::ErrorKind::IsADirectory`] for a directory.
    pub fn beside(path: &Path, access: Access) -> io::Result<Self> {
        let is_link = fs::symlink_metadata(path).is_ok_and(|facts| facts.is_symlink());
        // Links in these directories name open files, such as the standard output.
        let is_open = is_link && ["/dev", "/proc"].iter().any(|start| path.starts_with(start));
        let mode = match (access, fs::metadata(path)) {
            (_, Ok(facts)) if facts.is_dir() => return Err(io::ErrorKind::IsADirectory.into()),
            (Access::Usual, Ok(facts)) if is_open || !facts.is_file() => return Self::device(path),
            (Access::Usual, Ok(facts)) => rights::mode(&facts),
            (Access::Usual, Err(_)) => 0o666,
            (Access::Owner, _) => 0o600,
        };
        let target = if is_link { fs::canonicalize(path)? } else { path.to_owned() };
        let directory = directory_of(&target);
        let mut file = step(Step::Create(&target), || {
            let mut builder = tempfile::Builder::new();
            rights::set_mode(builder.prefix(UNFINISHED), mode);
            builder.tempfile_in(directory).map_err(without_path)
        })?;
        // Removing the file has to be a `step`.
        file.disable_cleanup(true);
        let (file, path) = file.into_parts();
        let file = GrowingFile { file, path: path.keep().map_err(|error| error.error)? };
        Ok(Self { file, target, is_unfinished: true })
    }

    fn device(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().write(true).truncate(true).open(path)?;
        let file = GrowingFile { file, path: path.to_owned() };
        Ok(Self { file, target: path.to_owned(), is_unfinished: false })
    }

    /// Finishes the file and replaces an existing one, which is unchanged after an error unless the
    /// disk could not confirm the rename.
    pub fn replace(self) -> io::Result<()> {
        self.finish(|from, to| fs::rename(from, to))
    }

    /// Like [`NewFile::replace`] but without syncing, for data that can be made again and has a
    /// checksum: after a power cut the file may have other bytes.
    pub fn replace_unsynced(mut self) -> io::Result<()> {
        if self.is_unfinished {
            let (from, to) = (&self.file.path, &self.target);
            step(Step::Rename(to), || fs::rename(from, to))?;
            self.is_unfinished = false;
        }
        Ok(())
    }

    /// Finishes the file if no file with its name exists.
    ///
    /// # Errors
    /// [`io::ErrorKind::AlreadyExists`] if a file with its name exists.
    pub fn claim(self) -> io::Result<()> {
        let target = self.target.clone();
        let mut is_claimed = false;
        let finished = self.finish(|from, to| {
            let from = tempfile::TempPath::try_from_path(from)?;
            from.persist_noclobber(to).map_err(|error| {
                // Dropping `self` removes the file.
                drop(error.path.keep());
                error.error
            })?;
            is_claimed = true;
            Ok(())
        });
        if finished.is_err() && is_claimed {
            // The name may not be on the disk, so the file must not exist.
            let _ = remove(&target);
        }
        finished
    }

    fn finish(mut self, rename: impl FnOnce(&Path, &Path) -> io::Result<()>) -> io::Result<()> {
        if !self.is_unfinished {
            return self.file.flush();
        }
        self.file.sync()?;
        step(Step::Rename(&self.target), || rename(&self.file.path, &self.target))?;
        self.is_unfinished = false;
        sync_directory(directory_of(&self.target))
    }
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if self.is_unfinished {
            // The caller receives the first error.
            let _ = remove(&self.file.path);
        }
    }
}

/// Removes the name of the temporary file from an error; callers name the file that they write.
fn without_path(error: io::Error) -> io::Error {
    match error.to_string().split_once(" at path ") {
        Some((cause, _)) => io::Error::new(error.kind(), cause),
        None => error,
    }
}

/// A file that grows in place.
#[derive(Debug)]
pub struct GrowingFile {
    file: File,
    path: PathBuf,
}

/// Creates a file that grows in place, whose reader accepts an incomplete end.
///
/// # Errors
/// [`io::ErrorKind::AlreadyExists`] if the file exists.
pub fn create_new(path: &Path, access: Access) -> io::Result<GrowingFile> {
    let create = || {
        let mut options = OpenOptions::new();
        rights::set_access(options.append(true).create_new(true), access);
        options.open(path)
    };
    Ok(GrowingFile { file: step(Step::Create(path), create)?, path: path.to_owned() })
}

/// Opens a file of [`create_new`] to append to it.
pub fn reopen(path: &Path) -> io::Result<GrowingFile> {
    let open = || OpenOptions::new().append(true).open(path);
    Ok(GrowingFile { file: step(Step::Write(path), open)?, path: path.to_owned() })
}

impl GrowingFile {
    /// Syncs the bytes that were written.
    pub fn sync(&self) -> io::Result<()> {
        step(Step::Sync(&self.path), || self.file.sync_all())
    }

    pub fn cut(&self, bytes: u64) -> io::Result<()> {
        step(Step::Write(&self.path), || self.file.set_len(bytes))
    }
}

impl Write for GrowingFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        step(Step::Write(&self.path), || self.file.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Creates a directory and its missing ancestors. Returns whether this call created it.
pub fn create_directory(path: &Path, access: Access) -> io::Result<bool> {
    if path.is_dir() {
        return Ok(false);
    }
    let parent = directory_of(path);
    if parent != path {
        create_directory(parent, access)?;
    }
    let mode = if access == Access::Owner { 0o700 } else { 0o777 };
    let made = step(Step::CreateDirectory(path), || rights::create_folder(path, mode));
    match made {
        Ok(()) => {
            let synced = sync_directory(parent);
            if synced.is_err() {
                // The name may not be on the disk, so the directory must not exist.
                let _ = remove_empty_directory(path);
            }
            synced.map(|()| true)
        }
        // Another program created it first.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(false),
        Err(error) => Err(error),
    }
}

/// Refuses a path below `root` that contains a link: the creator of a directory could otherwise
/// redirect writes to files outside of it. `root` itself may be a link.
///
/// # Errors
/// [`io::ErrorKind::PermissionDenied`] with the link to remove.
pub fn refuse_links(root: &Path, path: &Path) -> io::Result<()> {
    let below = path.ancestors().take_while(|path| *path != root);
    let is_link = |path: &&Path| fs::symlink_metadata(path).is_ok_and(|facts| facts.is_symlink());
    below.filter(is_link).last().map_or(Ok(()), |link| {
        let what = format!("{} is a link, which is not followed: remove it", link.display());
        Err(io::Error::new(io::ErrorKind::PermissionDenied, what))
    })
}

/// Syncs the names in a directory. Succeeds on file systems that cannot sync directories.
pub fn sync_directory(path: &Path) -> io::Result<()> {
    step(Step::SyncDirectory(path), || rights::sync_names(path))
}

/// Syncs files at once: file systems write one journal for many. Returns the first error.
pub fn sync_files(paths: &[PathBuf]) -> io::Result<()> {
    let sync = |paths: &[PathBuf]| {
        let one = |path: &PathBuf| step(Step::Sync(path), || rights::sync_bytes(path));
        paths.iter().try_for_each(one)
    };
    if paths.len() <= SYNCED_BY_ONE {
        return sync(paths);
    }
    let sync = &sync;
    std::thread::scope(|scope| {
        let share = paths.len().div_ceil(SYNCED_AT_ONCE);
        let threads = paths.chunks(share).map(|paths| {
            let spawned = std::thread::Builder::new().spawn_scoped(scope, move || sync(paths));
            // Without a thread, syncing only takes longer.
            spawned.map_err(|_| sync(paths))
        });
        let threads: Vec<_> = threads.collect();
        threads.into_iter().try_for_each(|thread| match thread {
            Ok(thread) => thread.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into())),
            Err(synced) => synced,
        })
    })
}

/// Number of files above which threads sync them, and number of threads.
const SYNCED_BY_ONE: usize = 4;
const SYNCED_AT_ONCE: usize = 16;

/// Removes a file. Succeeds if the file is missing.
pub fn remove(path: &Path) -> io::Result<()> {
    ignore_missing(step(Step::Remove(path), || fs::remove_file(path)))
}

/// Removes a directory if it is empty, and succeeds if it is not.
pub fn remove_empty_directory(path: &Path) -> io::Result<()> {
    match ignore_missing(step(Step::RemoveDirectory(path), || fs::remove_dir(path))) {
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(()),
        done => done,
    }
}

fn ignore_missing(removed: io::Result<()>) -> io::Result<()> {
    removed.or_else(|error| match error.kind() {
        io::ErrorKind::NotFound => Ok(()),
        _ => Err(error),
    })
}

/// Locks a directory against other programs that change the same file in it, until the result is
/// dropped or the program ends. Succeeds on file systems without locks.
///
/// # Errors
/// [`io::ErrorKind::WouldBlock`] if another program holds the lock for longer than `patience`.
pub fn lock_directory(path: &Path, patience: Duration) -> io::Result<File> {
    let directory = File::open(path)?;
    let start = Instant::now();
    loop {
        match directory.try_lock() {
            Ok(()) | Err(TryLockError::Error(_)) => return Ok(directory),
            Err(TryLockError::WouldBlock) if start.elapsed() < patience => {
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(TryLockError::WouldBlock) => return Err(io::ErrorKind::WouldBlock.into()),
        }
    }
}

/// Reads a file of at most `bytes_max` bytes. A regular file of length 0 is empty, also if the kernel
/// makes its content: some such files never end, such as `/proc/kmsg`.
///
/// # Errors
/// [`io::ErrorKind::FileTooLarge`] if it has more.
pub fn read_file(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    if metadata.is_file() && metadata.len() == 0 {
        return Ok(Vec::new());
    }
    read_at_most(file, bytes_max)
}

/// Reads all of `source`, at most `bytes_max` bytes.
///
/// # Errors
/// [`io::ErrorKind::FileTooLarge`] if it has more.
pub fn read_at_most(source: impl Read, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    source.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        let what = format!("more than {bytes_max} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, what));
    }
    Ok(bytes)
}

pub fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        Some(_) => Path::new("."),
        None => path,
    }
}

#[cfg(test)]
mod tests;
