//! Where the program keeps what outlives a run.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

/// `$XDG_DATA_HOME/underload`, else `~/.local/share/underload`.
pub fn data() -> anyhow::Result<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let base = set("XDG_DATA_HOME")
        .map(PathBuf::from)
        .or_else(|| set("HOME").map(|home| PathBuf::from(home).join(".local/share")))
        .context(
            "neither XDG_DATA_HOME nor HOME is set: say where with the command's own option",
        )?;
    Ok(base.join("underload"))
}

/// The first line of a small file, which must not be empty.
pub fn first_line(path: &Path) -> anyhow::Result<String> {
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let line = text.lines().next().unwrap_or_default().trim();
    if line.is_empty() {
        bail!("{}: the first line is empty", path.display());
    }
    Ok(line.to_owned())
}
