//! What stands in the place of a command on systems that lack what it needs.

use std::ffi::OsString;

use anyhow::bail;
use clap::Args;

/// Whatever is asked for.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  underload run home/cable --world sim")]
pub struct Arguments {
    /// Options and arguments, as on Linux.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

/// Says why not.
pub fn run<T>(_: &Arguments) -> anyhow::Result<T> {
    bail!(
        "this program cannot do that on {}: measure, path, survey, history, serve and fleet need \
         Linux or macOS, link needs Linux and the feature `live`",
        std::env::consts::OS
    )
}
