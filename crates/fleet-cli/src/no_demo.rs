//! Stands for the demo on systems without network namespaces.

use anyhow::bail;
use clap::Args;

/// The command line of `underload fleet demo`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  underload fleet demo")]
pub(super) struct Arguments {
    /// Options and arguments, as on Linux.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    #[allow(dead_code, reason = "parsed, so that the refusal is the one below")]
    words: Vec<std::ffi::OsString>,
}

impl Arguments {
    /// Fails on every call, because the demo needs Linux.
    pub(super) fn run(&self) -> anyhow::Result<()> {
        bail!("this program cannot do that on {}: it needs Linux", std::env::consts::OS)
    }
}
