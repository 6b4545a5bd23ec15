//! `cargo xtask mutants`: cargo-mutants over the areas whose every line a test has to hold.

mod areas;
mod outcomes;
pub mod survivors;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail};

use areas::{AREAS, Area};
use outcomes::{Mutant, Verdict};
use survivors::{LIST, Survivors};

const USAGE: &str = "\
usage: cargo xtask mutants AREA [--file PATTERN] [--shard k/n]

Changes the area's code in one place after another and tells which changes no test notices. It
takes hours: --file takes some of its files, --shard one of n equal parts (0/n is the first).
Fails where a mutant survives that .cargo/mutants-survivors.toml does not list with its reason.
Asks for cargo-mutants: cargo install --locked cargo-mutants";

/// Runs one area, or lists all.
pub fn run(arguments: &[&str]) -> anyhow::Result<()> {
    let [name, options @ ..] = arguments else {
        eprintln!("{USAGE}\n\nareas:");
        for area in &AREAS {
            eprintln!("  {:<12} {}: {}", area.name, area.package, area.files.join(" "));
        }
        return Ok(());
    };
    let area = areas::find(name).with_context(|| format!("there is no area `{name}`\n{USAGE}"))?;
    let Choice { file, shard } = Choice::read(options)?;
    let list = Survivors::read()?;
    let output = super::checks::target().join("mutants").join(area.name);
    fs::create_dir_all(&output).with_context(|| output.display().to_string())?;
    // Before the run: the tree may be edited while it goes on for hours.
    let lines = lines_of_tracked_files()?;
    mutate(area, file, shard, &output)?;
    let mutants = outcomes::read(&output.join("mutants.out"))?;
    let line_of = |mutant: &Mutant| {
        let line = lines.get(&mutant.file).and_then(|text| {
            let number = mutant.line_number.checked_sub(1)?;
            text.lines().nth(number)
        });
        line.unwrap_or_default().to_owned()
    };
    tell(area, &outcomes::judge(&mutants, &list, line_of), &list)
}

/// What of an area.
#[derive(Debug, PartialEq, Eq)]
struct Choice<'a> {
    file: Option<&'a str>,
    shard: Option<&'a str>,
}

impl<'a> Choice<'a> {
    fn read(options: &[&'a str]) -> anyhow::Result<Self> {
        let mut choice = Self { file: None, shard: None };
        for pair in options.chunks(2) {
            match pair {
                ["--file", pattern] => choice.file = Some(pattern),
                ["--shard", part] => choice.shard = Some(part),
                _ => bail!("`{}` is no option with its value\n{USAGE}", pair.join(" ")),
            }
        }
        Ok(choice)
    }
}

fn lines_of_tracked_files() -> anyhow::Result<BTreeMap<String, String>> {
    let output = Command::new("git").args(["ls-files", "-z", "*.rs"]).output().context("git")?;
    let files = String::from_utf8(output.stdout).context("git ls-files")?;
    let read = |file: &str| Some((file.to_owned(), fs::read_to_string(file).ok()?));
    Ok(files.split('\0').filter_map(read).collect())
}

fn mutate(
    area: &Area,
    file: Option<&str>,
    shard: Option<&str>,
    output: &Path,
) -> anyhow::Result<()> {
    let mut command = Command::new("cargo");
    command.args(["mutants", "--package", area.package, "--no-shuffle", "--jobs", "1"]);
    command.arg("--output").arg(output);
    let whole = area.files.iter().copied();
    let patterns: Vec<&str> = file.map_or_else(|| whole.collect(), |pattern| vec![pattern]);
    command.args(patterns.into_iter().flat_map(|pattern| ["--file", pattern]));
    if let Some(part) = shard {
        command.args(["--shard", part]);
    }
    command.arg("--").args(area.tests);
    // Kept from run to run: what others wrote need not be built again.
    let built = std::path::absolute(super::checks::target().join("mutants").join("build"))?;
    let status = command.env("CARGO_TARGET_DIR", built).status().context("cargo mutants")?;
    match status.code() {
        // All caught; some missed; some timed out.
        Some(0 | 2 | 3) => Ok(()),
        _ => bail!("{command:?}: {status}; is it there? cargo install --locked cargo-mutants"),
    }
}

fn tell(area: &Area, verdict: &Verdict, list: &Survivors) -> anyhow::Result<()> {
    let Verdict { caught, timed_out, unviable, listed, unlisted, stale } = verdict;
    println!(
        "{}: {caught} caught, {timed_out} timed out, {listed} survive with a reason, {} without, \
         {unviable} do not compile",
        area.name,
        unlisted.len()
    );
    for place in stale {
        let entry = &list.survivor[*place];
        println!(
            "caught, no longer a survivor: {}: {}; take it off {LIST}",
            entry.file, entry.mutant
        );
    }
    if unlisted.is_empty() {
        return Ok(());
    }
    for mutant in unlisted {
        eprintln!("{mutant}");
    }
    bail!(
        "{} mutants survive: write a test, or list them in {LIST} with the reason",
        unlisted.len()
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_come_with_their_values() {
        let read = |options: &[&'static str]| Choice::read(options).ok();
        assert_eq!(read(&[]), Some(Choice { file: None, shard: None }));
        let both = Choice { file: Some("a.rs"), shard: Some("0/4") };
        assert_eq!(read(&["--shard", "0/4", "--file", "a.rs"]), Some(both));
        assert_eq!(read(&["--shard"]), None);
        assert_eq!(read(&["--shards", "0/4"]), None);
    }

    #[test]
    fn areas_have_names_of_their_own_and_files() {
        for area in &AREAS {
            assert!(
                areas::find(area.name).is_some_and(|it| std::ptr::eq(it, area)),
                "{}",
                area.name
            );
            for pattern in area.files {
                let folder = pattern.split("**").next().unwrap_or_default();
                let place = Path::new("..").join(folder.trim_end_matches("*.rs"));
                assert!(place.exists(), "{}: {pattern}", area.name);
            }
        }
    }
}
