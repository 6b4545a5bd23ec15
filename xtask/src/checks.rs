//! The steps of CI, each of which can be run alone.

use std::process::Command;
use std::time::Instant;

use anyhow::{Context, bail};

/// Every check, in order of how soon it says something.
pub fn all() -> anyhow::Result<()> {
    step("fmt", fmt)?;
    step("tidy", crate::tidy::check)?;
    step("clippy", clippy)?;
    step("doc", doc)?;
    step("test", || crate::test_run::run(&[]))?;
    step("fuzz-time", fuzz_time)
}

/// Conversations of a server with clients that pause at random, for a minute.
pub fn fuzz_time() -> anyhow::Result<()> {
    let test = "service::conversation::tests::no_pauses_between_bytes_stretch_a_limit";
    let mut command = Command::new("cargo");
    command.args(["test", "--quiet", "--locked", "--package", "underload-probe", "--lib"]);
    succeed(command.args(["--", "--exact", test]).env("UNDERLOAD_FUZZ_SECONDS", "60"))
}

/// Formatting.
pub fn fmt() -> anyhow::Result<()> {
    cargo(&["fmt", "--all", "--check"])
}

/// Lints of every target, warnings denied.
pub fn clippy() -> anyhow::Result<()> {
    cargo(&["clippy", "--quiet", "--workspace", "--all-targets", "--locked", "--", "-Dwarnings"])
}

/// Documentation, broken links and missing pages denied.
pub fn doc() -> anyhow::Result<()> {
    let mut command = Command::new("cargo");
    command.args(["doc", "--quiet", "--workspace", "--no-deps", "--locked"]);
    succeed(command.env("RUSTDOCFLAGS", "-Dwarnings"))
}

fn step(name: &str, check: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<()> {
    eprintln!("==> {name}");
    let start = Instant::now();
    check().with_context(|| name.to_string())?;
    eprintln!("    {name}: done in {:.0} s", start.elapsed().as_secs_f64());
    Ok(())
}

fn cargo(arguments: &[&str]) -> anyhow::Result<()> {
    succeed(Command::new("cargo").args(arguments))
}

/// Runs a command and turns a failure into an error.
pub fn succeed(command: &mut Command) -> anyhow::Result<()> {
    let status = command.status().with_context(|| format!("{command:?}"))?;
    if !status.success() {
        bail!("{command:?}: {status}");
    }
    Ok(())
}
