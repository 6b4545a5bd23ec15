//! Where the program keeps what outlives a run.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use underload_disk::read_private;

/// Bytes of a file with a secret at most.
const SECRET_BYTES_MAX: u64 = 64 << 10;

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

/// Lets nobody else read the file that the standard output goes to, before a secret is written
/// there; a terminal and a pipe stay as they are.
#[cfg(unix)]
pub fn private_stdout() -> anyhow::Result<()> {
    use std::os::fd::AsFd as _;

    let file = std::io::stdout().as_fd().try_clone_to_owned().context("the standard output")?;
    underload_disk::close_to_others(&file.into()).context("the standard output")
}

/// The first line of a file with a secret, which must not be empty, and which others must not be
/// able to read.
pub fn secret_line(path: &Path) -> anyhow::Result<String> {
    let bytes = read_private(path, SECRET_BYTES_MAX).with_context(|| path.display().to_string())?;
    let text = String::from_utf8(bytes).with_context(|| path.display().to_string())?;
    let line = text.lines().next().unwrap_or_default().trim();
    if line.is_empty() {
        bail!("{}: the first line is empty", path.display());
    }
    Ok(line.to_owned())
}
