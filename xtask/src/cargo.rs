//! Cargo for all commands of `cargo xtask`: its folder, and commands whose failure is an error.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, bail};

pub fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from)
}

/// Returns a command of Cargo that prints no progress and leaves the lock file as it is.
pub fn cargo(command: &str) -> Command {
    let mut cargo = Command::new("cargo");
    cargo.args([command, "--quiet", "--locked"]);
    cargo
}

/// Runs a command and turns a failure into an error.
pub fn succeed(command: &mut Command) -> anyhow::Result<()> {
    let status = command.status().with_context(|| format!("{command:?}"))?;
    if !status.success() {
        bail!("{command:?}: {status}");
    }
    Ok(())
}
