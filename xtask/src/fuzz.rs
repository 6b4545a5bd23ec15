//! The fuzz targets: compiled, then run for some seconds each from the stored corpus.
//!
//! CI runs them as tests, over the corpus and damaged copies of it
//! (`crates/cli/tests/fuzz_targets.rs`).
//!
//! The usual Rust builds the targets: the passes that count which branches an input takes are part
//! of stable LLVM, and libFuzzer itself is C++ in `libfuzzer-sys`. So only a C++ compiler is
//! needed, neither nightly Rust nor `cargo-fuzz`. These two would add the address sanitiser, which
//! finds defects of unsafe code; only the `sys` modules have any. To fuzz one target for hours, use
//! `cargo +nightly fuzz run TARGET`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use anyhow::{Context, bail};

use crate::cargo::{succeed, target};
use crate::process::{fresh_folder, output, stems_in};

/// Seconds for each target.
const SECONDS: u64 = 3;
/// Targets that run at once: a small machine has two cores.
const AT_ONCE: usize = 2;
/// Time after which an input counts as a hang, s.
const HANG_SECONDS: u64 = 15;
/// Memory limit of a target, MB.
const MEMORY_MB: u64 = 2048;

/// Compiler flags that count branches for libFuzzer, as `cargo fuzz` sets them.
const COVERAGE: &str = "-Cdebug-assertions -Cpasses=sancov-module \
                        -Cllvm-args=-sanitizer-coverage-level=4 \
                        -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
                        -Cllvm-args=-sanitizer-coverage-pc-table \
                        -Cllvm-args=-sanitizer-coverage-trace-compares";

/// Runs the named targets, or all.
pub fn run(names: &[&str]) -> anyhow::Result<()> {
    let all = stems_in("fuzz/fuzz_targets", "rs")?;
    if let Some(unknown) = names.iter().find(|name| !all.iter().any(|it| it == *name)) {
        bail!("there is no target `{unknown}`; there are {}", all.join(", "));
    }
    let wanted = |name: &String| names.is_empty() || names.contains(&name.as_str());
    let names: Vec<String> = all.into_iter().filter(wanted).collect();
    let programs = build()?;
    let (left, failed) = (Mutex::new(names.into_iter()), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(name) = next(&left) {
                    match fuzz(&programs, &name) {
                        Ok(executions) => eprintln!("    {name}: {executions} executions"),
                        Err(error) => {
                            eprintln!("    {name}: FAILED\n{error:#}");
                            failed.lock().expect("no thread panics").push(name);
                        }
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().expect("no thread panics");
    if !failed.is_empty() {
        bail!("failed: {}", failed.join(", "));
    }
    Ok(())
}

fn next(left: &Mutex<impl Iterator<Item = String>>) -> Option<String> {
    left.lock().expect("no thread panics").next()
}

/// Builds every target and returns the folder of the programs.
fn build() -> anyhow::Result<PathBuf> {
    // All libraries have the versions of the workspace. The copy is not committed.
    fs::copy("Cargo.lock", "fuzz/Cargo.lock").context("fuzz/Cargo.lock")?;
    let host = host()?;
    let folder = target().join("fuzz");
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--quiet", "--bins", "--manifest-path", "fuzz/Cargo.toml"]);
    // A named target keeps build scripts and macros from being compiled to count branches.
    cargo.args(["--target", &host]).env("CARGO_TARGET_DIR", &folder);
    cargo.env("RUSTFLAGS", COVERAGE).env_remove("CARGO_ENCODED_RUSTFLAGS");
    succeed(&mut cargo)?;
    Ok(folder.join(host).join("debug"))
}

/// Returns the host target, such as `x86_64-unknown-linux-gnu`.
fn host() -> anyhow::Result<String> {
    let said = output(Command::new("rustc").arg("-vV"))?;
    let host = said.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc -vV names no host")?.to_owned())
}

/// Runs one target and returns the number of inputs that it tried.
fn fuzz(programs: &Path, name: &str) -> anyhow::Result<u64> {
    // New inputs go to the first folder, which is not committed.
    let scratch = target().join("fuzz").join("found").join(name);
    fresh_folder(&scratch)?;
    let artifacts = Path::new("fuzz/artifacts").join(name);
    fs::create_dir_all(&artifacts).with_context(|| artifacts.display().to_string())?;
    let mut command = Command::new(programs.join(name));
    command.arg(format!("-max_total_time={SECONDS}")).arg(format!("-timeout={HANG_SECONDS}"));
    command.arg(format!("-rss_limit_mb={MEMORY_MB}")).arg("-print_final_stats=1");
    command.arg(format!("-artifact_prefix={}/", artifacts.display())).arg(&scratch);
    let kept = Path::new("fuzz/corpus").join(name);
    if kept.exists() {
        command.arg(kept);
    }
    let output = command.output().with_context(|| format!("{command:?}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        let end: Vec<&str> = said.lines().rev().take(40).collect();
        let end: Vec<&str> = end.into_iter().rev().collect();
        bail!("{}\n{}: the input is in {}", end.join("\n"), output.status, artifacts.display());
    }
    executions(&said).with_context(|| format!("{name} ended without fuzzing:\n{said}"))
}

/// Returns the number of inputs that were tried; `None` without counted branches or inputs.
fn executions(said: &str) -> Option<u64> {
    said.lines().find(|line| line.contains("inline 8-bit counters"))?;
    let units =
        |line: &str| line.strip_prefix("stat::number_of_executed_units:")?.trim().parse().ok();
    said.lines().find_map(units).filter(|units| *units > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_that_counted_no_branches_or_tried_nothing_did_not_fuzz() {
        let loaded = "INFO: Loaded 1 modules   (31 inline 8-bit counters): 31 [0x1, 0x2),";
        let units = |count: u64| format!("stat::number_of_executed_units: {count}");
        assert_eq!(executions(&format!("{loaded}\n{}", units(12))), Some(12));
        assert_eq!(executions(&units(12)), None);
        assert_eq!(executions(&format!("{loaded}\n{}", units(0))), None);
        assert_eq!(executions(loaded), None);
    }
}
