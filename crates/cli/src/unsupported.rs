//! Replaces commands on systems that do not support them.

use std::ffi::OsString;

use anyhow::bail;
use clap::Args;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  underload run home/cable --world sim")]
pub struct Arguments {
    /// Options and arguments, as on Linux.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

pub fn run<T>(_: &Arguments) -> anyhow::Result<T> {
    bail!(
        "this program cannot do that on {}: path, survey, serve and fleet need Linux or macOS, \
         shape and kernel-queue need Linux, link needs Linux and the feature `live`",
        std::env::consts::OS
    )
}
