//! Finds all installed versions of Python that the package supports.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// The oldest supported version, `requires-python` in `python/pyproject.toml`.
const OLDEST: u32 = 10;
/// The newest version that is looked for, years from now.
const NEWEST: u32 = 40;

pub struct Installed {
    /// The minor version, 13 for 3.13.
    pub minor: u32,
    pub version: String,
    pub program: PathBuf,
}

/// Returns the first `python3.N` of each version that runs, on the path or kept by pyenv.
pub fn installed() -> Vec<Installed> {
    let folders = folders();
    let first = |minor: u32| {
        let name = format!("python3.{minor}");
        folders.iter().map(|folder| folder.join(&name)).find_map(|program| checked(minor, program))
    };
    (OLDEST..=NEWEST).filter_map(first).collect()
}

/// Returns an interpreter if it runs and has this version. Programs that pyenv puts on the path
/// fail unless their version is selected.
fn checked(minor: u32, program: PathBuf) -> Option<Installed> {
    let version = version(&program)?;
    version.starts_with(&format!("3.{minor}.")).then_some(Installed { minor, version, program })
}

/// Returns the full version of an interpreter, such as `3.13.0`.
pub fn version(program: &Path) -> Option<String> {
    let code = "import platform, venv; print(platform.python_version())";
    let output = Command::new(program).args(["-c", code]).output().ok()?;
    let said = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| said.trim().to_owned())
}

fn folders() -> Vec<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = env::split_paths(&path).collect();
    let home = env::var_os("HOME").map(|home| PathBuf::from(home).join(".pyenv"));
    let pyenv = env::var_os("PYENV_ROOT").map(PathBuf::from).or(home);
    let versions = pyenv.and_then(|pyenv| fs::read_dir(pyenv.join("versions")).ok());
    let mut kept: Vec<PathBuf> = versions
        .into_iter()
        .flatten()
        .filter_map(Result::ok)
        .map(|version| version.path().join("bin"))
        .collect();
    kept.sort();
    folders.extend(kept);
    folders
}
