//! Runs all tests and counts honestly: a test that could not run says `SKIPPED name: reason` and
//! is not counted as passed.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail};

use crate::checks;
use crate::skips;

#[derive(Default)]
struct Count {
    passed: usize,
    failed: usize,
    ignored: usize,
    skipped: Vec<String>,
    /// The program that runs.
    program: String,
    /// Seconds of each program.
    took: Vec<(f64, String)>,
}

const LOG: &str = "target/test.log";

/// Runs `cargo test` over the workspace, with `extra` arguments for cargo; calls `built` when the
/// first test begins.
pub fn run(extra: &[&str], built: &mut dyn FnMut()) -> anyhow::Result<()> {
    let mut command = Command::new("cargo");
    command.args(["test", "--workspace", "--locked", "--no-fail-fast"]);
    command.args(checks::FEATURES).args(extra);
    // The output of passing tests is where skips are told. Cargo names each program on the other
    // stream: both go into one pipe, so that its time stands below its name.
    let (output, input) = std::io::pipe().context("a pipe")?;
    command.args(["--", "--show-output"]).stderr(input.try_clone()?).stdout(input);
    let mut child = command.spawn().context("cargo test")?;
    // The command holds the pipe's end open, and with it the reader.
    drop(command);
    fs::create_dir_all("target")?;
    let mut log = fs::File::create(LOG).context(LOG)?;
    let mut count = Count::default();
    for line in BufReader::new(output).lines() {
        let line = line.context("reading what cargo test prints")?;
        writeln!(log, "{line}").context(LOG)?;
        let none_ran = count.program.is_empty() && count.took.is_empty();
        count.read(&line);
        if none_ran && !count.program.is_empty() {
            built();
        }
    }
    let status = child.wait()?;
    for skipped in &count.skipped {
        eprintln!("skipped: {skipped}");
        skips::record(skipped.clone());
    }
    if count.ignored > 0 {
        eprintln!("not run, marked #[ignore] (by hand only): {}", count.ignored);
    }
    eprintln!("slowest, in s: {}", count.slowest());
    let passed = count.passed.saturating_sub(count.skipped.len());
    println!("{passed} passed, {} failed, {} skipped", count.failed, count.skipped.len());
    if !status.success() {
        print_failures(Path::new(LOG));
        bail!("cargo test: {status}; everything is in {LOG}");
    }
    Ok(())
}

impl Count {
    fn read(&mut self, line: &str) {
        if let Some(skipped) = skips::parse(line) {
            self.skipped.push(skipped.to_string());
        }
        if let Some(program) = line.trim_start().strip_prefix("Running ") {
            program.clone_into(&mut self.program);
        }
        if let Some(package) = line.trim_start().strip_prefix("Doc-tests ") {
            self.program = format!("documentation of {package}");
        }
        let Some((_, totals)) = line.strip_prefix("test result: ").and_then(|l| l.split_once(". "))
        else {
            return;
        };
        for part in totals.split("; ") {
            let Some((number, what)) = part.split_once(' ') else { continue };
            let number = number.parse().unwrap_or(0);
            match what {
                "passed" => self.passed += number,
                "failed" => self.failed += number,
                "ignored" => self.ignored += number,
                _ => {}
            }
        }
        let seconds = totals.rsplit_once("finished in ").map(|(_, it)| it.trim_end_matches('s'));
        if let Some(seconds) = seconds.and_then(|it| it.parse().ok()) {
            self.took.push((seconds, std::mem::take(&mut self.program)));
        }
    }

    /// The programs that took longest: where `./check` can become quicker.
    fn slowest(&mut self) -> String {
        self.took.sort_by(|a, b| b.0.total_cmp(&a.0));
        let told = self.took.iter().take(SLOWEST_TOLD);
        told.map(|(took, name)| format!("{took:.0} {}", short(name))).collect::<Vec<_>>().join(", ")
    }
}

/// `tests/run.rs (target/debug/deps/run-0123456789abcdef)` without the digits.
fn short(program: &str) -> &str {
    let Some((source, path)) = program.split_once(" (") else { return program };
    let file = path.rsplit('/').next().unwrap_or(path);
    file.split_once('-').map_or(source, |(name, _)| name)
}

/// How many slow programs are told.
const SLOWEST_TOLD: usize = 10;

fn print_failures(log: &Path) {
    let text = fs::read_to_string(log).unwrap_or_default();
    let signs = ["FAILED", "panicked", "error: ", "error["];
    for line in text.lines().filter(|line| signs.iter().any(|sign| line.contains(sign))) {
        eprintln!("{line}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_what_cargo_prints() {
        let mut count = Count::default();
        for line in [
            "     Running unittests src/lib.rs (target/debug/deps/underload_aqm-0123456789abcdef)",
            "test result: ok. 16 passed; 0 failed; 2 ignored; 0 measured; finished in 0.10s",
            "     Running tests/run.rs (target/debug/deps/run-0123456789abcdef)",
            "SKIPPED live_smoke: no /dev/net/tun",
            "test result: FAILED. 3 passed; 1 failed; 0 ignored; 0 measured; finished in 12.30s",
        ] {
            count.read(line);
        }
        assert_eq!((count.passed, count.failed, count.ignored), (19, 1, 2));
        assert_eq!(count.slowest(), "12 run, 0 underload_aqm");
        assert_eq!(count.skipped, ["live_smoke: no /dev/net/tun"]);
    }
}
