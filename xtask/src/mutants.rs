//! `cargo xtask mutants`: changes the code place by place, in areas where tests must notice every
//! change. cargo-mutants does the work; an area is a configuration file of it.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail};

use crate::process::{paths_in, stem};

/// The folder of the areas' files, `AREA.toml`.
const FOLDER: &str = ".cargo/mutants";

const USAGE: &str = "\
usage: cargo xtask mutants AREA [ARGUMENT...]

Runs cargo-mutants over an area, with its arguments: `--re PATTERN` takes the changes whose file or
text matches, `--shard k/n` a part, `--list` only lists. Fails where no test notices a change,
unless the area's file in .cargo/mutants excludes the change with the reason.";

/// Runs one area, or lists all areas.
pub fn run(arguments: &[&str]) -> anyhow::Result<()> {
    let [area, options @ ..] = arguments else {
        eprintln!("{USAGE}\n\nareas:");
        for area in areas()? {
            eprintln!("  {area}");
        }
        return Ok(());
    };
    if !areas()?.iter().any(|known| known == area) {
        bail!("there is no area `{area}`\n{USAGE}");
    }
    let version = Command::new("cargo").args(["mutants", "--version"]).output();
    if !version.context("cargo")?.status.success() {
        bail!("cargo-mutants is missing: cargo install --locked cargo-mutants");
    }
    let output = crate::cargo::target().join("mutants");
    let status = Command::new("cargo")
        .args(["mutants", "--workspace", "--config", &format!("{FOLDER}/{area}.toml")])
        .arg("--output")
        .arg(output)
        .args(options)
        .status()
        .context("cargo mutants")?;
    if !status.success() {
        bail!(
            "cargo mutants ends with {status}; write a test for a change that survives, or exclude \
             it with the reason in {FOLDER}/{area}.toml"
        );
    }
    Ok(())
}

fn areas() -> anyhow::Result<Vec<String>> {
    Ok(paths_in(Path::new(FOLDER), "toml")?.iter().map(|path| stem(path)).collect())
}
