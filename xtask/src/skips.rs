//! Collects what a command skipped, and fails the command for it in strict mode.
//!
//! A step or test that cannot run prints `SKIPPED name: reason`. `UNDERLOAD_STRICT` decides what
//! that means: unset, skips are only listed; `1` turns every skip into a failure; any other value
//! names a file that lists the skips that a kind of machine may have: one name per line, or the
//! beginning of names with a `*` after it.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::{env, fs};

use anyhow::{Context, bail};

/// Skips of this process, each as `name: reason`.
static SKIPS: Mutex<Vec<String>> = Mutex::new(Vec::new());
const VARIABLE: &str = "UNDERLOAD_STRICT";
const PREFIX: &str = "SKIPPED ";

/// Prints that `name` cannot run here, and records it.
pub fn report(name: &str, reason: &str) {
    eprintln!("{PREFIX}{name}: {reason}");
    record(format!("{name}: {reason}"));
}

/// Returns the skip that a line of a test's output reports, without the count that pytest puts
/// before it.
pub fn parse(line: &str) -> Option<&str> {
    let skip = line.strip_prefix(PREFIX)?;
    let counted = skip.strip_prefix('[').and_then(|rest| rest.split_once("] "));
    Some(counted.map_or(skip, |(_, skip)| skip))
}

/// Records a skip that was printed already.
pub fn record(skip: String) {
    SKIPS.lock().expect("no thread panics while it holds the list").push(skip);
}

/// Runs a command, passes its standard output on and records the skips in it.
///
/// # Errors
/// Returns an error if the command cannot start or fails.
pub fn succeed(command: &mut Command) -> anyhow::Result<()> {
    let mut child =
        command.stdout(Stdio::piped()).spawn().with_context(|| format!("{command:?}"))?;
    let output = child.stdout.take().context("standard output was piped")?;
    for line in BufReader::new(output).lines() {
        let line = line.with_context(|| format!("{command:?}"))?;
        println!("{line}");
        parse(&line).map(str::to_owned).into_iter().for_each(record);
    }
    let status = child.wait()?;
    if !status.success() {
        bail!("{command:?}: {status}");
    }
    Ok(())
}

/// The treatment of skips that `UNDERLOAD_STRICT` selects.
pub enum Strictness {
    /// Skips are only listed.
    Lenient,
    /// A skip whose name is not in this list fails the command.
    Strict(Vec<String>),
}

impl Strictness {
    /// Reads the environment, and the list of allowed names where it names a file.
    ///
    /// # Errors
    /// Returns an error if that file cannot be read.
    pub fn from_env() -> anyhow::Result<Self> {
        let Some(value) = env::var_os(VARIABLE).filter(|value| !value.is_empty()) else {
            return Ok(Self::Lenient);
        };
        if value == "1" {
            return Ok(Self::Strict(Vec::new()));
        }
        let text = fs::read_to_string(&value);
        let text = text.with_context(|| format!("{VARIABLE}={}", value.display()))?;
        Ok(Self::Strict(allowed(&text)))
    }

    /// Counts the recorded skips and judges them.
    ///
    /// # Errors
    /// Returns an error that lists the skips that are not allowed.
    pub fn judge(&self) -> anyhow::Result<()> {
        let skips = SKIPS.lock().expect("no thread panics while it holds the list");
        match self {
            Self::Lenient if skips.is_empty() => {}
            Self::Lenient => {
                eprintln!("skipped in all: {} ({VARIABLE}=1 fails for them)", skips.len());
            }
            Self::Strict(allowed) => {
                let refused = refused(&skips, allowed);
                if !refused.is_empty() {
                    bail!("skipped, and {VARIABLE} does not allow it:\n  {}", refused.join("\n  "));
                }
                eprintln!("skipped in all: {}, each allowed by {VARIABLE}", skips.len());
            }
        }
        Ok(())
    }
}

/// Returns the lines of a list of allowed skips without comments and empty lines.
fn allowed(text: &str) -> Vec<String> {
    let is_rule = |line: &&str| !line.is_empty() && !line.starts_with('#');
    text.lines().map(str::trim).filter(is_rule).map(str::to_owned).collect()
}

/// Returns the skips whose name, which ends at the first `: `, matches no rule.
fn refused<'a>(skips: &'a [String], allowed: &[String]) -> Vec<&'a str> {
    let is_allowed = |skip: &str| {
        let name = skip.split_once(": ").map_or(skip, |(name, _)| name);
        allowed.iter().any(|rule| match rule.strip_suffix('*') {
            Some(start) => name.starts_with(start),
            None => name == rule,
        })
    };
    skips.iter().map(String::as_str).filter(|skip| !is_allowed(skip)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_listed_names_are_allowed() {
        let skips = ["audit of spelling: typos is missing", "link: nft is not installed"];
        let skips = skips.map(str::to_owned);
        let refused = |list: &str| -> Vec<usize> {
            let refused = super::refused(&skips, &allowed(list));
            refused.iter().filter_map(|skip| skips.iter().position(|it| it == skip)).collect()
        };
        assert_eq!(refused(""), [0, 1]);
        assert_eq!(refused("# why\n\naudit of spelling"), [1]);
        assert_eq!(refused("audit of *"), [1]);
        assert_eq!(refused("#\n  link\n"), [0]);
        assert_eq!(refused("audit of\nlin\nlink: nft"), [0, 1], "no rule is the whole name");
        assert_eq!(refused("*"), [0; 0]);
    }

    #[test]
    fn a_skip_is_read_from_a_line() {
        assert_eq!(parse("SKIPPED live: no root"), Some("live: no root"));
        assert_eq!(
            parse("SKIPPED [1] tests/test_ray.py:9: no ray"),
            Some("tests/test_ray.py:9: no ray")
        );
        assert_eq!(parse("test skipped ... ok"), None);
    }
}
