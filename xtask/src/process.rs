//! Programs that commands start, and the folders that they write to.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

/// Runs git and returns its output.
pub fn git(arguments: &[&str]) -> anyhow::Result<String> {
    output(Command::new("git").args(arguments))
}

/// Runs a command and returns what it prints.
pub fn output(command: &mut Command) -> anyhow::Result<String> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    if !output.status.success() {
        bail!("{command:?}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Whether a program is in a folder of `PATH`.
pub fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// Returns the paths of a folder with this extension, sorted.
pub fn paths_in(folder: &Path, extension: &str) -> anyhow::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        paths.push(entry?.path());
    }
    paths.retain(|path| path.extension().is_some_and(|it| it == extension));
    paths.sort();
    Ok(paths)
}

/// Returns the names of the files of a folder with this extension, without it, sorted.
pub fn stems_in(folder: &str, extension: &str) -> anyhow::Result<Vec<String>> {
    Ok(paths_in(Path::new(folder), extension)?.iter().map(|path| stem(path)).collect())
}

/// Returns the name of a file without its extension.
pub fn stem(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

/// Creates an empty folder in place of an old one.
pub fn fresh_folder(folder: &Path) -> anyhow::Result<()> {
    let name = || folder.display().to_string();
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(name)?;
    }
    fs::create_dir_all(folder).with_context(name)
}
