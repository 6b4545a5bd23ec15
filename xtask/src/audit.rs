//! What others' tools find: dependencies that are unused, withdrawn, vulnerable or under another
//! licence, and misspelt words. Nothing here is needed to build or to test, so where a tool is not
//! installed its part is skipped by name.

use std::process::Command;

use anyhow::{Context, bail};

/// One part of the audit.
struct Part {
    name: &'static str,
    /// The program, with what it is asked.
    command: &'static [&'static str],
    /// The crate that brings it.
    package: &'static str,
    /// What it says where it needs the network and has none.
    unreachable: Option<&'static str>,
}

const PARTS: [Part; 4] = [
    Part {
        name: "licences, sources and bans (deny.toml)",
        command: &["cargo-deny", "check", "bans", "licenses", "sources"],
        package: "cargo-deny",
        unreachable: None,
    },
    Part {
        name: "advisories (deny.toml)",
        command: &["cargo-deny", "check", "advisories"],
        package: "cargo-deny",
        unreachable: Some("failed to fetch advisory database"),
    },
    Part {
        name: "unused dependencies",
        command: &["cargo-shear"],
        // Newer ones want a newer Rust than this workspace.
        package: "cargo-shear@1.9.1",
        unreachable: None,
    },
    Part {
        name: "spelling (_typos.toml)",
        command: &["typos"],
        package: "typos-cli",
        unreachable: None,
    },
];

/// What became of a part.
enum Outcome {
    Passed,
    Skipped(String),
    Failed(String),
}

/// Every part, by hand: one that cannot be done is an error.
pub fn run() -> anyhow::Result<()> {
    let skipped = audit()?;
    if skipped > 0 {
        bail!("{skipped} of {} parts were not done", PARTS.len());
    }
    Ok(())
}

/// Every part that can be done here.
pub fn where_installed() -> anyhow::Result<()> {
    audit().map(|_| ())
}

/// Gives how many parts were skipped.
fn audit() -> anyhow::Result<usize> {
    let (mut skipped, mut failed) = (0, 0);
    for part in &PARTS {
        match part.run()? {
            Outcome::Passed => eprintln!("    {}: passed", part.name),
            Outcome::Skipped(why) => {
                skipped += 1;
                eprintln!("SKIPPED audit of {}: {why}", part.name);
            }
            Outcome::Failed(said) => {
                failed += 1;
                eprintln!("{said}\n    {}: FAILED", part.name);
            }
        }
    }
    if failed > 0 {
        bail!("{failed} of {} parts failed", PARTS.len());
    }
    Ok(skipped)
}

impl Part {
    fn run(&self) -> anyhow::Result<Outcome> {
        let [program, arguments @ ..] = self.command else { bail!("{}: no command", self.name) };
        let output = match Command::new(program).args(arguments).output() {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let package = self.package;
                let why = format!("{program} is missing; cargo install --locked {package}");
                return Ok(Outcome::Skipped(why));
            }
            output => output.with_context(|| program.to_string())?,
        };
        if output.status.success() {
            return Ok(Outcome::Passed);
        }
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        Ok(match self.unreachable {
            Some(sign) if said.contains(sign) => {
                Outcome::Skipped("its database cannot be reached from here".to_owned())
            }
            _ => Outcome::Failed(said),
        })
    }
}
