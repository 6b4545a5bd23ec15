//! Commits say why: each has a first line that fits a list, and a body.

use std::process::Command;

use anyhow::bail;

/// Columns of a first line, at most.
const SUBJECT_MAX: usize = 72;
/// How many commits are looked at where nothing says which of them are new.
const LATEST: &str = "-10";

/// Checks the commits since `base`; without one, those that the branch's upstream does not have,
/// or else those since the latest tag. Where neither is there, what is amiss with the latest ten
/// is told and no failure: they may be others' already, and then cannot be written anew.
pub fn check(base: Option<&str>) -> anyhow::Result<()> {
    let range = match base {
        Some(base) => Some(format!("{base}..HEAD")),
        None => since(),
    };
    if git(&["rev-parse", "--git-dir"]).is_none() {
        eprintln!("SKIPPED commits: there is no git history here");
        return Ok(());
    }
    let which = range.as_deref().unwrap_or(LATEST);
    let Some(log) = git(&["log", "--no-merges", "-z", "--format=%h%n%B", which]) else {
        bail!("git log {which} failed");
    };
    let commits: Vec<&str> = log.split('\0').filter(|commit| !commit.is_empty()).collect();
    let problems: Vec<String> = commits.iter().filter_map(|commit| problem(commit)).collect();
    for problem in &problems {
        eprintln!("{problem}");
    }
    if !problems.is_empty() && range.is_some() {
        bail!("{} of {} commits ({which})", problems.len(), commits.len());
    }
    eprintln!("    {} commits looked at ({which})", commits.len());
    Ok(())
}

/// The range of the commits that are new here.
fn since() -> Option<String> {
    let upstream = git(&["merge-base", "HEAD", "@{upstream}"]);
    let base = upstream.or_else(|| git(&["describe", "--tags", "--abbrev=0"]))?;
    Some(format!("{}..HEAD", base.trim()))
}

/// What git says, where it succeeds.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// What is wrong with a commit, given as its short name and its message.
fn problem(commit: &str) -> Option<String> {
    let mut lines = commit.trim_end().lines();
    let name = lines.next().unwrap_or_default();
    let subject = lines.next().unwrap_or_default();
    let columns = subject.chars().count();
    if columns > SUBJECT_MAX {
        return Some(format!("{name} {subject}: {columns} columns; at most {SUBJECT_MAX}"));
    }
    if !subject.contains(": ") {
        return Some(format!("{name} {subject}: does not begin with the area, as in `aqm: ...`"));
    }
    let blank = lines.next().is_none_or(|line| line.trim().is_empty());
    // Who else wrote it is not why.
    let says = |line: &str| !line.trim().is_empty() && !line.contains("-by: ");
    if !blank || !lines.any(says) {
        return Some(format!("{name} {subject}: has no body below a blank line that says why"));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_has_an_area_a_short_subject_and_a_reason() {
        let long = format!("abc1234\naqm: {}\n\nBecause.\n", "x".repeat(68));
        assert_eq!(problem("abc1234\naqm: short\n\nBecause.\n"), None);
        assert!(problem(&long).is_some_and(|it| it.ends_with("73 columns; at most 72")));
        for without in [
            "abc1234\naqm: short\n",
            "abc1234\naqm: short\n\nCo-authored-by: A <a@b>\n",
            "abc1234\naqm: short\nBecause.\n",
            "abc1234\nshort\n\nBecause.\n",
        ] {
            assert!(problem(without).is_some(), "{without}");
        }
    }
}
