//! `cargo xtask mutants`: changes the code place by place, in areas where tests must notice every
//! change. cargo-mutants does the work; an area is a configuration file of it.

use std::process::Command;

use anyhow::{Context, bail};

use crate::cargo::{succeed, target};
use crate::process::stems_in;

/// The folder of the areas' files, `AREA.toml`.
const FOLDER: &str = ".cargo/mutants";

const USAGE: &str = "\
usage: cargo xtask mutants AREA [ARGUMENT...]

Runs cargo-mutants over an area, with its arguments: `--re PATTERN` takes the changes whose file or
text matches, `--shard k/n` a part, `--list` only lists. Fails where no test notices a change,
unless the area's file in .cargo/mutants excludes the change with the reason.";

/// Runs one area, or lists all areas.
pub fn run(arguments: &[&str]) -> anyhow::Result<()> {
    let areas = stems_in(FOLDER, "toml")?;
    let [area, options @ ..] = arguments else {
        eprintln!("{USAGE}\n\nareas:\n  {}", areas.join("\n  "));
        return Ok(());
    };
    if !areas.iter().any(|known| known == area) {
        bail!("there is no area `{area}`\n{USAGE}");
    }
    let version = Command::new("cargo").args(["mutants", "--version"]).output();
    if !version.context("cargo")?.status.success() {
        bail!("cargo-mutants is missing: cargo install --locked cargo-mutants");
    }
    let mut mutants = Command::new("cargo");
    mutants.args(["mutants", "--workspace", "--config", &format!("{FOLDER}/{area}.toml")]);
    mutants.arg("--output").arg(target().join("mutants"));
    succeed(mutants.args(options)).with_context(|| {
        format!(
            "write a test for a change that survives, or exclude it with the reason in \
             {FOLDER}/{area}.toml"
        )
    })
}
