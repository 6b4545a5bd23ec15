//! Runs scenarios simulated and live, and prints the differences.

use std::process::Command;

use anyhow::{Context, bail};

use crate::cargo::{build_program, target};
use crate::process::fresh_folder;

pub const NAME: &str = "sim-live";
pub const WHAT: &str = "working latency and goodput, simulated against live (takes 6 minutes)";

/// Scenario, override, and name of the folder.
const CASES: [(&str, Option<&str>, &str); 3] = [
    ("comcast/upstream", None, "upstream-cubic"),
    ("comcast/upstream", Some("flow.upload.congestion_control=bbr"), "upstream-bbr"),
    ("bode/step", None, "step"),
];

/// Runs every case in both worlds and prints the differences. Other arguments go to every
/// `underload run`, for example `--short`.
pub fn run(arguments: &[&str]) -> anyhow::Result<()> {
    let (program, folder) = (build_program()?, target().join(NAME));
    fresh_folder(&folder)?;
    for (scenario, change, name) in CASES {
        let out = |world: &str| folder.join(format!("{name}-{world}"));
        for world in ["live", "sim"] {
            let mut command = Command::new(&program);
            command.args(["run", scenario, "--world", world, "--out"]).arg(out(world));
            if let Some(change) = change {
                command.args(["--set", change]);
            }
            // A run without a valid trial still has a record to compare.
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
        // Status 1 means that numbers are missed, which is a result.
        let status = command.args(["report", "--compare"]).args([run("sim"), run("live")]).status();
        let status = status.with_context(|| format!("{command:?}"))?;
        if status.code().is_none_or(|code| code > 1) {
            bail!("{command:?}: {status}");
        }
    }
    Ok(())
}
