//! Files that are there whole or not at all, and never in the place of somebody else's.
//!
//! [`write_whole`] replaces a file, [`write_new`] makes one where none is; both go through a file
//! of an unpredictable name beside it, which is synced, renamed, and its directory synced: whoever
//! is killed, or loses power, leaves the old file or the new one. [`NewFile`] is the same for what
//! does not fit in memory. [`create_new`] opens a file that grows in place, and refuses one that is
//! there; [`reopen`] goes on with one, and a [`Journal`] has whole lines only. What holds secrets
//! goes through [`private_directory`] and [`open_private`], which refuse what others can open.
//! Every step on the file system passes `step`, where tests let it fail, stop, or lose what was not
//! synced (the feature `testkit`, module `faults`).

#[cfg(any(test, feature = "testkit"))]
pub mod faults;
mod journal;
mod private;
mod rights;

pub use journal::{Journal, Lines};
pub use private::{
    Others, check_directory, close_to_others, make_private, open_private, private_directory,
    read_private,
};

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Start of the names of files that are not finished. A killed program may leave one behind.
pub const UNFINISHED: &str = ".underload-";

/// Who may read a new file or enter a new folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Its owner alone.
    Owner,
    /// Whom the umask allows, or whom the file that it replaces allowed.
    Usual,
}

/// A step on the file system, with the path that it is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step<'a> {
    /// A new directory.
    CreateDirectory(&'a Path),
    /// A new file.
    Create(&'a Path),
    /// Writing bytes into a file.
    Write(&'a Path),
    /// A file's bytes to the disk.
    Sync(&'a Path),
    /// A finished file gets this name.
    Rename(&'a Path),
    /// A directory's names to the disk.
    SyncDirectory(&'a Path),
    /// A file goes away.
    Remove(&'a Path),
    /// A directory goes away.
    RemoveDirectory(&'a Path),
}

/// Takes a step, unless a test says that it fails.
fn step<T>(step: Step<'_>, take: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    #[cfg(any(test, feature = "testkit"))]
    return faults::pass(step, take);
    #[cfg(not(any(test, feature = "testkit")))]
    {
        let _ = step;
        take()
    }
}

/// Writes a file whole or not at all, in the place of the one that is there.
///
/// # Errors
/// What the file system said; the old file is unchanged then.
pub fn write_whole(path: &Path, bytes: &[u8], access: Access) -> io::Result<()> {
    let mut file = NewFile::beside(path, access)?;
    file.write_all(bytes)?;
    file.replace()
}

/// Writes a file whole or not at all, where none of its name is.
///
/// # Errors
/// [`io::ErrorKind::AlreadyExists`], or what the file system said.
pub fn write_new(path: &Path, bytes: &[u8], access: Access) -> io::Result<()> {
    let mut file = NewFile::beside(path, access)?;
    file.write_all(bytes)?;
    file.claim()
}

/// A file under another name until it is complete; removed if it never is.
#[derive(Debug)]
pub struct NewFile {
    file: GrowingFile,
    target: PathBuf,
    is_unfinished: bool,
}

impl NewFile {
    /// Begins a file that will be called `path`. A link is followed; what is there and is no file
    /// (a terminal, a pipe) is written to as it is.
    ///
    /// # Errors
    /// What the file system said, [`io::ErrorKind::IsADirectory`] for a directory.
    pub fn beside(path: &Path, access: Access) -> io::Result<Self> {
        let is_link = fs::symlink_metadata(path).is_ok_and(|facts| facts.is_symlink());
        // Links of these name what is open already, like the standard output.
        let is_open = is_link && ["/dev", "/proc"].iter().any(|start| path.starts_with(start));
        let mode = match (access, fs::metadata(path)) {
            (_, Ok(facts)) if facts.is_dir() => return Err(io::ErrorKind::IsADirectory.into()),
            (Access::Usual, Ok(facts)) if is_open || !facts.is_file() => return Self::device(path),
            (Access::Usual, Ok(facts)) => rights::of(&facts),
            (Access::Usual, Err(_)) => 0o666,
            (Access::Owner, _) => 0o600,
        };
        let target = if is_link { fs::canonicalize(path)? } else { path.to_owned() };
        let directory = directory_of(&target);
        let mut file = step(Step::Create(&target), || {
            let mut builder = tempfile::Builder::new();
            rights::give(builder.prefix(UNFINISHED), mode);
            builder.tempfile_in(directory)
        })?;
        // Removing it is a step of ours, like every other.
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

    /// The finished file, in the place of any other of its name.
    ///
    /// # Errors
    /// What the file system said; the file of that name is unchanged then, unless the disk could
    /// not confirm the change.
    pub fn replace(self) -> io::Result<()> {
        self.finish(|from, to| fs::rename(from, to))
    }

    /// As [`NewFile::replace`], for what can be made again and carries a checksum: after a power
    /// cut it may be there with other bytes.
    ///
    /// # Errors
    /// What the file system said; the file of that name is unchanged then.
    pub fn replace_unsynced(mut self) -> io::Result<()> {
        if self.is_unfinished {
            let (from, to) = (&self.file.path, &self.target);
            step(Step::Rename(to), || fs::rename(from, to))?;
            self.is_unfinished = false;
        }
        Ok(())
    }

    /// The finished file, if no other has its name.
    ///
    /// # Errors
    /// [`io::ErrorKind::AlreadyExists`], or what the file system said.
    pub fn claim(self) -> io::Result<()> {
        let target = self.target.clone();
        let mut is_claimed = false;
        let finished = self.finish(|from, to| {
            let from = tempfile::TempPath::try_from_path(from)?;
            from.persist_noclobber(to).map_err(|error| {
                // It is removed by us, as every unfinished file.
                drop(error.path.keep());
                error.error
            })?;
            is_claimed = true;
            Ok(())
        });
        if finished.is_err() && is_claimed {
            // Its name is not known to be on the disk: not at all, then.
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
            // What failed first is what the caller hears of.
            let _ = remove(&self.file.path);
        }
    }
}

/// A file that is written in place.
#[derive(Debug)]
pub struct GrowingFile {
    file: File,
    path: PathBuf,
}

/// Opens a new file for writing in place, whose reader copes with half of it.
///
/// # Errors
/// [`io::ErrorKind::AlreadyExists`], or what the file system said.
pub fn create_new(path: &Path, access: Access) -> io::Result<GrowingFile> {
    let create = || {
        let mut options = OpenOptions::new();
        rights::give_to(options.append(true).create_new(true), access);
        options.open(path)
    };
    Ok(GrowingFile { file: step(Step::Create(path), create)?, path: path.to_owned() })
}

/// Opens such a file again, to go on behind its end.
///
/// # Errors
/// [`io::ErrorKind::NotFound`], or what the file system said.
pub fn reopen(path: &Path) -> io::Result<GrowingFile> {
    let open = || OpenOptions::new().append(true).open(path);
    Ok(GrowingFile { file: step(Step::Write(path), open)?, path: path.to_owned() })
}

impl GrowingFile {
    /// Brings what was written to the disk.
    ///
    /// # Errors
    /// The error of the system call, for example that the disk is full.
    pub fn sync(&self) -> io::Result<()> {
        step(Step::Sync(&self.path), || self.file.sync_all())
    }

    /// Takes back what was written beyond so many bytes.
    ///
    /// # Errors
    /// The error of the system call.
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

/// Makes a directory and those above it where they are missing. True if this call made it.
///
/// # Errors
/// The error of the system call.
pub fn create_directory(path: &Path, access: Access) -> io::Result<bool> {
    if path.is_dir() {
        return Ok(false);
    }
    let parent = directory_of(path);
    if parent != path {
        create_directory(parent, access)?;
    }
    let mode = if access == Access::Owner { 0o700 } else { 0o777 };
    let made = step(Step::CreateDirectory(path), || rights::make_folder(path, mode));
    match made {
        Ok(()) => {
            let synced = sync_directory(parent);
            if synced.is_err() {
                // Not known to be on the disk: not at all, then.
                let _ = remove_empty_directory(path);
            }
            synced.map(|()| true)
        }
        // Somebody else was quicker.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(false),
        Err(error) => Err(error),
    }
}

/// Refuses a path below `root` in which a link leads elsewhere: a directory that somebody else made
/// could have files changed that are not in it. `root` itself may be a link.
///
/// # Errors
/// [`io::ErrorKind::PermissionDenied`] with the link to remove, or the error of the system call.
pub fn refuse_links(root: &Path, path: &Path) -> io::Result<()> {
    let below = path.ancestors().take_while(|path| *path != root);
    let is_link = |path: &&Path| fs::symlink_metadata(path).is_ok_and(|facts| facts.is_symlink());
    below.filter(is_link).last().map_or(Ok(()), |link| {
        let what = format!("{} is a link, which is not followed: remove it", link.display());
        Err(io::Error::new(io::ErrorKind::PermissionDenied, what))
    })
}

/// Brings the names in a directory to the disk.
///
/// # Errors
/// What the disk said. File systems that cannot sync a directory do not fail for it.
pub fn sync_directory(path: &Path) -> io::Result<()> {
    step(Step::SyncDirectory(path), || rights::sync_names(path))
}

/// Brings the bytes of files to the disk, several side by side: file systems then write their
/// journal once for many.
///
/// # Errors
/// The error of the first file that could not be synced.
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
            // Where there is no thread to be had it only takes longer.
            spawned.map_err(|_| sync(paths))
        });
        let threads: Vec<_> = threads.collect();
        threads.into_iter().try_for_each(|thread| match thread {
            Ok(thread) => thread.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into())),
            Err(synced) => synced,
        })
    })
}

/// Files from which on several threads sync them, and how many.
const SYNCED_BY_ONE: usize = 4;
const SYNCED_AT_ONCE: usize = 16;

/// Removes a file.
///
/// # Errors
/// What the file system said; one that is gone already is none.
pub fn remove(path: &Path) -> io::Result<()> {
    gone(step(Step::Remove(path), || fs::remove_file(path)))
}

/// Removes a directory if nothing is in it. What is left in it stays, and it with it.
///
/// # Errors
/// The error of the system call.
pub fn remove_empty_directory(path: &Path) -> io::Result<()> {
    match gone(step(Step::RemoveDirectory(path), || fs::remove_dir(path))) {
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(()),
        done => done,
    }
}

fn gone(removed: io::Result<()>) -> io::Result<()> {
    removed.or_else(|error| match error.kind() {
        io::ErrorKind::NotFound => Ok(()),
        _ => Err(error),
    })
}

/// Locks a directory against other programs that change the same file of it, until the result is
/// dropped or the program ends, however it ends.
///
/// # Errors
/// What the file system said, [`io::ErrorKind::WouldBlock`] if another one has it for longer than
/// `patience`. Where the file system has no locks there is none, and no error.
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

/// The directory that a path's last name is in.
pub fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        Some(_) => Path::new("."),
        None => path,
    }
}

#[cfg(test)]
mod tests;
