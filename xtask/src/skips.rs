//! Collects what a command skipped, and fails the command for it in strict mode.
//!
//! A step or test that cannot run prints `SKIPPED name: reason`. `UNDERLOAD_STRICT` decides what
//! that means: unset, skips are only listed; `1` turns every skip into a failure; any other value
//! names a file that lists the skips that a kind of machine may have, one prefix per line.

use std::env;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::Mutex;

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

/// Returns what a line of a test's output says it skipped, without the count that pytest puts
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

/// Lists the recorded skips and judges them by `UNDERLOAD_STRICT`.
///
/// # Errors
/// Returns an error that names the skips that strict mode does not allow, or if the file that lists
/// the allowed ones cannot be read.
pub fn judge() -> anyhow::Result<()> {
    let skips = SKIPS.lock().expect("no thread panics while it holds the list");
    let Some(strict) = env::var_os(VARIABLE).filter(|value| !value.is_empty()) else {
        if !skips.is_empty() {
            eprintln!("skipped in all: {} ({VARIABLE}=1 fails for them)", skips.len());
        }
        return Ok(());
    };
    let allowed = if strict == "1" {
        String::new()
    } else {
        fs::read_to_string(&strict).with_context(|| format!("{VARIABLE}={}", strict.display()))?
    };
    let refused = refused(&skips, &allowed);
    if !refused.is_empty() {
        bail!("skipped, and {VARIABLE} does not allow it:\n  {}", refused.join("\n  "));
    }
    eprintln!("skipped in all: {}, each allowed by {VARIABLE}", skips.len());
    Ok(())
}

/// Returns the skips that begin with no line of `allowed`; its empty lines and comments count for
/// nothing.
fn refused<'a>(skips: &'a [String], allowed: &str) -> Vec<&'a str> {
    let is_rule = |line: &&str| !line.is_empty() && !line.starts_with('#');
    let rules: Vec<&str> = allowed.lines().map(str::trim).filter(is_rule).collect();
    let is_allowed = |skip: &str| rules.iter().any(|rule| skip.starts_with(rule));
    skips.iter().map(String::as_str).filter(|skip| !is_allowed(skip)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_listed_skips_are_allowed() {
        let skips = ["audit of spelling: typos is missing", "link: nft is not installed"];
        let skips = skips.map(str::to_owned);
        assert_eq!(refused(&skips, ""), skips);
        assert_eq!(refused(&skips, "# why\n\naudit of spelling"), [&skips[1]]);
        assert_eq!(refused(&skips, "#\n  link:\n"), [&skips[0]]);
        assert!(refused(&[], "").is_empty());
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
