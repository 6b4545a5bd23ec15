//! Programs that benchmarks build and start.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use anyhow::{Context, bail};

/// A program that is killed when this is dropped.
pub struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail only for a process that has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    /// Starts a program, with its standard output.
    pub fn start(command: &mut Command) -> anyhow::Result<(Self, BufReader<ChildStdout>)> {
        let child = command.stdout(Stdio::piped()).spawn();
        let mut child = Self(child.with_context(|| format!("{command:?}"))?);
        let output = child.0.stdout.take().context("standard output was piped")?;
        Ok((child, BufReader::new(output)))
    }

    /// Starts a program and waits for the first line that it prints.
    pub fn with_first_line(mut command: Command) -> anyhow::Result<(Self, String)> {
        let (child, mut output) = Self::start(&mut command)?;
        let mut line = String::new();
        output.read_line(&mut line)?;
        Ok((child, line.trim().to_owned()))
    }
}

/// Returns the folder of what Cargo builds.
pub fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from)
}

/// Builds `underload` with the profile of benchmarks, and returns the path of the program.
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

/// Runs a command and returns its standard output.
pub fn output(command: &mut Command) -> anyhow::Result<String> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    if !output.status.success() {
        bail!("{command:?}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Returns the peak memory of a running process, KiB.
pub fn peak_kib(process: &Child) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{}/status", process.id())).ok()?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    peak.trim().strip_suffix("kB")?.trim().parse().ok()
}

/// Whether a program is in a folder of `PATH`.
pub fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// Prints which part of a benchmark cannot run here.
pub fn skip(name: &str, reason: &str) {
    eprintln!("SKIPPED {name}: {reason}");
}

/// Creates an empty folder in place of an old one.
pub fn fresh_folder(folder: &Path) -> anyhow::Result<()> {
    let name = || folder.display().to_string();
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(name)?;
    }
    fs::create_dir_all(folder).with_context(name)
}
