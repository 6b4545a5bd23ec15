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
    /// What it does where it needs the network and has none.
    offline: Option<Offline>,
}

/// A part that asks a database of others.
struct Offline {
    /// What it says where the database cannot be reached.
    unreachable: &'static str,
    /// Asks what was fetched before, and what that says where nothing was.
    command: &'static [&'static str],
    missing: &'static str,
}

const PARTS: [Part; 4] = [
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
        // Newer ones want a newer Rust than this workspace.
        package: "cargo-shear@1.9.1",
        offline: None,
    },
    Part {
        name: "spelling (_typos.toml)",
        command: &["typos"],
        package: "typos-cli",
        offline: None,
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
