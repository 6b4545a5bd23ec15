//! Replaces the demo on systems without network namespaces.

use anyhow::bail;
use clap::Args;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  underload fleet demo")]
pub(super) struct Arguments {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    #[allow(dead_code, reason = "parsed, so that the refusal is the one below")]
    words: Vec<std::ffi::OsString>,
}

impl Arguments {
    pub(super) fn run(&self) -> anyhow::Result<()> {
        bail!("the demo needs Linux; this is {}", std::env::consts::OS)
    }
}
