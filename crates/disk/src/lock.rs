//! Locks that a process holds until it releases them or ends.
//!
//! A lock is a file that is locked (`flock`) in a directory that only its user can write to:
//! `/run/underload` for root, `$XDG_RUNTIME_DIR/underload` for others. Other users cannot take it,
//! as they could take an abstract socket. If neither directory is available (in a user namespace),
//! an abstract socket is used: only processes of the same network could take it, and those are all
//! of this user.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::unistd::geteuid;

/// A lock, which is released when dropped.
#[derive(Debug)]
pub struct Lock {
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    File { path: PathBuf, _file: Flock<File> },
    Socket { _listener: UnixListener },
}

const SYSTEM_DIRECTORY: &str = "/run/underload";
/// Number of attempts if other processes remove the file between opening and locking.
const TRIES: u32 = 16;

impl Lock {
    /// Takes the lock `name`; `None` if another process has it.
    pub fn take(name: &str) -> Option<Self> {
        match directory() {
            Some(directory) => Self::from_file(&directory, name),
            None => Self::from_socket(name),
        }
    }

    fn from_file(directory: &Path, name: &str) -> Option<Self> {
        let path = directory.join(format!("{name}.lock"));
        for _ in 0..TRIES {
            let mut options = OpenOptions::new();
            options.write(true).create(true).truncate(false).mode(0o600);
            let file = options.custom_flags(nix::libc::O_NOFOLLOW).open(&path).ok()?;
            let file = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                Ok(file) => file,
                Err((_, Errno::EINTR)) => continue,
                Err(_) => return None,
            };
            // Between opening and locking, the last holder may have removed the name.
            if is_at(&file, &path) {
                return Some(Self { kind: Kind::File { path, _file: file } });
            }
        }
        None
    }

    fn from_socket(name: &str) -> Option<Self> {
        let address = SocketAddr::from_abstract_name(format!("underload-{name}")).ok()?;
        let listener = UnixListener::bind_addr(&address).ok()?;
        Some(Self { kind: Kind::Socket { _listener: listener } })
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Still locked: a process that waits for it finds the name missing, and creates another.
        if let Kind::File { path, .. } = &self.kind {
            let _ = fs::remove_file(path);
        }
    }
}

fn is_at(file: &File, path: &Path) -> bool {
    let inode = |metadata: io::Result<fs::Metadata>| metadata.ok().map(|it| (it.dev(), it.ino()));
    inode(file.metadata()).is_some_and(|own| inode(fs::symlink_metadata(path)) == Some(own))
}

/// Returns the directory of this user's locks, which is created if it is missing: files that last
/// until the machine restarts. `None` if no directory is safe from other users.
pub fn directory() -> Option<PathBuf> {
    let own = crate::folders::runtime();
    let system = geteuid().is_root().then(|| PathBuf::from(SYSTEM_DIRECTORY));
    system.into_iter().chain(own.filter(|path| path.is_absolute())).find(|path| is_ours(path))
}

/// Whether `path` is, or can be created as, a directory that only this user can write to.
fn is_ours(path: &Path) -> bool {
    let _ = DirBuilder::new().mode(0o700).create(path);
    let writable_by_others = 0o022;
    let is_safe = |it: fs::Metadata| {
        it.is_dir() && it.uid() == geteuid().as_raw() && it.mode() & writable_by_others == 0
    };
    fs::symlink_metadata(path).is_ok_and(is_safe)
        && nix::unistd::access(path, nix::unistd::AccessFlags::W_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_released_lock_can_be_taken_by_another() {
        let directory = tempfile::tempdir().expect("a directory");
        let held = Lock::from_file(directory.path(), "a").expect("free");
        assert!(Lock::from_file(directory.path(), "a").is_none());
        assert!(Lock::from_file(directory.path(), "b").is_some());
        drop(held);
        assert_eq!(fs::read_dir(directory.path()).expect("a directory").count(), 0);
        assert!(Lock::from_file(directory.path(), "a").is_some());
    }

    #[test]
    fn a_lock_file_of_a_dead_process_is_free() {
        let directory = tempfile::tempdir().expect("a directory");
        fs::write(directory.path().join("a.lock"), "").expect("a file");
        assert!(Lock::from_file(directory.path(), "a").is_some());
    }

    #[test]
    fn a_symbolic_link_is_not_followed() {
        let directory = tempfile::tempdir().expect("a directory");
        let victim = directory.path().join("victim");
        std::os::unix::fs::symlink(&victim, directory.path().join("a.lock")).expect("a link");
        assert!(Lock::from_file(directory.path(), "a").is_none());
        assert!(!victim.exists());
    }

    #[test]
    fn a_directory_that_others_can_write_to_holds_no_locks() {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = tempfile::tempdir().expect("a directory");
        assert!(is_ours(&directory.path().join("new")));
        let open = directory.path().join("open");
        fs::create_dir(&open).expect("a directory");
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).expect("a mode");
        assert!(!is_ours(&open));
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(directory.path(), &link).expect("a link");
        assert!(!is_ours(&link));
    }

    #[test]
    fn two_threads_never_hold_the_lock_at_once() {
        use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
        let directory = tempfile::tempdir().expect("a directory");
        let (holders, takes) = (AtomicU32::new(0), AtomicU32::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        let Some(_held) = Lock::from_file(directory.path(), "a") else { continue };
                        assert_eq!(holders.fetch_add(1, SeqCst), 0);
                        takes.fetch_add(1, SeqCst);
                        holders.fetch_sub(1, SeqCst);
                    }
                });
            }
        });
        assert!(takes.load(SeqCst) > 0, "the premise: somebody took it");
    }
}
