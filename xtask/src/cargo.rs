//! Cargo for all commands of `cargo xtask`: its folder, and commands whose failure is an error.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, bail};

pub fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from)
}

/// Builds `underload` as the benchmarks run it, and returns the path of the program.
pub fn build_program() -> anyhow::Result<PathBuf> {
    succeed(Command::new("cargo").args(["build", "--profile=bench", "-p", "underload"]))?;
    Ok(target().join("release/underload"))
}

/// Runs a command and turns a failure into an error.
pub fn succeed(command: &mut Command) -> anyhow::Result<()> {
    let status = command.status().with_context(|| format!("{command:?}"))?;
    if !status.success() {
        bail!("{command:?}: {status}");
    }
    Ok(())
}
