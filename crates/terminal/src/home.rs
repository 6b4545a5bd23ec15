//! The directory of stored data, and files with secrets.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use underload_disk::read_private;

/// Longest file with a secret.
const SECRET_BYTES_MAX: u64 = 64 << 10;

/// Returns the directory of data: [`underload_disk::folders::data`].
pub fn data() -> anyhow::Result<PathBuf> {
    underload_disk::folders::data()
        .context("neither XDG_DATA_HOME nor HOME is set: name the directory with an option")
}

/// Removes access of other users from the file that standard output is redirected to, before a
/// secret is written to it. Terminals and pipes are left alone.
#[cfg(unix)]
pub fn private_stdout() -> anyhow::Result<()> {
    use std::os::fd::AsFd as _;

    let file = std::io::stdout().as_fd().try_clone_to_owned().context("the standard output")?;
    underload_disk::close_to_others(&file.into()).context("the standard output")
}

/// Reads the first line of a file with a secret, which must not be empty or readable by others.
pub fn secret_line(path: &Path) -> anyhow::Result<String> {
    let bytes = read_private(path, SECRET_BYTES_MAX).with_context(|| path.display().to_string())?;
    let text = String::from_utf8(bytes).with_context(|| path.display().to_string())?;
    let line = text.lines().next().unwrap_or_default().trim();
    if line.is_empty() {
        bail!("{}: the first line is empty", path.display());
    }
    Ok(line.to_owned())
}
