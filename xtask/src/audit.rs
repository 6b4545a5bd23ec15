//! Results of other tools: unused, withdrawn or vulnerable dependencies, their licences, misspelt
//! words and dead links. Builds and tests need none of them, so the part of a missing tool is
//! skipped.

use std::process::Command;

use anyhow::{Context, bail};

struct Part {
    name: &'static str,
    /// The program with its arguments.
    command: &'static [&'static str],
    /// The crate that contains the program.
    package: &'static str,
    /// The way to run without network; `None` if the part needs no network anyway.
    offline: Option<Offline>,
}

/// A part that reads a database over the network.
struct Offline {
    /// Text of the error if the database cannot be reached.
    unreachable: &'static str,
    /// The command that uses an earlier copy of the database, and the text of its error if no copy
    /// exists.
    command: &'static [&'static str],
    missing: &'static str,
}

const PARTS: [Part; 5] = [
    Part {
        name: "licences, sources and bans (deny.toml)",
        command: &["cargo-deny", "check", "bans", "licenses", "sources"],
        package: "cargo-deny",
        offline: None,
    },
    Part {
        name: "advisories (deny.toml)",
        command: &["cargo-deny", "check", "advisories"],
        package: "cargo-deny",
        offline: Some(Offline {
            unreachable: "failed to fetch advisory database",
            command: &["cargo-deny", "--offline", "check", "advisories"],
            missing: "failed to get 'FETCH_HEAD' metadata",
        }),
    },
    Part {
        name: "unused dependencies",
        command: &["cargo-shear"],
        // Newer versions need a newer Rust than this workspace.
        package: "cargo-shear@1.9.1",
        offline: None,
    },
    Part {
        name: "spelling (_typos.toml)",
        command: &["typos"],
        package: "typos-cli",
        offline: None,
    },
    Part {
        name: "links between pages",
        command: &["lychee", "--offline", "--include-fragments", "--no-progress", "*.md", "docs"],
        package: "lychee",
        offline: None,
    },
];

/// The result of a part.
enum Outcome {
    Passed,
    Skipped(String),
    Failed(String),
}

/// Runs every part; a skipped one is an error.
pub fn run() -> anyhow::Result<()> {
    let skipped = audit()?;
    if skipped > 0 {
        bail!("{skipped} of {} parts were not done", PARTS.len());
    }
    Ok(())
}

/// Runs every part whose tool is installed.
pub fn where_installed() -> anyhow::Result<()> {
    audit().map(|_| ())
}

/// Runs all parts and returns how many were skipped.
fn audit() -> anyhow::Result<usize> {
    let (mut skipped, mut failed) = (0, 0);
    for part in &PARTS {
        match part.run()? {
            Outcome::Passed => eprintln!("    {}: passed", part.name),
            Outcome::Skipped(why) => {
                skipped += 1;
                crate::skips::report(&format!("audit of {}", part.name), &why);
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
        let outcome = self.run_as(self.command)?;
        let (Outcome::Failed(said), Some(offline)) = (&outcome, &self.offline) else {
            return Ok(outcome);
        };
        if !said.contains(offline.unreachable) {
            return Ok(outcome);
        }
        let outcome = self.run_as(offline.command)?;
        Ok(match outcome {
            Outcome::Failed(said) if said.contains(offline.missing) => {
                Outcome::Skipped("its database cannot be reached from here".to_owned())
            }
            outcome => {
                eprintln!("    {}: by what was fetched before", self.name);
                outcome
            }
        })
    }

    fn run_as(&self, command: &[&str]) -> anyhow::Result<Outcome> {
        let [program, arguments @ ..] = command else { bail!("{}: no command", self.name) };
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
        Ok(Outcome::Failed(String::from_utf8_lossy(&said).into_owned()))
    }
}
