//! Tests of files and folders that others cannot open.

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
fn a_private_directory_of_another_user_is_refused_for_writing_only() {
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
