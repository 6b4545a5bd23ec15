//! `cargo xtask words BASE`: words of each page for users, at a commit and now, and their limits.

use std::collections::BTreeMap;
use std::fs;

use crate::pages::{CONTRIBUTING, has_extension};
use crate::process::git;
use crate::tidy::WRITTEN_PAGES;

/// The page that everybody sees first.
const README: &str = "README.md";
/// Words of [`README`], and of all pages for users without those that programs write, at most.
const LIMITS: (usize, usize) = (700, 60_000);

fn is_for_users(file: &str) -> bool {
    let is_of_docs = file.starts_with("docs/") && !file.starts_with(CONTRIBUTING);
    has_extension(file, "md") && (file == README || is_of_docs)
}

fn count(text: &str) -> usize {
    text.split_whitespace().count()
}

pub fn run(base: &str) -> anyhow::Result<()> {
    let mut pages: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    for page in git(&["ls-tree", "-r", "--name-only", base])?.lines().filter(|it| is_for_users(it))
    {
        let text = git(&["show", &format!("{base}:{page}")])?;
        pages.entry(page.to_owned()).or_default().0 = count(&text);
    }
    for page in git(&["ls-files"])?.lines().filter(|it| is_for_users(it)) {
        let text = fs::read_to_string(page).unwrap_or_default();
        pages.entry(page.to_owned()).or_default().1 = count(&text);
    }
    println!("{:>7} {:>7}  page", "before", "now");
    for (page, (before, now)) in &pages {
        println!("{before:>7} {now:>7}  {page}");
    }
    for (name, is_written) in [("all but what programs write", false), ("written", true)] {
        let sum = pages.iter().filter(|(page, _)| page.starts_with(WRITTEN_PAGES) == is_written);
        let (before, now) = sum.fold((0, 0), |sum, (_, it)| (sum.0 + it.0, sum.1 + it.1));
        println!("{before:>7} {now:>7}  {name}");
    }
    Ok(())
}

/// Returns the limits that are exceeded.
pub fn problems(files: &[&str]) -> Vec<String> {
    let pages = files.iter().filter(|file| is_for_users(file) && !file.starts_with(WRITTEN_PAGES));
    let words = pages.map(|page| (*page, count(&fs::read_to_string(page).unwrap_or_default())));
    let words: BTreeMap<&str, usize> = words.collect();
    let readme = words.get(README).copied().unwrap_or_default();
    let counts = [(README, readme, LIMITS.0), ("pages for users", words.values().sum(), LIMITS.1)];
    let too_long = counts.into_iter().filter(|(_, words, limit)| words > limit);
    let line = |(name, words, limit)| format!("{name}: {words} words, more than {limit}");
    too_long.map(line).collect()
}
