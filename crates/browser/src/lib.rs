//! A headless Chromium, controlled by its DevTools protocol over two pipes.
//!
//! [`Chromium::find`] finds the program and [`Chromium::command`] prepares its process, which the
//! caller starts: as a child, or in a network namespace. [`DevTools`] then sends commands through
//! the pipes of that process, and receives answers and events.

mod devtools;

use std::path::Path;
use std::process::{Command, Stdio};

pub use devtools::{DevTools, DevToolsError};

/// A program that [`Chromium::find`] found, with its version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chromium {
    program: String,
    /// The first line of `--version`, for example `Chromium 156.0.8078.108`.
    pub version: String,
}

/// Where a browser stores its profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile<'a> {
    /// In a folder, which the caller removes.
    Folder(&'a Path),
    /// In memory that only the browser's processes see, and that ends with the last of them. The
    /// caller needs the right to mount.
    Memory {
        /// The memory that the profile and the browser's shared memory may fill.
        megabytes: u32,
    },
}

/// The message to a user for whom [`Chromium::find`] returns `None`.
pub const MISSING: &str = "no Chromium (apt install chromium, or UNDERLOAD_CHROMIUM=PROGRAM)";

/// Chromium's protocol uses descriptors 3 and 4, each message ended by a zero byte.
const JOIN_PIPES: &str = "exec \"$@\" 3<&0 4>&1 </dev/null >/dev/null";
const PROGRAMS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];
/// Pages come from this machine alone, and Chromium's sandbox starts neither as root nor in a user
/// namespace, in which every user is root.
const ARGUMENTS: [&str; 11] = [
    "--headless",
    "--remote-debugging-pipe",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
];

impl Chromium {
    /// Finds Chromium: the program that `UNDERLOAD_CHROMIUM` names, or the first installed one of
    /// the usual names. `None` if the program is missing or reports no version.
    pub fn find() -> Option<Self> {
        match std::env::var("UNDERLOAD_CHROMIUM") {
            Ok(named) => Self::examine(&named),
            Err(_) => PROGRAMS.into_iter().find_map(Self::examine),
        }
    }

    fn examine(program: &str) -> Option<Self> {
        let output = Command::new(program).arg("--version").stderr(Stdio::null()).output().ok()?;
        let text = String::from_utf8_lossy(&output.stdout);
        let version = text.lines().next().filter(|_| output.status.success())?.trim().to_owned();
        Some(Self { program: program.to_owned(), version })
    }

    /// Returns the command that starts the browser. Its standard input and output are the pipes of
    /// [`DevTools::new`].
    pub fn command(&self, profile: Profile<'_>) -> Command {
        let mut command = match profile {
            Profile::Folder(_) => Command::new("sh"),
            Profile::Memory { .. } => {
                let mut command = Command::new("unshare");
                command.args(["--mount", "--propagation", "slave", "sh"]);
                command
            }
        };
        let folder = match profile {
            Profile::Folder(folder) => {
                command.args(["-c", JOIN_PIPES, "sh"]);
                folder
            }
            Profile::Memory { megabytes } => {
                let mount = format!("mount -t tmpfs -o size={megabytes}m underload /tmp");
                command.args(["-c", &format!("{mount} && {JOIN_PIPES}"), "sh"]);
                // Chromium also writes to the user's home and to the folder of temporary files.
                command.env("HOME", "/tmp").env("TMPDIR", "/tmp").env_remove("XDG_CONFIG_HOME");
                command.env_remove("XDG_CACHE_HOME");
                Path::new("/tmp")
            }
        };
        command.arg(&self.program).args(ARGUMENTS);
        command.arg(format!("--user-data-dir={}", folder.join("profile").display()));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        command
    }
}
