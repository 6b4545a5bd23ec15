//! A copy of the workspace that is changed, and kept from run to run: what is equal stays as it
//! is, so that only what is woven anew is built anew, and the tree itself may be edited meanwhile.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;

/// Brings the copy at `to` up to the files that git tracks here.
pub fn copy(to: &Path) -> anyhow::Result<()> {
    let listed = Command::new("git").args(["ls-files", "-z"]).output().context("git ls-files")?;
    let listed = String::from_utf8(listed.stdout).context("git ls-files")?;
    let wanted: BTreeSet<PathBuf> =
        listed.split('\0').filter(|name| !name.is_empty()).map(PathBuf::from).collect();
    for name in &wanted {
        // Deleted, and not yet told to git.
        let Ok(bytes) = fs::read(name) else { continue };
        write(&to.join(name), &bytes)?;
    }
    remove_others(to, to, &wanted)
}

/// Writes what differs: the time of an equal file says that nothing is to be built.
pub fn write(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    if fs::read(path).is_ok_and(|there| there == bytes) {
        return Ok(());
    }
    let folder = path.parent().context("a file has a folder")?;
    fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    fs::write(path, bytes).with_context(|| path.display().to_string())
}

fn remove_others(root: &Path, folder: &Path, wanted: &BTreeSet<PathBuf>) -> anyhow::Result<()> {
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            remove_others(root, &path, wanted)?;
        } else if path.strip_prefix(root).is_ok_and(|name| !wanted.contains(name)) {
            fs::remove_file(&path).with_context(|| path.display().to_string())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_equal_file_is_left_alone_and_a_foreign_one_removed() {
        let root = std::env::temp_dir().join(format!("mutants-tree-{}", std::process::id()));
        let (kept, foreign) = (root.join("a/kept.rs"), root.join("a/foreign.rs"));
        write(&kept, b"one").unwrap();
        write(&foreign, b"two").unwrap();
        let time = |path: &Path| fs::metadata(path).unwrap().modified().unwrap();
        let before = time(&kept);
        write(&kept, b"one").unwrap();
        assert_eq!(time(&kept), before);
        write(&kept, b"three").unwrap();
        assert_eq!(fs::read(&kept).unwrap(), b"three");
        remove_others(&root, &root, &BTreeSet::from([PathBuf::from("a/kept.rs")])).unwrap();
        assert!(kept.exists() && !foreign.exists());
        fs::remove_dir_all(&root).unwrap();
    }
}
