//! Rules of this repository that no other tool checks.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail};

/// Lines of a source file, at most: one file, one idea.
const MAX_LINES: usize = 800;
/// Columns of a source line, at most.
const MAX_COLUMNS: usize = 100;

/// Checks every file that git tracks.
pub fn check() -> anyhow::Result<()> {
    let output = Command::new("git").args(["ls-files", "-z"]).output().context("git ls-files")?;
    let files = String::from_utf8(output.stdout).context("git ls-files")?;
    let mut problems = Vec::new();
    for file in files.split('\0').filter(|file| !file.is_empty()) {
        let Ok(text) = fs::read_to_string(file) else { continue };
        if Path::new(file).extension().is_some_and(|extension| extension == "rs") {
            check_source(file, &text, &mut problems);
        }
        if has_conflict_marker(&text) {
            problems.push(format!("{file}: a merge conflict marker"));
        }
    }
    for problem in &problems {
        eprintln!("{problem}");
    }
    if !problems.is_empty() {
        bail!("{} problems", problems.len());
    }
    Ok(())
}

fn check_source(file: &str, text: &str, problems: &mut Vec<String>) {
    let lines = text.lines().count();
    if lines > MAX_LINES {
        problems.push(format!("{file}: {lines} lines; split it at {MAX_LINES}"));
    }
    for (number, line) in (1..).zip(text.lines()) {
        let columns = line.chars().count();
        // A long literal cannot be broken without changing it, nor can a row of a table.
        let breakable = !line.contains('"') && !line.trim_start().starts_with("//! |");
        if columns > MAX_COLUMNS && breakable {
            problems.push(format!("{file}:{number}: {columns} columns; at most {MAX_COLUMNS}"));
        }
        for word in forbidden() {
            if line.contains(&word) {
                problems.push(format!("{file}:{number}: `{word}` left in"));
            }
        }
    }
    if !text.starts_with("//!") && !text.starts_with("#![") {
        problems.push(format!("{file}: does not start with `//!` saying what it is"));
    }
}

/// Words that mark unfinished work; put together here so that this file passes its own check.
fn forbidden() -> [String; 3] {
    ["TO", "FIX", "XX"].map(|start| match start {
        "TO" => format!("{start}DO"),
        "FIX" => format!("{start}ME"),
        _ => format!("{start}X"),
    })
}

fn has_conflict_marker(text: &str) -> bool {
    text.lines().any(|line| line.starts_with("<<<<<<< ") || line.starts_with(">>>>>>> "))
}
