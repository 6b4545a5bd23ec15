//! The simulator beside the live world: the same scenarios in both, then the differences.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail};

use crate::cargo::succeed;

/// Name of the benchmark.
pub const NAME: &str = "sim-live";
/// What it shows.
pub const WHAT: &str = "working latency and goodput, simulated against live (takes 6 minutes)";

/// Scenario, override, folder.
const CASES: [(&str, Option<&str>, &str); 3] = [
    ("comcast/upstream", None, "upstream-cubic"),
    ("comcast/upstream", Some("flow.upload.congestion_control=bbr"), "upstream-bbr"),
    ("bode/step", None, "step"),
];

/// Runs every case in both worlds and prints the differences. Other arguments go to every
/// `underload run`, for example `--short`.
pub fn run(arguments: &[&str]) -> anyhow::Result<()> {
    succeed(Command::new("cargo").args(["build", "--profile=bench", "-p", "underload"]))?;
    let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    let program = Path::new(&target).join("release/underload");
    let folder = Path::new(&target).join(NAME);
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| format!("removing {}", folder.display()))?;
    }
    for (scenario, change, name) in CASES {
        let out = |world: &str| folder.join(format!("{name}-{world}"));
        for world in ["live", "sim"] {
            let mut command = Command::new(&program);
            command.args(["run", scenario, "--world", world, "--out"]).arg(out(world));
            if let Some(change) = change {
                command.args(["--set", change]);
            }
            // The records are what counts; a run in which no trial is valid says so itself.
            let status = command.args(arguments).stdout(std::process::Stdio::null()).status();
            status.with_context(|| format!("{command:?}"))?;
        }
    }
    for (_, change, name) in CASES {
        if let Some(change) = change {
            println!("with {change}:");
        }
        let run = |world: &str| folder.join(format!("{name}-{world}"));
        let mut command = Command::new(&program);
        // It is the table that is wanted; that a number is missed is no failure of this.
        let status = command.args(["report", "--compare"]).args([run("sim"), run("live")]).status();
        let status = status.with_context(|| format!("{command:?}"))?;
        if status.code().is_none_or(|code| code > 1) {
            bail!("{command:?}: {status}");
        }
    }
    Ok(())
}
