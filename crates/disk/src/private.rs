//! Files and folders with secrets, which only their owner may open.
//!
//! A folder that others can enter is refused, because a database chooses the permissions of the
//! files in it. A single file, such as a key, is checked by its mode and owner. Systems without
//! numeric modes (Windows) refuse nothing.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::path::Path;

#[cfg(unix)]
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};

use super::{Access, create_directory};

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

/// Creates a folder with mode 700 if it is missing. An existing folder must be as private and
/// belong to this user.
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
///
/// # Errors
/// See [`private_directory`].
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

/// Opens a file that belongs to this user or to root and that others can access at most as `others`
/// allows.
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
    let mut bytes = Vec::new();
    open_private(path, Others::Nobody)?.take(bytes_max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(bytes)
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

/// Removes the permissions of others from a regular file of this user. Terminals, pipes and files
/// of other users are left alone.
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
mod tests {
    use std::fs::{self, Permissions};

    use super::*;

    fn set(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o777
    }

    #[test]
    fn a_folder_is_made_private_and_one_that_others_can_enter_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("a/b");
        private_directory(&folder).unwrap();
        assert_eq!((mode(&folder), mode(folder.parent().unwrap())), (0o700, 0o700));
        // The folders above may be open to all, like /var/lib and /tmp.
        set(folder.parent().unwrap(), 0o1777);
        private_directory(&folder).unwrap();
        for exposed in [0o755, 0o750, 0o710, 0o701, 0o720, 0o1777] {
            set(&folder, exposed);
            let error = private_directory(&folder).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{exposed:o}");
            let remedy = format!("chmod 700 {}", folder.display());
            assert!(error.to_string().contains(&remedy), "{exposed:o}: {error}");
            assert_eq!(mode(&folder), exposed & 0o777, "it is left as it is");
        }
        // A link is checked by its target.
        let link = root.path().join("link");
        std::os::unix::fs::symlink(&folder, &link).unwrap();
        assert!(private_directory(&link).is_err());
        set(&folder, 0o700);
        private_directory(&link).unwrap();
    }

    #[test]
    fn a_private_folder_of_another_user_is_refused_and_may_be_read() {
        if user() != 0 {
            eprintln!("SKIPPED a folder of another user: only root can give folders away");
            return;
        }
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("theirs");
        fs::create_dir(&folder).unwrap();
        set(&folder, 0o700);
        std::os::unix::fs::chown(&folder, Some(4_870), None).unwrap();
        let error = private_directory(&folder).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        assert!(error.to_string().contains("belongs to user 4870: chown it"), "{error}");
        check_directory(&folder).unwrap();
    }

    #[test]
    fn a_file_is_read_by_its_mode_and_its_owner() {
        use Others::{AllRead, GroupReads, Nobody};

        let told = |mode, owner, user, others| {
            complaint((mode, owner), user, others, Path::new("key")).unwrap_or_default()
        };
        for (mode, owner, user, others) in [
            (0o100_600, 1000, 1000, Nobody),
            (0o100_400, 0, 0, Nobody),
            (0o100_440, 0, 1000, Nobody),
            (0o100_640, 1000, 1000, GroupReads),
            (0o100_644, 1000, 1000, AllRead),
        ] {
            assert_eq!(told(mode, owner, user, others), "", "{mode:o} {owner} {user}");
        }
        for (mode, owner, user, others, words) in [
            (0o100_640, 1000, 1000, Nobody, "others can read it: chmod 600 key"),
            (0o100_604, 0, 0, Nobody, "others can read it: chmod 600 key"),
            (0o100_620, 1000, 1000, Nobody, "others can change it: chmod 600 key"),
            (0o100_440, 0, 0, Nobody, "others can read it: chmod 600 key"),
            (0o100_444, 0, 1000, Nobody, "others can read it: chmod 640 key"),
            (0o100_644, 1000, 1000, GroupReads, "others can read it: chmod 640 key"),
            (0o100_660, 1000, 1000, GroupReads, "others can change it: chmod 640 key"),
            (0o100_646, 1000, 1000, AllRead, "others can change it: chmod 644 key"),
            (0o100_600, 1001, 1000, Nobody, "belongs to user 1001: chown it"),
            (0o100_600, 1000, 0, AllRead, "belongs to user 1000: chown it"),
        ] {
            let said = told(mode, owner, user, others);
            assert!(said.contains(words), "{mode:o} {owner} {user}: {said}");
        }
    }

    #[test]
    fn a_secret_is_read_up_to_a_limit_and_only_if_it_is_private() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("key");
        crate::write_new(&path, b"secret", Access::Owner).unwrap();
        assert_eq!(read_private(&path, 6).unwrap(), b"secret");
        assert_eq!(read_private(&path, 5).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        set(&path, 0o644);
        let error = read_private(&path, 6).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        assert!(error.to_string().contains("others can read it: chmod 600"), "{error}");
    }

    #[test]
    fn a_file_for_a_library_is_private_whether_it_is_new_or_not() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("database");
        make_private(&path).unwrap();
        assert_eq!(mode(&path), 0o600);
        fs::write(&path, b"rows").unwrap();
        set(&path, 0o644);
        make_private(&path).unwrap();
        assert_eq!((mode(&path), fs::read(&path).unwrap()), (0o600, b"rows".to_vec()));
    }
}
