//! Pages in a browser: reports of runs, those of a fleet with many devices, and pictures for the
//! docs.

use std::process::Command;

use anyhow::{Context, bail};

use crate::cargo::succeed;

/// Number of devices by default.
const DEVICES: &str = "100000";
const PICTURES: &str = "docs/images/fleet";

/// Opens reports, then all pages of a fleet with the given number of devices, and prints how soon
/// each is painted; or takes the pictures of the docs.
pub fn run(arguments: &[&str]) -> anyhow::Result<()> {
    let mut command = Command::new("cargo");
    // The whole workspace, as in all checks: a single package would build everything again.
    command.args(["test", "--locked", "--workspace", "--test", "browser"]);
    command.args(["--", "--nocapture", "--test-threads=1"]);
    match arguments {
        ["pictures"] => {
            std::fs::create_dir_all(PICTURES).context(PICTURES)?;
            let folder = std::path::absolute(PICTURES)?;
            command.args(["--ignored", "pictures_for_the_docs"]).env("UNDERLOAD_PICTURES", folder);
        }
        [] | [_] => {
            let devices = arguments.first().copied().unwrap_or(DEVICES);
            if devices.parse::<u32>().is_err() {
                bail!("cargo xtask browser [DEVICES | pictures]");
            }
            command.env("UNDERLOAD_BROWSER_DEVICES", devices);
            let mut reports = Command::new("cargo");
            reports.args(["test", "--locked", "-p", "underload-report", "--test", "browser"]);
            succeed(reports.args(["--", "--nocapture"]))?;
        }
        _ => bail!("cargo xtask browser [DEVICES | pictures]"),
    }
    succeed(&mut command)
}
