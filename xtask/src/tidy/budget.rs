//! Counts that may only fall, and their limits in `budget.toml`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;

use anyhow::{Context as _, bail};
use serde::Deserialize;

use super::code::{self, Source};
use super::unused;
use crate::cargo::target;
use crate::process::output;

const FILE: &str = "budget.toml";
/// A limit may exceed its count by 1/50, which is 2 %.
const SLACK: u64 = 50;
/// Programs whose packages are counted, with the crates that have them.
const PROGRAMS: [(&str, &str); 2] =
    [("underload", "underload"), ("underload-fleet", "underload-fleet-cli")];
/// Crates that may print and use errors without types; all other crates are libraries.
const PROGRAM_CRATES: [&str; 4] = ["cli", "fleet-cli", "terminal", "playground"];

#[derive(Deserialize)]
struct Limits {
    lines: BTreeMap<String, u64>,
    packages: BTreeMap<String, u64>,
    unused: BTreeMap<String, u64>,
    bytes: BTreeMap<String, u64>,
    bans: BTreeMap<String, Ban>,
}

/// A pattern of code that must not be added again.
#[derive(Deserialize)]
struct Ban {
    /// The number of existing lines that may match the pattern.
    allowed: u64,
    scope: Scope,
    /// The replacement, for the message.
    instead: String,
}

#[derive(Deserialize, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
enum Scope {
    /// Shipped code of all crates.
    Code,
    /// Shipped code of the crates that are not programs.
    Libraries,
    Tests,
    /// All Rust files, comments included.
    Texts,
}

/// A count and its limit; `limit` is `None` if the file has no limit for it.
struct Number {
    table: &'static str,
    key: String,
    count: u64,
    limit: Option<u64>,
    /// Advice if the count is above the limit.
    hint: String,
}

impl Number {
    fn problem(&self) -> Option<String> {
        let Self { table, key, count, limit, hint } = self;
        let name = format!("{FILE}: {table}.{key}");
        match limit {
            None => Some(format!("{name}: the limit is missing; there are {count}")),
            Some(limit) if count > limit => Some(format!("{name}: {count}, limit {limit}; {hint}")),
            Some(limit) if *limit > count + count / SLACK => Some(format!(
                "{name}: {count}, so the limit {limit} is too high; cargo xtask budget --write"
            )),
            Some(_) => None,
        }
    }
}

/// Counts everything but the sizes of programs.
fn numbers() -> anyhow::Result<Vec<Number>> {
    let limits = limits()?;
    let sources = code::read(&super::tracked()?)?;
    let mut numbers = Vec::new();
    let mut add = |table, limits: &BTreeMap<String, u64>, counts: BTreeMap<String, u64>| {
        let keys: BTreeSet<&String> = limits.keys().chain(counts.keys()).collect();
        numbers.extend(keys.into_iter().map(|key| Number {
            table,
            key: key.clone(),
            count: counts.get(key).copied().unwrap_or(0),
            limit: limits.get(key).copied(),
            hint: "write less, or raise the limit with the reason beside it".to_owned(),
        }));
    };
    let mut lines = BTreeMap::new();
    for source in &sources {
        if let Some(name) = source.shipped_crate() {
            *lines.entry(name.to_owned()).or_default() += source.code.len() as u64;
        }
    }
    let total = lines.values().sum();
    lines.insert("total".to_owned(), total);
    add("lines", &limits.lines, lines);
    add("packages", &limits.packages, packages()?);
    let unused = unused::items(&sources);
    let unused = [("nowhere", unused.nowhere.len()), ("in-tests", unused.in_tests.len())];
    let unused = unused.map(|(key, count)| (key.to_owned(), count as u64));
    add("unused", &limits.unused, BTreeMap::from(unused));
    for (pattern, ban) in limits.bans {
        numbers.push(Number {
            table: "bans",
            count: sources.iter().map(|source| ban.scope.count(source, &pattern)).sum(),
            limit: Some(ban.allowed),
            hint: format!("instead: {}", ban.instead),
            key: pattern,
        });
    }
    Ok(numbers)
}

fn limits() -> anyhow::Result<Limits> {
    let text = fs::read_to_string(FILE).context(FILE)?;
    toml::from_str(&text).context(FILE)
}

/// Counts the packages of the lock file, and those linked into the programs on Linux.
fn packages() -> anyhow::Result<BTreeMap<String, u64>> {
    let lock = fs::read_to_string("Cargo.lock").context("Cargo.lock")?;
    let locked = lock.lines().filter(|line| *line == "[[package]]").count();
    let mut counts = BTreeMap::from([("Cargo.lock".to_owned(), locked as u64)]);
    for (program, package) in PROGRAMS {
        let mut tree = Command::new("cargo");
        tree.args(["tree", "--locked", "--package", package, "--edges", "normal"]);
        tree.args(["--target", "x86_64-unknown-linux-gnu", "--prefix", "none"]);
        let text = output(&mut tree)?;
        let packages: BTreeSet<Vec<&str>> =
            text.lines().map(|line| line.split(' ').take(2).collect()).collect();
        counts.insert(program.to_owned(), packages.len() as u64);
    }
    Ok(counts)
}

impl Scope {
    /// Counts the lines of a source that match a pattern, in which `*` stands for any text.
    fn count(self, source: &Source, pattern: &str) -> u64 {
        let shipped = source.shipped_crate();
        let is_library = shipped.is_some_and(|name| !PROGRAM_CRATES.contains(&name));
        let matching =
            |lines: &[String]| lines.iter().filter(|line| matches(line, pattern)).count() as u64;
        match self {
            Self::Code if shipped.is_some() => matching(&source.code),
            Self::Libraries if is_library => matching(&source.code),
            Self::Tests => matching(&source.tests),
            Self::Texts => {
                let text = fs::read_to_string(&source.path).unwrap_or_default();
                text.lines().filter(|line| matches(line, pattern)).count() as u64
            }
            Self::Code | Self::Libraries => 0,
        }
    }
}

/// Whether a line contains the parts of a pattern between `*`, in order.
fn matches(line: &str, pattern: &str) -> bool {
    let mut rest = line;
    pattern.split('*').all(|part| match rest.split_once(part) {
        Some((_, after)) => {
            rest = after;
            true
        }
        None => false,
    })
}

/// Returns the numbers that exceed their limits, and the limits that are too high.
pub fn problems() -> anyhow::Result<Vec<String>> {
    Ok(numbers()?.iter().filter_map(Number::problem).collect())
}

/// Prints every count beside its limit, and the unused items.
pub fn print() -> anyhow::Result<()> {
    for Number { table, key, count, limit, .. } in numbers()?.iter().chain(&programs()?) {
        let limit = limit.map_or("none".to_owned(), |limit| limit.to_string());
        println!("{count:>9} of {limit:>9}  {table}.{key}");
    }
    let unused = unused::items(&code::read(&super::tracked()?)?);
    for (title, items) in [("nowhere used", unused.nowhere), ("used in tests", unused.in_tests)] {
        for item in items {
            println!("{title}: {item}");
        }
    }
    Ok(())
}

/// Lowers the limits to the counts.
///
/// # Errors
/// Returns an error, and writes nothing, if a count exceeds its limit.
pub fn write() -> anyhow::Result<()> {
    let mut numbers = numbers()?;
    numbers.extend(programs()?);
    let is_above = |number: &&Number| number.limit.is_none_or(|limit| number.count > limit);
    let above: Vec<String> = numbers.iter().filter(is_above).filter_map(Number::problem).collect();
    if !above.is_empty() {
        bail!("a limit is raised by hand, with the reason beside it:\n{}", above.join("\n"));
    }
    let text = fs::read_to_string(FILE).context(FILE)?;
    fs::write(FILE, lowered(&text, &numbers)).context(FILE)
}

/// Returns the text of the file with the counts as limits.
fn lowered(text: &str, numbers: &[Number]) -> String {
    let mut table = "";
    let mut lines = Vec::new();
    for line in text.lines() {
        let key = line.split_once(" = ").map_or("", |(key, _)| key);
        let unquoted = ['"', '\''].iter().find_map(|it| key.strip_prefix(*it)?.strip_suffix(*it));
        let key = unquoted.unwrap_or(key);
        table = line.strip_prefix('[').and_then(|it| it.strip_suffix(']')).unwrap_or(table);
        let number = numbers.iter().find(|it| it.table == table && it.key == key);
        lines.push(match number {
            Some(Number { count, limit: Some(limit), .. }) => {
                line.replacen(&format!(" = {limit}"), &format!(" = {count}"), 1)
            }
            _ => line.to_owned(),
        });
    }
    lines.join("\n") + "\n"
}

/// Returns the sizes of the programs for `x86_64` that `cargo xtask dist` has built.
fn programs() -> anyhow::Result<Vec<Number>> {
    let number = |(key, limit): (String, u64)| {
        let path = target().join(format!("programs/{key}-x86_64-linux"));
        let hint = "make it smaller, or raise the limit with the reason beside it".to_owned();
        let count = fs::metadata(path).ok()?.len();
        Some(Number { table: "bytes", key, count, limit: Some(limit), hint })
    };
    Ok(limits()?.bytes.into_iter().filter_map(number).collect())
}

/// Fails if a program that `cargo xtask dist` has built is larger than its limit.
pub fn check_programs() -> anyhow::Result<()> {
    let problems: Vec<String> = programs()?.iter().filter_map(Number::problem).collect();
    if problems.is_empty() { Ok(()) } else { bail!("{}", problems.join("\n")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(count: u64, limit: u64) -> Number {
        let (key, hint) = ("anyhow::".to_owned(), "instead: thiserror".to_owned());
        Number { table: "bans", key, count, limit: Some(limit), hint }
    }

    #[test]
    fn a_count_above_its_limit_and_a_limit_that_is_not_needed_are_problems() {
        let told = number(3, 2).problem().expect("a problem");
        assert_eq!(told, "budget.toml: bans.anyhow::: 3, limit 2; instead: thiserror");
        assert!(number(3, 4).problem().is_some_and(|it| it.contains("too high")));
        assert!(number(100, 102).problem().is_none(), "2 % are allowed");
        assert!(number(100, 103).problem().is_some());
    }

    #[test]
    fn limits_are_lowered_in_place() {
        let text =
            "# Why.\n[lines]\n\"anyhow::\" = 9\n[bans]\n\"anyhow::\" = { allowed = 9 } # x\n";
        let written = lowered(text, &[number(3, 9)]);
        assert_eq!(written, text.replace("allowed = 9", "allowed = 3"));
    }

    #[test]
    fn a_star_matches_any_text() {
        assert!(matches("fn a() -> Result<Vec<u8>, String> {", "Result<*, String>"));
        assert!(!matches("fn a() -> Result<Vec<u8>, Error> {", "Result<*, String>"));
    }
}
