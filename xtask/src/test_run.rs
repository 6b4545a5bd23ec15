//! Runs all tests and counts honestly: a test that could not run says `SKIPPED name: reason` and
//! is not counted as passed.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, bail};

#[derive(Default)]
struct Count {
    passed: usize,
    failed: usize,
    ignored: usize,
    skipped: Vec<String>,
}

const LOG: &str = "target/test.log";

/// Runs `cargo test` over the workspace, with `extra` arguments for cargo.
pub fn run(extra: &[&str]) -> anyhow::Result<()> {
    let mut command = Command::new("cargo");
    command.args(["test", "--workspace", "--locked", "--no-fail-fast"]).args(extra);
    // The output of passing tests is where skips are told.
    command.args(["--", "--show-output"]).stdout(Stdio::piped());
    let mut child = command.spawn().context("cargo test")?;
    let stdout = child.stdout.take().context("cargo test gave no output")?;
    fs::create_dir_all("target")?;
    let mut log = fs::File::create(LOG).context(LOG)?;
    let mut count = Count::default();
    for line in BufReader::new(stdout).lines() {
        let line = line.context("reading what cargo test prints")?;
        writeln!(log, "{line}").context(LOG)?;
        count.read(&line);
    }
    let status = child.wait()?;
    for skipped in &count.skipped {
        eprintln!("skipped: {skipped}");
    }
    if count.ignored > 0 {
        eprintln!("not run, marked #[ignore] (by hand only): {}", count.ignored);
    }
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
        if let Some(skipped) = line.strip_prefix("SKIPPED ") {
            self.skipped.push(skipped.to_string());
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
    }
}

fn print_failures(log: &Path) {
    let text = fs::read_to_string(log).unwrap_or_default();
    for line in text.lines().filter(|line| line.contains("FAILED") || line.contains("panicked")) {
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
            "test result: ok. 16 passed; 0 failed; 2 ignored; 0 measured; 0 filtered out; in 0.1s",
            "SKIPPED live_smoke: no /dev/net/tun",
            "test result: FAILED. 3 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; in 1s",
        ] {
            count.read(line);
        }
        assert_eq!((count.passed, count.failed, count.ignored), (19, 1, 2));
        assert_eq!(count.skipped, ["live_smoke: no /dev/net/tun"]);
    }
}
