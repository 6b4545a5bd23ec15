//! Which commit is built, and what has to be looked at to know.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What of the repository the program is made of; a change elsewhere makes no other program.
const SOURCES: [&str; 4] = ["Cargo.toml", "Cargo.lock", "crates", "scenarios"];

/// The commit that is built, which stands for its results in caches: `-dirty` at its end where the
/// sources are not that commit's, `unknown` outside a checkout.
pub fn commit(root: &Path) -> String {
    let Some(commit) = git(root, &["rev-parse", "HEAD"]) else { return "unknown".to_owned() };
    let status = [&["status", "--porcelain", "--"][..], &SOURCES].concat();
    match git(root, &status) {
        Some(changes) if changes.is_empty() => commit,
        _ => format!("{commit}-dirty"),
    }
}

/// What changes the answer of [`commit`]: the sources of every crate, and where HEAD is. Not git's
/// index, which every `git status` may write: each would link the program anew.
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
    // One that is not there would be taken for changed each time.
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
