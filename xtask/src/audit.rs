//! Results of other tools: unused, withdrawn or vulnerable dependencies, their licences, misspelt
//! words and dead links. Builds and tests need none of them, so the part of a missing tool is
//! skipped.

use std::process::Command;

use anyhow::{Context, bail};

/// A part: its name, its program with arguments, the crate that contains the program.
type Part = (&'static str, &'static str, &'static str);

const PARTS: [Part; 5] = [
    (
        "licences, sources and bans (deny.toml)",
        "cargo-deny check bans licenses sources",
        "cargo-deny",
    ),
    ("advisories (deny.toml)", "cargo-deny check advisories", "cargo-deny"),
    // Newer versions need a newer Rust than this workspace.
    ("unused dependencies", "cargo-shear", "cargo-shear@1.9.1"),
    ("spelling (_typos.toml)", "typos", "typos-cli"),
    (
        "links between pages",
        "lychee --offline --include-fragments --no-progress *.md docs",
        "lychee",
    ),
];

/// The error of `cargo-deny` if it cannot fetch the database of advisories, and its error with
/// `--offline` if it has no earlier copy.
const UNREACHABLE: &str = "failed to fetch advisory database";
const NO_COPY: &str = "failed to get 'FETCH_HEAD' metadata";

/// The result of a part.
enum Outcome {
    Passed,
    Skipped(String),
    Failed(String),
}

/// Runs every part whose tool is installed.
pub fn run() -> anyhow::Result<()> {
    let mut failed = 0;
    for part in PARTS {
        let (name, ..) = part;
        match run_part(part)? {
            Outcome::Passed => eprintln!("    {name}: passed"),
            Outcome::Skipped(why) => crate::skips::report(&format!("audit of {name}"), &why),
            Outcome::Failed(said) => {
                failed += 1;
                eprintln!("{said}\n    {name}: FAILED");
            }
        }
    }
    if failed > 0 {
        bail!("{failed} of {} parts failed", PARTS.len());
    }
    Ok(())
}

fn run_part((name, command, package): Part) -> anyhow::Result<Outcome> {
    let outcome = run_with(&[], command, package)?;
    if !matches!(&outcome, Outcome::Failed(said) if said.contains(UNREACHABLE)) {
        return Ok(outcome);
    }
    Ok(match run_with(&["--offline"], command, package)? {
        Outcome::Failed(said) if said.contains(NO_COPY) => {
            Outcome::Skipped("its database cannot be reached from here".to_owned())
        }
        outcome => {
            eprintln!("    {name}: by what was fetched before");
            outcome
        }
    })
}

fn run_with(options: &[&str], command: &str, package: &str) -> anyhow::Result<Outcome> {
    let (program, arguments) = command.split_once(' ').unwrap_or((command, ""));
    let output = Command::new(program).args(options).args(arguments.split_whitespace()).output();
    let output = match output {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let why = format!("{program} is missing; cargo install --locked {package}");
            return Ok(Outcome::Skipped(why));
        }
        output => output.with_context(|| program.to_owned())?,
    };
    if output.status.success() {
        return Ok(Outcome::Passed);
    }
    let said = [output.stdout, output.stderr].concat();
    Ok(Outcome::Failed(String::from_utf8_lossy(&said).into_owned()))
}
