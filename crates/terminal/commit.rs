//! The commit of the sources, and the files that it depends on.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Sources of the program; other files do not affect it.
const SOURCES: [&str; 4] = ["Cargo.toml", "Cargo.lock", "crates", "scenarios"];

/// Returns the commit of the sources, which identifies their results in caches, with `-dirty` at
/// its end if they have changed since; `unknown` outside a checkout.
pub fn commit(root: &Path) -> String {
    let Some(commit) = git(root, &["rev-parse", "HEAD"]) else { return "unknown".to_owned() };
    let status = [&["status", "--porcelain", "--"][..], &SOURCES].concat();
    match git(root, &status) {
        Some(changes) if changes.is_empty() => commit,
        _ => format!("{commit}-dirty"),
    }
}

/// Returns the files that [`commit`] depends on: the sources of every crate, and HEAD. Git's index
/// is not included, because every `git status` may write it and would relink the program.
pub fn watched(root: &Path) -> Vec<PathBuf> {
    let crates = fs::read_dir(root.join("crates")).into_iter().flatten().flatten();
    let of_crates = crates
        .flat_map(|entry| ["Cargo.toml", "build.rs", "src"].map(|name| entry.path().join(name)));
    let of_all = ["Cargo.toml", "Cargo.lock", "scenarios"].map(|name| root.join(name));
    let of_git = ["HEAD", "logs/HEAD"]
        .into_iter()
        .filter_map(|name| git(root, &["rev-parse", "--git-path", name]))
        .map(|path| root.join(path));
    let mut all: Vec<PathBuf> = of_crates.chain(of_all).chain(of_git).collect();
    // Cargo treats missing files as changed each time.
    all.retain(|path| path.exists());
    all.sort();
    all
}

fn git(root: &Path, arguments: &[&str]) -> Option<String> {
    let mut git = Command::new("git");
    let output = git.arg("--no-optional-locks").current_dir(root).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
