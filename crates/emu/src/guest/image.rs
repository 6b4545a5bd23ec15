//! The kernel that guests run.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{fmt, io};

/// Variable that names the kernel to use instead of the installed one.
const VARIABLE: &str = "UNDERLOAD_KERNEL";
/// File name of an installed kernel.
const FILE: &str = "linux";
/// Options that a kernel must have been built with.
const OPTIONS: [&str; 7] =
    ["UML", "UML_TIME_TRAVEL_SUPPORT", "HOSTFS", "SYSCTL", "TUN", "NET_NS", "IPV6"];

/// A User-Mode Linux kernel that was found and whose version is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    path: PathBuf,
    version: String,
    /// The options that the kernel was built with, a line each, as `.config` has them.
    pub configuration: String,
}

/// Why a kernel cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    #[error(
        "no kernel at {}: `cargo xtask kernel` builds one, `underload kernel install FILE` \
         installs it; {VARIABLE} names another", .0.display()
    )]
    Missing(PathBuf),
    #[error("starting {}", path.display())]
    Start { path: PathBuf, source: io::Error },
    #[error("{} is no User-Mode Linux: expected one that `cargo xtask kernel` built", .0.display())]
    Foreign(PathBuf),
    #[error(
        "{} lacks CONFIG_{option}: expected a kernel that `cargo xtask kernel` built",
        path.display()
    )]
    Lacks { path: PathBuf, option: String },
    #[error("installing {}", path.display())]
    Install { path: PathBuf, source: io::Error },
}

impl Image {
    /// Returns the kernel that `UNDERLOAD_KERNEL` names, else the one installed in `folder`.
    ///
    /// # Errors
    /// Returns [`ImageError`] if there is none, or if guests cannot run it.
    pub fn find(folder: &Path) -> Result<Self, ImageError> {
        let named = std::env::var_os(VARIABLE).filter(|path| !path.is_empty());
        Self::open(&named.map_or_else(|| folder.join(FILE), PathBuf::from))
    }

    /// Checks the kernel at `path`.
    pub fn open(path: &Path) -> Result<Self, ImageError> {
        let missing = |_| ImageError::Missing(path.to_owned());
        let path = path.canonicalize().map_err(missing)?;
        let foreign = || ImageError::Foreign(path.clone());
        let version = ask(&path, "--version")?.trim().to_owned();
        let configuration = ask(&path, "--showconfig")?;
        if !version.starts_with(|first: char| first.is_ascii_digit()) {
            return Err(foreign());
        }
        let image = Self { path, version, configuration };
        image.require(&OPTIONS)?;
        Ok(image)
    }

    /// Checks that the kernel was built with `options`.
    ///
    /// # Errors
    /// Returns [`ImageError::Lacks`] with the first option that is missing.
    pub fn require<S: AsRef<str>>(&self, options: &[S]) -> Result<(), ImageError> {
        let has = |option: &str| {
            let line = format!("CONFIG_{option}=y");
            self.configuration.lines().any(|found| found == line)
        };
        match options.iter().map(AsRef::as_ref).find(|option| !has(option)) {
            Some(option) => {
                Err(ImageError::Lacks { path: self.path.clone(), option: option.to_owned() })
            }
            None => Ok(()),
        }
    }

    /// Copies this kernel into `folder`, where [`Image::find`] finds it.
    ///
    /// # Errors
    /// Returns [`ImageError::Install`] if the directory or the file cannot be written.
    pub fn install(&self, folder: &Path) -> Result<Self, ImageError> {
        let path = folder.join(FILE);
        let install = || {
            std::fs::create_dir_all(folder)?;
            let copy = tempfile::NamedTempFile::new_in(folder)?;
            std::fs::copy(&self.path, copy.path())?;
            copy.as_file().sync_all()?;
            copy.persist(&path).map_err(io::Error::from)
        };
        match install() {
            Ok(_) => Ok(Self { path, ..self.clone() }),
            Err(source) => Err(ImageError::Install { path, source }),
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl fmt::Display for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Linux {}", self.version)
    }
}

/// Returns the output of the kernel when it is started with `option`.
fn ask(path: &Path, option: &str) -> Result<String, ImageError> {
    let mut command = Command::new(path);
    command.arg(option).env_clear().stdin(Stdio::null()).stderr(Stdio::null());
    let output =
        command.output().map_err(|source| ImageError::Start { path: path.to_owned(), source })?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
