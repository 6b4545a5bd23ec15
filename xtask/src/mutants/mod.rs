//! `cargo xtask mutants`: the code changed in one place after another, in the areas whose every
//! line a test has to hold.
//!
//! cargo-mutants lists the changes. They are built all at once, each behind a switch, and the tests
//! run once per change, those that reach it alone: a change costs milliseconds where a build of its
//! own would cost a minute. What cannot be switched, because the compiler computes it, is built
//! alone, as cargo-mutants would.

mod areas;
mod build;
mod listing;
mod outcomes;
pub mod survivors;
mod tree;
mod trial;
mod weave;

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use anyhow::{Context, bail};

use areas::{AREAS, Area};
use build::{Built, Workshop};
use listing::Change;
use outcomes::{Fate, Mutant, Verdict};
use survivors::{LIST, Survivors};
use trial::Trials;

const USAGE: &str = "\
usage: cargo xtask mutants AREA [--file PATTERN] [--shard k/n] [--switched]

Changes the area's code in one place after another and tells which changes no test notices. --file
takes some of its files, --shard every n-th change (0/n begins with the first), --switched leaves
out what can only be built alone, which takes a minute each.
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
    let choice = Choice::read(options)?;
    let list = Survivors::read()?;
    let folder = std::path::absolute(super::checks::target())?.join("mutants");
    // Not the target directory of the tree itself: Cargo names a package's files after its place
    // within its workspace, and would take the copy's for the tree's.
    let workshop = Workshop { tree: folder.join("tree"), target: folder.join("build") };
    tree::copy(&workshop.tree)?;
    // Before the run: the tree may be edited while it goes on.
    let lines = lines_of_tracked_files()?;
    let mut changes = listing::read(&workshop.tree, area, choice.file)?;
    let mut place = 0..;
    changes.retain(|_| choice.takes(place.next().unwrap_or_default()));
    let mutants = try_all(&workshop, area, &changes, choice.switched)?;
    let line_of = |mutant: &Mutant| {
        let line = lines.get(&mutant.file).and_then(|text| {
            let number = mutant.line_number.checked_sub(1)?;
            text.lines().nth(number)
        });
        line.unwrap_or_default().to_owned()
    };
    tell_by_file(&mutants, &list, line_of);
    tell(area, &outcomes::judge(&mutants, &list, line_of), &list)
}

/// Builds the changes and runs the tests against each.
fn try_all(
    workshop: &Workshop,
    area: &Area,
    changes: &[Change],
    switched_alone: bool,
) -> anyhow::Result<Vec<Mutant>> {
    let switched = workshop.build_switched(area, changes)?;
    let folder = workshop.package_folder(area);
    let trials = Trials::begin(&switched.programs, &folder)?;
    let mut mutants = Vec::new();
    for (number, change) in changes.iter().enumerate() {
        if switched.alone.contains(&number) {
            continue;
        }
        let unviable = switched.unviable.contains(&number);
        let fate = if unviable { Fate::Unviable } else { trials.judge(number, &change.file)? };
        if matches!(fate, Fate::Missed | Fate::Unreached | Fate::TimedOut) {
            eprintln!("{fate:?}: {}", change.name);
        }
        mutants.push(mutant(change, fate));
    }
    if switched_alone {
        println!("{} not run: they can only be built alone", switched.alone.len());
        return Ok(mutants);
    }
    tree::copy(&workshop.tree)?;
    for change in switched.alone.iter().map(|number| &changes[*number]) {
        let fate = match workshop.build_alone(area, change)? {
            Built::Errors(_) => Fate::Unviable,
            Built::Programs(programs) => trials.judge_alone(&programs)?,
        };
        eprintln!("{fate:?}, built alone: {}", change.name);
        mutants.push(mutant(change, fate));
    }
    Ok(mutants)
}

fn mutant(change: &Change, fate: Fate) -> Mutant {
    Mutant {
        file: change.file.clone(),
        line_number: change.span.start.line,
        change: change.said().to_owned(),
        fate,
    }
}

/// What of an area.
#[derive(Debug, PartialEq, Eq)]
struct Choice<'a> {
    file: Option<&'a str>,
    /// Every n-th change, from the k-th on.
    shard: (usize, usize),
    switched: bool,
}

impl<'a> Choice<'a> {
    fn read(options: &[&'a str]) -> anyhow::Result<Self> {
        let mut choice = Self { file: None, shard: (0, 1), switched: false };
        let mut options = options.iter();
        while let Some(option) = options.next() {
            let mut value = || options.next().with_context(|| format!("{option} of what?"));
            match *option {
                "--file" => choice.file = Some(value()?),
                "--shard" => choice.shard = shard(value()?)?,
                "--switched" => choice.switched = true,
                _ => bail!("`{option}` is no option\n{USAGE}"),
            }
        }
        Ok(choice)
    }

    fn takes(&self, place: usize) -> bool {
        place % self.shard.1 == self.shard.0
    }
}

/// `k/n` with k below n.
fn shard(text: &str) -> anyhow::Result<(usize, usize)> {
    let parts = text.split_once('/').context("a shard is `k/n`")?;
    let (part, of) = (parts.0.parse()?, parts.1.parse()?);
    if part >= of {
        bail!("shards of {of} are 0/{of} and on");
    }
    Ok((part, of))
}

fn lines_of_tracked_files() -> anyhow::Result<BTreeMap<String, String>> {
    let output = Command::new("git").args(["ls-files", "-z", "*.rs"]).output().context("git")?;
    let files = String::from_utf8(output.stdout).context("git ls-files")?;
    let read = |file: &str| Some((file.to_owned(), fs::read_to_string(file).ok()?));
    Ok(files.split('\0').filter_map(read).collect())
}

/// A line per file.
fn tell_by_file(mutants: &[Mutant], list: &Survivors, line_of: impl Fn(&Mutant) -> String + Copy) {
    let mut files: BTreeMap<&str, Vec<Mutant>> = BTreeMap::new();
    for mutant in mutants {
        files.entry(&mutant.file).or_default().push(mutant.clone());
    }
    println!("| file | mutants | caught | never ended | do not compile | accepted | survive |");
    println!("|---|---|---|---|---|---|---|");
    for (file, mutants) in files {
        let Verdict { mutants, caught, timed_out, unviable, listed, unlisted, stale: _ } =
            outcomes::judge(&mutants, list, line_of);
        let survive = unlisted.len();
        println!(
            "| {file} | {mutants} | {caught} | {timed_out} | {unviable} | {listed} | {survive} |"
        );
    }
}

fn tell(area: &Area, verdict: &Verdict, list: &Survivors) -> anyhow::Result<()> {
    let Verdict { mutants, caught, timed_out, unviable, listed, unlisted, stale } = verdict;
    println!(
        "{}: of {mutants} mutants {caught} caught, {timed_out} timed out, {listed} survive with a \
         reason, {} without, {unviable} do not compile",
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
    use std::path::Path;

    use super::*;

    #[test]
    fn options_come_with_their_values() {
        let read = |options: &[&'static str]| Choice::read(options).ok();
        let whole = Choice { file: None, shard: (0, 1), switched: false };
        assert!(whole.takes(0) && whole.takes(5));
        assert_eq!(read(&[]), Some(whole));
        let all = Choice { file: Some("a.rs"), shard: (1, 4), switched: true };
        let taken: Vec<usize> = (0..10).filter(|place| all.takes(*place)).collect();
        assert_eq!(taken, [1, 5, 9]);
        assert_eq!(read(&["--shard", "1/4", "--switched", "--file", "a.rs"]), Some(all));
        for wrong in
            [&["--shard"][..], &["--shards", "0/4"], &["--shard", "4/4"], &["--shard", "0/0"]]
        {
            assert_eq!(read(wrong), None, "{wrong:?}");
        }
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
