//! The program's folders of the present user, by the XDG Base Directory Specification.

use std::env;
use std::path::PathBuf;

/// Returns the folder of stored data: `$XDG_DATA_HOME/underload`, or `~/.local/share/underload`.
pub fn data() -> Option<PathBuf> {
    base("XDG_DATA_HOME", ".local/share")
}

/// Returns the folder of caches: `$XDG_CACHE_HOME/underload`, `~/.cache/underload`, or
/// `%LOCALAPPDATA%\underload` on Windows.
pub fn cache() -> Option<PathBuf> {
    let windows = || Some(variable("LOCALAPPDATA")?.join("underload"));
    base("XDG_CACHE_HOME", ".cache").or_else(windows)
}

/// Returns the folder of files that last until the user logs out: `$XDG_RUNTIME_DIR/underload`.
pub fn runtime() -> Option<PathBuf> {
    Some(variable("XDG_RUNTIME_DIR")?.join("underload"))
}

fn base(name: &str, below_home: &str) -> Option<PathBuf> {
    let home = || Some(variable("HOME")?.join(below_home));
    Some(variable(name).or_else(home)?.join("underload"))
}

fn variable(name: &str) -> Option<PathBuf> {
    env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}
