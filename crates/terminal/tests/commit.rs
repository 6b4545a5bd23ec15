//! The commit that a program was built from, which separates its cached results from those of other
//! builds.

use std::fs;
use std::path::Path;
use std::process::Command;

#[path = "../commit.rs"]
mod commit;

fn git(root: &Path, arguments: &[&str]) {
    let known = ["-c", "user.name=test", "-c", "user.email=test@example.invalid"];
    let done = Command::new("git").current_dir(root).args(known).args(arguments).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

fn write(root: &Path, name: &str, text: &str) {
    let path = root.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// An uncommitted change of the sources makes another program, and Cargo watches everything that
/// can change: otherwise caches would mix its results with those of the previous program.
#[test]
fn a_changed_source_is_noticed_and_git_status_rebuilds_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    for name in ["Cargo.toml", "Cargo.lock", "scenarios/a.toml", "crates/aqm/src/queue/a.rs"] {
        write(root, name, "");
    }
    write(root, "README.md", "");
    git(root, &["init", "--quiet"]);
    git(root, &["add", "."]);
    git(root, &["commit", "--quiet", "-m", "all"]);
    let clean = commit::commit(root);
    assert_eq!((clean.len(), clean.contains('-')), (40, false), "{clean}");
    let watched = commit::watched(root);
    let is_watched = |name: &str| watched.iter().any(|path| root.join(name).starts_with(path));
    for name in ["crates/aqm/src/queue/a.rs", "Cargo.lock", ".git/HEAD", ".git/logs/HEAD"] {
        assert!(is_watched(name), "{name}: {watched:?}");
    }
    assert!(!is_watched(".git/index"), "{watched:?}");
    write(root, "README.md", "other words");
    assert_eq!(commit::commit(root), clean);
    for (name, text) in [("crates/aqm/src/queue/a.rs", "//"), ("crates/aqm/src/new.rs", "")] {
        write(root, name, text);
        assert_eq!(commit::commit(root), format!("{clean}-dirty"), "{name}");
    }
    git(root, &["add", "crates"]);
    git(root, &["commit", "--quiet", "-m", "changed"]);
    let after = commit::commit(root);
    assert!(!after.ends_with("-dirty") && after != clean, "{after}");
}

#[test]
fn the_commit_is_unknown_outside_a_checkout() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(commit::commit(folder.path()), "unknown");
    assert!(commit::watched(folder.path()).is_empty());
}
