//! The directory that host and guest share: created for a trial, removed after it.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

const PREFIX: &str = "underload-guest-";
/// A directory that is younger may not be locked yet by the run that creates it.
const AGE_MIN: Duration = Duration::from_mins(1);

/// A directory that is locked while its trial runs, and removed with this value.
pub(super) struct Shared {
    directory: tempfile::TempDir,
    _lock: File,
}

impl Shared {
    pub(super) fn create() -> io::Result<Self> {
        let directory = tempfile::Builder::new().prefix(PREFIX).tempdir()?;
        let lock = File::open(directory.path())?;
        // On a file system without locks, the directory of a killed run remains.
        let _ = lock.try_lock();
        Ok(Self { directory, _lock: lock })
    }

    pub(super) fn path(&self) -> &Path {
        self.directory.path()
    }
}

/// Removes the directories that killed runs of this user left in `folder`.
pub(super) fn remove_left(folder: &Path) {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let named = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX));
    for path in named.map(|entry| entry.path()).filter(is_left) {
        // The next run removes it if this one cannot.
        let _ = fs::remove_dir_all(path);
    }
}

/// Whether this is a directory of this user that no run has locked.
fn is_left(path: &PathBuf) -> bool {
    let is_old_and_own = fs::symlink_metadata(path).is_ok_and(|found| {
        let age = found.modified().ok().and_then(|time| time.elapsed().ok());
        found.is_dir()
            && fs::metadata("/proc/self").is_ok_and(|own| own.uid() == found.uid())
            && age.is_some_and(|age| age >= AGE_MIN)
    });
    is_old_and_own && File::open(path).is_ok_and(|directory| directory.try_lock().is_ok())
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn only_old_directories_that_no_run_has_locked_are_removed() {
        let folder = tempfile::tempdir().expect("a folder");
        let create = |name: &str, age: Duration| {
            let path = folder.path().join(name);
            fs::create_dir(&path).expect("a directory");
            let time = SystemTime::now() - age;
            File::open(&path).and_then(|it| it.set_modified(time)).expect("its time is set");
            path
        };
        let hour = Duration::from_hours(1);
        let left = create("underload-guest-left", hour);
        let kept = [create("underload-guest-young", Duration::ZERO), create("other", hour)];
        let locked = create("underload-guest-locked", hour);
        let lock = File::open(&locked).expect("it opens");
        lock.try_lock().expect("it is free");
        let elsewhere = create("elsewhere", hour);
        fs::write(elsewhere.join("mine"), "mine").expect("written");
        let link = folder.path().join("underload-guest-link");
        std::os::unix::fs::symlink(&elsewhere, &link).expect("a link");
        remove_left(folder.path());
        assert!(!left.exists());
        assert!(kept.iter().chain([&locked, &link]).all(|path| path.exists()));
        assert!(elsewhere.join("mine").exists());
    }
}
