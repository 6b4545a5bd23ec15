//! `underload fleet`: replaces this program by `underload-fleet`.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

use anyhow::anyhow;
use clap::Args;
use underload_terminal::{STARTED_BY, VERSION, console};

#[derive(Debug, Args)]
#[command(disable_help_flag = true, after_help = "Examples:\n  underload fleet demo")]
pub struct Arguments {
    /// A command of `underload-fleet`; `underload fleet --help` lists them.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    words: Vec<OsString>,
}

const PROGRAM: &str = "underload-fleet";

/// Replaces this process by `underload-fleet`, which then receives its signals and sets its exit
/// status. Returns only on failure.
pub fn run(arguments: &Arguments, options: console::Options) -> anyhow::Error {
    let error = Command::new(program())
        .arg0("underload fleet")
        .args(options.words())
        .args(&arguments.words)
        .env(STARTED_BY, VERSION)
        .exec();
    match error.kind() {
        ErrorKind::NotFound => anyhow!(
            "{PROGRAM} is neither beside this program nor in the PATH: it is in the package \
             {PROGRAM}, and `cargo build --release --package underload-fleet-cli` makes it (see \
             docs/install.md)"
        ),
        _ => anyhow!(error).context(PROGRAM),
    }
}

/// Returns the program in the directory of this one, or else its name, for the `PATH`.
fn program() -> PathBuf {
    let beside = std::env::current_exe().ok().map(|own| own.with_file_name(PROGRAM));
    beside.filter(|path| path.is_file()).unwrap_or_else(|| PROGRAM.into())
}
