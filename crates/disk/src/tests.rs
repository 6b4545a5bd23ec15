//! What a directory contains after each kind of fault at each step of a write.

use std::os::unix::fs::PermissionsExt as _;

use super::faults::{self, Fault, Tree, at_every_step};
use super::*;

fn one(name: &str, content: &[u8]) -> Tree {
    Tree::from([(PathBuf::from(name), Some(content.to_vec()))])
}

/// Returns the files without the unfinished ones.
fn finished(tree: &Tree) -> Tree {
    let is_finished = |path: &PathBuf| !path.to_string_lossy().contains(UNFINISHED);
    let kept = tree.iter().filter(|(path, _)| is_finished(path));
    kept.map(|(path, content)| (path.clone(), content.clone())).collect()
}

#[test]
fn a_file_is_the_old_one_or_the_new_one_after_any_fault() {
    let (old, new) = (one("keys", b"old"), one("keys", b"new"));
    let action = |root: &Path| write_whole(&root.join("keys"), b"new", Access::Owner);
    at_every_step(&old, action, |fault, root, outcome| {
        let left = faults::tree(root);
        if !matches!(fault, Fault::Kill(_)) {
            assert!(left == old || left == new, "{fault:?}: left {left:?}");
        }
        for tree in outcome.after_power_cut.iter().chain([&left]) {
            let kept = finished(tree);
            assert!(kept == old || kept == new, "{fault:?}: {tree:?}");
            assert!(outcome.result.is_err() || kept == new, "{fault:?}: it was said to be written");
        }
    });
}

#[test]
fn a_new_file_never_replaces_another() {
    let directory = tempfile::tempdir().unwrap();
    let missing = write_new(&directory.path().join("none/file"), b"", Access::Usual).unwrap_err();
    assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    assert!(!missing.to_string().contains(UNFINISHED), "{missing}");
    let path = directory.path().join("run.json");
    write_new(&path, b"mine", Access::Usual).unwrap();
    let error = write_new(&path, b"yours", Access::Usual).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
    assert_eq!(create_new(&path, Access::Usual).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    assert_eq!(faults::tree(directory.path()), one("run.json", b"mine"));
}

#[test]
fn the_power_cut_of_these_tests_finds_what_was_not_synced() {
    let (old, new) = (one("keys", b"old"), one("keys", b"new"));
    // Like `write_whole`, without syncing.
    let careless = |root: &Path| {
        let mut file = create_new(&root.join("keys.new"), Access::Usual)?;
        file.write_all(b"new")?;
        step(Step::Rename(&root.join("keys")), || {
            fs::rename(root.join("keys.new"), root.join("keys"))
        })
    };
    let mut lost = 0;
    at_every_step(&old, careless, |_, _, outcome| {
        let is_lost = |tree: &&Tree| !matches!(finished(tree), kept if kept == old || kept == new);
        lost += outcome.after_power_cut.iter().filter(is_lost).count();
    });
    assert!(lost > 0, "a file without its bytes was not found");
}

#[test]
fn links_are_followed_and_pipes_are_written_to() {
    let directory = tempfile::tempdir().unwrap();
    let [file, link] = ["file", "link"].map(|name| directory.path().join(name));
    fs::write(&file, "old").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    std::os::unix::fs::symlink(&file, &link).unwrap();
    write_whole(&link, b"new", Access::Usual).unwrap();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(fs::read(&file).unwrap(), b"new");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640);
    write_whole(&file, b"key", Access::Owner).unwrap();
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let error = write_whole(directory.path(), b"x", Access::Usual).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::IsADirectory);
    // A pipe stays a pipe, and its reader receives the bytes.
    let (reader, writer) = io::pipe().unwrap();
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&writer));
    let mut into = NewFile::beside(Path::new(&path), Access::Usual).unwrap();
    into.write_all(b"through").unwrap();
    into.replace().unwrap();
    drop(writer);
    assert_eq!(io::read_to_string(reader).unwrap(), "through");
    assert_eq!(faults::tree(directory.path()).len(), 2, "nothing is left over");
}

#[test]
fn a_link_below_a_directory_is_refused_and_the_directory_may_be_one() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    fs::create_dir_all(root.join("run/plots")).unwrap();
    std::os::unix::fs::symlink(root.join("run"), root.join("link")).unwrap();
    for run in ["run", "link"].map(|name| root.join(name)) {
        refuse_links(&run, &run.join("plots/cdf.svg")).unwrap();
        refuse_links(&run, &run).unwrap();
    }
    for name in ["away", "gone"] {
        std::os::unix::fs::symlink(root.join(name), root.join("run").join(name)).unwrap();
        fs::create_dir_all(root.join("away")).unwrap();
        for path in [format!("run/{name}"), format!("run/{name}/cdf.svg")] {
            let error = refuse_links(&root.join("run"), &root.join(path)).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
            assert!(error.to_string().contains(&format!("{name} is a link")), "{error}");
        }
    }
}

#[test]
fn a_lock_is_held_until_it_is_dropped() {
    let directory = tempfile::tempdir().unwrap();
    let first = lock_directory(directory.path(), Duration::ZERO).unwrap();
    let second = lock_directory(directory.path(), Duration::ZERO).unwrap_err();
    assert_eq!(second.kind(), io::ErrorKind::WouldBlock);
    drop(first);
    lock_directory(directory.path(), Duration::from_mins(1)).unwrap();
}

#[test]
fn a_file_is_read_whole_up_to_the_limit_and_refused_above_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    std::fs::write(&path, b"four").unwrap();
    assert_eq!(read_file(&path, 4).unwrap(), b"four");
    assert_eq!(read_file(&path, u64::MAX).unwrap(), b"four");
    let error = read_file(&path, 3).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
    assert_eq!(error.to_string(), "more than 3 bytes");
    let missing = read_file(&directory.path().join("other"), 4).unwrap_err();
    assert_eq!(missing.kind(), io::ErrorKind::NotFound);
}

/// Such a file can be `/proc/kmsg`, which never ends.
#[test]
#[cfg(target_os = "linux")]
fn a_file_that_the_kernel_makes_is_empty() {
    let path = Path::new("/proc/version");
    assert_ne!(std::fs::read(path).unwrap(), b"", "it has content, and length 0");
    assert_eq!(read_file(path, 1 << 16).unwrap(), b"");
}

#[test]
fn an_endless_source_is_read_up_to_the_limit() {
    let error = read_at_most(io::repeat(0), 1 << 16).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
}
