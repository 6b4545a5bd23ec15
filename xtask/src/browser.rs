//! Pages in a browser: reports of runs, the fleet's with many devices, and those as the pictures of
//! the docs.

use std::process::Command;

use anyhow::{Context, bail};

use crate::cargo::{FEATURES, succeed};

/// Devices where nobody says how many.
const DEVICES: &str = "100000";
const PICTURES: &str = "docs/images/fleet";

/// Looks at reports, then at all pages of a fleet with so many devices in a store, and tells how
/// soon they are painted; or takes the pictures of the docs.
pub fn run(arguments: &[&str]) -> anyhow::Result<()> {
    let mut command = Command::new("cargo");
    // Of the whole workspace, as all checks: of one package alone, everything would be built again.
    command.args(["test", "--locked", "--workspace", "--test", "browser"]).args(FEATURES);
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
