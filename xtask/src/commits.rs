//! Checks commits: a short first line with the area, and a body with the reason.

use anyhow::bail;

use crate::process::git;

/// Longest first line, columns.
const SUBJECT_MAX: usize = 72;
/// Commits made since this time follow these rules. A date also works in a fresh or shallow clone,
/// where no branch and no tag says which commits are new.
const SINCE: &str = "--since=2026-11-24T05:00:00Z";

/// Checks the commits since `base`, or those made since [`SINCE`].
///
/// # Errors
/// Returns an error if a commit breaks a rule, or if git cannot list the commits.
pub fn check(base: Option<&str>) -> anyhow::Result<()> {
    if git(&["rev-parse", "--git-dir"]).is_err() {
        crate::skips::report("commits", "there is no git history here");
        return Ok(());
    }
    let which = base.map_or_else(|| SINCE.to_owned(), |base| format!("{base}..HEAD"));
    let log = git(&["log", "--no-merges", "-z", "--format=%h%n%B", &which])?;
    let commits: Vec<&str> = log.split('\0').filter(|commit| !commit.is_empty()).collect();
    if commits.is_empty() && base.is_none() {
        bail!("git log {which} lists no commit, so nothing was checked");
    }
    let problems: Vec<String> = commits.iter().filter_map(|commit| problem(commit)).collect();
    for problem in &problems {
        eprintln!("{problem}");
    }
    if !problems.is_empty() {
        bail!("{} of {} commits ({which})", problems.len(), commits.len());
    }
    eprintln!("    {} commits checked ({which})", commits.len());
    Ok(())
}

/// Describes the fault of a commit, given as its short name and its message.
fn problem(commit: &str) -> Option<String> {
    let mut lines = commit.trim_end().lines();
    let name = lines.next().unwrap_or_default();
    let subject = lines.next().unwrap_or_default();
    let columns = subject.chars().count();
    if columns > SUBJECT_MAX {
        return Some(format!("{name} {subject}: {columns} columns; at most {SUBJECT_MAX}"));
    }
    let change = subject.split_once(": ").map(|(_, change)| change);
    if !change.is_some_and(|change| change.starts_with(char::is_uppercase)) {
        return Some(format!(
            "{name} {subject}: is not an area and what changes, as in `aqm: Reject zero rates`"
        ));
    }
    let blank = lines.next().is_none_or(|line| line.trim().is_empty());
    // A line with an author's name does not count as the body.
    let says = |line: &str| !line.trim().is_empty() && !line.contains("-by: ");
    if !blank || !lines.any(says) {
        return Some(format!("{name} {subject}: expected a blank line and a body that says why"));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_has_an_area_a_short_subject_and_a_reason() {
        let long = format!("abc1234\naqm: {}\n\nBecause.\n", "X".repeat(68));
        assert_eq!(problem("abc1234\naqm: Short\n\nBecause.\n"), None);
        assert!(problem(&long).is_some_and(|it| it.ends_with("73 columns; at most 72")));
        for without in [
            "abc1234\naqm: Short\n",
            "abc1234\naqm: Short\n\nCo-authored-by: A <a@b>\n",
            "abc1234\naqm: Short\nBecause.\n",
            "abc1234\naqm: short\n\nBecause.\n",
            "abc1234\nShort\n\nBecause.\n",
        ] {
            assert!(problem(without).is_some(), "{without}");
        }
    }
}
